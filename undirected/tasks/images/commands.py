"""Commands: what the command line can do with images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undirected.errors import QueryError
from undirected.packaged import is_model
from undirected.tasks.command import Command, Report, common_arguments, table_arguments, table_commands, train_arguments
from undirected.tasks.images.settings import Settings
from undirected.tasks.table import Table

TABLES = {
    "images-accuracy": "Accuracy of one network that reads and draws, by the number of iterations.",
    "images-forward-only": "Accuracy of networks that only read (gamma 0), by the number of iterations.",
    "images-unconstrained": "Accuracy with weights of their own in every iteration, in networks of the same size.",
    "images-initialization": "Accuracy by where the class starts: zeros, random or uniform.",
}


#: The packaged network that commands use when no model is given.
DEFAULT = "mnist"
MODEL_HELP = "a network in the package (mnist, digits), a .safetensors file, or the folder of a run"


def _train_arguments(parser: Any) -> None:
    train_arguments(parser, Settings, "out/images/run")


def _train(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.images.figures import of_run
    from undirected.tasks.images.run import train

    out, resume, quiet = Path(chosen.pop("out")), chosen.pop("resume"), chosen.pop("quiet")
    settings = Settings(**chosen)
    trained = train(settings, out, resume, progress=not quiet)
    pictures = of_run(trained)
    result = trained.result
    kept = ["settings.yaml", "metrics.csv", "model.safetensors" if settings.tied else "checkpoints"]
    text = (
        f"test accuracy {result['test_accuracy']:.2%} (validation {result['val_accuracy']:.2%} in epoch "
        f"{result['best_epoch']} of {result['epochs']}), trained in {result['seconds']:.0f} s\n"
        f"{out}/: {', '.join([*kept, *(path.name for path in pictures)])}"
    )
    return Report(text, {"out": out, **result})


def _eval_arguments(parser: Any) -> None:
    parser.add_argument("model", type=str, help=MODEL_HELP)
    parser.add_argument("--data", type=str | None, default=None, help="the data; the run's own if not given")
    parser.add_argument("--iterations", type=int | None, default=None, help="sweeps; the run's own if not given")
    common_arguments(parser, None)


def _eval(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.images.evaluation import evaluate

    out = chosen.pop("out")
    found = evaluate(**chosen)
    if out is not None:
        from undirected.tasks.images.figures import confusion

        Path(out).mkdir(parents=True, exist_ok=True)
        confusion(found.confusion, found.classes, Path(out) / "confusion.png")
    how = f"with k = {found.sweeps}" if isinstance(found.sweeps, int) else f"at equilibrium ({found.sweeps.residual:g})"
    text = f"{found.accuracy:.2%} of {found.count} test images of {found.data} read right {how}"
    return Report(text, {"accuracy": found.accuracy, "confusion": found.confusion.tolist(), "data": found.data})


def _model_and_pictures(first: str | None, rest: list[str]) -> tuple[str, list[Path]]:
    """The words of a call: the first may be a model, and all others are pictures."""
    if first is not None and is_model(first):
        return first, [Path(word) for word in rest]
    if first is None and is_model(rest[0]):
        raise QueryError(f"{rest[0]}: a model, but of which picture? Give one after it.")
    return DEFAULT, [Path(word) for word in ([] if first is None else [first]) + rest]


def _classify_arguments(parser: Any) -> None:
    parser.add_argument("model", type=str | None, nargs="?", help=f"{MODEL_HELP}; {DEFAULT} if not given")
    parser.add_argument("pictures", type=str, nargs="+", help="PNG or JPEG, any size, dark on light or light on dark")
    parser.add_argument("--iterations", type=int | None, default=None, help="sweeps; the run's own if not given")
    common_arguments(parser, None)


def _classify(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.images.use import classify

    model, pictures = _model_and_pictures(chosen.pop("model"), chosen.pop("pictures"))
    found = classify(model, pictures, **chosen)
    lines = [f"{one.picture}: {one.name} ({one.probability:.1%})" for one in found]
    data = [
        {"picture": one.picture, "class": one.name, "probability": one.probability, "probabilities": one.probabilities}
        for one in found
    ]
    return Report("\n".join(lines), {"pictures": data})


def _generate_arguments(parser: Any) -> None:
    parser.add_argument("model", type=str, nargs="?", default=DEFAULT, help=f"{MODEL_HELP}; {DEFAULT} if not given")
    parser.add_argument("--class", type=int | None, default=None, help="the class to draw; all if not given")
    parser.add_argument("--iterations", type=int | None, default=None, help="sweeps; the run's own if not given")
    common_arguments(parser, "out/images/generated")


def _generate(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.images.use import generate

    paths = generate(label=chosen.pop("class"), **chosen)
    return Report("\n".join(map(str, paths)), {"pictures": paths})


def _table_arguments(parser: Any) -> None:
    parser.add_argument("--data", type=str, default="mnist", help="digits, mnist, fashion-mnist, or a folder")
    table_arguments(parser, "out/images")


def _table(name: str, **chosen: Any) -> Table:
    from undirected.tasks.images.tables import reproduce

    return reproduce(name, **chosen)


COMMANDS = [
    Command(
        ("train", "images"),
        "Train a network to read and to draw images, and test it.",
        "undirected train images --data mnist --iterations 3 --gamma 0.1 --out out/images/k3",
        _train_arguments,
        _train,
    ),
    Command(
        ("eval", "images"),
        "Test a network on the test images of a data set.",
        "undirected eval images out/images/k3 --iterations 5",
        _eval_arguments,
        _eval,
    ),
    *table_commands(TABLES, _table_arguments, _table),
    Command(
        ("classify",),
        "Say what is on pictures of your own.",
        "undirected classify photo.png scan.jpg",
        _classify_arguments,
        _classify,
    ),
    Command(
        ("generate",),
        "Draw a prototype of a class.",
        "undirected generate --class 3 --out drawings",
        _generate_arguments,
        _generate,
    ),
]
