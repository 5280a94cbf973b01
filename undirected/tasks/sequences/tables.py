"""Tables: the experiments of the paper on sequences, run again, with their figures."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from undirected.tasks.run import METRICS
from undirected.tasks.sequences import figures
from undirected.tasks.sequences.run import Trained, train
from undirected.tasks.sequences.settings import Settings
from undirected.tasks.table import Table, spread

#: Seeds and epochs of the full tables, and of their quick versions.
FULL, QUICK = (3, 16), (1, 2)
#: How many variables a sweep updates.
UPDATES = {"forward-backward": 10, "random": 6}


def experiments(name: str, epochs: int) -> list[Settings]:
    """The runs of a table, but for their seeds."""
    if name == "sequences-order":
        return [Settings(order=order, iterations=str(k), epochs=epochs) for order in UPDATES for k in range(1, 6)]  # type: ignore[arg-type]
    if name == "sequences-random-iterations":
        return [Settings(iterations=k, epochs=epochs) for k in ("1", "2", "3", "4", "5", "1-5")]
    if name == "sequences-attention":
        return [Settings(iterations=k, epochs=epochs) for k in ("1", "2")]
    raise ValueError(f"no table {name!r}.")


def reproduce(
    name: str,
    quick: bool = False,
    seeds: int | None = None,
    epochs: int | None = None,
    activation: str = "identity",
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
    out: Path | str = "out/sequences",
) -> Table:
    """Run what a table needs and is not there yet; write it as Markdown and CSV, and its figure as PNG.

    With another activation than the paper's, the files' names end with it.
    """
    count, length = QUICK if quick else FULL
    count, length = seeds or count, epochs or length
    folder = Path(out)
    runs: list[list[Trained]] = []
    for settings in experiments(name, length):
        chosen = replace(settings, activation=activation, device=device, precision=precision)  # type: ignore[arg-type]
        every = [replace(chosen, seed=seed + i) for i in range(count)]
        runs.append([train(one, folder / run_name(one), resume=True) for one in every])
    file = f"{name}{_ending(activation)}"
    table = Table(file, note(count, length, quick, activation), [_measured(group) for group in runs])
    table.write(folder)
    draw(name, runs, folder / f"{file}.png")
    return table


def run_name(settings: Settings) -> str:
    """A folder for a run, the same for the same experiment."""
    numbers = f"k{settings.iterations}-epochs{settings.epochs}-seed{settings.seed}"
    return f"{settings.order}-{numbers}{_ending(settings.activation)}"


def _ending(activation: str) -> str:
    return "" if activation == "identity" else f"-{activation}"


def note(seeds: int, epochs: int, quick: bool, activation: str) -> str:
    """What the figures are, and what they are not."""
    words = f"Missing test tokens found, in %, {seeds} seed{'s' * (seeds > 1)}, {epochs} epochs of 250 steps"
    words += "." if activation == "identity" else f", {activation} for q, k, v and h."
    words += f" A quick version: the full one has {FULL[0]} seeds and {FULL[1]} epochs." if quick else ""
    return f"{words} The paper's figures are not beside them: they could not be checked against the paper."


def draw(name: str, runs: list[list[Trained]], path: Path) -> None:
    """The figure of a table; of several seeds their mean, or the first one's attention."""
    if name == "sequences-attention":
        networks = {f"k = {k}": (group[0].net.float().cpu(), k) for k, group in enumerate(runs, 1)}
        figures.attention(networks, figures.EXAMPLE, path)
    elif name == "sequences-order":
        points: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for group in runs:
            points[group[0].settings.order].append((updates(group[0].settings), _mean(group, "test_accuracy")))
        figures.against_updates(points, path)
    else:
        figures.curves({f"k = {group[0].settings.iterations}": curve(group) for group in runs}, path)


def updates(settings: Settings) -> int:
    """How many variable updates a solve makes."""
    return UPDATES[settings.order] * (sum(settings.span) // 2)


def curve(group: list[Trained]) -> list[tuple[int, float]]:
    """Validation accuracy after each epoch, by the number of steps."""
    found = defaultdict(list)
    for trained in group:
        for step, accuracy in accuracies(trained.folder):
            found[step].append(accuracy)
    return [(step, statistics.mean(values)) for step, values in sorted(found.items())]


def accuracies(folder: Path) -> list[tuple[int, float]]:
    """Validation accuracy of the run in a folder after each epoch, by the number of steps."""
    with (folder / METRICS).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val_accuracy"]]
    return [(int(row["step"]) + 1, float(row["val_accuracy"])) for row in rows]


def _mean(group: list[Trained], name: str) -> float:
    return statistics.mean(trained.result[name] for trained in group)


def _measured(group: list[Trained]) -> dict[str, Any]:
    settings = group[0].settings
    accuracies = [100 * trained.result["test_accuracy"] for trained in group]
    return {
        "order": settings.order,
        "k": settings.iterations,
        "variable updates": updates(settings),
        "test accuracy": spread(accuracies),
        "validation accuracy": f"{100 * _mean(group, 'val_accuracy'):.2f}",
        "seeds": len(group),
        "steps": settings.epochs * settings.steps,
        "CPU minutes per run": f"{_mean(group, 'cpu_seconds') / 60:.1f}",
    }
