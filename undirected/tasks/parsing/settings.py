"""Settings: everything that decides a training run. Light to import: the command line reads it for its help."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from undirected.errors import QueryError
from undirected.tasks import limits

MODEL = "parser.safetensors"  #: the parser in a run's folder
SMALLEST = 6  #: size of the lstm encoder, half of which are filters of three widths


@dataclass(frozen=True)
class Settings:
    """A training run of a parser.

    Args:
        data: toy, a folder with `*-ud-train.conllu` and so on, or the language of one below $UNDIRECTED_DATA/ud.
        encoder: lstm (learned from the treebank), minilm (English), or any Hugging Face encoder by name or folder.
        iterations: sweeps over heads, modifiers and tree (k).
        single: the first share of the epochs, with one iteration: the trees of a beginner would only mislead it.
        until: if not 0, sweep after these epochs until nothing changes by more than this, instead of k times.
        gradient: how the solve is differentiated; unroll if there is a number of sweeps.
        projective: arcs may not cross; sentences whose arcs do are left out of the training.
        hidden: the size of a word's features as a head, and as a modifier.
        activation: of these features. tanh is bounded, so that sweeps settle; with relu, as in the paper, they may not.
        dropout: the share of these features that are zero in a step, the same ones for a whole solve.
        size: of each direction of the lstm encoder's layers.
        layers: how many the lstm encoder has.
        mix: of other encoders, take a learned mixture of all layers instead of the last.
        epochs: how often the training sentences are gone through; 0: as many as suit the data and the encoder.
        words: per step; 0: as many as suit the data and the encoder.
        learning_rate: the largest, of all that is learned from scratch.
        encoder_learning_rate: the largest, of an encoder that was trained before.
        weight_decay: of AdamW.
        warmup: the share of steps in which the learning rates rise; afterwards they fall.
        clip: the largest norm of a gradient.
        patience: stop after so many epochs without a better one; 0 goes on to the end.
        checkpoint_every: steps between checkpoints.
        seed: of the first weights, the order of the sentences and the dropout.
        device: cpu, gpu or auto.
        devices: processes that share each batch.
        strategy: how they work together, as Lightning names it, such as ddp; auto suits all networks.
        precision: as Lightning names it, such as 32 or bf16-mixed.
    """

    data: str = "toy"
    encoder: str = "lstm"
    iterations: int = 2
    single: float = 0.5
    until: float = 0.0
    gradient: Literal["unroll", "implicit", "one-step"] = "unroll"
    projective: bool = False
    hidden: int = 400
    activation: Literal["relu", "tanh"] = "relu"
    dropout: float = 0.2
    size: int = 128
    layers: int = 2
    mix: bool = False
    epochs: int = 0
    words: int = 0
    learning_rate: float = 3e-3
    encoder_learning_rate: float = 5e-5
    weight_decay: float = 0.01
    warmup: float = 0.08
    clip: float = 5.0
    patience: int = 0
    checkpoint_every: int = 200
    seed: int = 0
    device: Literal["auto", "cpu", "gpu"] = "cpu"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "32"

    def __post_init__(self) -> None:
        epochs, words = (20, 250) if self.encoder == "lstm" else (10, 400)
        object.__setattr__(self, "epochs", self.epochs or epochs)
        object.__setattr__(self, "words", self.words or words)
        limits.check(
            self,
            counts=("iterations", "hidden", "size", "layers", "epochs", "words", "checkpoint_every", "devices"),
            unsigned=("until", "weight_decay", "encoder_learning_rate", "patience", "seed"),
            positive=("learning_rate", "clip"),
            shares=("single",),
        )
        limits.dropout(self.dropout)
        if self.encoder == "lstm" and self.size < SMALLEST:
            raise QueryError(f"size must be at least {SMALLEST} for lstm, not {self.size}.")
        if not 0 < self.warmup < 1:
            raise QueryError(f"warmup is a share of the steps, between 0 and 1, not {self.warmup}.")
        if self.mix and self.encoder == "lstm":
            raise QueryError("mix is for encoders that were trained before; lstm gives its last layer.")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
