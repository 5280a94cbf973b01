"""SpanningTree: a variable that is a distribution over non-projective dependency trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.structure import heads, reachability
from undirected.structure.arborescence import best_heads
from undirected.structure.matrix_tree import log_partition_and_marginals
from undirected.structure.tree import Tree
from undirected.structure.tree_sampling import sample_heads

if TYPE_CHECKING:
    from torch import Tensor


class SpanningTree(Tree):
    """All spanning trees, crossing arcs allowed: `Psi*(t) = log sum over trees of exp(<t, tree>)`.

    By the matrix-tree theorem: time O(n^3), memory O(n^2) per sentence. `single_root`: exactly one word hangs on the
    root. For scores of shape (batch, n + 1, n):

    >>> tree = SpanningTree()
    >>> tree.conjugate(torch.zeros(1, 4, 3)).exp().round(decimals=4)  # 3^2 trees over three words
    tensor([9.])
    >>> tree.activation(torch.zeros(1, 3, 2))  # either word is the root, and the other's head
    tensor([[[0.5000, 0.5000],
             [0.0000, 0.5000],
             [0.5000, 0.0000]]])
    """

    def infer(self, scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self._check(scores)
        return log_partition_and_marginals(scores, mask, self.single_root)

    def mode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """By Chu-Liu and Edmonds' algorithm."""
        masked, exists = self._masked(scores, mask)
        return heads.to_arcs(best_heads(masked, exists, self.single_root), scores.dtype)

    def sample(
        self,
        scores: Tensor,
        count: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        masked, exists = self._masked(scores, mask)
        drawn = sample_heads(masked.detach().double(), exists, self.single_root, count, generator)
        return heads.to_arcs(drawn, scores.dtype)

    def possible(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        masked, exists = self._masked(scores, mask)
        return reachability.possible(masked, exists, self.single_root)
