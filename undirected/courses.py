"""Courses: which way to an equilibrium a tolerance and an order ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undirected.acceleration import Swept
from undirected.equilibrium import Course, Tolerance
from undirected.errors import QueryError
from undirected.graph import Graph
from undirected.greedy import Greedy
from undirected.orders import Greedy as GreedyOrder
from undirected.sweep import Route

if TYPE_CHECKING:
    from undirected.evidence import Evidence
    from undirected.solve import Watcher


def course_of(graph: Graph, route: Route, evidence: Evidence, until: Tolerance, watch: Watcher | None) -> Course:
    """The way for all but plain sweeps in a fixed order."""
    if isinstance(route.order, GreedyOrder):
        if not until.is_plain or watch is not None:
            raise QueryError("a greedy order goes without acceleration, damping, check and trace.")
        return Greedy(graph, route, evidence)
    if until.acceleration and not route.order.is_fixed:
        raise QueryError("acceleration needs an order that is the same in every sweep.")
    if until.acceleration and watch is not None:
        raise QueryError("check and trace follow single updates; leave out the acceleration of until.")
    return Swept(graph, route, evidence, until, watch)
