"""Formulas: LaTeX between dollar signs becomes MathML while the site is built, so no page needs a script for it."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

#: What pymdownx.arithmatex makes of `$...$`, with the punctuation behind it, and of `$$...$$`.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>([.,;:?!)]*)', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
#: What the converter leaves for us to space: bars of a norm, and names of functions.
SPACING = (
    (re.compile(r"<mo[^>]*>(?:\||&#x0007C;)</mo>"), '<mo stretchy="false" lspace="0" rspace="0">|</mo>'),
    (re.compile(r"<mi>(log|exp|tanh|cosh)</mi>"), r'<mo lspace="0.17em" rspace="0.17em">\1</mo>'),
)


def on_page_content(content: str, **_: object) -> str:
    """Called by MkDocs with the HTML of each page."""
    content = BLOCK.sub(lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', content)
    return INLINE.sub(lambda found: f'<span class="symbols">{_mathml(found[1], "inline")}{found[2]}</span>', content)


def _mathml(latex: str, display: str) -> str:
    formula: str = convert(html.unescape(latex).strip(), display=display)
    for pattern, spaced in SPACING:
        formula = pattern.sub(spaced, formula)
    return formula
