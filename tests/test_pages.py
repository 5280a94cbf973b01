"""Every Python block of the README and of the documentation runs as printed, page by page, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(path: Path) -> list[str]:
    """The Python of a page; empty lines before each block, so that errors name the page's own lines."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in found]


PAGES = {
    str(path.relative_to(ROOT)): blocks(path) for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
}


@pytest.mark.parametrize("page", [page for page in PAGES if PAGES[page]])
def test_every_python_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in PAGES[page]:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_escapes(page):  # Python under another label, or indented, would not run
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if re.match(r"\s*(```|~~~)\s*py", line, re.IGNORECASE):
            assert line == "```python", page
