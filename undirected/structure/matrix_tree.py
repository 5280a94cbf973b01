"""Matrix-tree: the log-partition function of all spanning trees, its gradient (the arc marginals) and what follows.

Weights `w[h, m] = exp(scores[h, m])`, their Laplacian `L = diag(sum_h w[h, m]) - w[1:]` and its inverse B give

    log Z = log det L,     marginals[h, m] = w[h, m] (B[m, m] - B[m, h]),     marginals[0, m] = w[0, m] B[m, m]

for any number of roots; for a single one, root arcs do not count in L but replace the row of some word p, and column
p of B takes their part (Koo et al. 2007). All derivatives reuse B: with `dL` the Laplacian of the weights times a
direction, `dB = -B dL B`. So one factorisation serves the forward pass and every backward pass.

The weights are taken relative to the largest of each column, in float64. A sentence in which the factorisation lost
its digits shows: its marginals do not sum to one, or are negative, or the inverse is too large for cancellation to be
harmless. Those sentences, and no others, go through `elimination`. These are operators of torch.library, so that the
choice is made by value in compiled code too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undirected.structure import elimination
from undirected.structure.reachability import require_tree

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

#: A sentence whose marginals may be off by more than this goes through elimination.
TOLERANCE = 1e-10


def log_partition_and_marginals(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n+1 n"]]:
    """`log Z` and its gradient for float64 scores; twice differentiable. Words outside `exists` are padding.

    >>> log_z, arcs = log_partition_and_marginals(torch.zeros(1, 4, 3).double(), torch.ones(1, 3) > 0, True)
    >>> log_z.exp()  # 3^2 trees with a single root
    tensor([9.0000], dtype=torch.float64)
    """
    log_z, marginals, *_ = _tree(scores, exists, single_root)
    return log_z, marginals


def _laplacian(w: Tensor, p: Tensor, single_root: bool) -> Tensor:
    lap = -w[:, 1:]
    lap.diagonal(dim1=1, dim2=2).add_(w[:, 1 if single_root else 0 :].sum(1))
    if single_root:
        lap[torch.arange(len(w), device=w.device), p] = w[:, 0]
    return lap


def _differences(b: Tensor, p: Tensor, single_root: bool) -> Tensor:
    """`B[m, m] - B[m, h]` for every arc, with the root's row first: the adjoint of the Laplacian."""
    out = b.new_empty(b.shape[0], b.shape[1] + 1, b.shape[2])
    if single_root:
        rows = torch.arange(len(b), device=b.device)
        out[:, 0] = b[rows, :, p]
        b = b.clone()
        b[rows, :, p] = 0
        torch.sub(b.diagonal(dim1=1, dim2=2)[:, None, :], b.mT, out=out[:, 1:])
    else:
        diagonal = b.diagonal(dim1=1, dim2=2)
        out[:, 0] = diagonal
        torch.sub(diagonal[:, None, :], b.mT, out=out[:, 1:])
    return out


