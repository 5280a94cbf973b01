"""Matrix-tree: the log-partition function of all spanning trees, its gradient (the arc marginals) and what follows.

Weights `w[h, m] = exp(scores[h, m])` have a Laplacian L, `L[m, m] = sum_h w[h, m]` and `L[h, m] = -w[h, m]`, with
`Z = det L`. Its columns sum to the root's weights; so L is as good with the row of one word p replaced by those, which
no longer drown in the sums of the others. If there is to be a single root, they count in that row only (Koo et al.
2007). Rho, how much the root's weights were scaled down elsewhere, is the whole difference: 0 for a single root. Then

    log Z = log det L,    marginals[h, m] = w[h, m] (B[m, m] - B[m, h]),    marginals[0, m] = w[0, m] (rho B[m, m] + B[m, p])

with B the inverse of L and column p left out except where written. All derivatives reuse B: with dL the Laplacian of
the weights times a direction, `dB = -B dL B`. One factorisation serves the forward pass and every backward pass.

Weights are relative to the largest of each column, in float64. A sentence whose factorisation lost its digits shows:
marginals that do not sum to one or are negative, or a large inverse. Those sentences, and no others, go through
`elimination`. All of this is in operators of torch.library, so that compiled code chooses by value too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from undirected.structure import elimination
from undirected.structure.reachability import require_tree

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

#: A sentence goes through elimination if its marginals are off by more than this,
TOLERANCE = 1e-10
#: or if the inverse times the largest degree exceeds this (it multiplies rounding errors once per order of derivative).
CONDITION = 1e4


def log_partition_and_marginals(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n+1 n"]]:
    """`log Z` and its gradient for float64 scores; twice differentiable. Words outside `exists` are padding.

    >>> log_z, arcs = log_partition_and_marginals(torch.zeros(1, 4, 3).double(), torch.ones(1, 3) > 0, True)
    >>> log_z.exp()  # 3^2 trees with a single root
    tensor([9.0000], dtype=torch.float64)
    """
    return factorised(scores, exists, single_root)[:2]


class Factorised(NamedTuple):
    """What one factorisation yields; `eliminated` sentences have zeros for w and B."""

    log_z: Tensor
    marginals: Tensor
    w: Tensor
    b_transposed: Tensor
    p: Tensor
    rho: Tensor
    eliminated: Tensor


def factorised(scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"], single_root: bool) -> Factorised:
    """`log Z`, the marginals and the inverse that they came from."""
    # Two doors to the same room: torch.func knows the way through a Function, torch.compile that through an operator.
    return Factorised(*(_tree if torch.compiler.is_compiling() else _Tree.apply)(scores, exists, single_root))


def _laplacian(w: Tensor, p: Tensor, rho: Tensor) -> Tensor:
    lap = -w[:, 1:]
    lap.diagonal(dim1=1, dim2=2).add_(w[:, 1:].sum(1)).addcmul_(rho[:, None], w[:, 0])
    lap[torch.arange(len(w), device=w.device), p] = w[:, 0]
    return lap


def _differences(b: Tensor, p: Tensor, rho: Tensor) -> Tensor:
    """The adjoint of the Laplacian: `B[m, m] - B[m, h]` for every arc, without column p, which counts for the root."""
    rows = torch.arange(len(b), device=b.device)
    out = b.new_empty(b.shape[0], b.shape[1] + 1, b.shape[2])
    out[:, 0] = b[rows, :, p]
    b = b.index_put((rows, torch.arange(b.shape[1], device=b.device)[:, None], p), b.new_zeros(()))
    diagonal = b.diagonal(dim1=1, dim2=2)
    out[:, 0].addcmul_(rho[:, None], diagonal)
    torch.sub(diagonal[:, None, :], b.mT, out=out[:, 1:])
    return out


def _weights(scores: Tensor, single_root: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, the logarithm of what was taken out of them, the word p, and rho."""
    w = scores.clone(memory_format=torch.contiguous_format)
    w[:, 1:].diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    largest = w[:, 1 if single_root else 0 :].amax(1) if w.shape[2] > 1 else w[:, 0].clone()
    largest.masked_fill_(largest == -torch.inf, 0)
    w -= largest[:, None]
    root, p = w[:, 0].max(1)
    root.masked_fill_(root == -torch.inf, 0)
    w[:, 0] -= root[:, None]
    rho = torch.zeros_like(root) if single_root else root.exp()
    return w.exp_(), largest.sum(1).add_(root), p, rho


