"""Factor graph: circles for variables, squares for factors, as papers draw them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from undirected.draw.canvas import (
    INK,
    MUTED,
    PAPER,
    SHADE,
    Box,
    Canvas,
    Drawing,
    Point,
    node_size,
    text_box,
    text_width,
    toward,
)
from undirected.draw.layout import Link, Size, place
from undirected.errors import QueryError, unknown
from undirected.factors import Directed, Factor
from undirected.graph import Graph
from undirected.variable import Variable, show

RADIUS = 22.0
SQUARE = 6.0
CAPTION = 11.0
LINE = 14.0
TRIES = 12
#: Told apart by colour-blind readers too (Okabe and Ito).
SHARED = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

Line = tuple[str, Point, str]  # text, where its middle is, anchor


def draw_graph(graph: Graph, observed: Collection[str] = ()) -> Drawing:
    """The picture of a network; observed variables are shaded."""
    for name in observed:
        if name not in graph.variables:
            raise QueryError(f"observed: {unknown('variable', name, graph.variables)}")
    captions = {_key(v): _caption(v) for v in graph.variables.values()}
    captions |= {_key(f): [_label(f)] for f in graph.factors.values()}
    sizes = {_key(v): _variable_size(v, captions[_key(v)]) for v in graph.variables.values()}
    sizes |= {_key(f): _factor_size(captions[_key(f)]) for f in graph.factors.values()}
    links = [
        Link(_key(f), tuple(_key(graph.variables[name]) for name in f.variables), _key(f.original))
        for f in graph.factors.values()
    ]
    spread = 1.0
    for _ in range(TRIES):
        positions = place([_key(v) for v in graph.variables.values()], links, sizes, spread)
        placed, is_clear = _place_captions(graph, positions, captions)
        if is_clear:
            break
        spread *= 1.2
    return _paint(graph, positions, placed, set(observed))


def _key(part: Variable | Factor) -> str:
    """A variable and a factor may share a name."""
    return f"{'variable' if isinstance(part, Variable) else 'factor'} {part.name}"


def _caption(variable: Variable) -> list[str]:
    return [show(variable.axes), type(variable.regularizer).__name__]


def _label(factor: Factor) -> str:
    """Its name where it was given one, else its kind: which variables it joins is seen."""
    return type(factor.original).__name__ if factor.name == "-".join(factor.variables) else factor.name


def _variable_size(variable: Variable, caption: list[str]) -> Size:
    side = max(node_size(variable.name, RADIUS), max(text_width(line, CAPTION) for line in caption) / 2)
    return Size(side, RADIUS, RADIUS + 5 + LINE * len(caption), node_size(variable.name, RADIUS) - RADIUS)


def _factor_size(caption: list[str]) -> Size:
    return Size(max(SQUARE, text_width(caption[0], CAPTION) / 2), SQUARE + 5 + LINE, SQUARE)


def _edges(graph: Graph, positions: dict[str, Point]) -> list[tuple[Point, Point]]:
    return [
        (_end(positions[_key(factor)], positions[_key(graph.variables[name])], name), positions[_key(factor)])
        for factor in graph.factors.values()
        for name in factor.variables
    ]


def _end(start: Point, center: Point, name: str) -> Point:
    """Where an edge from start ends in a variable's node: its centre, or in a wide one the middle of its round end."""
    straight = node_size(name, RADIUS) - RADIUS
    return center[0] - max(-straight, min(straight, center[0] - start[0])), center[1]


def _node_boxes(graph: Graph, positions: dict[str, Point]) -> dict[str, Box]:
    boxes = {}
    parts: list[Variable | Factor] = [*graph.variables.values(), *graph.factors.values()]
    for part in parts:
        x, y = positions[_key(part)]
        up, half = (RADIUS, node_size(part.name, RADIUS)) if isinstance(part, Variable) else (SQUARE, SQUARE)
        boxes[_key(part)] = Box(x - half, y - up, x + half, y + up)
    return boxes


