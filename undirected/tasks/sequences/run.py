"""Run: train with some settings in a folder of its own, and leave there all that is worth keeping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from undirected.errors import QueryError
from undirected.files import load as load_network
from undirected.files import save
from undirected.network import UNN
from undirected.tasks.run import RESULT, begin, launched, learn, parameters, read_result, test, write_result
from undirected.tasks.sequences.batches import Pieces
from undirected.tasks.sequences.data import Sequences, load
from undirected.tasks.sequences.learner import MOST_SWEEPS, Learner
from undirected.tasks.sequences.settings import MODEL, Settings


@dataclass(frozen=True)
class Trained:
    """What a run gave."""

    folder: Path
    settings: Settings
    net: UNN
    sequences: Sequences
    result: dict[str, Any]


def train(settings: Settings, out: Path, resume: bool = False, progress: bool = True) -> Trained:
    """Train, choose the best epoch on the validation sequences, test once, and write the run's folder."""
    settings = replace(settings, devices=launched(settings.devices))
    sequences = load(settings.data, settings.validation)
    fewest = min(len(sequences.train), len(sequences.validation))
    if fewest < settings.devices:
        raise QueryError(
            f"{settings.data}: {fewest} questions to learn from or validate, {settings.devices} processes."
        )
    learner = Learner(settings, sequences)
    begin(settings, out, resume)  # what is refused above leaves no run behind
    sweeps = MOST_SWEEPS if settings.until else sum(settings.span) // 2
    learner.net.notes |= {"iterations": sweeps, "order": settings.order}
    if (out / RESULT).is_file():  # it is done already
        return Trained(out, settings, load_network(out / MODEL).eval(), sequences, read_result(out))
    course = learn(learner, settings, out, progress)
    tested = test(learner, Pieces(sequences.test), settings.device, settings.precision)
    result = {
        "test_accuracy": tested["test_accuracy"],
        "val_accuracy": course.best("val_accuracy"),
        "parameters": parameters(learner.net),
        **course.as_dict(),
    }
    save(learner.net, out / MODEL)
    write_result(out, result)
    return Trained(out, settings, learner.net.eval(), sequences, result)
