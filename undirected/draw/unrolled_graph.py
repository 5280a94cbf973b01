"""Unrolled graph: what a plan does, update by update.

Each variable's value is a lane that lasts until the next update. An update is a circle; the messages that it adds up
are taken from the lanes, pass through the square of their factor, and end in an arrow.
"""

from __future__ import annotations

from undirected.draw.canvas import FAINT, INK, MUTED, PAPER, SHADE, Box, Canvas, Drawing, node_size, text_width, toward
from undirected.draw.columns import LABEL, RADIUS, STEP, Arrow, Column, columns, rows
from undirected.plan import Plan, Value

SQUARE = 4.5
COMPUTED = "#0b63b8"
CONSTANT = "#c2510c"
INNER = "#7c3aed"
PALE_INK = "#9aa2ae"  # for text that is greyed out, yet read
DASH = "4 3"


def draw_plan(plan: Plan) -> Drawing:
    """The picture of a plan."""
    row = rows(plan)
    cols = list(columns(plan, row))
    slots = 1 + max((arrow.slot for column in cols for arrow in column.arrows), default=0)
    gap = 2 * RADIUS + 30 + STEP * slots
    heights = {name: place * gap for name, place in row.items()}
    canvas = Canvas()
    _paint_iterations(canvas, cols, heights, RADIUS + 30 + STEP * (slots - 1))
    _paint_lanes(canvas, plan, cols, heights)
    for column in cols:
        for arrow in column.arrows:
            _paint_arrow(canvas, arrow, column, heights)
    for column in cols:
        _paint_update(canvas, plan, column, heights)
    _paint_given(canvas, plan, cols, heights)
    _paint_legend(canvas, plan, cols)
    given = ", ".join((*plan.observed, *plan.partial)) or "nothing"
    return canvas.drawing(f"The plan of observe {given}; want {', '.join(plan.want)}")


def _color(arrow: Arrow) -> str:
    if arrow.fate in ("pruned", "inner"):
        return FAINT if arrow.fate == "pruned" else INNER
    return CONSTANT if arrow.message.is_constant else COMPUTED


def _paint_arrow(canvas: Canvas, arrow: Arrow, column: Column, heights: dict[str, float]) -> None:
    color, dash = _color(arrow), DASH if arrow.fate in ("reused", "hoisted") else ""
    center = column.square(arrow, heights)
    node = (column.x, heights[column.update.variable])
    sources = ", ".join(_show(value) for value in arrow.message.inputs) or "nothing"
    canvas.open(f"message {arrow.fate}", arrow.message.factor, f"{arrow.message.factor} from {sources}: {arrow.fate}")
    taps = sorted(heights[name] for name, version in arrow.message.inputs if version is not None)
    for i, height in enumerate(taps):
        # Taps on several lanes run side by side.
        x = center[0] + 5 * (i - (len(taps) - 1) / 2)
        canvas.line([(x, height), (x, center[1])], color, 1.5, dash)
        canvas.dot((x, height), 2.6, color)
    aim = (node[0] - (column.half - RADIUS), node[1])
    tip = toward(aim, center, RADIUS + 1.5)
    canvas.line([center, toward(tip, center, 5)], color, 1.5, dash)
    canvas.arrow_head(center, tip, color, 7)
    canvas.square(center, SQUARE, color if not dash else PAPER, color)
    label_color = PALE_INK if arrow.fate == "pruned" else color
    canvas.text(arrow.message.factor, (center[0] - SQUARE - 5, center[1]), LABEL, label_color, "end")
    canvas.close()


def _paint_update(canvas: Canvas, plan: Plan, column: Column, heights: dict[str, float]) -> None:
    update = column.update
    at = (column.x, heights[update.variable])
    state = "updated" if column.is_live else "pruned"
    if column.is_live and update.is_repeated:
        state = "repeated"
    is_wanted = state == "updated" and update.variable in plan.want and plan.final[update.variable] == update.result
    number = f"{update.iteration}.{update.position}"
    canvas.open(f"update {state}", update.variable, f"{number} {_show(update.result)}: {state}")
    color = {"updated": INK, "repeated": MUTED, "pruned": FAINT}[state]
    dash, width = ("" if state == "updated" else "3 3"), (3.2 if is_wanted else 1.6)
    canvas.variable(at, update.variable, RADIUS, PAPER, color, dash=dash, width=width)
    for i, factor in enumerate(update.skipped if column.is_live else ()):
        canvas.open("message skipped", factor, f"{factor}: skipped, still zero")
        canvas.dot((at[0] + 7 * (i - (len(update.skipped) - 1) / 2), at[1] + RADIUS + 8), 2.4, PAPER, MUTED)
        canvas.close()
    canvas.close()


