"""Evidence: what a call was given, checked and bound: values, known entries, sizes, masks, starting points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from undirected.errors import QueryError, unknown
from undirected.missing import missing_rows
from undirected.regularizers import concrete
from undirected.variable import Partial, Variable, show

if TYPE_CHECKING:
    from torch import Tensor

Observed = Mapping[str, "Tensor | Partial"]
Start = str | Mapping[str, "str | Tensor"]
STARTS = ("zeros", "uniform", "random")


@dataclass
class Evidence:
    """Everything about one solve that its updates do not change."""

    variables: Mapping[str, Variable]
    batch: int
    dtype: torch.dtype
    device: torch.device
    sizes: dict[str, int]
    values: dict[str, Tensor]  # observed; zero where a Partial does not know, and where the masks say so
    known: dict[str, Tensor]  # of each Partial
    start: dict[str, Tensor]  # of free variables that do not start at zero
    masks: dict[str, Tensor | None]
    lengths: dict[str, Tensor]
    dropout: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)  # of directed modules, which may not be run twice
    _missing: dict[str, Tensor | None] = field(default_factory=dict, init=False)

    def shape(self, name: str) -> tuple[int, ...]:
        return (self.batch, *self.variables[name].event_shape(self.sizes))

    def zeros(self, name: str) -> Tensor:
        """Zeros in a variable's shape that take no memory."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.shape(name))

    def missing(self, name: str) -> Tensor | None:
        """The rows of a partly observed variable that are free and start at zero; None to take all rows."""
        if name not in self._missing:
            known = None if name in self.start else self.known[name]
            rows = None if known is None else missing_rows(self.variables[name], known, self.masks[name])
            self._missing[name] = rows
        return self._missing[name]

    def rows(self, index: Tensor) -> Evidence:
        """The same for some of the examples."""

        def pick(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor[index] for name, tensor in tensors.items()}

        masks = {name: mask if mask is None else mask[index] for name, mask in self.masks.items()}
        return replace(
            self,
            batch=len(index),
            values=pick(self.values),
            known=pick(self.known),
            start=pick(self.start),
            masks=masks,
            lengths=pick(self.lengths),
            dropout=pick(self.dropout),
            outputs=pick(self.outputs),
        )

    def read(self, name: str, value: Tensor) -> Tensor:
        """A value of a variable as an observation of it would be read: labels encoded, padding zero."""
        variable, mask = self.variables[name], self.masks[name]
        sizes = dict(self.sizes)
        variable.bind(tuple(value.shape[1:]), sizes, name, labels=not value.is_floating_point())
        if len(value) != self.batch:
            raise QueryError(f"{name}: has {len(value)} examples, the solution {self.batch}.")
        if not value.is_floating_point():
            value, _ = _labels(variable, value, {}, mask, sizes)
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        return _observed(variable, value, None, mask, sizes, like, "target")

    def draw_dropout(self, names: list[str]) -> None:
        """One mask for the whole solve: 0, or 1 / (1 - p)."""
        for name in names:
            keep = 1 - self.variables[name].dropout
            mask = torch.empty(self.shape(name), dtype=self.dtype, device=self.device).bernoulli_(keep).div_(keep)
            if name in self.known:  # what is known is not dropped
                mask = torch.where(self.known[name], 1.0, mask).to(self.dtype)
            self.dropout[name] = mask


