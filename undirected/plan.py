"""Plan: the unrolling lemma as a compiler. What a call will do, decided without looking at any number.

A run of block coordinate descent is a list of updates; each update adds up messages. The plan gives every value of
every variable a version, and so knows each message by its factor, its receiver and the versions that it is made
from. A message known by the same key is the same tensor: it is computed once. That hoists messages from observed
variables and reuses the others until something they depend on changes. Messages from variables that are still zero
are skipped, and updates that nothing wanted depends on are pruned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from undirected import orders
from undirected.errors import QueryError, unknown
from undirected.graph import Graph
from undirected.orders import Order, Sweep

#: A value of a variable: its name and version. Version 0 was given, version None is the zero that it starts from.
Value = tuple[str, int | None]


@dataclass(frozen=True)
class Message:
    """What a factor sends to a variable, given values of the factor's other variables."""

    factor: str
    target: str
    inputs: tuple[Value, ...]

    @property
    def is_constant(self) -> bool:
        """Does it come only from what the call was given?"""
        return all(not version for _, version in self.inputs)


@dataclass(frozen=True)
class Update:
    """One block update of the order, and where each of its messages comes from."""

    iteration: int
    position: int
    variable: str
    version: int
    messages: tuple[Message, ...]
    skipped: tuple[str, ...]  # factors whose message is zero
    extra: tuple[Message, ...]  # energies that an inner descent minimises
    before: Value  # what the block was
    is_repeated: bool  # nothing that it depends on has changed: the block stays as it is

    @property
    def result(self) -> Value:
        return (self.variable, self.version)

    def sources(self) -> set[Value]:
        values = {value for message in (*self.messages, *self.extra) for value in message.inputs}
        return values | {self.before} if self.extra else values


@dataclass(frozen=True)
class Savings:
    """How many messages a naive unrolling computes, and what became of them."""

    naive: int
    computed: int
    hoisted: int
    reused: int
    skipped: int
    pruned: int

    def __str__(self) -> str:
        return (
            f"{self.computed} of {self.naive} messages computed; {self.hoisted} hoisted, {self.reused} reused, "
            f"{self.skipped} skipped, {self.pruned} pruned"
        )


@dataclass(frozen=True)
class Plan:
    """What a call will do, step by step. Plain data; `print(plan)` shows it."""

    observed: tuple[str, ...]
    partial: tuple[str, ...]
    want: tuple[str, ...]
    updates: tuple[Update, ...]
    live: tuple[bool, ...]
    updated: tuple[str, ...]  # the variables that are
    final: dict[str, Value]  # the last value of each variable that is computed
    activations: dict[str, str] = field(compare=False)
    biases: dict[str, str | None]  # variables with a bias, and the factor whose message carries it

    @property
    def executed(self) -> list[Update]:
        """The updates that are run."""
        return _executed(self.updates, self.live)

    @property
    def computed(self) -> list[Message]:
        """The messages that are computed, in their order."""
        return list(dict.fromkeys(message for update in self.executed for message in update.messages))

    @property
    def savings(self) -> Savings:
        counts = dict.fromkeys(("hoisted", "reused", "skipped", "pruned"), 0)
        seen: set[Message] = set()
        naive = 0
        for update, live in zip(self.updates, self.live, strict=True):
            naive += len(update.messages) + len(update.skipped)
            if not live:
                counts["pruned"] += len(update.messages) + len(update.skipped)
                continue
            counts["skipped"] += len(update.skipped)
            for message in update.messages:
                if message in seen:
                    counts["hoisted" if message.is_constant else "reused"] += 1
                seen.add(message)
        return Savings(naive=naive, computed=len(seen), **counts)

    def __str__(self) -> str:
        given = ", ".join([*self.observed, *(f"{name} (in part)" for name in self.partial)]) or "nothing"
        lines = [f"observe {given}; want {', '.join(self.want)}"]
        seen: set[Message] = set()
        width = max((len(u.variable) for u in self.updates), default=1)
        for update, live in zip(self.updates, self.live, strict=True):
            lines.append(
                f"{update.iteration}.{update.position:<3} {update.variable:<{width}} {self._show(update, live, seen)}"
            )
            if live:
                seen.update(update.messages)
        lines.append(f"({self.savings}; [in brackets]: computed before)")
        return "\n".join(lines)

    def _show(self, update: Update, live: bool, seen: set[Message]) -> str:
        if not live:
            return "  pruned: nothing wanted depends on it"
        if update.is_repeated:
            return "  stays: nothing it depends on has changed"
        terms = ["b"] if update.variable in self.biases else []
        terms += [f"[{message.factor}]" if message in seen else message.factor for message in update.messages]
        line = f"= {self.activations[update.variable]}({' + '.join(terms) or '0'})"
        if update.extra:
            line = f"= inner descent of {', '.join(m.factor for m in update.extra)} from {line[2:]}"
        if update.skipped:
            line += f"   skipped, still zero: {', '.join(update.skipped)}"
        return line


