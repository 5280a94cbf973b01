"""Figures: what the networks found, as HTML that holds its own pictures. All text in it is escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import torch
from PIL import Image
from torch import Tensor

INK, MUTED, BLUE, LINE = "#1f2937", "#6b7280", "#0b63b8", "#e5e7eb"
_RGB = "11,99,184"  # BLUE


def card(title: str, *parts: str, note: str = "") -> str:
    """A titled box."""
    small = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<section class="card"><h3>{escape(title)}</h3>{small}{"".join(parts)}</section>'


def says(text: str, is_wrong: bool = False) -> str:
    """A sentence: what was found, or what is wrong."""
    return f'<p class="{"wrong" if is_wrong else "says"}">{escape(text)}</p>'


def share(probability: float) -> str:
    """A probability in %, with two digits however small it is.

    >>> share(0.1234), share(0.999), share(0.000056)
    ('12 %', '99.9 %', '0.0056 %')
    """
    percent = 100 * probability
    return f"{percent:.1f} %" if percent >= 99 else f"{percent:.2g} %"


def picture(image: Tensor, caption: str, hidden: Tensor | None = None, size: int = 112) -> str:
    """An image from -1 (paper) to 1 (ink), with what is hidden in orange."""
    levels = ((1 - image.detach().clamp(-1, 1)) * 127.5).round().to(torch.uint8)
    pixels = levels.unsqueeze(-1).repeat(1, 1, 3)
    if hidden is not None:
        pixels[hidden] = torch.tensor([253, 200, 160], dtype=torch.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" width="{size}" height="{size}" alt="{escape(caption)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def strip(pictures: Sequence[str]) -> str:
    """Pictures side by side."""
    return f'<div class="strip">{"".join(pictures)}</div>'


def table(values: Tensor, rows: Sequence[str], columns: Sequence[str], corner: str = "", digits: int = 0) -> str:
    """Numbers from 0 to 1 as a table whose cells are the darker the larger; in %, blank where they would round to 0."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = []
    for name, row in zip(rows, values.tolist(), strict=True):
        cells = "".join(_cell(value, digits) for value in row)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return (
        f'<div class="scroll"><table class="heat"><thead><tr><th>{escape(corner)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(value: float, digits: int) -> str:
    shown = f"{100 * value:.{digits}f}" if 100 * value >= 0.5 * 10**-digits else ""
    color = "white" if value > 0.5 else INK
    return f'<td style="background:rgba({_RGB},{value:.3f});color:{color}">{shown}</td>'


def heat(values: Tensor, rows: Sequence[str], columns: Sequence[str], caption: str, cell: float = 15.0) -> str:
    """Numbers from 0 to 1 as a map of squares."""
    left = 8 + 7 * max(map(len, rows))
    top = 8 + 7 * max(map(len, columns))
    parts = []
    for i, name in enumerate(rows):
        parts.append(_small(name, left - 5, top + (i + 0.75) * cell, "end"))
    for j, name in enumerate(columns):
        x, y = left + (j + 0.7) * cell, top - 5
        parts.append(f'<g transform="rotate(-90 {x:.1f} {y:.1f})">{_small(name, x, y, "start")}</g>')
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            parts.append(
                f'<rect x="{left + j * cell:g}" y="{top + i * cell:g}" width="{cell:g}" height="{cell:g}" '
                f'fill="{BLUE}" fill-opacity="{value:.3f}" stroke="{LINE}"><title>{escape(rows[i])} looks at '
                f"{escape(columns[j])}: {value:.3f}</title></rect>"
            )
    width, height = left + cell * len(columns) + 2, top + cell * len(rows) + 2
    return (
        f'<figure><svg width="{width:g}" height="{height:g}" role="img" aria-label="{escape(caption)}">{"".join(parts)}'
        f"</svg><figcaption>{escape(caption)}</figcaption></figure>"
    )


def _small(words: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="{MUTED}" text-anchor="{anchor}">{escape(words)}</text>'


def scroll(wide: str) -> str:
    """Something that may be wider than the page."""
    return f'<div class="scroll">{wide}</div>'


def energy(labels: Sequence[str], values: Sequence[float]) -> str:
    """The energy after every update, as a line."""
    width, height, left, bottom, top = 560.0, 190.0, 64.0, 30.0, 12.0
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = (width - left - 12) / max(len(values) - 1, 1)
    points = [(left + i * step, top + (height - top - bottom) * (high - v) / span) for i, v in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{BLUE}"><title>{escape(name)}: {value:.3f}</title></circle>'
        for (x, y), name, value in zip(points, labels, values, strict=True)
    )
    names = "".join(
        f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle" font-size="11" fill="{MUTED}">{escape(name)}</text>'
        for (x, _), name in zip(points, labels, strict=True)
    )
    ticks = "".join(
        f'<line x1="{left - 8}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>'
        f'<text x="{left - 14}" y="{y + 4:.1f}" text-anchor="end" font-size="11" fill="{MUTED}">{value:.1f}</text>'
        for y, value in ((top, high), (height - bottom, low))
    )
    return (
        f'<svg class="energy" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="Energy from {values[0]:.2f} to '
        f'{values[-1]:.2f}">{ticks}<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="1.8"/>'
        f"{dots}{names}</svg>"
    )
