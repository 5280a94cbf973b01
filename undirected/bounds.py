"""Bounds: has the energy a lower bound, whatever the free variables are?

Variables on a bounded domain are always safe. Let a and b be two others, with `Psi >= c/2 |x|^2`, that share a factor:
then the energy contains the quadratic form `c_a/2 |a|^2 + c_b/2 |b|^2 - a' W b`, which falls for ever as soon as the
spectral norm of W exceeds `sqrt(c_a c_b)`. For several such couplings the same is true of the largest eigenvalue of
all of them together, each divided by `sqrt(c_a c_b)`, against 1. Three such variables in one factor make a cubic,
which no quadratic holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undirected.factors import Directed
from undirected.graph import Graph

if TYPE_CHECKING:
    from torch import Tensor

DENSE = 1024  # up to this many entries the couplings are written out as a matrix
SWEEPS = 100  # of power iteration beyond that
STARTS = 8  # of that iteration where bounded variables take part: it finds the nearest peak
TYPICAL_SIZE = 8  # of a symbolic axis
FAR = 1e4  # where only the quadratic part of Psi counts


@dataclass(frozen=True)
class Coupling:
    """Free variables without bounds that pull each other, by which factors, and how strongly (bounded while < 1)."""

    variables: tuple[str, ...]
    factors: tuple[str, ...]
    norm: float
    is_searched: bool  # the norm depends on bounded or observed variables too; this is the largest found
    falls: bool  # was a direction found along which the energy falls for ever?
    sizes: str  # " at n = 8" where the norm is that at some size of a symbolic axis, else nothing

    def __str__(self) -> str:
        what = "the largest coupling found" if self.is_searched else "the spectral norm of the coupling"
        return (
            f"{what} of {', '.join(self.variables)} (factor{'s' if len(self.factors) > 1 else ''} "
            f"{', '.join(map(repr, self.factors))}) is {self.norm:.4g}{self.sizes} and must stay below 1"
        )


@dataclass(frozen=True)
class Bound:
    """Whether the energy of a query has a lower bound. `verdict` is "always", "while", "no" or "unknown"."""

    observed: tuple[str, ...]
    couplings: tuple[Coupling, ...] = ()
    cubic: tuple[str, ...] = ()  # factors with three or more free variables without bounds
    opaque: tuple[str, ...] = ()  # energies and regularizers whose growth is not known

    @property
    def verdict(self) -> str:
        if self.cubic or any(coupling.falls for coupling in self.couplings):
            return "no"
        if self.opaque or any(coupling.norm >= 1 for coupling in self.couplings):
            return "unknown"
        return "while" if self.couplings else "always"

    def explain(self) -> str:
        given = f"Given {', '.join(self.observed)}" if self.observed else "With nothing observed"
        text = {
            "always": f"{given}, the energy has a lower bound, whatever the weights.",
            "while": f"{given}, the energy has a lower bound: ",
            "no": f"{given}, the energy has no lower bound: ",
            "unknown": f"{given}, it cannot be told whether the energy has a lower bound: ",
        }[self.verdict]
        reasons = [str(coupling) for coupling in self.couplings]
        reasons += [f"factor {name!r} joins three free variables without bounds, a cubic" for name in self.cubic]
        reasons += [f"how fast {name!r} grows is not known, or depends on what is observed" for name in self.opaque]
        text += "; ".join(reasons) + "." * bool(reasons)
        if self.verdict == "no":
            names = dict.fromkeys(name for coupling in self.couplings for name in coupling.variables)
            text += (
                f" Give {' or '.join(names) or 'some of them'} a bounded regularizer (Tanh, Sigmoid, HardTanh), "
                f"observe more, or make the weights smaller."
            )
        return text

    def __str__(self) -> str:
        return self.explain()


@torch.no_grad()
def bound(graph: Graph, observed: Iterable[str], partial: Iterable[str] = ()) -> Bound:
    """The verdict for a query in which `observed` are known whole."""
    observed = tuple(observed)
    free = [name for name in graph.variables if name not in observed]
    loose = [name for name in free if not graph.variables[name].regularizer.bounded]
    opaque = [name for name in loose if graph.variables[name].regularizer.curvature <= 0]
    cubic, coupled = [], {}
    for name, factor in graph.factors.items():
        inside = tuple(variable for variable in factor.variables if variable in loose)
        if isinstance(factor.original, Directed):  # linear in its last variable, and its inputs are observed
            continue
        rest = [variable for variable in factor.variables if variable in observed]
        if len(inside) == 2 and any(not graph.variables[variable].regularizer.bounded for variable in rest):
            opaque.append(name)  # as strong as what is observed
        elif any(name in graph.extra_energies(variable) for variable in factor.variables):
            opaque += [name] if any(variable in free for variable in factor.variables) else []
        elif len(inside) > 2:
            cubic.append(name)
        elif len(inside) == 2 and all(graph.variables[variable].regularizer.curvature > 0 for variable in inside):
            coupled[name] = inside
    couplings = []
    for variables in _pieces(list(coupled.values())):
        factors = [name for name, inside in coupled.items() if set(inside) <= variables]
        couplings.append(_coupling(graph, [v for v in loose if v in variables], factors))
    return Bound((*observed, *partial), tuple(couplings), tuple(cubic), tuple(opaque))


def _pieces(pairs: list[tuple[str, ...]]) -> list[set[str]]:
    """The connected components of these pairs."""
    pieces: list[set[str]] = []
    for pair in pairs:
        touched = [piece for piece in pieces if piece & set(pair)]
        pieces = [piece for piece in pieces if piece not in touched] + [set(pair).union(*touched)]
    return pieces


def _coupling(graph: Graph, variables: list[str], factors: list[str]) -> Coupling:
    anchor = graph.anchor()
    like = torch.empty(0) if anchor is None else anchor
    symbols = {s.name for variable in graph.variables.values() for s in variable.symbols}
    sizes = dict.fromkeys(symbols, TYPICAL_SIZE)
    shapes = {name: variable.event_shape(sizes) for name, variable in graph.variables.items()}
    others = sorted({v for name in factors for v in graph.factors[name].variables} - set(variables))
    widths = [torch.Size(shapes[name]).numel() for name in variables]

    def apply(x: Tensor, context: Mapping[str, Tensor]) -> Tensor:
        """The couplings, each divided by sqrt(c_a c_b), times x of shape (batch, all entries)."""
        parts = dict(zip(variables, x.split(widths, 1), strict=True))
        values = {name: part.reshape(len(x), *shapes[name]) for name, part in parts.items()}
        values |= {name: value.expand(len(x), *value.shape[1:]) for name, value in context.items()}
        result = {name: torch.zeros_like(part) for name, part in parts.items()}
        for name in factors:
            factor = graph.factors[name]
            for place, target in enumerate(factor.variables):
                if target in variables:
                    inputs = [values[v] for v in factor.variables]
                    inputs[place] = torch.zeros_like(inputs[place])
                    pair = [v for v in factor.variables if v in variables]
                    c = [graph.variables[v].regularizer.curvature for v in pair]
                    message = factor.message(place, *inputs).reshape(len(x), -1)
                    result[target] = result[target] + message / (c[0] * c[1]) ** 0.5
        return torch.cat(list(result.values()), 1)

    def falls(norm: float) -> bool:
        """Is there really such a direction? With Psi of one side alone (ReLU) the norm's may lie outside the domain."""
        regularizers = [graph.variables[name].regularizer for name in variables]
        far = torch.full((1, 1), FAR, dtype=like.dtype, device=like.device)
        if norm < 1 or others or all(torch.equal(r.activation(-far), -r.activation(far)) for r in regularizers):
            return norm >= 1
        scales = [r.curvature**0.5 for r in regularizers]
        generator = torch.Generator(device=like.device).manual_seed(0)
        x = torch.randn(STARTS, sum(widths), dtype=like.dtype, device=like.device, generator=generator)
        x[0].abs_()
        for _ in range(SWEEPS):  # power iteration that goes through the activations, and so stays in the domain
            t = torch.nn.functional.normalize(apply(x, {}) + norm * x)
            parts = zip(regularizers, scales, t.split(widths, 1), strict=True)
            x = torch.cat([r.activation(FAR * c * part) * c for r, c, part in parts], 1)
        parts = zip(regularizers, scales, x.split(widths, 1), strict=True)
        psi = sum(r.value(part / c) for r, c, part in parts)
        return bool((0.5 * (x * apply(x, {})).sum(1) > psi).any())

    inside = {s.name for name in factors for v in graph.factors[name].variables for s in graph.variables[v].symbols}
    at = f" at {', '.join(f'{symbol} = {TYPICAL_SIZE}' for symbol in sorted(inside))}" if inside else ""
    if not others and sum(widths) <= DENSE:
        matrix = apply(torch.eye(sum(widths), dtype=like.dtype, device=like.device), {})
        norm = float(torch.linalg.eigvalsh((matrix + matrix.T).double() / 2)[-1])
        return Coupling(tuple(variables), tuple(factors), norm, False, falls(norm), at)
    searches = range(STARTS if others else 1)
    norm = max(
        _search(graph, apply, others, shapes, sum(widths), factors, variables, widths, like, seed) for seed in searches
    )
    return Coupling(tuple(variables), tuple(factors), norm, bool(others), falls(norm), at)