def _place_captions(
    graph: Graph, positions: dict[str, Point], captions: dict[str, list[str]]
) -> tuple[dict[str, list[Line]], bool]:
    """Each caption where it hits no node or text, and as few edges as may be; False if some had no such place."""
    edges, nodes = _edges(graph, positions), _node_boxes(graph, positions)
    taken = list(nodes.values())
    is_clear = not any(a.overlaps(b, 4) for i, a in enumerate(taken) for b in taken[i + 1 :])
    placed: dict[str, list[Line]] = {}
    for key, lines in captions.items():
        best: list[Line] = []
        fewest = float("inf")
        for candidate in _candidates(nodes[key], lines, is_factor=key.startswith("factor")):
            boxes = [text_box(text, at, CAPTION, anchor) for text, at, anchor in candidate]
            hits = sum(box.overlaps(other, 3) for box in boxes for other in taken) * 1000
            hits += sum(box.meets(*edge) for box in boxes for edge in edges)
            if hits < fewest:
                best, fewest = candidate, hits
        is_clear = is_clear and fewest < 1000
        placed[key] = best
        taken += [text_box(text, at, CAPTION, anchor) for text, at, anchor in best]
    return placed, is_clear


def _candidates(node: Box, lines: list[str], is_factor: bool) -> Iterator[list[Line]]:
    """Places for a caption beside a node, the best first."""
    x, y = (node.left + node.right) / 2, (node.top + node.bottom) / 2
    half = (node.bottom - node.top) / 2
    tall = LINE * (len(lines) - 1)
    below, above = node.bottom + 4 + LINE / 2, node.top - 4 - LINE / 2 - tall
    right, left = node.right + 6, node.left - 6
    beside, lift = (SQUARE + 4, 0.3 * half) if is_factor else (5.0, 0.0)
    places = [(x, below, "middle"), (x, above, "middle")]
    if is_factor:
        places.reverse()
    places += [(right, y - tall / 2, "start"), (left, y - tall / 2, "end")]
    for height in (below - lift, above + lift):
        places += [(x + beside, height, "start"), (x - beside, height, "end")]
    for aside in (0.0, 12.0, -12.0):
        places += [(x + aside, above - 8, "middle"), (x + aside, below + 8, "middle")]
    for px, py, anchor in places:
        yield [(text, (px, py + i * LINE), anchor) for i, text in enumerate(lines)]


def _paint(graph: Graph, positions: dict[str, Point], captions: dict[str, list[Line]], observed: set[str]) -> Drawing:
    canvas = Canvas()
    colors = _colors(graph)
    for factor in graph.factors.values():
        _paint_edges(canvas, graph, factor, positions, colors[factor.name])
    for factor in graph.factors.values():
        canvas.open("factor", factor.name, repr(factor))
        canvas.square(positions[_key(factor)], SQUARE, colors[factor.name], colors[factor.name])
        _paint_caption(canvas, captions[_key(factor)], colors[factor.name])
        canvas.close()
    for variable in graph.variables.values():
        canvas.open("variable", variable.name, repr(variable))
        fill = SHADE if variable.name in observed else PAPER
        canvas.variable(positions[_key(variable)], variable.name, RADIUS, fill)
        _paint_caption(canvas, captions[_key(variable)], MUTED)
        canvas.close()
    _paint_legend(canvas, graph, observed)
    return canvas.drawing(f"A network of {len(graph.variables)} variables and {len(graph.factors)} factors")


def _paint_edges(canvas: Canvas, graph: Graph, factor: Factor, positions: dict[str, Point], color: str) -> None:
    center = positions[_key(factor)]
    for index, name in enumerate(factor.variables):
        end = _end(center, positions[_key(graph.variables[name])], name)
        canvas.line([center, end], color, 1.5)
        if isinstance(factor.original, Directed) and index == len(factor.variables) - 1:
            canvas.arrow_head(center, toward(end, center, RADIUS + 1), color, 11)


def _paint_caption(canvas: Canvas, lines: list[Line], color: str) -> None:
    for text, at, anchor in lines:
        canvas.text(text, at, CAPTION, color, anchor)


def _colors(graph: Graph) -> dict[str, str]:
    """Factors that share weights share a colour."""
    shared = dict.fromkeys(f.original.name for f in graph.factors.values() if f.original is not f)
    palette = {name: SHARED[i % len(SHARED)] for i, name in enumerate(shared)}
    return {name: palette.get(factor.original.name, INK) for name, factor in graph.factors.items()}


def _paint_legend(canvas: Canvas, graph: Graph, observed: set[str]) -> None:
    sentences = ["shaded: observed"] if observed else []
    if any(factor.original is not factor for factor in graph.factors.values()):
        sentences.append("one colour: shared weights")
    if sentences:
        left = canvas.extent.left
        canvas.text("   ·   ".join(sentences), (left, canvas.extent.bottom + 26), CAPTION, MUTED, "start")
