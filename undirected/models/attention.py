"""Attention: self-attention whose every part can be inferred from the others, as in "Undirected Neural Networks"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from undirected.errors import DeclarationError
from undirected.factors import Einsum, Factor, Linear
from undirected.network import UNN
from undirected.simplex import CausalSoftmax, Softmax
from undirected.variable import Variable

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def attention(
    inputs: int,
    size: int | None = None,
    heads: int = 1,
    positions: Float[Tensor, "longest inputs"] | None = None,
    causal: bool = False,
    outputs: int | None = None,
) -> UNN:
    """Self-attention over n rows x: queries q, keys k, values v, attention s and contexts h.

    `E = Psi(x) + Psi(q) + Psi(k) + Psi(v) + Psi(h) - sqrt(d) sum_i H(s_i) - <q, W_q (x + p) + b_q> - <k, W_k (x + p) +
    b_k> - <v, W_v (x + p) + b_v> - <s, q k'> - <s, h v'>`, with Psi = 1/2 |.|^2 and H the entropy; with several heads,
    q, k, v, s and h have one part for each; with outputs, `+ Psi(y) - <y, W_y h + b_y>`.

    One forward sweep `q k v s h` from zeros is scaled dot-product attention. The sweep `q k v s h s v k q x` infers
    missing rows of x: observe `un.Partial(x, known=...)`. Sequences of several lengths: `lengths={"n": ...}`. Any
    attention mask: observe that s is zero there, `{"s": un.Partial(zeros, known=~mask)}`.

    Args:
        inputs: the size of each row of x.
        size: of each query, key and value of a head; `inputs // heads` if not given.
        heads: how many.
        positions: p, a table at least as long as the longest sequence; learned if it is an `nn.Parameter`.
        causal: rows attend to themselves and to what comes before them.
        outputs: adds a variable y of this size per row, joined to the contexts of all heads.

    >>> import torch
    >>> net = attention(8, heads=2)
    >>> net(observe={"x": torch.randn(3, 5, 8)}, want="h", order="q k v s h")["h"].shape
    torch.Size([3, 5, 2, 4])
    """
    if size is None:
        if inputs % heads:
            raise DeclarationError(f"attention: {heads} heads do not divide rows of {inputs}; give the heads' size=.")
        size = inputs // heads
    row: tuple[int | str, ...] = ("n", size) if heads == 1 else ("n", heads, size)
    softmax = (CausalSoftmax if causal else Softmax)(scale=math.sqrt(size))
    a = "" if heads == 1 else "a,"  # the index of the head
    parts: list[Variable | Factor] = [
        Variable("x", ("n", inputs), bias=False),
        Variable("q", row),
        Variable("k", row),
        Variable("v", row),
        Variable("s", ("n", "n") if heads == 1 else (heads, "n", "n"), softmax, bias=False),
        Variable("h", row, bias=False),
        *(Linear("x", name, shift=None if positions is None else {"x": positions}) for name in "qkv"),
        Einsum(f"s[{a}i,j] q[i,{a}d] k[j,{a}d]"),
        Einsum(f"s[{a}i,j] h[i,{a}d] v[j,{a}d]"),
    ]
    if outputs is not None:
        parts += [Variable("y", ("n", outputs)), Linear("h", "y")]
    return UNN(*parts)
