"""Eisner: inside and outside sums over projective trees, all spans of one width at a time, in the log domain.

Positions are 0 (the root) to n. A span from i to j is, with its head on the left or on the right, either *complete*
(the head has all of its modifiers on that side: C) or *incomplete* (an arc joins its two ends: I):

    J[i, j] = sum_k Cr[i, k] Cl[k + 1, j]     Ir[i, j] = J[i, j] w(i -> j)     Cr[i, j] = sum_k Ir[i, k] Cr[k, j]
                                              Il[i, j] = J[i, j] w(j -> i)     Cl[i, j] = sum_k Cl[i, k] Il[k, j]

`Z = Cr[0, n]`. With a single root, Cr[0, j] is nothing before the last word. A table of spans is kept twice: by first
position and width, and by last position and falling width, so that every sum is over two slices side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from undirected.structure.elimination import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float, Int
    from torch import Tensor


class _Table:
    """Spans of one kind; `first[:, i, w]` and `last[:, j + 1, n - w]` are the span from i to j = i + w.

    `first` has a row too many at the end and `last` one at the beginning, with nothing in them.
    """

    def __init__(self, like: Float[Tensor, "batch n+1 n+1"], alone: float) -> None:
        self.size = like.shape[1]
        # Made from a tensor that vmap maps over, if it does, so that what is written later fits.
        nothing = torch.full_like(like, NOTHING)
        self.first = torch.cat([nothing, nothing[:, :1]], 1)
        self.last = torch.cat([nothing[:, :1], nothing], 1)
        self.first[:, :-1, 0] = alone
        self.last[:, 1:, -1] = alone

    def write(self, width: int, values: Float[Tensor, "batch spans"]) -> None:
        self.first[:, : self.size - width, width] = values
        self.last[:, width + 1 :, self.size - 1 - width] = values


class Inside(NamedTuple):
    log_z: Tensor
    cr: _Table
    cl: _Table
    ir: _Table
    il: _Table


def log_sum(x: Tensor) -> Tensor:
    return x.logsumexp(-1)


def largest(x: Tensor) -> Tensor:
    return x.max(-1).values


def inside(
    s: Float[Tensor, "batch n+1 n+1"],
    length: Int[Tensor, " batch"],
    single_root: bool,
    total: Callable[[Tensor], Tensor] = log_sum,
) -> Inside:
    """The tables for scores `s[head, modifier]` (`NOTHING` where forbidden), summed by `total`: a sum, or the largest."""
    size = s.shape[1]
    cr, cl, ir, il = (_Table(s, alone) for alone in (0.0, 0.0, NOTHING, NOTHING))
    for w in range(1, size):
        m = size - w
        j = total(cr.first[:, :m, :w] + cl.last[:, w + 1 :, m:])
        ir.write(w, j + s.diagonal(w, 1, 2))
        il.write(w, j + s.diagonal(-w, 1, 2))
        right = total(ir.first[:, :m, 1 : w + 1] + cr.last[:, w + 1 :, m:])
        left = total(cl.first[:, :m, :w] + il.last[:, w + 1 :, m - 1 : -1])
        cr.write(w, _only_whole(right, w, length) if single_root else right)
        cl.write(w, left)
    return Inside(cr.first[:, 0].gather(1, length[:, None]).squeeze(1), cr, cl, ir, il)


def inside_outside(
    s: Float[Tensor, "batch n+1 n+1"], length: Int[Tensor, " batch"], single_root: bool
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n+1 n+1"]]:
    """`log Z` and the marginals of the arcs; plain tensor operations, differentiable to any order."""
    size = s.shape[1]
    log_z, cr, cl, ir, il = inside(s, length, single_root)
    # What surrounds a span: the sum over all trees that have it, without what is in it.
    around_cr, around_cl, around_j = (_Table(s, NOTHING) for _ in range(3))
    marginals = torch.zeros_like(s)
    for w in range(size - 1, 0, -1):
        m = size - w
        # The span of the whole sentence has nothing around it.
        whole = torch.where(length == w, torch.zeros_like(s[:, 0, 0]), NOTHING)
        seed = torch.cat([whole[:, None], torch.full_like(s[:, 0, 1:m], NOTHING)], 1)
        right = [
            seed[:, :, None],
            around_cr.last[:, w + 1 :, : m - 1] + ir.last[:, 1 : m + 1, w:-1],
            around_j.first[:, :m, w + 1 :] + cl.first[:, w + 1 :, : m - 1],
        ]
        left = [
            around_cl.first[:, :m, w + 1 :] + il.first[:, w:-1, 1:m],
            around_j.last[:, w + 1 :, : m - 1] + cr.last[:, :m, w + 1 :],
        ]
        around_right = log_sum(torch.cat(right, 2))
        around_cr.write(w, _only_whole(around_right, w, length) if single_root else around_right)
        around_cl.write(w, log_sum(torch.cat(left, 2)) if m > 1 else torch.full_like(seed, NOTHING))
        around_ir = log_sum(around_cr.first[:, :m, w:] + cr.first[:, w:-1, :m])
        around_il = log_sum(around_cl.last[:, w + 1 :, :m] + cl.last[:, 1 : m + 1, w:])
        arcs = torch.stack([around_ir + s.diagonal(w, 1, 2), around_il + s.diagonal(-w, 1, 2)], 2)
        around_j.write(w, log_sum(arcs))
        probability = (arcs + (ir.first[:, :m, w] - s.diagonal(w, 1, 2) - log_z[:, None])[:, :, None]).exp()
        marginals.diagonal(w, 1, 2).copy_(probability[..., 0])
        marginals.diagonal(-w, 1, 2).copy_(probability[..., 1])
    return log_z, marginals


def _only_whole(right: Tensor, width: int, length: Tensor) -> Tensor:
    """Nothing for the root's complete spans, but for that of the whole sentence: so it has one modifier."""
    root = torch.where(length == width, right[:, 0], NOTHING)
    return torch.cat([root[:, None], right[:, 1:]], 1)