def _search(graph, apply, others, shapes, width, factors, variables, widths, like, seed):
    """The largest eigenvalue by power iteration, while the bounded variables turn to where they strengthen it."""
    generator = torch.Generator(device=like.device).manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=like.dtype, device=like.device, generator=generator)

    context = {name: graph.variables[name].regularizer.activation(noise(1, *shapes[name])) for name in others}
    x = torch.nn.functional.normalize(noise(1, width))
    norm = 0.0
    for _ in range(SWEEPS):
        # Adding a multiple of x makes the largest eigenvalue, not the largest in size, the one that wins.
        y = apply(x, context)
        norm = float((x * y).sum())
        x = torch.nn.functional.normalize(y + max(norm, float(y.norm())) * x)
        parts = {n: p.reshape(1, *shapes[n]) for n, p in zip(variables, x.split(widths, 1), strict=True)}
        for name in others:
            pull = torch.zeros(1, *shapes[name], dtype=like.dtype, device=like.device)
            for factor_name in factors:
                factor = graph.factors[factor_name]
                if name in factor.variables:
                    place = factor.variables.index(name)
                    inputs = [parts.get(v, context.get(v)) for v in factor.variables]
                    inputs[place] = torch.zeros_like(pull)
                    pull = pull + factor.message(place, *inputs)
            sharp = 1e3 / pull.abs().amax().clamp_min(1e-12)
            context[name] = graph.variables[name].regularizer.activation(pull * sharp)
    return norm
