"""Columns: where each update of a plan and each of its messages goes.

Time runs to the right, each variable has a row. An update's messages stand to its left, in its own column: those from
above one over the other above its row, those from below beneath it, each further right and further away than the last,
so that no line crosses a circle or a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from undirected.draw.canvas import Point, node_size, text_width
from undirected.plan import Message, Plan, Update

RADIUS = 17.0
LABEL = 10.0
STEP = 19.0  # between messages of one update, up or down


@dataclass(frozen=True)
class Arrow:
    """A message in a column."""

    message: Message
    fate: str  # computed, reused, hoisted, pruned, inner
    is_above: bool
    slot: int  # how far from the row
    x: float


@dataclass(frozen=True)
class Column:
    """An update and its messages."""

    update: Update
    is_live: bool
    arrows: tuple[Arrow, ...]
    x: float

    @property
    def half(self) -> float:
        """Half the width of the update's circle."""
        return node_size(self.update.variable, RADIUS)

    def square(self, arrow: Arrow, heights: dict[str, float]) -> Point:
        """Where the square of a message's factor stands."""
        side = -1 if arrow.is_above else 1
        return arrow.x, heights[self.update.variable] + side * (RADIUS + 10 + STEP * arrow.slot)


def rows(plan: Plan) -> dict[str, int]:
    """The variables from top to bottom, in the order declared or in one that makes the messages' ways shorter."""
    used = {*plan.observed, *plan.partial, *(update.variable for update in plan.updates)}
    used |= {source for update in plan.updates for source, _ in update.sources()}
    names = [name for name in plan.activations if name in used]
    joined = [(update.variable, source) for update in plan.updates for source, _ in update.sources()]

    def length(order: list[str]) -> int:
        row = {name: i for i, name in enumerate(order)}
        return sum(abs(row[a] - row[b]) for a, b in joined)

    best, shortest, is_better = names, length(names), True
    while is_better:
        is_better = False
        for name in names:
            rest = [other for other in best if other != name]
            for i in range(len(names)):
                tried = [*rest[:i], name, *rest[i:]]
                if length(tried) < shortest:
                    best, shortest, is_better = tried, length(tried), True
    return {name: i for i, name in enumerate(best)}


def columns(plan: Plan, row: dict[str, int]) -> Iterator[Column]:
    """Each update in its place, with what became of its messages as `plan.savings` counts it."""
    seen: set[Message] = set()
    edge = max((node_size(name, RADIUS) for name in row), default=RADIUS)
    for update, is_live in zip(plan.updates, plan.live, strict=True):
        fates = {message: _fate(message, update, is_live, seen) for message in (*update.messages, *update.extra)}
        if is_live:
            seen.update(update.messages)
        arrows, edge = _arrows(update.variable, fates, row, edge + 8)
        half = node_size(update.variable, RADIUS)
        column = Column(update, is_live, arrows, edge + 14 + half)
        edge = column.x + half
        yield column


def _fate(message: Message, update: Update, is_live: bool, seen: set[Message]) -> str:
    if not is_live:
        return "pruned"
    if message in update.extra:
        return "inner"
    if message in seen:
        return "hoisted" if message.is_constant else "reused"
    return "computed"


def _arrows(
    target: str, fates: dict[Message, str], row: dict[str, int], left: float
) -> tuple[tuple[Arrow, ...], float]:
    """The messages of a column, and its right edge. Those with sources on both sides come last, on their own."""
    sides = {message: {row[name] < row[target] for name, _ in message.inputs} or {True} for message in fates}
    above = {m: sum(row[name] - row[target] for name, _ in m.inputs) <= 0 for m in fates}
    one_sided = [m for m in fates if len(sides[m]) == 1]
    over, under = [m for m in one_sided if above[m]], [m for m in one_sided if not above[m]]
    places = [[side[i] for side in (over, under) if i < len(side)] for i in range(max(len(over), len(under)))] + [
        [m] for m in fates if len(sides[m]) == 2
    ]
    slots = {True: 0, False: 0}
    arrows: list[Arrow] = []
    x = left
    for place in places:
        x += max(text_width(message.factor, LABEL) for message in place) + 16
        for message in place:
            arrows.append(Arrow(message, fates[message], above[message], slots[above[message]], x))
            slots[above[message]] += 1
    return tuple(arrows), max(x, left + 10)
