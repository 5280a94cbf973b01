"""Equilibrium: repeat a sweep until nothing changes any more, for each example by itself."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undirected.bounds import bound
from undirected.errors import Diverged, NotConverged, QueryError
from undirected.graph import Graph, sum_terms
from undirected.program import Loop, Program
from undirected.regularizers import concrete
from undirected.solution import same_count
from undirected.solve import execute, load

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.solve import Watcher


@dataclass(frozen=True)
class Tolerance:
    """When an example is done.

    Args:
        residual: the largest change of any entry of its updated variables that its last sweep may have made.
        energy: how far the energy may have fallen in that sweep; not asked for if not given.
        max_iterations: how many sweeps there are at most.
        otherwise: what happens when examples are not done by then: "warn", "raise" or "ignore".
        acceleration: "anderson" extrapolates whole sweeps, by momentum until an equilibrium is near; where the energy
            would rise, the plain sweep is taken.
        depth: how many sweeps it extrapolates from.
        damping: each update goes only a part `1 - damping` of its way, which cannot raise the energy either.
    """

    residual: float = 1e-4
    energy: float | None = None
    max_iterations: int = 100
    otherwise: str = "warn"
    acceleration: str | None = None
    depth: int = 5
    damping: float = 0.0

    def __post_init__(self) -> None:
        if not self.residual > 0 or (self.energy is not None and not self.energy > 0):
            raise QueryError(f"{self}: residual and energy must be positive.")
        if self.max_iterations < 2:
            raise QueryError(f"{self}: max_iterations must be at least 2: a change shows in the second.")
        if self.otherwise not in ("warn", "raise", "ignore"):
            raise QueryError(f"{self}: otherwise is 'warn', 'raise' or 'ignore'.")
        if self.acceleration not in (None, "anderson"):
            raise QueryError(f"{self}: acceleration is None or 'anderson'.")
        if self.depth < 1 or not 0 <= self.damping < 1:
            raise QueryError(f"{self}: depth is at least 1, damping from 0 to below 1.")

    @property
    def is_plain(self) -> bool:
        return self.acceleration is None and self.damping == 0


@dataclass
class Equilibrium:
    """Where each example ended."""

    values: dict[str, Tensor]
    preactivations: dict[str, Tensor]
    iterations: Int[Tensor, " batch"]
    converged: Bool[Tensor, " batch"] | None
    residual: Float[Tensor, " batch"] | None


def same_end(program: Program, registers: list[Tensor | None], count: int, evidence: Evidence) -> Equilibrium:
    """The end of a fixed number of sweeps."""
    values = {name: registers[program.final[name]] for name in program.preactivations}  # type: ignore[index]
    t = {name: registers[r] for name, r in program.preactivations.items()}
    return Equilibrium(values, t, same_count(count, evidence.batch, evidence.device), None, None)  # type: ignore[arg-type]


class Course(ABC):
    """A way from sweep to sweep for the examples that are still at work."""

    values: dict[str, Tensor]
    preactivations: dict[str, Tensor]

    def __init__(self, graph: Graph, evidence: Evidence) -> None:
        self.graph, self.evidence = graph, evidence
        self.examples = torch.arange(evidence.batch, device=evidence.device)
        self.values, self.preactivations = {}, {}

    @abstractmethod
    def sweep(self, iteration: int) -> Mapping[str, Tensor]:
        """Make one; the values that it started from, of variables whose change counts. Nothing the first time."""

    def rows(self, index: Int[Tensor, " kept"]) -> None:
        """Go on with these examples only."""
        self.examples, self.evidence = self.examples[index], self.evidence.rows(index)
        self.values = {name: x[index] for name, x in self.values.items()}
        self.preactivations = {name: t[index] for name, t in self.preactivations.items()}

    @torch.no_grad()
    def energy(self) -> Tensor:
        """Of each example at work; not counting variables that are absent."""
        graph, evidence = self.graph, self.evidence
        present = {**evidence.values, **evidence.start, **self.values}
        terms = {n: graph.variable_term(n, x, self.preactivations.get(n), evidence) for n, x in present.items()}
        every = {name: evidence.zeros(name) for name in graph.variables} | present
        return sum_terms(terms | {name: graph.factor_term(name, every, evidence) for name in graph.factors})


class Plain(Course):
    """Sweeps as they are, with every message that one of them computed serving the next."""

    def __init__(self, graph: Graph, loop: Loop, evidence: Evidence, watch: Watcher | None) -> None:
        super().__init__(graph, evidence)
        self.loop, self.watch = loop, watch
        self.registers = load(graph, loop.given, loop.registers, evidence)
        self.biases = set(loop.given.biases.values())

    def sweep(self, iteration: int) -> Mapping[str, Tensor]:
        loop, before, stage = self.loop, self.values, min(iteration, 3) - 1
        if iteration > 3:
            moved = [self.registers[source] for _, source in loop.carry]
            for (target, _), tensor in zip(loop.carry, moved, strict=True):
                self.registers[target] = tensor
        execute(self.graph, loop.listings[stage], self.registers, self.evidence, self.watch)
        found = {name: self.registers[number] for name, number in loop.finals[stage].items()}
        self.values = {name: x for name, x in found.items() if x is not None}
        self.preactivations = {name: self.registers[r] for name, r in loop.preactivations[stage].items()}  # type: ignore[misc]
        return before

    def rows(self, index: Tensor) -> None:
        super().rows(index)
        self.registers = [r if r is None or i in self.biases else r[index] for i, r in enumerate(self.registers)]


class _Collected:
    """Results of examples that ended at different times, put together at the end."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []
        self.parts: list[dict[str, Tensor]] = []

    def add(self, rows: Tensor, part: dict[str, Tensor]) -> None:
        self.rows.append(rows)
        self.parts.append(part)

    def together(self) -> dict[str, Tensor]:
        if len(self.parts) == 1:
            return self.parts[0]
        back = torch.cat(self.rows).argsort()
        return {key: torch.cat([part[key] for part in self.parts])[back] for key in self.parts[0]}


