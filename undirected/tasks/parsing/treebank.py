"""Treebank: sentences with trees from CoNLL-U files, read one by one, checked, and written back byte by byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import IO

from conllu.exceptions import ParseException
from conllu.parser import parse_id_value, parse_int_value

from undirected.errors import FileError
from undirected.tasks.parsing.sentence import COLUMNS, DEPREL, HEAD, Sentence, fault

__all__ = ["Sentence", "Treebank", "load", "read", "write"]

Line = tuple[int, str]  # its number in the file, and its text with the line break


class Treebank:
    """A treebank in three parts, each read when it is first asked for: training never opens the test file."""

    def __init__(
        self,
        name: str,
        train: Callable[[], Iterable[Sentence]],
        dev: Callable[[], Iterable[Sentence]],
        test: Callable[[], Iterable[Sentence]],
    ) -> None:
        self.name = name
        self._train, self._dev, self._test = train, dev, test

    @cached_property
    def train(self) -> tuple[Sentence, ...]:
        return tuple(self._train())

    @cached_property
    def dev(self) -> tuple[Sentence, ...]:
        return tuple(self._dev())

    @cached_property
    def test(self) -> tuple[Sentence, ...]:
        return tuple(self._test())


def load(data: str) -> Treebank:
    """A treebank: "toy", a folder with `*-ud-train.conllu`, `-dev` and `-test`, or one below `$UNDIRECTED_DATA/ud`.

    The latter go by their folder's name or by their language, such as "te".
    """
    if data == "toy":
        from undirected.tasks.parsing import toy

        return Treebank("toy", *(partial(toy.part, part) for part in ("train", "dev", "test")))
    folder = _folder(data)
    files = [_file(folder, part) for part in ("train", "dev", "test")]
    return Treebank(folder.name, *(partial(read, file) for file in files))


def read(source: str | Path | IO[bytes], trees: bool = True) -> Iterator[Sentence]:
    """The sentences of a CoNLL-U file or binary stream, one by one.

    `trees=False` leaves HEAD and DEPREL alone, whatever they hold: for text that is yet to be parsed.
    """
    if isinstance(source, str | Path):
        with Path(source).open("rb") as stream:
            yield from read(stream, trees)
        return
    name = str(getattr(source, "name", "stream"))
    empty = True
    for block in _blocks(_decoded(source, name)):
        yield _sentence(block, name, trees)
        empty = False
    if empty:
        raise FileError(f"{name}: has no sentences. CoNLL-U has one word a line and a blank line after each sentence.")


def write(sentences: Iterable[Sentence], target: str | Path | IO[bytes]) -> None:
    """Write sentences as they were read, with the trees they have now."""
    if isinstance(target, str | Path):
        with Path(target).open("wb") as stream:
            return write(sentences, stream)
    gap = ""
    for sentence in sentences:
        target.write((gap + sentence.source).encode())
        gap = _gap(sentence.source)


def _gap(source: str) -> str:
    """What is missing between a sentence and the next: a file may end without a blank line, or without a line's end."""
    ends = source.replace("\r\n", "\n")
    return "" if ends.endswith("\n\n") else "\n" if ends.endswith("\n") else "\n\n"


def _decoded(stream: IO[bytes], name: str) -> Iterator[Line]:
    for number, line in enumerate(stream, 1):
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise FileError(
                f"{name}, line {number}: byte {error.start + 1} ({line[error.start]:#04x}) is not UTF-8. Convert the "
                "file, such as with `iconv -f LATIN1 -t UTF-8`."
            ) from error


def _blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Sentences' lines, each with the blank lines after it (the first: before it, too)."""
    block: list[Line] = []
    full = ended = False
    for number, line in lines:
        blank = not line.rstrip("\r\n")
        if ended and not blank:
            yield block
            block, full, ended = [], False, False
        block.append((number, line))
        full = full or not blank
        ended = full and blank
    if full:
        yield block


