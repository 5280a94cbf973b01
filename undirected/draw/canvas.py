"""Canvas: shapes and text that become an SVG, and the boxes that they fill."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

Point = tuple[float, float]

INK = "#1f2937"
MUTED = "#6b7280"
FAINT = "#c3c9d2"
SHADE = "#d5d9e0"
PAPER = "#ffffff"
MARGIN = 22.0

SANS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
SERIF = "'Times New Roman', Times, 'Liberation Serif', 'DejaVu Serif', serif"
SYMBOL = re.compile(r"([A-Za-z])_?(\d*)")  # names set as in formulas: h, h1, h_12
NARROW, WIDE = set("iIjl.,:;'|!()[]-ftr "), set("mwMW@%")


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box, gap: float = 0.0) -> bool:
        return (
            self.left < other.right + gap
            and other.left < self.right + gap
            and self.top < other.bottom + gap
            and other.top < self.bottom + gap
        )

    def meets(self, start: Point, end: Point) -> bool:
        """Does a line from start to end pass through?"""
        enter, leave = 0.0, 1.0
        for low, high, a, b in ((self.left, self.right, start[0], end[0]), (self.top, self.bottom, start[1], end[1])):
            if a == b:
                if not low < a < high:
                    return False
                continue
            first, second = sorted(((low - a) / (b - a), (high - a) / (b - a)))
            enter, leave = max(enter, first), min(leave, second)
        return enter < leave


@dataclass(frozen=True)
class Drawing:
    """A picture: notebooks show it, `str(drawing)` is its SVG, `drawing.save("graph.svg")` writes it."""

    svg: str
    #: Where each text is, and each node: what a layout must keep apart.
    texts: tuple[Box, ...]
    nodes: tuple[Box, ...]

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing({len(self.nodes)} nodes, {len(self.svg)} characters of SVG)"

    def save(self, path: str | Path) -> Path:
        """Write the SVG, and give back where."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ValueError(f"save: a drawing is written as .svg, not {path.name!r}. Write {path.stem + '.svg'!r}.")
        path.write_text(self.svg, encoding="utf-8")
        return path


def text_width(text: str, size: float) -> float:
    """A width that no usual sans-serif font exceeds."""
    letters = sum(0.42 if c in NARROW else 0.98 if c in WIDE else 0.66 if c.isascii() else 1.0 for c in text)
    return letters * size


def node_size(name: str, radius: float) -> float:
    """Half the width of a variable's node: a circle, or wider where its name needs it."""
    if SYMBOL.fullmatch(name) and len(name) <= 4:
        return radius
    return max(radius, text_width(name, radius * 0.62) / 2 + radius * 0.45)


