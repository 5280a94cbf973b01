"""Greedy: always update the block that would change most, for each example by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from undirected.equilibrium import Course
from undirected.errors import QueryError
from undirected.graph import Graph
from undirected.solve import activation, run
from undirected.sweep import Route, Values, preactivation

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.evidence import Evidence


class Greedy(Course):
    """After a first sweep through all blocks, a sweep is as many updates per example as there are blocks.

    The residual is the largest change that any update would still make.
    """

    def __init__(self, graph: Graph, route: Route, evidence: Evidence) -> None:
        super().__init__(graph, evidence)
        self.route = route
        self.next: dict[str, tuple[Tensor, Tensor]] = {}  # what each block would be set to, and its pre-activation
        for name in graph.variables:
            if graph.extra_energies(name):
                raise QueryError(f"greedy: {name} is found by an inner descent, whose change is not known before.")

    def sweep(self, iteration: int) -> Mapping[str, Tensor]:
        if iteration == 1:
            program = self.route.first(self.graph)
            registers = run(self.graph, program, self.evidence)
            self.values = {name: registers[program.final[name]] for name in program.preactivations}  # type: ignore[index, misc]
            self.preactivations = {name: registers[r] for name, r in program.preactivations.items()}  # type: ignore[misc]
            self._look(list(self.values))
            return {name: x for name, (x, _) in self.next.items()}
        for _ in self.values:
            names = list(self.values)
            with torch.no_grad():
                pending = [_largest(self.next[name][0] - self.values[name]) for name in names]
                choice = torch.stack(pending).argmax(0)
            chosen = [name for i, name in enumerate(names) if bool((choice == i).any())]
            for name in chosen:
                rows = (choice == names.index(name)).view(-1, *[1] * (self.values[name].dim() - 1))
                x, t = self.next[name]
                self.values[name] = torch.where(rows, x, self.values[name])
                self.preactivations[name] = torch.where(rows, t, self.preactivations[name])
            factors = {factor for name in chosen for factor, _ in self.graph.links[name]}
            near = {variable for factor in factors for variable in self.graph.factors[factor].variables}
            self._look([name for name in names if name in near])
        return {name: x for name, (x, _) in self.next.items()}

    def _look(self, names: list[str]) -> None:
        """What these blocks would be set to now."""
        graph, evidence = self.graph, self.evidence
        every: Values = {name: evidence.zeros(name) for name in graph.variables} | evidence.values | evidence.start
        every |= self.values
        for name in names:
            t = preactivation(graph, name, every, evidence)
            self.next[name] = activation(graph, name, evidence)(t), t

    def rows(self, index: Tensor) -> None:
        super().rows(index)
        self.next = {name: (x[index], t[index]) for name, (x, t) in self.next.items()}


def _largest(change: Tensor) -> Tensor:
    return change.abs().reshape(len(change), -1).amax(1)
