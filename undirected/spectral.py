"""Spectral: a factor whose norm stays below a bound, whatever training does to its weights.

The norm of a factor of two variables is the largest `score(a, b)` of unit vectors: the spectral norm of the matrix, or
of the convolution as a matrix. It is followed by iterating a few vectors back and forth between the two variables,
each time that the weights have changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from undirected.errors import DeclarationError
from undirected.factors import Directed, Einsum, Energy, Factor, Tied
from undirected.regularizers import concrete, total
from undirected.variable import Variable

if TYPE_CHECKING:
    from torch import Tensor

VECTORS = 6  # iterated at once: the error shrinks with the ratio of the seventh singular value to the first
STEPS = 200  # of the iteration, at most
SETTLED = 1e-5  # it ends when the norm grows by no more than this part
MARGIN = 1e-3  # how much the norm may be underestimated
SIZES = (16, 32)  # of symbolic axes: the norm is that at the second


def spectral(factor: Factor, below: float) -> Factor:
    """The same factor, its score multiplied by `min(1, below / norm)`.

    With Identity or ReLU at both ends the energy has a lower bound while the norm is below 1; see `net.bounded`. A
    factor of three or more variables must be an `un.Einsum`; its norm is then taken to be the product of its weights'
    Frobenius norms, which is at least as large.

    >>> import undirected as un
    >>> net = un.UNN(un.Variable("a", (5,)), un.Variable("b", (4,)), un.spectral(un.Linear("a", "b"), below=0.9))
    >>> _ = torch.nn.init.normal_(net.factors["a-b"].factor.weight, std=10)
    >>> net.bounded().verdict
    'while'
    """
    return Spectral(factor, below)


class Spectral(Factor):
    """Made by `un.spectral(factor, below=...)`; the weights are those of `.factor`."""

    def __init__(self, factor: Factor, below: float) -> None:
        if isinstance(factor, (Tied, Directed, Energy, Spectral)):
            what = "Bound the factor that it is tied to." if isinstance(factor, Tied) else "It has no norm to bound."
            raise DeclarationError(f"spectral({factor}): takes factors with weights of their own. {what}")
        if not (below > 0 and math.isfinite(below)):
            raise DeclarationError(f"spectral({factor}): below must be positive and finite, not {below}.")
        super().__init__(*factor.variables, name=factor.name)
        self.factor, self.below = factor, below
        self.register_buffer("start", torch.empty(0))  # vectors of the first variable, a row each
        self._shapes: tuple[tuple[int, ...], ...] = ()
        self._seen: tuple[tuple[int, int], ...] = ()

    def build(self, variables: Mapping[str, Variable]) -> None:
        self.factor.build(variables)
        self.variables, self.name = self.factor.variables, self.factor.name
        if len(self.variables) == 1:
            raise DeclarationError(f"{self}: a factor of one variable has no norm to bound.")
        if len(self.variables) > 2:
            _check_indices(self)
            return
        norms = []
        symbols = {symbol.name for name in self.variables for symbol in variables[name].symbols}
        for size in SIZES if symbols else SIZES[1:]:
            sizes = dict.fromkeys(symbols, size)
            self._shapes = tuple(variables[name].event_shape(sizes) for name in self.variables)
            self._start(next(self.parameters(), torch.empty(0)))
            norms.append(float(self.norm().detach()))
        if norms[-1] > 1.25 * norms[0]:
            raise DeclarationError(
                f"{self}: sums over {', '.join(sorted(symbols))}, so its norm grows with the size: {norms[0]:.3g} at "
                f"{SIZES[0]}, {norms[-1]:.3g} at {SIZES[1]}. No number bounds it."
            )

    def norm(self) -> Tensor:
        """The norm of the factor as its weights are, before it is bounded; differentiable."""
        if len(self.variables) > 2:
            assert isinstance(self.factor, Einsum)
            norms = [getattr(self.factor, name).norm() for name in self.factor._weights]
            return torch.stack(norms).prod() if norms else torch.ones(())
        self._follow()
        a = self.start[:1].unflatten(1, self._shapes[0])
        with torch.no_grad():
            b = self._message(1, a)
            b = b / b.norm().clamp_min(torch.finfo(b.dtype).tiny)
        return total(self._message(1, a) * b)[0]

    def scale(self) -> Tensor:
        """What the score is multiplied with."""
        norm = self.norm() * (1 + MARGIN)
        return (self.below / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp_max(1.0)

    def _start(self, like: Tensor) -> None:
        generator = torch.Generator().manual_seed(0)
        size = math.prod(self._shapes[0])
        rows = torch.randn(min(VECTORS, size), size, generator=generator, dtype=torch.float64)
        self.start = rows.to(like.device, like.dtype)
        self._seen = ()

    @torch.no_grad()
    def _follow(self) -> None:
        """Turn the vectors towards those that the factor stretches most, if the weights have changed."""
        weights = list(self.factor.parameters())
        if torch.compiler.is_compiling() or not all(map(concrete, weights)):
            return
        seen = tuple((weight.data_ptr(), weight._version) for weight in weights)
        if seen == self._seen:
            return
        x = self.start
        if weights and (x.dtype != weights[0].dtype or x.device != weights[0].device):
            x = x.to(weights[0])
        x, norm = torch.linalg.qr(x.T)[0].T, 0.0
        for _ in range(STEPS):
            y = self._message(1, x.unflatten(1, self._shapes[0]))
            stretch, turn = torch.linalg.eigh(y.flatten(1) @ y.flatten(1).T)
            before, norm = norm, float(stretch[-1].clamp_min(0).sqrt())
            if norm <= before * (1 + SETTLED):
                break
            x = torch.linalg.qr(self._message(0, y).flatten(1).T)[0].T
        # Within their span, the first is the one that is stretched most.
        self.start, self._seen = turn.flip(1).T @ x, seen

    def _message(self, target: int, value: Tensor) -> Tensor:
        stand_in = value.new_zeros(len(value), *self._shapes[target])
        return self.factor.message(target, *((value, stand_in) if target else (stand_in, value)))

    @property
    def shift(self) -> dict[str, Tensor] | None:
        return self.factor.shift

    def shifts(self, index: int) -> bool:
        return self.factor.shifts(index)

    def shifted(self, values: list[Tensor], masks: list[Tensor | None]) -> list[Tensor]:
        return self.factor.shifted(values, masks)

    def check_shift(self, variables: Mapping[str, Variable]) -> None:
        self.factor.check_shift(variables)

    def sender(self, target: int, bias: Tensor | None) -> Callable[..., Tensor]:
        scale, send = self.scale(), self.factor.sender(target, None)
        if bias is None:
            return lambda *values: scale * send(*values)
        return lambda *values: scale * send(*values) + bias

    def reads_stand_in(self, target: int) -> bool:
        return self.factor.reads_stand_in(target)

    def score(self, *values: Tensor) -> Tensor:
        return self.scale() * self.factor.score(*values)

    def message(self, target: int, *values: Tensor) -> Tensor:
        return self.scale() * self.factor.message(target, *values)

    def __repr__(self) -> str:
        return f"spectral({self.factor}, below={self.below})"


def _check_indices(bounded: Spectral) -> None:
    """`|score| <= product of all Frobenius norms` holds where every index stands in two places at least."""
    factor = bounded.factor
    if not isinstance(factor, Einsum):
        raise DeclarationError(f"{bounded}: of factors of three or more variables, only an un.Einsum can be bounded.")
    counts = Counter(index for indices in factor._terms.values() for index in indices)
    alone = [index for index, count in counts.items() if count == 1]
    if alone:
        raise DeclarationError(
            f"{bounded}: index {alone[0]} stands in one place only, so that the norm grows with its size. Give it a "
            f"weight, or leave it out."
        )
