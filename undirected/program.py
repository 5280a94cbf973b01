"""Program: a plan as a straight list of tensor operations on numbered registers, each freed after its last use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from undirected.plan import Message, Plan, Update, Value
from undirected.regularizers import Regularizer

if TYPE_CHECKING:
    from undirected.graph import Graph

#: What a register holds: a value, a message, or (with a mark) the pre-activation of a value.
Key = Value | Message | tuple[str, Value]


@dataclass(frozen=True, slots=True)
class Send:
    """Compute a message."""

    factor: str
    place: int
    target: str
    inputs: tuple[int | None, ...]  # the registers of the factor's variables; None for zeros
    bias: bool
    out: int
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Set:
    """Add up messages and activate."""

    variable: str
    messages: tuple[int, ...]
    bias: bool
    out: int
    preactivation: int | None  # where to keep it, if anybody wants it
    descent: tuple[Descent, ...]
    start: int | None  # the pre-activation before, for a descent
    current: int | None  # the value before, for a descent
    iteration: int
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Descent:
    """An energy that is not multilinear in the block being set."""

    factor: str
    place: int
    inputs: tuple[int | None, ...]


Operation = Send | Set


@dataclass(frozen=True)
class Program:
    """Operations, where they find what the call was given, and where they leave the results."""

    operations: tuple[Operation, ...]
    registers: int
    given: dict[str, int]
    final: dict[str, int | None]
    preactivations: dict[str, int]


@dataclass(frozen=True)
class Loop:
    """Three sweeps: the first from the start, the second, and one that can be repeated for ever.

    After each repetition `carry` moves registers to where the next one reads them, so that messages computed in one
    sweep serve the next.
    """

    sweeps: tuple[tuple[Operation, ...], ...]
    registers: int
    given: dict[str, int]
    finals: tuple[dict[str, int], ...]  # the updated variables after each of the three
    preactivations: tuple[dict[str, int], ...]
    carry: tuple[tuple[int, int], ...]


class Registers:
    """Numbers for keys, in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}

    def __getitem__(self, key: Key) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def value(self, value: Value) -> int | None:
        return None if value[1] is None else self[value]


def assemble(graph: Graph, plan: Plan) -> Program:
    """The operations of a plan, with every register freed after its last use."""
    registers = Registers()
    given = _given(plan, registers)
    operations = operate(graph, plan, plan.executed, registers, {plan.final[name] for name in _kept(graph, plan)})
    final = {name: registers.value(value) for name, value in plan.final.items()}
    preactivations = _preactivations(_kept(graph, plan), plan.final, registers)
    last = {*(r for r in final.values() if r is not None), *preactivations.values()}
    return Program(_freed(operations, last), len(registers.numbers), given, final, preactivations)


def assemble_loop(graph: Graph, plan: Plan) -> Loop:
    """The same for a plan of three iterations of one sweep, of which the third can be repeated."""
    registers = Registers()
    given = _given(plan, registers)
    sweeps: list[list[Operation]] = []
    ends: list[dict[str, Value]] = []
    state: dict[str, Value] = {}
    for iteration in (1, 2, 3):
        updates = [u for u in plan.executed if u.iteration == iteration]
        state = state | {u.variable: u.result for u in updates}
        sweeps.append(operate(graph, plan, updates, registers, {state[name] for name in state}))
        ends.append(state)
    moved = {name: _steps_of(ends[2], name) - _steps_of(ends[1], name) for name in state}
    # What the third sweep reads from before it, the next one reads from the third.
    written = set().union(*(writes(operation) for operation in sweeps[2]))
    read = set().union(*(reads(operation) for operation in sweeps[2]))
    keys = {number: key for key, number in registers.numbers.items()}
    carry = tuple((r, registers.numbers[_later(keys[r], moved)]) for r in sorted(read - written))
    finals = tuple({name: registers[value] for name, value in end.items()} for end in ends)
    preactivations = tuple(_preactivations(list(end), end, registers) for end in ends)
    kept: set[int] = {source for _, source in carry}
    freed = []
    for sweep, final, t in reversed(list(zip(sweeps, finals, preactivations, strict=True))):
        freed.append(_freed(sweep, kept | {*final.values(), *t.values()}))
        kept |= set().union(*(reads(operation) for operation in sweep))
    return Loop(tuple(freed[::-1]), len(registers.numbers), given, finals, preactivations, carry)


