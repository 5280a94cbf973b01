"""Inspection: is a network what it says it is? Every factor multilinear, every message its score's derivative."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undirected.bounds import Bound, bound
from undirected.evidence import Evidence, gather
from undirected.factors import Directed, Energy, Factor
from undirected.graph import Graph
from undirected.variable import Symbol

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 3  # of symbolic axes, or more where an axis such as n-4 needs it
BATCH = 2
TOLERANCE = 1e-8  # relative, in float64


@dataclass(frozen=True)
class FactorReport:
    """How far a factor is from what it should be, relative to the size of its messages."""

    name: str
    kind: str
    nonlinearity: float  # how much the derivative by a variable changes with that variable
    message_error: float  # how far messages are from the derivative
    is_energy: bool  # found by an inner descent, so that neither matters
    score_shape: tuple[int, ...] | None = None  # of a batch of two, where it is not (2,)

    @property
    def ok(self) -> bool:
        right = self.nonlinearity <= TOLERANCE and self.message_error <= TOLERANCE and self.score_shape is None
        return self.is_energy or right

    def __str__(self) -> str:
        if self.score_shape is not None:
            return f"{self.name} ({self.kind}): score gives {self.score_shape} for {BATCH} examples, NOT ({BATCH},)"
        if self.is_energy:
            return f"{self.name} ({self.kind}): any energy, minimised by an inner descent"
        linear = "multilinear" if self.nonlinearity <= TOLERANCE else f"NOT multilinear (by {self.nonlinearity:.1e})"
        right = "right" if self.message_error <= TOLERANCE else f"NOT its derivative (off by {self.message_error:.1e})"
        return f"{self.name} ({self.kind}): {linear}, messages {right}"


@dataclass(frozen=True)
class Report:
    """What `net.check()` found. `ok` if every factor is right and no query is without a lower bound."""

    factors: tuple[FactorReport, ...]
    bounds: tuple[Bound, ...]

    @property
    def ok(self) -> bool:
        return all(factor.ok for factor in self.factors) and all(bound.verdict != "no" for bound in self.bounds)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.factors, *self.bounds)))


def inspect(graph: Graph, queries: Iterable[Sequence[str]]) -> Report:
    """Try every factor at random points in float64, and judge every query's energy."""
    exact = copy.deepcopy(graph).double().eval()
    generator = torch.Generator().manual_seed(0)
    reports = [_try_factor(exact, name, generator) for name in exact.factors]
    return Report(tuple(reports), tuple(bound(graph, query) for query in queries))


def _try_factor(graph: Graph, name: str, generator: torch.Generator) -> FactorReport:
    factor = graph.factors[name]
    kind = type(factor.original).__name__
    if isinstance(factor.original, Energy):
        return FactorReport(name, kind, 0.0, 0.0, True)
    lengths = {symbol: torch.full((BATCH,), size) for symbol, size in _sizes(graph).items()}
    anchor = graph.anchor()
    like = torch.empty(0, dtype=torch.float64, device=None if anchor is None else anchor.device)
    evidence = gather(graph._variables, {}, "zeros", {k: v.to(like.device) for k, v in lengths.items()}, like)
    evidence.batch = BATCH
    nonlinearity = message_error = 0.0
    for place, target in enumerate(factor.variables):
        if isinstance(factor.original, Directed) and place < len(factor.variables) - 1:
            continue
        values = [_random(graph, v, evidence, generator) for v in factor.variables]
        masks: list[Tensor | None] = [None] * len(values)
        values = factor.shifted(values, masks)
        here, there = values[place], _random(graph, target, evidence, generator)
        score = factor.score(*values)
        if score.shape != (BATCH,):
            return FactorReport(name, kind, 0.0, 0.0, False, tuple(score.shape))
        slopes = [_derivative(factor, place, values, x) for x in (here, there)]
        stand_in = [torch.zeros_like(v) if i == place else v for i, v in enumerate(values)]
        with torch.no_grad():
            message = factor.message(place, *stand_in)
        size = float(slopes[0].abs().amax()) + 1e-300
        nonlinearity = max(nonlinearity, float((slopes[0] - slopes[1]).abs().amax()) / size)
        message_error = max(message_error, float((message - slopes[0]).abs().amax()) / size)
    return FactorReport(name, kind, nonlinearity, message_error, False)


def _sizes(graph: Graph) -> dict[str, int]:
    """A size for each symbol, such that every axis has an entry and no table of shifts is too short."""
    sizes: dict[str, int] = {}
    for variable in graph.variables.values():
        for symbol in variable.symbols:
            sizes[symbol.name] = max(sizes.get(symbol.name, SIZE), 1 - symbol.offset)
    for factor in graph.factors.values():
        for name, table in (factor.original.shift or {}).items():
            axes = graph.variables[factor.variables[factor.original.variables.index(name)]].axes
            for axis, rows in zip(axes[len(axes) - table.dim() :], table.shape, strict=True):
                if isinstance(axis, Symbol) and rows > 1:
                    sizes[axis.name] = min(sizes[axis.name], rows - axis.offset)
    return sizes


def _derivative(factor: Factor, place: int, values: list[Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        score = factor.score(*values[:place], x, *values[place + 1 :]).sum()
        if not score.requires_grad:
            return torch.zeros_like(x)
        (slope,) = torch.autograd.grad(score, x, allow_unused=True)
        return torch.zeros_like(x) if slope is None else slope.detach()


def _random(graph: Graph, name: str, evidence: Evidence, generator: torch.Generator) -> Tensor:
    noise = torch.randn(evidence.shape(name), generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return graph.variables[name].regularizer.activation(noise.to(evidence.device))
