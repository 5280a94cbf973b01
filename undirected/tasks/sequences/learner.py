"""Learner: the network with its loss, metrics and optimizer, as Lightning wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy

from undirected.equilibrium import Tolerance
from undirected.errors import FileError
from undirected.gradients import Gradient, Implicit, OneStep, Unroll
from undirected.network import UNN
from undirected.tasks.muon import Muon
from undirected.tasks.schedule import rise
from undirected.tasks.seeds import generator
from undirected.tasks.sequences.batches import Batches, Pieces
from undirected.tasks.sequences.data import NUMBERS, Batch, Sequences
from undirected.tasks.sequences.model import ORDERS, embeddings, network, scores, solve
from undirected.tasks.sequences.settings import Settings
from undirected.tasks.sequences.use import open_model

RISE = 0.05  #: the share of the steps in which the learning rate rises


GRADIENTS: dict[str, type[Gradient]] = {"unroll": Unroll, "implicit": Implicit, "one-step": OneStep}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"muon": Muon, "adamw": torch.optim.AdamW}
ORDERS_OF_A_STEP = 2  #: drawn at random, each for a part of the batch: a gradient of one order alone has more noise
#: How often a question about the numbers comes in a round, by the fewest known neighbours of its gaps: none, one, two.
#: What lies between two known tokens is learned soon. With the identity, more hard ones cost accuracy at most k.
TIMES = {"identity": (7, 3, 1), "tanh": (60, 12, 1)}
MOST_SWEEPS = 50  #: on the way to an equilibrium


class Learner(lightning.LightningModule):
    """Fills in missing tokens, and learns to."""

    def __init__(self, settings: Settings, sequences: Sequences) -> None:
        super().__init__()
        self.settings, self.sequences = settings, sequences
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            self.net = model(settings, sequences)
        count = len(sequences.vocabulary)
        self.train_accuracy = MulticlassAccuracy(count, average="micro")
        self.val_accuracy = MulticlassAccuracy(count, average="micro")
        self.test_accuracy = MulticlassAccuracy(count, average="micro")

    @property
    def warming(self) -> bool:
        return self.training and self.global_step < self.settings.warming * self.total_steps

    @property
    def iterations(self) -> int | tuple[int, int]:
        """By turns from one to k at first: one sweep is learned soon, and further ones keep the weights small."""
        low, high = self.settings.span
        return 1 + self.global_step % high if self.warming and low == high else (low, high)

    @property
    def total_steps(self) -> int:
        return self.settings.epochs * self.settings.steps

    def forward(self, batch: Batch) -> Tensor:
        """The scores of all tokens for each missing one."""
        s = self.settings
        if s.until and not self.warming:
            # A solve that has not settled after so many sweeps is learned from as it is.
            until = Tolerance(residual=s.until, max_iterations=MOST_SWEEPS, otherwise="ignore")
            solution = solve(self.net, batch, None, until=until, gradient=GRADIENTS[s.gradient]())
        else:
            solution = solve(self.net, batch, self.iterations, ORDERS[s.order])
        return scores(self.net, batch, solution)

    def training_step(self, batch: Batch, index: int) -> Tensor:
        parts = batch.parts(ORDERS_OF_A_STEP if self.settings.order == "random" else 1)
        logits, targets = torch.cat([self(part) for part in parts]), batch.targets()
        loss = F.cross_entropy(logits, targets)
        self.train_accuracy(logits, targets)
        self.log("loss", loss, prog_bar=True, batch_size=len(batch))
        self.log("accuracy", self.train_accuracy, prog_bar=True, batch_size=len(batch))
        return loss * batch.share  # the mean over processes is that over all missing tokens

    def on_train_batch_start(self, batch: Batch, index: int) -> None:
        # What a step draws depends on its number alone, so that a resumed run draws the same.
        source = generator(self.settings.seed, 1, self.global_step)
        torch.manual_seed(int(torch.randint(2**62, (), generator=source)))

    def on_validation_epoch_start(self) -> None:
        torch.manual_seed(self.settings.seed)

    def on_test_epoch_start(self) -> None:
        torch.manual_seed(self.settings.seed)

    def validation_step(self, batch: Batch, index: int) -> None:
        logits, targets = self(batch), batch.targets()
        self.val_accuracy(logits, targets)
        self.log("val_loss", F.cross_entropy(logits, targets), sync_dist=True, batch_size=len(targets))
        self.log("val_accuracy", self.val_accuracy, prog_bar=True, batch_size=len(targets))

    def test_step(self, batch: Batch, index: int) -> None:
        self.test_accuracy(self(batch), batch.targets())
        self.log("test_accuracy", self.test_accuracy, batch_size=len(batch))

    def train_dataloader(self) -> Batches:
        s = self.settings
        times = TIMES[s.activation] if s.data == NUMBERS else (1, 1, 1)
        return Batches(self.sequences.train, s.batch, s.seed, s.steps, self.global_rank, s.devices, times)

    def val_dataloader(self) -> Pieces:
        return Pieces(self.sequences.validation, self.global_rank, self.settings.devices)

    def configure_optimizers(self) -> Any:
        s = self.settings
        optimizer = OPTIMIZERS[s.optimizer](self.parameters(), lr=s.learning_rate, weight_decay=s.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=s.learning_rate,
            total_steps=self.total_steps,
            pct_start=rise(RISE, self.total_steps),
            cycle_momentum=s.optimizer == "adamw",  # Muon's steps are as long whatever the momentum
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["data"] = self.sequences.fingerprint

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if checkpoint["data"] != self.sequences.fingerprint:
            raise FileError(f"{self.sequences.name}: has changed since this run began. Begin another with --out.")

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self.clip_gradients(optimizer, self.settings.clip, "norm")


def model(settings: Settings, sequences: Sequences) -> UNN:
    """A new network, or that of a run to start from."""
    net = network(sequences.vocabulary, sequences.longest, settings.size, settings.activation == "tanh")
    if settings.start:
        begun = open_model(settings.start)
        if begun.notes["vocabulary"] != net.notes["vocabulary"]:
            raise FileError(f"--start {settings.start}: has another vocabulary than {sequences.name}.")
        size = embeddings(begun).shape[1]
        if size != settings.size:
            raise FileError(f"--start {settings.start}: has rows of {size}, not of {settings.size}. Add --size {size}.")
        net.load_state_dict(dict(begun.named_parameters()), strict=False)  # positions have no weights, however many
    return net
