"""Directed: an ordinary network whose output is a message to an undirected one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from undirected.errors import QueryError
from undirected.factors.factor import Factor
from undirected.regularizers import total
from undirected.variable import show

if TYPE_CHECKING:
    from torch import Tensor


class Directed(Factor):
    """`score(x, ..., h) = <module(x, ...), h>`: linear in h alone, so the inputs must be observed.

    Args:
        module: takes the inputs, gives a tensor of the last variable's shape.
        variables: the module's inputs, then the variable that it feeds.

    >>> import torch, undirected as un
    >>> encoder = torch.nn.Linear(4, 3)
    >>> net = un.UNN(un.Variable("x", (4,)), un.Variable("h", (3,), bias=False), un.Directed(encoder, "x", "h"))
    >>> x = torch.randn(2, 4)
    >>> torch.equal(net(observe={"x": x})["h"], encoder(x))
    True
    """

    def __init__(self, module: nn.Module, *variables: str, name: str | None = None) -> None:
        super().__init__(*variables, name=name)
        self.module = module

    def score(self, *values: Tensor) -> Tensor:
        return total(self.message(len(values) - 1, *values) * values[-1])

    def message(self, target: int, *values: Tensor) -> Tensor:
        if target != len(values) - 1:
            raise QueryError(f"{self} sends no message to {self.variables[target]}: observe it.")
        message: Tensor = self.module(*values[:-1])
        if message.shape != values[-1].shape:
            raise QueryError(
                f"{self}: the module gives {show(message.shape)}, but {self.variables[-1]} is {show(values[-1].shape)}."
            )
        return message

    def __repr__(self) -> str:
        return f"Directed({type(self.module).__name__}(...), {', '.join(map(repr, self.variables))})"
