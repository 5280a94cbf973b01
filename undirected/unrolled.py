"""Unrolled: one query of a network as a plain directed module."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import nn

from undirected.errors import QueryError
from undirected.evidence import gather
from undirected.graph import Graph
from undirected.operation import Operation, Send
from undirected.plan import Plan
from undirected.program import Program
from undirected.solve import run
from undirected.variable import Partial

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.factors import Factor


class Unrolled(nn.Module):
    """The operations of a plan, as a module from the observed tensors to the wanted ones."""

    def __init__(
        self, graph: Graph, inputs: tuple[str, ...], plan: Plan, program: Program, preactivation: bool, tie: bool
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.plan = plan
        self.preactivation = preactivation
        self._program = program
        program.listing.function(not tie)  # written now, so that tracing finds it
        for name in plan.want:
            if preactivation and name not in program.preactivations:
                raise QueryError(f"unrolled: {name} is not updated, so it has no pre-activation.")
        if tie:
            self.network = graph
            self.steps = None
        else:
            # In a tuple: the untied module has weights of its own and none of the network's.
            self._shape = (graph,)
            self.steps = nn.ModuleList(_Step(graph, operation) for operation in program.listing.operations)
        self.train(graph.training)

    def forward(self, *observed: Tensor, lengths: Mapping[str, Tensor] | None = None) -> Tensor | tuple[Tensor, ...]:
        graph = self.network if self.steps is None else self._shape[0]
        rest = list(observed)
        takes = len(self.inputs) + len(self.plan.partial)
        if len(rest) != takes:
            words = [f"{name}, known {name}" if name in self.plan.partial else name for name in self.inputs]
            raise QueryError(f"takes {takes} tensors ({', '.join(words)}), got {len(rest)}.")
        given: dict[str, Tensor | Partial] = {}
        for name in self.inputs:
            value = rest.pop(0)
            given[name] = Partial(value, known=rest.pop(0)) if name in self.plan.partial else value
        evidence = gather(graph._variables, given, "zeros", lengths, next(self.parameters(), None))
        if self.training:
            evidence.draw_dropout([name for name in self.plan.updated if graph._variables[name].dropout])
        registers = run(graph, self._program, evidence, steps=self.steps)
        numbers = self._program.preactivations if self.preactivation else self._program.final
        found = tuple(registers[numbers[name]] for name in self.plan.want)  # type: ignore[index]
        return found[0] if len(found) == 1 else found  # type: ignore[return-value]


class _Step(nn.Module):
    """The weights of one operation."""

    def __init__(self, graph: Graph, operation: Operation) -> None:
        super().__init__()
        self.factor: Factor | None = None
        if isinstance(operation, Send):
            factor = graph.factors[operation.factor]
            target = factor.variables[operation.place]
            self.factor = copy.deepcopy(factor.original)
        else:
            target = operation.variable
        if not isinstance(operation, Send) and operation.descent:
            raise QueryError(f"unrolled: {target} is found by an inner descent, which has no steps to untie.")
        bias = graph.bias(target)
        self.bias = nn.Parameter(bias.detach().clone()) if operation.bias is not None and bias is not None else None
