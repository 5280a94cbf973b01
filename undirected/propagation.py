"""Propagation: the gradient of a loss at equilibrium from two more solves, of energies tilted by the loss.

Where x minimises `E + beta L`, `dL/dtheta = d/dbeta dE/dtheta` at beta = 0. The loss may be taken linear, `<dL/dx, x>`:
its curvature does not enter the limit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from undirected.acceleration import Swept
from undirected.adjoint import Adjoint, add, pull
from undirected.equilibrium import settle
from undirected.graph import Graph, sum_terms
from undirected.regularizers import total
from undirected.sweep import Route, Values, preactivation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from undirected.evidence import Evidence
    from undirected.gradients import EquilibriumPropagation


def propagate(
    gradient: EquilibriumPropagation,
    graph: Graph,
    route: Route,
    evidence: Evidence,
    solution: tuple[Values, Values],
    slopes: Values,
    t_slopes: Values,
    weights: Sequence[Tensor],
    report: Adjoint,
) -> list[Tensor | None]:
    """The gradient by all that is observed, then by the weights, for slopes of a loss by values and pre-activations."""
    observed = {name: x.detach().requires_grad_(x.requires_grad) for name, x in evidence.values.items()}
    evidence = replace(evidence, values=observed)
    wanted = [x for x in (*observed.values(), *weights) if x.requires_grad]
    direct, slopes = _through_preactivations(graph, evidence, solution[0], slopes, t_slopes, wanted)
    largest = torch.stack([g.reshape(len(g), -1).abs().amax(1) for g in slopes.values() if g[0].numel()]).amax(0)
    tiny = torch.finfo(largest.dtype).tiny
    unit = {name: g / largest.clamp_min(tiny).view(-1, *[1] * (g.dim() - 1)) for name, g in slopes.items()}
    signs = (1.0, -1.0) if gradient.centered else (1.0,)
    if gradient.until.damping:  # which starts from every pre-activation; a solve keeps those that are needed
        every = _every(graph, evidence, solution[0])
        missing = [name for name in solution[0] if name not in solution[1]]
        with torch.no_grad():
            found_t = {name: preactivation(graph, name, every, evidence) for name in missing}
        solution = solution[0], {**solution[1], **found_t}
    energies, residuals, converged = [], [], []
    for sign in signs:
        nudge = {name: sign * gradient.beta * g for name, g in unit.items()}
        with torch.no_grad():
            course = Swept(graph, route, evidence, gradient.until, start=solution, nudge=nudge)
            found = settle(course, gradient.until)
        assert found.residual is not None
        assert found.converged is not None
        residuals.append(found.residual)
        converged.append(found.converged)
        energies.append(_energy(graph, evidence, found.values))
    if not gradient.centered:
        energies.append(_energy(graph, evidence, solution[0]))
    report.iterations = int(found.iterations.max())
    report.residual, report.converged = torch.stack(residuals).amax(0), torch.stack(converged).all(0)
    apart = gradient.beta * (2 if gradient.centered else 1)
    with torch.enable_grad():
        slope = (largest * (energies[0] - energies[1]) / apart).sum()
    grads = pull([slope], [torch.ones_like(slope)], wanted)
    added = iter([add(a, b) for a, b in zip(grads, direct, strict=True)])
    result = [next(added) if x.requires_grad else None for x in (*observed.values(), *weights)]
    for i, (name, x) in enumerate(observed.items()):  # what is known of a variable is the observed value itself
        if name in evidence.known and name in slopes and x.requires_grad:
            result[i] = add(result[i], slopes[name] * evidence.known[name])
    return result


def _through_preactivations(
    graph: Graph, evidence: Evidence, values: Values, slopes: Values, t_slopes: Values, wanted: list[Tensor]
) -> tuple[list[Tensor | None], Values]:
    """A pre-activation is one message away from the values: its slopes as slopes by them, and by what is wanted."""
    names = [name for name, g in t_slopes.items() if bool(g.any())]
    if not names:
        return [None] * len(wanted), slopes
    with torch.enable_grad():
        leaves = {name: x.detach().requires_grad_() for name, x in values.items()}
        every = _every(graph, evidence, leaves)
        found = [preactivation(graph, name, every, evidence) for name in names]
    grads = pull(found, [t_slopes[name] for name in names], [*leaves.values(), *wanted])
    n = len(leaves)
    return grads[n:], {name: add(slopes[name], g) for name, g in zip(leaves, grads[:n], strict=True)}  # type: ignore[misc]


def _energy(graph: Graph, evidence: Evidence, values: Values) -> Tensor:
    """What of the energy depends on observed values and weights, at these values of the rest."""
    with torch.enable_grad():
        every = _every(graph, evidence, {name: x.detach() for name, x in values.items()})
        terms = {name: graph.factor_term(name, every, evidence) for name in graph.factors}
        for name in values:
            bias = graph.bias(name)
            if bias is not None:
                terms[name] = -total(bias * every[name])
        return sum_terms(terms)


def _every(graph: Graph, evidence: Evidence, values: Values) -> Values:
    every = {name: evidence.zeros(name) for name in graph.variables} | evidence.start | evidence.values
    for name, x in values.items():
        every[name] = torch.where(evidence.known[name], evidence.values[name], x) if name in evidence.known else x
    return every
