"""Every Python block of the README and of the documentation runs as printed, page by page, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): re.findall(
        r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
}


@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks])
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
