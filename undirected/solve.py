"""Solve: run a program on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from undirected.factors import descend
from undirected.graph import Graph, sum_terms
from undirected.program import Descent, Operation, Program, Send, Set

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.factors import Factor

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
    registers: list[Tensor | None] = [None] * program.registers
    for name, number in program.given.items():
        start = evidence.start.get(name)
        registers[number] = evidence.values[name] if start is None else start
    execute(graph, program.operations, registers, evidence, watch, steps)
    return registers


def execute(
    graph: Graph,
    operations: tuple[Operation, ...],
    registers: list[Tensor | None],
    evidence: Evidence,
    watch: Watcher | None = None,
    steps: nn.ModuleList | None = None,
) -> None:
    """Run operations on registers, in place."""
    factors: Mapping[str, Factor] = graph.factors._modules  # type: ignore[assignment]
    zeros: dict[str, Tensor] = {}
    for position, operation in enumerate(operations):
        own = None if steps is None else steps[position]
        if type(operation) is Send:
            factor = factors[operation.factor]
            values = []
            for number, name in zip(operation.inputs, factor.variables, strict=True):
                if number is not None:
                    values.append(registers[number])
                else:
                    if name not in zeros:
                        zeros[name] = evidence.zeros(name)
                    values.append(zeros[name])
            if factor.original._shifts:
                values = factor.shifted(values, [evidence.masks[name] for name in factor.variables])  # type: ignore[arg-type]
            if own is not None:
                factor = own.factor
            if operation.bias:
                bias = graph.bias(operation.target) if own is None else own.bias
                registers[operation.out] = factor.biased_message(operation.place, bias, *values)  # type: ignore[arg-type]
            else:
                registers[operation.out] = factor.message(operation.place, *values)  # type: ignore[arg-type]
        else:
            bias = None
            if operation.bias:
                bias = graph.bias(operation.variable) if own is None else own.bias
            t = _preactivation(operation, registers, bias, evidence)
            x, t = _activate(graph, operation, t, registers, evidence)
            registers[operation.out] = x
            if operation.preactivation is not None:
                registers[operation.preactivation] = t
            if watch is not None:
                watch(operation, x, t)
        for number in operation.free:
            registers[number] = None


def _preactivation(operation: Set, registers: list[Tensor | None], bias: Tensor | None, evidence: Evidence) -> Tensor:
    """`b + sum of messages`."""
    if not operation.messages:
        zeros = evidence.zeros(operation.variable)
        return zeros if bias is None else zeros + bias
    t = registers[operation.messages[0]]
    assert t is not None
    for number in operation.messages[1:]:
        t = t + registers[number]  # type: ignore[operator]
    return t if bias is None else t + bias


def _activate(
    graph: Graph, operation: Set, z: Tensor, registers: list[Tensor | None], evidence: Evidence
) -> tuple[Tensor, Tensor]:
    """The block that minimises the energy, and the pre-activation that it is the activation of."""
    name = operation.variable
    regularizer, mask = graph._variables[name].regularizer, evidence.masks[name]
    known, dropout = evidence.known.get(name), evidence.dropout.get(name)
    if known is None and dropout is None and not operation.descent:
        return regularizer.activation(z, mask), z

    def activate(t: Tensor) -> Tensor:
        if dropout is None:
            if known is None:
                return regularizer.activation(t, mask)
            return regularizer.complete(t, known, evidence.values[name], mask)
        x = regularizer.activation(t, mask) * dropout
        return x if known is None else torch.where(known, evidence.values[name], x)

    if not operation.descent:
        return activate(z), z

    def extra(x: Tensor) -> Tensor:
        return sum_terms({d.factor: _extra(graph, d, x, registers, evidence) for d in operation.descent})

    start = None if operation.start is None else registers[operation.start]
    current = None if operation.current is None else registers[operation.current]
    steps = max(graph.factors[d.factor].original.steps for d in operation.descent)  # type: ignore[attr-defined]
    return descend(extra, lambda x: graph.psi(name, x, None, evidence), activate, z, start, current, steps)


def _extra(graph: Graph, descent: Descent, x: Tensor, registers: list[Tensor | None], evidence: Evidence) -> Tensor:
    variables = graph.factors[descent.factor].variables
    values = {
        name: evidence.zeros(name) if number is None else registers[number]
        for name, number in zip(variables, descent.inputs, strict=True)
    }
    values[variables[descent.place]] = x
    return graph.factor_term(descent.factor, values, evidence)  # type: ignore[arg-type]
