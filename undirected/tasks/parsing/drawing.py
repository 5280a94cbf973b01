"""Drawing: trees as arcs over words, the probabilities of all arcs as a matrix, and pages of both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from undirected.draw.canvas import FAINT, INK, MUTED, SANS, Box, Canvas, Drawing, Point, text_width
from undirected.errors import QueryError

WORD, LABEL, SMALL = 15.0, 11.0, 9.0  # sizes of text
LEVEL, FOOT, CORNER, SLOT, SPACE = 25.0, 16.0, 9.0, 7.0, 16.0
CELL, ACCENT = 18.0, "#1d4ed8"
UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML has no place for

STYLE = f"""
body {{ font-family: {SANS}; color: {INK}; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
figure {{ margin: 0 0 1.5rem; padding-bottom: 1rem; border-bottom: 1px solid {FAINT}; overflow-x: auto; }}
figcaption, summary {{ color: {MUTED}; font-size: 0.85rem; margin: 0.3rem 0; }}
"""


@dataclass(frozen=True)
class Arc:
    """An arc between two places, 0 to n - 1, that is drawn at some height; `head` is None for the root's."""

    word: int
    head: int | None
    label: str
    probability: float | None

    @property
    def ends(self) -> tuple[int, int]:
        other = self.word if self.head is None else self.head
        return min(self.word, other), max(self.word, other)


def tree(
    words: Sequence[str], heads: Sequence[int], labels: Sequence[str], probabilities: Sequence[float] | None = None
) -> Drawing:
    """A tree as arcs from heads to words, with their labels. The more probable an arc, the thicker.

    >>> drawing = tree(["Dogs", "bark"], [2, 0], ["nsubj", "root"], [0.9, 0.8])
    >>> str(drawing).count('class="arc"')
    2
    """
    counts = [len(words), len(heads), len(labels), len(words if probabilities is None else probabilities)]
    if len(set(counts)) > 1 or not words:
        given = "{} words, {} heads, {} labels, {} probabilities".format(*counts)
        raise QueryError(f"tree: {given}; there must be as many of each, and at least one.")
    words = [printable(word) for word in words]
    chances = [None] * len(words) if probabilities is None else list(probabilities)
    arcs = [
        Arc(word, head - 1 if head else None, printable(label), chance)
        for word, (head, label, chance) in enumerate(zip(heads, labels, chances, strict=True))
    ]
    levels = _levels(arcs)
    slots = _slots(arcs, len(words))
    centers = _centers(words, arcs, slots)
    canvas = Canvas()
    marks: list[tuple[str, Point]] = []
    for arc in arcs:
        canvas.open("arc", f"{arc.head if arc.head is None else arc.head + 1}-{arc.word + 1}", _title(arc, words))
        marks.append((arc.label, _draw_arc(canvas, arc, levels, slots, centers)))
        canvas.close()
    for label, at in marks:
        canvas.text(label, at, LABEL, MUTED)
    for word, center, chance in zip(words, centers, chances, strict=True):
        canvas.text(word, (center, WORD), WORD, INK)
        if chance is not None:
            canvas.text(f"{chance:.2f}", (center, WORD + 16), SMALL, MUTED)
    return canvas.drawing(" ".join(words))


def matrix(words: Sequence[str], marginals: Sequence[Sequence[float]], heads: Sequence[int] | None = None) -> Drawing:
    """The probability of every arc: rows are heads, the root first, and columns are words. Chosen arcs are framed.

    >>> str(matrix(["Dogs", "bark"], [[0.2, 0.8], [0.0, 0.2], [0.8, 0.0]])).count('class="cell"')
    4
    """
    n = len(words)
    if [len(row) for row in marginals] != [n] * (n + 1) or not words:
        raise QueryError(f"matrix: {n} words need {n + 1} rows of {n}, not {[len(row) for row in marginals]}.")
    words = [printable(word) for word in words]
    canvas = Canvas()
    side = n * CELL, (n + 1) * CELL
    for row, head in enumerate(["root", *words]):
        canvas.text(head, (-6, (row + 0.5) * CELL), LABEL, MUTED if row == 0 else INK, "end")
    for column, word in enumerate(words):
        _upright(canvas, word, ((column + 0.5) * CELL, -6))
    for at in range(n + 2):
        canvas.line([(0, at * CELL), (side[0], at * CELL)], FAINT, 0.5)
    for at in range(n + 1):
        canvas.line([(at * CELL, 0), (at * CELL, side[1])], FAINT, 0.5)
    for row, chances in enumerate(marginals):
        for column, chance in enumerate(chances):
            if chance >= 0.005:  # what would be drawn is visible
                canvas.open("cell", f"{row}-{column + 1}", f"{['root', *words][row]} → {words[column]}: {chance:.3f}")
                canvas.parts.append(_cell(row, column, f'fill="{ACCENT}" fill-opacity="{min(chance, 1.0):.3f}"'))
                canvas.close()
    for column, row in enumerate(heads or ()):
        canvas.parts.append(_cell(row, column, f'fill="none" stroke="{INK}" stroke-width="1.5"'))
    return canvas.drawing(f"Probabilities of arcs: {' '.join(words)}")


@dataclass(frozen=True)
class Figure:
    """A sentence on a page: its tree, a line below it, and what is shown when its title is clicked."""

    tree: Drawing
    caption: str = ""
    more: Sequence[tuple[str, Sequence[Drawing]]] = ()


def page(figures: Iterable[Figure], title: str) -> Iterator[str]:
    """An HTML page, piece by piece, that needs nothing from outside.

    >>> figure = Figure(tree(["Dogs", "bark"], [2, 0], ["nsubj", "root"]), "certain")
    >>> "".join(page([figure], "Dogs")).count("<svg")
    1
    """
    yield (
        f'<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n<title>{escape(printable(title))}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(printable(title))}</h1>\n"
    )
    for figure in figures:
        folds = "".join(
            f"<details><summary>{escape(name)}</summary>\n{''.join(map(str, drawings))}</details>\n"
            for name, drawings in figure.more
        )
        yield f"<figure>\n{figure.tree}\n<figcaption>{escape(figure.caption)}</figcaption>\n{folds}</figure>\n"
    yield "</body>\n</html>\n"


def printable(text: str) -> str:
    """Text that may stand in SVG and HTML: control characters are replaced."""
    return UNPRINTABLE.sub("\ufffd", text)


def _title(arc: Arc, words: Sequence[str]) -> str:
    head = "root" if arc.head is None else words[arc.head]
    chance = "" if arc.probability is None else f", {arc.probability:.3f}"
    return f"{head} → {words[arc.word]}: {arc.label}{chance}"


def _levels(arcs: Sequence[Arc]) -> dict[Arc, int]:
    """How high each arc goes: above all shorter ones that it shares a stretch with. The root's tops them all."""
    levels: dict[Arc, int] = {}
    for arc in sorted((arc for arc in arcs if arc.head is not None), key=lambda arc: arc.ends[1] - arc.ends[0]):
        left, right = arc.ends
        below = [level for other, level in levels.items() if other.ends[0] < right and left < other.ends[1]]
        levels[arc] = max(below, default=0) + 1
    top = max(levels.values(), default=0) + 1
    return levels | {arc: top for arc in arcs if arc.head is None}


def _slots(arcs: Sequence[Arc], n: int) -> dict[tuple[int, Arc], float]:
    """Where at a word each of its arcs ends, from its middle: long arcs near the middle, so that arcs do not touch."""
    slots = {}
    for place in range(n):
        touching = [arc for arc in arcs if place in (arc.word, arc.head)]
        touching.sort(key=lambda arc: _side(arc, place))
        for number, arc in enumerate(touching):
            slots[place, arc] = (number - (len(touching) - 1) / 2) * SLOT
    return slots


def _side(arc: Arc, place: int) -> tuple[int, int]:
    """Order of arcs at a word: to the left, the shortest first; from the root; to the right, the longest first."""
    left, right = arc.ends
    if left == right:
        return 0, 0
    return (-1, right - left) if right == place else (1, left - right)


def _centers(words: Sequence[str], arcs: Sequence[Arc], slots: dict[tuple[int, Arc], float]) -> list[float]:
    """The middle of each word, as far left as words, arcs and labels allow."""
    used = [max(abs(slots[place, arc]) for arc in arcs if (place, arc) in slots) for place in range(len(words))]
    widths = [max(text_width(word, WORD) / 2, used[place] + SLOT / 2) for place, word in enumerate(words)]
    centers: list[float] = []
    for place in range(len(words)):
        least = [centers[-1] + widths[place - 1] + widths[place] + SPACE] if centers else [0.0]
        for arc in arcs:
            left, right = arc.ends
            if left < right == place:
                need = text_width(arc.label, LABEL) + 2 * CORNER
                least.append(centers[left] + slots[left, arc] - slots[right, arc] + need)
        centers.append(max(least))
    return centers


def _draw_arc(
    canvas: Canvas,
    arc: Arc,
    levels: dict[Arc, int],
    slots: dict[tuple[int, Arc], float],
    centers: Sequence[float],
) -> Point:
    """Draw an arc, and tell where its label goes."""
    width = 1.5 if arc.probability is None else 0.6 + 2.6 * arc.probability
    top = -FOOT / 2 - levels[arc] * LEVEL
    tip = centers[arc.word] + slots[arc.word, arc], 0.0
    size = 5 + 1.5 * width
    end = tip[0], -size + 1
    if arc.head is None:
        canvas.line([(tip[0], top), end], INK, width)
        canvas.arrow_head((tip[0], top), tip, INK, size)
        return tip[0], top - LABEL * 0.58 - 0.5
    start = centers[arc.head] + slots[arc.head, arc], 0.0
    step = CORNER if tip[0] > start[0] else -CORNER
    corner = [(0.0, 1.0), (0.1, 0.56), (0.29, 0.29), (0.56, 0.1), (1.0, 0.0)]  # a quarter of a circle
    rise = [(start[0] + x * step, top + y * CORNER) for x, y in corner]
    fall = [(tip[0] - x * step, top + y * CORNER) for x, y in reversed(corner)]
    canvas.line([start, *rise, *fall, end], INK, width)
    canvas.arrow_head((tip[0], top), tip, INK, size)
    return (start[0] + tip[0]) / 2, top - LABEL * 0.58 - width / 2 - 0.5


def _upright(canvas: Canvas, text: str, at: Point) -> None:
    """Text that reads upwards."""
    canvas.texts.append(canvas.grow(Box(at[0] - LABEL / 2, at[1] - text_width(text, LABEL), at[0] + LABEL / 2, at[1])))
    x, y = at[0] + LABEL * 0.35, at[1]
    canvas.parts.append(
        f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-90 {x:.1f} {y:.1f})" font-size="{LABEL:g}" '
        f'fill="{INK}">{escape(text)}</text>'
    )


def _cell(row: int, column: int, style: str) -> str:
    return f'<rect x="{column * CELL:g}" y="{row * CELL:g}" width="{CELL:g}" height="{CELL:g}" {style}/>'
