"""Variable: a named tensor of the energy. Shapes with symbols, biases, and observations of some entries."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undirected.errors import DeclarationError, QueryError
from undirected.regularizers import Elementwise, Identity, Regularizer

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

NAME = re.compile(r"[A-Za-z_]\w*")
SYMBOL = re.compile(r"([A-Za-z_]\w*)\s*(?:([+-])\s*(\d+))?")


@dataclass(frozen=True)
class Symbol:
    """An axis whose size is bound when a network is called: `n`, `n+1`, `n-2`."""

    name: str
    offset: int = 0

    @staticmethod
    def parse(text: str, where: str) -> Symbol:
        match = SYMBOL.fullmatch(text.strip())
        if not match:
            raise DeclarationError(f"{where}: {text!r} is no axis. Write a whole number, 'n', 'n+1' or 'n-2'.")
        name, sign, offset = match.groups()
        return Symbol(name, int(f"{sign}{offset}") if sign else 0)

    def __str__(self) -> str:
        return f"{self.name}{self.offset:+d}" if self.offset else self.name

    def __add__(self, more: int) -> Symbol:
        return Symbol(self.name, self.offset + more)


Axis = int | Symbol


class Variable:
    """A tensor `x` with energy `Psi(x) - <b, x>`.

    Args:
        name: an identifier.
        shape: whole numbers and symbols (`"n"`, `"n+1"`); the batch axis comes first and is never declared.
        regularizer: Psi.
        bias: True (one number per entry of the integer axes), `"channel"` (per entry of the first axis), or False.
        dropout: the share of entries that are zero in training, with one mask for a whole solve.

    >>> Variable("h", (32, "n"), bias="channel").axes
    (32, Symbol(name='n', offset=0))
    """

    def __init__(
        self,
        name: str,
        shape: int | str | tuple[int | str, ...],
        regularizer: Regularizer | None = None,
        bias: bool | str = True,
        dropout: float = 0.0,
    ) -> None:
        where = f"Variable({name!r})"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise DeclarationError(f"{where}: a name is made of letters, digits and underscores, as in Python.")
        if isinstance(shape, (int, str)):
            shape = (shape,)
        self.name = name
        self.shape = tuple(shape)
        self.axes: tuple[Axis, ...] = tuple(_axis(size, where) for size in shape)
        self.symbols = tuple(axis for axis in self.axes if isinstance(axis, Symbol))
        self.regularizer = Identity() if regularizer is None else regularizer
        if not isinstance(self.regularizer, Regularizer):
            raise DeclarationError(f"{where}: {regularizer!r} is no regularizer; write for example un.Tanh().")
        try:
            self.regularizer.check_shape(len(self.axes))
        except ValueError as error:
            raise DeclarationError(f"{where} {show(self.axes)}: {error}") from None
        if not (bias is True or bias is False or bias == "channel"):
            raise DeclarationError(f"{where}: bias is True, False or 'channel', not {bias!r}.")
        if bias == "channel" and not (self.axes and isinstance(self.axes[0], int)):
            raise DeclarationError(f"{where}: bias='channel' needs a first axis of fixed size, but shape is {shape}.")
        self.bias = bias
        if not 0 <= dropout < 1:
            raise DeclarationError(f"{where}: dropout is a share from 0 up to (not including) 1, not {dropout}.")
        if dropout and not isinstance(self.regularizer, Elementwise):
            raise DeclarationError(
                f"{where}: dropout keeps the energy falling only where the activation acts on each entry alone "
                f"(Tanh, ReLU, ...), not with {self.regularizer}. Put it on a neighbour."
            )
        self.dropout = dropout

    def bias_shape(self) -> tuple[int, ...] | None:
        """The bias, with axes of size 1 where it is the same for all entries; None without one."""
        if self.bias is False:
            return None
        kept = self.axes[:1] if self.bias == "channel" else self.axes
        sizes = [axis if isinstance(axis, int) else 1 for axis in kept]
        return (*sizes, *[1] * (len(self.axes) - len(kept)))

    def bind(self, shape: tuple[int, ...], sizes: dict[str, int], source: str, labels: bool = False) -> None:
        """Check an event shape against the declaration, and note the sizes of its symbols."""
        if shape == self.axes and not labels:
            return
        axes = self.axes
        if labels:
            try:
                axes = tuple(axes[i] for i in self.regularizer.label_axes(len(axes)))
            except TypeError as error:
                raise QueryError(f"{source}: {self.name}: {error}") from None
        what = f"{'integer labels of ' if labels else ''}{self.name} {show(axes)}"
        if len(shape) != len(axes) or any(
            isinstance(a, int) and a != size for a, size in zip(axes, shape, strict=False)
        ):
            raise QueryError(
                f"{source}: {what} got the shape {show(('batch', *shape))}; it takes {show(('batch', *axes))}."
            )
        for axis, size in zip(axes, shape, strict=True):
            if isinstance(axis, Symbol) and sizes.setdefault(axis.name, size - axis.offset) != size - axis.offset:
                raise QueryError(
                    f"{source}: {what} of shape {show(shape)} makes {axis.name} = {size - axis.offset}, but "
                    f"{axis.name} is {sizes[axis.name]} elsewhere."
                )

    def event_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with its symbols bound."""
        if not self.symbols:
            return self.axes  # type: ignore[return-value]
        return tuple(axis if isinstance(axis, int) else sizes[axis.name] + axis.offset for axis in self.axes)

    def mask(self, lengths: Mapping[str, Int[Tensor, " batch"]], sizes: Mapping[str, int]) -> Tensor | None:
        """Which entries exist, broadcastable to (batch, *shape); None where all do."""
        mask: Tensor | None = None
        for position, axis in enumerate(self.axes):
            if isinstance(axis, int) or axis.name not in lengths:
                continue
            length = lengths[axis.name] + axis.offset
            index = torch.arange(sizes[axis.name] + axis.offset, device=length.device)
            exists = (index < length[:, None]).view(
                len(length), *[1] * position, len(index), *[1] * (len(self.axes) - position - 1)
            )
            mask = exists if mask is None else mask & exists
        return mask

    def __repr__(self) -> str:
        words = [repr(self.name), show(self.axes), repr(self.regularizer)]
        words += [f"bias={self.bias!r}"] if self.bias is not True else []
        words += [f"dropout={self.dropout}"] if self.dropout else []
        return f"Variable({', '.join(words)})"


