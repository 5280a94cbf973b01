"""The README's Python runs as printed, and its pictures and pages exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_python_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert (tmp_path / "plan.svg").exists()
    assert "observe x; want y" in capsys.readouterr().out


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_it_is_short():
    assert len(README.splitlines()) < 120
