"""Trace: the course of a solve, update by update, and the check that its energy never rises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undirected.bounds import bound
from undirected.errors import Diverged, EnergyRose
from undirected.graph import Graph, sum_terms

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.operation import Set

#: How many units in the last place, relative to the sum of all terms' sizes, count as rounding.
ROUNDING = 64


@dataclass(frozen=True)
class Step:
    """One update: its iteration, the block's name, and the value that it got."""

    iteration: int
    variable: str
    value: Float[Tensor, "batch *event"]


@dataclass(frozen=True)
class Trace:
    """Every update of a solve, and the energy of each example after it.

    The energy is infinite until every block has been set, so `energy` begins there: its rows belong to the last
    updates of `steps`.
    """

    steps: tuple[Step, ...]
    energy: Float[Tensor, "updates batch"]

    def of(self, variable: str) -> list[Tensor]:
        """The values of one variable, one per update of it."""
        return [step.value for step in self.steps if step.variable == variable]


class Meter:
    """Watches a run. Only the terms of the energy that an update touches are computed anew."""

    def __init__(self, graph: Graph, evidence: Evidence, updated: set[str], check: bool) -> None:
        self.graph = graph
        self.evidence = evidence
        self.check = check
        self.values = {name: evidence.zeros(name) for name in graph.variables} | evidence.values | evidence.start
        whole = set(evidence.values) - set(evidence.known)
        self.unset = {name for name in updated if name not in whole and name not in evidence.start}
        # A variable that is never set is absent: it counts nothing.
        self.present = [name for name in graph.variables if name in {*evidence.values, *evidence.start, *updated}]
        self.preactivations: dict[str, Tensor] = {}
        self.terms: dict[str, Tensor] = {}
        self.steps: list[Step] = []
        self.energies: list[Tensor] = []

    @torch.no_grad()
    def __call__(self, operation: Set, x: Tensor, t: Tensor) -> None:
        name = operation.variable
        self.steps.append(Step(operation.iteration, name, x.detach()))
        self.values[name], self.preactivations[name] = x, t
        self.unset.discard(name)
        if self.unset:
            return
        is_first = not self.terms
        touched = [*self.present, *self.graph.factors] if is_first else [name, *(f for f, _ in self.graph.links[name])]
        before = {term: self.terms.get(term) for term in touched}
        for term in touched:
            self.terms[term] = self._term(term)
        self.energies.append(sum_terms(self.terms))
        if self.check and not is_first:
            self._compare(operation, before, {term: self.terms[term] for term in touched}, coarsest(x, t))  # type: ignore[arg-type]

    def _term(self, name: str) -> Tensor:
        if name in self.graph.variables:
            return self.graph.variable_term(name, self.values[name], self.preactivations.get(name), self.evidence)
        return self.graph.factor_term(name, self.values, self.evidence)

    def _compare(self, operation: Set, old: dict[str, Tensor], new: dict[str, Tensor], eps: float) -> None:
        """The terms that the update touched, before and after: the others are the same, or infinite for ever."""
        before, after = sum_terms(old), sum_terms(new)
        size = sum_terms({name: term.abs() for name, term in new.items()})
        rose = after - before - ROUNDING * eps * (1 + size)
        rose = torch.where(before.isposinf() & ~after.isnan(), 0, rose)  # from outside a domain nothing can rise
        worst = int(rose.nan_to_num(nan=torch.inf).argmax())
        energies = [float(energy[worst]) for energy in self.energies[-2:]]
        if not math.isfinite(
            energies[0]
        ):  # something observed lies outside its domain; compare what the update touched
            energies = [float(before[worst]), float(after[worst])]
        if not after[worst] > -torch.inf and before[worst] != torch.inf:
            observed = [name for name in self.evidence.values if name not in self.evidence.known]
            raise Diverged(
                f"The update of {operation.variable} in iteration {operation.iteration} left the finite numbers: the "
                f"energy of example {worst} went from {energies[0]:.6g} to {energies[1]:.6g}. "
                f"{bound(self.graph, observed, self.evidence.known).explain()}"
            )
        if not rose[worst] <= 0:
            raise EnergyRose(
                f"The update of {operation.variable} in iteration {operation.iteration} raised the energy of example "
                f"{worst} from {energies[0]:.6g} to {energies[1]:.6g}, by {after[worst] - before[worst]:.3g}. An "
                f"exact block update cannot: see net.check() for a factor that is not multilinear, a message that is "
                f"not its derivative, or a regularizer whose activation is not its minimiser."
            )

    def trace(self) -> Trace:
        batch = self.evidence.batch
        return Trace(tuple(self.steps), torch.stack(self.energies) if self.energies else torch.empty(0, batch))


def coarsest(*tensors: Tensor) -> float:
    """The rounding error of the least exact number type that took part."""
    types = {tensor.dtype for tensor in tensors}
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        types.add(torch.get_autocast_dtype(device))
    return max(torch.finfo(dtype).eps for dtype in types)
