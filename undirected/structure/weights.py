"""Log-weights: scores in float64, in which what is forbidden is a finite number; and draws from probabilities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from undirected.regularizers import concrete

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from undirected.structure.structure import Structure

#: Stands for -inf. Its exponential is exactly zero too, but sums and differences of it are finite, so that
#: `logsumexp`, `softmax` and all their derivatives stay free of NaN, also where everything is forbidden.
FORBIDDEN = -1e300


def possible(x: Float[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """Is nothing forbidden in this sum of log-weights?"""
    return x > FORBIDDEN / 10


def or_minus_infinity(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Log-weights as the outside world writes them.

    >>> or_minus_infinity(torch.tensor([1.0, FORBIDDEN + FORBIDDEN], dtype=torch.float64))
    tensor([1., -inf], dtype=torch.float64)
    """
    return torch.where(possible(x), x, -math.inf)


def log_weights(
    structure: Structure, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None, required: bool = False
) -> Float[Tensor, "batch *event"]:
    """Checked scores, `FORBIDDEN` for -inf and outside the mask. +inf, what must be present, only where `required`."""
    if not scores.is_floating_point():
        raise TypeError(f"{structure}: scores must be floating point, got {scores.dtype}. Labels? Use `encode`.")
    if concrete(scores):
        seen = scores.detach()
        bad = seen.isnan() if required else seen.isnan() | (seen == math.inf)
        if mask is not None:
            bad = bad & mask
        if bad.any():
            where = tuple(bad.nonzero()[0].tolist())
            raise ValueError(
                f"{structure}: the score of entry {where[1:]} of example {where[0]} is {scores[where].item()} "
                f"({int(bad.sum())} of {bad.numel()} entries). Scores are finite, or -inf for what is forbidden."
            )
    forbidden = scores == -math.inf if mask is None else (scores == -math.inf) | ~mask
    return torch.where(forbidden, FORBIDDEN, scores.double())


def draw(probability: Float[Tensor, "... choices"], generator: torch.Generator | None = None) -> Int[Tensor, "..."]:
    """One index per vector of probabilities; never one whose probability is zero.

    >>> draw(torch.tensor([[0.0, 1.0, 0.0]]))
    tensor([1])
    """
    edges = probability.cumsum(-1)
    uniform = torch.rand(edges.shape[:-1], generator=generator, dtype=edges.dtype, device=edges.device)
    return (uniform[..., None] * edges[..., -1:] >= edges).sum(-1).clamp_max(edges.shape[-1] - 1)