def settle(course: Course, until: Tolerance, freeze: bool = True) -> Equilibrium:
    """Sweep until every example is done; those that are done cost nothing more, if they may be frozen."""
    collected = _Collected()
    ended = torch.zeros_like(course.examples, dtype=torch.bool)
    energy: Tensor | None = None
    names: list[str] = []
    for iteration in range(1, until.max_iterations + 1):
        started = course.sweep(iteration)
        residual, culprit, names = _change(started, course)
        done = residual <= until.residual
        if until.energy is not None:
            lower = course.energy()
            done = done & (lower >= energy - until.energy) if energy is not None else torch.zeros_like(done)
            energy = lower
        leaving = ~ended[course.examples] & (done | (iteration == until.max_iterations))
        if not bool(leaving.any()):
            continue
        index = leaving.nonzero()[:, 0]
        ended[course.examples[index]] = True
        part = {f"x {name}": x[index] for name, x in course.values.items()}
        part |= {f"t {name}": t[index] for name, t in course.preactivations.items()}
        part |= {"residual": residual[index], "converged": done[index], "culprit": culprit[index]}
        part["iterations"] = torch.full_like(index, iteration)
        collected.add(course.examples[index], part)
        if bool(ended.all()):
            break
        if freeze:
            stay = (~leaving).nonzero()[:, 0]
            course.rows(stay)
            energy = energy if energy is None else energy[stay]
    whole = collected.together()
    found = Equilibrium(
        {key[2:]: x for key, x in whole.items() if key.startswith("x ")},
        {key[2:]: t for key, t in whole.items() if key.startswith("t ")},
        whole["iterations"],
        whole["converged"],
        whole["residual"],
    )
    _report(whole, until, names)
    return found


@torch.no_grad()
def _change(started: Mapping[str, Tensor], course: Course) -> tuple[Tensor, Tensor, list[str]]:
    """The largest change of any entry, per example, and which of the named variables it is in; infinite at first."""
    evidence, names, changes = course.evidence, [], []
    for name, x in course.values.items() if started else ():
        if x is started[name] or x[0].numel() == 0:
            continue
        change = (x - started[name]).abs().reshape(len(x), -1).amax(1)
        names.append(name)
        changes.append(change)
    if not changes:
        every = torch.full((evidence.batch,), 0.0 if started or not course.values else torch.inf)
        every = every.to(evidence.device, evidence.dtype)
        return every, torch.zeros_like(every, dtype=torch.long), list(course.values)
    largest = torch.stack(changes).max(0)
    limit = too_large(evidence.dtype)
    if not float(largest.values.max()) <= limit:
        for name, change in zip(names, changes, strict=True):
            check_size(course.graph, name, course.values[name], change, course.examples, evidence)
    return largest.values, largest.indices, names


def too_large(dtype: torch.dtype) -> float:
    """Beyond this, energies or (where the number type has room for that) their squares are no longer finite."""
    largest = torch.finfo(dtype).max
    return float(largest**0.25 if largest > 1e9 else largest**0.5)


def check_size(graph: Graph, name: str, x: Tensor, size: Tensor, examples: Tensor, evidence: Evidence) -> None:
    """Stop with an explanation when a solve has left the finite numbers, or is sure to."""
    wrong = ~(size <= too_large(evidence.dtype))
    if not concrete(size) or not bool(wrong.any()):
        return
    row = int(wrong.nonzero()[0, 0])
    partial = tuple(evidence.known)
    verdict = bound(graph, [n for n in evidence.values if n not in partial], partial)
    if bool(x[row].isfinite().all()):
        if verdict.verdict != "no":
            return
        what = f"{name} has grown to {float(x[row].detach().abs().max()):.1e} on its way out of the finite numbers"
    else:
        what = f"{name} left the finite numbers"
    raise Diverged(f"{what} (example {int(examples[row])}). {verdict.explain()}")


def _report(whole: dict[str, Tensor], until: Tolerance, names: list[str]) -> None:
    residual, missed = whole["residual"], ~whole["converged"]
    if until.otherwise == "ignore" or not bool(missed.any()):
        return
    worst = int(torch.where(missed, residual, -1).argmax())
    which = int(whole["culprit"][worst])
    where = f"example {worst}" + (f", variable {names[which]!r}" if which < len(names) else "")
    text = (
        f"Not converged: {int(missed.sum())} of {len(missed)} examples, worst residual {residual[worst]:.1e} "
        f"after {until.max_iterations} sweeps ({where}). Raise max_iterations, loosen the tolerance, or check "
        f"net.bounded(observe=[...])."
    )
    if until.otherwise == "raise":
        raise Diverged(text)
    warnings.warn(text, NotConverged, stacklevel=5)
