"""Trace: the course of a solve, update by update, and the check that its energy never rises."""

from __future__ import annotations

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
        for variable in self.present if is_first else [name]:
            x, t = self.values[variable], self.preactivations.get(variable)  # type: ignore[assignment]
            self.terms[variable] = self.graph.variable_term(variable, x, t, self.evidence)
        for factor in self.graph.factors if is_first else [f for f, _ in self.graph.links[name]]:
            self.terms[factor] = self.graph.factor_term(factor, self.values, self.evidence)
        self.energies.append(sum_terms(self.terms))
        if self.check and len(self.energies) > 1:
            self._compare(operation)

    def _compare(self, operation: Set) -> None:
        before, after = self.energies[-2:]
        size = sum_terms({name: term.abs() for name, term in self.terms.items()})
        rose = after - before - ROUNDING * torch.finfo(after.dtype).eps * (1 + size)
        rose = torch.where(before.isposinf() & ~after.isnan(), 0, rose)  # from outside a domain nothing can rise
        worst = int(rose.nan_to_num(nan=torch.inf).argmax())
        if not after[worst] > -torch.inf and not before[worst] == torch.inf:
            observed = [name for name in self.evidence.values if name not in self.evidence.known]
            raise Diverged(
                f"The update of {operation.variable} in iteration {operation.iteration} left the finite numbers: the "
                f"energy of example {worst} went from {before[worst]:.6g} to {after[worst]:.6g}. "
                f"{bound(self.graph, observed, self.evidence.known).explain()}"
            )
        if not rose[worst] <= 0:
            raise EnergyRose(
                f"The update of {operation.variable} in iteration {operation.iteration} raised the energy of example "
                f"{worst} from {before[worst]:.6g} to {after[worst]:.6g}, by {after[worst] - before[worst]:.3g}. An "
                f"exact block update cannot: see net.check() for a factor that is not multilinear, a message that is "
                f"not its derivative, or a regularizer whose activation is not its minimiser."
            )

    def trace(self) -> Trace:
        batch = self.evidence.batch
        return Trace(tuple(self.steps), torch.stack(self.energies) if self.energies else torch.empty(0, batch))
