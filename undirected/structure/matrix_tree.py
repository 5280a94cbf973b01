"""Matrix-tree: the log-partition function of all spanning trees, its gradient (the arc marginals) and what follows.

Weights `w[h, m] = exp(scores[h, m])` have a Laplacian L, `L[m, m] = sum_h w[h, m]` and `L[h, m] = -w[h, m]`, with
`Z = det L`. Its columns sum to the root's weights; so L is as good with the row of one word p replaced by those, which
no longer drown in the sums of the others. If there is to be a single root, they count in that row only (Koo et al.
2007). Rho, how much the root's weights were scaled down elsewhere, is the whole difference: 0 for a single root. Then

    log Z = log det L,    marginals[h, m] = w[h, m] (C[m, m] - C[h, m]),    marginals[0, m] = w[0, m] (rho C[m, m] + C[p, m])

with C the transposed inverse of L, row p left out except where written. All derivatives reuse C: with dL the Laplacian
of the weights times a direction, `dC = -C dL' C`. One factorisation serves the forward pass and all backward passes.

Weights are relative to the largest of each column, in float64. A sentence whose factorisation lost its digits shows:
marginals that do not sum to one or are negative, or a large inverse. Those sentences, and no others, go through
`elimination`. All of this is in operators of torch.library, so that compiled code chooses by value too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from undirected.regularizers import concrete
from undirected.structure import elimination
from undirected.structure.reachability import require_tree

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Number = TypeVar("Number", float, Tensor)

#: A sentence goes through elimination if its marginals are off by more than this,
TOLERANCE = 1e-10
#: or if the inverse times the largest degree exceeds this (it multiplies rounding errors once per order of derivative).
CONDITION = 1e4


def log_partition_and_marginals(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"] | None, single_root: bool
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n+1 n"]]:
    """`log Z` and its gradient for float64 scores; twice differentiable. Words outside `exists`, if given, are padding.

    >>> log_z, arcs = log_partition_and_marginals(torch.zeros(1, 4, 3).double(), None, True)
    >>> log_z.exp()  # 3^2 trees with a single root
    tensor([9.0000], dtype=torch.float64)
    """
    return factorised(scores, exists, single_root)[:2]


class Factorised(NamedTuple):
    """What one factorisation yields; `eliminated` sentences have zeros for w and C."""

    log_z: Tensor
    marginals: Tensor
    w: Tensor
    c: Tensor
    p: Tensor
    rho: Tensor
    eliminated: Tensor


def factorised(scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"] | None, single_root: bool) -> Factorised:
    """`log Z`, the marginals and the inverse that they came from."""
    return Factorised(*_tree(scores, exists, single_root))


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


def _solve(scores: Tensor, exists: Tensor | None, single_root: bool) -> tuple[Tensor, ...]:
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
    size = c.abs()
    if not _trusted(float(off.max()), float(marginals.min()), float(size.max()) * float(degrees.max())):
        eliminated = ~_trusted(off.amax(1), marginals.amin((1, 2)), size.amax((1, 2)) * degrees.amax(1))
    marginals.clamp_min_(0)  # what is below zero by less than the tolerance is a rounded zero
    if eliminated.any():
        everyone = torch.ones_like(off, dtype=torch.bool) if exists is None else exists
        require_tree("SpanningTree", scores, everyone, single_root)
        log_z[eliminated], marginals[eliminated] = _eliminate(scores, exists, single_root, eliminated)
        w[eliminated], c[eliminated] = 0, 0  # no NaN may wait there for the backward pass
    return log_z, marginals, w, c, p, rho, eliminated


def _trusted(off: Number, least: Number, condition: Number) -> Number:
    return (off <= TOLERANCE) & (least >= -TOLERANCE) & (condition <= CONDITION)


def _differentiate(
    scores: Tensor, along: Tensor, exists: Tensor | None, single_root: bool,
    marginals: Tensor, w: Tensor, c: Tensor, p: Tensor, rho: Tensor, eliminated: Tensor,
) -> Tensor:  # fmt: skip
    """The derivative of the marginals along a direction: the Hessian of log Z, which is symmetric, times it."""
    dc = c @ (_laplacian(w * along, p, rho, single_root).mT @ c)
    out = torch.addcmul(marginals * along, w, _differences(dc, p, rho, single_root), value=-1)
    if eliminated.any():
        out[eliminated] = _eliminate(scores, exists, single_root, eliminated, along)[1]
    return out


def _differentiate_twice(
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


_SAVED = "Tensor marginals, Tensor w, Tensor c, Tensor p, Tensor rho, Tensor eliminated"
_solve_operator = torch.library.custom_op(
    "undirected::spanning_tree",
    _solve,
    mutates_args=(),
    schema="(Tensor scores, Tensor? exists, bool single_root) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_differentiate_operator = torch.library.custom_op(
    "undirected::spanning_tree_derivative",
    _differentiate,
    mutates_args=(),
    schema=f"(Tensor scores, Tensor along, Tensor? exists, bool single_root, {_SAVED}) -> Tensor",
)
_differentiate_twice_operator = torch.library.custom_op(
    "undirected::spanning_tree_second_derivative",
    _differentiate_twice,
    mutates_args=(),
    schema=f"(Tensor scores, Tensor u, Tensor v, Tensor? exists, bool single_root, {_SAVED}) -> Tensor",
)
@_solve_operator.register_fake
def _(scores: Tensor, exists: Tensor | None, single_root: bool) -> tuple[Tensor, ...]:
    batch, _, n = scores.shape
    return (
        scores.new_empty(batch),
        scores.new_empty(scores.shape),
        scores.new_empty(scores.shape),
        scores.new_empty(batch, n, n),
        scores.new_empty(batch, dtype=torch.long),
        scores.new_empty(batch),
        scores.new_empty(batch, dtype=torch.bool),
    )


@_differentiate_operator.register_fake
@_differentiate_twice_operator.register_fake
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


_register_vmap(_solve_operator, 7)
_register_vmap(_differentiate_operator, 1)
_register_vmap(_differentiate_twice_operator, 1)


def _save(ctx, inputs, output) -> None:
    scores, exists, ctx.single_root = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(scores, exists, *output[1:])


def _backward(ctx, for_log_z, for_marginals, *_):
    scores, exists, marginals, *rest = ctx.saved_tensors
    grad = None if for_log_z is None else for_log_z[:, None, None] * marginals
    if for_marginals is not None:
        through = _derivative(scores, for_marginals, exists, ctx.single_root, marginals.detach(), *rest)
        grad = through if grad is None else grad + through
    return grad, None, None


def _save_derivative(ctx, inputs, output) -> None:
    ctx.single_root = inputs[3]
    ctx.save_for_backward(*inputs[:3], *inputs[4:])


def _backward_derivative(ctx, u):
    scores, v, exists, *rest = ctx.saved_tensors
    for_scores = for_direction = None
    if ctx.needs_input_grad[0]:
        for_scores = _SecondDerivative.apply(scores, u, v, exists, ctx.single_root, *rest)
    if ctx.needs_input_grad[1]:
        for_direction = _derivative(scores, u, exists, ctx.single_root, *rest)
    return for_scores, for_direction, *[None] * 8


def _doors(kernel, operator, save, backward):
    """Three doors to the same room: the fastest, that of torch.func, and that of torch.compile."""

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            output = kernel(*inputs)
            save(ctx, inputs, output)
            return output

    class Mapped(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs):
            return operator(*inputs)

    Plain.backward = Mapped.backward = staticmethod(backward)
    Mapped.setup_context = staticmethod(save)
    operator.register_autograd(backward, setup_context=save)

    def enter(*inputs):
        if torch.compiler.is_compiling():
            return operator(*inputs)
        return (Mapped if torch._C._are_functorch_transforms_active() else Plain).apply(*inputs)

    return enter


class _SecondDerivative(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return (_differentiate_twice if all(map(concrete, inputs[:3])) else _differentiate_twice_operator)(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, _):
        raise NotImplementedError("Marginals of spanning trees have derivatives up to the second order, not the third.")


_tree = _doors(_solve, _solve_operator, _save, _backward)
_derivative = _doors(_differentiate, _differentiate_operator, _save_derivative, _backward_derivative)
