"""Pair: two variables and one matrix. A tied auto-encoder, and a continuous Boltzmann machine."""

from __future__ import annotations

from undirected.factors import Linear
from undirected.network import UNN
from undirected.regularizers import Identity, Regularizer, Tanh
from undirected.variable import Variable


def pair(visible: int, hidden: int, x: Regularizer | None = None, h: Regularizer | None = None) -> UNN:
    """`E(x, h) = Psi(x) - <c, x> + Psi(h) - <b, h> - <h, W x>`.

    One round, h then x, starting from data, is the tied auto-encoder `x -> f_x(W' f_h(W x + b) + c)`. With Sigmoid at
    both ends E is the mean-field free energy of a restricted Boltzmann machine; with Identity for x, of one with
    Gaussian visible units.

    Args:
        visible, hidden: the sizes of x and h.
        x, h: regularizers; Identity and Tanh if not given.

    >>> import torch
    >>> net = pair(8, 3)
    >>> data = torch.randn(5, 8)
    >>> code = net(observe={"x": data}, want="h")["h"]
    >>> net(observe={}, init={"x": data}, order="h x", want="x")["x"].shape  # encode and decode
    torch.Size([5, 8])
    """
    return UNN(
        Variable("x", (visible,), Identity() if x is None else x),
        Variable("h", (hidden,), Tanh() if h is None else h),
        Linear("x", "h"),
    )
