"""MINRES: symmetric linear systems that need not be definite, one per example (Paige and Saunders, 1975)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def minres(
    apply: Callable[[Tensor], Tensor], right: Float[Tensor, "batch n"], residual: float, max_iterations: int
) -> tuple[Float[Tensor, "batch n"], Float[Tensor, " batch"], int]:
    """x with `apply(x) = right`, the residuals' norms relative to the right sides', and how many products it took."""
    tiny = torch.finfo(right.dtype).tiny
    size = right.norm(dim=1)
    x = w = w_old = r_old = torch.zeros_like(right)
    r = y = right
    beta, beta_old, epsilon, delta_bar = size, torch.ones_like(size), torch.zeros_like(size), torch.zeros_like(size)
    phi_bar, cosine, sine = size, -torch.ones_like(size), torch.zeros_like(size)
    steps = 0
    while steps < max_iterations and bool((phi_bar > residual * size).any()):
        steps += 1
        going = phi_bar > residual * size
        v = y / beta.clamp_min(tiny)[:, None]
        y = apply(v)
        if steps > 1:
            y = y - (beta / beta_old.clamp_min(tiny))[:, None] * r_old
        alpha = (v * y).sum(1)
        y = y - (alpha / beta.clamp_min(tiny))[:, None] * r
        r_old, r = r, y
        beta_old, beta = beta, y.norm(dim=1)
        epsilon_old, delta = epsilon, cosine * delta_bar + sine * alpha
        gamma_bar = sine * delta_bar - cosine * alpha
        epsilon, delta_bar = sine * beta, -cosine * beta
        gamma = torch.hypot(gamma_bar, beta).clamp_min(tiny)
        cosine, sine = gamma_bar / gamma, beta / gamma
        phi = cosine * phi_bar
        w_old, w = w, (v - epsilon_old[:, None] * w_old - delta[:, None] * w) / gamma[:, None]
        x = torch.where(going[:, None], x + phi[:, None] * w, x)
        phi_bar = torch.where(going, (sine * phi_bar).abs(), phi_bar)
    return x, phi_bar / size.clamp_min(tiny), steps
