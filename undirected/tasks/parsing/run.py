"""Run: train a parser with some settings in a folder of its own, and leave there all that is worth keeping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from undirected.errors import Diverged, QueryError
from undirected.tasks.parsing.learner import Learner, Pieces
from undirected.tasks.parsing.metrics import NAMES
from undirected.tasks.parsing.parser import Parser
from undirected.tasks.parsing.settings import MODEL, Settings
from undirected.tasks.parsing.treebank import Treebank, load
from undirected.tasks.run import RESULT, begin, launched, learn, parameters, read_result, recall, test, write_result


@dataclass(frozen=True)
class Trained:
    """What a run gave."""

    folder: Path
    settings: Settings
    parser: Parser
    treebank: Treebank
    result: dict[str, Any]


def train(settings: Settings, out: Path, resume: bool = False, progress: bool = True) -> Trained:
    """Train, choose the best epoch by UAS on the development part, test once, and write the run's folder."""
    settings = replace(settings, devices=launched(settings.devices))
    treebank = load(settings.data)
    if len(treebank.dev) < settings.devices:
        raise QueryError(f"{treebank.name}: {len(treebank.dev)} dev sentences for {settings.devices} processes.")
    learner = Learner(settings, treebank)
    begin(settings, out, resume)  # only now: a treebank or an encoder that is refused leaves no folder behind
    if (out / RESULT).is_file():  # it is done already
        recall(learner, out)
        return Trained(out, settings, learner.parser(), treebank, read_result(out))
    try:
        course = learn(learner, settings, out, progress, monitor="val_uas")
    except Diverged as error:
        instead = "--iterations instead of --until" if settings.until else "fewer --iterations"
        raise Diverged(f"{error} For a parser that means --activation tanh, or {instead}.") from None
    tested = test(learner, Pieces(treebank.test), settings.device, settings.precision)
    result = {
        "treebank": treebank.name,
        **{f"test_{name}": tested[f"test_{name}"] for name in NAMES},
        "val_uas": course.best("val_uas"),
        "val_las": course.best("val_las"),
        "train_sentences": len(learner.sentences),
        "parameters": parameters(learner.network),
        **course.as_dict(),
    }
    parser = learner.parser()
    parser.save(out / MODEL)
    write_result(out, result)
    return Trained(out, settings, parser, treebank, result)
