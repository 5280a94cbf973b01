"""Orders: in which order the blocks of a solve are updated, and how often."""

from __future__ import annotations

import operator
import random as _random
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from undirected.errors import QueryError, UnsafeGroup, unknown
from undirected.graph import Graph

Group = tuple[str, ...]  # blocks that are updated together
Sweep = tuple[Group, ...]  # one iteration
Iterations = int | tuple[int, int]


class Order(ABC):
    """Gives each iteration its sweep over the free variables."""

    #: Does every call give the same sweeps? Then plans are kept.
    is_fixed: bool = True

    @abstractmethod
    def sweeps(self, graph: Graph, observed: Iterable[str], partial: Iterable[str], iterations: int) -> list[Sweep]:
        """One sweep per iteration. `partial` are those of the observed whose rest is free."""


@dataclass(frozen=True)
class Given(Order):
    """The same sweep in every iteration, as written."""

    sweep: Sweep

    def sweeps(self, graph: Graph, observed: Iterable[str], partial: Iterable[str], iterations: int) -> list[Sweep]:
        return [self.sweep] * iterations


@dataclass(frozen=True)
class ForwardBackward(Order):
    """Away from what is observed and back again."""

    def sweeps(self, graph: Graph, observed: Iterable[str], partial: Iterable[str], iterations: int) -> list[Sweep]:
        forward = by_distance(graph, set(observed))
        backward = forward[-2::-1]
        partial = [name for name in graph.variables if name in set(partial)]
        # Without a partly observed end, the last block back is the first one of the next sweep.
        names = forward + (backward + partial if partial else backward[:-1])
        return [tuple((name,) for name in names)] * iterations


@dataclass(frozen=True)
class Random(Order):
    """A new permutation of some blocks in every iteration, then some blocks in their order."""

    names: Group | None
    last: Group
    source: _random.Random | None
    is_fixed = False

    def sweeps(self, graph: Graph, observed: Iterable[str], partial: Iterable[str], iterations: int) -> list[Sweep]:
        fixed = set(observed) - set(partial)
        names = self.names
        if names is None:
            reached = graph.reachable(set(observed)) if observed else set(graph.variables)
            names = tuple(name for name in graph.variables if name in reached - fixed and name not in self.last)
        sweeps: list[Sweep] = []
        for _ in range(iterations):
            if self.source is None:  # follows torch.manual_seed
                drawn = [names[i] for i in torch.randperm(len(names)).tolist()]
            else:
                drawn = self.source.sample(names, len(names))
            sweeps.append(tuple((name,) for name in (*drawn, *self.last)))
        return sweeps


@dataclass(frozen=True)
class Colored(Order):
    """Few groups of blocks that share no factor: what may be updated in parallel is."""

    def sweeps(self, graph: Graph, observed: Iterable[str], partial: Iterable[str], iterations: int) -> list[Sweep]:
        names = by_distance(graph, set(observed)) + [name for name in graph.variables if name in set(partial)]
        groups: list[list[str]] = []
        for name in names:
            fits = next((group for group in groups if not any(shared_factor(graph, name, o) for o in group)), None)
            if fits is None:
                groups.append([name])
            else:
                fits.append(name)
        return [tuple(map(tuple, groups))] * iterations


@dataclass(frozen=True)
class Greedy(ForwardBackward):
    """One sweep away from what is observed and back; then always the block that would change most."""


def forward_backward() -> Order:
    """Away from what is observed and back again: `h1 h2 y h2` for x - h1 - h2 - y given x. The default."""
    return ForwardBackward()


def random(names: str | Sequence[str] | None = None, last: str | Sequence[str] = (), seed: int | None = None) -> Order:
    """A permutation of `names` (all free variables), drawn anew in every iteration, then `last`.

    Follows `torch.manual_seed`, unless it has a `seed` of its own.
    """
    source = None if seed is None else _random.Random(seed)
    return Random(None if names is None else _names(names), _names(last), source)


