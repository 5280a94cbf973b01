"""Run: what every training run shares. Its folder, its checkpoints, its clock, and how it goes on after a stop."""

from __future__ import annotations

import csv
import logging
import os
import re
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.multiprocessing.spawn import ProcessRaisedException

from undirected import errors
from undirected.errors import FileError, QueryError
from undirected.tasks.folder import METRICS as METRICS
from undirected.tasks.folder import RESULT as RESULT
from undirected.tasks.folder import SETTINGS as SETTINGS
from undirected.tasks.folder import RunSettings
from undirected.tasks.folder import read_result as read_result
from undirected.tasks.folder import read_settings as read_settings
from undirected.tasks.folder import write_result as write_result

#: A trainer in one process, whoever started it, that keeps nothing.
ALONE: dict[str, Any] = {
    "devices": 1,
    "plugins": [LightningEnvironment()],
    "logger": False,
    "enable_progress_bar": False,
    "enable_checkpointing": False,
}


@dataclass(frozen=True)
class Course:
    """How a training went: which epoch was best, how many there were, seconds, and all that was logged."""

    best_epoch: int
    epochs: int
    seconds: float
    cpu_seconds: float
    metrics: list[dict[str, str]]

    def best(self, name: str, mode: str = "max") -> float:
        """The best value of a metric that was logged."""
        return (max if mode == "max" else min)(float(row[name]) for row in self.metrics if name in row)

    def as_dict(self) -> dict[str, Any]:
        """What belongs into a run's result."""
        return {
            "best_epoch": self.best_epoch,
            "epochs": self.epochs,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }


