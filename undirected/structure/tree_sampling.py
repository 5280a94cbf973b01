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
            w, b, p, rho, there = (
                x[easy].repeat(count, *[1] * (x.dim() - 1)) for x in (tree.w, tree.c.mT, tree.p, tree.rho, exists)
            )
            drawn[:, easy] = _by_updates(w, b, p, rho, there, generator).unflatten(0, (count, -1))
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
        _, marginals = matrix_tree.log_partition_and_marginals(scores, exists, single_root)
        heads.append(_draw(marginals[:, :, j], exists[:, j], generator))
        other = (numbers != heads[j][:, None]) & exists[:, j, None]
        scores[:, :, j] = scores[:, :, j].masked_fill(other, -torch.inf)
    return torch.stack(heads, 1)


def _by_updates(
    w: Tensor, b: Tensor, p: Tensor, rho: Tensor, exists: Tensor, generator: torch.Generator | None
) -> Tensor:
    heads, rows = [], torch.arange(len(w), device=w.device)
    b = b.clone()
    for j in range(w.shape[2]):
        keep = (p != j).to(w.dtype)[:, None]  # column p of the inverse counts for the root only
        own, root = b[:, :, j] * keep, b[rows, :, p]
        # Row j of the inverse gives the marginals of word j's arcs.
        others = b[:, j].clone()
        others[rows, p] = 0
        marginals = w[:, :, j].clone()
        marginals[:, 1:] *= own[:, j, None] - others
        marginals[:, 0] *= rho * own[:, j] + root[:, j]
        head = _draw(marginals.clamp_min_(0), exists[:, j], generator)
        heads.append(head)
        # The Laplacian's column j becomes that of a single arc of weight one: `a = B times it` needs no product.
        word = (head - 1).clamp_min(0)
        other = b[rows, :, word] * (word != p).to(w.dtype)[:, None]
        a = torch.where((head == 0)[:, None], rho[:, None] * own + root, own - other)
        a[:, j].masked_fill_(head < 0, 1)
        pivot = a[:, j].clone()
        a[:, j] -= 1
        a = torch.where((head < 0)[:, None], 0, a / pivot[:, None])
        b -= a[:, :, None] * b[:, j, None, :]
    return torch.stack(heads, 1)
