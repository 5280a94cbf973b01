"""Layout: where the variables and factors of a graph go.

Networks that repeat in time (tied factors that step from a variable to the next of its kind) become a grid with time
to the right. All others become layers: variables by their distance from the first one, factors in between, ordered
within a layer by the barycentre heuristic and then pulled as straight as their sizes allow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from undirected.draw.canvas import Box, Point

Neighbours = Mapping[str, Sequence[str]]
SWEEPS = 12
CLOSE = 24.0  # nodes nearer than this touch
LEVEL = 16.0  # a line that rises less than this is made level


@dataclass(frozen=True)
class Size:
    """The room that a node takes with its caption: to each side, and up and down."""

    side: float
    up: float
    down: float
    wider: float = 0.0  # than a circle, to each side


@dataclass(frozen=True)
class Link:
    """A factor: its key, its variables, and the key of the factor whose weights it has."""

    key: str
    variables: tuple[str, ...]
    original: str


def place(
    variables: Sequence[str], links: Sequence[Link], sizes: Mapping[str, Size], spread: float
) -> dict[str, Point]:
    """Every node's centre. A larger spread moves everything apart."""
    times = _times(variables, links)
    if times is not None:
        grid = _grid(variables, links, sizes, times, spread)
        if not _is_crowded(grid, links):
            return grid
    positions: dict[str, Point] = {}
    top = 0.0
    for members in _components(variables, links):
        inside = [link for link in links if link.variables[0] in members]
        placed = _layers(members, inside, sizes, spread)
        shift = top - min(y - sizes[key].up for key, (_, y) in placed.items())
        positions |= {key: (x, y + shift) for key, (x, y) in placed.items()}
        top = max(y + sizes[key].down for key, (_, y) in positions.items()) + 30 * spread
    return positions


def _distances(start: str, links: Iterable[Link]) -> dict[str, int]:
    """How many factors lie between the first variable and each that it is joined to."""
    beside: dict[str, set[str]] = {}
    for link in links:
        for name in link.variables:
            beside.setdefault(name, set()).update(link.variables)
    distances, queue = {start: 0}, deque([start])
    while queue:
        name = queue.popleft()
        for other in sorted(beside.get(name, set()) - distances.keys()):
            distances[other] = distances[name] + 1
            queue.append(other)
    return distances


def _components(variables: Sequence[str], links: Sequence[Link]) -> list[list[str]]:
    components: list[list[str]] = []
    for name in variables:
        if not any(name in members for members in components):
            reached = _distances(name, links)
            components.append([other for other in variables if other in reached])
    return components


def _layers(
    variables: Sequence[str], links: Sequence[Link], sizes: Mapping[str, Size], spread: float
) -> dict[str, Point]:
    distance = _distances(variables[0], links)
    layer = {name: 2 * distance[name] for name in variables}
    # A factor stands behind the nearest of its variables, so that all its edges reach one layer only.
    layer |= {link.key: 2 * min(distance[name] for name in link.variables) + 1 for link in links}
    neighbours: dict[str, list[str]] = {key: [] for key in layer}
    for link in links:
        neighbours[link.key] = list(link.variables)
        for name in link.variables:
            neighbours[name].append(link.key)
    layers = [[key for key in layer if layer[key] == i] for i in range(max(layer.values()) + 1)]
    layers = _untangle(layers, neighbours)
    heights = _heights(layers, neighbours, sizes, spread)
    positions: dict[str, Point] = {}
    x = 0.0
    for i, keys in enumerate(layers):
        if i:
            steepest = max(
                (abs(heights[a] - heights[b]) for a in keys for b in neighbours[a] if layer[b] < i), default=0
            )
            room = max(sizes[key].side for key in layers[i - 1]) + max(sizes[key].side for key in keys)
            wider = max(sizes[key].wider for key in (*layers[i - 1], *keys))
            x += max(room + 26 * spread, 0.8 * steepest + wider)
        positions |= {key: (x, heights[key]) for key in keys}
    return positions


def _untangle(layers: list[list[str]], neighbours: Neighbours) -> list[list[str]]:
    """Order each layer by the mean place of its neighbours, to and fro, and keep the order with fewest crossings."""
    best, fewest = layers, _crossings(layers, neighbours)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        forward = range(1, len(layers)) if sweep % 2 == 0 else range(len(layers) - 2, -1, -1)
        layers = [list(keys) for keys in layers]
        for i in forward:
            fixed = {key: place for place, key in enumerate(layers[i - 1 if sweep % 2 == 0 else i + 1])}
            both = {key: place / (len(keys) or 1) for keys in layers for place, key in enumerate(keys)}
            layers[i].sort(key=lambda key: _barycentre(key, fixed, both, neighbours))
        crossings = _crossings(layers, neighbours)
        if crossings < fewest:
            best, fewest = layers, crossings
    return _swap(best, neighbours) if fewest else best


def _swap(layers: list[list[str]], neighbours: Neighbours) -> list[list[str]]:
    """Swap two that are one above the other, as long as that helps."""
    fewest, is_better = _crossings(layers, neighbours), True
    while is_better:
        is_better = False
        for keys in layers:
            for i in range(len(keys) - 1):
                keys[i : i + 2] = keys[i + 1], keys[i]
                crossings = _crossings(layers, neighbours)
                if crossings < fewest:
                    fewest, is_better = crossings, True
                else:
                    keys[i : i + 2] = keys[i + 1], keys[i]
    return layers


def _barycentre(key: str, fixed: Mapping[str, int], both: Mapping[str, float], neighbours: Neighbours) -> float:
    places = [fixed[other] / len(fixed) for other in neighbours[key] if other in fixed]
    return sum(places) / len(places) if places else both[key]


