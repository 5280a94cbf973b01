"""Commands: what the command line can do with sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from undirected.tasks.command import Command, Report, common_arguments, table_arguments, table_commands, train_arguments
from undirected.tasks.sequences.settings import Settings
from undirected.tasks.table import Table

TABLES = {
    "sequences-order": "Accuracy of forward-backward and random orders, by the number of variable updates.",
    "sequences-random-iterations": "Learning curves with a fixed and with a random number of iterations.",
    "sequences-attention": "Attention after each half-pass, with one and with two iterations.",
}


def _train_arguments(parser: Any) -> None:
    train_arguments(parser, Settings, "out/sequences/run")


def _train(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.sequences import figures
    from undirected.tasks.sequences.run import train

    out, resume, quiet = Path(chosen.pop("out")), chosen.pop("resume"), chosen.pop("quiet")
    trained = train(Settings(**chosen), out, resume, progress=not quiet)
    k = trained.net.notes["iterations"]
    text = figures.example(trained.sequences.name, trained.sequences.test, trained.sequences.vocabulary)
    figures.attention({f"k = {k}": (trained.net.float().cpu(), k)}, text, out / "attention.png")
    result = trained.result
    text = (
        f"{result['test_accuracy']:.2%} of the missing test tokens right (validation {result['val_accuracy']:.2%} in "
        f"epoch {result['best_epoch']} of {result['epochs']}), trained in {result['seconds']:.0f} s\n"
        f"{out}/: settings.yaml, metrics.csv, model.safetensors, attention.png"
    )
    return Report(text, {"out": out, **result})


def _eval_arguments(parser: Any) -> None:
    parser.add_argument("model", type=str, help="a network in the package, a .safetensors file, or the folder of a run")
    parser.add_argument("--data", type=str, default="numbers", help="numbers, or the text file that it was trained on")
    parser.add_argument("--iterations", type=int | None, default=None, help="sweeps; the run's own if not given")
    parser.add_argument(
        "--order",
        type=Literal["forward-backward", "random"] | None,
        default=None,
        help="of the updates; the run's own if not given",
    )
    common_arguments(parser, None)


def _eval(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.sequences.evaluation import evaluate

    out = chosen.pop("out")
    found = evaluate(**chosen)
    data = {"accuracy": found.accuracy, **vars(found)}
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        (Path(out) / "evaluation.json").write_text(Report("", data).show(as_json=True) + "\n")
    text = (
        f"{found.accuracy:.2%} of {found.count} missing test tokens of {found.data} found with k = {found.iterations}"
    )
    return Report(f"{text}, {found.order}", data)


def _table_arguments(parser: Any) -> None:
    parser.add_argument(
        "--activation", type=Literal["identity", "tanh"], default="identity", help="of q, k, v and h in every run"
    )
    table_arguments(parser, "out/sequences")


def _table(name: str, **chosen: Any) -> Table:
    from undirected.tasks.sequences.tables import reproduce

    return reproduce(name, **chosen)


COMMANDS = [
    Command(
        ("train", "sequences"),
        "Train attention to fill in missing tokens, and test it.",
        "undirected train sequences --iterations 2 --out out/sequences/k2",
        _train_arguments,
        _train,
    ),
    Command(
        ("eval", "sequences"),
        "Test a network on the test sequences of a data set.",
        "undirected eval sequences sequences --iterations 2",
        _eval_arguments,
        _eval,
    ),
    *table_commands(TABLES, _table_arguments, _table),
]
