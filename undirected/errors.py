"""What can go wrong, by name. Every message says what, where, the numbers, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterable


class DeclarationError(ValueError):
    """Variables and factors that do not fit together."""


class QueryError(ValueError):
    """A call that cannot be answered as written: names, shapes, values, orders."""


class UnsafeGroup(QueryError):
    """Blocks that are updated together although they share a factor."""


class EnergyRose(ArithmeticError):
    """An update raised the energy. With exact block minimisation this cannot happen."""


class Diverged(ArithmeticError):
    """A solve left the finite numbers, usually because its energy has no lower bound."""


class NotFinite(ValueError):
    """Scores of a structure that are NaN or too large to be numbers."""


class FileError(ValueError):
    """A file that is not a network of this library, or only part of one."""


class NotConverged(UserWarning):
    """A solve to equilibrium stopped before it got there."""


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """The sentence for a name that nobody knows."""
    return f"unknown {kind} {name!r}; known are {', '.join(map(repr, known)) or 'none'}."