class Partial:
    """An observation of some entries: `value` where `known`, anything (also NaN) elsewhere.

    >>> import torch
    >>> Partial(torch.zeros(8, 1, 28, 28), known=torch.ones(28, 28, dtype=torch.bool)).known.shape
    torch.Size([8, 1, 28, 28])
    """

    def __init__(self, value: Float[Tensor, "batch *event"], known: Bool[Tensor, ...]) -> None:
        for what, given in (("value", value), ("known", known)):
            if not isinstance(given, torch.Tensor):
                raise QueryError(f"Partial: {what} is a tensor, not a {type(given).__name__}.")
        if known.dtype != torch.bool:
            raise QueryError(f"Partial: known is a boolean mask, not {known.dtype}. Write known=mask.bool().")
        try:
            self.known = known.expand_as(value)
        except RuntimeError:
            raise QueryError(
                f"Partial: known {show(known.shape)} does not broadcast to value {show(value.shape)}."
            ) from None
        self.value = value


def show(shape: tuple[Axis | str, ...] | torch.Size) -> str:
    """`(32, n+1)`."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _axis(size: int | str, where: str) -> Axis:
    if isinstance(size, str):
        return Symbol.parse(size, where)
    try:
        number = 0 if isinstance(size, bool) else operator.index(size)
    except TypeError:
        number = 0
    if number < 1:
        raise DeclarationError(f"{where}: {size!r} is no axis. Write a positive whole number, or a symbol such as 'n'.")
    return number