@torch.library.custom_op("undirected::spanning_tree", mutates_args=())
def _tree(
    scores: Tensor, exists: Tensor, single_root: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """log Z, marginals; and for the derivatives: w, B transposed (which is how LAPACK writes it), p, rho, and who was eliminated."""
    w, scale, p, rho = _weights(scores, single_root)
    lap = _laplacian(w, p, rho)
    degrees = lap.diagonal(dim1=1, dim2=2)
    degrees += ~exists
    lu, pivots, _ = torch.linalg.lu_factor_ex(lap)
    log_z = lu.diagonal(dim1=1, dim2=2).abs().log().sum(1) + scale
    b = torch.linalg.lu_solve(lu, pivots, torch.eye(lap.shape[1], dtype=lap.dtype, device=lap.device).expand_as(lap))
    marginals = w * _differences(b, p, rho)

    # The self-test, written so that NaN fails it.
    off = (marginals.sum(1) - exists.double()).abs().amax(1)
    condition = b.flatten(1).abs().amax(1) * degrees.amax(1)
    trusted = (off <= TOLERANCE) & (marginals.flatten(1).amin(1) >= -TOLERANCE) & (condition <= CONDITION)
    marginals.clamp_min_(0)  # what is below zero by less than the tolerance is a rounded zero
    eliminated = ~(trusted & log_z.isfinite())
    if eliminated.any():
        require_tree("SpanningTree", scores, exists, single_root)
        log_z[eliminated], marginals[eliminated] = _eliminate(scores, exists, single_root, eliminated)
        w[eliminated], b[eliminated] = 0, 0  # no NaN may wait there for the backward pass
    return log_z, marginals, w, b.mT.contiguous(), p, rho, eliminated


@torch.library.custom_op("undirected::spanning_tree_covariance", mutates_args=())
def _covariance(
    scores: Tensor, along: Tensor, exists: Tensor, single_root: bool,
    marginals: Tensor, w: Tensor, bt: Tensor, p: Tensor, rho: Tensor, eliminated: Tensor,
) -> Tensor:  # fmt: skip
    """The derivative of the marginals along a direction: the Hessian of log Z, which is symmetric, times it."""
    b = bt.mT
    x = b @ _laplacian(w * along, p, rho)
    out = marginals * along - w * _differences(x @ b, p, rho)
    if eliminated.any():
        out[eliminated] = _eliminate(scores, exists, single_root, eliminated, along)[1]
    return out


@torch.library.custom_op("undirected::spanning_tree_skewness", mutates_args=())
def _skewness(
    scores: Tensor, u: Tensor, v: Tensor, exists: Tensor, single_root: bool,
    marginals: Tensor, w: Tensor, bt: Tensor, p: Tensor, rho: Tensor, eliminated: Tensor,
) -> Tensor:  # fmt: skip
    """The second derivative of the marginals along two directions."""
    b, wu, wv = bt.mT, w * u, w * v
    xu, xv, xuv = (b @ _laplacian(g, p, rho) for g in (wu, wv, wu * v))
    out = marginals * u * v + w * _differences((xu @ xv + xv @ xu - xuv) @ b, p, rho)
    out -= wv * _differences(xu @ b, p, rho) + wu * _differences(xv @ b, p, rho)
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
        scores.new_empty(scores.shape),
        scores.new_empty(scores.shape),
        scores.new_empty(batch, n, n),
        scores.new_empty(batch, dtype=torch.long),
        scores.new_empty(batch),
        scores.new_empty(batch, dtype=torch.bool),
    )


@_covariance.register_fake
@_skewness.register_fake
def _(scores: Tensor, *rest: object) -> Tensor:
    return scores.new_empty(scores.shape)


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


_register_vmap(_tree, 7)
_register_vmap(_covariance, 1)
_register_vmap(_skewness, 1)


class _Tree(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(scores, exists, single_root):
        return _tree(scores, exists, single_root)

    @staticmethod
    def setup_context(ctx, inputs, output):
        scores, exists, ctx.single_root = inputs
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, exists, *output[1:])

    @staticmethod
    def backward(ctx, for_log_z, for_marginals, *_):
        scores, exists, marginals, *rest = ctx.saved_tensors
        grad = None if for_log_z is None else for_log_z[:, None, None] * marginals
        if for_marginals is not None:
            through = _Covariance.apply(scores, for_marginals, exists, ctx.single_root, marginals.detach(), *rest)
            grad = through if grad is None else grad + through
        return grad, None, None


class _Covariance(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return _covariance(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.single_root = inputs[3]
        ctx.save_for_backward(*inputs[:3], *inputs[4:])

    @staticmethod
    def backward(ctx, u):
        scores, v, exists, *rest = ctx.saved_tensors
        for_scores = for_direction = None
        if ctx.needs_input_grad[0]:
            for_scores = _Skewness.apply(scores, u, v, exists, ctx.single_root, *rest)
        if ctx.needs_input_grad[1]:
            for_direction = _Covariance.apply(scores, u, exists, ctx.single_root, *rest)
        return for_scores, for_direction, *[None] * 8


class _Skewness(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return _skewness(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, _):
        raise NotImplementedError("Marginals of spanning trees have derivatives up to the second order, not the third.")


_tree.register_autograd(_Tree.backward, setup_context=_Tree.setup_context)
_covariance.register_autograd(_Covariance.backward, setup_context=_Covariance.setup_context)
