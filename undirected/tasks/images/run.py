"""Run: train with some settings in a folder of its own, and leave there all that is worth keeping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from undirected.files import save
from undirected.network import UNN
from undirected.tasks.images.batches import Pieces
from undirected.tasks.images.data import Images, load
from undirected.tasks.images.learner import Learner
from undirected.tasks.images.settings import MODEL, Settings
from undirected.tasks.run import RESULT, begin, launched, learn, parameters, read_result, recall, test, write_result


@dataclass(frozen=True)
class Trained:
    """What a run gave."""

    folder: Path
    settings: Settings
    net: nn.Module
    images: Images
    result: dict[str, Any]


def train(settings: Settings, out: Path, resume: bool = False, progress: bool = True) -> Trained:
    """Train, choose the best epoch on the validation images, test once, and write the run's folder."""
    settings = replace(settings, devices=launched(settings.devices))
    images = load(settings.data, settings.validation)
    learner = Learner(settings, images)
    begin(settings, out, resume)  # what is refused above leaves no run behind
    if (out / RESULT).is_file():  # it is done already
        recall(learner, out)
        return Trained(out, settings, learner.net.eval(), images, read_result(out))
    course = learn(learner, settings, out, progress)
    tested = test(learner, Pieces(images.test), settings.device, settings.precision)
    result = {
        "test_accuracy": tested["test_accuracy"],
        "val_accuracy": course.best("val_accuracy"),
        "parameters": parameters(learner.net),
        **course.as_dict(),
    }
    if isinstance(learner.net, UNN):
        save(learner.net, out / MODEL)
    write_result(out, result)
    return Trained(out, settings, learner.net.eval(), images, result)
