"""Laplacian: the log-partition function of all spanning trees, its gradient (the arc marginals) and what follows.

Weights `w[h, m] = exp(scores[h, m])` have a Laplacian L, `L[m, m] = sum_h w[h, m]` and `L[h, m] = -w[h, m]`, with
`Z = det L`. Its columns sum to the root's weights; so L is as good with the row of one word p replaced by those, which
no longer drown in the sums of the others. If there is to be a single root, they count in that row only (Koo et al.
2007). Rho, how much the root's weights were scaled down elsewhere, is the whole difference: 0 for a single root. Then

    log Z = log det L
    marginals[h, m] = w[h, m] (C[m, m] - C[h, m])
    marginals[0, m] = w[0, m] (rho C[m, m] + C[p, m])

with C the transposed inverse of L, row p left out except where written. All derivatives reuse C: with dL the Laplacian
of the weights times a direction, `dC = -C dL' C`. One factorisation serves the forward pass and all backward passes.

Weights are relative to the largest of each column, in float64. A sentence whose factorisation lost its digits shows:
marginals that do not sum to one or are negative, or a large inverse. Those sentences, and no others, go through
`elimination`. All of this is in operators of torch.library, so that compiled code chooses by value too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

from undirected.structure import elimination
from undirected.structure.reachability import require_tree

if TYPE_CHECKING:
    from torch import Tensor

    Number = TypeVar("Number", float, Tensor)

#: A sentence goes through elimination if its marginals are off by more than this,
TOLERANCE = 1e-10
#: or if the inverse times the largest degree exceeds this (it multiplies rounding errors once per order of derivative).
CONDITION = 1e4


def _row(p: Tensor, like: Tensor) -> Tensor:
    """Row p of each matrix, as an index for gather and scatter."""
    return p[:, None, None].expand(-1, 1, like.shape[2])


def _laplacian(w: Tensor, p: Tensor, rho: Tensor, single_root: bool) -> Tensor:
    lap = -w[:, 1:]
    degrees = lap.diagonal(dim1=1, dim2=2).add_(w[:, 1:].sum(1))
    if not single_root:
        degrees.addcmul_(rho[:, None], w[:, 0])
    return lap.scatter_(1, _row(p, w), w[:, :1])


def _differences(c: Tensor, p: Tensor, rho: Tensor, single_root: bool) -> Tensor:
    """The adjoint of the Laplacian: `C[m, m] - C[h, m]` for every arc, without row p, which counts for the root."""
    row = _row(p, c)
    diagonal = c.diagonal(dim1=1, dim2=2).scatter(1, p[:, None], 0)[:, None]
    out = c.new_empty(c.shape[0], c.shape[1] + 1, c.shape[2])
    root, words = out.split([1, c.shape[1]], 1)
    torch.sub(diagonal, c, out=words).scatter_(1, row, diagonal)
    torch.gather(c, 1, row, out=root)
    if not single_root:
        root.addcmul_(rho[:, None, None], diagonal)
    return out


def _weights(scores: Tensor, single_root: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, the logarithm of what was taken out of them, the word p, and rho."""
    w = scores.clone(memory_format=torch.contiguous_format)
    w[:, 1:].diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    largest = w[:, 1 if single_root else 0 :].amax(1, keepdim=True)
    w -= largest.nan_to_num_(torch.nan, torch.inf, 0.0)  # 0 for a word that may have no head
    root, p = w[:, 0].max(1)
    w[:, 0] -= root.nan_to_num_(torch.nan, torch.inf, 0.0)[:, None]
    return w.exp_(), largest.sum((1, 2)).add_(root), p, torch.zeros_like(root) if single_root else root.exp()


