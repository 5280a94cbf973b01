"""Energy: any differentiable energy of some variables, minimised by an inner descent: an implicit layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from undirected.errors import DeclarationError, unknown
from undirected.factors.factor import Factor, derivative
from undirected.regularizers import total

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

TRIES = (2.0, 1.0, 0.5, 0.25)


class Energy(Factor):
    """Adds `function(x_1, ..., x_k)` per example to the energy; it need not be linear in anything.

    A block x in it minimises `Psi(x) - <z, x> + function(..., x, ...)` by mirror descent: with `x = activation(t)`,
    `t <- t + r (z - gradient - t)`, where r is the largest step tried that does not raise the energy. For a linear
    function, r = 1 is the exact update.

    Args:
        function: takes the variables' values, gives a number per example. A module's parameters are learned.
        variables: the function's arguments.
        steps: how many steps an update makes.
        linear: those of the variables in which the function is linear: they are updated exactly, by a message.

    >>> import undirected as un
    >>> cubic = un.Energy(lambda h: h.pow(4).sum(1) / 4, "h", steps=60)  # with z = 2: h + h^3 = 2
    >>> net = un.UNN(un.Variable("x", (1,)), un.Variable("h", (1,), bias=False), un.Linear("x", "h"), cubic)
    >>> _ = torch.nn.init.ones_(net.factors["x-h"].weight)
    >>> net(observe={"x": torch.tensor([[2.0]])})["h"].detach()
    tensor([[1.]])
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        *variables: str,
        steps: int = 20,
        linear: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        super().__init__(*variables, name=name)
        if steps < 1:
            raise DeclarationError(f"Energy{variables}: steps must be at least 1, not {steps}.")
        self.function = function
        self.steps = steps
        self.linear = (linear,) if isinstance(linear, str) else tuple(linear)
        for variable in self.linear:
            if variable not in variables:
                raise DeclarationError(f"{self}: linear names an {unknown('variable', variable, variables)}")

    def score(self, *values: Float[Tensor, "batch *event"]) -> Float[Tensor, " batch"]:
        return -self.function(*values)

    def __repr__(self) -> str:
        what = type(self.function).__name__ if isinstance(self.function, nn.Module) else self.function
        name = getattr(what, "__name__", str(what))
        return f"Energy({name}, {', '.join(map(repr, self.variables))})"


def descend(
    extra: Callable[[Tensor], Tensor],
    psi: Callable[[Tensor], Tensor],
    activate: Callable[[Tensor], Tensor],
    z: Float[Tensor, "batch *event"],
    start: Float[Tensor, "batch *event"] | None,
    current: Float[Tensor, "batch *event"] | None,
    steps: int,
) -> tuple[Tensor, Tensor]:
    """The block x and its t after `steps` steps that lower `psi(x) - <z, x> + extra(x)`, or leave it as it is.

    Starts at t = `start` (z where there is none), and gives back `current` for examples in which that is lower.
    Differentiable; the choice of step sizes is not differentiated.
    """

    def energy(x: Tensor) -> Tensor:
        return psi(x) - total(z * x) + extra(x)

    column = (-1, *[1] * (z.dim() - 1))
    t = z if start is None else start
    x = activate(t)
    rate = z.new_full((z.shape[0],), 0.5)
    with torch.no_grad():
        lowest = energy(x)
    for _ in range(steps):
        direction = z - derivative(lambda x: extra(x).sum(), x) - t
        with torch.no_grad():
            best, reached = torch.zeros_like(rate), lowest
            for factor in TRIES:
                tried = (rate * factor).clamp_max(1.0)
                value = energy(activate(t + tried.view(column) * direction))
                lower = value < reached  # also refuses NaN
                best, reached = torch.where(lower, tried, best), torch.where(lower, value, reached)
            lowest = reached
            rate = torch.where(best > 0, best, rate / 8)
        t = t + best.view(column) * direction
        x = activate(t)
    if current is not None:
        with torch.no_grad():
            keep = (energy(current) < lowest).view(column)
        x = torch.where(keep, current, x)
    return x, t
