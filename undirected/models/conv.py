"""Conv: convolutions from an image to its class, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from undirected.errors import DeclarationError
from undirected.factors import Conv2d, Linear
from undirected.network import UNN
from undirected.regularizers import Regularizer, Tanh
from undirected.simplex import Softmax
from undirected.variable import Variable


def conv(
    image: tuple[int, int, int],
    channels: Sequence[int],
    classes: int,
    kernel_size: int | Sequence[int] = 3,
    stride: int | Sequence[int] = 2,
    activation: Regularizer | None = None,
) -> UNN:
    """A convolutional network that classifies images, draws classes, and fills in what is missing of an image.

    `E = Psi(x) + sum_l [Psi(h_l) - <b_l, h_l> - <h_l, conv_l(h_(l-1))>] + Psi(y) - <b_y, y> - <y, W h_L>`, `h_0 = x`.

    One forward sweep from zeros is `nn.Sequential(nn.Conv2d, nn.Tanh, ..., nn.Flatten, nn.Linear, nn.Softmax)`.

    Args:
        image: channels, height and width of x.
        channels: of the hidden layers h1, h2, ...
        classes: how many y has.
        kernel_size, stride: of every layer, or one for each.
        activation: the regularizer of x and of the hidden layers; Tanh if not given.

    >>> import torch
    >>> net = conv((1, 28, 28), channels=(32, 64), classes=10, kernel_size=(6, 4))
    >>> net.variables["h2"].shape
    (64, 5, 5)
    >>> net(observe={"x": torch.zeros(2, 1, 28, 28)}, want="y", iterations=3)["y"].shape
    torch.Size([2, 10])
    """
    kernels, strides = _each(kernel_size, channels, "kernel_size"), _each(stride, channels, "stride")
    shapes = [image]
    for count, kernel, step in zip(channels, kernels, strides, strict=True):
        _, *sides = shapes[-1]
        if min(sides) < kernel:
            raise DeclarationError(f"conv: a kernel of {kernel} does not fit into h{len(shapes) - 1} {shapes[-1]}.")
        height, width = ((side - kernel) // step + 1 for side in sides)
        shapes.append((count, height, width))
    activation = Tanh() if activation is None else activation
    layers = [Variable(f"h{i}", shape, activation, bias="channel") for i, shape in enumerate(shapes[1:], 1)]
    layers = [Variable("x", image, activation, bias=False), *layers]
    convolutions = [
        Conv2d(a.name, b.name, kernel, step)
        for (a, b), kernel, step in zip(pairwise(layers), kernels, strides, strict=True)
    ]
    return UNN(*layers, Variable("y", (classes,), Softmax()), *convolutions, Linear(layers[-1].name, "y"))


def _each(size: int | Sequence[int], channels: Sequence[int], what: str) -> list[int]:
    sizes = [size] * len(channels) if isinstance(size, int) else list(size)
    if len(sizes) != len(channels):
        raise DeclarationError(f"conv: {len(channels)} layers, but {what} has {len(sizes)} entries.")
    return sizes
