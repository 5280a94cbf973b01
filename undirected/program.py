"""Program: a plan as a straight list of tensor operations on numbered registers, each freed after its last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from undirected.factors import Directed
from undirected.listing import Listing
from undirected.missing import row_axes
from undirected.operation import Descent, Operation, Send, Set, reads, writes
from undirected.plan import Message, Plan, Update, Value
from undirected.regularizers import Elementwise, Regularizer

if TYPE_CHECKING:
    from undirected.graph import Graph

#: What a register holds: a value (zeros for version None), a message, or what a mark says: the pre-activation "t" of
#: a value, the "bias" of a variable. One register always holds nothing.
Key = Value | Message | tuple[str, Value | tuple[str]]
NOTHING: Key = ("nothing", -1)


@dataclass(frozen=True)
class Given:
    """Where a program finds what it starts from, by variable."""

    values: dict[str, int]
    zeros: dict[str, int]
    biases: dict[str, int]


@dataclass(frozen=True)
class Program:
    """Operations, where they find what the call was given, and where they leave the results."""

    listing: Listing
    registers: int
    given: Given
    final: dict[str, int | None]
    preactivations: dict[str, int]

    @property
    def listings(self) -> tuple[Listing, ...]:
        return (self.listing,)


@dataclass(frozen=True)
class Loop:
    """Three sweeps: the first from the start, the second, and one that can be repeated for ever.

    After each repetition `carry` moves registers to where the next one reads them, so that messages computed in one
    sweep serve the next.
    """

    listings: tuple[Listing, ...]
    registers: int
    given: Given
    finals: tuple[dict[str, int], ...]  # the updated variables after each of the three
    preactivations: tuple[dict[str, int], ...]
    carry: tuple[tuple[int, int], ...]


class Registers:
    """Numbers for keys, in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}

    def __getitem__(self, key: Key) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def bias(self, name: str) -> int:
        return self["bias", (name,)]

    def given(self, plan: Plan) -> Given:
        """All that has been asked for and that no operation makes."""
        names = (*plan.observed, *plan.partial)
        values = {name: self[name, 0] for name in names}
        zeros, biases = {}, {}
        for key, number in self.numbers.items():
            if isinstance(key, Message):
                continue
            if key[0] == "bias" and isinstance(key[1], tuple):
                biases[key[1][0]] = number
            elif key[1] is None:
                zeros[key[0]] = number
            elif key[1] == 0:
                values[key[0]] = number
        return Given(values, zeros, biases)


def assemble(graph: Graph, plan: Plan, everything: bool = False) -> Program:
    """The operations of a plan, with every register freed after its last use.

    With `everything`, the last pre-activations of all that is updated are kept, not only of what is wanted.
    """
    registers = Registers()
    kept = list(plan.updated) if everything else helpful(graph, plan)
    # Other ways to solve look at whole pre-activations, so they compute whole messages.
    partial = () if everything else [name for name in plan.partial if _goes_by_rows(graph, name)]
    operations = operate(graph, plan, plan.executed, registers, {plan.final[name] for name in kept}, partial)
    final = {name: None if value[1] is None else registers[value] for name, value in plan.final.items()}
    preactivations = _preactivations(kept, plan.final, registers)
    given = registers.given(plan)
    last = {*(r for r in final.values() if r is not None), *preactivations.values(), *given.biases.values()}
    return Program(Listing(freed(operations, last)), len(registers.numbers), given, final, preactivations)


def assemble_loop(graph: Graph, plan: Plan) -> Loop:
    """The same for a plan of three iterations of one sweep, of which the third can be repeated."""
    registers = Registers()
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
    given = registers.given(plan)
    kept: set[int] = {source for _, source in carry} | {*given.biases.values(), *given.zeros.values()}
    sections = []
    for sweep, final, t in reversed(list(zip(sweeps, finals, preactivations, strict=True))):
        sections.append(freed(sweep, kept | {*final.values(), *t.values()}))
        kept |= set().union(*(reads(operation) for operation in sweep))
    return Loop(tuple(map(Listing, sections[::-1])), len(registers.numbers), given, finals, preactivations, carry)


def _steps_of(state: Mapping[str, Value], name: str) -> int:
    return state[name][1] or 0 if name in state else 0


