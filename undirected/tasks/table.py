"""Table: measured figures, as Markdown and CSV."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Table:
    """Measured figures."""

    name: str
    note: str
    rows: list[dict[str, Any]]

    def markdown(self) -> str:
        heads = list(self.rows[0])
        lines = [
            f"# {self.name}",
            "",
            self.note,
            "",
            f"| {' | '.join(heads)} |",
            f"| {' | '.join(['---'] * len(heads))} |",
        ]
        lines += [f"| {' | '.join(str(row[head]) for head in heads)} |" for row in self.rows]
        return "\n".join([*lines, ""])

    def write(self, folder: Path) -> None:
        (folder / f"{self.name}.md").write_text(self.markdown())
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)


def spread(values: Sequence[float]) -> str:
    """`86.12 ± 0.34`.

    >>> spread([1.0, 2.0]), spread([1.0])
    ('1.50 ± 0.71', '1.00')
    """
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")
