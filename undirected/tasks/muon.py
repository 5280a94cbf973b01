"""Muon: an optimizer for matrices, whose steps are as long in every direction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

#: Of the polynomial `a s + b s^3 + c s^5` that brings singular values near 1, by Jordan et al. (2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5  #: of it; singular values from 0.01 to 1 are then between 0.68 and 1.14


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal: `W <- (1 - rate decay) W - rate 0.2 sqrt(longer side) U V'`, where `U S V'` is it.

    An entry then changes by 0.2 rates, as with AdamW. Where a few directions of a matrix have far larger gradients than
    all others, as when weights are used sweep after sweep, AdamW follows those; here, the others move as well. It is
    `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`, but computes with the precision of the weights: bfloat16 takes
    fifty times as long as float32 on a CPU that has no instructions for it.

    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.tensor([[100.0, 0.0], [0.0, 1.0]])
    >>> Muon([weight], lr=1.0).step()
    >>> bool(weight[1, 1] / weight[0, 0] > 0.5)  # not 0.01
    True
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        matrices = list(parameters)
        wrong = [tuple(weight.shape) for weight in matrices if weight.ndim != 2]
        if wrong:
            raise ValueError(f"Muon is for matrices, not for weights of shape {wrong[0]}.")
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, weight.grad, group)
        return loss

    def _update(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        mean = state["momentum"]
        mean.lerp_(gradient, 1 - group["momentum"])
        direction = orthogonal(gradient.lerp(mean, group["momentum"]))  # as Nesterov: a step ahead
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(direction, alpha=-0.2 * group["lr"] * max(weight.shape) ** 0.5)


def orthogonal(matrix: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Nearly `U V'` of the singular value decomposition `U S V'`, by products of matrices alone."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    a, b, c = COEFFICIENTS
    found = matrix / matrix.norm().clamp(min=1e-7)
    for _ in range(ROUNDS):
        square = found @ found.T
        found = torch.addmm(found, torch.addmm(square, square, square, beta=b, alpha=c), found, beta=a)
    return found