def _steps_of(state: Mapping[str, Value], name: str) -> int:
    return state[name][1] or 0 if name in state else 0


def _later(key: Key, moved: Mapping[str, int]) -> Key:
    """The same thing one sweep later."""
    if isinstance(key, Message):
        return replace(key, inputs=tuple(_later(value, moved) for value in key.inputs))  # type: ignore[misc]
    if isinstance(key[1], tuple):
        return (key[0], _later(key[1], moved))  # type: ignore[return-value]
    return (key[0], None if key[1] is None else key[1] + moved.get(key[0], 0))


def _given(plan: Plan, registers: Registers) -> dict[str, int]:
    """Registers of version 0 of each variable that is observed, or read from where it starts."""
    read = {value for update in plan.executed for value in update.sources()} | set(plan.final.values())
    names = [*plan.observed, *plan.partial, *(name for name, version in read if version == 0)]
    return {name: registers[name, 0] for name in dict.fromkeys(names)}


def _kept(graph: Graph, plan: Plan) -> list[str]:
    """Variables whose last pre-activation is kept: wanted ones, and those whose Psi is evaluated with its help."""
    helped = [n for n, v in graph.variables.items() if type(v.regularizer).attained is not Regularizer.attained]
    return list(dict.fromkeys((*plan.want, *helped)))


def _preactivations(names: list[str], final: Mapping[str, Value], registers: Registers) -> dict[str, int]:
    keys: dict[str, Key] = {name: ("t", final[name]) for name in names}
    return {name: registers.numbers[key] for name, key in keys.items() if key in registers.numbers}


def operate(
    graph: Graph, plan: Plan, updates: list[Update], registers: Registers, wanted: set[Value]
) -> list[Operation]:
    """Send each message before its first use, then set. `wanted` are values whose pre-activation is kept."""
    operations: list[Operation] = []
    for update in updates:
        for message in update.messages:
            if message not in registers.numbers:
                operations.append(_send(graph, plan, message, registers))
        name = update.variable
        carrier = plan.biases.get(name)
        keeps = update.result in wanted or bool(update.extra)
        before = ("t", update.before)
        operations.append(
            Set(
                name,
                tuple(registers[message] for message in update.messages),
                name in plan.biases and carrier is None,
                registers[update.result],
                registers["t", update.result] if keeps else None,
                tuple(_descent(graph, message, registers) for message in update.extra),
                registers[before] if update.extra and before in registers.numbers else None,
                registers.value(update.before) if update.extra else None,
                update.iteration,
            )
        )
    return operations


def _inputs(graph: Graph, message: Message, registers: Registers) -> tuple[int, tuple[int | None, ...]]:
    variables = graph.factors[message.factor].variables
    values: Mapping[str, Value] = {value[0]: value for value in message.inputs}
    inputs = tuple(None if name == message.target else registers.value(values[name]) for name in variables)
    return variables.index(message.target), inputs


def _send(graph: Graph, plan: Plan, message: Message, registers: Registers) -> Send:
    place, inputs = _inputs(graph, message, registers)
    biased = plan.biases.get(message.target) == message.factor
    return Send(message.factor, place, message.target, inputs, biased, registers[message])


def _descent(graph: Graph, message: Message, registers: Registers) -> Descent:
    return Descent(message.factor, *_inputs(graph, message, registers))


def reads(operation: Operation) -> set[int]:
    """The registers that an operation reads."""
    if isinstance(operation, Send):
        return {r for r in operation.inputs if r is not None}
    found = {*operation.messages, *(r for d in operation.descent for r in d.inputs if r is not None)}
    return found | {r for r in (operation.start, operation.current) if r is not None}


def writes(operation: Operation) -> set[int]:
    """The registers that an operation writes."""
    if isinstance(operation, Send) or operation.preactivation is None:
        return {operation.out}
    return {operation.out, operation.preactivation}


def _freed(operations: list[Operation], kept: set[int]) -> tuple[Operation, ...]:
    """Each operation frees what nobody reads after it."""
    needed, result = set(kept), []
    for operation in reversed(operations):
        done = (reads(operation) | writes(operation)) - needed
        needed |= reads(operation)
        result.append(replace(operation, free=tuple(sorted(done))))
    return tuple(result[::-1])
