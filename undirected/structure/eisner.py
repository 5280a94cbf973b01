"""Eisner: inside and outside sums over projective trees, all spans of one width at a time.

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

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from undirected.structure.algebra import Log, Real


class _Table:
    """Spans of one kind; `first[..., i, w]` and `last[..., j + 1, n - w]` are the span from i to j = i + w.

    `first` has a row too many at the end and `last` one at the beginning, with nothing in them.
    """

    def __init__(self, like: Float[Tensor, "... n+1 n+1"], alone: Tensor, algebra: Log | Real) -> None:
        self.size = like.shape[-1]
        # Made from a tensor that vmap maps over, if it does, so that what is written later fits.
        nothing = torch.full_like(like, algebra.zero)
        self.first = torch.cat([nothing, nothing[..., :1, :]], -2)
        self.last = torch.cat([nothing[..., :1, :], nothing], -2)
        self.first[..., :-1, 0] = alone
        self.last[..., 1:, -1] = alone

    def write(self, width: int, values: Float[Tensor, "... spans"]) -> None:
        self.first[..., : self.size - width, width] = values
        self.last[..., width + 1 :, self.size - 1 - width] = values


class Inside(NamedTuple):
    z: Tensor
    cr: _Table
    cl: _Table
    ir: _Table
    il: _Table
    j: list[Tensor]


def inside(
    s: Float[Tensor, "... batch n+1 n+1"], length: Int[Tensor, " batch"], single_root: bool, algebra: Log | Real
) -> Inside:
    """Z and the tables for weights `s[head, modifier]`, all in terms of the algebra (their logarithms in `Log`)."""
    size = s.shape[-1]
    nothing = torch.full_like(s[..., 0], algebra.zero)
    alone = algebra.ones_like(nothing)
    cr, cl = _Table(s, alone, algebra), _Table(s, alone, algebra)
    ir, il = _Table(s, nothing, algebra), _Table(s, nothing, algebra)
    joined = []
    for w in range(1, size):
        m = size - w
        j = algebra.dot(cr.first[..., :m, :w], cl.last[..., w + 1 :, m:])
        joined.append(j)
        ir.write(w, algebra.times(j, s.diagonal(w, -2, -1)))
        il.write(w, algebra.times(j, s.diagonal(-w, -2, -1)))
        right = algebra.dot(ir.first[..., :m, 1 : w + 1], cr.last[..., w + 1 :, m:])
        left = algebra.dot(cl.first[..., :m, :w], il.last[..., w + 1 :, m - 1 : -1])
        cr.write(w, _only_whole(right, w, length, algebra) if single_root else right)
        cl.write(w, left)
    whole = length[:, None].expand(*s.shape[:-2], 1)
    return Inside(cr.first[..., 0, :].gather(-1, whole), cr, cl, ir, il, joined)


def inside_outside(
    s: Float[Tensor, "... batch n+1 n+1"], length: Int[Tensor, " batch"], single_root: bool, algebra: Log | Real
) -> tuple[Float[Tensor, "... batch"], Float[Tensor, "... batch n+1 n+1"], Float[Tensor, "... batch"]]:
    """Z, the marginals of the arcs, and the largest of the sums around a span."""
    size = s.shape[-1]
    z, cr, cl, ir, il, joined = inside(s, length, single_root, algebra)
    # What surrounds a span: the sum over all trees that have it, without what is in it.
    nothing = torch.full_like(s[..., 0], algebra.zero)
    around_cr, around_cl, around_j = (_Table(s, nothing, algebra) for _ in range(3))
    one = algebra.ones_like(nothing)
    marginals = torch.zeros_like(s)
    for w in range(size - 1, 0, -1):
        m = size - w
        # The span of the whole sentence has nothing around it.
        seed = torch.cat([torch.where((length == w)[:, None], one[..., :1], nothing[..., :1]), nothing[..., 1:m]], -1)
        right, left = seed, nothing[..., :m]
        if m > 1:
            right = algebra.plus(
                seed,
                algebra.dot(around_cr.last[..., w + 1 :, : m - 1], ir.last[..., 1 : m + 1, w:-1]),
                algebra.dot(around_j.first[..., :m, w + 1 :], cl.first[..., w + 1 :, : m - 1]),
            )
            left = algebra.plus(
                algebra.dot(around_cl.first[..., :m, w + 1 :], il.first[..., w:-1, 1:m]),
                algebra.dot(around_j.last[..., w + 1 :, : m - 1], cr.last[..., :m, w + 1 :]),
            )
        around_cr.write(w, _only_whole(right, w, length, algebra) if single_root else right)
        around_cl.write(w, left)
        around_ir = algebra.dot(around_cr.first[..., :m, w:], cr.first[..., w:-1, :m])
        around_il = algebra.dot(around_cl.last[..., w + 1 :, :m], cl.last[..., 1 : m + 1, w:])
        arc_right = algebra.times(around_ir, s.diagonal(w, -2, -1))
        arc_left = algebra.times(around_il, s.diagonal(-w, -2, -1))
        around_j.write(w, algebra.plus(arc_right, arc_left))
        j = joined[w - 1]
        marginals.diagonal(w, -2, -1).copy_(algebra.ratio(algebra.times(arc_right, j), z))
        marginals.diagonal(-w, -2, -1).copy_(algebra.ratio(algebra.times(arc_left, j), z))
    around = torch.maximum(around_cr.first.detach(), around_cl.first.detach()).amax((-2, -1))
    return z.squeeze(-1), marginals, around


def _only_whole(right: Tensor, width: int, length: Tensor, algebra: Log | Real) -> Tensor:
    """Nothing for the root's complete spans, but for that of the whole sentence: so it has one modifier."""
    root = torch.where(length == width, right[..., 0], algebra.zero)
    return torch.cat([root[..., None], right[..., 1:]], -1)
