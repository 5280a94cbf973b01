"""Laplacian: the log-partition function of all spanning trees, its gradient (the arc marginals) and what follows.

Weights `w[h, m] = exp(scores[h, m])` have a Laplacian A over the words, `A[m, m] = sum_h w[h, m]` and `A[h, m] =
-w[h, m]`, with `Z = det A`. Its columns sum to the root's weights, which drown in the sums of the others. So the root
gets a row of its own, and, to keep the matrix square, a column u that sums to one, on which nothing depends:

    K = [ -w[0]  0 ]        |det K| = Z
        [   A    u ]

If there is to be a single root, its weights count in its own row only (after Koo et al. 2007). Rho, how much they are
scaled down in the rows of the words, is the whole difference: 0 for a single root. With C the transposed inverse of K
without its last column, and row m that of word m,

    log Z = log |det K|
    marginals[h, m] = w[h, m] (C[m, m] - C[h, m])
    marginals[0, m] = w[0, m] (rho C[m, m] - C[0, m])

All derivatives reuse C: with dK the matrix of the weights times a direction, which has no last column either,
`dC = -C dK' C`. One factorisation serves the forward pass and all backward passes.

Weights are relative to the largest of each column, in float64. A sentence whose factorisation lost its digits shows:
marginals that do not sum to one or are negative, or a large inverse. Those sentences, and no others, go through
`elimination`. All of this is in operators of torch.library, so that compiled code chooses by value too.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from undirected.structure import elimination
from undirected.structure.reachability import require_tree

if TYPE_CHECKING:
    from torch import Tensor

#: A sentence goes through elimination if its marginals are off by more than this,
TOLERANCE = 1e-10
#: or if the inverse times the largest degree exceeds this (it multiplies rounding errors once per order of derivative).
CONDITION = 1e4


@functools.lru_cache(16)
def _identity(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The identity of n + 1 rows, and the column u: small sentences would spend much of their time on making them."""
    with torch.inference_mode(False):
        u = torch.full((n + 1, 1), 1 / n, dtype=torch.float64, device=device)
        u[0] = 0
        return torch.eye(n + 1, dtype=torch.float64, device=device), u


def _own(x: Tensor) -> Tensor:
    """The entries `[m, m]` of a matrix whose first row is the root's."""
    batch, _, n = x.shape
    by_batch, by_row, by_column = x.stride()
    return x.as_strided((batch, n), (by_batch, by_row + by_column), x.storage_offset() + by_row)


def _matrix(w: Tensor, rho: Tensor | None) -> Tensor:
    """K without its last column; linear in w. Rho is None for a single root."""
    degrees = w[:, 1:].sum(1)
    if rho is not None:
        degrees.addcmul_(rho[:, None], w[:, 0])
    k = w.neg()
    _own(k).add_(degrees)
    return k


def _differences(c: Tensor, rho: Tensor | None) -> Tensor:
    """The adjoint of `_matrix`: `C[m, m] - C[h, m]` for every arc, `rho C[m, m] - C[0, m]` for the root's."""
    own = _own(c)
    out = own[:, None] - c
    if rho is None:
        out[:, 0].sub_(own)
    else:
        out[:, 0].addcmul_(rho[:, None] - 1, own)
    return out


