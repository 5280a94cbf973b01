"""Parser: words as heads and as modifiers, and a dependency tree that speaks back to them, as in the paper."""

from __future__ import annotations

from undirected.factors import Einsum, Linear
from undirected.network import UNN
from undirected.regularizers import Regularizer, ReLU
from undirected.structure import ProjectiveTree, SpanningTree
from undirected.variable import Variable

#: Heads, then modifiers given the new heads, then the tree.
ORDER = "h m y"


def parser(
    inputs: int,
    hidden: int = 400,
    dropout: float = 0.0,
    projective: bool = False,
    activation: Regularizer | None = None,
) -> UNN:
    """A parser of sentences of n words, whose tree y informs the words' features as heads h and as modifiers m.

    `E = Psi(h) - <b_h, h> - <h, W_h x> + Psi(m) - <b_m, m> - <m, W_m w> + Psi(y) - sum_ij y_ij h_i' V m_j`, where x
    are the vectors of the root and the n words and w those of the words alone: the last n rows of x. Psi of h and m is
    `1/2 |.|^2` on numbers that are not negative (ReLU), of y minus the entropy of trees.

    One sweep `h m y` from zeros is a biaffine parser: `y = marginals(relu(W_h x + b_h) V relu(W_m w + b_m)')`. In
    further sweeps heads see their probable modifiers, and modifiers their probable heads. Observe `un.Partial` of y
    where some arcs are known. Sentences of several lengths: `lengths={"n": ...}`.

    Args:
        inputs: the size of each row of x and w.
        hidden: of each row of h and m.
        dropout: the share of entries of h and m that are zero in training, the same ones for a whole solve.
        projective: arcs do not cross.
        activation: the regularizer of h and m; ReLU if not given, which is not bounded: with a strong V, sweeps until
            nothing changes may have nowhere to stop. Tanh always has.

    >>> import torch
    >>> net = parser(8, hidden=16)
    >>> x = torch.randn(2, 6, 8)
    >>> solution = net(observe={"x": x, "w": x[:, 1:]}, want="y", order="h m y", iterations=2)
    >>> solution["y"].shape  # (batch, n + 1, n): the probability of each arc [head, modifier]
    torch.Size([2, 6, 5])
    """
    activation = ReLU() if activation is None else activation
    return UNN(
        Variable("x", ("n+1", inputs), bias=False),
        Variable("w", ("n", inputs), bias=False),
        Variable("h", ("n+1", hidden), activation, dropout=dropout),
        Variable("m", ("n", hidden), activation, dropout=dropout),
        Variable("y", ("n+1", "n"), ProjectiveTree() if projective else SpanningTree(), bias=False),
        Linear("x", "h"),
        Linear("w", "m"),
        Einsum("y[i,j] h[i,d] V[d,e] m[j,e]"),
    )
