"""Reachability: is a tree possible under the forbidden arcs, and if not, which words are to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.errors import NotFinite

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor


def reaches(arcs: Bool[Tensor, "batch n n"]) -> Bool[Tensor, "batch n n"]:
    """`[i, j]`: is there a path of arcs `[head, modifier]` from i down to j? Every word reaches itself."""
    n = arcs.shape[-1]
    paths = arcs | torch.eye(n, dtype=torch.bool, device=arcs.device)
    for _ in range(max(n - 1, 1).bit_length()):  # each squaring doubles the length of the paths
        paths = paths.float() @ paths.float() > 0
    return paths


def governors(scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"]) -> Bool[Tensor, "batch n"]:
    """The words that have a path of allowed arcs to every other word of their sentence."""
    down = reaches(scores[:, 1:] > -torch.inf)
    return (down | ~exists[:, None, :]).all(-1) & exists


def possible(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> Bool[Tensor, " batch"]:
    """Is there a spanning tree of allowed arcs (a sentence without words has one)?"""
    if scores.shape[-1] == 0:
        return exists.new_ones(len(scores))
    rooted = scores[:, 0] > -torch.inf
    if single_root:
        return (governors(scores, exists) & rooted).any(-1) | ~exists.any(-1)
    below = (reaches(scores[:, 1:] > -torch.inf) & rooted[:, :, None]).any(1)
    return (below | ~exists).all(-1)


def require_tree(
    owner: str, scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> None:
    """Raise if some sentence has bad scores or no tree, and say which and why."""
    bad = ~(scores < torch.inf)  # NaN too
    bad[:, 1:].diagonal(dim1=1, dim2=2).fill_(False)  # arcs from a word to itself are never read
    if bad.any():
        b, head, word = bad.nonzero()[0].tolist()
        raise NotFinite(
            f"{owner}: the score of arc [head {head}, word {word + 1}] of example {b} is "
            f"{scores[b, head, word].item()} (and {int(bad.sum()) - 1} more like it). Scores must be finite, or -inf "
            "to forbid an arc."
        )
    good = possible(scores, exists, single_root)
    if good.all():
        return
    b = int((~good).nonzero()[0])
    allowed = scores[b] > -torch.inf
    allowed[1:].diagonal().fill_(False)
    orphans = exists[b] & ~allowed.any(0)
    rooted = exists[b] & allowed[0]
    if orphans.any():
        why = f"{_words(orphans)} no head: all arcs into it are forbidden (-inf)"
    elif not rooted.any():
        why = "no word may be the root: all arcs from head 0 are forbidden (-inf)"
    else:
        down = reaches(allowed[None, 1:])[0]
        cut = exists[b] & ~(down & rooted[:, None]).any(0)
        best = int((down & exists[b]).sum(1).where(rooted, -1).argmax())
        why = (
            f"{_words(cut)} no path from the root"
            if cut.any()
            else f"no word reaches all others, as a single root must (word {best + 1} comes closest; not below it: "
            f"{_numbers(exists[b] & ~down[best])}); allow more arcs, or take single_root=False"
        )
    raise ValueError(f"{owner}: no tree is possible in example {b}: {why}.")


def _numbers(words: Tensor) -> str:
    numbers = [str(i + 1) for i in words.nonzero().flatten().tolist()]
    return ", ".join(numbers[:8]) + (" and more" if len(numbers) > 8 else "")


def _words(words: Tensor) -> str:
    several = int(words.sum()) > 1
    return f"words {_numbers(words)} have" if several else f"word {_numbers(words)} has"
