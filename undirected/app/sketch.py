"""Sketch: a square to draw on. A drawing is sent as a string of numbers, never as a file."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import NamedTuple

import gradio as gr
import numpy as np

from undirected.errors import QueryError

GRID = 56  #: cells along a side, as in sketch.js

TEMPLATE = """
<div class="sketch">
  <div role="group" aria-label="Tools">
    <button data-tool="pen" aria-pressed="true">Pen</button>
    <button data-tool="rubber" aria-pressed="false">Rubber</button>
    <button data-tool="hide" aria-pressed="false">Hide</button>
  </div>
  <canvas width="280" height="280" aria-label="Draw here"></canvas>
  <div role="group" aria-label="Actions">
    <button data-action="clear">Clear</button>
    <button data-action="example">Another example</button>
    <button data-action="half">Hide half</button>
    <button data-action="unhide">Show all</button>
  </div>
</div>
"""


class Drawing(NamedTuple):
    """A drawing: how much ink each cell has, from 0 to 1, and which cells are hidden."""

    ink: np.ndarray
    hidden: np.ndarray


def sketch() -> gr.HTML:
    """The component. It tells its `sketch` event when a stroke ends."""
    code = (Path(__file__).parent / "sketch.js").read_text()
    return gr.HTML("", html_template=TEMPLATE, js_on_load=code, elem_id="sketch", apply_default_css=False)


def decode(value: object) -> Drawing | None:
    """What the component sent; None if there is no ink in it.

    >>> import base64
    >>> blank = base64.b64encode(bytes(GRID * GRID)).decode()
    >>> decode(f"{blank}.{blank}") is None
    True
    """
    parts = value.split(".") if isinstance(value, str) else []
    if len(parts) != 2:
        raise QueryError("A drawing is two grids, of ink and of what is hidden.")
    ink, hidden = (_grid(part) for part in parts)
    return Drawing(ink, hidden > 0.5) if (ink > 0.2).any() else None


def _grid(text: str) -> np.ndarray:
    try:
        cells = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise QueryError("A drawing's grid must be base64.") from None
    if len(cells) != GRID * GRID:
        raise QueryError(f"A drawing's grid has {GRID} x {GRID} cells, not {len(cells)} of them.")
    return np.frombuffer(cells, np.uint8).reshape(GRID, GRID).astype(np.float32) / 255
