"""Query: what a visitor has just asked a network, for the tab that shows the graph and the plan of it."""

from __future__ import annotations

from dataclasses import dataclass

from undirected.graph import Graph
from undirected.plan import Plan


@dataclass(frozen=True)
class Query:
    """A question in words, the network that was asked, and what answering it took."""

    words: str
    net: Graph
    plan: Plan

    def __deepcopy__(self, memo: object) -> Query:
        """It never changes, so all visitors may share it; the page's state would copy the network otherwise."""
        return self