def _sentence(block: Sequence[Line], name: str, trees: bool) -> Sentence:
    """A sentence from its lines, or an error that names one of them."""
    words: list[str] = []
    heads: list[int] = []
    labels: list[str] = []
    numbers: list[int] = []  # of the words' lines
    covered = 0  # the last word of the latest multiword token
    for number, line in block:
        text = line.rstrip("\r\n").removeprefix("\ufeff")
        if not text or text.startswith("#"):
            continue
        columns = text.split("\t")
        try:
            identity = _identity(columns, len(words), covered)
            if not isinstance(identity, int):
                covered = identity[2] if identity[1] == "-" else covered
                continue
            words.append(columns[1])
            numbers.append(number)
            if trees:
                heads.append(_head(columns[HEAD]))
                labels.append(columns[DEPREL])
                if columns[DEPREL] == "_":
                    raise ValueError(f"word {identity} has no relation (DEPREL is _).")
        except ValueError as error:
            raise FileError(f"{name}, line {number}: {error}") from error
    first = next(number for number, line in block if line.rstrip("\r\n"))
    if not words:
        raise FileError(f"{name}, line {first}: a sentence without words. Comments belong right before its words.")
    if covered > len(words):
        raise FileError(f"{name}, line {first}: a multiword token ends at word {covered}, but there are {len(words)}.")
    if trees and (problem := fault(heads)):
        raise FileError(f"{name}, line {numbers[problem[0] - 1]}: {problem[1]}")
    return Sentence(tuple(words), tuple(heads), tuple(labels), "".join(line for _, line in block))


def _identity(columns: Sequence[str], last: int, covered: int) -> int | tuple[int, str, int]:
    """ID of a line of ten columns: the number of a word, (2, "-", 3) for a multiword token, (2, ".", 1) for no word."""
    if len(columns) != COLUMNS:
        raise ValueError(f"{len(columns)} columns, but CoNLL-U has {COLUMNS}, with a tab between any two.")
    for column, value in enumerate(columns, 1):
        if not value:
            raise ValueError(f"column {column} is empty; what is not known is written as _.")
    try:
        found = parse_id_value(columns[0])
    except ParseException:
        found = None
    expected = {int: last + 1, "-": max(last, covered) + 1, ".": last}
    kind = int if isinstance(found, int) else found and found[1]
    start = found if isinstance(found, int) else found and found[0]
    if found is None or start != expected[kind]:
        raise ValueError(
            f"ID is {columns[0]!r}, but after word {last} comes {last + 1}, such as {last + 1}-{last + 2}."
        )
    return found


def _head(value: str) -> int:
    try:
        head = parse_int_value(value)
    except ParseException:
        raise ValueError(f"HEAD is {value!r}, not the number of a word.") from None
    if head is None:
        raise ValueError("HEAD is _: this sentence has no tree. `undirected parse --conllu` gives it one.")
    return head


def _folder(data: str) -> Path:
    """The folder that `--data` means."""
    root = Path(os.environ.get("UNDIRECTED_DATA", ".")) / "ud"
    for folder in (Path(data), root / data):
        if folder.is_dir():
            return folder
    below = sorted(folder for folder in root.iterdir() if folder.is_dir()) if root.is_dir() else []
    found = [folder for folder in below if any(folder.glob(f"{data}_*-ud-*.conllu"))]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(folder.name for folder in found)
        raise FileError(f"--data {data}: several treebanks of this language: {names}. Name one of them.")
    known = ", ".join(folder.name for folder in below) or "empty or missing; $UNDIRECTED_DATA names the folder above it"
    raise FileError(f"--data {data}: neither toy nor a folder, nor below {root} ({known}).")


def _file(folder: Path, part: str) -> Path:
    found = sorted(folder.glob(f"*-ud-{part}.conllu"))
    if len(found) == 1:
        return found[0]
    names = f"several: {', '.join(path.name for path in found)}" if found else "none"
    raise FileError(f"--data {folder}: should hold one file *-ud-{part}.conllu, but has {names}.")
