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

from undirected.adjoint import Adjoint, add, pull, slopes_by, solve_adjoint, solve_hessian
from undirected.equilibrium import Tolerance
from undirected.errors import QueryError
from undirected.graph import Graph
from undirected.program import helpful
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
    depth: int = 5
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


@dataclass
class Solved:
    """The end of a solve that kept nothing; it is taken out, so that what is not needed of it can be freed."""

    values: Values
    preactivations: Values

    def take(self) -> tuple[Values, Values]:
        values, preactivations = self.values, self.preactivations
        self.values, self.preactivations = {}, {}
        return values, preactivations


@dataclass(frozen=True)
class Differentiable:
    """The end of a solve, attached to what it was computed from."""

    values: Values
    preactivations: Values
    adjoint: Adjoint | None


def attach(gradient: Gradient, graph: Graph, route: Route, evidence: Evidence, solved: Solved) -> Differentiable:
    """Make the end of a solve that kept nothing differentiable."""
    if isinstance(gradient, EquilibriumPropagation):
        return _propagated(gradient, graph, route, evidence, solved)
    step = Map(graph, route.next(graph), evidence)
    found, t = solved.take()
    values = {name: found[name].detach() for name in step.sweep.state}
    preactivations = {name: t[name].detach() for name in step.sweep.hints}
    del found, t
    kept = set(helpful(graph, route.plan))
    if isinstance(gradient, Implicit):
        return _implicit(gradient, step, values, preactivations, kept)
    for _ in range(gradient.sweeps):
        left = step(values, preactivations, linear=True)
        if step.sweep.hints:  # one full step of an inner descent is right in its derivative, not in its value
            left = _moved(left, step(values, preactivations))
        values, preactivations = left.values, left.preactivations
    return Differentiable(values, {name: t for name, t in preactivations.items() if name in kept}, None)


def _moved(left: Left, to: Left) -> Left:
    values = {name: x + (to.values[name] - x).detach() for name, x in left.values.items()}
    t = {name: t + (to.preactivations[name] - t).detach() for name, t in left.preactivations.items()}
    return replace(left, values=values, preactivations=t)


def _implicit(gradient: Implicit, step: Map, values: Values, preactivations: Values, kept: set[str]) -> Differentiable:
    names, report = list(step.sweep.final), Adjoint()
    with_t = [name for name in names if name in kept]
    held = [tensor for tensor in step.held() if tensor is not None]
    weights = [p for p in step.graph.parameters() if p.requires_grad]
    job = (gradient, step, values, preactivations, with_t, report)
    found = _Implicit.apply(job, *held, *step.evidence.values.values(), *weights)
    x, t = found[: len(names)], found[len(names) :]
    return Differentiable(dict(zip(names, x, strict=True)), dict(zip(with_t, t, strict=True)), report)


class _Implicit(torch.autograd.Function):
    """One sweep, whose backward pass adds what the solve before it depends on.

    Of the sweep's tensors it keeps those alone that autograd needs.
    """

    @staticmethod
    def forward(ctx, job, *tensors):
        gradient, step, values, preactivations, with_t, report = job
        given = iter(tensors)
        token = torch.zeros((), requires_grad=True)
        with torch.enable_grad():
            held = [None if tensor is None else _Joint.apply(token, next(given).detach()) for tensor in step.held()]
            # Cut off from what they were computed from, which may be the weights themselves: that is autograd's part.
            ctx.observed = _cut(dict(zip(step.evidence.values, given, strict=False)))
            step = step.observing(ctx.observed)
            start = {name: values[name].requires_grad_() for name in step.sweep.state}
            left = step(start, preactivations, held=held, linear=True)
            if step.sweep.hints:
                with torch.no_grad():
                    exact = step(values, preactivations, held=held)
                left = _moved(left, exact)
        ctx.gradient, ctx.report, ctx.start, ctx.left = gradient, report, start, left.values
        ctx.t = {name: left.preactivations[name] for name in with_t}
        ctx.held = [torch.autograd.graph.get_gradient_edge(tensor) for tensor in held if tensor is not None]
        ctx.weights = list(given)
        ctx.needed = ctx.needs_input_grad[1:]
        # The Hessian's system is of all variables, and built from the network itself.
        ctx.system = (step, left.preactivations) if gradient.method == "minres" else None
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach() for each in (ctx.left, ctx.t) for tensor in each.values())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *slopes):
        gradient, report, start = ctx.gradient, ctx.report, ctx.start
        found = [*ctx.left.values(), *ctx.t.values()]
        every = list(slopes)
        added: list[Tensor | None] = [None] * (len(ctx.observed) + len(ctx.weights))
        if gradient.method == "minres":
            step, t = ctx.system
            observed = _cut(ctx.observed)
            inner = slopes_by(start, found, slopes)
            added = solve_hessian(gradient, step, ctx.left, t, inner, observed, ctx.weights, report)
            for i, name in enumerate(observed):  # what is known of a variable is the observed value itself
                if name in step.evidence.known and name in inner and observed[name].requires_grad:
                    added[i] = add(added[i], inner[name] * step.evidence.known[name])
        else:
            names = list(ctx.left)
            for name, slope in solve_adjoint(gradient, start, ctx.left, found, slopes, report).items():
                every[names.index(name)] = add(every[names.index(name)], slope)
        by = [*ctx.held, *ctx.observed.values(), *ctx.weights]
        direct = pull(found, every, [each if needed else None for each, needed in zip(by, ctx.needed, strict=True)])
        count = len(ctx.held)
        return None, *direct[:count], *(add(a, b) for a, b in zip(direct[count:], added, strict=True))


def _cut(values: Values) -> Values:
    """The same numbers as leaves of a graph of their own."""
    return {name: x.detach().requires_grad_(x.requires_grad) for name, x in values.items()}


class _Joint(torch.autograd.Function):
    """A tensor as a place in the graph where gradients are asked for, without the graph holding its memory."""

    @staticmethod
    def forward(ctx, token, tensor):
        return tensor.detach()

    @staticmethod
    def backward(ctx, slope):
        return None, None


def _propagated(
    gradient: EquilibriumPropagation, graph: Graph, route: Route, evidence: Evidence, solved: Solved
) -> Differentiable:
    values, preactivations = ({name: x.detach() for name, x in each.items()} for each in solved.take())
    names, report = list(route.next(graph).final), Adjoint()
    weights = [p for p in graph.parameters() if p.requires_grad]
    given = list(evidence.values.values())
    job = (gradient, graph, route, evidence, values, preactivations, names, report, len(given))
    found = _Propagated.apply(job, *given, *weights)
    x, t = found[: len(names)], found[len(names) :]
    return Differentiable(dict(zip(names, x, strict=True)), dict(zip(preactivations, t, strict=True)), report)


class _Propagated(torch.autograd.Function):
    """The end of a solve; its backward pass solves twice more."""

    @staticmethod
    def forward(ctx, job, *tensors):
        _, _, _, _, values, preactivations, names, _, _ = job
        ctx.job, ctx.inputs = job, tensors
        return tuple(x.clone() for x in (*(values[name] for name in names), *preactivations.values()))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *slopes):
        gradient, graph, route, evidence, values, preactivations, names, report, count = ctx.job
        n = len(names)
        return None, *propagate(
            gradient,
            graph,
            route,
            replace(evidence, values=_cut(dict(zip(evidence.values, ctx.inputs[:count], strict=True)))),
            (values, preactivations),
            dict(zip(names, slopes[:n], strict=True)),
            dict(zip(preactivations, slopes[n:], strict=True)),
            list(ctx.inputs[count:]),
            report,
        )
