"""Graph: the variables and factors of a network, and its energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from undirected.errors import DeclarationError, QueryError, unknown
from undirected.evidence import Evidence, Observed, gather
from undirected.factors import Directed, Energy, Factor, Tied
from undirected.regularizers import Regularizer, total
from undirected.variable import Variable

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


class Factors(nn.Module):
    """The factors by name, read-only."""

    def __init__(self, factors: list[Factor]) -> None:
        super().__init__()
        for factor in factors:
            if factor.name in self._modules:
                raise DeclarationError(f"{factor}: there is a factor {factor.name!r} already. Give it a name=.")
            if hasattr(self, factor.name) or "." in factor.name or not factor.name:
                raise DeclarationError(f"{factor}: cannot be called {factor.name!r}. Give it another name=.")
            self.add_module(factor.name, factor)

    def __getitem__(self, name: str) -> Factor:
        if name not in self._modules:
            raise KeyError(unknown("factor", name, self._modules))
        return self._modules[name]  # type: ignore[return-value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def get(self, name: str, default: Factor | None = None) -> Factor | None:
        factor: Factor | None = self._modules.get(name, default)  # type: ignore[assignment]
        return factor

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def keys(self) -> list[str]:
        return list(self._modules)

    def values(self) -> list[Factor]:
        return list(self._modules.values())  # type: ignore[arg-type]

    def items(self) -> list[tuple[str, Factor]]:
        return list(self._modules.items())  # type: ignore[arg-type]


class Graph(nn.Module):
    """`E = sum_i [Psi_i(x_i) - <b_i, x_i>] - sum_f score_f(x_f)`, per example."""

    def __init__(self, *parts: Variable | Factor) -> None:
        super().__init__()
        variables = [part for part in parts if isinstance(part, Variable)]
        factors = [part for part in parts if isinstance(part, Factor)]
        for part in parts:
            if not isinstance(part, (Variable, Factor)):
                raise DeclarationError(f"{part!r} is neither a variable nor a factor.")
        self._variables = {variable.name: variable for variable in variables}
        if len(self._variables) < len(variables):
            names = [variable.name for variable in variables]
            twice = next(name for name in names if names.count(name) > 1)
            raise DeclarationError(f"there are two variables called {twice!r}.")
        if not variables:
            raise DeclarationError("a network needs at least one variable.")
        for factor in sorted(factors, key=lambda factor: isinstance(factor, Tied)):
            self._build(factor, factors)
        self.factors = Factors(factors)
        for factor in factors:
            if factor.name in self._variables:
                raise DeclarationError(f"{factor}: there is a variable {factor.name!r} already. Give it another name=.")
        for variable in variables:
            shape = variable.bias_shape()
            if shape is not None:
                self.register_parameter(f"bias_{variable.name}", nn.Parameter(torch.zeros(shape)))
        #: What belongs to the network and is saved with it, as JSON: a vocabulary, the names of classes.
        self.notes: dict[str, Any] = {}
        #: For each variable, the factors that it is in and its place there.
        self.links: dict[str, list[tuple[str, int]]] = {
            name: [(f.name, f.variables.index(name)) for f in factors if name in f.variables]
            for name in self._variables
        }

    def _build(self, factor: Factor, factors: list[Factor]) -> None:
        if isinstance(factor, Tied) and not any(factor.original is other for other in factors):
            raise DeclarationError(f"{factor}: the factor whose weights it shares must be in the same network.")
        for name in factor.variables:
            if name not in self._variables:
                raise DeclarationError(f"{factor}: {unknown('variable', name, self._variables)}")
        axes = tuple(self._variables[name].axes for name in factor.variables)
        if factor.built_for not in (None, axes):
            raise DeclarationError(
                f"{factor}: is part of another network, where its variables have other shapes. Declare a new factor; "
                f"to share weights, give it the other's: factor.weight = other.weight."
            )
        factor.build(self._variables)
        factor.built_for = tuple(self._variables[name].axes for name in factor.variables)
        factor.check_shift(self._variables)

    @property
    def variables(self) -> Mapping[str, Variable]:
        """The variables by name, read-only."""
        return MappingProxyType(self._variables)

    def bias(self, name: str) -> Tensor | None:
        """A variable's bias, broadcastable to it."""
        return getattr(self, f"bias_{name}") if self._variables[name].bias is not False else None

    def anchor(self) -> Tensor | None:
        """A tensor with the network's dtype and device; None for a network without parameters."""
        quick = next(iter(self._parameters.values()), None)
        return quick if quick is not None else next((p for p in self.parameters() if p.is_floating_point()), None)

    def steady(self) -> AbstractContextManager[None]:
        """Parametrized weights (`torch.nn.utils.parametrize`) are computed once within, and not at every message."""
        if any("parametrizations" in factor._modules for factor in self.factors.values()):
            return parametrize.cached()
        return nullcontext()

    def energy(self, values: Observed, lengths: Mapping[str, Tensor] | None = None) -> Float[Tensor, " batch"]:
        """The energy of each example, Psi included; infinite outside the domains.

        >>> import undirected as un
        >>> net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (3,), un.Softmax()), un.Linear("x", "y"))
        >>> net.energy({"x": torch.zeros(1, 2), "y": torch.tensor([1])})
        tensor([0.], grad_fn=<AddBackward0>)
        """
        return sum_terms(self.energy_terms(values, lengths))

    def energy_terms(
        self, values: Observed, lengths: Mapping[str, Tensor] | None = None
    ) -> dict[str, Float[Tensor, " batch"]]:
        """What each variable and each factor, by name, adds to the energy of each example."""
        evidence = gather(self._variables, values, "zeros", lengths, self.anchor())
        for name in evidence.known:
            raise QueryError(f"energy: {name} is known in part only; find the rest first: net(observe=...)[{name!r}].")
        missing = [name for name in self._variables if name not in values]
        if missing:
            raise QueryError(f"energy: needs a value for every variable; missing are {', '.join(missing)}.")
        terms = {name: self.variable_term(name, evidence.values[name], None, evidence) for name in self._variables}
        return terms | {name: self.factor_term(name, evidence.values, evidence) for name in self.factors}

    def variable_term(self, name: str, x: Tensor, t: Tensor | None, evidence: Evidence) -> Tensor:
        """`Psi(x) - <b, x>`; t is the pre-activation that x came from, if it did."""
        bias = self.bias(name)
        psi = self.psi(name, x, t, evidence)
        return psi if bias is None else psi - total(bias * x)

    def psi(self, name: str, x: Tensor, t: Tensor | None, evidence: Evidence) -> Tensor:
        """`Psi(x)`, or with dropout its perspective `m Psi(x / m)`, which counts nothing where m = 0."""
        regularizer, mask = self._variables[name].regularizer, evidence.masks[name]
        if name in evidence.dropout:
            m = evidence.dropout[name]
            kept = m > 0
            psi = _rounded_psi(regularizer, x / torch.where(kept, m, 1)) * m * regularizer.scale  # type: ignore[attr-defined]
            # Dropped entries that are not zero lie outside the domain.
            psi = torch.where(kept, psi, torch.where(x == 0, 0.0, torch.inf).to(x.dtype))
            return total(psi, mask)
        if t is None:
            return regularizer.value(x, mask)
        return regularizer.attained(x, t, mask, evidence.known.get(name))

    def factor_term(self, name: str, values: Mapping[str, Tensor], evidence: Evidence) -> Tensor:
        """`-score`."""
        factor = self.factors[name]
        if name in evidence.outputs:
            return -total(evidence.outputs[name] * values[factor.variables[-1]])
        inputs = factor.shifted([values[v] for v in factor.variables], [evidence.masks[v] for v in factor.variables])
        score: Tensor = factor.score(*inputs)
        if score.shape != (evidence.batch,):
            raise QueryError(
                f"{factor}: score gives the shape {tuple(score.shape)}; it takes one number per example, "
                f"({evidence.batch},)."
            )
        return -score

    def reachable(self, names: set[str]) -> set[str]:
        """The variables that are joined to some of these by factors."""
        reached, front = set(names), list(names)
        while front:
            for factor, _ in self.links[front.pop()]:
                new = set(self.factors[factor].variables) - reached
                reached |= new
                front += new
        return reached

    def extra_energies(self, name: str) -> list[str]:
        """The factors of a variable that are not linear in it."""
        energies = [(f, place, self.factors[f].original) for f, place in self.links[name]]
        return [f for f, place, e in energies if isinstance(e, Energy) and e.variables[place] not in e.linear]

    def directed_inputs(self) -> dict[str, str]:
        """Variables that must be observed, and the factor that says so."""
        directed = {name: f for name, f in self.factors.items() if isinstance(f.original, Directed)}
        return {variable: name for name, factor in directed.items() for variable in factor.variables[:-1]}

    def extra_repr(self) -> str:
        return "\n".join(map(repr, self._variables.values()))


def _rounded_psi(regularizer: Regularizer, h: Tensor) -> Tensor:
    """`psi(h)` of an h that rounding may have carried out of the domain by a last digit or two."""
    psi = regularizer.psi(h)  # type: ignore[attr-defined]
    for nudge in (-2, 2):
        moved = regularizer.psi(h * (1 + nudge * torch.finfo(h.dtype).eps))  # type: ignore[attr-defined]
        psi = torch.where(psi.isinf(), moved, psi)
    return psi


def sum_terms(terms: Mapping[str, Tensor]) -> Tensor:
    first, *others = terms.values()
    energy = first
    for other in others:
        energy = energy + other
    return energy
