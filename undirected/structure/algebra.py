"""Algebra: what a sum of products is in a dynamic programme: a logarithm, a number, a derivative, a maximum, a draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.structure.elimination import NOTHING

if TYPE_CHECKING:
    from torch import Tensor


class Log:
    """Logarithms of positive numbers. Plain tensor operations: differentiable to any order, never out of range."""

    zero, one = NOTHING, 0.0

    def ones_like(self, x: Tensor) -> Tensor:
        return torch.full_like(x, self.one)

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum over the last axis of the products."""
        return (x + y).logsumexp(-1)

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def plus(self, *terms: Tensor) -> Tensor:
        return torch.stack(terms).logsumexp(0)

    def ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """As a number, not a logarithm."""
        return (x - y).exp()


class Largest(Log):
    """The largest term instead of the sum; its derivative goes to that term."""

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + y).max(-1).values


class Draw(Log):
    """Log-sums whose derivative goes to one term, drawn with the term's share as its probability."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self.generator = generator

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        return _LogSumOrDraw.apply(x + y, self.generator)


class Real:
    """Numbers as they are: ten times faster than logarithms, where their range suffices. Not for autograd."""

    zero, one = 0.0, 1.0

    def ones_like(self, x: Tensor) -> Tensor:
        return torch.full_like(x, self.one)

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum(-1)

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def plus(self, *terms: Tensor) -> Tensor:
        return torch.stack(terms).sum(0)

    def ratio(self, x: Tensor, y: Tensor) -> Tensor:
        return x / y


class Dual(Real):
    """Numbers with their derivative along a direction, which comes second along the first axis."""

    def ones_like(self, x: Tensor) -> Tensor:
        return torch.cat([torch.ones_like(x[:1]), torch.zeros_like(x[1:])])

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        return self.times(x, y).sum(-1)

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        product = x[:1] * y
        product[1:].addcmul_(x[1:], y[:1])
        return product

    def ratio(self, x: Tensor, y: Tensor) -> Tensor:
        quotient = x / y[:1]
        quotient[1:].addcmul_(quotient[:1], y[1:] / y[:1], value=-1)
        return quotient


class _LogSumOrDraw(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, generator: torch.Generator | None) -> Tensor:
        ctx.generator = generator
        ctx.save_for_backward(x)
        return x.logsumexp(-1)

    @staticmethod
    def backward(ctx, cotangent: Tensor):
        (x,) = ctx.saved_tensors
        shares = x.softmax(-1).flatten(0, -2)
        drawn = shares.multinomial(1, generator=ctx.generator).view(*x.shape[:-1], 1)
        return torch.zeros_like(x).scatter_(-1, drawn, cotangent[..., None]), None