def make(
    graph: Graph,
    observed: Iterable[str],
    partial: Iterable[str],
    started: Iterable[str],
    want: Iterable[str] | None,
    order: Order,
    iterations: int,
    keep_all: bool = False,
) -> Plan:
    """Compile a query. `observed` are known whole, `partial` in part, `started` begin elsewhere than at zero.

    Without `want`, everything that the order updates is wanted. With `keep_all` nothing is pruned: the whole course
    is wanted, not only its end.
    """
    observed, partial, started = tuple(observed), tuple(partial), tuple(started)
    sweeps = order.sweeps(graph, (*observed, *partial), partial, iterations)
    for sweep in dict.fromkeys(sweeps):
        orders.check(sweep, graph, set(observed))
    if want is None:
        want = dict.fromkeys([*partial, *(name for sweep in sweeps for group in sweep for name in group)])
    want = _wanted(graph, want, observed, partial)
    _check_reached(graph, want, sweeps, observed, partial, started)
    versions: dict[str, int | None] = dict.fromkeys(graph.variables)
    versions |= dict.fromkeys((*observed, *partial, *started), 0)
    updates = _unroll(graph, sweeps, versions)
    live = [True] * len(updates) if keep_all else _live(updates, {(name, versions[name]) for name in want})
    final: dict[str, Value] = {name: (name, None) for name in graph.variables}
    final |= {name: (name, 0) for name in (*observed, *partial, *started)}
    final |= {u.variable: u.result for u, is_live in zip(updates, live, strict=True) if is_live}
    executed = _executed(updates, live)
    return Plan(
        observed,
        partial,
        want,
        tuple(updates),
        tuple(live),
        tuple(dict.fromkeys(update.variable for update in executed)),
        final,
        {name: type(variable.regularizer).__name__ for name, variable in graph.variables.items()},
        {name: _carrier(graph, name, executed) for name, v in graph.variables.items() if v.bias is not False},
    )


def _executed(updates: Sequence[Update], live: Sequence[bool]) -> list[Update]:
    return [u for u, is_live in zip(updates, live, strict=True) if is_live and not u.is_repeated]


def _unroll(graph: Graph, sweeps: list[Sweep], versions: dict[str, int | None]) -> list[Update]:
    """Every update in turn; `versions` follows what each variable is."""
    updates: list[Update] = []
    last: dict[str, Update] = {}
    for iteration, sweep in enumerate(sweeps, 1):
        names = [name for group in sweep for name in group]
        for position, name in enumerate(names, 1):
            messages, skipped, extra = _incoming(graph, name, versions)
            before = last.get(name)
            is_repeated = before is not None and not extra and before.messages == messages
            version = versions[name] if is_repeated else (versions[name] or 0) + 1
            assert version is not None
            update = Update(
                iteration, position, name, version, messages, skipped, extra, (name, versions[name]), is_repeated
            )
            versions[name] = version
            last[name] = update
            updates.append(update)
    return updates


def _incoming(
    graph: Graph, name: str, versions: dict[str, int | None]
) -> tuple[tuple[Message, ...], tuple[str, ...], tuple[Message, ...]]:
    """The messages to a variable, the factors whose message is zero, and the energies that are not multilinear."""
    messages, skipped = [], []
    extra = graph.extra_energies(name)
    for factor_name, place in graph.links[name]:
        if factor_name in extra:
            continue
        factor = graph.factors[factor_name]
        others = [(i, other) for i, other in enumerate(factor.variables) if i != place]
        if any(versions[other] is None and not factor.shifts(i) for i, other in others):
            skipped.append(factor_name)
        else:
            messages.append(Message(factor_name, name, tuple((other, versions[other]) for _, other in others)))
    energies = []
    for f in extra:
        inputs = tuple((other, versions[other]) for other in graph.factors[f].variables if other != name)
        if any(version is None for _, version in inputs):  # an energy with an absent variable is absent too
            skipped.append(f)
        else:
            energies.append(Message(f, name, inputs))
    return tuple(messages), tuple(skipped), tuple(energies)


def _live(updates: list[Update], needed: set[Value]) -> list[bool]:
    """Which updates something wanted depends on, from the last to the first."""
    live = []
    for update in reversed(updates):
        live.append(update.result in needed)
        if live[-1] and not update.is_repeated:
            needed |= update.sources()
    return live[::-1]


def _carrier(graph: Graph, name: str, executed: list[Update]) -> str | None:
    """A factor that sends to the variable in all its updates and can add the bias on the way."""
    mine = [{m.factor for m in u.messages} for u in executed if u.variable == name]
    always = set.intersection(*mine) if mine else set()
    return next((f for f, place in graph.links[name] if f in always and graph.factors[f].fuses_bias(place)), None)


def _wanted(graph: Graph, want: Iterable[str], observed: tuple[str, ...], partial: tuple[str, ...]) -> tuple[str, ...]:
    want = tuple(dict.fromkeys(want))
    given = {*observed, *partial}
    for name in want:
        if name not in graph.variables:
            raise QueryError(f"want: {unknown('variable', name, graph.variables)}")
    reached = graph.reachable(given) if given else set(graph.variables)
    for name in want:
        if name not in reached:
            raise QueryError(
                f"want: {name} cannot be reached from what is observed ({', '.join(sorted(given))}): no chain of "
                f"factors joins them. Reached are {', '.join(n for n in graph.variables if n in reached)}."
            )
    for name, factor in graph.directed_inputs().items():
        if name not in observed and name in reached:
            raise QueryError(f"observe: {name} feeds the directed factor {factor!r}, so it must be observed whole.")
    return want


def _check_reached(
    graph: Graph,
    want: tuple[str, ...],
    sweeps: list[Sweep],
    observed: tuple[str, ...],
    partial: tuple[str, ...],
    started: tuple[str, ...],
) -> None:
    updated = {name for sweep in sweeps for group in sweep for name in group}
    for name in want:
        if name not in updated and name not in (*observed, *partial, *started):
            raise QueryError(
                f"want: {name} is neither observed nor updated. Add it to the order, which updates "
                f"{', '.join(n for n in graph.variables if n in updated)}."
            )
