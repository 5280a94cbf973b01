"""Tree: what all regularizers over dependency trees share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from undirected.regularizers import concrete
from undirected.structure import heads
from undirected.structure.structure import Structure

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


class Tree(Structure):
    """What all trees over words share: arcs `[head, modifier]` of shape (n + 1, n), where head 0 is the root.

    Entry `[h, m]` is the arc from head h to word m + 1; arcs from a word to itself count nothing.
    """

    def __init__(self, single_root: bool = True, scale: float = 1.0) -> None:
        super().__init__(scale)
        self.single_root = single_root

    def log_partition(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.infer(scores, mask)[0]

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.infer(scores, mask)[1]

    def condition(self, scores: Tensor, known: Tensor, value: Tensor) -> Tensor:
        """A known arc forbids the other heads of its word; an arc known to be absent is forbidden itself."""
        present = known & (value == 1)
        if concrete(present) and (present.sum(1) > 1).any():
            b, word = (present.sum(1) > 1).nonzero()[0].tolist()
            several = present[b, :, word].nonzero().flatten().tolist()
            raise ValueError(f"{self}: word {word + 1} of example {b} has several known heads, {several}. Give it one.")
        forbidden = (known & (value != 1)) | (present.any(1, keepdim=True) & ~present)
        return torch.where(forbidden, -torch.inf, scores)

    def contains(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        return heads.is_tree(h, _words(h, mask), self.single_root)

    def label_axes(self, rank: int) -> tuple[int, ...]:
        return (1,)

    def encode(self, labels: Int[Tensor, "batch n"], shape: tuple[int, ...]) -> Float[Tensor, "batch n+1 n"]:
        """Head numbers as arcs: 0 for the root, words count from 1; -1 is padding and gives a column of zeros."""
        return heads.encode(self, labels, shape)

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(shape[1])

    def _check(self, scores: Tensor) -> None:
        if scores.dim() != 3 or scores.shape[1] != scores.shape[2] + 1 or scores.shape[2] == 0:
            raise ValueError(
                f"{self}: scores of arcs [head, modifier] have shape (batch, n + 1, n), with the root as head 0 and at "
                f"least one word, but these have {tuple(scores.shape)}. Is it the packed n x n form? Then `unpack` it."
            )

    def _masked(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Bool[Tensor, "batch n"]]:
        """Scores with -inf outside the mask, and which words exist."""
        self._check(scores)
        return scores if mask is None else torch.where(mask, scores, -torch.inf), _words(scores, mask)


def _words(scores: Tensor, mask: Tensor | None) -> Bool[Tensor, "batch n"]:
    if mask is None:
        return torch.ones(len(scores), scores.shape[2], dtype=torch.bool, device=scores.device)
    return mask.any(-2).expand(len(scores), scores.shape[2])
