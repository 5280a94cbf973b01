"""The inverse of marginal inference: the scores that have given marginals, by Newton's method on `max_t <t, h> - log Z(t)`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

    from undirected.structure.structure import Structure


def potentials(
    structure: Structure,
    h: Float[Tensor, "batch *event"],
    known: Bool[Tensor, "batch *event"],
    mask: Bool[Tensor, ...] | None,
    tolerance: float,
    newton_steps: int = 60,
    cg_steps: int = 400,
) -> tuple[Float[Tensor, "batch *event"], Float[Tensor, " batch"]]:
    """Scores t with marginals h, and `<t, h> - log Z(t)`, in float64; infinite where no t comes within `tolerance`.

    Entries `known` have an h of 0 or 1: the distribution is conditioned on them, which takes the optimum of a vertex or
    face of the polytope from infinity to a finite place. On other faces the scores go to infinity, but marginals
    converge e-fold a step all the same. Outside the polytope they cannot come nearer than its distance.
    """
    free = ~known if mask is None else ~known & mask
    start = structure.condition(torch.zeros_like(h), known, h)

    def objective(t: Tensor) -> tuple[Tensor, Tensor]:
        finite = torch.where(start.isfinite(), t, 0)
        log_z = structure.log_partition(torch.where(start.isfinite(), t, start), mask)
        return (finite * h).flatten(1).sum(1) - log_z, log_z

    def gradient(t: Tensor) -> Tensor:
        marginals = structure.marginals(torch.where(start.isfinite(), t, start), mask)
        return torch.where(free, h - marginals, 0)

    t = torch.zeros_like(h)
    psi, log_z = objective(t)
    possible = log_z.isfinite()
    if not possible.all():  # solve the possible examples alone
        scores, value = start.clone(), torch.full_like(psi, math.inf)
        if possible.any():
            rows = None if mask is None else mask.expand_as(h)[possible]
            inside = potentials(structure, h[possible], known[possible], rows, tolerance, newton_steps, cg_steps)
            scores[possible], value[possible] = inside
        return scores, value

    for _ in range(newton_steps):
        with torch.enable_grad():
            point = t.clone().requires_grad_()
            residual = gradient(point)
        error = residual.detach().flatten(1).abs().amax(1)
        if error.max() <= 1e-13:
            break
        step = _conjugate_gradients(point, residual, h, free, cg_steps)
        ascent = (residual.detach() * step).flatten(1).sum(1)
        rate = torch.ones_like(psi)
        for _ in range(40):  # halve the step of the examples that it does not serve
            trial, _ = objective(t + _along(rate, t) * step)
            poor = ~(trial >= psi + 1e-4 * rate * ascent - 1e-13 * (1 + psi.abs()))
            if not poor.any():
                break
            rate = torch.where(poor, rate / 2, rate)
        rate = torch.where(poor, 0, rate)
        if not (rate > 0).any():
            break
        t = t + _along(rate, t) * step
        psi = torch.where(poor, psi, trial)

    error = gradient(t).flatten(1).abs().amax(1)
    return torch.where(start.isfinite(), t, start), torch.where(error <= tolerance, psi, math.inf)


def _along(x: Float[Tensor, " batch"], like: Tensor) -> Tensor:
    return x.reshape(-1, *[1] * (like.dim() - 1))


def _conjugate_gradients(point: Tensor, residual: Tensor, h: Tensor, free: Tensor, steps: int) -> Tensor:
    """The Newton step: solve `Hessian x = residual`, each example with its own step lengths.

    The Hessian of log Z is the covariance of the entries. It is applied by differentiating the marginals, preconditioned
    with its diagonal m (1 - m), and damped in proportion to the residual, because directions that change no
    distribution (one number added to all heads of a word) are in its null space.
    """
    rhs = residual.detach()
    marginals = torch.where(free, h - rhs, 0)
    scale = torch.where(free, marginals * (1 - marginals), 1).clamp_min(1e-30)
    damping = 1e-3 * _along(rhs.flatten(1).abs().amax(1), rhs).clamp(1e-12, 1e-2) * scale

    def hessian(v: Tensor) -> Tensor:
        (product,) = torch.autograd.grad(residual, point, -v, retain_graph=True)
        return torch.where(free, product, 0) + damping * v

    x = torch.zeros_like(rhs)
    left = rhs
    direction = preconditioned = left / scale
    size = first = (left * preconditioned).flatten(1).sum(1)
    for _ in range(min(steps, 2 * rhs[0].numel() + 10)):
        image = hessian(direction)
        curve = (direction * image).flatten(1).sum(1)
        going = (size > 1e-20 * first) & (curve > 0)
        if not going.any():
            break
        rate = _along(torch.where(going, size / torch.where(going, curve, 1), 0), x)
        x, left = x + rate * direction, left - rate * image
        preconditioned = left / scale
        new = (left * preconditioned).flatten(1).sum(1)
        ratio = _along(torch.where(going, new / torch.where(going, size, 1), 0), x)
        direction = torch.where(_along(going, x), preconditioned + ratio * direction, 0)
        size = torch.where(going, new, 0)
    return x
