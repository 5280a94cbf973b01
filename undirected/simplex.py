"""Regularizers of probability vectors: Softmax, and its two exact sparse relatives."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from undirected.regularizers import Regularizer, concrete, positive, t_log_t, total, within

if TYPE_CHECKING:
    from torch import Tensor


class Simplex(Regularizer):
    """A function of probability vectors along one axis of the variable, summed over the other axes.

    `axis` counts the variable's own axes, the batch not among them; negative from the end. Write `psi`, `psi_star`
    and `link` for `scale = 1`; they get the tensor axis `dim` of the vectors.
    """

    bounded = True
    #: Psi(r p) = r^(1 + degree) Psi(p) + a function of r alone: how vectors of total mass r < 1 are minimised.
    degree: float = 0.0

    def __init__(self, axis: int = -1, scale: float = 1.0) -> None:
        self.axis = axis
        self.scale = positive(scale, self)

    def check_shape(self, rank: int) -> None:
        if not -rank <= self.axis < rank:
            raise ValueError(f"{self} has probabilities along axis {self.axis}, but there are {rank} axes.")

    def check_known(self, known: Tensor, value: Tensor) -> None:
        if concrete(value):
            slack = torch.finfo(value.dtype).eps ** 0.5
            mass = torch.where(known, value, 0).sum(self._dim())
            lowest, highest = float(torch.where(known, value, 0).min()), float(mass.max())
            if lowest < -slack or highest > 1 + slack:
                raise ValueError(
                    f"known entries of {self} are probabilities, but one is {lowest:.4g}, or they sum to {highest:.4g}."
                )

    @abstractmethod
    def psi(self, h: Tensor, dim: int) -> Tensor:
        """Psi of each vector; `dim` is summed away."""

    @abstractmethod
    def psi_star(self, t: Tensor, dim: int) -> Tensor:
        """The conjugate of each vector."""

    @abstractmethod
    def link(self, t: Tensor, dim: int) -> Tensor:
        """The gradient of `psi_star`: a probability vector."""

    @property
    def psi_scale(self) -> float:
        """What multiplies Psi."""
        return self.scale

    def value(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        dim = self._dim()
        slack = torch.finfo(h.dtype).eps ** 0.5
        inside = (h >= -slack).all(dim) & ((h.sum(dim) - 1).abs() <= slack)
        return self.psi_scale * total(within(inside, self.psi(h, dim)), _rows(mask, h, dim))

    def conjugate(self, t: Tensor, mask: Tensor | None = None) -> Tensor:
        dim = self._dim()
        psi_star = self.psi_star(_fill(self._at_unit_scale(t), mask), dim)
        return self.psi_scale * total(psi_star, _rows(mask, t, dim))

    def prepared(self) -> Callable[[Tensor], Tensor]:
        return partial(self.link, dim=self._dim()) if self.psi_scale == 1.0 else self.activation

    def activation(self, t: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.link(_fill(self._at_unit_scale(t), mask), self._dim())
        return h if mask is None else torch.where(mask, h, 0)

    def complete(self, t: Tensor, known: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """The known entries keep their values, the others share what is left of the mass."""
        dim = self._dim()
        free = ~known if mask is None else ~known & mask
        left = (1 - torch.where(known, value, 0).sum(dim, keepdim=True)).clamp_min(torch.finfo(t.dtype).eps)
        t = self._at_unit_scale(t) / left**self.degree
        shared = left * self.link(_fill(t, free), dim)
        return torch.where(known, value, torch.where(free, shared, 0))

    def label_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(axis for axis in range(rank) if axis != self.axis % rank)

    def encode(self, labels: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Class numbers as one-hot vectors along the axis."""
        axis = self.axis % len(shape)
        if concrete(labels) and labels.numel():
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high >= shape[axis]:
                raise ValueError(f"labels must be from 0 to {shape[axis] - 1}, but they are from {low} to {high}.")
        hot = labels.unsqueeze(-1) == torch.arange(shape[axis], device=labels.device)
        return hot.movedim(-1, axis + 1).to(torch.get_default_dtype())

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(math.prod(shape) / shape[self.axis])

    def _dim(self) -> int:
        return self.axis if self.axis < 0 else self.axis + 1

    def _at_unit_scale(self, t: Tensor) -> Tensor:
        return t if self.psi_scale == 1.0 else t / self.psi_scale


def _fill(t: Tensor, mask: Tensor | None) -> Tensor:
    """Pre-activations that no vector will choose. Finite, so that vectors without any entry stay free of NaN."""
    return t if mask is None else torch.where(mask, t, torch.finfo(t.dtype).min)


def _rows(mask: Tensor | None, like: Tensor, dim: int) -> Tensor | None:
    """Which vectors exist: those with at least one entry."""
    return None if mask is None else mask.expand_as(like).any(dim)