def _crossings(layers: list[list[str]], neighbours: Neighbours) -> int:
    count = 0
    for left, right in pairwise(layers):
        place = {key: i for i, key in enumerate(right)}
        ends = [sorted(place[other] for other in neighbours[key] if other in place) for key in left]
        for i, first in enumerate(ends):
            count += sum(a > b for second in ends[i + 1 :] for a in first for b in second)
    return count


def _heights(
    layers: list[list[str]], neighbours: Neighbours, sizes: Mapping[str, Size], spread: float
) -> dict[str, float]:
    """Each node as near the middle of its neighbours as those above and below it in its layer allow."""
    heights = {key: 0.0 for keys in layers for key in keys}

    def gaps(keys: list[str]) -> list[float]:
        return [sizes[a].down + sizes[b].up + 16 * spread for a, b in pairwise(keys)]

    for sweep in range(4 * SWEEPS):
        for keys in layers if sweep % 2 == 0 else layers[::-1]:
            wished = [
                sum(heights[other] for other in neighbours[key]) / len(neighbours[key]) if neighbours[key] else 0.0
                for key in keys
            ]
            heights |= dict(zip(keys, _apart(wished, gaps(keys)), strict=True))
    # Lines that are nearly level become level.
    for keys in (*layers[::-1], *layers) * 3:
        wished = [min([heights[o] for o in neighbours[k]] or [0.0], key=lambda y: abs(y - heights[k])) for k in keys]
        wished = [w if abs(w - heights[k]) < LEVEL else heights[k] for w, k in zip(wished, keys, strict=True)]
        heights |= dict(zip(keys, _apart(wished, gaps(keys)), strict=True))
    return heights


def _apart(wished: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """The places nearest to those wished, in squares, with at least these gaps: pooling of adjacent violators."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wished, offsets, strict=True):
        mean, count = wish - offset, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (mean * count + before * many) / (count + many), count + many
        pools.append((mean, count))
    levels = [mean for mean, count in pools for _ in range(count)]
    return [level + offset for level, offset in zip(levels, offsets, strict=True)]


def _kinds(variables: Sequence[str], links: Sequence[Link]) -> dict[str, str]:
    """Variables that take the same place in tied factors are of one kind, named after the first of them."""
    kind = {name: name for name in variables}
    originals = {link.key: link for link in links}
    for link in links:
        for mine, theirs in zip(link.variables, originals[link.original].variables, strict=True):
            one, other = kind[mine], kind[theirs]
            first = min(one, other, key=variables.index)
            kind = {name: first if k in (one, other) else k for name, k in kind.items()}
    return kind


def _times(variables: Sequence[str], links: Sequence[Link]) -> dict[str, int] | None:
    """The time of each variable where tied factors step through time; None for other networks."""
    kind = _kinds(variables, links)
    tied = {link.original for link in links if link.original != link.key}
    steps = [
        link
        for link in links
        if link.original in tied and len(link.variables) == 2 and len({kind[v] for v in link.variables}) == 1
    ]
    if not steps:
        return None
    times = {steps[0].variables[0]: 0}
    queue = deque(times)
    while queue:
        name = queue.popleft()
        for link in links:
            if name not in link.variables:
                continue
            for other in link.variables:
                later = link.variables.index(other) - link.variables.index(name) if link in steps else 0
                if other not in times:
                    times[other] = times[name] + later
                    queue.append(other)
                elif times[other] != times[name] + later:
                    return None
    slots = {(times[name], kind[name]) for name in variables if name in times}
    return times if len(slots) == len(variables) else None


def _grid(
    variables: Sequence[str],
    links: Sequence[Link],
    sizes: Mapping[str, Size],
    times: Mapping[str, int],
    spread: float,
) -> dict[str, Point]:
    """Time to the right, kinds upwards from the first, factors in the middle of their variables."""
    kind = _kinds(variables, links)
    merged = [Link(link.key, tuple(dict.fromkeys(kind[v] for v in link.variables)), link.key) for link in links]
    distance = _distances(kind[variables[0]], merged)
    rows = sorted(dict.fromkeys(kind.values()), key=lambda name: distance[name])
    width = max(sizes[name].side for name in variables) + max((sizes[link.key].side for link in links), default=0.0)
    height = max(max(size.up, size.down) for size in sizes.values())
    across, along = (2 * height + 16) * spread, (2 * width + 12) * spread
    positions = {name: (times[name] * along, -rows.index(kind[name]) * across) for name in variables}
    for link in links:
        xs, ys = zip(*(positions[name] for name in link.variables), strict=True)
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        if len(xs) == 1:
            x, y = x + 0.3 * along, y - 0.3 * across
        while _collide([*positions.values(), (x, y)]):  # a second factor of the same variables
            x, y = (x + 0.25 * along, y) if len(set(xs)) == 1 else (x, y - 0.25 * across)
        positions[link.key] = (x, y)
    return positions


def _collide(points: Sequence[Point]) -> bool:
    return any(math.dist(a, b) < CLOSE for i, a in enumerate(points) for b in points[i + 1 :])


def _is_crowded(positions: Mapping[str, Point], links: Sequence[Link]) -> bool:
    """Do nodes touch, or does an edge pass through a node that it does not belong to?"""
    around = {key: Box(x - CLOSE, y - CLOSE, x + CLOSE, y + CLOSE) for key, (x, y) in positions.items()}
    edges = [(link.key, name) for link in links for name in link.variables]
    variables = {name for _, name in edges}
    return _collide(list(positions.values())) or any(
        around[key].meets(positions[factor], positions[name]) for factor, name in edges for key in variables - {name}
    )
