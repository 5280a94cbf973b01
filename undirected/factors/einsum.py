"""Einsum: any product of variables and learned weights, summed over all indices, as papers write energies."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from undirected.errors import DeclarationError
from undirected.factors.factor import Factor
from undirected.regularizers import total
from undirected.variable import Axis, Symbol, Variable, show

if TYPE_CHECKING:
    from torch import Tensor

TERM = re.compile(r"\s*([A-Za-z_]\w*)\s*\[([^\[\]]*)\]\s*")
BATCH = "Z"
TYPICAL = 32  # what a symbolic axis counts when the order of a product is chosen

Step = tuple[int, int, str]  # multiply operands i and j, by this equation


class Einsum(Factor):
    """`score = sum` of a product. Names that are not variables are learned weights, sized from the variables.

    Args:
        product: for example `"y[i,j] h[i,d] V[d,e] m[j,e]"`.
        sizes: the sizes of indices that only weights have, such as the rank of a product of weights.
        shift, name: as for every factor.

    >>> import undirected as un
    >>> net = un.UNN(
    ...     un.Variable("y", ("n+1", "n")), un.Variable("h", ("n+1", 5)), un.Variable("m", ("n", 7)),
    ...     un.Einsum("y[i,j] h[i,d] V[d,e] m[j,e]"),
    ... )
    >>> net.factors["y-h-m"].V.shape
    torch.Size([5, 7])
    """

    def __init__(
        self,
        product: str,
        sizes: Mapping[str, int] | None = None,
        shift: Mapping[str, Tensor] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(shift=shift, name=name)
        self.product = product
        self.sizes = dict(sizes) if sizes else None
        self._terms = _parse(product)
        self._weights: tuple[str, ...] = ()
        self._steps: list[list[Step]] = []
        self._outputs: list[tuple[str, str]] = []

    def build(self, variables: Mapping[str, Variable]) -> None:
        """Names that the network declares are variables, the others weights."""
        self.variables = tuple(name for name in self._terms if name in variables)
        self._weights = tuple(name for name in self._terms if name not in variables)
        if not self.variables:
            raise DeclarationError(f"{self}: none of {list(self._terms)} is a variable; they are {list(variables)}.")
        self.name = self.name or self.default_name
        axes = self._index_axes(variables)
        letters = dict(zip(axes, string.ascii_letters.replace(BATCH, ""), strict=False))
        if len(letters) < len(axes):
            raise DeclarationError(f"{self}: more than {len(letters)} indices.")
        for weight in self._weights:
            self._make(weight, axes)
        written = {name: "".join(letters[index] for index in indices) for name, indices in self._terms.items()}
        cost = {letter: _count(axes[index]) for index, letter in letters.items()}
        self._steps, self._outputs = [], []
        for target in self.variables:
            operands = [BATCH + written[name] for name in self.variables if name != target]
            operands += [written[name] for name in self._weights]
            whole = BATCH + written[target]
            present = "".join(letter for letter in whole if any(letter in operand for operand in operands))
            self._steps.append(_steps(operands, present, cost | {BATCH: TYPICAL}))
            self._outputs.append((present, whole))

    def _index_axes(self, variables: Mapping[str, Variable]) -> dict[str, Axis]:
        axes: dict[str, Axis] = dict(self.sizes or {})
        for name in self.variables:
            variable, indices = variables[name], self._terms[name]
            if len(indices) != len(variable.axes) or len(set(indices)) < len(indices):
                raise DeclarationError(
                    f"{self}: {name}[{','.join(indices)}] needs one index of its own for each axis of {name} "
                    f"{show(variable.axes)}."
                )
            for index, axis in zip(indices, variable.axes, strict=True):
                if axes.setdefault(index, axis) != axis:
                    raise DeclarationError(
                        f"{self}: index {index} is {axis} in {name} {show(variable.axes)}, but {axes[index]} elsewhere."
                    )
        return axes

    def _make(self, weight: str, axes: Mapping[str, Axis]) -> None:
        shape = []
        for index in self._terms[weight]:
            axis = axes.get(index)
            if not isinstance(axis, int):
                raise DeclarationError(
                    f"{self}: the weight {weight} has index {index}, which "
                    + (f"has no fixed size ({axis})." if axis else f"no variable has. Give sizes={{{index!r}: ...}}.")
                )
            shape.append(axis)
        if weight in self._parameters:
            if tuple(self._parameters[weight].shape) != tuple(shape):  # type: ignore[union-attr]
                raise DeclarationError(f"{self}: the weight {weight} has another shape from another network.")
            return
        if hasattr(self, weight):
            raise DeclarationError(f"{self}: {weight!r} cannot be a weight's name; choose another.")
        bound = 1 / math.sqrt(shape[0]) if shape else 1.0  # as nn.Linear and nn.Bilinear: the first axis goes in
        self.register_parameter(weight, nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def reads_stand_in(self, target: int) -> bool:
        present, whole = self._outputs[target]
        return present != whole

    def score(self, *values: Tensor) -> Tensor:
        return total(self.message(0, *values) * values[0])

    def message(self, target: int, *values: Tensor) -> Tensor:
        operands = [value for i, value in enumerate(values) if i != target]
        operands += [getattr(self, weight) for weight in self._weights]
        for i, j, equation in self._steps[target]:
            if i == j:
                operands[i] = torch.einsum(equation, operands[i])
            else:
                second, first = operands.pop(j), operands.pop(i)
                operands.append(torch.einsum(equation, first, second))
        present, whole = self._outputs[target]
        if not operands:
            return torch.ones_like(values[target])
        if present == whole:
            return operands[0]
        # Indices that only the target has: the same message for each of them.
        index = tuple(slice(None) if letter in present else None for letter in whole)
        return operands[0][index].expand_as(values[target])


def _parse(product: str) -> dict[str, tuple[str, ...]]:
    """`"s[i,j] q[i,d]"` as `{"s": ("i", "j"), "q": ("i", "d")}`."""
    terms: dict[str, tuple[str, ...]] = {}
    position = 0
    while position < len(product):
        match = TERM.match(product, position)
        if not match:
            raise DeclarationError(
                f"Einsum({product!r}): cannot read {product[position:]!r}. Write names with indices in brackets, "
                f'such as "s[i,j] q[i,d] k[j,d]".'
            )
        name, indices = match[1], tuple(index.strip() for index in match[2].split(",") if index.strip())
        if name in terms:
            raise DeclarationError(
                f"Einsum({product!r}): {name} stands in it twice, so the score is not linear in it. "
                f"Use un.Energy for energies of other forms."
            )
        terms[name] = indices
        position = match.end()
    if not terms:
        raise DeclarationError("Einsum(''): an empty product.")
    return terms


def _count(axis: Axis) -> int:
    return TYPICAL if isinstance(axis, Symbol) else axis


def _steps(operands: list[str], output: str, cost: Mapping[str, int]) -> list[Step]:
    """Which operands to multiply first: always the pair that is cheapest."""
    operands, steps = list(operands), []
    if len(operands) == 1 and operands[0] != output:
        return [(0, 0, f"{operands[0]}->{output}")]
    while len(operands) > 1:
        pairs = [(i, j) for i in range(len(operands)) for j in range(i + 1, len(operands))]
        i, j = min(pairs, key=lambda ij: math.prod(cost[x] for x in set(operands[ij[0]] + operands[ij[1]])))
        second, first = operands.pop(j), operands.pop(i)
        later = output + "".join(operands)
        kept = "".join(dict.fromkeys(letter for letter in first + second if letter in later))
        if not operands:
            kept = output
        steps.append((i, j, f"{first},{second}->{kept}"))
        operands.append(kept)
    return steps
