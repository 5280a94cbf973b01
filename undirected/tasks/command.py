"""Command: one thing that the command line can do. Tasks list theirs; `undirected.cli` gathers them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from undirected.tasks.table import Table


@dataclass(frozen=True)
class Report:
    """What a command found out: text for people, data for machines."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)

    def show(self, as_json: bool) -> str:
        return json.dumps(self.data, indent=2, default=str) if as_json else self.text

    def parts(self, as_json: bool) -> Iterator[str]:
        """What to print, bit by bit."""
        if shown := self.show(as_json):
            yield shown


@dataclass(frozen=True)
class Stream:
    """Reports one by one, as they come: a line each."""

    reports: Iterator[Report]

    def parts(self, as_json: bool) -> Iterator[str]:
        for report in self.reports:
            yield json.dumps(report.data, default=str) if as_json else report.text


@dataclass(frozen=True)
class Command:
    """A command by its words, such as `("train", "images")`.

    `arguments` adds its flags to a parser; `run` gets them by name. Both are called only when they are needed, and
    `run` alone may import what takes long to import. A command that `prints` writes its output itself, and gets
    `as_json` too.
    """

    words: tuple[str, ...]
    summary: str
    example: str
    arguments: Callable[[Any], None]
    run: Callable[[dict[str, Any]], Report | Stream]
    prints: bool = False


#: What the first word of commands with several words means.
GROUPS = {
    "train": "Train a network.",
    "eval": "Measure a trained network on its test data.",
    "reproduce": "Measure a table of the paper again, with its figures beside ours where they are known.",
}


def train_arguments(parser: Any, settings: type, out: str) -> None:
    """The flags of a command that trains: all settings, and how the run goes on."""
    parser.add_class_arguments(settings, as_group=False)
    for action in parser._actions:
        if isinstance(action.default, bool):  # `--projective` alone means that it is true
            action.nargs, action.const = "?", True
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out where it was stopped")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    plain_arguments(parser, out)


def table_arguments(parser: Any, out: str) -> None:
    """The flags of a command that runs what a table needs."""
    from jsonargparse.typing import PositiveInt

    parser.add_argument("--quick", action="store_true", help="one seed and few epochs")
    parser.add_argument("--seeds", type=PositiveInt | None, default=None, help="how many seeds, from --seed on")
    parser.add_argument("--epochs", type=PositiveInt | None, default=None, help="epochs of every run")
    common_arguments(parser, out)


def tabulated(reproduce: Callable[..., Table], *words: str) -> Callable[[dict[str, Any]], Report]:
    """The `run` of a command that makes a table."""

    def run(chosen: dict[str, Any]) -> Report:
        table = reproduce(*words, **chosen)
        return Report(table.markdown(), {"table": table.name, "note": table.note, "rows": table.rows})

    return run


def table_commands(
    tables: Mapping[str, str], arguments: Callable[[Any], None], reproduce: Callable[..., Table]
) -> list[Command]:
    """`undirected reproduce NAME` for each of a task's tables, given with what it shows."""
    return [
        Command(
            ("reproduce", name), summary, f"undirected reproduce {name} --quick", arguments, tabulated(reproduce, name)
        )
        for name, summary in tables.items()
    ]


def common_arguments(parser: Any, out: str | None) -> None:
    """The flags of every command that computes."""
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers")
    place_arguments(parser)
    plain_arguments(parser, out)


def place_arguments(parser: Any) -> None:
    """The flags that say where and how exactly to compute."""
    parser.add_argument("--device", type=Literal["auto", "cpu", "gpu"], default="cpu", help="where to compute")
    parser.add_argument("--precision", type=str, default="32", help="32, 64 or bf16-mixed")


def plain_arguments(parser: Any, out: str | None) -> None:
    """The flags of every command."""
    parser.add_argument("--out", type=Path | None, default=out, metavar="DIR", help="the folder to write to")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--config", action="config", metavar="FILE", help="settings from a YAML file; flags come first")
