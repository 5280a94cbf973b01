"""Recurrent: one state per step, joined in a chain by the same weights."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

from undirected.errors import DeclarationError, QueryError
from undirected.factors import Factor, Linear
from undirected.network import UNN
from undirected.regularizers import Regularizer, Tanh
from undirected.simplex import Softmax
from undirected.variable import Variable

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


class Recurrent(nn.Module):
    """`E = sum_t [Psi(x_t) + Psi(h_t) - <b, h_t> - <h_t, W x_t>] - sum_(t>1) <h_t, U h_(t-1)> `, with y
    `+ Psi(y) - <y, V h_T + c>`.

    One forward sweep `h1 h2 ... hT` from zeros is `nn.RNN`; further sweeps let late inputs change early states. The
    number of steps is chosen per call: `network(steps)` declares the graph of a sequence, and the graphs of all
    lengths have the same parameters.

    Args:
        inputs, hidden: the sizes of each x_t and h_t.
        activation: the regularizer of the states; Tanh if not given. `un.ReLU()` is `nn.RNN(nonlinearity="relu")`.
        classes: adds a Softmax variable y with this many classes, joined to the last state.

    >>> import torch
    >>> rnn = Recurrent(3, 8)
    >>> rnn(torch.randn(2, 5, 3), iterations=2).shape
    torch.Size([2, 5, 8])
    >>> rnn.network(2)
    UNN(
      Variable('x1', (3,), Identity(), bias=False)
      Variable('x2', (3,), Identity(), bias=False)
      Variable('h1', (8,), Tanh())
      Variable('h2', (8,), Tanh())
      (factors): Factors(
        (x1-h1): Linear('x1', 'h1')
        (x2-h2): Linear('x1', 'h1').tied('x2', 'h2')
        (h1-h2): Linear('h1', 'h2')
      )
    )
    """

    def __init__(
        self, inputs: int, hidden: int, activation: Regularizer | None = None, classes: int | None = None
    ) -> None:
        super().__init__()
        self.inputs, self.hidden = inputs, hidden
        self.activation = Tanh() if activation is None else activation
        self.input = nn.Linear(inputs, hidden)
        self.recurrence = nn.Linear(hidden, hidden, bias=False)
        self.readout = None if classes is None else nn.Linear(hidden, classes)
        self._networks: dict[int, UNN] = {}  # no submodules: all that they learn is listed above

    def network(self, steps: int) -> UNN:
        """The network of a sequence of this many steps: variables x1, x2, ..., h1, h2, ... and y if there is one."""
        if not isinstance(steps, int) or steps < 1:
            raise DeclarationError(f"Recurrent: a sequence has 1, 2, 3 ... steps, not {steps!r}.")
        if steps not in self._networks:
            self._networks[steps] = self._declare(steps)
        return self._networks[steps].train(self.training)

    def _declare(self, steps: int) -> UNN:
        xs, hs = ([f"{name}{t}" for t in range(1, steps + 1)] for name in "xh")
        parts: list[Variable | Factor] = [Variable(x, (self.inputs,), bias=False) for x in xs]
        parts += [Variable(h, (self.hidden,), self.activation) for h in hs]
        parts += _tied(list(zip(xs, hs, strict=True)), self.input.weight)
        parts += _tied(list(pairwise(hs)), self.recurrence.weight)
        biases = dict.fromkeys(hs, self.input.bias)
        if self.readout is not None:
            parts.append(Variable("y", (self.readout.out_features,), Softmax()))
            parts += _tied([(hs[-1], "y")], self.readout.weight)
            biases["y"] = self.readout.bias
        net = UNN(*parts)
        for name, bias in biases.items():
            net.register_parameter(f"bias_{name}", bias)
        return net

    def forward(
        self, x: Float[Tensor, "batch steps inputs"], iterations: int = 1
    ) -> Float[Tensor, "batch steps hidden"]:
        """The states of every step after this many forward sweeps. For other questions, ask `network(steps)`."""
        if x.dim() != 3:
            raise QueryError(f"Recurrent: takes (batch, steps, {self.inputs}), got {tuple(x.shape)}.")
        net = self.network(x.shape[1])
        given = {f"x{t}": row for t, row in enumerate(x.unbind(1), 1)}
        names = [f"h{t}" for t in range(1, x.shape[1] + 1)]
        order = names if self.readout is None else [*names, "y"]
        solution = net(observe=given, want=names, order=order, iterations=iterations)
        return torch.stack([solution[name] for name in names], 1)


def _tied(joins: list[tuple[str, str]], weight: Tensor) -> list[Factor]:
    """The same matrix between each of these pairs."""
    if not joins:
        return []
    first, *others = joins
    factor = Linear(*first)
    factor.register_parameter("weight", weight)  # type: ignore[arg-type]
    return [factor, *(factor.tied(*names) for names in others)]
