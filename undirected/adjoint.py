"""Adjoint: the linear system of a gradient at equilibrium, `u = v + J^T u`, and what became of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.autograd.graph import GradientEdge

from undirected.anderson import Anderson
from undirected.errors import Diverged, NotConverged
from undirected.minres import minres
from undirected.sweep import preactivation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float
    from torch import Tensor

    from undirected.gradients import Implicit
    from undirected.sweep import Map, Values


@dataclass
class Adjoint:
    """How the backward solve went. Empty until the backward pass has been."""

    iterations: int | None = None
    #: The largest entry of `v + J^T u - u`, relative to that of v, per example.
    residual: Float[Tensor, " batch"] | None = None
    converged: Bool[Tensor, " batch"] | None = None


def solve_adjoint(
    gradient: Implicit,
    start: Values,
    left: Values,
    found: Sequence[Tensor],
    slopes: Sequence[Tensor | None],
    report: Adjoint,
) -> Values:
    """`u` by variable of the sweep's state, for the loss's slopes by what the sweep found.

    `start` and `left` are the values that the sweep began and ended with.
    """
    names = list(start)
    if not names:
        return {}
    v = _rows_by(start, found, slopes)
    shapes = {name: x.shape for name, x in start.items()}
    widths = [x[0].numel() for x in start.values()]
    moved = [name for name in names if left[name].requires_grad]
    ends = [left[name] for name in moved]

    def parts(flat: Tensor) -> Values:
        return _split(flat, shapes)

    def transposed(u: Tensor) -> Tensor:
        each = parts(u)
        return _pulled(ends, [each[name] for name in moved], start)

    _check_finite(v, names, widths, "the loss's gradient")
    size = v.abs().amax(1).clamp_min(torch.finfo(v.dtype).tiny)
    anderson = Anderson(gradient.depth)
    u = best = v
    lowest = torch.full_like(size, torch.inf)
    steps = 0
    while steps < gradient.max_iterations:
        steps += 1
        image = v + transposed(u)
        error = image - u
        residual = error.abs().amax(1) / size
        better = residual < lowest
        best, lowest = torch.where(better[:, None], image, best), torch.where(better, residual, lowest)
        if bool((lowest <= gradient.residual).all()):
            break
        _check_finite(error, names, widths, "the backward solve")
        u = anderson(image, error)
    report.iterations, report.residual, report.converged = steps, lowest, lowest <= gradient.residual
    _tell(gradient, report)
    return parts(best)


def solve_hessian(
    gradient: Implicit,
    step: Map,
    left: Values,
    preactivations: Values,
    slopes: Values,
    observed: Values,
    weights: Sequence[Tensor],
    report: Adjoint,
) -> list[Tensor | None]:
    """What the equilibrium adds to the gradient by what is observed, then by the weights; `slopes` are by its values.

    With `x = activation(t)`, D its derivative and M that of the pre-activations z by x, both symmetric, the gradient is
    `w dz/dtheta` where `w = D q` and `(D - D M D) q = D v`: D times the energy's Hessian times D.
    """
    graph, evidence = step.graph, replace(step.evidence, values=observed)
    activations = step.activations()
    names = list(left)
    with torch.enable_grad():
        x = {name: left[name].detach().requires_grad_() for name in names}
        t = {name: preactivations[name].detach().requires_grad_() for name in names}
        active = [activations[name](t[name]) for name in names]
        every = {name: evidence.zeros(name) for name in graph.variables} | evidence.start | observed
        for name in names:
            known = evidence.known.get(name)
            every[name] = x[name] if known is None else torch.where(known, observed[name], x[name])
        z = [preactivation(graph, name, every, evidence) for name in names]
    shapes = {name: each.shape for name, each in x.items()}
    linked = [i for i, each in enumerate(z) if each.requires_grad]

    def by_activation(u: Tensor) -> Tensor:
        return _pulled(active, list(_split(u, shapes).values()), t)

    def by_couplings(u: Tensor) -> Tensor:
        each = list(_split(u, shapes).values())
        return _pulled([z[i] for i in linked], [each[i] for i in linked], x)

    v = torch.cat([slopes.get(name, torch.zeros_like(x[name])).reshape(len(x[name]), -1) for name in names], 1)
    _check_finite(v, names, [each[0].numel() for each in x.values()], "the loss's gradient")

    def hessian(q: Tensor) -> Tensor:
        scaled = by_activation(q)
        return scaled - by_activation(by_couplings(scaled))

    q, residual, steps = minres(hessian, by_activation(v), gradient.residual, gradient.max_iterations)
    report.iterations, report.residual, report.converged = steps, residual, residual <= gradient.residual
    _tell(gradient, report)
    w = list(_split(by_activation(q), shapes).values())
    return pull(z, w, [*observed.values(), *weights])


def pull(
    ends: Sequence[Tensor], slopes: Sequence[Tensor | None], by: Sequence[Tensor | GradientEdge | None]
) -> list[Tensor | None]:
    """The gradient by some places of a graph, for slopes by others that lie behind; None where there is none."""
    pairs = [(x, s) for x, s in zip(ends, slopes, strict=True) if x.requires_grad and s is not None]
    wanted = [each is not None and (isinstance(each, GradientEdge) or each.requires_grad) for each in by]
    places = [each for each, is_wanted in zip(by, wanted, strict=True) if is_wanted]
    if not pairs or not places:
        return [None] * len(by)
    ends, slopes = [x for x, _ in pairs], [s for _, s in pairs]
    grads = iter(torch.autograd.grad(ends, places, slopes, allow_unused=True))  # type: ignore[arg-type]  # takes a mixture
    return [next(grads) if is_wanted else None for is_wanted in wanted]


def add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The sum of two gradients, either of which may be none."""
    return b if a is None else a if b is None else a + b


