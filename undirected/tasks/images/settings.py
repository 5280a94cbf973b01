"""Settings: everything that decides a training run. Light to import: the command line reads it for its help."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from undirected.errors import QueryError
from undirected.tasks import limits

MODEL = "model.safetensors"  #: the network in a run's folder


@dataclass(frozen=True)
class Settings:
    """A training run on images.

    Args:
        data: digits, mnist, fashion-mnist, or a folder with the IDX files of one of the last two.
        iterations: sweeps over the network (k), to read and to draw.
        until: if not 0, sweep after the warm-up until nothing changes by more than this, instead of k times.
        gradient: how a solve to equilibrium is differentiated.
        gamma: the weight of drawing beside reading.
        init: where the class starts when an image is read.
        tied: the same weights in every sweep; otherwise each has its own, in a narrower network of the same size.
        start: a network (.safetensors, or the folder of a run) whose weights to begin with; new ones if not given.
        epochs: how often the training images are gone through; 0: 60 times for digits, 20 for the others.
        warmup: the first share of the epochs, with three iterations at most, and three of four batches read with one.
        batch: images per step, over all processes; 0: 64 for digits, 256 for the others.
        learning_rate: the peak of the one-cycle schedule.
        weight_decay: of AdamW.
        dropout: the share of hidden entries that are zero in a step, the same ones for a whole solve.
        shift: up to so many pixels, images to be read are moved; those to be drawn are not.
        validation: images kept from training to choose the best epoch.
        patience: stop after so many epochs without a better one; 0 goes on to the end.
        checkpoint_every: steps between checkpoints.
        seed: of the first weights, the order of the images, the shifts and the dropout.
        device: cpu, gpu or auto.
        devices: processes that share each batch.
        strategy: how they work together, as Lightning names it, such as ddp; auto suits all networks.
        precision: as Lightning names it, such as 32, 64 or bf16-mixed.
    """

    data: str = "digits"
    iterations: int = 3
    until: float = 0.0
    gradient: Literal["unroll", "implicit", "one-step"] = "unroll"
    gamma: float = 0.1
    init: Literal["zeros", "random", "uniform"] = "zeros"
    tied: bool = True
    start: str = ""
    epochs: int = 0
    warmup: float = 0.7
    batch: int = 0
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    dropout: float = 0.0
    shift: int = 1
    validation: int = 10_000
    patience: int = 0
    checkpoint_every: int = 50
    seed: int = 0
    device: Literal["auto", "cpu", "gpu"] = "cpu"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "32"

    def __post_init__(self) -> None:
        epochs, batch = (60, 64) if self.data == "digits" else (20, 256)
        object.__setattr__(self, "epochs", self.epochs or epochs)
        object.__setattr__(self, "batch", self.batch or batch)
        limits.check(
            self,
            counts=("iterations", "epochs", "batch", "validation", "checkpoint_every", "devices"),
            unsigned=("until", "gamma", "weight_decay", "shift", "patience", "seed"),
            positive=("learning_rate",),
            shares=("warmup",),
        )
        limits.dropout(self.dropout)
        if self.batch % self.devices:
            raise QueryError(f"a batch of {self.batch} does not divide among {self.devices} devices.")
        if not self.tied and self.until:
            raise QueryError("untied weights have no equilibrium: until must be 0.")
        if not self.tied and self.gamma:
            raise QueryError("untied weights have only one direction: gamma must be 0.")
        if not self.tied and self.start:
            raise QueryError("untied weights cannot start from a network's: leave start out.")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
