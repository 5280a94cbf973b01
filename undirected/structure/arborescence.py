"""Arborescence: the spanning tree of highest score, by Chu-Liu and Edmonds' contraction of cycles.

Two implementations of one algorithm, neither of them recursive. With numba (the extra `structure`) it grows a path
along best arcs, sentence by sentence, in O(n^2) each. Without, or off the CPU, it contracts all cycles of all
sentences at a time in vectorised rounds. A single root is exact at no extra cost: an arc from the root is worth less
than any other, so it is taken only by a part of the sentence that no other arc enters.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING

import torch

from undirected.structure.heads import rooted
from undirected.structure.reachability import require_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Bool, Float, Int
    from torch import Tensor


def best_heads(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> Int[Tensor, "batch n"]:
    """The heads of the best tree; -1 for words outside `exists`.

    >>> scores = torch.tensor([[[0.0, 1.0], [0.0, 3.0], [4.0, 0.0]]])  # 1 and 2 want each other as heads
    >>> best_heads(scores, torch.ones(1, 2) > 0, single_root=True)
    tensor([[2, 0]])
    """
    scores = scores.detach()
    kernel = _kernel() if scores.device.type == "cpu" else None
    if kernel is None:
        own = torch.eye(exists.shape[1], dtype=torch.bool, device=scores.device)
        scores = torch.cat([scores[:, :1], scores[:, 1:].masked_fill(own, -torch.inf)], 1)
        heads, trees = _best_heads(scores.double(), exists, single_root)
        found = bool(trees.all())
    else:
        if scores.dtype not in (torch.float32, torch.float64):
            scores = scores.float()
        heads = torch.empty(exists.shape, dtype=torch.long)
        found = kernel(scores.contiguous().numpy(), exists.contiguous().numpy(), single_root, heads.numpy())
    if not found:
        require_tree("SpanningTree", scores, exists, single_root)
    return heads


def _best_heads(scores: Tensor, exists: Tensor, single_root: bool) -> tuple[Tensor, Tensor]:
    """By rounds, but only where every word's best head does not happen to make a tree, which is then the best."""
    value, heads = scores.max(1)
    heads = torch.where(exists, heads, -1)
    found = (value.isfinite() | ~exists).all(1) & rooted(heads.clamp_min(0))
    if single_root:
        found &= (heads == 0).sum(1) <= 1
    found &= (scores < torch.inf).flatten(1).all(1)
    if not found.all():
        rest = ~found
        heads[rest], found[rest] = best_heads_by_rounds(scores[rest], exists[rest], single_root)
    return heads, found


@cache
def _kernel() -> Callable | None:
    if importlib.util.find_spec("numba") is None:
        return None
    from undirected.structure.contraction import contract

    return contract


def best_heads_by_rounds(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> tuple[Int[Tensor, "batch n"], Bool[Tensor, " batch"]]:
    """The same by vectorised rounds, and whether there was a tree.

    In a round every part (at first: every word) picks its best arc from another part. The parts on a cycle of picks
    become one, and arcs into it are rated by what they gain over the pick that they replace. When no cycle is left the
    picks are the tree; undoing the rounds, the arc into a merged part replaces one pick of its cycle.
    """
    batch, n = exists.shape
    numbers = torch.arange(n + 1, device=scores.device).expand(batch, n + 1)
    # A part is called after one of its words, the root's part 0. Padding belongs to that one and is never asked.
    part = torch.cat([numbers[:, :1], torch.where(exists, numbers[:, 1:], 0)], 1)
    gain = torch.cat([torch.full_like(scores[:, :, :1], -torch.inf), scores], 2)
    found = (scores < torch.inf).flatten(1).all(1)
    rounds = []
    while True:
        part = part * found[:, None]
        value, word, tail = _picks(gain, part, single_root)
        active = (part == numbers) & (numbers > 0)
        found = found & ~(active & (value == -torch.inf)).any(1)
        active = active & found[:, None]
        rounds.append((part, active, word, tail))
        above = torch.where(active, part.gather(1, tail), 0)
        cycle, name = _cycles(above)
        if not cycle.any():
            break
        gain = gain - torch.where(cycle, value, 0).gather(1, part)[:, None]
        part = torch.where(cycle, name, numbers).gather(1, part)

    heads = torch.full((batch, n + 2), -1, device=scores.device)  # one place more, for the picks that do not count
    for part, active, word, tail in reversed(rounds):
        entered = torch.zeros_like(part).scatter_reduce(1, part, (heads[:, :-1] >= 0).long(), "amax").bool()
        heads = heads.scatter(1, torch.where(active & ~entered, word, n + 1), tail)
        heads[:, -1] = -1
    return heads[:, 1:-1], found


def _picks(gain: Tensor, part: Tensor, single_root: bool) -> tuple[Tensor, Tensor, Tensor]:
    """For each part the value of its best arc, the word that it enters and its tail."""
    gain = torch.where(part[:, :, None] != part[:, None, :], gain, -torch.inf)
    value, tail = gain[:, 1:].max(1)
    tail = tail + 1
    if not single_root:
        tail = torch.where(gain[:, 0] > value, 0, tail)
        value = torch.maximum(gain[:, 0], value)
    best, word = _best_of_part(value, part)
    if single_root:  # an arc from the root only where there is none from a word
        best_root, word_root = _best_of_part(gain[:, 0], part)
        last = best == -torch.inf
        best, word = torch.where(last, best_root, best), torch.where(last, word_root, word)
        return best, word, torch.where(last, 0, tail.gather(1, word))
    return best, word, tail.gather(1, word)


def _best_of_part(value: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    """The highest value among the words of each part, and the first word that has it (0 for parts without words)."""
    best = torch.full_like(value, -torch.inf).scatter_reduce(1, part, value, "amax")
    numbers = torch.arange(part.shape[1], device=part.device).expand_as(part)
    winner = torch.where(value == best.gather(1, part), numbers, part.shape[1])
    word = torch.full_like(part, part.shape[1]).scatter_reduce(1, part, winner, "amin")
    return best, torch.where(word < part.shape[1], word, 0)


def _cycles(above: Tensor) -> tuple[Tensor, Tensor]:
    """Which numbers lie on a cycle of the map `above` other than 0 -> 0, and the smallest number of their cycle."""
    name = torch.arange(above.shape[1], device=above.device).expand_as(above)
    for _ in range(above.shape[1].bit_length()):
        name = torch.minimum(name, name.gather(1, above))
        above = above.gather(1, above)
    cycle = torch.zeros_like(above, dtype=torch.bool).scatter_(1, above, True)  # who far above all is on a cycle
    cycle[:, 0] = False
    return cycle, name
