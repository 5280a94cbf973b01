"""Stream: sentences in, trees out, a chunk at a time, so that the input may be of any length.

Results flow through generators: parsed, then written, then drawn. Each passes on what it gets.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from undirected.draw.canvas import Drawing
from undirected.errors import QueryError
from undirected.tasks.parsing import drawing
from undirected.tasks.parsing.drawing import Figure
from undirected.tasks.parsing.parser import Parse, Parser, load
from undirected.tasks.parsing.sentence import Sentence
from undirected.tasks.parsing.treebank import read, write
from undirected.tasks.place import Place

CHUNK = 10_000  # words that are read before they are parsed
LONGEST = 1_000  # words of a sentence: time grows with their third power
NAMED = 10  # lines that were left out, and are named one by one


Numbered = tuple[int, Sentence]


class Result(NamedTuple):
    """A sentence, its number in the input (of its line, in a text), and its most probable trees, the best one first."""

    number: int
    sentence: Sentence
    parses: Sequence[Parse]


@dataclass
class Log:
    """What has been done so far, told to the error stream."""

    every: float = 10.0  # seconds
    sentences: int = 0
    words: int = 0
    left_out: int = 0
    file: Path | None = None  # where the trees are, if not in the target
    _began: float = field(default_factory=time.perf_counter)
    _told: float = field(default_factory=time.perf_counter)

    def leave_out(self, line: int, reason: str) -> None:
        self.left_out += 1
        if self.left_out <= NAMED:
            print(f"line {line}: {reason} It is left out.", file=sys.stderr)

    def count(self, results: Iterable[Result]) -> Iterator[Result]:
        for result in results:
            self.sentences += 1
            self.words += len(result.sentence)
            if time.perf_counter() - self._told > self.every:
                self.tell()
            yield result

    def tell(self) -> None:
        self._told = time.perf_counter()
        seconds = self._told - self._began
        speed = f"{self.sentences / seconds:.0f} sentences and {self.words / seconds:.0f} words a second"
        missing = f"; {self.left_out} lines left out" if self.left_out else ""
        print(f"{self.sentences} sentences in {seconds:.1f} s: {speed}{missing}", file=sys.stderr)


def parse(
    model: str,
    source: IO[bytes],
    target: IO[bytes],
    conllu: bool = False,
    svg: Path | None = None,
    html: Path | None = None,
    k_best: int = 1,
    projective: bool = False,
    iterations: int | None = None,
    device: str = "cpu",
    precision: str = "32",
    as_json: bool = False,
    out: Path | None = None,
) -> Log:
    """Parse a text or a CoNLL-U file to CoNLL-U, or to a line of JSON for each tree, with drawings if wanted.

    With `out`, trees are written to a file in that folder instead of the target. It tells how fast that went.
    """
    if k_best < 1:
        raise QueryError(f"--k-best must be at least 1, not {k_best}.")
    place = Place.of(device, precision)
    parser = load(model, iterations, projective)
    parser.network.to(place.device, place.dtype)
    page = None if html is None else html.open("w", encoding="utf-8")
    log = Log()
    if out is not None:  # only now: a parser that is refused leaves nothing behind
        out.mkdir(parents=True, exist_ok=True)
        log.file = out / ("trees.jsonl" if as_json else "trees.conllu")
    sentences = enumerate(read(source, trees=False), 1) if conllu else lines(source, log)
    results = parsed(parser, sentences, k_best, chunk=1 if source.isatty() else CHUNK)
    with place.asking(), nullcontext(target) if log.file is None else log.file.open("wb") as sink:
        results = log.count(listed(results, sink) if as_json else written(results, sink))
        if svg is not None:
            results = drawn(results, svg)
        if page is None:
            deque(results, maxlen=0)
        else:
            with page:
                page.writelines(drawing.page(map(figure, results), f"Trees by {Path(model).name}"))
    log.tell()
    return log


def lines(text: IO[bytes], log: Log) -> Iterator[Numbered]:
    """The sentences of a text, one a line, with spaces between words; the number of each line is its `sent_id`.

    Empty lines are passed over, and those that cannot be parsed are left out and told.
    """
    for number, line in enumerate(text, 1):
        try:
            words = line.decode().split()
        except UnicodeDecodeError as error:
            log.leave_out(number, f"byte {error.start + 1} ({line[error.start]:#04x}) is not UTF-8.")
            continue
        if len(words) > LONGEST:
            log.leave_out(number, f"{len(words)} words, but a sentence has at most {LONGEST}. Write one a line.")
        elif words:
            yield number, Sentence.of(words).with_comments({"sent_id": number})


def parsed(parser: Parser, sentences: Iterable[Numbered], k_best: int = 1, chunk: int = CHUNK) -> Iterator[Result]:
    """Each sentence with its best trees. About `chunk` words are read ahead."""
    for some in _chunks(sentences, chunk):
        parses = parser.many([sentence.words for _, sentence in some])
        for (number, sentence), best in zip(some, parses, strict=True):
            yield Result(number, sentence, best.k_best(k_best) if k_best > 1 else [best])


def written(results: Iterable[Result], target: IO[bytes]) -> Iterator[Result]:
    """Write trees as CoNLL-U: the probability of each arc in MISC, that of the tree in a comment."""
    for result in results:
        write([_sentence(result, rank) for rank in range(len(result.parses))], target)
        target.flush()
        yield result


def listed(results: Iterable[Result], target: IO[bytes]) -> Iterator[Result]:
    """Write each tree as a line of JSON: heads are numbers of words from 1 on, and 0 is the root."""
    for result in results:
        for rank, parse in enumerate(result.parses, 1):
            tree: dict[str, object] = {"number": result.number, "rank": rank, "words": parse.words}
            tree |= {"heads": parse.heads, "labels": parse.labels, "probabilities": parse.probabilities}
            tree |= {"tree_probability": parse.probability, "entropy": parse.entropy}
            target.write(f"{json.dumps(tree, ensure_ascii=False)}\n".encode())
        target.flush()
        yield result


def drawn(results: Iterable[Result], folder: Path) -> Iterator[Result]:
    """Draw each tree in a file of its own: 7.svg, then 7-2.svg for the second best, and 7-arcs.svg for all arcs."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        for rank, parse in enumerate(result.parses, 1):
            _tree(parse).save(folder / f"{result.number}{'' if rank == 1 else f'-{rank}'}.svg")
        _matrix(result.parses[0]).save(folder / f"{result.number}-arcs.svg")
        yield result


