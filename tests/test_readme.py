"""The README's pictures and pages exist, and it is short. Its Python runs in test_pages.py."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_it_is_short():
    assert len(README.splitlines()) < 120
