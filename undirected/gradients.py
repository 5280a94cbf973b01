"""Gradients: how a solve is differentiated.

All but `Unroll` solve without keeping anything for the backward pass, so that memory does not grow with the sweeps.
At an equilibrium s = F(s, theta) of the sweep F with J = dF/ds, a loss L has the gradient
`dL/dtheta = v (I - J)^-1 dF/dtheta` with `v = dL/ds`. They differ in what they make of `(I - J)^-1`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from undirected.adjoint import Adjoint, pull, slopes_by, solve_adjoint, solve_hessian
from undirected.equilibrium import Tolerance
from undirected.errors import QueryError
from undirected.graph import Graph
from undirected.propagation import propagate
from undirected.sweep import Left, Map, Route, Values

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.evidence import Evidence


TILTED = Tolerance(residual=1e-5, max_iterations=200, acceleration="anderson")


class Gradient(ABC):
    """A way to differentiate a solve; `gradient=` of a network's call."""

    @property
    @abstractmethod
    def sweeps(self) -> int:
        """How many sweeps are run after the solve, differentiably."""

    def unrolls(self, count: int | None) -> bool:
        """Is this the same as `Unroll` for a solve of so many sweeps, or for one to equilibrium (None)?"""
        if count is not None and isinstance(self, (Implicit, EquilibriumPropagation)) and count < 2:
            raise QueryError(f"{self}: needs an equilibrium; give until, or many iterations, not {count}.")
        return isinstance(self, Unroll) or (count is not None and count <= self.sweeps)


@dataclass(frozen=True)
class Unroll(Gradient):
    """Through every sweep: exact for the sweeps that were made; memory grows with their number. The default."""

    @property
    def sweeps(self) -> int:
        return 0


@dataclass(frozen=True)
class Truncated(Gradient):
    """Through the last `k` sweeps: `I + J + ... + J^(k-1)` in place of `(I - J)^-1`. With `until`, k sweeps more."""

    k: int = 3

    def __post_init__(self) -> None:
        if self.k < 1:
            raise QueryError(f"{self}: k must be at least 1.")

    @property
    def sweeps(self) -> int:
        return self.k


@dataclass(frozen=True)
class OneStep(Gradient):
    """Through the last sweep alone: `I` in place of `(I - J)^-1`. No solve in the backward pass."""

    @property
    def sweeps(self) -> int:
        return 1


@dataclass(frozen=True)
class Implicit(Gradient):
    """The implicit function theorem: a linear system, solved in the backward pass.

    Args:
        residual: how small its error must be, relative to the right side, per example.
        max_iterations: how many steps there are at most.
        method: "anderson" repeats the transposed sweep, extrapolated; "minres" solves the symmetric system of the
            energy's Hessian.
        depth: how many steps Anderson extrapolates from.
        otherwise: what happens when examples are not done by then: "warn", "raise" or "ignore".

    What became of it is in `solution.adjoint` after the backward pass.
    """

    residual: float = 1e-5
    max_iterations: int = 100
    method: str = "anderson"
    depth: int = 8
    otherwise: str = "warn"

    def __post_init__(self) -> None:
        if not self.residual > 0 or self.max_iterations < 1 or self.depth < 1:
            raise QueryError(f"{self}: residual must be positive, max_iterations and depth at least 1.")
        if self.method not in ("anderson", "minres"):
            raise QueryError(f"{self}: method is 'anderson' or 'minres'.")
        if self.otherwise not in ("warn", "raise", "ignore"):
            raise QueryError(f"{self}: otherwise is 'warn', 'raise' or 'ignore'.")

    @property
    def sweeps(self) -> int:
        return 1


@dataclass(frozen=True)
class EquilibriumPropagation(Gradient):
    """Two more solves, with the energy tilted by plus and minus `beta` times the loss: the difference of what they
    find gives the gradient, and nothing is propagated backward through any of them.

    Args:
        beta: how far it is tilted, relative to the largest entry of an example's `dL/dx`. The error shrinks with
            beta^2 (with beta if not centered), until the solves' own error shows.
        centered: tilt both ways, or one way only.
        until: the tolerance of the two solves.
    """

    beta: float = 0.1
    centered: bool = True
    until: Tolerance = TILTED

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise QueryError(f"{self}: beta must be positive.")

    @property
    def sweeps(self) -> int:
        return 0


@dataclass(frozen=True)
class Differentiable:
    """The end of a solve, attached to what it was computed from."""

    values: Values
    preactivations: Values
    adjoint: Adjoint | None


