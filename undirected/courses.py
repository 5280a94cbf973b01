"""Courses: which way to an equilibrium a tolerance and an order ask for, and how its end is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from undirected.acceleration import Swept
from undirected.adjoint import Adjoint
from undirected.equilibrium import Course, Equilibrium, Plain, Tolerance, same_end, settle
from undirected.errors import QueryError
from undirected.gradients import Gradient, Solved, attach
from undirected.graph import Graph
from undirected.greedy import Greedy
from undirected.orders import Greedy as GreedyOrder
from undirected.plan import Plan
from undirected.program import Loop, Program
from undirected.solve import run
from undirected.sweep import Route
from undirected.trace import Meter

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


def equilibrium(
    graph: Graph,
    planned: Callable[[int, bool, str], tuple[Plan, Program | Loop | Route]],
    program: Program | Loop | Route,
    evidence: Evidence,
    count: int,
    until: Tolerance | None,
    gradient: Gradient,
    meter: Meter | None,
) -> tuple[Equilibrium, Adjoint | None]:
    """To equilibrium, or differentiated at the end of a solve that keeps nothing.

    `planned` gives the query's plan and program for a number of sweeps, all of them kept or not, and a kind.
    """
    unrolls = gradient.unrolls(None) or not torch.is_grad_enabled()
    route = program
    if not isinstance(program, Route) and (until is None or not until.is_plain or not unrolls):
        route = planned(1, True, "route")[1]
    with torch.set_grad_enabled(unrolls and torch.is_grad_enabled()):
        if until is None:
            whole = planned(count - gradient.sweeps, True, "whole")[1]
            assert isinstance(whole, Program)
            found = same_end(whole, run(graph, whole, evidence, meter), count, evidence)
        else:
            if isinstance(program, Loop) and until.is_plain:
                course: Course = Plain(graph, program, evidence, meter)
            else:
                assert isinstance(route, Route)
                course = course_of(graph, route, evidence, until, meter)
            found = settle(course, until, freeze=meter is None)
            del course  # what it has in memory is not needed any more
    if unrolls:
        return found, None
    assert isinstance(route, Route)
    solved = Solved(found.values, found.preactivations)
    found = replace(found, values={}, preactivations={})
    end = attach(gradient, graph, route, evidence, solved)
    return replace(found, values=end.values, preactivations=end.preactivations), end.adjoint