def _paint_lanes(canvas: Canvas, plan: Plan, cols: list[Column], heights: dict[str, float]) -> None:
    """A value's lane lasts from its update to the last column that takes it; what is wanted goes on to the end."""
    begins: dict[Value, float] = {}
    ends: dict[Value, float] = {}
    for column in cols:
        begins.setdefault(column.update.result, column.x)
        if column.update.is_repeated:
            ends[column.update.result] = column.x
        for arrow in column.arrows:
            ends |= {value: arrow.x for value in arrow.message.inputs if value[1] is not None}
    right = cols[-1].x + cols[-1].half + 24 if cols else 80.0
    for name in plan.want:
        ends[plan.final[name]] = right
    for (name, version), end in ends.items():
        y = heights[name]
        canvas.line([(begins.get((name, version), 0.0), y), (end, y)], FAINT, 3)
    for name in plan.want:
        y = heights[name]
        canvas.arrow_head((right, y), (right + 10, y), MUTED, 10)
        canvas.text(name, (right + 16, y), 12, INK, "start")


def _paint_given(canvas: Canvas, plan: Plan, cols: list[Column], heights: dict[str, float]) -> None:
    """At the left, what the call was given: shaded, half shaded if in part, plain for a start that is not zero."""
    used = {value for column in cols for value in column.update.sources()}
    for name, y in heights.items():
        kind = "observed" if name in plan.observed else "observed in part" if name in plan.partial else "start"
        if kind == "start" and (name, 0) not in used:
            canvas.text(name, (0.0, y), 12, MUTED)
            continue
        canvas.open("given", name, f"{name}: {kind}")
        canvas.variable((0.0, y), name, RADIUS, PAPER if kind == "start" else SHADE, half_fill=name in plan.partial)
        canvas.close()


def _paint_iterations(canvas: Canvas, cols: list[Column], heights: dict[str, float], margin: float) -> None:
    """The number of each update above its column, and lines between iterations."""
    top, bottom = min(heights.values()) - margin, max(heights.values()) + margin
    canvas.grow(Box(0.0, top, 0.0, bottom))
    blocks: dict[int, list[Column]] = {}
    for column in cols:
        blocks.setdefault(column.update.iteration, []).append(column)
    edge = node_size(next(iter(heights)), RADIUS) + 4
    for iteration, block in blocks.items():
        if iteration > 1:
            canvas.line([(edge, top - 26), (edge, bottom)], FAINT, 1, "2 4")
        right = block[-1].x + block[-1].half + 4
        for title in (f"iteration {iteration}", str(iteration)):
            if text_width(title, 11) < right - edge - 8:
                canvas.text(title, ((edge + right) / 2, top - 22), 11, INK)
                break
        for column in block:
            number = f"{iteration}.{column.update.position}"
            canvas.text(number, (column.x, top), 10, MUTED if column.is_live else FAINT)
        edge = right


def _paint_legend(canvas: Canvas, plan: Plan, cols: list[Column]) -> None:
    messages = [arrow for column in cols for arrow in column.arrows]
    fates = {arrow.fate for arrow in messages}
    entries = [("computed", COMPUTED, "")]
    if any(_color(arrow) == CONSTANT for arrow in messages):
        entries.append(("computed from what is given alone", CONSTANT, ""))
    if fates & {"hoisted", "reused"}:
        entries.append(("computed before", COMPUTED if "reused" in fates else CONSTANT, DASH))
    entries += [("inner descent", INNER, "")] if "inner" in fates else []
    entries += [("pruned", FAINT, "")] if "pruned" in fates else []
    left, y = canvas.extent.left, canvas.extent.bottom + 18
    x = left
    for text, color, dash in entries:
        canvas.line([(x, y), (x + 22, y)], color, 1.6, dash)
        canvas.arrow_head((x, y), (x + 30, y), color, 7)
        x = canvas.text(text, (x + 36, y), 11, MUTED, "start").right + 18
    if plan.savings.skipped:
        canvas.dot((x + 3, y), 2.4, PAPER, MUTED)
        canvas.text("skipped: still zero", (x + 12, y), 11, MUTED, "start")
    canvas.text(f"{plan.savings}.", (left, y + 22), 12, INK, "start")


def _show(value: Value) -> str:
    name, version = value
    return f"{name} (zero)" if version is None else f"{name} (given)" if version == 0 else f"{name} version {version}"