def attach(
    gradient: Gradient, graph: Graph, route: Route, evidence: Evidence, values: Values, preactivations: Values
) -> Differentiable:
    """Make the end of a solve that kept nothing differentiable."""
    step = Map(graph, route.next(graph), evidence)
    values = {name: x.detach() for name, x in values.items()}
    preactivations = {name: t.detach() for name, t in preactivations.items()}
    if isinstance(gradient, (Implicit, EquilibriumPropagation)):
        names = list(step.sweep.final)
        report = Adjoint()
        weights = [p for p in graph.parameters() if p.requires_grad]
        if isinstance(gradient, Implicit):
            given = [tensor for tensor in step.held() if tensor is not None]
            observed = list(evidence.values.values())
            job: object = (gradient, step, values, preactivations, names, report, len(given))
            found = _Implicit.apply(job, *given, *observed, *weights)
        else:
            given = list(evidence.values.values())
            job = (gradient, graph, route, evidence, values, preactivations, names, report, len(given))
            found = _Propagated.apply(job, *given, *weights)
        x, t = found[: len(names)], found[len(names) :]
        return Differentiable(dict(zip(names, x, strict=True)), dict(zip(names, t, strict=True)), report)
    for _ in range(gradient.sweeps):
        left = step(values, preactivations, linear=True)
        if step.sweep.hints:  # one full step of an inner descent is right in its derivative, not in its value
            left = _moved(left, step(values, preactivations))
        values, preactivations = left.values, left.preactivations
    return Differentiable(values, preactivations, None)


def _moved(left: Left, to: Left) -> Left:
    values = {name: x + (to.values[name] - x).detach() for name, x in left.values.items()}
    t = {name: t + (to.preactivations[name] - t).detach() for name, t in left.preactivations.items()}
    return replace(left, values=values, preactivations=t)


class _Implicit(torch.autograd.Function):
    """One sweep, whose backward pass adds what the solve before it depends on."""

    @staticmethod
    def forward(ctx, job, *tensors):
        _, step, values, preactivations, names, _, count = job
        given = iter([tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors[:count]])
        held = [None if tensor is None else next(given) for tensor in step.held()]
        with torch.enable_grad():
            start = {name: values[name].requires_grad_() for name in step.sweep.state}
            left = step({**values, **start}, preactivations, held=held, linear=True)
            if step.sweep.hints:
                with torch.no_grad():
                    exact = step(values, preactivations, held=held)
                left = _moved(left, exact)
        observed = len(step.evidence.values)
        ctx.job, ctx.start, ctx.left = job, start, left
        ctx.held = [tensor for tensor in held if tensor is not None]
        ctx.observed, ctx.weights = tensors[count : count + observed], list(tensors[count + observed :])
        found = [left.values[name] for name in names] + [left.preactivations[name] for name in names]
        return tuple(tensor.detach() for tensor in found)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *slopes):
        gradient, step, _, _, names, report, _ = ctx.job
        found = [ctx.left.values[name] for name in names] + [ctx.left.preactivations[name] for name in names]
        every = list(slopes)
        added: list[Tensor | None] = [None] * (len(ctx.observed) + len(ctx.weights))
        if gradient.method == "minres":
            observed = {
                name: x.detach().requires_grad_(x.requires_grad)
                for name, x in zip(step.evidence.values, ctx.observed, strict=True)
            }
            inner = slopes_by(ctx.start, found, slopes)
            added = solve_hessian(gradient, step, ctx.left, inner, observed, ctx.weights, report)
            for i, name in enumerate(observed):  # what is known of a variable is the observed value itself
                if name in step.evidence.known and name in inner and observed[name].requires_grad:
                    added[i] = _sum(added[i], inner[name] * step.evidence.known[name])
        else:
            for name, slope in solve_adjoint(gradient, step, ctx.start, ctx.left, found, slopes, report).items():
                every[names.index(name)] = every[names.index(name)] + slope
        count = len(ctx.held)
        direct = pull(found, every, [*ctx.held, *ctx.observed, *ctx.weights])
        return None, *direct[:count], *(_sum(a, b) for a, b in zip(direct[count:], added, strict=True))


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


class _Propagated(torch.autograd.Function):
    """The end of a solve; its backward pass solves twice more."""

    @staticmethod
    def forward(ctx, job, *tensors):
        _, _, _, _, values, preactivations, names, _, _ = job
        ctx.job, ctx.inputs = job, tensors
        return tuple(x.clone() for each in (values, preactivations) for x in (each[name] for name in names))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *slopes):
        gradient, graph, route, evidence, values, preactivations, names, report, count = ctx.job
        n = len(names)
        return None, *propagate(
            gradient,
            graph,
            route,
            replace(evidence, values=dict(zip(evidence.values, ctx.inputs[:count], strict=True))),
            (values, preactivations),
            dict(zip(names, slopes[:n], strict=True)),
            dict(zip(names, slopes[n:], strict=True)),
            list(ctx.inputs[count:]),
            report,
        )
