"""Factor: a multilinear score of some variables, and the messages that follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from undirected.declaration import describe
from undirected.errors import DeclarationError, unknown
from undirected.variable import Axis, Symbol, Variable, show

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


class Factor(nn.Module, ABC):
    """`score(x_1, ..., x_k)`, linear in each variable when the others are fixed; the energy has it with a minus.

    Write `score` to make a factor of your own; its messages are derived. A hand-written `message` is an optimisation.

    Args:
        variables: the names of its variables, in the order in which `score` takes them.
        shift: constants added to a variable inside this factor, by its name. Along a symbolic axis the first
            entries are taken, so a table of positions may be longer than the sequence.
        name: what the factor is called; its variables joined by `-` if not given (`energy-h` for a single one).

    >>> class Agreement(Factor):
    ...     def score(self, a, b):
    ...         return (a * b).flatten(1).sum(1)
    >>> ones = torch.ones(1, 3)
    >>> Agreement("a", "b").message(0, torch.zeros(1, 3), 2 * ones)  # the derivative by a
    tensor([[2., 2., 2.]])
    """

    def __init__(self, *variables: str, shift: Mapping[str, Tensor] | None = None, name: str | None = None) -> None:
        super().__init__()
        if len(set(variables)) != len(variables):
            raise DeclarationError(
                f"{type(self).__name__}{variables}: a variable stands in it twice, so its score is not linear in it. "
                f"Use un.Energy for energies of other forms."
            )
        self.variables = variables
        self.built_for: tuple[tuple[Axis, ...], ...] | None = None  # the variables' axes in the network that it is in
        self.name = self.default_name if name is None else name
        # Parameters stay learned, other tensors become buffers that move with the module.
        self._shifts = {variable: f"shift_{variable}" for variable in shift or {}}
        for variable, constant in (shift or {}).items():
            if isinstance(constant, nn.Parameter):
                self.register_parameter(self._shifts[variable], constant)
            else:
                self.register_buffer(self._shifts[variable], torch.as_tensor(constant))

    @property
    def default_name(self) -> str:
        """Its variables joined by `-`, as in `x-h`; one variable has the kind in front, as in `energy-h`."""
        kind = [type(self).__name__.lower()] if len(self.variables) == 1 else []
        return "-".join([*kind, *self.variables])

    @property
    def original(self) -> Factor:
        """The factor that owns the weights: this one, unless it is tied to another."""
        return self

    @property
    def shift(self) -> dict[str, Tensor] | None:
        return {variable: getattr(self, key) for variable, key in self._shifts.items()} or None

    def shifts(self, index: int) -> bool:
        """Is a constant added to this variable here? Then its message does not vanish when it is zero."""
        return self.variables[index] in self._shifts

    def build(self, variables: Mapping[str, Variable]) -> None:
        """Check the variables' shapes and make the weights. Called when the factor becomes part of a network."""

    if TYPE_CHECKING:
        # Subclasses name their variables: score(self, x, h).
        score: Callable[..., Float[Tensor, " batch"]]
    else:

        @abstractmethod
        def score(self, *values):
            """The score of each example."""

    def message(self, target: int, *values: Float[Tensor, "batch *event"]) -> Float[Tensor, "batch *event"]:
        """`d score / d values[target]`. `values[target]` is a stand-in of zeros with the right shape."""

        def scored(x: Tensor) -> Tensor:
            return self.score(*values[:target], x, *values[target + 1 :]).sum()

        return derivative(scored, values[target])

    def sender(self, target: int, bias: Tensor | None) -> Callable[..., Tensor]:
        """The message as a function of the values alone, the bias (if any) added: for the inside of loops."""
        return partial(self.message, target) if bias is None else partial(self.biased_message, target, bias)

    def reads_stand_in(self, target: int) -> bool:
        """Does `message` look at the stand-in? If not, it gets None, which costs nothing."""
        return True

    def fuses_bias(self, target: int) -> bool:
        """Does `biased_message` cost no more than `message`? Then the plan gives it the receiver's bias to add."""
        return False

    def biased_message(self, target: int, bias: Tensor, *values: Tensor) -> Tensor:
        """The message with the receiver's bias added."""
        return self.message(target, *values) + bias

    @property
    def is_row_wise(self) -> bool:
        """Does each row of a message depend on the same row of the sender alone? Then it has the two methods below."""
        return False

    def message_to_rows(self, target: int, bias: Tensor | None, rows: Tensor, *values: Tensor) -> Tensor:
        """The message to some rows of the receiver; zero in the others."""
        raise NotImplementedError(f"{self} is not row-wise.")

    def message_from_rows(self, target: int, base: Tensor, rows: Tensor, sender: Tensor) -> Tensor:
        """The message, given what it was (`base`) when these rows of the sender were zero, and the others as now."""
        raise NotImplementedError(f"{self} is not row-wise.")

    def shifted(self, values: list[Tensor], masks: list[Tensor | None]) -> list[Tensor]:
        """The values as this factor sees them."""
        if not self._shifts:
            return values
        values = list(values)
        for variable, key in self._shifts.items():
            index = self.variables.index(variable)
            if values[index] is None:  # the receiver, whose own value its message does not depend on
                continue
            values[index] = add_shift(values[index], getattr(self, key), masks[index], f"{self}: shift")
        return values

    def tied(self, *variables: str, name: str | None = None) -> Factor:
        """The same weights between other variables."""
        return Tied(self, *variables, name=name)

    def check_shift(self, variables: Mapping[str, Variable]) -> None:
        for name, key in self._shifts.items():
            if name not in self.variables:
                raise DeclarationError(f"{self}: shift names an {unknown('variable', name, self.variables)}")
            variable, constant = variables[name], getattr(self, key)
            axes = variable.axes[len(variable.axes) - constant.dim() :]
            fits = constant.dim() <= len(variable.axes) and all(
                size in (1, axis) or isinstance(axis, Symbol) for axis, size in zip(axes, constant.shape, strict=True)
            )
            if not fits:
                raise DeclarationError(
                    f"{self}: shift of {variable.name} has shape {show(constant.shape)}, but {variable.name} is "
                    f"{show(variable.axes)}."
                )

    def __repr__(self) -> str:
        return describe(self)