def factorise(
    scores: Tensor, exists: Tensor | None, single_root: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """log Z, marginals; for the derivatives w, C, rho (None: a single root), who was eliminated (None: no one)."""
    batch, rows, n = scores.shape
    w = scores.to(torch.float64, memory_format=torch.contiguous_format, copy=True)
    _own(w).fill_(-torch.inf)
    largest = (w[:, 1:] if single_root else w).amax(1, keepdim=True)
    w -= largest.nan_to_num_(torch.nan, torch.inf, 0.0)  # 0 for a word that may have no head
    from_root = w[:, :1]
    root = from_root.amax(2, keepdim=True)
    from_root -= root.nan_to_num_(torch.nan, torch.inf, 0.0)
    w.exp_()
    rho = None if single_root else root.view(-1).exp()

    identity, u = _identity(n, w.device)
    k = _matrix(w, rho)
    if exists is None:
        border = u.expand(batch, rows, 1)
    else:
        _own(k).add_(~exists)
        border = torch.nn.functional.pad(exists / exists.sum(1, keepdim=True), (1, 0))[:, :, None]
    lu, pivots, _ = torch.linalg.lu_factor_ex(torch.cat([k, border], 2))
    # LAPACK counts by columns: the inverse as it lies in memory is, for us, transposed.
    inverse = torch.linalg.lu_solve(lu, pivots, identity.expand(batch, rows, rows)).mT
    c = inverse[:, :, :n]
    log_z = lu.diagonal(dim1=1, dim2=2).abs().log_().sum(1).add_(largest.sum((1, 2))).add_(root.view(-1))
    marginals = _differences(c, rho).mul_(w)

    # The self-test, for the whole batch at first, which is cheaper. Written so that NaN fails it.
    sums = marginals.sum(1)
    if exists is not None:
        sums += ~exists
    least, most = map(float, sums.aminmax())
    low, high = map(float, inverse.aminmax())
    smallest = float(marginals.amin())
    if (
        least >= 1 - TOLERANCE
        and most <= 1 + TOLERANCE
        and smallest >= -TOLERANCE
        and max(-low, high) * n <= CONDITION  # a degree is at most n
    ):
        # Below zero by less than the tolerance is a zero that was rounded: a tree that is next to impossible.
        return log_z, marginals if smallest >= 0 else marginals.clamp_min_(0), w, c, rho, None

    off, lowest = (sums - 1).abs_().amax(1), marginals.amin((1, 2))
    condition = c.abs().amax((1, 2)) * _own(k).amax(1)
    eliminated = ~((off <= TOLERANCE) & (lowest >= -TOLERANCE) & (condition <= CONDITION))
    marginals.clamp_min_(0)
    if not eliminated.any():
        return log_z, marginals, w, c, rho, None
    everyone = torch.ones_like(sums, dtype=torch.bool) if exists is None else exists
    require_tree("SpanningTree", scores, everyone, single_root)
    log_z[eliminated], marginals[eliminated] = _eliminate(scores, exists, single_root, eliminated)
    w[eliminated], c[eliminated] = 0, 0  # no NaN may wait there for the backward pass
    return log_z, marginals, w, c, rho, eliminated


def solve(scores: Tensor, exists: Tensor | None, single_root: bool) -> tuple[Tensor, ...]:
    """`factorise` with tensors for everything, as operators must: rho of 0, and a False for everyone."""
    log_z, marginals, w, c, rho, eliminated = factorise(scores, exists, single_root)
    if rho is None:
        rho = torch.zeros_like(log_z)
    if eliminated is None:
        eliminated = torch.zeros_like(log_z, dtype=torch.bool)
    return log_z, marginals, w, c.contiguous(), rho, eliminated


def differentiate(
    scores: Tensor, along: Tensor, exists: Tensor | None, single_root: bool,
    marginals: Tensor, w: Tensor, c: Tensor, rho: Tensor | None, eliminated: Tensor | None,
    for_log_z: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The derivative of the marginals along a direction: the Hessian of log Z, which is symmetric, times it.

    With `for_log_z`, the marginals times that are added: both gradients for the price of one.
    """
    dc = torch.bmm(c, torch.bmm(_matrix(w * along, rho).mT, c))
    out = marginals * (along if for_log_z is None else along + for_log_z[:, None, None])
    out.addcmul_(w, _differences(dc, rho), value=-1)
    if eliminated is not None and eliminated.any():
        out[eliminated] = _eliminate(scores, exists, single_root, eliminated, along)[1]
        if for_log_z is not None:
            out[eliminated] += (for_log_z[:, None, None] * marginals)[eliminated]
    return out


def differentiate_twice(
    scores: Tensor, u: Tensor, v: Tensor, exists: Tensor | None, single_root: bool,
    marginals: Tensor, w: Tensor, c: Tensor, rho: Tensor | None, eliminated: Tensor | None,
) -> Tensor:  # fmt: skip
    """The second derivative of the marginals along two directions."""
    wu, wv = w * u, w * v
    xu, xv, xuv = (_matrix(g, rho).mT @ c for g in (wu, wv, wu * v))
    du, dv, duv = (_differences(c @ x, rho) for x in (xu, xv, xu @ xv + xv @ xu - xuv))
    out = marginals * u * v - wv * du - wu * dv + w * duv
    if eliminated is not None and eliminated.any():
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
        task = thread.submit(elimination.derivative, scores[which].double(), exists[which], single_root, directions)
        log_z, derivative = task.result()
    return log_z, derivative if along else derivative.clamp_min(0)
