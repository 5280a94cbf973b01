"""Arithmetic on logarithms of weights, where a weight of zero is -inf: sums and draws, safe to differentiate twice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from undirected.regularizers import concrete

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from undirected.structure.structure import Structure


def log_sum_exp(x: Float[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    """`log sum exp(x)` along `dim`; -inf, with zero derivatives, where all of x is -inf.

    `torch.logsumexp` has NaN derivatives there, `torch.logaddexp` a NaN second derivative already at one -inf.

    >>> x = torch.tensor([-math.inf, -math.inf], requires_grad=True)
    >>> log_sum_exp(x, 0).backward()
    >>> x.grad
    tensor([0., 0.])
    """
    top = x.detach().amax(dim, keepdim=True)
    top = torch.where(top == -math.inf, 0, top)
    mass = (x - top).exp().sum(dim)
    empty = mass == 0
    return torch.where(empty, -math.inf, torch.where(empty, 1, mass).log() + top.squeeze(dim))


def conditional(x: Float[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    """`softmax(x)` along `dim`; zeros where all of x is -inf.

    >>> conditional(torch.tensor([[0.0, -math.inf], [0.0, -math.inf]]), 0)
    tensor([[0.5000, 0.0000],
            [0.5000, 0.0000]])
    """
    top = x.detach().amax(dim, keepdim=True)
    weight = (x - torch.where(top == -math.inf, 0, top)).exp()
    mass = weight.sum(dim, keepdim=True)
    return weight / torch.where(mass == 0, 1, mass)


def draw(probability: Float[Tensor, "... choices"], generator: torch.Generator | None = None) -> Int[Tensor, "..."]:
    """One index per vector of probabilities; never one whose probability is zero.

    >>> draw(torch.tensor([[0.0, 1.0, 0.0]]))
    tensor([1])
    """
    edges = probability.cumsum(-1)
    uniform = torch.rand(edges.shape[:-1], generator=generator, dtype=edges.dtype, device=edges.device)
    return (uniform[..., None] * edges[..., -1:] >= edges).sum(-1).clamp_max(edges.shape[-1] - 1)


def exact(
    structure: Structure, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None, required: bool = False
) -> Float[Tensor, "batch *event"]:
    """Checked scores in float64, -inf outside the mask. +inf (an entry that must be present) only where `required`."""
    if not scores.is_floating_point():
        raise TypeError(f"{structure}: scores must be floating point, got {scores.dtype}. Labels? Use `encode`.")
    scores = scores.double()
    if concrete(scores):
        bad = scores.detach().isnan() if required else scores.detach().isnan() | (scores.detach() == math.inf)
        if mask is not None:
            bad = bad & mask
        if bad.any():
            where = tuple(bad.nonzero()[0].tolist())
            raise ValueError(
                f"{structure}: the score of entry {where[1:]} of example {where[0]} is {scores[where].item()} "
                f"({int(bad.sum())} of {bad.numel()} entries). Scores are finite, or -inf for what is forbidden."
            )
    return scores if mask is None else torch.where(mask, scores, -math.inf)
