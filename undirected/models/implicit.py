"""Implicit: a layer that is the minimum of a function of one's own."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from undirected.factors import Einsum, Energy, Factor, Linear
from undirected.network import UNN
from undirected.regularizers import Identity, Regularizer
from undirected.variable import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def implicit(
    function: Callable[[Tensor], Tensor],
    shape: int | tuple[int, ...],
    h: Regularizer | None = None,
    outputs: int | None = None,
    y: Regularizer | None = None,
    steps: int = 20,
) -> UNN:
    """`E(x, h) = Psi(x) + Psi(h) - <h, x> + function(h)`, and with outputs `+ Psi(y) - <y, W h + b>`.

    With Identity, h given x is the proximal step `argmin 1/2 |h - x|^2 + function(h)`: a denoiser, a soft projection.
    With HardTanh or Sparsemax it is also kept in a box or on the simplex. h is found by an inner descent, which is
    differentiable in x and in the parameters of `function`; y, once it is set or when it is observed, pulls h.

    Args:
        function: from h, with a batch axis, to a number per example. The parameters of an `nn.Module` are learned.
        shape: of x and h.
        h, y: regularizers; Identity if not given.
        outputs: adds a variable y of this size.
        steps: of each inner descent.

    >>> import torch
    >>> smooth = lambda h: h.diff(dim=1).square().sum(1)
    >>> net = implicit(smooth, 4, steps=60)
    >>> net(observe={"x": torch.tensor([[0.0, 0.0, 4.0, 4.0]])}, want="h")["h"].detach().round(decimals=2)
    tensor([[0.9400, 1.4100, 2.5900, 3.0600]])
    """
    shape = (shape,) if isinstance(shape, int) else shape
    index = ",".join(string.ascii_lowercase[: len(shape)])
    parts: list[Variable | Factor] = [
        Variable("x", shape, bias=False),
        Variable("h", shape, Identity() if h is None else h, bias=False),
        Einsum(f"x[{index}] h[{index}]"),
        Energy(function, "h", steps=steps),
    ]
    if outputs is not None:
        parts += [Variable("y", (outputs,), Identity() if y is None else y), Linear("h", "y")]
    return UNN(*parts)
