"""Sweep: one pass of an order, as a map from the values that it starts from to those that it leaves.

Its fixed points are the equilibria. What the map depends on besides its state (observed values, messages from them,
biases) is computed once, before the first pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from undirected.factors import derivative
from undirected.graph import Graph, sum_terms
from undirected.listing import Listing
from undirected.operation import Operation, Set, reads, writes
from undirected.orders import Given as GivenOrder
from undirected.orders import Order
from undirected.orders import Sweep as Groups
from undirected.plan import Plan, make
from undirected.program import Given, Program, Registers, assemble, freed, operate
from undirected.regularizers import Elementwise
from undirected.solve import activation, descent, extra_energy, load

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.solve import Watcher

Values = dict[str, "Tensor"]
KEPT = 24  # programs of random orders, each


@dataclass(frozen=True)
class Sweep:
    """A pass in which every updated variable starts from a value of its own."""

    before: Listing  # messages from what no pass changes
    listing: Listing
    registers: int
    given: Given
    held: tuple[int, ...]  # registers that the pass reads and no pass writes
    state: tuple[str, ...]  # the variables that the pass reads before it sets them
    starts: dict[str, int]  # where it reads the updated variables' values
    hints: dict[str, int]  # and their pre-activations, for inner descents
    final: dict[str, int]
    preactivations: dict[str, int]
    scores: dict[str, tuple[int, str, bool]]  # each factor's last message: register, receiver, is the bias in it?


@dataclass(frozen=True)
class Left:
    """What a pass leaves: the updated variables, their pre-activations, and the energy but for a constant."""

    values: Values
    preactivations: Values
    registers: list[Tensor | None]


def sweep_of(graph: Graph, plan: Plan, groups: Groups) -> Sweep:
    """The pass over these groups, for the query of a plan."""
    names = tuple(dict.fromkeys(name for group in groups for name in group))
    # What the query starts from and never updates stays as it is.
    fixed = [name for name, (_, version) in plan.final.items() if version == 0 and name not in names]
    started = [name for name in (*fixed, *names) if name not in (*plan.observed, *plan.partial)]
    once = make(graph, plan.observed, plan.partial, started, plan.want, GivenOrder(groups), 1, keep_all=True)
    registers = Registers()
    hints = {name: registers["t", (name, 0)] for name in names if graph.extra_energies(name)}
    operations = operate(graph, once, once.executed, registers, set(once.final.values()))
    moving = {registers[name, 0] for name in names if (name, 0) in registers.numbers} | set(hints.values())
    before: list[Operation] = []
    within: list[Operation] = []
    for operation in operations:
        is_moving = isinstance(operation, Set) or bool(reads(operation) & moving)
        (within if is_moving else before).append(operation)
        moving |= writes(operation) if is_moving else set()
    starts = {name: registers[name, 0] for name in names if (name, 0) in registers.numbers}
    read: set[int] = set()
    for operation in within:
        read |= {r for r in reads(operation) if not isinstance(operation, Set) or r != operation.current}
    final = {name: registers[once.final[name]] for name in names}
    preactivations = {name: registers["t", once.final[name]] for name in names}
    scores = _scores(graph, once, registers)
    given = registers.given(once)
    given = replace(given, values={name: r for name, r in given.values.items() if name not in starts})
    used = set().union(*(reads(operation) for operation in within)) | {
        operation.bias for operation in within if operation.bias is not None
    }
    written = set().union(*(writes(operation) for operation in within))
    messages = {register for register, _, _ in scores.values()}
    held = (used | messages) - written - set(starts.values()) - set(hints.values())
    nothing = registers.numbers.get(("nothing", -1))
    kept = {*final.values(), *preactivations.values(), *messages}
    return Sweep(
        Listing(freed(before, kept | used)),
        Listing(freed(within, kept)),
        len(registers.numbers),
        given,
        tuple(sorted(held - {nothing})),
        tuple(name for name, register in starts.items() if register in read or name in hints),
        starts,
        hints,
        final,
        preactivations,
        scores,
    )


def _scores(graph: Graph, once: Plan, registers: Registers) -> dict[str, tuple[int, str, bool]]:
    """For each factor the message to that of its variables which is set last: all its inputs are final."""
    found: dict[str, tuple[int, str, bool]] = {}
    for update in once.executed:
        for message in update.messages:
            is_final = all(once.final[name] == (name, version) for name, version in message.inputs)
            if is_final and once.final[update.variable] == update.result:
                carries = once.biases.get(update.variable) == message.factor
                found[message.factor] = (registers.numbers[message], update.variable, carries)
    return found


class Route:
    """The sweeps of a query, as its order gives them."""

    def __init__(self, plan: Plan, started: tuple[str, ...], order: Order) -> None:
        self.plan, self.started, self.order = plan, started, order
        self._programs: dict[Groups, Program] = {}
        self._sweeps: dict[Groups, Sweep] = {}

    @property
    def listings(self) -> tuple[Listing, ...]:
        return ()

    def first(self, graph: Graph) -> Program:
        """The sweep from where the query starts."""
        groups = self._groups(graph)
        if groups not in self._programs:
            plan, order = self.plan, GivenOrder(groups)
            once = make(graph, plan.observed, plan.partial, self.started, plan.want, order, 1, keep_all=True)
            program = assemble(graph, once, everything=True)
            self._programs = {**dict(list(self._programs.items())[-KEPT:]), groups: program}
        return self._programs[groups]

    def next(self, graph: Graph) -> Sweep:
        """A sweep after the first."""
        groups = self._groups(graph)
        if groups not in self._sweeps:
            self._sweeps = {**dict(list(self._sweeps.items())[-KEPT:]), groups: sweep_of(graph, self.plan, groups)}
        return self._sweeps[groups]

    def _groups(self, graph: Graph) -> Groups:
        plan = self.plan
        return self.order.sweeps(graph, (*plan.observed, *plan.partial), plan.partial, 1)[0]


class Map:
    """A sweep with all that one call was given: a function from values to values."""

    def __init__(self, graph: Graph, sweep: Sweep, evidence: Evidence) -> None:
        self.graph, self.sweep, self.evidence = graph, sweep, evidence
        self.base = load(graph, sweep.given, sweep.registers, evidence)
        self._run(sweep.before, self.base, {}, None, None)

    def activations(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {name: activation(self.graph, name, self.evidence) for name in self.graph._variables}

    def rows(self, index: Tensor, evidence: Evidence) -> None:
        """Go on with these examples only; `evidence` is theirs."""
        biases = set(self.sweep.given.biases.values())
        self.base = [r if r is None or i in biases else r[index] for i, r in enumerate(self.base)]
        self.evidence = evidence

    def observing(self, values: dict[str, Tensor]) -> Map:
        """The same map with other tensors for what is observed, where it is looked at directly."""
        other = copy(self)
        other.evidence = replace(self.evidence, values=values)
        return other

    def held(self) -> list[Tensor | None]:
        """What the map depends on besides its state and the weights."""
        return [self.base[register] for register in self.sweep.held]

    def __call__(
        self,
        values: Mapping[str, Tensor],
        preactivations: Mapping[str, Tensor],
        activations: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
        watch: Watcher | None = None,
        held: list[Tensor | None] | None = None,
        linear: bool = False,
        nudge: Mapping[str, Tensor] | None = None,
    ) -> Left:
        """One pass. With `linear`, inner descents make one full step, whose derivatives are those of a solution.

        `nudge` is taken from the pre-activations, as if the energy had `<nudge, x>` in it.
        """
        registers = list(self.base)
        for register, tensor in zip(self.sweep.held, held or (), strict=held is not None):
            registers[register] = tensor
        for name, register in self.sweep.starts.items():
            registers[register] = values.get(name)  # only those of the state are read
        for name, register in self.sweep.hints.items():
            registers[register] = preactivations[name]
        activations = dict(activations or self.activations())
        descend = self._step if linear else descent(self.graph, activations, self.evidence)
        if nudge is not None:
            activations = {**activations, **{name: _nudged(activations[name], nudge[name]) for name in nudge}}
            inner = descend
            descend = lambda operation, t, inputs: inner(operation, t - nudge[operation.variable], inputs)  # noqa: E731
        self._run(self.sweep.listing, registers, activations, watch, descend)
        found: Values = {name: registers[register] for name, register in self.sweep.final.items()}  # type: ignore[misc]
        t: Values = {name: registers[register] for name, register in self.sweep.preactivations.items()}  # type: ignore[misc]
        for name in nudge or {}:
            if name not in self.sweep.hints:
                t[name] = t[name] - nudge[name]  # type: ignore[index]
        return Left(found, t, registers)

    def _run(self, listing, registers, activations, watch, descend):
        factors = self.graph.factors._modules
        listing.function(False)(registers, factors, activations, self.evidence, watch, None, descend)

    def _step(self, operation: Set, t: Tensor, values: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        """`t = z - gradient of the energy`: what holds where an inner descent has ended."""
        assert operation.current is not None
        slope = derivative(
            lambda x: extra_energy(self.graph, operation, x, values, self.evidence).sum(), values[operation.current]
        )
        t = t - slope
        return activation(self.graph, operation.variable, self.evidence)(t), t

    def energy(self, left: Left) -> tuple[Tensor, Tensor]:
        """The energy of each example after a pass, but for what no pass changes, and its terms' sizes together.

        Computes no new messages, and adds up in float64.
        """
        graph, evidence = self.graph, self.evidence
        values, biased = left.values, {target for _, target, carries in self.sweep.scores.values() if carries}
        terms = {}
        for name, x in values.items():
            terms[name] = self._psi(name, x, left.preactivations[name])
            if name not in biased and (bias := graph.bias(name)) is not None:
                terms[f"bias {name}"] = -_total(bias * x)
        every = {name: evidence.zeros(name) for name in graph.variables} | evidence.values | evidence.start | values
        for name, factor in graph.factors.items():
            if name not in self.sweep.scores:
                if any(variable in values for variable in factor.variables):
                    terms[f"factor {name}"] = graph.factor_term(name, every, evidence).double()
                continue
            register, target, _ = self.sweep.scores[name]
            message = left.registers[register]
            assert message is not None
            x = values[target]
            if factor.shifts(factor.variables.index(target)):
                inputs: list = [x if v == target else None for v in factor.variables]
                masks = [evidence.masks[v] for v in factor.variables]
                x = factor.shifted(inputs, masks)[factor.variables.index(target)]
            terms[f"factor {name}"] = -_total(message * x)
        return sum_terms(terms), sum_terms({name: term.abs() for name, term in terms.items()})

    def _psi(self, name: str, x: Tensor, t: Tensor) -> Tensor:
        """`Psi(x) = <t, x> - Psi*(t)`, which is cheaper than by its definition."""
        evidence, mask = self.evidence, self.evidence.masks[name]
        regularizer = self.graph.variables[name].regularizer
        if name in evidence.known or name in evidence.dropout:
            return self.graph.psi(name, x, t, evidence).double()
        if isinstance(regularizer, Elementwise) and regularizer.scale == 1.0:
            psi = (t * x).sub_(regularizer.psi_star(t))
            return _total(psi if mask is None else torch.where(mask, psi, 0))
        return _total(t * x if mask is None else torch.where(mask, t * x, 0)) - regularizer.conjugate(t, mask).double()


def _total(x: Tensor) -> Tensor:
    return x.reshape(len(x), -1).sum(1, dtype=torch.float64)


def _nudged(activate: Callable[[Tensor], Tensor], nudge: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda t: activate(t - nudge)


def preactivation(graph: Graph, name: str, values: Mapping[str, Tensor], evidence: Evidence) -> Tensor:
    """A block's pre-activation at these values of all variables: minus the energy's derivative without Psi."""

    def rest(x: Tensor) -> Tensor:
        every = {**values, name: x}
        return sum_terms({f: graph.factor_term(f, every, evidence) for f, _ in graph.links[name]}).sum()

    t = -derivative(rest, values[name]) if graph.links[name] else torch.zeros_like(values[name])
    bias = graph.bias(name)
    return t if bias is None else t + bias
