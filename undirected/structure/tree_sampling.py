"""Tree sampling: exact samples of spanning trees, word by word, each given the heads drawn before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.structure import matrix_tree

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


def sample_heads(
    scores: Float[Tensor, "batch n+1 n"],
    exists: Bool[Tensor, "batch n"],
    single_root: bool,
    count: int = 1,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "count batch n"]:
    """Heads of `count` trees for each sentence of float64 scores; -1 for words outside `exists`.

    A word's head settles one column of the Laplacian. The inverse follows by a rank-one update (Colbourn et al. 1996),
    so that a tree costs O(n^3). Sentences that need elimination are conditioned and solved anew for every word.
    """
    if count < 1:
        raise ValueError(f"The number of samples must be at least 1, got {count}.")
    with torch.no_grad():
        tree = matrix_tree.factorised(scores, exists, single_root)
        drawn = torch.full((count, *exists.shape), -1, device=scores.device)
        hard = tree.eliminated
        if hard.any():
            drawn[:, hard] = torch.stack(
                [_by_conditioning(scores[hard], exists[hard], single_root, generator) for _ in range(count)]
            )
        if not hard.all():
            easy = ~hard
            w, c, rho, there = (x[easy].repeat(count, *[1] * (x.dim() - 1)) for x in (tree.w, tree.c, tree.rho, exists))
            drawn[:, easy] = _by_updates(w, c, rho, there, generator).unflatten(0, (count, -1))
    return drawn


def _draw(
    weights: Float[Tensor, "batch n+1"], there: Bool[Tensor, " batch"], generator: torch.Generator | None
) -> Tensor:
    """A head for one word, in proportion to the weights; -1 where the word is not there."""
    heads = torch.where(there[:, None], weights, 1).multinomial(1, generator=generator).squeeze(1)
    return torch.where(there, heads, -1)


def _by_conditioning(scores: Tensor, exists: Tensor, single_root: bool, generator: torch.Generator | None) -> Tensor:
    scores, numbers = scores.clone(), torch.arange(scores.shape[1], device=scores.device)
    heads = []
    for j in range(scores.shape[2]):
        _, marginals = matrix_tree.log_partition_and_marginals(scores, exists[:, None], single_root)
        heads.append(_draw(marginals[:, :, j], exists[:, j], generator))
        other = (numbers != heads[j][:, None]) & exists[:, j, None]
        scores[:, :, j] = scores[:, :, j].masked_fill(other, -torch.inf)
    return torch.stack(heads, 1)


def _by_updates(w: Tensor, c: Tensor, rho: Tensor, exists: Tensor, generator: torch.Generator | None) -> Tensor:
    heads, rows = [], torch.arange(len(w), device=w.device)
    c = c.clone()
    for j in range(w.shape[2]):
        own = c[:, j + 1, j]
        marginals = own[:, None] - c[:, :, j]
        marginals[:, 0] += (rho - 1) * own
        head = _draw((marginals * w[:, :, j]).clamp_min_(0), exists[:, j], generator)
        heads.append(head)
        # The matrix's column j becomes that of a single arc of weight one: the inverse times it needs no product.
        a = torch.where(head == 0, rho, 1)[:, None] * c[:, j + 1] - c[rows, head.clamp_min(0)]
        pivot = torch.where(head < 0, 1, a[:, j])
        a[:, j] -= 1
        a = torch.where((head < 0)[:, None], 0, a / pivot[:, None])
        c -= c[:, :, j, None] * a[:, None, :]
    return torch.stack(heads, 1)
