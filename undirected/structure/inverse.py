"""The inverse of marginal inference: the scores that have given marginals, by Newton's method."""

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
    precision: float,
    newton_steps: int = 60,
    cg_steps: int = 400,
) -> tuple[Float[Tensor, "batch *event"], Float[Tensor, " batch"]]:
    """Scores t with marginals h, and `<t, h> - log Z(t)`, in float64; infinite where there are none.

    Entries `known` have an h of 0 or 1: the distribution is conditioned on them, which takes the optimum of a vertex or
    face of the polytope from infinity to a finite place. On other faces the scores go to infinity, but marginals
    converge e-fold a step all the same. Outside the polytope they cannot come nearer than its distance, so what stays
    more than the root of `precision`, the relative precision of h, away is called outside.
    """
    free = ~known if mask is None else ~known & mask
    start = structure.condition(torch.zeros_like(h), known, h)

    def objective(t: Tensor) -> Tensor:
        finite = torch.where(start.isfinite(), t, 0)
        log_z = structure.log_partition(torch.where(start.isfinite(), t, start), mask)
        return (finite * h).flatten(1).sum(1) - log_z

    def gradient(t: Tensor) -> Tensor:
        marginals = structure.marginals(torch.where(start.isfinite(), t, start), mask)
        return torch.where(free, h - marginals, 0)

    possible = structure.possible(start, mask)
    if not possible.all():  # solve the possible examples alone
        scores, value = start.clone(), h.new_full((len(h),), math.inf)
        if possible.any():
            rows = None if mask is None else mask.expand_as(h)[possible]
            inside = potentials(structure, h[possible], known[possible], rows, precision, newton_steps, cg_steps)
            scores[possible], value[possible] = inside
        return scores, value

    noise = max(4 * precision, 1e-13)
    t = torch.zeros_like(h)
    psi = objective(t)
    for _ in range(newton_steps):
        with torch.enable_grad():
            point = t.clone().requires_grad_()
            residual = gradient(point)
        error = residual.detach().flatten(1).abs().amax(1)
        if (error <= noise).all():
            break
        step = _along(error > noise, t) * _conjugate_gradients(point, residual, h, free, cg_steps)
        ascent = (residual.detach() * step).flatten(1).sum(1)
        rate = torch.ones_like(psi)
        for _ in range(40):  # halve the step of the examples that it does not serve
            trial = objective(t + _along(rate, t) * step)
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
    return torch.where(start.isfinite(), t, start), torch.where(error <= precision**0.5, psi, math.inf)


def _along(x: Float[Tensor, " batch"], like: Tensor) -> Tensor:
    return x.reshape(-1, *[1] * (like.dim() - 1))


def _conjugate_gradients(point: Tensor, residual: Tensor, h: Tensor, free: Tensor, steps: int) -> Tensor:
    """The Newton step: solve `Hessian x = residual`, each example with its own step lengths.

    The Hessian of log Z is the covariance of the entries; it is applied by differentiating the marginals, and
    preconditioned with its diagonal m (1 - m). Directions that change no distribution, such as one number added to all
    heads of a word, are in its null space: an example stops where what is left to solve is all but such a direction.
    """
    left = residual.detach()
    marginals = torch.where(free, h - left, 0)
    scale = torch.where(free, marginals * (1 - marginals), 1).clamp_min(1e-30)
    x = torch.zeros_like(left)
    direction = preconditioned = left / scale
    size = first = _dot(left, preconditioned)
    for _ in range(min(steps, 2 * left[0].numel() + 10)):
        (image,) = torch.autograd.grad(residual, point, -direction, retain_graph=True)
        image = torch.where(free, image, 0)
        curve = _dot(direction, image)
        going = (size > 1e-20 * first) & (curve > 1e-7 * _dot(direction, scale * direction))
        if not going.any():
            break
        rate = _along(torch.where(going, size / curve, 0), x)
        x, left = x + rate * direction, left - rate * image
        preconditioned = left / scale
        new = _dot(left, preconditioned)
        ratio = _along(torch.where(going, new / size, 0), x)
        direction = torch.where(_along(going, x), preconditioned + ratio * direction, 0)
        size = torch.where(going, new, 0)
    return x


def _dot(x: Tensor, y: Tensor) -> Float[Tensor, " batch"]:
    return (x * y).flatten(1).sum(1)
