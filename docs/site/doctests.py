"""Doctests: the examples in documentation strings are shown as code."""

from __future__ import annotations

import re

import griffe

#: Lines from a `>>>` to the next empty line.
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*(?:\n\n>>> .*(?:\n.+)*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around every example that is not in a section of its own."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
