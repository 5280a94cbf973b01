"""Heads: a tree as one head number per word, as the arcs `[head, modifier]` with the root first, and packed n x n."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.regularizers import concrete

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


def to_arcs(heads: Int[Tensor, "... n"], dtype: torch.dtype | None = None) -> Float[Tensor, "... n+1 n"]:
    """The arcs of a tree, 1 where `heads[m] = h` with words counted from 1 and 0 for the root; a head of -1 is none.

    >>> to_arcs(torch.tensor([[2, 0]]))
    tensor([[[0., 1.],
             [0., 0.],
             [1., 0.]]])
    """
    numbers = torch.arange(heads.shape[-1] + 1, device=heads.device)
    return (heads.unsqueeze(-2) == numbers[:, None]).to(dtype or torch.get_default_dtype())


def from_arcs(arcs: Float[Tensor, "... n+1 n"]) -> Int[Tensor, "... n"]:
    """The head of each word, the most probable one if `arcs` are marginals; -1 for a word without arcs (padding).

    >>> from_arcs(torch.tensor([[[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]]))
    tensor([[2, 0]])
    """
    weight, heads = arcs.max(-2)
    return torch.where(weight > 0, heads, -1)


def pack(arcs: Float[Tensor, "... n+1 n"]) -> Float[Tensor, "... n n"]:
    """The n x n form: root arcs on the diagonal, where no word can be its own head.

    >>> pack(torch.tensor([[[1.0, 2.0], [0.0, 3.0], [4.0, 0.0]]]))
    tensor([[[1., 3.],
             [4., 2.]]])
    """
    n = arcs.shape[-1]
    diagonal = torch.eye(n, dtype=torch.bool, device=arcs.device)
    return torch.where(diagonal, arcs[..., :1, :], arcs[..., 1:, :])


def unpack(packed: Float[Tensor, "... n n"], fill: float = 0.0) -> Float[Tensor, "... n+1 n"]:
    """The inverse of `pack`; `fill` goes to the arcs from a word to itself.

    >>> unpack(torch.tensor([[[1.0, 3.0], [4.0, 2.0]]]))
    tensor([[[1., 2.],
             [0., 3.],
             [4., 0.]]])
    """
    n = packed.shape[-1]
    diagonal = torch.eye(n, dtype=torch.bool, device=packed.device)
    root = packed.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    return torch.cat([root, torch.where(diagonal, fill, packed)], -2)


def encode(owner: object, labels: Int[Tensor, "batch n"], shape: tuple[int, ...]) -> Float[Tensor, "batch n+1 n"]:
    """Heads as arcs, after checks; a head of -1 is padding, a column of zeros."""
    n = shape[1]
    if labels.dim() != 2 or labels.shape[1] != n:
        raise ValueError(
            f"{owner}: heads have shape {tuple(labels.shape)}, but a variable of shape {shape} takes (batch, {n})."
        )
    if concrete(labels) and labels.numel():
        low, high = int(labels.min()), int(labels.max())
        if low < -1 or high > n:
            raise ValueError(
                f"{owner}: heads are 0 (the root) to {n}, or -1 for padding, but these go from {low} to {high}."
            )
        own = labels == torch.arange(1, n + 1, device=labels.device)
        if own.any():
            b, word = own.nonzero()[0].tolist()
            raise ValueError(
                f"{owner}: word {word + 1} of example {b} is its own head. Words count from 1; 0 is the root."
            )
    return to_arcs(labels)


def is_tree(
    arcs: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> Bool[Tensor, " batch"]:
    """Is each example a spanning tree of the words that exist: one head each, no cycle, and one root if so asked?"""
    binary = ((arcs == 0) | (arcs == 1)).flatten(1).all(1)
    one_head = (arcs.sum(1) == exists).all(1)
    heads = from_arcs(arcs).clamp_min(0)
    tree = binary & one_head & rooted(heads)
    return tree & ((arcs[:, 0].sum(1) == 1) | ~exists.any(1)) if single_root else tree


def rooted(heads: Int[Tensor, "batch n"]) -> Bool[Tensor, " batch"]:
    """Do all words reach the root by following their heads?"""
    up = torch.cat([torch.zeros_like(heads[:, :1]), heads], 1)
    for _ in range(heads.shape[1].bit_length()):  # each step doubles how far everyone has climbed
        up = up.gather(1, up)
    return (up == 0).all(1)


def crosses(heads: Int[Tensor, "batch n"]) -> Bool[Tensor, " batch"]:
    """Do two arcs of the tree cross, when the root stands to the left of all words?"""
    words = torch.arange(1, heads.shape[1] + 1, device=heads.device)
    exists = heads >= 0
    left, right = torch.minimum(heads, words), torch.maximum(heads, words)
    a, b = left[:, :, None], right[:, :, None]
    c, d = left[:, None, :], right[:, None, :]
    crossing = (a < c) & (c < b) & (b < d) & exists[:, :, None] & exists[:, None, :]
    return crossing.flatten(1).any(1)
