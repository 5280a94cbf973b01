"""Solve: run a program on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from undirected.factors import Energy, descend
from undirected.graph import Graph, sum_terms
from undirected.listing import Listing
from undirected.operation import Descent, Set
from undirected.program import Given, Program

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.evidence import Evidence

#: Called after each update with the operation, the block's new value and its pre-activation.
Watcher = Callable[[Set, "Tensor", "Tensor"], None]


def run(
    graph: Graph,
    program: Program,
    evidence: Evidence,
    watch: Watcher | None = None,
    steps: nn.ModuleList | None = None,
) -> list[Tensor | None]:
    """Execute a program; the registers that it did not free hold the results.

    With `steps`, each operation has a factor and a bias of its own instead of the graph's.
    """
    registers = load(graph, program.given, program.registers, evidence)
    execute(graph, program.listing, registers, evidence, watch, steps)
    return registers


def load(graph: Graph, given: Given, count: int, evidence: Evidence) -> list[Tensor | None]:
    """Registers with what a program starts from."""
    registers: list[Tensor | None] = [None] * count
    for name, number in given.values.items():
        start = evidence.start.get(name)
        registers[number] = evidence.values[name] if start is None else start
    for name, number in given.zeros.items():
        registers[number] = evidence.zeros(name)
    for name, number in given.biases.items():
        registers[number] = graph.bias(name)
    return registers


def execute(
    graph: Graph,
    listing: Listing,
    registers: list[Tensor | None],
    evidence: Evidence,
    watch: Watcher | None = None,
    steps: nn.ModuleList | None = None,
) -> None:
    """Run a listing on registers, in place."""
    factors = graph.factors._modules if steps is None else {}
    activations = {name: activation(graph, name, evidence) for name in graph._variables}
    descend = descent(graph, activations, evidence)
    listing.function(steps is not None)(registers, factors, activations, evidence, watch, steps, descend)


def descent(
    graph: Graph, activations: Mapping[str, Callable[[Tensor], Tensor]], evidence: Evidence
) -> Callable[[Set, Tensor, dict[int, Tensor]], tuple[Tensor, Tensor]]:
    """What a listing calls for blocks that are found by an inner descent."""

    def descend_block(operation: Set, t: Tensor, values: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        return _descend(graph, operation, t, activations[operation.variable], values, evidence)

    return descend_block


def activation(graph: Graph, name: str, evidence: Evidence) -> Callable[[Tensor], Tensor]:
    """A block's exact minimiser as a function of its pre-activation, with all that this solve knows about it."""
    regularizer, mask = graph._variables[name].regularizer, evidence.masks[name]
    known, dropout = evidence.known.get(name), evidence.dropout.get(name)
    if known is None and dropout is None:
        return regularizer.prepared() if mask is None else partial(regularizer.activation, mask=mask)
    if dropout is None:
        return lambda t: regularizer.complete(t, known, evidence.values[name], mask)  # type: ignore[arg-type]

    def dropped(t: Tensor) -> Tensor:
        x = regularizer.activation(t, mask) * dropout
        return x if known is None else torch.where(known, evidence.values[name], x)

    return dropped


def _descend(
    graph: Graph,
    operation: Set,
    z: Tensor,
    activate: Callable[[Tensor], Tensor],
    values: Mapping[int, Tensor],
    evidence: Evidence,
) -> tuple[Tensor, Tensor]:
    """The block after an inner descent, and the pre-activation that it is the activation of."""

    def extra(x: Tensor) -> Tensor:
        return extra_energy(graph, operation, x, values, evidence)

    def psi(x: Tensor) -> Tensor:
        return graph.psi(operation.variable, x, None, evidence)

    start = None if operation.start is None else values[operation.start]
    current = None if operation.current is None else values[operation.current]
    energies = [graph.factors[d.factor].original for d in operation.descent]
    steps = max(energy.steps for energy in energies if isinstance(energy, Energy))
    return descend(extra, psi, activate, z, start, current, steps)


def extra_energy(graph: Graph, operation: Set, x: Tensor, values: Mapping[int, Tensor], evidence: Evidence) -> Tensor:
    """The energies that are not multilinear in a block, at x."""
    return sum_terms({d.factor: _extra(graph, d, x, values, evidence) for d in operation.descent})


def _extra(graph: Graph, descent: Descent, x: Tensor, values: Mapping[int, Tensor], evidence: Evidence) -> Tensor:
    variables = graph.factors[descent.factor].variables
    inputs = {name: values[number] for name, number in zip(variables, descent.inputs, strict=True)}
    inputs[variables[descent.place]] = x
    return graph.factor_term(descent.factor, inputs, evidence)
