"""Solution: what a solve found, and what happened on the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from undirected.adjoint import Adjoint
from undirected.errors import unknown
from undirected.graph import Graph, sum_terms
from undirected.plan import Plan
from undirected.regularizers import Regularizer
from undirected.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from undirected.evidence import Evidence


@dataclass(frozen=True)
class Solution:
    """The values found, by name: `solution["y"]`. What was observed is there too, labels as probability vectors."""

    values: dict[str, Tensor]
    #: Of what was wanted and is not observed; where only a part of a variable is, perhaps zero for that part.
    preactivation: dict[str, Tensor]
    plan: Plan
    #: The iterations that each example took.
    iterations: Int[Tensor, " batch"]
    #: Did each example reach its tolerance? None after a fixed number of iterations.
    converged: Bool[Tensor, " batch"] | None
    #: The largest change of any entry in an example's last sweep; None after a fixed number of iterations.
    residual: Float[Tensor, " batch"] | None
    trace: Trace | None
    #: How the backward solve of an `un.Implicit` gradient went, after the backward pass; None with other gradients.
    adjoint: Adjoint | None
    _graph: Graph
    _evidence: Evidence
    _state: dict[str, Tensor | None]  # the last value of every variable that was computed
    _preactivations: dict[str, Tensor]

    def __getitem__(self, name: str) -> Float[Tensor, "batch *event"]:
        if name in self.values:
            return self.values[name]
        if name in self._state:
            raise KeyError(f"{name} was not wanted, so its last updates were left out. Add it to want=.")
        raise KeyError(unknown("variable", name, self._state))

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> list[str]:
        return list(self.values)

    def items(self) -> list[tuple[str, Tensor]]:
        return list(self.values.items())

    @cached_property
    def energy(self) -> Float[Tensor, " batch"]:
        """The energy of each example, Psi included. Variables that were never set are absent and count nothing.

        Computed when first asked for, with the weights of that time: ask before the optimizer's step.
        """
        return sum_terms(self.energy_terms)

    @cached_property
    def energy_terms(self) -> dict[str, Float[Tensor, " batch"]]:
        """What each variable and factor adds to the energy."""
        graph, evidence, t = self._graph, self._evidence, self._preactivations
        set_ = {name: x for name, x in self._state.items() if x is not None}
        terms = {name: graph.variable_term(name, x, t.get(name), evidence) for name, x in set_.items()}
        values = {name: evidence.zeros(name) for name in graph.variables} | set_
        return terms | {name: graph.factor_term(name, values, evidence) for name in graph.factors}

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in self.values.items())
        text = f"Solution({shapes})"
        if self.converged is not None:
            text += f" {int(self.converged.sum())} of {len(self.converged)} converged"
        return text

    def regularizer(self, name: str) -> Regularizer:
        """A variable's regularizer."""
        return self._graph.variables[name].regularizer

    def read(self, name: str, value: Tensor) -> Float[Tensor, "batch *event"]:
        """A value of a variable as an observation of it would be read: labels encoded, padding zero."""
        return self._evidence.read(name, value)

    def part(self, name: str) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """What is known of a variable that was observed in part: where, its values, and which entries exist."""
        evidence = self._evidence
        known = evidence.known.get(name)
        return None if known is None else (known, evidence.values[name], evidence.masks[name])

    def counted(self, name: str) -> Bool[Tensor, "batch *event"] | None:
        """Which entries of a variable exist and were not observed; None if all."""
        mask, known = self._evidence.masks[name], self._evidence.known.get(name)
        if known is None:
            return mask
        return ~known if mask is None else mask & ~known


def same_count(count: int, batch: int, device: torch.device) -> Tensor:
    """The same number of iterations for every example."""
    return torch.full((batch,), count, device=device)
