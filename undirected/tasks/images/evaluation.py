"""Evaluation: a saved network on test images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lightning
import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

from undirected.equilibrium import Tolerance
from undirected.errors import FileError
from undirected.network import UNN
from undirected.tasks.images.batches import Batch, Pieces
from undirected.tasks.images.data import load
from undirected.tasks.images.model import read
from undirected.tasks.images.saved import open_model
from undirected.tasks.run import test


@dataclass(frozen=True)
class Evaluation:
    """How a network did on test images."""

    data: str
    classes: tuple[str, ...]
    sweeps: int | Tolerance
    count: int
    accuracy: float
    confusion: Tensor


def evaluate(
    model: str | Path,
    data: str | None = None,
    iterations: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
) -> Evaluation:
    """Accuracy and confusion matrix on the test images."""
    saved = open_model(model)
    images, side = load(data or saved.data or "digits"), saved.net.variables["x"].shape[-1]
    if side != images.side:
        raise FileError(f"{model}: reads images of side {side}, {images.name} has {images.side}.")
    tester = Tester(saved.net, len(images.classes), iterations or saved.sweeps, saved.init, seed)
    test(tester, Pieces(images.test), device, precision)
    found = tester.found
    count = len(images.test)
    return Evaluation(images.name, images.classes, tester.sweeps, count, float(found["accuracy"]), found["confusion"])


class Tester(lightning.LightningModule):
    """Reads every test image once, from a class that starts as `init` says."""

    def __init__(self, net: UNN, classes: int, sweeps: int | Tolerance, init: str, seed: int) -> None:
        super().__init__()
        self.net, self.sweeps, self.init, self.seed = net, sweeps, init, seed
        self.metrics = MetricCollection(
            {"accuracy": MulticlassAccuracy(classes, average="micro"), "confusion": MulticlassConfusionMatrix(classes)}
        )
        self.found: dict[str, Tensor] = {}

    def on_test_start(self) -> None:
        torch.manual_seed(self.seed)

    def test_step(self, batch: Batch, index: int) -> None:
        images, _, labels = batch
        self.metrics.update(read(self.net, images, self.sweeps, self.init).preactivation["y"], labels)

    def on_test_epoch_end(self) -> None:
        self.found = {name: value.cpu() for name, value in self.metrics.compute().items()}