class Clock(Callback):
    """Seconds of training, over all parts of a run that was stopped and resumed: by the clock, and by the processor."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self._since = (0.0, 0.0)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self._since = (time.perf_counter() - self.wall, time.process_time() - self.cpu)

    def on_train_batch_end(self, *_: Any) -> None:
        self._read()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._read()

    def _read(self) -> None:
        self.wall, self.cpu = time.perf_counter() - self._since[0], time.process_time() - self._since[1]

    def state_dict(self) -> dict[str, float]:
        return {"wall": self.wall, "cpu": self.cpu}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.wall, self.cpu = state["wall"], state["cpu"]


def launched(devices: int = 1) -> int:
    """How many processes train: as many as torchrun has started, or as `--devices` asks for."""
    world = int(os.environ["WORLD_SIZE"]) if torch.distributed.is_torchelastic_launched() else 1
    if world > 1 and devices not in (1, world):
        raise QueryError(f"--devices {devices}: torchrun has started {world} processes. Leave --devices out.")
    return max(world, devices)


def begin(settings: RunSettings, out: Path, resume: bool) -> None:
    """Make the run's folder and write the settings down; refuse to mix two runs in one folder.

    Of several processes that torchrun has started, the first does it.
    """
    if settings.device == "gpu" and not (CUDAAccelerator.is_available() or MPSAccelerator.is_available()):
        raise QueryError("--device gpu: there is no GPU here. Use cpu or auto.")
    if launched() > 1 and int(os.environ["RANK"]) > 0:
        return
    out.mkdir(parents=True, exist_ok=True)
    path = out / SETTINGS
    if path.is_file():
        there = read_settings(out, type(settings)).as_dict()
        differ = [k for k, v in settings.as_dict().items() if there[k] != v]
        if differ:
            raise FileError(f"{out}: holds a run with other settings ({', '.join(differ)}). Choose another --out.")
        if not resume:
            raise FileError(f"{out}: holds this run already. Add --resume to go on with it, or choose another --out.")
    path.write_text(yaml.safe_dump(settings.as_dict(), sort_keys=False))


def learn(
    learner: lightning.LightningModule,
    settings: RunSettings,
    out: Path,
    progress: bool = True,
    monitor: str = "val_accuracy",
    mode: str = "max",
) -> Course:
    """Train, from the newest checkpoint in the folder if there is one; leave the best epoch's weights in `learner`.

    The learner brings its own loaders, whose order must depend on the seed and the step alone, and logs `monitor`.
    """
    best = ModelCheckpoint(out / "checkpoints", "best-{epoch}", monitor=monitor, mode=mode)
    steps = ModelCheckpoint(out / "checkpoints", "step-{step}", every_n_train_steps=settings.checkpoint_every)
    clock = Clock()
    callbacks: list[Callback] = [best, steps, clock]
    if settings.patience:
        callbacks.append(EarlyStopping(monitor, patience=settings.patience, mode=mode))
    if progress:
        callbacks.append(RichProgressBar(console_kwargs={"stderr": True}))
    began = time.perf_counter(), _children()
    try:
        with quiet():
            run = trainer(
                settings.device,
                settings.precision,
                callbacks=callbacks,
                **_processes(settings.devices, settings.strategy),
                logger=[CSVLogger(out, "logs"), TensorBoardLogger(out, "tensorboard", version="")],
                max_epochs=settings.epochs,
                enable_progress_bar=progress,
            )
            run.fit(learner, ckpt_path=_newest(out), weights_only=False)
    except SystemExit:  # Lightning has caught Ctrl-C
        raise KeyboardInterrupt(f"Go on with --out {out} --resume.") from None
    except ProcessRaisedException as error:  # its text is all that is left of what another process raised
        found = re.findall(r"^undirected\.errors\.(\w+): (.*)", str(error), re.MULTILINE)
        if not found:
            raise
        raise getattr(errors, found[-1][0])(found[-1][1]) from None
    if launched() > 1:
        clock.cpu = float(run.strategy.reduce(torch.tensor(clock.cpu), reduce_op="sum"))
        torch.distributed.destroy_process_group()
        if run.global_rank > 0:  # this process has done its part: the first one tests and writes the result
            raise SystemExit(0)
    elif settings.devices > 1:  # the processes are gone, and their clocks with them
        clock.wall, clock.cpu = time.perf_counter() - began[0], _children() - began[1]
    metrics = _merge_metrics(out)
    for path in (out / "checkpoints").glob("best-*.ckpt"):
        if path.name != Path(best.best_model_path).name:  # left behind by a part of the run that was killed
            path.unlink()
    epoch = recall(learner, out)
    return Course(epoch, 1 + max(int(row["epoch"]) for row in metrics), clock.wall, clock.cpu, metrics)


def _processes(devices: int, strategy: str) -> dict[str, Any]:
    """How the trainer gets its processes: those of torchrun, on any number of machines, or its own on this one."""
    if launched() > 1:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        usual = "ddp_find_unused_parameters_true"  # a question may leave weights out
        chosen: dict[str, Any] = {"devices": here, "num_nodes": launched() // here}
    else:
        usual = "auto" if devices == 1 else "ddp_spawn_find_unused_parameters_true"
        chosen = {"devices": devices}
    return chosen | {"strategy": usual if strategy == "auto" else strategy}


def recall(learner: lightning.LightningModule, out: Path) -> int:
    """Give a learner the weights of the best epoch of the run in a folder; which epoch that was."""
    (best,) = (out / "checkpoints").glob("best-*.ckpt")
    kept = torch.load(best, weights_only=False)
    learner.load_state_dict(kept["state_dict"])
    return int(kept["epoch"]) + 1


def fit(module: lightning.LightningModule, batches: Iterable, epochs: int) -> None:
    """Train a module on the CPU and keep nothing but its weights."""
    with quiet():
        trainer("cpu", "32", max_epochs=epochs, **ALONE).fit(module, batches)


def test(module: lightning.LightningModule, pieces: Iterable, device: str, precision: str) -> dict[str, float]:
    """Have a module see everything once, as its `test_step` says; what it logged."""
    try:
        with quiet():
            (logged,) = trainer(device, precision, **ALONE).test(module, pieces, verbose=False) or ({},)
    except SystemExit:  # Lightning has caught Ctrl-C
        raise KeyboardInterrupt("The test was not finished. A training run goes on with --resume.") from None
    return dict(logged)


def parameters(module: nn.Module) -> int:
    """How many numbers a module learns."""
    return sum(parameter.numel() for parameter in module.parameters())


def _newest(out: Path) -> Path | None:
    """The checkpoint that has come furthest."""
    found = list((out / "checkpoints").glob("*.ckpt"))
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)


def trainer(device: str, precision: str, **more: Any) -> lightning.Trainer:
    """A trainer that says no more than it must."""
    with quiet():
        return lightning.Trainer(
            accelerator=device,
            precision=precision,  # type: ignore[arg-type]
            deterministic=True,
            num_sanity_val_steps=0,
            log_every_n_steps=10,
            enable_model_summary=False,
            use_distributed_sampler=False,
            **more,
        )


class quiet(warnings.catch_warnings):
    """Lightning's advice that does not apply here: our loaders need no workers and can resume in an epoch."""

    def __enter__(self) -> Any:
        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.WARNING)
        entered = super().__enter__()
        for pattern in (
            ".*does not have many workers.*",
            ".*number of training batches .* is smaller than the logging interval.*",
            ".*checkpoint directory.*exists and is not empty.*",
            ".*You're resuming from a checkpoint that ended before the epoch ended.*",
            ".*will not be synchronized across devices.*",
            ".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*",
            ".*GPU available but not used.*",
        ):
            warnings.filterwarnings("ignore", pattern)
        return entered


def _children() -> float:
    """The processor time of all processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _merge_metrics(out: Path) -> list[dict[str, str]]:
    """One table of all parts of the run; where a part was done again, the later numbers count."""
    parts = sorted(
        (out / "logs").glob("version_*/metrics.csv"), key=lambda p: int(re.findall(r"\d+", p.parent.name)[0])
    )
    rows: dict[int, dict[str, str]] = {}
    names: dict[str, None] = {}
    for part in parts:
        with part.open(newline="") as file:
            for row in csv.DictReader(file):
                names.update(dict.fromkeys(row))
                rows.setdefault(int(row["step"]), {}).update({k: v for k, v in row.items() if v})
    merged = [rows[step] for step in sorted(rows)]
    with (out / METRICS).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(names))
        writer.writeheader()
        writer.writerows(merged)
    return merged