def gather(
    variables: Mapping[str, Variable],
    observe: Observed,
    init: Start,
    lengths: Mapping[str, Tensor] | None,
    like: Tensor | None,
) -> Evidence:
    """Check everything that a call was given, before any work is done. `like` has the network's dtype and device."""
    values: dict[str, Tensor] = {}
    known: dict[str, Tensor] = {}
    if not isinstance(observe, Mapping):
        raise QueryError(f"observe: takes values by name, such as observe={{'x': x}}, not a {type(observe).__name__}.")
    for name, value in observe.items():
        if name not in variables:
            raise QueryError(f"observe: {unknown('variable', name, variables)}")
        if isinstance(value, Partial):
            known[name], value = value.known, value.value
        if not isinstance(value, torch.Tensor):
            raise QueryError(f"observe: {name} is a {type(value).__name__}; give a tensor, or an un.Partial.")
        if value.is_complex():
            raise QueryError(f"observe: {name} is {value.dtype}; energies are of real numbers.")
        values[name] = value
    starts = _starts(variables, init, values, known)
    given = {**values, **{name: start for name, start in starts.items() if isinstance(start, torch.Tensor)}}
    lengths = dict(lengths or {})
    for symbol, length in lengths.items():
        if not isinstance(length, torch.Tensor):
            raise QueryError(f"lengths: {symbol} is a {type(length).__name__}; give a tensor, one number per example.")
    batch = _batch({**given, **{f"lengths[{name!r}]": length for name, length in lengths.items()}})
    if like is None:
        like = next((value for value in given.values() if value.is_floating_point()), torch.empty(0))
    sizes = _sizes(variables, given, values, lengths)
    masks = {name: variable.mask(lengths, sizes) for name, variable in variables.items()} if lengths else {}
    for name, value in values.items():
        if not value.is_floating_point():
            value, known = _labels(variables[name], value, known, masks.get(name), sizes)
        values[name] = _observed(variables[name], value, known.get(name), masks.get(name), sizes, like)
    evidence = Evidence(
        variables, batch, like.dtype, like.device, sizes, values, known, {}, masks or dict.fromkeys(variables), lengths
    )
    for name, start in starts.items():
        evidence.start[name] = _start(evidence, name, start)
    return evidence


def is_finite(tensor: Tensor) -> bool:
    """Are all numbers finite? The sum tells, in one cheap pass, unless it overflows."""
    return math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())


def starting(variables: Mapping[str, Variable], init: Start) -> dict[str, str | Tensor]:
    """Which variables do not start at zero."""
    if isinstance(init, str):
        init = dict.fromkeys(variables, init)
    if not isinstance(init, Mapping):
        raise QueryError(f"init: give starting points by name, such as {{{next(iter(variables))!r}: ...}}, or a word.")
    for name, start in init.items():
        if name not in variables:
            raise QueryError(f"init: {unknown('variable', name, variables)}")
        if not isinstance(start, torch.Tensor) and start not in STARTS:
            raise QueryError(f"init: {start!r} is none of {', '.join(STARTS)}, and no tensor.")
    return {name: start for name, start in init.items() if isinstance(start, torch.Tensor) or start != "zeros"}


def _starts(
    variables: Mapping[str, Variable], init: Start, values: Mapping[str, Tensor], known: Mapping[str, Tensor]
) -> dict[str, str | Tensor]:
    starts = starting(variables, init)
    if not isinstance(init, str):
        for name in starts:
            if name in values and name not in known:
                raise QueryError(f"init: {name} is observed, so it needs no starting point.")
    return {name: start for name, start in starts.items() if name not in values or name in known}


def _batch(given: Mapping[str, Tensor]) -> int:
    for name, value in given.items():
        if not value.dim():
            raise QueryError(
                f"{name} has no batch axis: it is a single number. For a batch of one, write {name}[None]."
            )
    sizes = {name: value.shape[0] for name, value in given.items()}
    batch = next(iter(sizes.values()), 1)
    if any(size != batch for size in sizes.values()):
        listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise QueryError(f"batch sizes disagree: {listed}.")
    if batch == 0:
        raise QueryError(f"the batch is empty: {next(iter(sizes))} has no examples.")
    return batch


