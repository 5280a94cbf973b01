"""Regularizers: a variable's strictly convex Psi, its conjugate Psi*, and the activation grad Psi* that follows.

`value` and `conjugate` sum over all axes but the first (the batch); `activation` keeps the shape. All three take
an optional boolean `mask` that broadcasts to the variable: entries where it is False do not exist (they count
nothing in the sums and are zero in the activation).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from undirected.declaration import describe

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


class Regularizer(ABC):
    """`Psi`, one per variable. Write `value`, `conjugate` and `activation` to make one of your own.

    An activation that acts on each entry alone is easier written as an `Elementwise`.
    """

    #: Is the domain of Psi bounded? Then an energy with this variable free cannot fall for ever along it.
    bounded: bool = False
    #: A c with `Psi(h) >= c/2 |h|^2 + constant`; 0 where none is known. Where the domain is not bounded, it
    #: decides whether an energy has a lower bound.
    curvature: float = 0.0

    @abstractmethod
    def value(self, h: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None) -> Float[Tensor, " batch"]:
        """`Psi(h)` per example; infinite outside the domain."""

    @abstractmethod
    def conjugate(
        self, t: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Float[Tensor, " batch"]:
        """`Psi*(t) = max_h <t, h> - Psi(h)` per example."""

    @abstractmethod
    def activation(
        self, t: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Float[Tensor, "batch *event"]:
        """`grad Psi*(t)`, the h that attains the maximum."""

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """`activation` without a mask, with what it decides already decided: for the inside of loops."""
        return self.activation

    def check_shape(self, rank: int) -> None:  # noqa: B027 (most have nothing to say)
        """Raise a ValueError if a variable with this many axes cannot have this regularizer."""

    def check_known(  # noqa: B027
        self, known: Bool[Tensor, "batch *event"], value: Float[Tensor, "batch *event"]
    ) -> None:
        """Raise a ValueError if nothing in the domain has these values where `known`."""

    def complete(
        self,
        t: Float[Tensor, "batch *event"],
        known: Bool[Tensor, "batch *event"],
        value: Float[Tensor, "batch *event"],
        mask: Bool[Tensor, ...] | None = None,
    ) -> Float[Tensor, "batch *event"]:
        """The h that attains the maximum among those that equal `value` where `known`."""
        raise TypeError(f"{self} cannot be observed in part: it has no `complete`. Observe all of it, or none.")

    def attained(
        self,
        h: Float[Tensor, "batch *event"],
        t: Float[Tensor, "batch *event"],
        mask: Bool[Tensor, ...] | None = None,
        known: Bool[Tensor, "batch *event"] | None = None,
    ) -> Float[Tensor, " batch"]:
        """`Psi(h)` for an h that came from `activation(t)`, or from `complete(t, known, ...)`.

        The same as `value(h)`; a regularizer whose Psi is hard to evaluate uses t: `Psi(h) = <t, h> - Psi*(t)`.
        """
        return self.value(h, mask)

    def label_axes(self, rank: int) -> tuple[int, ...]:
        """Which of a variable's `rank` axes its integer labels have."""
        raise TypeError(f"{self} has no integer labels; give floating point values.")

    def known_entries(
        self, labels: Int[Tensor, "batch ..."], known: Bool[Tensor, "batch ..."], shape: tuple[int, ...]
    ) -> Bool[Tensor, "batch *event"]:
        """Which entries are determined when the labels are known where `known` says so: all that a label decides."""
        for axis in range(len(shape)):
            if axis not in self.label_axes(len(shape)):
                known = known.unsqueeze(axis + 1)
        return known.expand(len(labels), *shape)

    def encode(self, labels: Int[Tensor, "batch ..."], shape: tuple[int, ...]) -> Float[Tensor, "batch *event"]:
        """Integer labels, of the axes `label_axes`, as a point of the domain of event shape `shape`."""
        raise TypeError(f"{self} has no integer labels; give floating point values.")

    def radius(self, shape: tuple[int, ...]) -> float:
        """The largest Euclidean norm in the domain for a variable of this event shape."""
        return math.inf

    def __repr__(self) -> str:
        return describe(self)


