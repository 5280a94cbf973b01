"""Formulas: LaTeX between dollar signs becomes MathML while the site is built, so no page needs a script for it."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

#: What pymdownx.arithmatex makes of `$...$` and `$$...$$`.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Called by MkDocs with the HTML of each page."""
    content = BLOCK.sub(lambda found: _mathml(found[1], "block"), content)
    return INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def _mathml(latex: str, display: str) -> str:
    formula = convert(html.unescape(latex).strip(), display=display)
    return f'<div class="formula">{formula}</div>' if display == "block" else formula
