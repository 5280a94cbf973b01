"""Draw: pictures of a network's factor graph and of a plan's unrolled graph, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from undirected.errors import QueryError
from undirected.graph import Graph
from undirected.plan import Plan

if TYPE_CHECKING:
    from undirected.draw.canvas import Drawing


def draw(subject: Graph | Plan, observed: str | Sequence[str] = ()) -> Drawing:
    """The picture of a network, or of what a call to it will do.

    Networks are drawn from left to right, beginning with the variable that was declared first; recurrent ones, whose
    tied factors step through time, as a grid. The result shows itself in a notebook; elsewhere, save it.

    Args:
        subject: a network, or a plan from `net.plan(...)`.
        observed: for a network, the variables to shade; a plan knows its own.

    >>> import undirected as un
    >>> net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (3,), un.Softmax()), un.Linear("x", "y"))
    >>> str(un.draw(net, observed=["x"]))[:4]
    '<svg'
    >>> str(un.draw(net.plan(observe=["x"], want="y")))[:4]
    '<svg'
    """
    # Imported here, because most programs draw nothing.
    from undirected.draw.factor_graph import draw_graph
    from undirected.draw.unrolled_graph import draw_plan

    names = observed.split() if isinstance(observed, str) else list(observed)
    if isinstance(subject, Plan):
        if names:
            raise QueryError("draw: a plan knows what is observed; leave observed= out.")
        return draw_plan(subject)
    if not isinstance(subject, Graph):
        raise TypeError(f"draw: takes a network or a plan, not {type(subject).__name__}.")
    return draw_graph(subject, names)
