"""Acceleration: whole sweeps extrapolated, where that does not raise the energy; and damped updates.

What is extrapolated are the pre-activations t of the variables that a sweep starts from: `x = activation(t)` lies in
its domain, whatever t is. Far from an equilibrium that is done with momentum; near it, where a sweep is almost linear,
by Anderson's method, as long as its predictions hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from undirected.anderson import Anderson
from undirected.equilibrium import Course, Tolerance
from undirected.graph import Graph
from undirected.momentum import Momentum
from undirected.program import helpful
from undirected.regularizers import total
from undirected.solve import run
from undirected.sweep import Left, Map, Route, Values

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.operation import Set
    from undirected.solve import Watcher


NEAR = 1e-2  # errors below this part of the values are near enough for Anderson
TRUST = 0.5  # where a linear map would leave less of the error than this, Anderson is used
DOUBT = 0.1  # what an extrapolation by Anderson that was taken back leaves of that trust


class Swept(Course):
    """Sweeps from any point: extrapolated, damped, or in an order that changes."""

    def __init__(
        self,
        graph: Graph,
        route: Route,
        evidence: Evidence,
        until: Tolerance,
        watch: Watcher | None = None,
        start: tuple[Values, Values] | None = None,
        nudge: Values | None = None,
    ) -> None:
        """Begins at `start`, values and pre-activations of all that is updated. `<nudge, x>` is added to the energy."""
        super().__init__(graph, evidence)
        self.nudge = nudge
        self.route, self.damping, self.watch = route, until.damping, watch
        self.anderson = Anderson(until.depth) if until.acceleration else None
        self.momentum = Momentum()
        self.kept = {*helpful(graph, route.plan), *(name for name in graph.variables if graph.extra_energies(name))}
        self.trust = torch.full((evidence.batch,), TRUST, dtype=torch.float64, device=evidence.device)
        self.used = torch.zeros_like(self.trust, dtype=torch.bool)  # which examples start where Anderson said
        self.shrinks = torch.zeros_like(self.used)  # whose error was smaller in the last sweep than before
        self.map: Map | None = None
        self.start: tuple[Values, Values] = start or ({}, {})  # the next sweep's values and pre-activations
        self.started: Values = {}  # the last one's
        self.lowest: Tensor | None = None  # the lowest energy so far
        self.size: Tensor | None = None  # of the error of what was accepted
        self.jumped: Tensor | None = None  # which examples start where no sweep has been

    def sweep(self, iteration: int) -> Mapping[str, Tensor]:
        if not self.start[0] and iteration == 1:
            program = self.route.first(self.graph)
            registers = run(self.graph, program, self.evidence, self.watch)
            self.values = {name: registers[program.final[name]] for name in program.preactivations}  # type: ignore[index, misc]
            self.preactivations = {name: registers[r] for name, r in program.preactivations.items()}  # type: ignore[misc]
            self.start = self.values, self.preactivations
            return {}
        sweep = self.route.next(self.graph)
        if self.map is None or self.map.sweep is not sweep:
            self.map = Map(self.graph, sweep, self.evidence)
        left, t = self._pass(self.map)
        # What the sweep does not start from is compared with what it was.
        started = {**(self.values or self.start[0]), **{name: self.start[0][name] for name in sweep.state}}
        if self.anderson is None:
            self.values, self.preactivations, self.started = left.values, t, started
            self.start = self.values, self.preactivations
            return self.started
        energy, terms = self._energy(self.map, replace(left, preactivations=t))
        values = left.values
        del left  # with its messages
        if not self.damping:
            t = {name: each for name, each in t.items() if name in self.kept or name in sweep.state}
        self._accept(self.map, values, t, started, energy, terms, self.anderson)
        return self.started

    def _pass(self, step: Map) -> tuple[Left, Values]:
        if not self.damping:
            left = step(*self.start, watch=self.watch, nudge=self.nudge)
            return left, left.preactivations
        activations = step.activations()
        damped = {
            name: _Damped(activations[name], self.start[1][name], self.damping)
            for name in step.sweep.final
            if name not in step.sweep.hints  # these have a step size of their own
        }

        def watch(operation: Set, x: Tensor, t: Tensor) -> None:
            assert self.watch is not None
            self.watch(operation, x, damped[operation.variable].t if operation.variable in damped else t)

        activations = {**activations, **damped}
        left = step(*self.start, activations=activations, watch=watch if self.watch else None, nudge=self.nudge)
        return left, {**left.preactivations, **{name: each.t for name, each in damped.items()}}

    @torch.no_grad()
    def _energy(self, step: Map, left: Left) -> tuple[Tensor, Tensor]:
        """Of each example after a pass, and its terms' sizes together."""
        energy, terms = step.energy(left)
        for name, slope in (self.nudge or {}).items():
            energy = energy + total(slope * left.values[name])
        return energy, terms

    def _accept(
        self, step: Map, values: Values, t: Values, started: Values, energy: Tensor, terms: Tensor, anderson: Anderson
    ) -> None:
        """Take the sweep where it lowered the energy, go back where it did not, and choose where the next begins."""
        state = step.sweep.state
        batch = self.evidence.batch
        x = _flat(values, state, batch)
        error = x - _flat(started, state, batch)
        worse = self._judge(energy, terms, error.detach().norm(dim=1))
        any_worse = bool(worse.any())
        image, before = _flat(t, state, batch), _flat(self.start[1], state, batch)
        if any_worse:
            image, error, before = torch.nan_to_num(image), torch.nan_to_num(error), torch.nan_to_num(before)
            values = {name: _where(worse, self.values[name], each) for name, each in values.items()}
            t = {name: _where(worse, self.preactivations[name], each) for name, each in t.items()}
            started = {name: _where(worse, self.started.get(name, each), each) for name, each in started.items()}
        self.values, self.preactivations, self.started = values, t, started
        self.start, self.jumped = (values, t), ~worse
        if not state:
            return
        proposal = self.momentum(image, image.detach() - before.detach(), worse if any_worse else None)
        with torch.no_grad():
            self.trust = torch.where(worse & self.used, DOUBT * self.trust, self.trust)
            near = error.abs().amax(1) <= NEAR * x.abs().amax(1).clamp_min(1)
        if anderson.image is None and not bool(near.any()):
            self.used = torch.zeros_like(near)
        else:
            combined = anderson(image, error)
            assert anderson.left is not None
            if any_worse:
                anderson.forget(worse)
            # Where the error grows, a sweep leads away from a saddle, to which Anderson would go back.
            self.used = near & ~worse & self.shrinks & (anderson.left < self.trust)
            proposal = torch.where(self.used[:, None], combined, proposal)
        next_values, next_t = dict(values), dict(t)
        widths = [t[name][0].numel() for name in state]
        activations = step.activations()
        for name, part in zip(state, proposal.split(widths, 1), strict=True):
            t_next = part.reshape(t[name].shape)
            x_next = activations[name](t_next)
            next_t[name] = _where(worse, t[name], t_next) if any_worse else t_next
            next_values[name] = _where(worse, values[name], x_next) if any_worse else x_next
        self.start = next_values, next_t

    @torch.no_grad()
    def _judge(self, energy: Tensor, terms: Tensor, size: Tensor) -> Tensor:
        """Which extrapolated sweeps to take back; the energy and the size of the error of what is kept are noted.

        Where the energy rose, they are taken back. Near the end rounding hides whether it did: there the error must
        not grow, if Anderson said that it would shrink.
        """
        if self.lowest is None or self.size is None or self.jumped is None:
            self.lowest, self.size, self.shrinks = energy, size, torch.zeros_like(self.used)
            return torch.zeros_like(self.used)
        slack = torch.finfo(size.dtype).eps * (1 + terms)
        worse = self.jumped & ~((energy <= self.lowest + slack) & (~self.used | (size <= self.size)))
        self.shrinks = size < self.size
        self.lowest = torch.where(worse, self.lowest, torch.minimum(energy, self.lowest))
        self.size = torch.where(worse, self.size, size)
        return worse

    def rows(self, index: Tensor) -> None:
        super().rows(index)
        self.start = _rows(self.start[0], index), _rows(self.start[1], index)
        self.started = _rows(self.started, index)
        self.lowest = None if self.lowest is None else self.lowest[index]
        self.size = None if self.size is None else self.size[index]
        self.jumped = None if self.jumped is None else self.jumped[index]
        self.nudge = None if self.nudge is None else _rows(self.nudge, index)
        if self.anderson is not None:
            self.anderson.rows(index)
            self.momentum.rows(index)
            self.trust, self.used, self.shrinks = self.trust[index], self.used[index], self.shrinks[index]
        if self.map is not None:
            self.map.rows(index, self.evidence)


class _Damped:
    """An activation of pre-activations that go only a part of their way; `t` is where the last one went.

    Between its old t and z, the energy of a block falls all the way: its slope is `-(1 - s) |z - t|^2` in the metric
    of the activation's derivative.
    """

    def __init__(self, activation: Callable[[Tensor], Tensor], t: Tensor, damping: float) -> None:
        self.activation, self.t, self.damping = activation, t, damping

    def __call__(self, z: Tensor) -> Tensor:
        self.t = torch.lerp(z, self.t, self.damping)
        return self.activation(self.t)


def _flat(values: Mapping[str, Tensor], names: Sequence[str], batch: int) -> Tensor:
    """One row per example; a zero where there is nothing."""
    return torch.cat([values[name].reshape(batch, -1) for name in names] or [torch.zeros(batch, 1)], 1)


def _where(which: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(which.view(-1, *[1] * (b.dim() - 1)), a, b)


def _rows(values: Values, index: Tensor) -> Values:
    return {name: x[index] for name, x in values.items()}
