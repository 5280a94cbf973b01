"""Hopfield: memories that complete what they are shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from undirected.factors import Linear
from undirected.network import UNN
from undirected.regularizers import Identity, Tanh
from undirected.simplex import Softmax
from undirected.variable import Variable

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from undirected.regularizers import Regularizer


def hopfield(patterns: Float[Tensor, "patterns size"], temperature: float = 0.1) -> UNN:
    """The classical network of spins x, with Hebb's weights: each pattern is kept by the product of its entries.

    `E(x, m) = temperature Psi(x) + 1/2 |m|^2 - <m, P x> / sqrt(n)` for patterns P of n entries in {-1, 1}. The overlaps
    m can be minimised away, which leaves Hopfield's `temperature Psi(x) - 1/2 x' W x` with Hebb's `W = P' P / n`.

    One round, m then x, is `x <- tanh(W x / temperature)`: Hopfield's update of all spins, `sign(W x)` when cold.

    >>> patterns = torch.randint(0, 2, (4, 100)).float() * 2 - 1
    >>> noisy = patterns * (torch.rand(4, 100) < 0.9).float()
    >>> net = hopfield(patterns)
    >>> net(observe={}, init={"x": noisy}, order="m x", want="x", iterations=5)["x"].shape
    torch.Size([4, 100])
    """
    return _memory(patterns / math.sqrt(patterns.shape[1]), Tanh(scale=temperature), Identity())


def modern_hopfield(patterns: Float[Tensor, "patterns size"], beta: float = 1.0) -> UNN:
    """The modern network with continuous states x: `E(x, m) = 1/2 |x|^2 - H(m) / beta - <m, P x>` with H the entropy.

    Minimising m away leaves `1/2 |x|^2 - logsumexp(beta P x) / beta`. One round, m then x, is attention over the stored
    patterns, `x <- P' softmax(beta P x)`. It keeps exponentially many patterns, whatever their entries.

    >>> net = modern_hopfield(torch.eye(3), beta=20.0)
    >>> net(observe={}, init={"x": torch.tensor([[0.9, 0.2, 0.1]])}, order="m x", want="x")["x"].detach().round()
    tensor([[1., 0., 0.]])
    """
    return _memory(patterns, Identity(), Softmax(temperature=1 / beta))


def _memory(weight: Tensor, x: Regularizer, m: Regularizer) -> UNN:
    count, size = weight.shape
    net = UNN(Variable("x", (size,), x, bias=False), Variable("m", (count,), m, bias=False), Linear("x", "m"))
    net.factors["x-m"].weight = torch.nn.Parameter(weight.detach().clone())
    return net
