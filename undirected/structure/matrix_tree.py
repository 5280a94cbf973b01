"""Matrix-tree: log-partition and marginals of spanning trees as operations that torch differentiates, maps, compiles.

The numerics are in `laplacian`. They choose by value which sentences need elimination; compiled code can only do that
inside an operator of torch.library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from undirected.regularizers import concrete
from undirected.structure import laplacian
from undirected.structure.memo import Memo

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def log_partition_and_marginals(
    scores: Float[Tensor, "batch n+1 n"], mask: Bool[Tensor, "..."] | None, single_root: bool
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n+1 n"]]:
    """`log Z` and its gradient, computed in float64; twice differentiable. Arcs outside the mask, if any, do not exist.

    >>> log_z, arcs = log_partition_and_marginals(torch.zeros(1, 4, 3).double(), None, True)
    >>> log_z.exp().round(decimals=4)  # 3^2 trees with a single root
    tensor([9.], dtype=torch.float64)
    """
    if not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active():
        return _Tree.apply(scores, mask, single_root)
    log_z, marginals, *_ = _tree(*_masked(scores.double(), mask), single_root)
    return log_z.to(scores.dtype), marginals.to(scores.dtype)


def _masked(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Scores with -inf outside the mask, and which words exist."""
    if mask is None:
        return scores, None
    return torch.where(mask, scores, -torch.inf), mask.any(-2).expand(len(scores), scores.shape[2])


class Factorised(NamedTuple):
    """What one factorisation yields; `eliminated` sentences have zeros for w and C."""

    log_z: Tensor
    marginals: Tensor
    w: Tensor
    c: Tensor
    rho: Tensor
    eliminated: Tensor


def factorised(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"] | None, single_root: bool
) -> Factorised:
    """`log Z`, the marginals and the inverse that they came from, without derivatives."""
    return Factorised(*laplacian.solve(scores.detach(), exists, single_root))


_SAVED = "Tensor marginals, Tensor w, Tensor c, Tensor? rho, Tensor? eliminated"
_solve_operator = torch.library.custom_op(
    "undirected::spanning_tree",
    laplacian.solve,
    mutates_args=(),
    schema=f"(Tensor scores, Tensor? exists, bool single_root) -> ({', '.join(['Tensor'] * 6)})",
)
_differentiate_operator = torch.library.custom_op(
    "undirected::spanning_tree_derivative",
    laplacian.differentiate,
    mutates_args=(),
    schema=f"(Tensor scores, Tensor along, Tensor? exists, bool single_root, {_SAVED}) -> Tensor",
)
_differentiate_twice_operator = torch.library.custom_op(
    "undirected::spanning_tree_second_derivative",
    laplacian.differentiate_twice,
    mutates_args=(),
    schema=f"(Tensor scores, Tensor u, Tensor v, Tensor? exists, bool single_root, {_SAVED}) -> Tensor",
)


@_solve_operator.register_fake
def _(scores: Tensor, exists: Tensor | None, single_root: bool) -> tuple[Tensor, ...]:
    batch = len(scores)
    return (
        scores.new_empty(batch),
        scores.new_empty(scores.shape),
        scores.new_empty(scores.shape),
        scores.new_empty(scores.shape),
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


_register_vmap(_solve_operator, 6)
_register_vmap(_differentiate_operator, 1)
_register_vmap(_differentiate_twice_operator, 1)


_memo: Memo[tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]] = Memo()


class _Tree(torch.autograd.Function):
    """The fastest door: masks and changes of precision are inside, as every operation counts for short sentences."""

    @staticmethod
    def forward(ctx, scores, mask, single_root):
        found = _memo.find(scores, mask, single_root)
        if found is None:
            found = laplacian.factorise(*_masked(scores, mask), single_root)
            _memo.keep(found, scores, mask, single_root)
        # Outputs get a graph and may be written into; what is remembered must not.
        log_z, marginals = (x.to(scores.dtype, copy=scores.grad_fn is not None) for x in found[:2])
        ctx.single_root = single_root
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, mask, marginals, *found[1:])
        return log_z, marginals

    @staticmethod
    def backward(ctx, for_log_z, for_marginals):
        scores, mask, marginals, exact, *rest = ctx.saved_tensors
        if for_log_z is not None:
            for_log_z = for_log_z.double()
        along = None if for_marginals is None else for_marginals.double()
        if torch.is_grad_enabled() or not all(concrete(x) for x in (for_log_z, along) if x is not None):
            # Someone will differentiate once more: the output's derivatives, with the digits that it lost.
            marginals = marginals.double() + (exact - marginals.double()).detach()
            inputs = _masked(scores.double(), mask)
            grad = _pulled(for_log_z, along, *inputs, ctx.single_root, marginals, exact, *rest)
        elif along is None:
            grad = None if for_log_z is None else for_log_z[:, None, None] * exact
        else:
            w, c, rho, eliminated = rest
            inputs = (scores, None) if eliminated is None else _masked(scores, mask)  # only elimination reads them
            grad = laplacian.differentiate(
                inputs[0], along, inputs[1], ctx.single_root, exact, w, c, rho, eliminated, for_log_z
            )
        return None if grad is None else grad.to(scores.dtype), None, None


def _pulled(for_log_z, along, scores, exists, single_root, marginals, exact, *rest) -> Tensor | None:
    """The gradient of both results, itself differentiable."""
    grad = None if for_log_z is None else for_log_z[:, None, None] * marginals
    if along is None:
        return grad
    through = _derivative(scores, along, exists, single_root, exact.detach(), *rest)
    return through if grad is None else grad + through


def _save(ctx, inputs, output) -> None:
    scores, exists, ctx.single_root = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(scores, exists, *output[1:])


def _backward(ctx, for_log_z, for_marginals, *_):
    scores, exists, marginals, *rest = ctx.saved_tensors
    grad = _pulled(for_log_z, for_marginals, scores, exists, ctx.single_root, marginals, marginals, *rest)
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
    return for_scores, for_direction, *[None] * 7


def _door(kernel, operator, save, backward):
    """More doors to the same rooms: that of torch.func, which eager code uses for derivatives, and of torch.compile."""

    class Mapped(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs):
            return (kernel if all(concrete(x) for x in inputs if isinstance(x, Tensor)) else operator)(*inputs)

        @staticmethod
        def setup_context(ctx, inputs, output):
            if isinstance(output, tuple):
                ctx.mark_non_differentiable(*output[2:])
            save(ctx, inputs, output)

        @staticmethod
        def backward(ctx, *cotangents):
            return backward(ctx, *cotangents)

    operator.register_autograd(backward, setup_context=save)

    def enter(*inputs):
        if torch.compiler.is_compiling():
            return operator(*inputs)  # whose other outputs get no derivative, as nobody uses them
        return Mapped.apply(*inputs)

    return enter


class _SecondDerivative(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs):
        return (laplacian.differentiate_twice if all(map(concrete, inputs[:3])) else _differentiate_twice_operator)(
            *inputs
        )

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, _):
        raise NotImplementedError("Marginals of spanning trees have derivatives up to the second order, not the third.")


_tree = _door(laplacian.solve, _solve_operator, _save, _backward)
_derivative = _door(laplacian.differentiate, _differentiate_operator, _save_derivative, _backward_derivative)
