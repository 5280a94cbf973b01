"""What something was declared with: constructor arguments, read back from the attributes that carry their names."""

from __future__ import annotations

import inspect
from typing import Any


def settings(thing: object) -> dict[str, Any]:
    """The constructor's arguments of `thing`, by name. Every declared class keeps each argument under its own name.

    >>> import undirected as un
    >>> settings(un.Softmax(temperature=2.0))
    {'axis': -1, 'temperature': 2.0, 'scale': 1.0}
    """
    parameters = inspect.signature(type(thing)).parameters.values()
    return {p.name: getattr(thing, p.name) for p in parameters if p.kind is not p.VAR_POSITIONAL}


def positional(thing: object) -> tuple[Any, ...]:
    """The constructor's `*arguments`, if it takes any."""
    parameters = inspect.signature(type(thing)).parameters.values()
    return next((tuple(getattr(thing, p.name)) for p in parameters if p.kind is p.VAR_POSITIONAL), ())


def describe(thing: object) -> str:
    """`Name(argument=value)` with the arguments that differ from their defaults; `...` for those not kept."""
    words = [repr(value) for value in positional(thing)]
    for p in inspect.signature(type(thing)).parameters.values():
        if p.kind is p.VAR_KEYWORD or not hasattr(thing, p.name):
            words += ["..."] if "..." not in words else []
            continue
        value = getattr(thing, p.name)
        if p.kind is p.VAR_POSITIONAL or (p.name == "name" and value == getattr(thing, "default_name", None)):
            continue
        if p.default is p.empty:
            words.append(repr(value))
        elif p.name == "shift":
            words += [f"shift={{{', '.join(f'{k!r}: {tuple(v.shape)}' for k, v in value.items())}}}"] if value else []
        elif value is not p.default and value != p.default:
            words.append(f"{p.name}={value!r}")
    return f"{type(thing).__name__}({', '.join(words)})"
