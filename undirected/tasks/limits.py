"""Limits: what settings may be, whatever is trained with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undirected.errors import QueryError


def check(
    settings: Any, counts: Sequence[str], unsigned: Sequence[str], positive: Sequence[str], shares: Sequence[str]
) -> None:
    """Refuse settings by their names: counts below 1, negative numbers, what is not positive, shares outside [0, 1].

    All settings have `gradient` and `until`: other gradients than that of unrolling belong to a tolerance.

    >>> from types import SimpleNamespace
    >>> check(SimpleNamespace(epochs=0), ["epochs"], [], [], [])
    Traceback (most recent call last):
    undirected.errors.QueryError: epochs must be at least 1, not 0.
    """
    for name in counts:
        if getattr(settings, name) < 1:
            raise QueryError(f"{name} must be at least 1, not {getattr(settings, name)}.")
    for name in unsigned:
        if getattr(settings, name) < 0:
            raise QueryError(f"{name} must not be negative, but is {getattr(settings, name)}.")
    for name in positive:
        if not getattr(settings, name) > 0:
            raise QueryError(f"{name} must be positive, not {getattr(settings, name)}.")
    for name in shares:
        if not 0 <= getattr(settings, name) <= 1:
            raise QueryError(f"{name} is a share, from 0 to 1, not {getattr(settings, name)}.")
    if settings.gradient != "unroll" and not settings.until:
        raise QueryError(f"gradient {settings.gradient} belongs to an equilibrium: give until, such as 1e-3.")


def dropout(share: float) -> None:
    """Refuse a share of features to leave out of which nothing would be left."""
    if not 0 <= share < 1:
        raise QueryError(f"dropout is a share from 0 up to (not including) 1, not {share}.")