class Softmax(Simplex):
    """`Psi(h) = temperature * sum h log h` on the simplex; its activation is `softmax(t / temperature)`.

    >>> Softmax().activation(torch.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    def __init__(self, axis: int = -1, temperature: float = 1.0, scale: float = 1.0) -> None:
        super().__init__(axis, scale)
        self.temperature = positive(temperature, self)

    @property
    def psi_scale(self) -> float:
        return self.scale * self.temperature

    def psi(self, h: Tensor, dim: int) -> Tensor:
        return t_log_t(h).sum(dim)

    def psi_star(self, t: Tensor, dim: int) -> Tensor:
        return t.logsumexp(dim)

    def link(self, t: Tensor, dim: int) -> Tensor:
        return t.softmax(dim)


class CausalSoftmax(Simplex):
    """`Psi(h) = scale * sum h log h` on the simplex, with `h_ij = 0` for j > i: rows give nothing to what comes later.

    The last two axes of the variable are the rows and their vectors.

    >>> CausalSoftmax().activation(torch.zeros(1, 2, 2))
    tensor([[[1.0000, 0.0000],
             [0.5000, 0.5000]]])
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(-1, scale)

    def check_shape(self, rank: int) -> None:
        if rank < 2:
            raise ValueError(f"{self} needs rows and their vectors, two axes, but there are {rank}.")

    def psi(self, h: Tensor, dim: int) -> Tensor:
        inside = (h.abs() * _after(h) <= torch.finfo(h.dtype).eps ** 0.5).all(dim)
        return within(inside, t_log_t(h).sum(dim))

    def psi_star(self, t: Tensor, dim: int) -> Tensor:
        return t.masked_fill(_after(t), torch.finfo(t.dtype).min).logsumexp(dim)

    def link(self, t: Tensor, dim: int) -> Tensor:
        return t.masked_fill(_after(t), torch.finfo(t.dtype).min).softmax(dim)


def _after(t: Tensor) -> Tensor:
    return torch.ones(t.shape[-2:], dtype=torch.bool, device=t.device).triu(1)


class Sparsemax(Simplex):
    """`Psi(h) = 1/2 sum h^2` on the simplex; its activation projects onto it, and is often exactly zero somewhere.

    >>> Sparsemax().activation(torch.tensor([[1.0, 0.8, -1.0]]))
    tensor([[0.6000, 0.4000, 0.0000]])
    """

    degree = 1.0

    def psi(self, h: Tensor, dim: int) -> Tensor:
        return 0.5 * h.square().sum(dim)

    def psi_star(self, t: Tensor, dim: int) -> Tensor:
        return _attained(t, self.link(t, dim), self, dim)

    def link(self, t: Tensor, dim: int) -> Tensor:
        z, position = _from_maximum(t, dim)
        with torch.no_grad():
            top = z.clamp_min(-2).sort(dim, descending=True).values  # entries 1 below the maximum are never chosen
            chosen = (1 + position * top > top.cumsum(dim)).sum(dim, keepdim=True)
            threshold = (top.cumsum(dim).gather(dim, chosen - 1) - 1) / chosen
            support = z > threshold
        # Written again on the known support, so that derivatives of every order are exact.
        threshold = (torch.where(support, z, 0).sum(dim, keepdim=True) - 1) / support.sum(dim, keepdim=True)
        return torch.where(support, z - threshold, 0).to(t.dtype)


class Entmax15(Simplex):
    """Tsallis entropy: `Psi(h) = 4/3 (sum h^1.5 - 1)` on the simplex; half way from softmax to sparsemax.

    >>> Entmax15().activation(torch.tensor([[2.0, 2.0, -1.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    degree = 0.5

    def psi(self, h: Tensor, dim: int) -> Tensor:
        return 4 / 3 * (h.clamp_min(0).pow(1.5).sum(dim) - 1)

    def psi_star(self, t: Tensor, dim: int) -> Tensor:
        return _attained(t, self.link(t, dim), self, dim)

    def link(self, t: Tensor, dim: int) -> Tensor:
        z, position = _from_maximum(t / 2, dim)
        with torch.no_grad():
            top = z.clamp_min(-2).sort(dim, descending=True).values
            mean = top.cumsum(dim) / position
            spread = top.square().cumsum(dim) - position * mean.square()
            thresholds = mean - ((1 - spread) / position).clamp_min(0).sqrt()
            chosen = (thresholds <= top).sum(dim, keepdim=True)
            threshold = thresholds.gather(dim, chosen - 1)
            support = z > threshold
        # Two steps of Newton's method for sum (z - threshold)^2 = 1 on the known support: nothing changes but the
        # last digits, and derivatives up to the third order are exact.
        for _ in range(2):
            gap = torch.where(support, z - threshold, 0)
            threshold = threshold + (gap.square().sum(dim, keepdim=True) - 1) / (2 * gap.sum(dim, keepdim=True))
        return torch.where(support, z - threshold, 0).square().to(t.dtype)


def _from_maximum(t: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """`t` less its maximum, in float32 at least; and 1, 2, 3, ... along `dim`."""
    z = t.float() if t.dtype in (torch.bfloat16, torch.float16) else t
    z = z - z.amax(dim, keepdim=True).detach()
    shape = [1] * t.dim()
    shape[dim] = -1
    return z, torch.arange(1, t.shape[dim] + 1, device=t.device, dtype=z.dtype).view(shape)


def _attained(t: Tensor, h: Tensor, regularizer: Simplex, dim: int) -> Tensor:
    """`<t, h> - psi(h)` at the maximiser h, where t may be -inf at h = 0."""
    return torch.where(h > 0, t * h, 0).sum(dim) - regularizer.psi(h, dim)
