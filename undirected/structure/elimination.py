"""Elimination: the log-partition function of trees without any subtraction, in the log domain.

Grassmann, Taksar and Heyman's form of Gaussian elimination. A word k is removed from the graph by giving its
modifiers to its heads, `w(j -> i) += w(j -> k) w(k -> i) / d(k)`, where the pivot `d(k) = sum_i w(k -> i)` is summed
anew from the remaining arcs instead of being found by subtraction. `Z` is the product of the pivots. Every digit
survives, whatever the range of the scores; n steps of n^2 work each make it slower than one LU factorisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.structure.reachability import governors

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

#: The logarithm of a weight of nothing. Finite, because differences of infinities are not numbers.
NOTHING = -1e100


def log_partition(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> Float[Tensor, " batch"]:
    """`log Z` of the spanning trees, differentiable to any order; -inf where there is none. n is at least 1."""
    batch, _, n = scores.shape
    allowed = scores > -torch.inf
    allowed[:, 1:].diagonal(dim1=1, dim2=2).fill_(False)
    finite = torch.where(allowed, scores, 0)
    # Every word has exactly one head, so that one number may be taken from all arcs into a word.
    largest = torch.where(allowed, scores.detach(), NOTHING).amax(1)
    largest = torch.where(allowed.any(1), largest, 0)
    s = torch.where(allowed, finite - largest[:, None], NOTHING)

    # Rows are words, columns their heads: the words, then the root. A word that does not exist hangs on the last
    # column that counts, with weight one.
    down, root = s[:, 1:].transpose(1, 2), s[:, 0]
    last = torch.full((batch,), n - 1, device=s.device)
    if single_root:
        # Only the last word may hang on the root, with all that others have passed to it; all others must reach it.
        last = governors(scores, exists).int().argmax(1)
        empty = ~exists.any(1, keepdim=True)
        root = torch.where(empty, 0, root)
        down = torch.where(~exists[:, :, None] & (torch.arange(n, device=s.device) == last[:, None])[:, None], 0, down)
    else:
        root = torch.where(exists, root, 0)
    order = torch.arange(n, device=s.device).expand(batch, n).clone()
    order.scatter_(1, last[:, None], n - 1)
    order[:, -1] = last
    rows = torch.arange(batch, device=s.device)[:, None, None]
    w = torch.cat([down[rows, order[:, :, None], order[:, None, :]], root.gather(1, order)[:, :, None]], 2)

    pivots = []
    for k in range(n):
        heads = w[:, 0, 1:]
        final = k == n - 1
        pivot = heads[:, -1] if final else heads[:, : -1 if single_root else None].logsumexp(1)
        pivots.append(pivot)
        if not final:
            passed = w[:, 1:, :1] + (heads - pivot[:, None])[:, None, :]
            w = torch.stack([w[:, 1:, 1:], passed]).logsumexp(0)
    log_z = torch.stack(pivots).sum(0)
    return torch.where(log_z > NOTHING / 2, log_z + largest.sum(1), -torch.inf)


def derivative(
    scores: Float[Tensor, "batch n+1 n"],
    exists: Bool[Tensor, "batch n"],
    single_root: bool,
    directions: tuple[Float[Tensor, "batch n+1 n"], ...] = (),
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n+1 n"]]:
    """`log Z`, and its gradient differentiated once more along each of the directions: marginals, covariances, ..."""
    with torch.enable_grad():
        s = scores.clone().requires_grad_()
        log_z = log_partition(s, exists, single_root)
        value = torch.where(log_z.isfinite(), log_z, 0).sum()
        for i in range(len(directions) + 1):
            (d,) = torch.autograd.grad(value, s, create_graph=i < len(directions))
            if i < len(directions):
                value = (d * directions[i]).sum()
    return log_z.detach(), d
