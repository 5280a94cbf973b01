"""Commands: training, measuring and using parsers from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from undirected.tasks.command import (
    Command,
    Report,
    Stream,
    place_arguments,
    plain_arguments,
    table_arguments,
    tabulated,
    train_arguments,
)
from undirected.tasks.parsing.settings import MODEL, Settings
from undirected.tasks.table import Table


def _train_arguments(parser: Any) -> None:
    train_arguments(parser, Settings, "out/parsing/run")


def _train(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.parsing.run import train

    out, resume, quiet = Path(chosen.pop("out")), chosen.pop("resume"), chosen.pop("quiet")
    result = train(Settings(**chosen), out, resume, progress=not quiet).result
    text = (
        f"test UAS {result['test_uas']:.2%}, LAS {result['test_las']:.2%}, "
        f"whole trees {result['test_exact_match']:.2%} (dev UAS {result['val_uas']:.2%} "
        f"in epoch {result['best_epoch']} of {result['epochs']}), trained in {result['seconds']:.0f} s\n"
        f"{out}/: settings.yaml, metrics.csv, {MODEL}"
    )
    return Report(text, {"out": out, **result})


def _eval_arguments(parser: Any) -> None:
    parser.add_argument("model", type=str, help="a parser in the package, a .safetensors file, or the folder of a run")
    parser.add_argument("--data", type=str | None, default=None, help="the treebank; the run's own if not given")
    parser.add_argument("--iterations", type=int | None, default=None, help="sweeps; the run's own if not given")
    place_arguments(parser)
    plain_arguments(parser, None)


def _eval(chosen: dict[str, Any]) -> Report:
    from undirected.tasks.parsing.evaluation import evaluate

    out = chosen.pop("out")
    found = evaluate(**chosen)
    rest = found.seconds - found.encoder_seconds
    lines = [f"{found.treebank}, {found.sentences} test sentences, k = {found.iterations}"]
    lines += [f"{name.replace('_', ' '):24} {value:.2%}" for name, value in found.metrics.items()]
    lines += [
        f"{found.sentences / found.seconds:.0f} sentences a second; {found.sentences / rest:.0f} after the encoder"
    ]
    report = Report(
        "\n".join(lines),
        {
            "treebank": found.treebank,
            **found.metrics,
            "sentences_per_second": found.sentences / found.seconds,
            "sentences_per_second_after_encoder": found.sentences / rest,
        },
    )
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        (Path(out) / "evaluation.json").write_text(report.show(as_json=True) + "\n")
    return report


def _table_arguments(parser: Any) -> None:
    parser.add_argument("--data", type=str, default="toy", help="a treebank, or a folder with several")
    parser.add_argument("--encoder", type=str, default="lstm", help="lstm, minilm, or a Hugging Face name or folder")
    parser.add_argument("--grid", action="store_true", help="choose the learning rate of each row on the dev part")
    parser.add_argument("--most", type=int, default=5, help="the largest number of iterations")
    table_arguments(parser, "out/parsing")


def _table(**chosen: Any) -> Table:
    from undirected.tasks.parsing.tables import reproduce

    return reproduce(**chosen)


def _parse_arguments(parser: Any) -> None:
    parser.add_argument("model", type=str, help="a parser in the package, a .safetensors file, or the folder of a run")
    parser.add_argument("--conllu", action="store_true", help="the input is CoNLL-U; trees that it has are replaced")
    parser.add_argument("--svg", type=Path | None, default=None, metavar="DIR", help="draw every tree in a file there")
    parser.add_argument("--html", type=Path | None, default=None, metavar="FILE", help="draw all trees on a page")
    parser.add_argument("--k-best", type=int, default=1, metavar="N", help="the N most probable trees of each sentence")
    parser.add_argument("--projective", action="store_true", help="only trees whose arcs do not cross")
    parser.add_argument("--iterations", type=int | None, default=None, help="sweeps; the run's own if not given")
    place_arguments(parser)
    plain_arguments(parser, None)


def _parse(chosen: dict[str, Any]) -> Stream:
    from undirected.tasks.parsing.stream import parse

    written = parse(source=sys.stdin.buffer, target=sys.stdout.buffer, **chosen).file
    return Stream(iter(() if written is None else [Report(str(written), {"trees": written})]))


COMMANDS = [
    Command(
        ("train", "parser"),
        "Train a dependency parser on a treebank, and test it.",
        "undirected train parser --data te --iterations 2 --encoder lstm --out out/parsing/te",
        _train_arguments,
        _train,
    ),
    Command(
        ("eval", "parser"),
        "Test a parser on the test part of a treebank.",
        "undirected eval parser out/parsing/te --iterations 3",
        _eval_arguments,
        _eval,
    ),
    Command(
        ("parse",),
        "Parse sentences, one a line with spaces between words, from the standard input, to CoNLL-U.",
        "undirected parse out/parsing/te --html trees.html < sentences.txt > trees.conllu",
        _parse_arguments,
        _parse,
        prints=True,
    ),
    Command(
        ("reproduce", "parsing"),
        "UAS, modifier lists and whole trees with one to five iterations, as in the paper.",
        "undirected reproduce parsing --data te --encoder bert-base-multilingual-cased",
        _table_arguments,
        tabulated(_table),
    ),
]
