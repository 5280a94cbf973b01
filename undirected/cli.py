"""The command line: `undirected train images`, `undirected classify MODEL picture.png`, ..."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

#: The modules that list commands. They are light; what takes long is imported when a command runs.
TASKS = (
    "undirected.tasks.images.commands",
    "undirected.tasks.sequences.commands",
    "undirected.tasks.complete",
    "undirected.tasks.parsing.commands",
    "undirected.app.commands",
)
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 1: it failed, and says why; 2: wrongly called; 130: stopped by Ctrl-C."""
    try:
        import jsonargparse
    except ImportError:
        print("The command line needs more packages: pip install 'undirected[tasks]'.", file=sys.stderr)
        return FAILED
    commands = [command for task in TASKS for command in importlib.import_module(task).COMMANDS]
    parser = _parser(jsonargparse, commands)
    chosen = parser.parse_args(arguments).as_dict()
    words = []
    while "subcommand" in chosen:
        words.append(chosen["subcommand"])
        chosen = chosen[words[-1]]
    command = next(command for command in commands if command.words == tuple(words))
    return _run(command, chosen)


def _parser(library: Any, commands: Sequence[Any]) -> Any:
    """A parser of all commands: those of one word, and groups of those of two."""
    from undirected.tasks.command import GROUPS

    epilog = "Examples:\n" + "\n".join(f"  {command.example}" for command in commands)
    parser = library.ArgumentParser(
        prog="undirected",
        description="Undirected neural networks: train, measure and use them.",
        epilog=f"{epilog}\n\n'undirected COMMAND --help' says more about each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    slots = parser.add_subcommands(metavar="COMMAND", required=True)
    groups: dict[str, Any] = {}
    for command in commands:
        *group, name = command.words
        if group and group[0] not in groups:
            examples = [f"  {other.example}" for other in commands if other.words[0] == group[0]]
            members = library.ArgumentParser(
                description=GROUPS[group[0]],
                epilog="\n".join(["Examples:", *examples]),
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            slots.add_subcommand(group[0], members, help=GROUPS[group[0]])
            groups[group[0]] = members.add_subcommands(metavar="WHAT", required=True)
        one = library.ArgumentParser(description=command.summary, epilog=f"Example: {command.example}")
        command.arguments(one)
        (groups[group[0]] if group else slots).add_subcommand(name, one, help=command.summary)
    return parser


def _run(command: Any, chosen: dict[str, Any]) -> int:
    from undirected.tasks.command import Report

    as_json = bool(chosen.pop("json", False))
    chosen.pop("config", None)
    if command.prints:
        chosen["as_json"] = as_json
    try:
        for part in command.run(chosen).parts(as_json):
            print(part, flush=True)
    except BrokenPipeError:  # whoever reads the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt as stop:
        print(f"Stopped. {stop}".strip(), file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, ImportError, ArithmeticError) as error:
        if as_json:
            print(Report("", {"error": str(error)}).show(True))
        print(f"undirected: {error}", file=sys.stderr)
        return FAILED
    return OK


if __name__ == "__main__":
    sys.exit(main())