def toward(start: Point, end: Point, distance: float) -> Point:
    """The point at this distance from start on the way to end."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1.0
    return start[0] + dx / length * distance, start[1] + dy / length * distance


class Canvas:
    """Collects parts back to front, then wraps them in a white page that fits."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.texts: list[Box] = []
        self.nodes: list[Box] = []
        self.lines: list[tuple[Point, Point]] = []
        self.extent = Box(math.inf, math.inf, -math.inf, -math.inf)

    def open(self, kind: str, name: str, title: str) -> None:
        """Begin a group; its title is what a browser shows under the pointer."""
        self.parts.append(f'<g class="{escape(kind)}" data-name="{escape(name)}"><title>{escape(title)}</title>')

    def close(self) -> None:
        self.parts.append("</g>")

    def grow(self, box: Box) -> Box:
        old = self.extent
        self.extent = Box(
            min(old.left, box.left), min(old.top, box.top), max(old.right, box.right), max(old.bottom, box.bottom)
        )
        return box

    def line(self, points: Sequence[Point], color: str = INK, width: float = 1.5, dash: str = "") -> None:
        for x, y in points:
            self.grow(Box(x, y, x, y))
        self.lines += pairwise(points)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dashed}/>'
        )

    def arrow_head(self, start: Point, tip: Point, color: str = INK, size: float = 8.0) -> None:
        """A triangle rather than a marker: markers share ids across the pictures of a page."""
        base = toward(tip, start, size)
        nx, ny = (tip[1] - base[1]) * 0.42, (base[0] - tip[0]) * 0.42
        corners = [tip, (base[0] + nx, base[1] + ny), (base[0] - nx, base[1] - ny)]
        self.parts.append(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{color}"/>')

    def square(self, center: Point, half: float, fill: str, stroke: str) -> None:
        x, y = center
        self.nodes.append(self.grow(Box(x - half, y - half, x + half, y + half)))
        self.parts.append(
            f'<rect x="{x - half:.1f}" y="{y - half:.1f}" width="{2 * half:g}" height="{2 * half:g}" rx="1.5" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
        )

    def dot(self, center: Point, radius: float, fill: str, stroke: str = "none") -> None:
        self.parts.append(
            f'<circle cx="{center[0]:.1f}" cy="{center[1]:.1f}" r="{radius:g}" fill="{fill}" stroke="{stroke}"/>'
        )

    def variable(
        self,
        center: Point,
        name: str,
        radius: float,
        fill: str = PAPER,
        color: str = INK,
        half_fill: bool = False,
        dash: str = "",
        width: float = 1.6,
    ) -> Box:
        """A circle with the name inside; half of it shaded for a variable that is known in part."""
        (x, y), half = center, node_size(name, radius)
        box = self.grow(Box(x - half, y - radius, x + half, y + radius))
        self.nodes.append(box)
        frame = f'x="{box.left:.1f}" y="{box.top:.1f}" width="{2 * half:.1f}" height="{2 * radius:g}" rx="{radius:g}"'
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<rect {frame} fill="{PAPER if half_fill else fill}"/>')
        if half_fill:
            self.parts.append(
                f'<path d="M {x:.1f} {box.bottom:.1f} H {box.left + radius:.1f} A {radius:g} {radius:g} 0 0 1 '
                f'{box.left + radius:.1f} {box.top:.1f} H {x:.1f} Z" fill="{fill}"/>'
            )
        self.parts.append(f'<rect {frame} fill="none" stroke="{color}" stroke-width="{width:g}"{dashed}/>')
        self._name(center, name, radius, color)
        return box

    def _name(self, center: Point, name: str, radius: float, color: str) -> None:
        """Short names as mathematicians write them, with the number as an index; others as they are."""
        x, y = center
        symbol = SYMBOL.fullmatch(name)
        if symbol and len(name) <= 4:
            letter, index = symbol.groups()
            size = radius * (0.95 if len(index) < 2 else 0.85)
            lower = f'<tspan font-style="normal" font-size="{size * 0.66:.1f}" dy="{size * 0.22:.1f}">{index}</tspan>'
            self.parts.append(
                f'<text x="{x:.1f}" y="{y + size * 0.28:.1f}" font-family="{SERIF}" font-style="italic" '
                f'font-size="{size:.1f}" text-anchor="middle" fill="{color}">{letter}{lower if index else ""}</text>'
            )
            half = radius * 0.7
        else:
            size = radius * 0.62
            self.parts.append(
                f'<text x="{x:.1f}" y="{y + size * 0.35:.1f}" font-size="{size:.1f}" text-anchor="middle" '
                f'fill="{color}">{escape(name)}</text>'
            )
            half = text_width(name, size) / 2
        self.texts.append(Box(x - half, y - radius * 0.5, x + half, y + radius * 0.5))

    def text(self, text: str, at: Point, size: float = 11.0, color: str = MUTED, anchor: str = "middle") -> Box:
        """A line of text whose middle is at the height `at[1]`; lines that pass below it fade."""
        box = self.grow(text_box(text, at, size, anchor))
        self.texts.append(box)
        if any(box.meets(*line) for line in self.lines):
            self.parts.append(
                f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.right - box.left:.1f}" '
                f'height="{box.bottom - box.top:.1f}" rx="3" fill="{PAPER}" fill-opacity="0.85"/>'
            )
        self.parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1] + size * 0.35:.1f}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{color}">{escape(text)}</text>'
        )
        return box

    def drawing(self, title: str) -> Drawing:
        left, top = self.extent.left - MARGIN, self.extent.top - MARGIN
        width, height = self.extent.right + MARGIN - left, self.extent.bottom + MARGIN - top
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}" font-family="{SANS}">'
            f"<title>{escape(title)}</title>"
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="12" fill="{PAPER}"/>'
        )
        return Drawing("\n".join([head, *self.parts, "</svg>"]), tuple(self.texts), tuple(self.nodes))


def text_box(text: str, at: Point, size: float, anchor: str) -> Box:
    width = text_width(text, size)
    left = at[0] - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Box(left, at[1] - size * 0.58, left + width, at[1] + size * 0.58)
