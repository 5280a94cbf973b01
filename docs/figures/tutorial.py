"""The pictures of docs/tutorial.md: the page's own code, run where its pictures are.

python docs/figures/tutorial.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import matplotlib
import torch

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "images" / "tutorial"


def main() -> None:
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "undirected"  # the same file from the same numbers
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.chdir(FOLDER)
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "docs/tutorial.md", "exec"), names)
    Path("digits.safetensors").unlink()


if __name__ == "__main__":
    main()