def colored() -> Order:
    """Groups of blocks that share no factor, as few as a greedy colouring finds."""
    return Colored()


def greedy() -> Order:
    """Always the block that would change most, for each example by itself. Needs `until`."""
    return Greedy()


def parse(order: str | Sequence[str | Sequence[str]] | Order | None) -> Order:
    """An order as users write it: `"h1 (h2 g2) y"`, a list of names and groups, or an order object.

    >>> parse("q (k v) s").sweep
    (('q',), ('k', 'v'), ('s',))
    """
    if order is None:
        return ForwardBackward()
    if isinstance(order, Order):
        return order
    text = order if isinstance(order, str) else written(order)
    groups: list[Group] = []
    inside: list[str] | None = None
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside:
            groups.append(tuple(inside))
            inside = None
        elif token in "()":
            raise QueryError(f"order {text!r}: parentheses do not match.")
        elif inside is None:
            groups.append((token,))
        else:
            inside.append(token)
    if inside is not None:
        raise QueryError(f"order {text!r}: parentheses do not match.")
    if not groups:
        raise QueryError("order: is empty. Name the variables to update, or leave it out.")
    return Given(tuple(groups))


def check(sweep: Sweep, graph: Graph, fixed: set[str]) -> None:
    """Refuse unknown and observed variables, and groups that share a factor."""
    for group in sweep:
        for name in group:
            if name not in graph.variables:
                raise QueryError(f"order: {unknown('variable', name, graph.variables)}")
            if name in fixed:
                raise QueryError(f"order: updates {name}, which is observed. Leave it out, or observe an un.Partial.")
        for i, name in enumerate(group):
            for other in group[i + 1 :]:
                factor = shared_factor(graph, name, other)
                if factor is not None:
                    raise UnsafeGroup(
                        f"({' '.join(group)}) are updated together, but {name} and {other} both belong to factor "
                        f'{factor!r}, so the energy could rise. Write them one after the other: "{name} {other}".'
                    )


def count(iterations: Iterations, training: bool) -> int:
    """How many iterations: a range is drawn from in training, and its middle taken otherwise."""
    ends = tuple(iterations) if isinstance(iterations, Sequence) else (iterations, iterations)
    try:
        low, high = (operator.index(end) for end in ends)
    except (TypeError, ValueError):
        low, high = 0, -1
    if isinstance(iterations, (bool, str)) or high < low == 0:
        raise QueryError(f"iterations: is a whole number or a range such as (1, 5), not {iterations!r}.")
    if low < 1 or high < low:
        raise QueryError(f"iterations: must be at least 1 and in order, not {iterations!r}.")
    if training and low < high:
        return int(torch.randint(low, high + 1, ()))
    return (low + high) // 2


def by_distance(graph: Graph, observed: set[str]) -> list[str]:
    """The variables that are not observed, nearest first; those that nothing observed reaches are left out."""
    distance = dict.fromkeys(observed, 0)
    front = list(observed) or list(graph.variables)[:1]
    distance.update(dict.fromkeys(front, 0))
    while front:
        name = front.pop(0)
        for factor, _ in graph.links[name]:
            for other in graph.factors[factor].variables:
                if other not in distance:
                    distance[other] = distance[name] + 1
                    front.append(other)
    if not observed:
        for name in graph.variables:
            distance.setdefault(name, len(graph.variables))
    names = [name for name in graph.variables if name in distance and name not in observed]
    return sorted(names, key=distance.__getitem__)


def shared_factor(graph: Graph, a: str, b: str) -> str | None:
    """A factor that joins two variables, if there is one."""
    return next((factor for factor, _ in graph.links[a] if b in graph.factors[factor].variables), None)


def written(blocks: Iterable[str | Iterable[str]]) -> str:
    """An order in a list, of names and groups of names, as text."""
    return " ".join(block if isinstance(block, str) else f"({' '.join(block)})" for block in blocks)


def _names(names: str | Sequence[str]) -> Group:
    return tuple(names.split()) if isinstance(names, str) else tuple(names)