def _weights(scores: Tensor, exists: Tensor, single_root: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Weights relative to each column's largest, the logarithm of what was taken out, and the word p."""
    w = scores.clone()
    w[:, 1:].diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    if single_root and w.shape[2] > 1:
        # The number of root arcs is fixed, so that they have a scale of their own; a likely root makes the best p.
        largest = w[:, 1:].amax(1)
        largest = largest.masked_fill_(largest == -torch.inf, 0)
        w -= largest[:, None]
        root, p = w[:, 0].max(1)
        root = root.masked_fill_(root == -torch.inf, 0)
        w[:, 0] -= root[:, None]
        return w.exp_(), largest.sum(1) + root, p
    largest = w.amax(1)
    largest = largest.masked_fill_(largest == -torch.inf, 0)
    w -= largest[:, None]
    return w.exp_(), largest.sum(1), torch.zeros(len(w), dtype=torch.long, device=w.device)


@torch.library.custom_op("undirected::spanning_tree", mutates_args=())
def _tree(
    scores: Tensor, exists: Tensor, single_root: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """log Z, marginals; and for the derivatives: weights, inverse, the word p, and which sentences were eliminated."""
    w, scale, p = _weights(scores, exists, single_root)
    lap = _laplacian(w, p, single_root)
    degrees = lap.diagonal(dim1=1, dim2=2)
    degrees += ~exists
    lu, pivots, _ = torch.linalg.lu_factor_ex(lap)
    log_z = lu.diagonal(dim1=1, dim2=2).abs().log().sum(1) + scale
    b = torch.linalg.lu_solve(lu, pivots, torch.eye(lap.shape[1], dtype=lap.dtype, device=lap.device).expand_as(lap))
    marginals = w * _differences(b, p, single_root)

    # The self-test. Written so that NaN fails it.
    off = (marginals.sum(1) - exists.double()).abs().amax(1)
    visits = (degrees * b.diagonal(dim1=1, dim2=2)).abs().amax(1) * torch.finfo(b.dtype).eps
    trusted = (off <= TOLERANCE) & (marginals.flatten(1).amin(1) >= -TOLERANCE) & (visits <= TOLERANCE)
    trusted &= log_z.isfinite()
    marginals.clamp_min_(0)  # what is below zero by less than the tolerance is a rounded zero
    eliminated = ~trusted
    if eliminated.any():
        require_tree("SpanningTree", scores, exists, single_root)
        log_z[eliminated], marginals[eliminated] = _eliminate(scores, exists, single_root, eliminated)
        w[eliminated], b[eliminated] = 0, 0  # no NaN may wait there for the backward pass
    return log_z, marginals, w, b, p, eliminated


@torch.library.custom_op("undirected::spanning_tree_covariance", mutates_args=())
def _covariance(
    scores: Tensor, along: Tensor, exists: Tensor, single_root: bool,
    marginals: Tensor, w: Tensor, b: Tensor, p: Tensor, eliminated: Tensor,
) -> Tensor:  # fmt: skip
    """The derivative of the marginals along a direction: the Hessian of log Z, which is symmetric, times it."""
    x = b @ _laplacian(w * along, p, single_root)
    out = marginals * along - w * _differences(x @ b, p, single_root)
    if eliminated.any():
        out[eliminated] = _eliminate(scores, exists, single_root, eliminated, along)[1]
    return out


@torch.library.custom_op("undirected::spanning_tree_skewness", mutates_args=())
def _skewness(
    scores: Tensor, u: Tensor, v: Tensor, exists: Tensor, single_root: bool,
    marginals: Tensor, w: Tensor, b: Tensor, p: Tensor, eliminated: Tensor,
) -> Tensor:  # fmt: skip
    """The second derivative of the marginals along two directions."""
    wu, wv = w * u, w * v
    xu, xv, xuv = (b @ _laplacian(g, p, single_root) for g in (wu, wv, wu * v))
    out = marginals * u * v + w * _differences((xu @ xv + xv @ xu - xuv) @ b, p, single_root)
    out -= wv * _differences(xu @ b, p, single_root) + wu * _differences(xv @ b, p, single_root)
    if eliminated.any():
        out[eliminated] = _eliminate(scores, exists, single_root, eliminated, u, v)[1]
    return out


def _eliminate(scores: Tensor, exists: Tensor, single_root: bool, which: Tensor, *along: Tensor) -> tuple[Tensor, ...]:
    # Inside an operator autograd is switched off for this thread, but elimination leaves its derivatives to autograd.
    with torch.inference_mode(False), ThreadPoolExecutor(1) as thread:
        directions = tuple(direction[which].clone() for direction in along)
        task = thread.submit(elimination.derivative, scores[which], exists[which], single_root, directions)
        log_z, derivative = task.result()
    return log_z, derivative if along else derivative.clamp_min(0)


@_tree.register_fake
def _(scores: Tensor, exists: Tensor, single_root: bool) -> tuple[Tensor, ...]:
    batch, n = exists.shape
    return (
        scores.new_empty(batch),
        torch.empty_like(scores),
        torch.empty_like(scores),
        scores.new_empty(batch, n, n),
        scores.new_empty(batch, dtype=torch.long),
        scores.new_empty(batch, dtype=torch.bool),
    )


@_covariance.register_fake
@_skewness.register_fake
def _(scores: Tensor, *rest: object) -> Tensor:
    return torch.empty_like(scores)


def _tree_context(ctx, inputs, output) -> None:
    scores, exists, ctx.single_root = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(scores, exists, *output[1:])


def _tree_backward(ctx, for_log_z, for_marginals, *_):
    scores, exists, marginals, *saved = ctx.saved_tensors
    grad = None if for_log_z is None else for_log_z[:, None, None] * marginals
    if for_marginals is not None:
        through = _covariance(scores, for_marginals, exists, ctx.single_root, marginals.detach(), *saved)
        grad = through if grad is None else grad + through
    return grad, None, None


def _covariance_context(ctx, inputs, output) -> None:
    ctx.single_root = inputs[3]
    ctx.save_for_backward(*inputs[:3], *inputs[4:])


def _covariance_backward(ctx, u):
    scores, v, *saved = ctx.saved_tensors
    exists, *saved = saved
    for_scores = _skewness(scores, u, v, exists, ctx.single_root, *saved) if ctx.needs_input_grad[0] else None
    for_direction = _covariance(scores, u, exists, ctx.single_root, *saved) if ctx.needs_input_grad[1] else None
    return for_scores, for_direction, *[None] * 7


_tree.register_autograd(_tree_backward, setup_context=_tree_context)
_covariance.register_autograd(_covariance_backward, setup_context=_covariance_context)


def _register_vmap(operator, outputs: int) -> None:
    """The axis that vmap maps over joins the batch."""

    def rule(info, in_dims, *arguments):
        def joined(x, dim):
            if not isinstance(x, Tensor):
                return x
            x = x.unsqueeze(0).expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.flatten(0, 1)

        out = operator(*map(joined, arguments, in_dims))
        split = [x.unflatten(0, (info.batch_size, -1)) for x in (out if outputs > 1 else [out])]
        return (tuple(split), (0,) * outputs) if outputs > 1 else (split[0], 0)

    operator.register_vmap(rule)


_register_vmap(_tree, 6)
_register_vmap(_covariance, 1)
_register_vmap(_skewness, 1)
