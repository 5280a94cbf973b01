"""Complete: one command that fills in what is missing, in pictures and in sequences."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undirected.errors import QueryError
from undirected.packaged import is_model
from undirected.tasks.command import Command, Report, Stream, common_arguments

PICTURES, SEQUENCES = "mnist", "sequences"  #: the packaged networks that are used when no model is given
FOLDER = "out/images/completed"


def _arguments(parser: Any) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[MODEL] [WHAT]",
        help="a network (in the package, a file, or the folder of a run), and what to complete: a picture, or a "
        "sequence with ? for what is missing. Without WHAT, sequences are read from standard input, one per line",
    )
    parser.add_argument(
        "--hide",
        type=str | None,
        default=None,
        help="of a picture: top, bottom (if not given), left, right, or a picture that is white where hidden",
    )
    parser.add_argument("--class", type=int | None, default=None, help="of a picture; found as well if not given")
    parser.add_argument("--iterations", type=int | None, default=None, help="sweeps; the run's own if not given")
    common_arguments(parser, None)


def _run(chosen: dict[str, Any]) -> Report | Stream:
    model, what = _model_and_what(chosen.pop("words"))
    if _is_picture(model, what):
        assert what is not None
        return _picture(model or PICTURES, Path(what), chosen)
    return _sequences(model or SEQUENCES, what, chosen)


def _model_and_what(words: list[str]) -> tuple[str | None, str | None]:
    """Which word is the model, and which is to be completed."""
    if len(words) > 2:
        if len(words) > 3 or not is_model(words[0]) or "?" in words:
            raise QueryError('too many words: write a sequence in quotes, such as "3 4 ? 6".')
        raise QueryError(f"{words[1]} and {words[2]}: complete one picture at a time.")
    if len(words) == 2:
        if "?" not in words[0] and os.sep in words[0] and not Path(words[0]).exists():
            raise QueryError(f"{words[0]}: no such file or folder.")
        if "?" in words[0] or not is_model(words[0]):
            raise QueryError(f"{words[0]}: not a model. Complete one picture, or one sequence in quotes, at a time.")
        return words[0], words[1]
    if len(words) == 1:
        (word,) = words
        is_what = "?" in word or len(word.split()) != 1 or not is_model(word)
        return (None, word) if is_what else (word, None)
    return None, None


def _is_picture(model: str | None, what: str | None) -> bool:
    """Does the model say so? Without a model: is there such a file, or does it look like one?"""
    if model is None:
        return what is not None and (_is_file(what) or (len(what.split()) == 1 and Path(what).suffix != ""))
    from undirected.files import load
    from undirected.packaged import locate
    from undirected.tasks.sequences.settings import MODEL
    from undirected.tasks.sequences.use import fits

    path = locate(model)
    path = path / MODEL if path.is_dir() else path
    if not path.is_file() or fits(load(path)):
        return False
    if what is None:
        raise QueryError(f"{model}: a network for pictures. Which one? Give it after the network.")
    return True


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # too long for the name of a file
        return False


def _picture(model: str, picture: Path, chosen: dict[str, Any]) -> Report:
    from undirected.tasks.images.use import complete

    hide, out = chosen.pop("hide") or "bottom", chosen.pop("out") or FOLDER
    found = complete(model, picture, hide, label=chosen.pop("class"), out=out, **chosen)
    text = f"{found.path}: taken for {found.name} ({found.probability:.1%})"
    return Report(text, {"picture": found.path, "class": found.name, "probability": found.probability})


def _sequences(model: str, sequence: str | None, chosen: dict[str, Any]) -> Report | Stream:
    from undirected.tasks.sequences.use import Completer, Completion

    for flag in ("hide", "class", "out"):
        if chosen.pop(flag) is not None:
            raise QueryError(
                f"--{flag}: is for pictures. Sequences have ? where something is missing, and are printed."
            )
    completer = Completer(model, **chosen)

    def report(one: Completion) -> Report:
        found = [{"position": f.position, "token": f.token, "probability": f.probability} for f in one.found]
        return Report(str(one), {"sequence": list(one.tokens), "found": found})

    def reports() -> Iterator[Report]:
        # A person at the keyboard gets each answer at once.
        yield from map(report, completer.stream(sys.stdin, batch=1 if sys.stdin.isatty() else 256))

    return Stream(reports()) if sequence is None else report(completer.complete([sequence])[0])


COMMANDS = [
    Command(
        ("complete",),
        "Fill in what is missing in a picture or a sequence.",
        'undirected complete "3 4 ? 6 7 8 ? 10"',
        _arguments,
        _run,
    )
]
