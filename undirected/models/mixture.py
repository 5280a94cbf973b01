"""Mixture: a directed network in front, an undirected one behind, trained together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from undirected.errors import DeclarationError
from undirected.factors import Directed, Linear
from undirected.network import UNN
from undirected.regularizers import Identity, Regularizer, Tanh
from undirected.simplex import Softmax
from undirected.variable import Variable

if TYPE_CHECKING:
    from torch import nn


def mixture(
    module: nn.Module,
    inputs: int | tuple[int, ...],
    *sizes: int,
    hidden: Regularizer | None = None,
    y: Regularizer | None = None,
) -> UNN:
    """A (pretrained) module feeds the first of a chain of undirected layers.

    `E = sum_l [Psi(h_l) - <b_l, h_l>] - <h_1, module(x)> - sum_(l>1) <h_l, W_l h_(l-1)> + Psi(y) - <y, W_y h_L + b_y>`,
    given x.

    One forward sweep from zeros is the directed network `module`, activation, `nn.Linear`, ...; x must be observed, all
    else may be. Gradients reach the module too: freeze its parameters to keep them.

    Args:
        module: takes x, gives pre-activations for h1.
        inputs: the shape of x.
        sizes: of h1 (what the module gives), of further hidden layers, and of y.
        hidden, y: regularizers; Tanh and Softmax if not given.

    >>> import torch
    >>> encoder = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 5), torch.nn.Flatten())
    >>> net = mixture(encoder, (3, 8), 16, 10)
    >>> net(observe={"x": torch.randn(2, 3, 8)}, want="y", iterations=3)["y"].shape
    torch.Size([2, 10])
    """
    if len(sizes) < 2:
        raise DeclarationError(f"mixture: takes the sizes of h1 and y at least, got {sizes}.")
    hidden = Tanh() if hidden is None else hidden
    layers = [Variable(f"h{i}", (size,), hidden) for i, size in enumerate(sizes[:-1], 1)]
    layers.append(Variable("y", (sizes[-1],), Softmax() if y is None else y))
    x = Variable("x", inputs, Identity(), bias=False)
    return UNN(x, *layers, Directed(module, "x", "h1"), *(Linear(a.name, b.name) for a, b in pairwise(layers)))