def _sizes(
    variables: Mapping[str, Variable],
    given: Mapping[str, Tensor],
    observed: Mapping[str, Tensor],
    lengths: Mapping[str, Tensor],
) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, value in given.items():
        source = "observe" if name in observed else "init"
        variables[name].bind(tuple(value.shape[1:]), sizes, source, labels=not value.is_floating_point())
    symbols = {symbol.name for variable in variables.values() for symbol in variable.symbols}
    for symbol, length in lengths.items():
        if symbol not in symbols:
            raise QueryError(f"lengths: {unknown('symbol', symbol, sorted(symbols))}")
        if length.dim() != 1 or length.is_floating_point() or length.dtype == torch.bool:
            raise QueryError(
                f"lengths: {symbol} takes one whole number per example, got {length.dtype} {show(length.shape)}."
            )
        if not concrete(length):
            continue
        low, high = int(length.min()), int(length.max())
        size = sizes.setdefault(symbol, high)
        if low < 1 or high > size:
            raise QueryError(f"lengths: {symbol} must be from 1 to {size}, but is from {low} to {high}.")
    missing = sorted(symbols - sizes.keys())
    if missing:
        raise QueryError(
            f"nothing observed tells how large {', '.join(missing)} is. Observe a variable with that axis, or give "
            f"lengths={{{missing[0]!r}: ...}}."
        )
    for name, variable in variables.items() if symbols else ():
        shape = variable.event_shape(sizes)
        if any(size < 0 for size in shape):
            raise QueryError(f"{name} {show(variable.axes)} has no room: {sizes} makes it {show(shape)}.")
    return sizes


def _labels(
    variable: Variable, labels: Tensor, known: dict[str, Tensor], mask: Tensor | None, sizes: dict[str, int]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Labels with a harmless number where nothing is known or exists, and what is known in the variable's own shape."""
    name, regularizer, shape = variable.name, variable.regularizer, variable.event_shape(sizes)
    if mask is not None:
        folded = [axis + 1 for axis in range(len(shape)) if axis not in regularizer.label_axes(len(shape))]
        exists = mask.expand(-1, *shape).amax(folded) if folded else mask
        labels = torch.where(exists, labels, 0)
    if name in known:
        labels = torch.where(known[name], labels, 0)
        known = known | {name: regularizer.known_entries(labels, known[name], shape)}
    return labels, known


def _observed(
    variable: Variable,
    value: Tensor,
    known: Tensor | None,
    mask: Tensor | None,
    sizes: dict[str, int],
    like: Tensor,
    source: str = "observe",
) -> Tensor:
    """The value in the network's dtype, zero where nothing is known or exists."""
    name = variable.name
    if value.device != like.device:
        raise QueryError(
            f"{source}: {name} is on {value.device}, the network on {like.device}. Write .to({str(like.device)!r})."
        )
    if not value.is_floating_point():
        try:
            value = variable.regularizer.encode(value, variable.event_shape(sizes)).to(like.dtype)
        except ValueError as error:
            raise QueryError(f"{source}: {name}: {error}") from None
    elif value.dtype != like.dtype and not torch.is_autocast_enabled(value.device.type):
        raise QueryError(f"{source}: {name} is {value.dtype}, the network {like.dtype}. Write .to({like.dtype}).")
    exists = known if mask is None else mask if known is None else known & mask
    if exists is not None:
        value = torch.where(exists, value, 0)
    if known is not None:
        try:
            variable.regularizer.check_known(known, value)
        except ValueError as error:
            raise QueryError(f"{source}: {name}: {error}") from None
    if concrete(value) and not is_finite(value):
        bad = (~value.isfinite()).nonzero()[0].tolist()
        raise QueryError(
            f"{source}: {name} has NaN or infinity, first at {bad} (example {bad[0]})."
            + f" If that means missing, observe un.Partial({name}, known={name}.isfinite())." * (source == "observe")
        )
    return value


def _start(evidence: Evidence, name: str, start: str | Tensor) -> Tensor:
    """Where a free variable begins."""
    variable, mask = evidence.variables[name], evidence.masks[name]
    if isinstance(start, str):
        t = torch.zeros(evidence.shape(name), dtype=evidence.dtype, device=evidence.device)
        t = t.normal_() if start == "random" else t
        if name in evidence.known:
            return variable.regularizer.complete(t, evidence.known[name], evidence.values[name], mask)
        value = variable.regularizer.activation(t, mask)
    else:
        if not start.is_floating_point():
            start = evidence.read(name, start)
        if start.dtype != evidence.dtype:
            raise QueryError(
                f"init: {name} is {start.dtype}, the network {evidence.dtype}. Write .to({evidence.dtype})."
            )
        value = start if mask is None else torch.where(mask, start, 0)
        if concrete(value) and not is_finite(value):
            raise QueryError(f"init: {name} has NaN or infinity.")
    if name in evidence.known:
        value = torch.where(evidence.known[name], evidence.values[name], value)
    return value