def solve(scores: Tensor, exists: Tensor | None, single_root: bool) -> tuple[Tensor, ...]:
    """log Z, marginals; and for the derivatives: w, C, p, rho, and which sentences were eliminated."""
    w, scale, p, rho = _weights(scores, single_root)
    lap = _laplacian(w, p, rho, single_root)
    degrees = lap.diagonal(dim1=1, dim2=2)
    if exists is not None:
        degrees += ~exists
    # LAPACK counts by columns: what it sees of `lap.mT` is `lap` as it lies in memory, and what it returns is C.
    lu, pivots, _ = torch.linalg.lu_factor_ex(lap.mT)
    log_z = lu.diagonal(dim1=1, dim2=2).abs().log_().sum(1).add_(scale)
    identity = torch.eye(lap.shape[1], dtype=lap.dtype, device=lap.device).expand_as(lap)
    c = torch.linalg.lu_solve(lu, pivots, identity, adjoint=True).mT.contiguous()
    marginals = _differences(c, p, rho, single_root).mul_(w)

    # The self-test, for the whole batch at first, which is cheaper. Written so that NaN fails it.
    off = (marginals.sum(1) - (1 if exists is None else exists.double())).abs_()
    eliminated = torch.zeros_like(p, dtype=torch.bool)
    low, high = c.aminmax()
    if not _trusted(float(off.max()), float(marginals.min()), max(-float(low), float(high)) * float(degrees.max())):
        condition = c.abs().amax((1, 2)) * degrees.amax(1)
        eliminated = ~_trusted(off.amax(1), marginals.amin((1, 2)), condition)
    marginals.clamp_min_(0)  # what is below zero by less than the tolerance is a rounded zero
    if eliminated.any():
        everyone = torch.ones_like(off, dtype=torch.bool) if exists is None else exists
        require_tree("SpanningTree", scores, everyone, single_root)
        log_z[eliminated], marginals[eliminated] = _eliminate(scores, exists, single_root, eliminated)
        w[eliminated], c[eliminated] = 0, 0  # no NaN may wait there for the backward pass
    return log_z, marginals, w, c, p, rho, eliminated


def _trusted(off: Number, least: Number, condition: Number) -> Number:
    return (off <= TOLERANCE) & (least >= -TOLERANCE) & (condition <= CONDITION)


def differentiate(
    scores: Tensor, along: Tensor, exists: Tensor | None, single_root: bool,
    marginals: Tensor, w: Tensor, c: Tensor, p: Tensor, rho: Tensor, eliminated: Tensor,
) -> Tensor:  # fmt: skip
    """The derivative of the marginals along a direction: the Hessian of log Z, which is symmetric, times it."""
    dc = c @ (_laplacian(w * along, p, rho, single_root).mT @ c)
    out = torch.addcmul(marginals * along, w, _differences(dc, p, rho, single_root), value=-1)
    if eliminated.any():
        out[eliminated] = _eliminate(scores, exists, single_root, eliminated, along)[1]
    return out


def differentiate_twice(
    scores: Tensor, u: Tensor, v: Tensor, exists: Tensor | None, single_root: bool,
    marginals: Tensor, w: Tensor, c: Tensor, p: Tensor, rho: Tensor, eliminated: Tensor,
) -> Tensor:  # fmt: skip
    """The second derivative of the marginals along two directions."""
    wu, wv = w * u, w * v
    xu, xv, xuv = (_laplacian(g, p, rho, single_root).mT @ c for g in (wu, wv, wu * v))
    du, dv, duv = (_differences(c @ x, p, rho, single_root) for x in (xu, xv, xu @ xv + xv @ xu - xuv))
    out = marginals * u * v - wv * du - wu * dv + w * duv
    if eliminated.any():
        out[eliminated] = _eliminate(scores, exists, single_root, eliminated, u, v)[1]
    return out


def _eliminate(
    scores: Tensor, exists: Tensor | None, single_root: bool, which: Tensor, *along: Tensor
) -> tuple[Tensor, Tensor]:
    if exists is None:
        exists = scores.new_ones(len(scores), scores.shape[2], dtype=torch.bool)
    # Inside an operator autograd is switched off for this thread, but elimination leaves its derivatives to autograd.
    with torch.inference_mode(False), ThreadPoolExecutor(1) as thread:
        directions = tuple(direction[which].clone() for direction in along)
        task = thread.submit(elimination.derivative, scores[which], exists[which], single_root, directions)
        log_z, derivative = task.result()
    return log_z, derivative if along else derivative.clamp_min(0)
