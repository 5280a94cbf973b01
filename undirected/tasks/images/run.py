"""Run: train with some settings in a folder of its own, and leave there all that is worth keeping."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn

from undirected.errors import FileError
from undirected.files import save
from undirected.network import UNN
from undirected.tasks.images.batches import Batches, Pieces
from undirected.tasks.images.data import Images, load
from undirected.tasks.images.learner import Learner, parameters
from undirected.tasks.images.settings import MODEL, Settings

SETTINGS, RESULT, METRICS = "settings.yaml", "result.json", "metrics.csv"


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
    out.mkdir(parents=True, exist_ok=True)
    _claim(settings, out, resume)
    images = load(settings.data, settings.validation)
    learner = Learner(settings, images)
    if (out / RESULT).is_file():
        return finished(out, settings, learner, images)
    best = ModelCheckpoint(out / "checkpoints", "best-{epoch}", monitor="val_accuracy", mode="max")
    steps = ModelCheckpoint(out / "checkpoints", "step-{step}", every_n_train_steps=settings.checkpoint_every)
    clock = Clock()
    callbacks: list[Callback] = [best, steps, clock]
    if settings.patience:
        callbacks.append(EarlyStopping("val_accuracy", patience=settings.patience, mode="max"))
    if progress:
        callbacks.append(RichProgressBar(console_kwargs={"stderr": True}))
    trainer = _trainer(
        settings.device,
        settings.precision,
        callbacks=callbacks,
        devices=settings.devices,
        strategy="auto" if settings.devices == 1 else "ddp_spawn",
        logger=[CSVLogger(out, "logs"), TensorBoardLogger(out, "tensorboard", version="")],
        max_epochs=settings.epochs,
        enable_progress_bar=progress,
    )
    began = time.perf_counter(), _children()
    try:
        with _quiet():
            trainer.fit(learner, ckpt_path=_newest(out), weights_only=False)
    except SystemExit:  # Lightning has caught Ctrl-C
        raise KeyboardInterrupt(f"Go on with --out {out} --resume.") from None
    if settings.devices > 1:  # the processes are gone, and their clocks with them
        clock.wall, clock.cpu = time.perf_counter() - began[0], _children() - began[1]
    metrics = _merge_metrics(out)
    kept = torch.load(best.best_model_path, weights_only=False)
    learner.load_state_dict(kept["state_dict"])
    tested = test(learner, Pieces(images.test), settings.device, settings.precision)
    result = {
        "test_accuracy": tested["test_accuracy"],
        "val_accuracy": max(float(row["val_accuracy"]) for row in metrics if "val_accuracy" in row),
        "best_epoch": kept["epoch"] + 1,
        "epochs": 1 + max(int(row["epoch"]) for row in metrics),
        "parameters": parameters(learner.net),
        "seconds": round(clock.wall, 1),
        "cpu_seconds": round(clock.cpu, 1),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    if isinstance(learner.net, UNN):
        save(learner.net, out / MODEL)
    (out / RESULT).write_text(json.dumps(result, indent=2) + "\n")
    return Trained(out, settings, learner.net.eval(), images, result)


def finished(out: Path, settings: Settings, learner: Learner, images: Images) -> Trained:
    """A run that is done already."""
    (best,) = (out / "checkpoints").glob("best-*.ckpt")
    learner.load_state_dict(torch.load(best, weights_only=False)["state_dict"])
    return Trained(out, settings, learner.net.eval(), images, read_result(out))


def fit(module: lightning.LightningModule, batches: Batches, epochs: int) -> None:
    """Train a module on the CPU and keep nothing but its weights."""
    plain = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = _trainer("cpu", "32", devices=1, max_epochs=epochs, **plain)
    with _quiet():
        trainer.fit(module, batches)


def test(module: lightning.LightningModule, pieces: Pieces, device: str, precision: str) -> dict[str, float]:
    """Have a module see every test image once; what it logged."""
    plain = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = _trainer(device, precision, devices=1, **plain)
    with _quiet():
        (logged,) = trainer.test(module, pieces, verbose=False) or ({},)
    return dict(logged)


def read_settings(out: Path) -> Settings:
    """The settings of the run in a folder."""
    path = out / SETTINGS
    if not path.is_file():
        raise FileError(f"{out}: no run to resume, for it has no {SETTINGS}.")
    return Settings(**yaml.safe_load(path.read_text()))


def read_result(out: Path) -> dict[str, Any]:
    """What the run in a folder gave."""
    if not (out / RESULT).is_file():
        raise FileError(f"{out}: its run is not done.")
    result: dict[str, Any] = json.loads((out / RESULT).read_text())
    return result


def _claim(settings: Settings, out: Path, resume: bool) -> None:
    """Write the settings down; refuse to mix two runs in one folder."""
    path = out / SETTINGS
    if path.is_file():
        there = read_settings(out)
        if there != settings:
            differ = [k for k, v in settings.as_dict().items() if there.as_dict()[k] != v]
            raise FileError(f"{out}: holds a run with other settings ({', '.join(differ)}). Choose another --out.")
        if not resume:
            raise FileError(f"{out}: holds this run already. Add --resume to go on with it, or choose another --out.")
    path.write_text(yaml.safe_dump(settings.as_dict(), sort_keys=False))


def _newest(out: Path) -> Path | None:
    """The checkpoint that has come furthest."""
    found = list((out / "checkpoints").glob("*.ckpt"))
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)


def _trainer(device: str, precision: str, **more: Any) -> lightning.Trainer:
    """A trainer that says no more than it must."""
    with _quiet():
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


class _quiet(warnings.catch_warnings):
    """Lightning's advice that does not apply here: our loaders need no workers and can resume in an epoch."""

    def __enter__(self) -> Any:
        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.WARNING)
        entered = super().__enter__()
        for pattern in (
            ".*does not have many workers.*",
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
