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
from undirected.tasks.images.saved import open_model, settled
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
    net, own, trained_on = open_model(model)
    images = load(data or trained_on or "digits")
    if net.variables["x"].shape[-1] != images.side:
        raise FileError(
            f"{model}: reads images of side {net.variables['x'].shape[-1]}, {images.name} has {images.side}."
        )
    tester = Tester(net, len(images.classes), iterations or settled(model) or own, seed)
    test(tester, Pieces(images.test), device, precision)
    found = tester.found
    count = len(images.test)
    return Evaluation(images.name, images.classes, tester.sweeps, count, float(found["accuracy"]), found["confusion"])


class Tester(lightning.LightningModule):
    """Reads every test image once."""

    def __init__(self, net: UNN, classes: int, sweeps: int | Tolerance, seed: int) -> None:
        super().__init__()
        self.net, self.sweeps, self.seed = net, sweeps, seed
        self.metrics = MetricCollection(
            {"accuracy": MulticlassAccuracy(classes, average="micro"), "confusion": MulticlassConfusionMatrix(classes)}
        )
        self.found: dict[str, Tensor] = {}

    def on_test_start(self) -> None:
        torch.manual_seed(self.seed)

    def test_step(self, batch: Batch, index: int) -> None:
        images, _, labels = batch
        self.metrics.update(read(self.net, images, self.sweeps).preactivation["y"], labels)

    def on_test_epoch_end(self) -> None:
        self.found = {name: value.cpu() for name, value in self.metrics.compute().items()}
