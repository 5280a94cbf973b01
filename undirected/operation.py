"""Operations: what a program is made of. They read, write and free numbered registers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Send:
    """Compute a message."""

    factor: str
    place: int
    inputs: tuple[int, ...]  # the registers of the factor's variables, a stand-in of zeros for the receiver's
    bias: int | None  # the register of the receiver's bias, if this message carries it
    is_shifted: bool
    is_directed: bool
    out: int
    partial: str | None = None  # a partly observed variable, the receiver or the sender, whose missing rows are enough
    base: int | None = None  # with a sender: the register of the message that it sent at first
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Descent:
    """An energy that is not multilinear in the block being set."""

    factor: str
    place: int
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Set:
    """Add up messages and activate."""

    variable: str
    messages: tuple[int, ...]
    bias: int | None  # the register of the bias, if no message carries it
    out: int
    preactivation: int | None  # where to keep it, if anybody wants it
    descent: tuple[Descent, ...]
    start: int | None  # the pre-activation before, for a descent
    current: int | None  # the value before, for a descent
    iteration: int
    free: tuple[int, ...] = ()


Operation = Send | Set


def reads(operation: Operation) -> set[int]:
    """The registers that an operation reads."""
    if isinstance(operation, Send):
        return {*operation.inputs, *(() if operation.base is None else (operation.base,))}
    found = {*operation.messages, *(r for d in operation.descent for r in d.inputs)}
    return found | {r for r in (operation.start, operation.current) if r is not None}


def writes(operation: Operation) -> set[int]:
    """The registers that an operation writes."""
    if isinstance(operation, Send) or operation.preactivation is None:
        return {operation.out}
    return {operation.out, operation.preactivation}