class Tied(Factor):
    """Another factor's weights between other variables. Made by `factor.tied(...)`."""

    def __init__(self, original: Factor, *variables: str, name: str | None = None) -> None:
        super().__init__(*variables, name=name)
        # In a tuple, so that the weights are registered once: under the original.
        self._original = (original.original,)

    @property
    def original(self) -> Factor:
        return self._original[0]

    def build(self, variables: Mapping[str, Variable]) -> None:
        if len(self.variables) != len(self.original.variables):
            raise DeclarationError(f"{self}: takes {len(self.original.variables)} variables.")
        for mine, theirs in zip(self.variables, self.original.variables, strict=True):
            if variables[mine].axes != variables[theirs].axes:
                raise DeclarationError(
                    f"{self}: {mine} is {show(variables[mine].axes)}, but {theirs}, whose weights it shares, is "
                    f"{show(variables[theirs].axes)}."
                )

    def shifts(self, index: int) -> bool:
        return self.original.shifts(index)

    def shifted(self, values: list[Tensor], masks: list[Tensor | None]) -> list[Tensor]:
        return self.original.shifted(values, masks)

    def sender(self, target: int, bias: Tensor | None) -> Callable[..., Tensor]:
        return self.original.sender(target, bias)

    def reads_stand_in(self, target: int) -> bool:
        return self.original.reads_stand_in(target)

    @property
    def is_row_wise(self) -> bool:
        return self.original.is_row_wise

    def message_to_rows(self, target: int, bias: Tensor | None, rows: Tensor, *values: Tensor) -> Tensor:
        return self.original.message_to_rows(target, bias, rows, *values)

    def message_from_rows(self, target: int, base: Tensor, rows: Tensor, sender: Tensor) -> Tensor:
        return self.original.message_from_rows(target, base, rows, sender)

    def fuses_bias(self, target: int) -> bool:
        return self.original.fuses_bias(target)

    def score(self, *values: Tensor) -> Tensor:
        return self.original.score(*values)

    def message(self, target: int, *values: Tensor) -> Tensor:
        return self.original.message(target, *values)

    def biased_message(self, target: int, bias: Tensor, *values: Tensor) -> Tensor:
        return self.original.biased_message(target, bias, *values)

    def __repr__(self) -> str:
        return f"{self.original}.tied({', '.join(map(repr, self.variables))})"


def derivative(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The derivative of a function with one number as its value; differentiable itself."""
    if not torch.compiler.is_exporting():
        gradient: Tensor = torch.func.grad(function)(x)
        return gradient
    # torch.export takes what torch.func.grad finds for a constant.
    keeps = torch.is_grad_enabled()
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(function(x), x, create_graph=keeps)[0]


def add_shift(value: Tensor, constant: Tensor, mask: Tensor | None, where: str) -> Tensor:
    """`value + constant`, the constant cut to the value's sizes, zero where the mask says that nothing exists."""
    sizes = value.shape[value.dim() - constant.dim() :]
    for axis, (size, available) in enumerate(zip(sizes, constant.shape, strict=True)):
        if available not in (1, size):
            if available < size:
                raise DeclarationError(f"{where} has {available} entries on an axis where the variable has {size}.")
            constant = constant.narrow(axis, 0, size)
    value = value + constant
    return value if mask is None else torch.where(mask, value, 0)