def slopes_by(start: Values, found: Sequence[Tensor], slopes: Sequence[Tensor | None]) -> Values:
    """The loss's slopes by what a sweep starts from, for those by what it found."""
    return _split(_rows_by(start, found, slopes), {name: x.shape for name, x in start.items()}) if start else {}


def _rows_by(start: Values, found: Sequence[Tensor], slopes: Sequence[Tensor | None]) -> Tensor:
    pairs = [(x, s) for x, s in zip(found, slopes, strict=True) if x.requires_grad and s is not None]
    return _pulled([x for x, _ in pairs], [s for _, s in pairs], start)


def _split(rows: Tensor, shapes: Mapping[str, torch.Size]) -> Values:
    parts = rows.split([shape[1:].numel() for shape in shapes.values()], 1)
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def _pulled(ends: Sequence[Tensor], slopes: Sequence[Tensor], start: Values) -> Tensor:
    """The slopes by what the sweep starts from, as one row per example."""
    grads: Sequence[Tensor | None] = [None] * len(start)
    if ends:
        grads = torch.autograd.grad(
            list(ends), list(start.values()), list(slopes), retain_graph=True, allow_unused=True
        )
    filled = [torch.zeros_like(x) if g is None else g for g, x in zip(grads, start.values(), strict=True)]
    return torch.cat([g.reshape(len(g), -1) for g in filled], 1)


def _check_finite(rows: Tensor, names: list[str], widths: list[int], what: str) -> None:
    if bool(rows.isfinite().all()):
        return
    example, column = (~rows.isfinite()).nonzero()[0].tolist()
    name = next(n for i, n in enumerate(names) if column < sum(widths[: i + 1]))
    raise Diverged(f"{what} left the finite numbers (example {example}, variable {name!r}).")


def _tell(gradient: Implicit, report: Adjoint) -> None:
    assert report.converged is not None
    assert report.residual is not None
    missed = ~report.converged
    if gradient.otherwise == "ignore" or not bool(missed.any()):
        return
    worst = int(report.residual.argmax())
    text = (
        f"The backward solve did not converge: {int(missed.sum())} of {len(missed)} examples, worst relative residual "
        f"{report.residual[worst]:.1e} after {report.iterations} steps (example {worst}). Raise max_iterations of "
        f"un.Implicit, loosen its residual, or solve to a smaller residual before."
    )
    if gradient.otherwise == "raise":
        raise Diverged(text)
    warnings.warn(text, NotConverged, stacklevel=2)