def _later(key: Key, moved: Mapping[str, int]) -> Key:
    """The same thing one sweep later."""
    if isinstance(key, Message):
        return replace(key, inputs=tuple(_later(value, moved) for value in key.inputs))  # type: ignore[misc]
    if isinstance(key[1], tuple):
        if key[0] == "bias":
            return key
        return (key[0], _later(key[1], moved))  # type: ignore[return-value, arg-type]
    return (key[0], None if key[1] is None else key[1] + moved.get(key[0], 0))


def helpful(graph: Graph, plan: Plan) -> list[str]:
    """Variables whose last pre-activation is kept: wanted ones, and those whose Psi is evaluated with its help."""
    helped = [n for n, v in graph.variables.items() if type(v.regularizer).attained is not Regularizer.attained]
    return list(dict.fromkeys((*plan.want, *helped)))


def _preactivations(names: list[str], final: Mapping[str, Value], registers: Registers) -> dict[str, int]:
    keys: dict[str, Key] = {name: ("t", final[name]) for name in names}
    return {name: registers.numbers[key] for name, key in keys.items() if key in registers.numbers}


def operate(
    graph: Graph,
    plan: Plan,
    updates: list[Update],
    registers: Registers,
    wanted: set[Value],
    partial: Sequence[str] = (),
) -> list[Operation]:
    """Send each message before its first use, then set.

    `wanted` are values whose pre-activation is kept, `partial` variables of which missing rows are enough.
    """
    operations: list[Operation] = []
    for update in updates:
        for message in update.messages:
            if message not in registers.numbers:
                operations.append(_send(graph, plan, message, registers, partial))
        name = update.variable
        carrier = plan.biases.get(name)
        keeps = update.result in wanted or bool(update.extra)
        before = ("t", update.before)
        operations.append(
            Set(
                name,
                tuple(registers[message] for message in update.messages),
                registers.bias(name) if name in plan.biases and carrier is None else None,
                registers[update.result],
                registers["t", update.result] if keeps else None,
                tuple(_descent(graph, message, registers) for message in update.extra),
                registers[before] if update.extra and before in registers.numbers else None,
                registers[update.before] if update.extra and update.before[1] is not None else None,
                update.iteration,
            )
        )
    return operations


def _inputs(graph: Graph, message: Message, registers: Registers) -> tuple[int, tuple[int, ...]]:
    variables = graph.factors[message.factor].variables
    values: dict[str, Value] = {value[0]: value for value in message.inputs}
    place = variables.index(message.target)
    stand_in = graph.factors[message.factor].reads_stand_in(place)
    values[message.target] = (message.target, None) if stand_in else NOTHING  # type: ignore[assignment]
    return place, tuple(registers[values[name]] for name in variables)


def _goes_by_rows(graph: Graph, name: str) -> bool:
    """Is a variable's update one of each row by itself, which needs nothing of the known rows' pre-activations?"""
    variable = graph.variables[name]
    return isinstance(variable.regularizer, Elementwise) and bool(row_axes(variable)) and not graph.extra_energies(name)


def _by_rows(
    graph: Graph, message: Message, registers: Registers, partial: Sequence[str]
) -> tuple[str | None, int | None]:
    """The partly observed variable whose missing rows a message can do with, and the message that it adds to."""
    if not partial or not graph.factors[message.factor].is_row_wise:
        return None, None
    if message.target in partial:
        return message.target, None
    ((sender, version),) = message.inputs
    base = replace(message, inputs=((sender, 0),))
    if sender in partial and version and base in registers.numbers:
        return sender, registers[base]
    return None, None


def _send(graph: Graph, plan: Plan, message: Message, registers: Registers, partial: Sequence[str]) -> Send:
    rows_of, base = _by_rows(graph, message, registers, partial)
    place, inputs = _inputs(graph, message, registers)
    biased = plan.biases.get(message.target) == message.factor
    bias = registers.bias(message.target) if biased else None
    factor = graph.factors[message.factor]
    is_shifted = any(factor.shifts(i) for i in range(len(factor.variables)))
    is_directed = isinstance(factor.original, Directed)
    return Send(message.factor, place, inputs, bias, is_shifted, is_directed, registers[message], rows_of, base)


def _descent(graph: Graph, message: Message, registers: Registers) -> Descent:
    return Descent(message.factor, *_inputs(graph, message, registers))


def freed(operations: list[Operation], kept: set[int]) -> tuple[Operation, ...]:
    """Each operation frees what nobody reads after it."""
    needed, result = set(kept), []
    for operation in reversed(operations):
        done = (reads(operation) | writes(operation)) - needed
        needed |= reads(operation)
        result.append(replace(operation, free=tuple(sorted(done))))
    return tuple(result[::-1])
