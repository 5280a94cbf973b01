"""Settings: everything that decides a training run. Light to import: the command line reads it for its help."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from undirected.errors import QueryError
from undirected.tasks import limits

MODEL = "model.safetensors"  #: the network in a run's folder


@dataclass(frozen=True)
class Settings:
    """A training run on sequences.

    Args:
        data: numbers (runs of the numbers 1 to 64), or a text file with a sequence of tokens in each line.
        iterations: sweeps over the network (k); a range such as 1-5 is drawn from in every step, its middle tested.
            With until, those of the warm-up.
        order: forward and backward over the network, or q, k, v, s and h in an order drawn anew in every sweep.
        until: if not 0, sweep after the warm-up until nothing changes by more than this, instead of k times.
        gradient: how the solve is differentiated; unroll if there is a number of sweeps.
        activation: of q, k, v and h. identity as in the paper; tanh is bounded, so that sweeps settle.
        size: of each embedding, query, key and value (d).
        start: a network (.safetensors, or the folder of a run) whose weights to begin with; new ones if not given.
        warmup: the first share of the steps, in which the iterations go from 1 up to k, by turns. Half if not given;
            nothing with random orders, since one sweep in such an order rarely finds anything.
        epochs: how often the network is validated, each time after so many steps.
        steps: batches in an epoch.
        batch: sequences per step, of all processes together.
        optimizer: muon, whose steps are as long in every direction of a matrix; or adamw.
        learning_rate: the peak of the one-cycle schedule.
        weight_decay: of the optimizer.
        clip: the largest norm of a gradient; longer ones are cut.
        validation: sequences kept from training to choose the best epoch; of a file, a tenth of its lines is kept.
        patience: stop after so many epochs without a better one; 0 goes on to the end.
        checkpoint_every: steps between checkpoints.
        seed: of the first weights, the order of the sequences, and all that a step draws.
        device: cpu, gpu or auto.
        devices: processes that share each batch.
        strategy: how they work together, as Lightning names it, such as ddp; auto suits all networks.
        precision: as Lightning names it, such as 32, 64 or bf16-mixed.
    """

    data: str = "numbers"
    iterations: int | str = "1"
    order: Literal["forward-backward", "random"] = "forward-backward"
    until: float = 0.0
    gradient: Literal["unroll", "implicit", "one-step"] = "unroll"
    activation: Literal["identity", "tanh"] = "identity"
    size: int = 256
    start: str = ""
    warmup: float | None = None
    epochs: int = 16
    steps: int = 250
    batch: int = 128
    optimizer: Literal["muon", "adamw"] = "muon"
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    clip: float = 10.0
    validation: int = 5_000
    patience: int = 0
    checkpoint_every: int = 50
    seed: int = 0
    device: Literal["auto", "cpu", "gpu"] = "cpu"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "iterations", str(self.iterations))
        limits.check(
            self,
            counts=("size", "epochs", "steps", "batch", "validation", "checkpoint_every", "devices"),
            unsigned=("until", "weight_decay", "patience", "seed"),
            positive=("learning_rate", "clip"),
            shares=("warmup",) if self.warmup is not None else (),
        )
        if self.batch < self.devices:
            raise QueryError(f"a batch of {self.batch} does not give each of {self.devices} devices a sequence.")
        if self.size % 2:
            raise QueryError(f"size must be even, for sines and cosines of the positions, not {self.size}.")
        if self.until and self.activation != "tanh":
            raise QueryError(
                "until: with identity the energy has no lower bound, so sweeps do not settle. Add --activation tanh."
            )
        if self.until and self.order == "random":
            raise QueryError("until: sweeps settle in a fixed order; leave --order random out.")
        low, high = self.span
        if not 1 <= low <= high:
            raise QueryError(f"iterations must be at least 1 and in order, not {self.iterations}.")

    @property
    def span(self) -> tuple[int, int]:
        """The fewest and the most iterations."""
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(self.iterations))
        if not match:
            raise QueryError(f"iterations is a whole number or a range such as 1-5, not {self.iterations!r}.")
        return int(match[1]), int(match[2] or match[1])

    @property
    def warming(self) -> float:
        """The share of the steps that are a warm-up."""
        return (0.0 if self.order == "random" else 0.5) if self.warmup is None else self.warmup

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
