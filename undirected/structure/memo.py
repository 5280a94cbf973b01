"""Memo: the last factorisation, for as long as its scores live.

A training step asks twice for the same trees: the network for their marginals, then the loss for their log-partition.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

Found = TypeVar("Found")


class Memo(Generic[Found]):
    """Remembers one result per computed tensor of scores; it holds no graph, and keeps the scores alive no longer.

    Leaves are not remembered: their numbers may change without notice, through `.data`.
    """

    def __init__(self) -> None:
        self._entry: tuple[weakref.ref[Tensor], tuple[object, ...], Found] | None = None

    def find(self, scores: Tensor, *rest: object) -> Found | None:
        entry = self._entry
        if entry is None or entry[0]() is not scores or scores._version != entry[1][0]:
            return None
        same = len(rest) == len(entry[1]) - 1 and all(map(_is, rest, entry[1][1:]))
        return entry[2] if same else None

    def keep(self, found: Found, scores: Tensor, *rest: object) -> None:
        if scores.grad_fn is None or scores.is_inference():
            return
        self._entry = (weakref.ref(scores, self._forget), (scores._version, *rest), found)

    def _forget(self, reference: weakref.ref[Tensor]) -> None:
        if self._entry is not None and self._entry[0] is reference:
            self._entry = None


def _is(a: object, b: object) -> bool:
    return a is b
