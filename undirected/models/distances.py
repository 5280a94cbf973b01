"""Distances: any directed network as the minimum of an energy that is zero there and nowhere else."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torch import nn

from undirected.errors import DeclarationError
from undirected.factors import Energy
from undirected.network import UNN
from undirected.regularizers import Identity, Regularizer, total
from undirected.variable import Variable

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def distances(*chain: int | tuple[int | str, ...] | nn.Module, y: Regularizer | None = None, steps: int = 20) -> UNN:
    """`E(x, h1, ..., y) = d(h1, f(x)) + d(h2, g(h1)) + ...` for any torch modules f, g, ...

    `d(b, t) = Psi(b) + Psi*(t) - <b, t>`: half the squared distance, unless y has another regularizer than Identity.
    E is never negative, and zero exactly at the directed network `h1 = f(x), h2 = g(h1), ...`, which one forward sweep
    from zeros finds. Backward, from y to x, blocks are found by an inner descent.

    Args:
        chain: the shape of x, a module, the shape of its output, a module, ..., the shape of y.
        y: the regularizer of y; Identity if not given. With Softmax, its module gives logits.
        steps: of each inner descent.

    >>> import torch
    >>> f, g = nn.Sequential(nn.Linear(4, 8), nn.GELU()), nn.Linear(8, 3)
    >>> net = distances(4, f, 8, g, 3)
    >>> x = torch.randn(5, 4)
    >>> torch.equal(net(observe={"x": x}, want="y", order="h1 y")["y"], g(f(x)))
    True
    """
    shapes, modules = chain[::2], [part for part in chain[1::2] if isinstance(part, nn.Module)]
    if not modules or len(chain) != 2 * len(modules) + 1:
        raise DeclarationError(
            f"distances: takes shapes and modules in turn, such as distances(4, f, 8, g, 3); got {len(chain)} parts, "
            f"{', '.join(type(part).__name__ for part in chain)}."
        )
    names = ["x", *(f"h{i}" for i in range(1, len(modules))), "y"]
    last = Identity() if y is None else y
    variables = [
        Variable(name, shape, last if name == "y" else Identity(), bias=False)  # type: ignore[arg-type]
        for name, shape in zip(names, shapes, strict=True)
    ]
    factors = [
        Distance(Gap(module, b.regularizer, a.name == "x"), a.name, b.name, steps=steps, linear=b.name)
        for (a, b), module in zip(pairwise(variables), modules, strict=True)
    ]
    return UNN(*variables, *factors)


class Distance(Energy):
    """An energy `Gap`, whose derivative by b is known."""

    def message(self, target: int, *values: Float[Tensor, "batch *event"]) -> Float[Tensor, "batch *event"]:
        message: Tensor = self.function.module(values[0])  # type: ignore[attr-defined]
        return message


class Gap(nn.Module):
    """`Psi*(t) - <b, t>` at `t = module(a)`: what the distance from b to it has beside `Psi(b)`.

    `is_first` takes the `Psi(a)` of the variable that a chain begins with out of the energy.
    """

    def __init__(self, module: nn.Module, regularizer: Regularizer, is_first: bool) -> None:
        super().__init__()
        self.module = module
        self.regularizer = regularizer
        self.is_first = is_first

    def forward(self, a: Float[Tensor, "batch *event"], b: Float[Tensor, "batch *event"]) -> Float[Tensor, " batch"]:
        t = self.module(a)
        distance = self.regularizer.conjugate(t) - total(b * t)
        return distance - 0.5 * total(a * a) if self.is_first else distance
