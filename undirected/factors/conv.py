"""Conv1d, Conv2d, Conv3d: a convolution one way, its transpose the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import nn

from undirected.errors import DeclarationError
from undirected.factors.factor import Factor
from undirected.regularizers import total
from undirected.variable import Axis, Symbol, Variable, show

if TYPE_CHECKING:
    from torch import Tensor

Size = int | tuple[int, ...]


class _Conv(Factor):
    """`score(a, b) = <b, conv(a)>`. Abstract: the number of dimensions is the subclass's."""

    dimensions: int
    _module: Any
    _forward: Any
    _transposed: Any

    def __init__(
        self,
        a: str,
        b: str,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        shift: Mapping[str, Tensor] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(a, b, shift=shift, name=name)
        self.a, self.b = a, b
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.groups = groups
        self._kernel = self._tuple(kernel_size, "kernel_size", 1)
        self._stride = self._tuple(stride, "stride", 1)
        self._padding = self._tuple(padding, "padding", 0)
        self._dilation = self._tuple(dilation, "dilation", 1)
        self.weight: nn.Parameter
        self.register_parameter("weight", None)
        self._output_padding: tuple[int, ...] = ()

    def _tuple(self, size: Size, what: str, least: int) -> tuple[int, ...]:
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,) * self.dimensions
        if len(sizes) != self.dimensions or any(not isinstance(s, int) or s < least for s in sizes):
            raise DeclarationError(
                f"{type(self).__name__}({self.a!r}, {self.b!r}): {what} is a whole number of at least {least}, or "
                f"{self.dimensions} of them, not {size!r}."
            )
        return sizes

    def build(self, variables: Mapping[str, Variable]) -> None:
        a, b = (variables[name] for name in self.variables)
        where = f"{type(self).__name__}({a.name!r}, {b.name!r})"
        for variable in (a, b):
            if len(variable.axes) != self.dimensions + 1 or not isinstance(variable.axes[0], int):
                raise DeclarationError(
                    f"{where}: {variable.name} is {show(variable.axes)}, but a {type(self).__name__} joins variables "
                    f"of shape (channels, {', '.join(['size'] * self.dimensions)})."
                )
        channels = [int(a.axes[0]), int(b.axes[0])]  # type: ignore[arg-type]
        if not isinstance(self.groups, int) or self.groups < 1 or any(count % self.groups for count in channels):
            raise DeclarationError(f"{where}: groups {self.groups} does not divide channels {channels}.")
        spatial = [self._convolved(axis, d, where) for d, axis in enumerate(a.axes[1:])]
        made = (b.axes[0], *(size for size, _ in spatial))
        if made != b.axes:
            raise DeclarationError(
                f"{where}: {a.name} is {show(a.axes)}, kernel {self.kernel_size} and stride "
                f"{self.stride}{self._more()} make {show(made)}, but {b.name} is declared {show(b.axes)}."
            )
        self._output_padding = tuple(left for _, left in spatial)
        weight: Tensor = self._module(*channels, self._kernel, groups=self.groups, bias=False).weight.detach()
        if self._parameters["weight"] is None:
            self.weight = nn.Parameter(weight)
        elif self.weight.shape != weight.shape:
            raise DeclarationError(
                f"{where}: has weights {show(self.weight.shape)} from another network, here they are "
                f"{show(weight.shape)}."
            )

    def _more(self) -> str:
        """What else decides the size, where it is not the default."""
        more = [f", padding {self.padding}"] * any(self._padding)
        more += [f", dilation {self.dilation}"] * any(d > 1 for d in self._dilation)
        return "".join(more)

    def _convolved(self, axis: Axis, d: int, where: str) -> tuple[Axis, int]:
        """The size after the convolution, and what the stride leaves over."""
        change = 2 * self._padding[d] - self._dilation[d] * (self._kernel[d] - 1)
        if isinstance(axis, Symbol):
            if self._stride[d] != 1:
                raise DeclarationError(
                    f"{where}: axis {axis} has no fixed size, so its stride must be 1, not {self._stride[d]}."
                )
            return axis + change, 0
        if axis + change < 1:
            raise DeclarationError(
                f"{where}: an axis of size {axis} with padding {self._padding[d]} is smaller than the kernel "
                f"{self._kernel[d]} (dilation {self._dilation[d]})."
            )
        steps, left = divmod(axis + change - 1, self._stride[d])
        return steps + 1, left

    def reads_stand_in(self, target: int) -> bool:
        return False

    def fuses_bias(self, target: int) -> bool:
        return True

    def score(self, a: Tensor, b: Tensor) -> Tensor:
        return total(self.message(1, a, b) * b)

    def message(self, target: int, *values: Tensor) -> Tensor:
        return self.sender(target, None)(*values)

    def biased_message(self, target: int, bias: Tensor, *values: Tensor) -> Tensor:
        return self.sender(target, bias)(*values)

    def sender(self, target: int, bias: Tensor | None) -> Callable[..., Tensor]:
        if bias is not None and bias.numel() != bias.shape[0]:  # a number per entry, not per channel
            send = self.sender(target, None)
            return lambda a, b: send(a, b) + bias
        weight, flat = self.weight, None if bias is None else bias.flatten()
        stride, padding, dilation, groups = self._stride, self._padding, self._dilation, self.groups
        if target == 1:
            forward = self._forward
            return lambda a, b: forward(a, weight, flat, stride, padding, dilation, groups)
        # Where the stride leaves several sizes possible, this picks the declared one.
        transposed, output_padding = self._transposed, self._output_padding
        return lambda a, b: transposed(b, weight, flat, stride, padding, output_padding, groups, dilation)


class Conv1d(_Conv):
    """`score(a, b) = <b, conv1d(a)>` between variables of shape (channels, length); weights of `nn.Conv1d`.

    >>> import undirected as un
    >>> net = un.UNN(un.Variable("x", (4, "n")), un.Variable("h", (8, "n")), un.Conv1d("x", "h", 3, padding=1))
    >>> net.factors["x-h"].weight.shape
    torch.Size([8, 4, 3])
    """

    dimensions = 1
    _module = nn.Conv1d
    _forward = staticmethod(F.conv1d)
    _transposed = staticmethod(F.conv_transpose1d)


class Conv2d(_Conv):
    """`score(a, b) = <b, conv2d(a)>` between variables of shape (channels, height, width); weights of `nn.Conv2d`.

    >>> import undirected as un
    >>> net = un.UNN(un.Variable("x", (1, 28, 28)), un.Variable("h", (32, 12, 12)), un.Conv2d("x", "h", 6, stride=2))
    >>> net.factors["x-h"].weight.shape
    torch.Size([32, 1, 6, 6])
    """

    dimensions = 2
    _module = nn.Conv2d
    _forward = staticmethod(F.conv2d)
    _transposed = staticmethod(F.conv_transpose2d)


class Conv3d(_Conv):
    """`score(a, b) = <b, conv3d(a)>` between variables of shape (channels, depth, height, width)."""

    dimensions = 3
    _module = nn.Conv3d
    _forward = staticmethod(F.conv3d)
    _transposed = staticmethod(F.conv_transpose3d)
