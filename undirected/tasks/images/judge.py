"""Judge: a plain feed-forward convnet of another kind, trained on its own, that says what drawings look like."""

from __future__ import annotations

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from undirected.network import UNN
from undirected.tasks.images.batches import Batch, Batches, Pieces
from undirected.tasks.images.data import Images
from undirected.tasks.images.model import draw
from undirected.tasks.run import fit, test


class Judge(lightning.LightningModule):
    """Two 3x3 convolutions with ReLU and max-pooling, then a linear layer."""

    def __init__(self, images: Images, epochs: int = 3, seed: int = 1) -> None:
        super().__init__()
        self.images, self.epochs, self.seed = images, epochs, seed
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.net = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(32 * (images.side // 4) ** 2, len(images.classes)),
            )
        self.accuracy = MulticlassAccuracy(len(images.classes), average="micro")

    def training_step(self, batch: Batch, index: int) -> Tensor:
        seen, _, labels = batch
        return F.cross_entropy(self.net(seen), labels)

    def test_step(self, batch: Batch, index: int) -> None:
        images, _, labels = batch
        self.accuracy(self.net(images), labels)
        self.log("test_accuracy", self.accuracy)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def trained_judge(images: Images, epochs: int = 3, seed: int = 1) -> tuple[Judge, float]:
    """A judge and its accuracy on the test images."""
    judge = Judge(images, epochs, seed)
    fit(judge, Batches(images.train, 128, seed), epochs)
    return judge.eval(), test(judge, Pieces(images.test), "cpu", "32")["test_accuracy"]


@torch.no_grad()
def recognised(net: UNN, judge: Judge, iterations: int) -> Tensor:
    """For each class: does the judge see that class in the network's drawing of it?"""
    classes = torch.arange(len(judge.images.classes))
    return judge.net(draw(net, classes, iterations)["x"].float()).argmax(1) == classes
