"""Learner: the network with its losses, metrics and optimizer, as Lightning wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from undirected.equilibrium import Tolerance
from undirected.errors import FileError
from undirected.files import load as load_network
from undirected.gradients import Gradient, Implicit, OneStep, Unroll
from undirected.losses import fenchel_young
from undirected.network import UNN
from undirected.tasks.images.batches import Batch, Batches, Pieces
from undirected.tasks.images.data import Images
from undirected.tasks.images.model import CHANNELS, READ, draw, drawing_loss, equilibrium, network, read
from undirected.tasks.images.settings import MODEL, Settings
from undirected.tasks.run import parameters
from undirected.tasks.seeds import generator

WARM = 3  #: iterations at most, while warming up
GRADIENTS = {"unroll": Unroll(), "implicit": Implicit(1e-3, otherwise="ignore"), "one-step": OneStep()}


class Learner(lightning.LightningModule):
    """Reads images and draws classes; learns both."""

    def __init__(self, settings: Settings, images: Images) -> None:
        super().__init__()
        self.settings, self.images = settings, images
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            self.net: nn.Module = model(settings, images)
        self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a quarter faster
        self.train_accuracy = MulticlassAccuracy(len(images.classes), average="micro")
        self.val_accuracy = MulticlassAccuracy(len(images.classes), average="micro")
        self.test_accuracy = MulticlassAccuracy(len(images.classes), average="micro")

    @property
    def warming(self) -> bool:
        return self.training and self.current_epoch < self.settings.warmup * self.settings.epochs

    @property
    def sweeps(self) -> int | Tolerance:
        """Few at first: a network that reads and draws with three sweeps soon learns to do so with more."""
        settings = self.settings
        if self.warming:
            return WARM if settings.until else min(settings.iterations, WARM)
        return equilibrium(settings.until) if settings.until else settings.iterations

    @property
    def gradient(self) -> Gradient | None:
        """Of a solve to equilibrium; a number of sweeps is unrolled."""
        return GRADIENTS[self.settings.gradient] if isinstance(self.sweeps, Tolerance) else None

    def logits(self, images: Tensor) -> tuple[Tensor, Any]:
        if isinstance(self.net, UNN):
            sweeps = 1 if self.warming and self.global_step % 4 else self.sweeps
            reading = read(self.net, images, sweeps, self.settings.init, self.gradient)
            return reading.preactivation["y"], reading
        return self.net(images), None

    def forward(self, images: Tensor) -> Tensor:
        return self.logits(images)[0]

    def training_step(self, batch: Batch, index: int) -> Tensor:
        seen, images, labels = batch
        logits, reading = self.logits(seen)
        loss = F.cross_entropy(logits, labels) if reading is None else fenchel_young(reading, "y", labels)
        self.train_accuracy(logits, labels)
        self.log("loss", loss, prog_bar=True)
        self.log("accuracy", self.train_accuracy, prog_bar=True)
        if reading is not None and reading.converged is not None:
            self.log("converged", reading.converged.float().mean())
            self.log("sweeps", reading.iterations.float().mean())
        if self.settings.gamma:
            assert isinstance(self.net, UNN)
            classes = torch.arange(len(self.images.classes), device=self.device)
            drawing = drawing_loss(draw(self.net, classes, self.sweeps, self.gradient), images, labels)
            self.log("drawing_loss", drawing, prog_bar=True)
            loss = loss + self.settings.gamma * drawing
        return loss

    def on_train_batch_start(self, batch: Batch, index: int) -> None:
        # A step's dropout depends on its number alone, so that a resumed run draws the same.
        source = generator(self.settings.seed, 2, self.global_step, self.global_rank)
        torch.manual_seed(int(torch.randint(2**62, (), generator=source)))

    def validation_step(self, batch: Batch, index: int) -> None:
        images, _, labels = batch
        logits = self(images)
        self.val_accuracy(logits, labels)
        self.log("val_loss", F.cross_entropy(logits, labels), sync_dist=True, batch_size=len(labels))
        self.log("val_accuracy", self.val_accuracy, prog_bar=True)

    def test_step(self, batch: Batch, index: int) -> None:
        images, _, labels = batch
        self.test_accuracy(self(images), labels)
        self.log("test_accuracy", self.test_accuracy)

    def train_dataloader(self) -> Batches:
        s = self.settings
        return Batches(self.images.train, s.batch, s.seed, s.shift, self.global_rank, s.devices)

    def val_dataloader(self) -> Pieces:
        return Pieces(self.images.validation, rank=self.global_rank, processes=self.settings.devices)

    def configure_optimizers(self) -> Any:
        s = self.settings
        optimizer = torch.optim.AdamW(self.parameters(), lr=s.learning_rate, weight_decay=s.weight_decay)
        steps = s.epochs * len(Batches(self.images.train, s.batch, s.seed))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=s.learning_rate, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def model(settings: Settings, images: Images) -> nn.Module:
    """The network, or with untied weights the widest unrolled one that has no more parameters than it."""
    net = network(images.side, len(images.classes), dropout=settings.dropout)
    if settings.start:
        path = Path(settings.start)
        begun = load_network(path / MODEL if path.is_dir() else path)
        try:
            net.load_state_dict(begun.state_dict())
        except RuntimeError:
            raise FileError(
                f"--start {path}: not a network for {images.name}: its weights have other shapes."
            ) from None
    if settings.tied:
        return net
    most = parameters(net)
    for width in range(CHANNELS[1], 1, -1):
        channels = (max(width * CHANNELS[0] // CHANNELS[1], 1), width)
        narrow = network(images.side, len(images.classes), channels, settings.dropout)
        unrolled = narrow.unrolled(["x"], "y", READ, settings.iterations, preactivation=True, tie=False)
        if parameters(unrolled) <= most:
            return unrolled
    raise AssertionError("a network with two channels is always smaller")
