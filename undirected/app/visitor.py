"""Visitor: what comes from outside is checked before it is used, and answered with a sentence when it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import gradio as gr

from undirected.app.figures import says
from undirected.errors import QueryError


def number(value: object, name: str, least: int, most: int) -> int:
    """A whole number within bounds.

    >>> number(3, "Iterations", 1, 10)
    3
    """
    if not isinstance(value, (int, float)) or value != value or not least <= value <= most:
        raise QueryError(f"{name} must be a number from {least} to {most}.")
    return int(value)


def choice(value: object, among: Sequence[str], name: str) -> int:
    """The place of a word in a list.

    >>> choice("b", ["a", "b"], "Letter")
    1
    """
    if not isinstance(value, str) or value not in among:
        raise QueryError(f"{name} must be one of {', '.join(among)}.")
    return among.index(value)


def text(value: object, name: str, most: int) -> str:
    """Some text that is not too long.

    >>> text(" a word ", "Sentence", 20)
    'a word'
    """
    if not isinstance(value, str):
        raise QueryError(f"{name} must be text.")
    if len(value) > most:
        raise QueryError(f"{name} may have {most} characters, not {len(value)}.")
    return value.strip()


def polite(shown: int) -> Callable[[Callable[..., Sequence[object]]], Callable[..., Sequence[object]]]:
    """Answer wrong input with a sentence in the first of `shown` outputs, and leave the query as it is."""

    def wrap(answer: Callable[..., Sequence[object]]) -> Callable[..., Sequence[object]]:
        @wraps(answer)
        def answered(*values: object) -> Sequence[object]:
            try:
                return answer(*values)
            except ValueError as error:
                return [says(str(error), is_wrong=True), *[""] * (shown - 1), gr.skip()]

        return answered

    return wrap


def answers(
    events: Iterable[Callable[..., Any]], answer: Callable[..., Sequence[object]], inputs: list[Any], outputs: list[Any]
) -> None:
    """Have some events of the page answered; while an answer is under way, only the last question waits."""
    for event in events:
        event(answer, inputs, outputs, api_visibility="private", show_progress="hidden", trigger_mode="always_last")
