"""Commands: what the command line can do with sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undirected.tasks.command import Command, Report, plain_arguments
from undirected.tasks.sequences.settings import Settings


def _train_arguments(parser: Any) -> None:
    parser.add_class_arguments(Settings, as_group=False)
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out where it was stopped")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    plain_arguments(parser, "out/sequences/run")


def _train(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.sequences.run import train

    out, resume, quiet = Path(chosen.pop("out")), chosen.pop("resume"), chosen.pop("quiet")
    trained = train(Settings(**chosen), out, resume, progress=not quiet)
    result = trained.result
    text = (
        f"{result['test_accuracy']:.2%} of the missing test tokens right (validation {result['val_accuracy']:.2%} in "
        f"epoch {result['best_epoch']} of {result['epochs']}), trained in {result['seconds']:.0f} s\n"
        f"{out}/: settings.yaml, metrics.csv, model.safetensors"
    )
    return Report(text, {"out": out, **result})


COMMANDS = [
    Command(
        ("train", "sequences"),
        "Train attention to fill in missing tokens, and test it.",
        "undirected train sequences --iterations 2 --out out/sequences/k2",
        _train_arguments,
        _train,
    ),
]
