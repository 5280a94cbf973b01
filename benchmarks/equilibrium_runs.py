"""The paper's models trained at equilibrium, beside five unrolled sweeps: a table of docs/results/equilibrium.md.

python benchmarks/equilibrium_runs.py parser     # make both runs of a task, or go on with them; write the page
python benchmarks/equilibrium_runs.py            # write the page from the runs that are there

Tasks are images (MNIST), parser (Telugu) and sequences (numbers). Every run is a folder in out/equilibrium.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule
from stopwatch import peak_memory, setting

from undirected.tasks.folder import RESULT, read_result
from undirected.tasks.images import batches as image_batches
from undirected.tasks.images import data as image_data
from undirected.tasks.images import learner as image_learner
from undirected.tasks.images import run as image_run
from undirected.tasks.images import settings as image_settings
from undirected.tasks.parsing import batches as parser_batches
from undirected.tasks.parsing import learner as parser_learner
from undirected.tasks.parsing import run as parser_run
from undirected.tasks.parsing import settings as parser_settings
from undirected.tasks.parsing import treebank
from undirected.tasks.run import recall
from undirected.tasks.sequences import batches as sequence_batches
from undirected.tasks.sequences import data as sequence_data
from undirected.tasks.sequences import learner as sequence_learner
from undirected.tasks.sequences import run as sequence_run
from undirected.tasks.sequences import settings as sequence_settings

RUNS, PAGE = Path("out/equilibrium"), Path("docs/results/equilibrium.md")
EQUILIBRIUM: dict[str, Any] = {"until": 1e-3, "gradient": "implicit"}
#: Each task's run, train function, and settings with five sweeps. Of sequences, half of the steps are a warm-up.
TASKS: dict[str, tuple[Any, Any]] = {
    "images": (
        image_run.train,
        image_settings.Settings(data="mnist", iterations=5, gamma=0.1, epochs=1, warmup=0.0, validation=2000),
    ),
    "parser": (
        parser_run.train,
        parser_settings.Settings(
            data="te", iterations=5, activation="tanh", single=0.0, epochs=20, words=180, learning_rate=1e-3
        ),
    ),
    "sequences": (
        sequence_run.train,
        sequence_settings.Settings(
            iterations="5",
            activation="tanh",
            size=64,
            batch=64,
            steps=100,
            epochs=8,
            optimizer="adamw",
            learning_rate=5e-3,
        ),
    ),
}


def runs(task: str) -> dict[str, tuple[Path, Any]]:
    """Folder and settings of both runs."""
    chosen = TASKS[task][1]
    return {
        "unrolled, k = 5": (RUNS / f"{task}-unrolled", chosen),
        "at equilibrium (1e-3), `Implicit`": (RUNS / f"{task}-equilibrium", replace(chosen, **EQUILIBRIUM)),
    }


def first_step(task: str, folder: Path, settings: Any) -> tuple[LightningModule, Any]:
    """A learner with the weights that a run gave, past its warm-up, and the run's first batch."""
    learner: LightningModule
    if task == "images":
        pictures = image_data.load(settings.data, settings.validation)
        learner = image_learner.Learner(replace(settings, warmup=0.0), pictures)
        batches: Any = image_batches.Batches(pictures.train, settings.batch, settings.seed)
    elif task == "parser":
        trees = treebank.load(settings.data)
        learner = parser_learner.Learner(replace(settings, single=0.0), trees)
        batches = parser_batches.Batches(trees.train, settings.words, settings.seed)
    else:
        tokens = sequence_data.load(settings.data, settings.validation)
        learner = sequence_learner.Learner(replace(settings, warmup=0.0), tokens)
        batches = sequence_batches.Batches(tokens.train, settings.batch, settings.seed, settings.steps)
    recall(learner, folder)
    learner.log = lambda *_, **__: None  # type: ignore[assignment, method-assign]  # there is no trainer to log to
    return learner.train(), next(iter(batches))


def row(task: str, name: str, folder: Path, settings: Any) -> str:
    """A line of the table: what the run gave, and the memory of a step with its weights."""
    result = read_result(folder)
    learner, batch = first_step(task, folder, settings)

    def step() -> None:
        torch.manual_seed(0)
        learner.zero_grad()
        learner.training_step(batch, 0).backward()

    measure = f"UAS {result['test_uas']:.2%}" if "test_uas" in result else f"{result['test_accuracy']:.2%}"
    peak = peak_memory(step) / 2**20
    return f"| {task} | {name} | {measure} | {result['epochs']} | {result['cpu_seconds']:.0f} | {peak:.1f} |"


def write() -> None:
    lines = [f"{setting()}.", "", "| task | solved | test | epochs | CPU seconds | peak memory of a step (MiB) |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for task in TASKS:
        there = {name: run for name, run in runs(task).items() if (run[0] / RESULT).is_file()}
        lines += [row(task, name, *run) for name, run in there.items()]
    print("\n".join(lines))
    before, rest = PAGE.read_text().split("<!-- runs -->\n")
    _, after = rest.split("<!-- end of runs -->\n")
    PAGE.write_text("\n".join([f"{before}<!-- runs -->", *lines, f"<!-- end of runs -->\n{after}"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    for task in parser.parse_args().tasks:
        for folder, settings in runs(task).values():
            TASKS[task][0](settings, folder, resume=True, progress=False)
    write()


if __name__ == "__main__":
    main()