def figure(result: Result) -> Figure:
    """A result on a page."""
    best, *others = result.parses
    more = [("Probabilities of all arcs: rows are heads, columns are words", [_matrix(best)])]
    for rank, parse in enumerate(others, 2):
        more.append((f"Tree {rank}, probability {parse.probability:.4f}", [_tree(parse)]))
    caption = f"{result.number}: probability of this tree {best.probability:.4f}, entropy {best.entropy:.3f} nats"
    return Figure(_tree(best), caption, more)


def _sentence(result: Result, rank: int) -> Sentence:
    parse = result.parses[rank]
    comments: dict[str, object] = {"tree_rank": rank + 1} if len(result.parses) > 1 else {}
    comments |= {"tree_probability": f"{parse.probability:.4f}", "entropy": f"{parse.entropy:.4f}"}
    return result.sentence.with_tree(parse.heads, parse.labels, parse.probabilities).with_comments(comments)


def _tree(parse: Parse) -> Drawing:
    return drawing.tree(parse.words, parse.heads, parse.labels, parse.probabilities)


def _matrix(parse: Parse) -> Drawing:
    return drawing.matrix(parse.words, parse.marginals.tolist(), parse.heads)


def _chunks(sentences: Iterable[Numbered], words: int) -> Iterator[list[Numbered]]:
    some: list[Numbered] = []
    count = 0
    for number, sentence in sentences:
        if len(sentence) > LONGEST:
            raise QueryError(f"sentence {number}: {len(sentence)} words, but a sentence has at most {LONGEST}.")
        some.append((number, sentence))
        count += len(sentence)
        if count >= words:
            yield some
            some, count = [], 0
    if some:
        yield some
