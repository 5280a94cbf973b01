"""Settled: one query of a network, solved to equilibrium, as a plain module that compiles and exports.

Its loop is torch's while-loop operator where the module is traced, and an ordinary loop otherwise. The loop operator is
not differentiable: the module is for inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

from undirected.equilibrium import Tolerance
from undirected.evidence import gather
from undirected.graph import Graph
from undirected.solve import run
from undirected.sweep import Map, Route

if TYPE_CHECKING:
    from torch import Tensor


class Settled(nn.Module):
    """From the observed tensors to the wanted ones, after sweeps until no example changes by more than the residual."""

    def __init__(self, graph: Graph, inputs: tuple[str, ...], route: Route, until: Tolerance) -> None:
        super().__init__()
        self.network = graph
        self.inputs, self.until, self.want = inputs, until, route.plan.want
        self._first, self._sweep = route.first(graph), route.next(graph)
        for listing in (self._first.listing, self._sweep.before, self._sweep.listing):
            listing.function(False)  # written now, so that tracing finds it
        self.eval()

    @torch.no_grad()
    def forward(self, *observed: Tensor, lengths: Mapping[str, Tensor] | None = None) -> Tensor | tuple[Tensor, ...]:
        graph, until = self.network, self.until
        given = dict(zip(self.inputs, observed, strict=True))
        evidence = gather(graph._variables, given, "zeros", lengths, next(graph.parameters(), None))
        registers = run(graph, self._first, evidence)
        names = list(self._first.preactivations)
        start = [registers[self._first.final[name]] for name in names]  # type: ignore[index]
        step = Map(graph, self._sweep, evidence)

        def goes_on(iteration: Tensor, residual: Tensor, *values: Tensor) -> Tensor:
            return (iteration < until.max_iterations) & (residual > until.residual)

        def sweep(iteration: Tensor, residual: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
            left = step(dict(zip(names, values, strict=True)), {})
            found = [left.values[name] for name in names]
            changes = [(a - b).abs().amax() for a, b in zip(found, values, strict=True)]
            return iteration + 1, torch.stack(changes).amax(), *found

        state = (torch.ones((), dtype=torch.int64), torch.full((), torch.inf, dtype=evidence.dtype), *start)
        if torch.compiler.is_compiling():
            state = while_loop(goes_on, sweep, state)
        else:
            while bool(goes_on(*state)):  # type: ignore[arg-type]
                state = sweep(*state)  # type: ignore[arg-type]
        found = tuple(state[2 + names.index(name)] for name in self.want)
        return found[0] if len(found) == 1 else found  # type: ignore[return-value]
