"""K best: the structures of highest score, by Lawler and Murty's partition, for whatever can be conditioned."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

    from undirected.structure.structure import Structure


def k_best(
    structure: Structure, scores: Float[Tensor, "batch *event"], count: int, mask: Bool[Tensor, ...] | None = None
) -> tuple[Float[Tensor, "count batch *event"], Float[Tensor, "count batch"]]:
    """The `count` best structures and their scores; zeros with a score of -inf where there are fewer.

    The structures other than the best one are divided by the first of its entries that they lack: they have the
    entries before it, and not that one. The best of each set is a mode under conditions; the best of these is the
    second best structure, whose own set is then divided, and so on.
    """
    if count < 1:
        raise ValueError(f"{structure}: the number of best structures must be at least 1, got {count}.")
    best = scores.new_zeros(count, *scores.shape)
    values = scores.new_full((count, len(scores)), -torch.inf)
    with torch.no_grad():
        for b in range(len(scores)):
            rows = None if mask is None else mask.expand_as(scores)[b : b + 1]
            for k, (value, found) in enumerate(_search(structure, scores[b].double(), count, rows)):
                best[k, b], values[k, b] = found, value
    return best, values


def _search(structure: Structure, scores: Tensor, count: int, mask: Tensor | None) -> list[tuple[float, Tensor]]:
    first = structure.mode(scores[None], mask)[0]
    nothing = torch.zeros_like(scores, dtype=torch.bool)
    queue = [(-_score(scores, first), 0, first, nothing, nothing)]
    pushed = 1
    found: list[tuple[float, Tensor]] = []
    while queue and len(found) < count:
        value, _, best, present, absent = heapq.heappop(queue)
        found.append((-value, best))
        if len(found) == count:
            break
        # Each entry that is not settled yet starts a set: absent itself, with those before it present.
        entries = ((best == 1) & ~present).flatten().nonzero().flatten()
        if not len(entries):
            continue
        before = torch.zeros(len(entries), scores.numel(), dtype=torch.bool, device=scores.device)
        before[:, entries] = torch.ones(len(entries), len(entries), dtype=torch.bool, device=scores.device).tril(-1)
        one = torch.zeros_like(before).scatter_(1, entries[:, None], True)
        sets_present = before.view(-1, *scores.shape) | present
        sets_absent = one.view(-1, *scores.shape) | absent
        limited = structure.condition(
            scores.expand(len(entries), *scores.shape), sets_present | sets_absent, sets_present.to(scores.dtype)
        )
        alive = structure.possible(limited, mask)
        if alive.any():
            modes = structure.mode(limited[alive], mask)
            for mode, yes, no in zip(modes, sets_present[alive], sets_absent[alive], strict=True):
                heapq.heappush(queue, (-_score(scores, mode), pushed, mode, yes, no))
                pushed += 1
    return found


def _score(scores: Tensor, structure: Tensor) -> float:
    return float(torch.where(structure == 1, scores, 0).sum())
