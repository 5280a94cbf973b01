"""Acceleration: whole sweeps extrapolated, where that does not raise the energy; and damped updates.

What is extrapolated are the pre-activations t of the variables that a sweep starts from: `x = activation(t)` lies in
its domain, whatever t is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from undirected.anderson import Anderson
from undirected.equilibrium import Course, Tolerance
from undirected.graph import Graph
from undirected.regularizers import total
from undirected.solve import run
from undirected.sweep import Left, Map, Route, Values

if TYPE_CHECKING:
    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.operation import Set
    from undirected.solve import Watcher


GROWTH = 2.0  # how much the error may grow in a sweep from an extrapolated point


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
        else:
            self._accept(self.map, left, t, started, self.anderson)
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

    def _accept(self, step: Map, left: Left, t: Values, started: Values, anderson: Anderson) -> None:
        """Take the sweep where it lowered the energy, go back where it did not, and choose where the next begins."""
        state = step.sweep.state
        batch = self.evidence.batch
        error = torch.cat(
            [(left.values[name] - started[name]).reshape(batch, -1) for name in state] or [torch.zeros(batch, 1)], 1
        )
        worse, energy, size = self._judge(step, replace(left, preactivations=t), error)
        any_worse = bool(worse.any())
        if any_worse:
            values = {name: _where(worse, self.values[name], x) for name, x in left.values.items()}
            t_kept = {name: _where(worse, self.preactivations[name], each) for name, each in t.items()}
            before = {name: _where(worse, self.started.get(name, x), x) for name, x in started.items()}
        else:
            values, t_kept, before = left.values, t, started
        self.values, self.preactivations, self.started = values, t_kept, before
        self.lowest, self.size = energy, size
        self.start, self.jumped = (values, t_kept), ~worse
        if not state:
            return
        image = torch.cat([t[name].reshape(batch, -1) for name in state], 1)
        if any_worse:
            image, error = torch.nan_to_num(image), torch.nan_to_num(error)
        proposal = anderson(image, error)
        if any_worse:
            anderson.forget(worse)
        next_values, next_t = dict(values), dict(t_kept)
        widths = [t[name][0].numel() for name in state]
        activations = step.activations()
        for name, part in zip(state, proposal.split(widths, 1), strict=True):
            t_next = part.reshape(t[name].shape)
            x_next = activations[name](t_next)
            next_t[name] = _where(worse, t_kept[name], t_next) if any_worse else t_next
            next_values[name] = _where(worse, values[name], x_next) if any_worse else x_next
        self.start = next_values, next_t

    @torch.no_grad()
    def _judge(self, step: Map, left: Left, error: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which extrapolated sweeps to take back; the energy and the size of the error of what is kept.

        Where the energy rose, they are taken back. Near the end it no longer shows whether a point is better: there
        the error must not grow much.
        """
        energy, terms = step.energy(left)
        for name, slope in (self.nudge or {}).items():
            energy = energy + total(slope * left.values[name])
        size = error.norm(dim=1)
        if self.lowest is None or self.size is None or self.jumped is None:
            return torch.zeros_like(size, dtype=torch.bool), energy, size
        slack = torch.finfo(error.dtype).eps * (1 + terms)
        worse = self.jumped & ~((energy <= self.lowest + slack) & (size <= GROWTH * self.size))
        kept = torch.where(worse, self.lowest, torch.minimum(energy, self.lowest))
        return worse, kept, torch.where(worse, self.size, size)

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


def _where(which: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(which.view(-1, *[1] * (b.dim() - 1)), a, b)


def _rows(values: Values, index: Tensor) -> Values:
    return {name: x[index] for name, x in values.items()}
