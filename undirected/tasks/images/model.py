"""Model: an image, two convolutions and a class, read in one direction and drawn in the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undirected.equilibrium import Tolerance
from undirected.factors import Conv2d, Linear
from undirected.gradients import Gradient
from undirected.network import UNN
from undirected.regularizers import Tanh
from undirected.simplex import Softmax
from undirected.solution import Solution
from undirected.variable import Variable

READ = "h1 h2 y h2"  # from the image up to the class, and a step back
DRAW = "h2 h1 x h1"  # from the class down to the image, and a step back
CHANNELS = (32, 64)
#: Kernels and strides by the side of the image.
CONVOLUTIONS = {28: ((6, 2), (4, 2)), 8: ((3, 1), (4, 2))}


def network(side: int = 28, classes: int = 10, channels: Sequence[int] = CHANNELS, dropout: float = 0.0) -> UNN:
    """The convolutional network for square grey images.

    >>> network().variables["h2"].shape
    (64, 5, 5)
    """
    (kernel1, stride1), (kernel2, stride2) = CONVOLUTIONS[side]
    side1 = (side - kernel1) // stride1 + 1
    side2 = (side1 - kernel2) // stride2 + 1
    return UNN(
        Variable("x", (1, side, side), Tanh(), bias=False),
        Variable("h1", (channels[0], side1, side1), Tanh(), bias="channel", dropout=dropout),
        Variable("h2", (channels[1], side2, side2), Tanh(), bias="channel", dropout=dropout),
        Variable("y", (classes,), Softmax()),
        Conv2d("x", "h1", kernel_size=kernel1, stride=stride1),
        Conv2d("h1", "h2", kernel_size=kernel2, stride=stride2),
        Linear("h2", "y"),
    )


def equilibrium(until: float) -> Tolerance:
    """Sweeps until nothing changes by more than this; what has not settled after many of them stays as it is."""
    return Tolerance(until, acceleration="anderson", otherwise="ignore")


def read(
    net: UNN, images: Tensor, sweeps: int | Tolerance, init: str = "zeros", gradient: Gradient | None = None
) -> Solution:
    """The classes of images, after a number of sweeps or at equilibrium."""
    return net(observe={"x": images}, want="y", order=READ, init={"y": init}, gradient=gradient, **length(sweeps))


def draw(net: UNN, classes: Tensor, sweeps: int | Tolerance, gradient: Gradient | None = None) -> Solution:
    """A prototype of each class."""
    return net(observe={"y": classes}, want="x", order=DRAW, gradient=gradient, **length(sweeps))


def length(sweeps: int | Tolerance) -> dict[str, Any]:
    """How long a solve goes on, as a network's call takes it."""
    return {"until": sweeps} if isinstance(sweeps, Tolerance) else {"iterations": sweeps}


def drawing_loss(drawing: Solution, images: Tensor, labels: Tensor) -> Tensor:
    """The binary cross-entropy between each image's signs and its class's drawing, a mean over images and pixels.

    `drawing` holds all classes, in order. With t the drawing's pre-activation and s an image's sign, the loss of a
    pixel is `log(2 cosh t) - t s`, linear in s: so the images of a class may be averaged first.
    """
    t = drawing.preactivation["x"]
    signs = torch.where(images > 0, 1.0, -1.0).to(t.dtype)
    chosen = torch.nn.functional.one_hot(labels, len(t)).to(t.dtype)
    sums = (chosen.T @ signs.flatten(1)).view_as(t)
    fitting = chosen.sum(0) @ drawing.regularizer("x").conjugate(t) - (t * sums).sum()
    return fitting / signs.numel()
