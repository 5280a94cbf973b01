"""Linear: a matrix between two variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import nn

from undirected.errors import DeclarationError
from undirected.factors.factor import Factor
from undirected.regularizers import total
from undirected.variable import Symbol, Variable, show

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Linear(Factor):
    """`score(a, b) = <b, W a>` over all integer axes of both; the weight is that of `nn.Linear(a, b)`.

    Runs along the symbolic axes that both have, and sums over a symbolic axis that only one of them has.

    >>> import undirected as un
    >>> net = un.UNN(un.Variable("x", ("n", 3)), un.Variable("h", ("n", 4, 2)), un.Linear("x", "h"))
    >>> net.factors["x-h"].weight.shape
    torch.Size([8, 3])
    """

    def __init__(self, a: str, b: str, shift: Mapping[str, Tensor] | None = None, name: str | None = None) -> None:
        super().__init__(a, b, shift=shift, name=name)
        self.a, self.b = a, b
        self.weight: nn.Parameter
        self.register_parameter("weight", None)
        self._ends: tuple[_End, _End] | None = None
        self._is_simple = False

    def build(self, variables: Mapping[str, Variable]) -> None:
        a, b = (variables[name] for name in self.variables)
        for variable in (a, b):
            if len(set(variable.symbols)) < len(variable.symbols):
                raise DeclarationError(
                    f"{self}: {variable.name} {show(variable.axes)} has an axis twice. Write it as an un.Einsum, "
                    f"which says which of them is meant."
                )
        shared = tuple(symbol for symbol in a.symbols if symbol in b.symbols)
        self._ends = (_End(a, shared), _End(b, shared))
        self._is_simple = all(end.is_plain and len(end.sizes) == 1 for end in self._ends)
        if self._parameters["weight"] is None:
            self.weight = nn.Parameter(_uniform(self._ends[1].features, self._ends[0].features))
        elif self.weight.shape != (self._ends[1].features, self._ends[0].features):
            raise DeclarationError(
                f"{self}: has weights {show(self.weight.shape)} from another network, but {a.name} is {show(a.axes)} "
                f"and {b.name} is {show(b.axes)}."
            )

    def sender(self, target: int, bias: Tensor | None) -> Callable[..., Tensor]:
        if not self._is_simple:
            return super().sender(target, bias)
        weight = self.weight
        if target == 0:
            return (lambda a, b: b @ weight) if bias is None else (lambda a, b: b @ weight + bias)
        flat = None if bias is None else bias.flatten()
        return lambda a, b: F.linear(a, weight, flat)

    def reads_stand_in(self, target: int) -> bool:
        assert self._ends is not None
        return bool(self._ends[target].own)

    def fuses_bias(self, target: int) -> bool:
        assert self._ends is not None
        return target == 1 and self._ends[1].is_plain

    @property
    def is_row_wise(self) -> bool:
        assert self._ends is not None
        return all(end.is_plain and end.shared for end in self._ends)

    def message_to_rows(self, target: int, bias: Tensor | None, rows: Tensor, *values: Tensor) -> Tensor:
        assert self._ends is not None
        sender, sink = values[1 - target], self._ends[target]
        sent = self._sent(target, sender, rows)
        every = sent.new_zeros((sender.shape[: 1 + sink.shared].numel(), sink.features))
        every = every.index_copy_(0, rows, sent if bias is None else sent + bias.flatten())
        return every.reshape(*sender.shape[: 1 + sink.shared], *sink.sizes)

    def message_from_rows(self, target: int, base: Tensor, rows: Tensor, sender: Tensor) -> Tensor:
        assert self._ends is not None
        every = base.reshape(-1, self._ends[target].features)
        return every.index_add(0, rows, self._sent(target, sender, rows)).reshape(base.shape)

    def _sent(self, target: int, sender: Tensor, rows: Tensor) -> Tensor:
        """What some rows of the sender send."""
        assert self._ends is not None
        picked = sender.reshape(-1, self._ends[1 - target].features).index_select(0, rows)
        return F.linear(picked, self.weight) if target else picked @ self.weight

    def score(self, a: Tensor, b: Tensor) -> Tensor:
        return total(self.message(1, a, b) * b)

    def message(self, target: int, *values: Tensor) -> Tensor:
        if self._is_simple:
            return F.linear(values[0], self.weight) if target else values[1] @ self.weight
        assert self._ends is not None
        source, sink = self._ends[1 - target], self._ends[target]
        rows = source.flatten(values[1 - target])
        # One way F.linear, the other a product: torch.compile refuses graphs that capture both W and its transpose.
        rows = F.linear(rows, self.weight) if target else rows @ self.weight
        return sink.unflatten(rows, values[target])

    def biased_message(self, target: int, bias: Tensor, *values: Tensor) -> Tensor:
        if self._is_simple and target:
            return F.linear(values[0], self.weight, bias if bias.dim() == 1 else bias.flatten())
        assert self._ends is not None
        if not self.fuses_bias(target) or bias.numel() != self.weight.shape[0]:
            return self.message(target, *values) + bias
        rows = F.linear(self._ends[0].flatten(values[0]), self.weight, bias.flatten())
        return self._ends[1].unflatten(rows, values[1])


class _End:
    """How one variable of a Linear is laid out: (batch, *shared symbols, features), and back."""

    def __init__(self, variable: Variable, shared: tuple[Symbol, ...]) -> None:
        axes = variable.axes
        sizes = [axis for axis in axes if isinstance(axis, int)]
        self.features = math.prod(sizes)
        self.sizes = tuple(sizes)
        # Axes of its own are summed over on the way in and repeated on the way out.
        self.own = tuple(i + 1 for i, axis in enumerate(axes) if isinstance(axis, Symbol) and axis not in shared)
        kept = [axis for axis in axes if isinstance(axis, int) or axis in shared]
        order = [kept.index(symbol) for symbol in shared]
        order += [i for i, axis in enumerate(kept) if isinstance(axis, int)]
        self.order = (0, *(i + 1 for i in order))
        self.inverse = tuple(sorted(range(len(self.order)), key=self.order.__getitem__))
        self.is_ordered = self.order == tuple(range(len(self.order)))
        self.shared = len(shared)
        self.is_plain = self.is_ordered and not self.own

    def flatten(self, x: Tensor) -> Tensor:
        if self.own:
            x = x.sum(self.own)
        if not self.is_ordered:
            x = x.permute(self.order)
        return x if len(self.sizes) == 1 else x.reshape(*x.shape[: 1 + self.shared], self.features)

    def unflatten(self, rows: Tensor, like: Tensor) -> Tensor:
        x = rows if len(self.sizes) == 1 else rows.reshape(*rows.shape[:-1], *self.sizes)
        if not self.is_ordered:
            x = x.permute(self.inverse)
        if self.own:
            for axis in self.own:
                x = x.unsqueeze(axis)
            x = x.expand_as(like)
        return x


def _uniform(rows: int, columns: int) -> torch.Tensor:
    return nn.Linear(columns, rows, bias=False).weight.detach()