def concrete(tensor: Tensor) -> bool:
    """May we look at its numbers? Not while it is traced or mapped over."""
    return not torch.compiler.is_compiling() and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def positive(scale: float, owner: object) -> float:
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"{type(owner).__name__}: scale must be positive and finite, got {scale}.")
    return float(scale)


def total(x: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None) -> Float[Tensor, " batch"]:
    """Sum over all axes but the first; entries outside the mask count nothing."""
    if mask is not None:
        x = torch.where(mask, x, 0)
    return x.flatten(1).sum(1) if x.dim() > 1 else x


def t_log_t(t: Tensor) -> Tensor:
    """`t log t`, zero at 0 with a finite (large) derivative there."""
    return t * t.clamp_min(torch.finfo(t.dtype).tiny).log()


def within(inside: Tensor, value: Tensor) -> Tensor:
    return torch.where(inside, value, math.inf)


class Elementwise(Regularizer):
    """A sum of one function over all entries: write `psi`, `psi_star` and `link` for `scale = 1`.

    `Psi(h) = scale * sum psi(h)`, so `Psi*(t) = scale * sum psi*(t / scale)` and the activation is `link(t / scale)`.
    """

    #: The curvature at `scale = 1`.
    unit_curvature: float = 0.0

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = positive(scale, self)
        self.curvature = self.scale * self.unit_curvature

    @abstractmethod
    def psi(self, h: Tensor) -> Tensor:
        """The function of one entry, infinite outside its domain."""

    @abstractmethod
    def psi_star(self, t: Tensor) -> Tensor:
        """Its conjugate."""

    @abstractmethod
    def link(self, t: Tensor) -> Tensor:
        """The derivative of `psi_star`."""

    def value(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.scale * total(self.psi(h), mask)

    def conjugate(self, t: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.scale * total(self.psi_star(self._at_unit_scale(t)), mask)

    def activation(self, t: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.link(self._at_unit_scale(t))
        return h if mask is None else torch.where(mask, h, 0)

    def prepared(self) -> Callable[[Tensor], Tensor]:
        return self.link if self.scale == 1.0 else self.activation

    def complete(self, t: Tensor, known: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.where(known, value, self.activation(t, mask))

    def _at_unit_scale(self, t: Tensor) -> Tensor:
        return t if self.scale == 1.0 else t / self.scale


class Identity(Elementwise):
    """`Psi(h) = 1/2 sum h^2`; its activation is the identity.

    >>> Identity().activation(torch.tensor([[1.0, -2.0]]))
    tensor([[ 1., -2.]])
    """

    unit_curvature = 1.0

    def psi(self, h: Tensor) -> Tensor:
        return 0.5 * h.square()

    def psi_star(self, t: Tensor) -> Tensor:
        return 0.5 * t.square()

    def link(self, t: Tensor) -> Tensor:
        return t


class ReLU(Elementwise):
    """`Psi(h) = 1/2 sum h^2` for `h >= 0`; its activation is `max(t, 0)`.

    >>> ReLU().activation(torch.tensor([[1.0, -2.0]]))
    tensor([[1., 0.]])
    """

    unit_curvature = 1.0

    def psi(self, h: Tensor) -> Tensor:
        return within(h >= 0, 0.5 * h.square())

    def psi_star(self, t: Tensor) -> Tensor:
        return 0.5 * t.relu().square()

    def link(self, t: Tensor) -> Tensor:
        return t.relu()


class LeakyReLU(Elementwise):
    """`Psi(h) = 1/2 sum h^2` for `h >= 0`, `h^2 / (2 slope)` below; its activation is `max(t, slope t)`.

    >>> LeakyReLU(0.5).activation(torch.tensor([[1.0, -2.0]]))
    tensor([[ 1., -1.]])
    """

    def __init__(self, slope: float = 0.01, scale: float = 1.0) -> None:
        super().__init__(scale)
        if not 0 < slope <= 1:
            raise ValueError(f"LeakyReLU: slope must be in (0, 1], got {slope}. At 0 it is un.ReLU().")
        self.slope = slope

    unit_curvature = 1.0

    def psi(self, h: Tensor) -> Tensor:
        half = 0.5 * h.square()
        return torch.where(h >= 0, half, half / self.slope)

    def psi_star(self, t: Tensor) -> Tensor:
        return 0.5 * t * F.leaky_relu(t, self.slope)

    def link(self, t: Tensor) -> Tensor:
        return F.leaky_relu(t, self.slope)


class SoftThreshold(Elementwise):
    """`Psi(h) = sum 1/2 h^2 + threshold |h|` (L1); its activation shrinks towards zero.

    >>> SoftThreshold(0.5).activation(torch.tensor([[1.0, 0.2]]))
    tensor([[0.5000, 0.0000]])
    """

    def __init__(self, threshold: float = 0.5, scale: float = 1.0) -> None:
        super().__init__(scale)
        if not threshold >= 0:
            raise ValueError(f"SoftThreshold: threshold must not be negative, got {threshold}.")
        self.threshold = threshold

    unit_curvature = 1.0

    def psi(self, h: Tensor) -> Tensor:
        return 0.5 * h.square() + self.threshold * h.abs()

    def psi_star(self, t: Tensor) -> Tensor:
        return 0.5 * F.softshrink(t, self.threshold).square()

    def link(self, t: Tensor) -> Tensor:
        return F.softshrink(t, self.threshold)


class Sigmoid(Elementwise):
    """Bit entropy on [0, 1]: `Psi(h) = sum h log h + (1 - h) log(1 - h)`; its activation is the logistic function.

    >>> Sigmoid().activation(torch.tensor([[0.0]]))
    tensor([[0.5000]])
    """

    bounded = True

    def psi(self, h: Tensor) -> Tensor:
        return within((h >= 0) & (h <= 1), t_log_t(h) + t_log_t(1 - h))

    def psi_star(self, t: Tensor) -> Tensor:
        return -F.logsigmoid(-t)  # softplus, without the cut-off at 20 that costs float64 its digits

    def link(self, t: Tensor) -> Tensor:
        return t.sigmoid()

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(math.prod(shape))


class Tanh(Elementwise):
    """Spin entropy on [-1, 1]: `Psi(h) = sum phi((1 + h)/2) + phi((1 - h)/2)` with `phi(t) = t log t`; tanh.

    >>> Tanh().conjugate(torch.zeros(1, 1))  # log(2 cosh 0)
    tensor([0.6931])
    """

    bounded = True

    def psi(self, h: Tensor) -> Tensor:
        return within(h.abs() <= 1, t_log_t((1 + h) / 2) + t_log_t((1 - h) / 2))

    def psi_star(self, t: Tensor) -> Tensor:
        return t - F.logsigmoid(2 * t)

    def link(self, t: Tensor) -> Tensor:
        return t.tanh()

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(math.prod(shape))


class HardTanh(Elementwise):
    """`Psi(h) = 1/2 sum h^2` on the box `low <= h <= high`; its activation clips.

    >>> HardTanh(0.0, 1.0).activation(torch.tensor([[-3.0, 0.5]]))
    tensor([[0.0000, 0.5000]])
    """

    bounded = True

    def __init__(self, low: float = -1.0, high: float = 1.0, scale: float = 1.0) -> None:
        super().__init__(scale)
        if not low < high:
            raise ValueError(f"HardTanh: low must be below high, got {low} and {high}.")
        self.low, self.high = low, high

    def psi(self, h: Tensor) -> Tensor:
        return within((h >= self.low) & (h <= self.high), 0.5 * h.square())

    def psi_star(self, t: Tensor) -> Tensor:
        h = self.link(t)
        return h * (t - 0.5 * h)

    def link(self, t: Tensor) -> Tensor:
        return t.clamp(self.low, self.high)

    def radius(self, shape: tuple[int, ...]) -> float:
        return max(abs(self.low), abs(self.high)) * math.sqrt(math.prod(shape))
