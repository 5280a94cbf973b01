"""Adjoint: the linear system of a gradient at equilibrium, `u = v + J^T u`, and what became of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undirected.anderson import Anderson
from undirected.errors import Diverged, NotConverged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float
    from torch import Tensor

    from undirected.gradients import Implicit
    from undirected.sweep import Left, Map, Values


@dataclass
class Adjoint:
    """How the backward solve went. Empty until the backward pass has been."""

    iterations: int | None = None
    #: The largest entry of `v + J^T u - u`, relative to that of v, per example.
    residual: Float[Tensor, " batch"] | None = None
    converged: Bool[Tensor, " batch"] | None = None


def solve_adjoint(
    gradient: Implicit,
    step: Map,
    start: Values,
    left: Left,
    found: Sequence[Tensor],
    slopes: Sequence[Tensor],
    report: Adjoint,
) -> Values:
    """`u` by variable of the sweep's state, for the loss's slopes by what the sweep found."""
    names = list(start)
    if not names:
        report.iterations, report.residual = 0, torch.zeros(step.evidence.batch)
        report.converged = torch.ones(step.evidence.batch, dtype=torch.bool)
        return {}
    pairs = [(x, s) for x, s in zip(found, slopes, strict=True) if x.requires_grad]
    v = _pulled([x for x, _ in pairs], [s for _, s in pairs], start)
    shapes = {name: x.shape for name, x in start.items()}
    widths = [x[0].numel() for x in start.values()]
    ends = [left.values[name] for name in names if left.values[name].requires_grad]

    def parts(flat: Tensor) -> Values:
        split = flat.split(widths, 1)
        return {name: part.reshape(shapes[name]) for name, part in zip(names, split, strict=True)}

    def transposed(u: Tensor) -> Tensor:
        each = parts(u)
        return _pulled(ends, [each[name] for name in names if left.values[name].requires_grad], start)

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
