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

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def log_partition_and_marginals(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"] | None, single_root: bool
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch n+1 n"]]:
    """`log Z` and its gradient for float64 scores; twice differentiable. Words outside `exists`, if given, are padding.

    >>> log_z, arcs = log_partition_and_marginals(torch.zeros(1, 4, 3).double(), None, True)
    >>> log_z.exp().round(decimals=4)  # 3^2 trees with a single root
    tensor([9.], dtype=torch.float64)
    """
    log_z, marginals, *_ = _tree(scores, exists, single_root)
    return log_z, marginals


class Factorised(NamedTuple):
    """What one factorisation yields; `eliminated` sentences have zeros for w and C."""

    log_z: Tensor
    marginals: Tensor
    w: Tensor
    c: Tensor
    p: Tensor
    rho: Tensor
    eliminated: Tensor


def factorised(
    scores: Float[Tensor, "batch n+1 n"], exists: Bool[Tensor, "batch n"] | None, single_root: bool
) -> Factorised:
    """`log Z`, the marginals and the inverse that they came from, without derivatives."""
    return Factorised(*laplacian.solve(scores.detach(), exists, single_root))


_SAVED = "Tensor marginals, Tensor w, Tensor c, Tensor p, Tensor rho, Tensor eliminated"
_solve_operator = torch.library.custom_op(
    "undirected::spanning_tree",
    laplacian.solve,
    mutates_args=(),
    schema=f"(Tensor scores, Tensor? exists, bool single_root) -> ({', '.join(['Tensor'] * 7)})",
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
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(scores, exists, *output[1:])


def _backward(ctx, for_log_z, for_marginals, *_):
    scores, exists, marginals, *rest = ctx.saved_tensors
    grad = None if for_log_z is None else for_log_z[:, None, None] * marginals
    if for_marginals is not None:
        # Unless someone will differentiate once more, there is no need to enter by a door.
        derivative = laplacian.differentiate if _plainly(scores, for_marginals) else _derivative
        through = derivative(scores, for_marginals, exists, ctx.single_root, marginals.detach(), *rest)
        grad = through if grad is None else grad + through
    return grad, None, None


def _plainly(*tensors: Tensor) -> bool:
    return not torch.is_grad_enabled() and all(map(concrete, tensors))


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
            return output[:2] if isinstance(output, tuple) else output  # the rest is for the derivatives only

        @staticmethod
        def backward(ctx, *cotangents):
            return backward(ctx, *cotangents)

    class Mapped(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs):
            return operator(*inputs)

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
        return (Mapped if torch._C._are_functorch_transforms_active() else Plain).apply(*inputs)

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


_tree = _doors(laplacian.solve, _solve_operator, _save, _backward)
_derivative = _doors(laplacian.differentiate, _differentiate_operator, _save_derivative, _backward_derivative)
