"""Tables: the experiments of the paper, run again."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from undirected.tasks.images.run import train
from undirected.tasks.images.settings import Settings
from undirected.tasks.run import read_result
from undirected.tasks.table import Table, spread

#: Seeds and epochs of the full tables, and of their quick versions.
FULL, QUICK = (3, 20), (1, 2)


@dataclass(frozen=True)
class Row:
    """A line of a table: its name, and the settings that make it, but for the seed."""

    name: str
    settings: Settings


def rows(name: str, data: str, epochs: int) -> list[Row]:
    """The experiments of a table."""

    def settings(iterations: int, gamma: float = 0.0, **more: Any) -> Settings:
        return Settings(data=data, iterations=iterations, gamma=gamma, epochs=epochs, **more)

    if name == "images-accuracy":
        baseline = Row("convnet (gamma 0, k = 1)", settings(1))
        return [baseline, *(Row(f"gamma 0.1, k = {k}", settings(k, 0.1)) for k in range(1, 6))]
    if name == "images-forward-only":
        return [Row(f"gamma 0, k = {k}", settings(k)) for k in range(1, 6)]
    if name == "images-unconstrained":
        return [Row(f"untied, k = {k}", settings(k, tied=False)) for k in range(2, 6)]
    if name == "images-initialization":
        return [
            Row(f"gamma 0.1, k = {k}, y starts {init}", settings(k, 0.1, init=init))
            for init in ("zeros", "random", "uniform")
            for k in (1, 3, 5)
        ]
    raise ValueError(f"no table {name!r}.")


def reproduce(
    name: str,
    data: str = "mnist",
    quick: bool = False,
    seeds: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
    out: Path | str = "out/images",
) -> Table:
    """Run what a table needs and is not there yet; write it as Markdown and CSV."""
    count, length = QUICK if quick else FULL
    count, length = seeds or count, epochs or length
    folder = Path(out)
    experiments = []
    for row in rows(name, data, length):
        chosen = replace(row.settings, device=device, precision=precision)  # type: ignore[arg-type]
        experiments.append((row.name, [replace(chosen, seed=seed + i) for i in range(count)]))
    for _, runs in experiments:
        for settings in runs:
            train(settings, folder / run_name(settings), resume=True, progress=True)
    table = Table(
        name, note(data, count, length, quick), [_measured(label, runs, folder) for label, runs in experiments]
    )
    table.write(folder)
    return table


def run_name(settings: Settings) -> str:
    """A folder for a run, the same for the same experiment."""
    data = Path(settings.data).name
    parts = [data, f"gamma{settings.gamma:g}", f"k{settings.iterations}", f"epochs{settings.epochs}"]
    parts += [settings.init] if settings.init != "zeros" else []
    parts += ["untied"] if not settings.tied else []
    return "-".join([*parts, f"seed{settings.seed}"])


def note(data: str, seeds: int, epochs: int, quick: bool) -> str:
    """What the figures are, and what they are not."""
    words = f"Test accuracy on {data} in %, {seeds} seed{'s' * (seeds > 1)}, {epochs} epochs."
    words += f" A quick version: the full one has {FULL[0]} seeds and {FULL[1]} epochs." if quick else ""
    return f"{words} The paper's figures are not beside them: they could not be checked against the paper."


def _measured(label: str, runs: list[Settings], folder: Path) -> dict[str, Any]:
    results = [read_result(folder / run_name(settings)) for settings in runs]
    accuracies = [100 * result["test_accuracy"] for result in results]
    return {
        "network": label,
        "test accuracy": spread(accuracies),
        "validation accuracy": f"{100 * statistics.mean(result['val_accuracy'] for result in results):.2f}",
        "parameters": results[0]["parameters"],
        "seeds": len(runs),
        "epochs": runs[0].epochs,
        "CPU minutes per run": f"{statistics.mean(result['cpu_seconds'] for result in results) / 60:.1f}",
    }
