"""Equilibrium: repeat a sweep until nothing changes any more, for each example by itself."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undirected.bounds import bound
from undirected.errors import Diverged, NotConverged, QueryError
from undirected.graph import Graph, sum_terms
from undirected.program import Loop
from undirected.solve import execute, load

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.solve import Watcher


@dataclass(frozen=True)
class Tolerance:
    """When an example is done: no entry of its variables changed by more than `residual` in a sweep, and the energy,
    if asked for, fell by at most `energy`.

    `otherwise` says what happens when examples are not done after `max_iterations`: "warn", "raise" or "ignore".
    """

    residual: float = 1e-4
    energy: float | None = None
    max_iterations: int = 100
    otherwise: str = "warn"

    def __post_init__(self) -> None:
        if not self.residual > 0 or (self.energy is not None and not self.energy > 0):
            raise QueryError(f"{self}: residual and energy must be positive.")
        if self.max_iterations < 2:
            raise QueryError(f"{self}: max_iterations must be at least 2: a change shows in the second.")
        if self.otherwise not in ("warn", "raise", "ignore"):
            raise QueryError(f"{self}: otherwise is 'warn', 'raise' or 'ignore'.")


@dataclass
class Equilibrium:
    """Where each example ended."""

    values: dict[str, Tensor]
    preactivations: dict[str, Tensor]
    iterations: Int[Tensor, " batch"]
    converged: Bool[Tensor, " batch"]
    residual: Float[Tensor, " batch"]


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


def settle(graph: Graph, loop: Loop, evidence: Evidence, until: Tolerance, watch: Watcher | None) -> Equilibrium:
    """Sweep until every example is done; those that are done cost nothing more (unless somebody watches)."""
    registers = load(graph, loop.given, loop.registers, evidence)
    biases = set(loop.given.biases.values())
    collected = _Collected()
    rows = torch.arange(evidence.batch, device=evidence.device)  # the examples at work
    ended = torch.zeros(evidence.batch, dtype=torch.bool, device=evidence.device)
    before: dict[str, Tensor] | None = None
    energy = None
    for iteration in range(1, until.max_iterations + 1):
        stage = min(iteration, 3) - 1
        if iteration > 3:
            moved = [registers[source] for _, source in loop.carry]
            for (target, _), tensor in zip(loop.carry, moved, strict=True):
                registers[target] = tensor
        execute(graph, loop.listings[stage], registers, evidence, watch)
        values = {name: registers[number] for name, number in loop.finals[stage].items()}
        residual = _change(graph, before, values, evidence, rows)  # type: ignore[arg-type]
        done = residual <= until.residual
        if until.energy is not None:
            lower = _energy(graph, values, evidence)  # type: ignore[arg-type]
            done = done & (lower >= energy - until.energy) if energy is not None else torch.zeros_like(done)
            energy = lower
        last = iteration == until.max_iterations
        leaving = ~ended[rows] & (done | last)
        if bool(leaving.any()):
            index = leaving.nonzero()[:, 0]
            ended[rows[index]] = True
            part = {f"x {name}": x[index] for name, x in values.items()}  # type: ignore[index]
            part |= {f"t {name}": registers[r][index] for name, r in loop.preactivations[stage].items()}  # type: ignore[index]
            part |= {"residual": residual[index], "converged": done[index]}
            part["iterations"] = torch.full_like(index, iteration)
            collected.add(rows[index], part)
            if bool(ended.all()):
                break
            if watch is None:
                stay = (~leaving).nonzero()[:, 0]
                rows, evidence = rows[stay], evidence.rows(stay)
                registers = [r if r is None or i in biases else r[stay] for i, r in enumerate(registers)]
                values = {name: x[stay] for name, x in values.items()}  # type: ignore[index]
                energy = energy if energy is None else energy[stay]
        before = values  # type: ignore[assignment]
    whole = collected.together()
    found = Equilibrium(
        {key[2:]: x for key, x in whole.items() if key.startswith("x ")},
        {key[2:]: t for key, t in whole.items() if key.startswith("t ")},
        whole["iterations"],
        whole["converged"],
        whole["residual"],
    )
    _report(found, until)
    return found


@torch.no_grad()
def _change(
    graph: Graph, before: dict[str, Tensor] | None, after: dict[str, Tensor], evidence: Evidence, rows: Tensor
) -> Tensor:
    """The largest change of any entry, per example; infinite in the first sweep."""
    if before is None:
        return torch.full((evidence.batch,), torch.inf, device=evidence.device, dtype=evidence.dtype)
    changes = []
    for name, x in after.items():
        if x is before[name] or x[0].numel() == 0:
            continue
        change = (x - before[name]).abs().reshape(len(x), -1).amax(1)
        if not bool(change.isfinite().all()):
            example = int(rows[(~change.isfinite()).nonzero()[0, 0]])
            observed = [given for given in evidence.values if given not in evidence.known]
            why = bound(graph, observed, evidence.known).explain()
            raise Diverged(f"{name} left the finite numbers (example {example}). {why}")
        changes.append(change)
    if not changes:
        return torch.zeros(evidence.batch, device=evidence.device, dtype=evidence.dtype)
    return torch.stack(changes).amax(0)


@torch.no_grad()
def _energy(graph: Graph, values: dict[str, Tensor], evidence: Evidence) -> Tensor:
    state = {name: evidence.zeros(name) for name in graph.variables} | evidence.values | evidence.start | values
    present = {**evidence.values, **evidence.start, **values}
    terms = {name: graph.variable_term(name, state[name], None, evidence) for name in present}
    return sum_terms(terms | {name: graph.factor_term(name, state, evidence) for name in graph.factors})


def _report(found: Equilibrium, until: Tolerance) -> None:
    missed = ~found.converged
    if until.otherwise == "ignore" or not bool(missed.any()):
        return
    worst = int(torch.where(missed, found.residual, -1).argmax())
    text = (
        f"Not converged: {int(missed.sum())} of {len(missed)} examples, worst residual {found.residual[worst]:.1e} "
        f"after {until.max_iterations} sweeps (example {worst}). Raise max_iterations, loosen the tolerance, or check "
        f"net.bounded(observe=[...])."
    )
    if until.otherwise == "raise":
        raise Diverged(text)
    warnings.warn(text, NotConverged, stacklevel=4)
