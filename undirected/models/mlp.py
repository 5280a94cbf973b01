"""MLP: layers joined by matrices."""

from __future__ import annotations

from itertools import pairwise

from undirected.errors import DeclarationError
from undirected.factors import Linear
from undirected.network import UNN
from undirected.regularizers import Identity, Regularizer, Tanh
from undirected.simplex import Softmax
from undirected.variable import Variable


def mlp(
    *sizes: int,
    x: Regularizer | None = None,
    hidden: Regularizer | None = None,
    y: Regularizer | None = None,
    dropout: float = 0.0,
) -> UNN:
    """A multi-layer network in any direction: y from x, x from y, or what is missing of both.

    `E = Psi(x) + sum_l [Psi(h_l) - <b_l, h_l> - <h_l, W_l h_(l-1)>] + Psi(y) - <b_y, y> - <y, W_y h_L>`, `h_0 = x`.

    One forward sweep from zeros, given x, is `nn.Sequential(nn.Linear, nn.Tanh, ..., nn.Linear, nn.Softmax)`, bit for
    bit; further sweeps let y act on the hidden layers.

    Args:
        sizes: of x, of the hidden layers h1, h2, ... (none is fine), and of y.
        x, hidden, y: regularizers; Identity, Tanh and Softmax if not given.
        dropout: of the hidden layers, in training.

    >>> import torch
    >>> net = mlp(784, 256, 10)
    >>> net(observe={"x": torch.randn(5, 784)}, want="y", iterations=3)["y"].shape
    torch.Size([5, 10])
    >>> net(observe={"y": torch.tensor([3, 7])}, want="x", iterations=3)["x"].shape
    torch.Size([2, 784])
    """
    if len(sizes) < 2:
        raise DeclarationError(f"mlp{sizes}: takes the sizes of x and y at least, such as mlp(784, 256, 10).")
    hidden = Tanh() if hidden is None else hidden
    layers = [Variable(f"h{i}", (size,), hidden, dropout=dropout) for i, size in enumerate(sizes[1:-1], 1)]
    first = Variable("x", (sizes[0],), Identity() if x is None else x, bias=False)
    last = Variable("y", (sizes[-1],), Softmax() if y is None else y)
    variables = [first, *layers, last]
    return UNN(*variables, *(Linear(a.name, b.name) for a, b in pairwise(variables)))
