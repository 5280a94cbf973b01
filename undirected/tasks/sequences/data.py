"""Data: sequences of tokens, and which of their tokens are missing. Numbers in a row, or a text file of one's own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from undirected.errors import FileError
from undirected.tasks.seeds import generator

NUMBERS = "numbers"
HIGHEST = 64  #: the numbers go from 1 to here
SHORTEST, LONGEST = 8, 24
GAP = "?"  #: a missing token, as users write it
PART = 10  #: up to one of so many tokens is missing, rounded up
TEST = 0.1  #: the share of the questions (of the lines of a file) that are for testing
CHOICES = 32  #: of the missing positions, for each line of a file
MOST_TOKENS = 512  #: in a line of a file
FEWEST_LINES = 10
SPLIT = 2022  #: the seed that decides what is for testing, whatever the run's own seed


@dataclass  # not frozen: Lightning copies batches and puts other tensors into the copies
class Batch:
    """Sequences side by side: (batch, n)."""

    tokens: Tensor  # whole numbers, also where they are missing; zero beyond a sequence's end
    known: Tensor  # False where a token is missing; True beyond the end
    lengths: Tensor | None  # of each sequence; None if all have n tokens
    share: float = 1.0  # of a process's part: how many times as many tokens miss in it as in the mean part

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: torch.device | str) -> Batch:
        lengths = None if self.lengths is None else self.lengths.to(device)
        return Batch(self.tokens.to(device), self.known.to(device), lengths, self.share)

    def parts(self, count: int) -> list[Batch]:
        """Its sequences in so many parts, as many as there are at most."""
        index = torch.arange(len(self)).tensor_split(min(count, len(self)))
        lengths = [None if self.lengths is None else self.lengths[rows] for rows in index]
        return [
            Batch(self.tokens[rows], self.known[rows], some, self.share)
            for rows, some in zip(index, lengths, strict=True)
        ]

    def targets(self) -> Tensor:
        """The missing tokens, one after the other."""
        return self.tokens[~self.known]


@dataclass(frozen=True)
class Questions:
    """Sequences with some tokens missing. A question names its line, so that a line is kept once."""

    lines: Tensor  # (lines, longest): tokens, zero beyond the end
    lengths: Tensor  # (lines,)
    line: Tensor  # (questions,)
    missing: Tensor  # (questions, most): positions, -1 where there are fewer

    def __len__(self) -> int:
        return len(self.line)

    def pick(self, index: Tensor) -> Questions:
        """Some of the questions."""
        return Questions(self.lines, self.lengths, self.line[index], self.missing[index])

    def sizes(self) -> Tensor:
        """The length of each question's sequence."""
        return self.lengths[self.line.long()]

    def neighbours(self) -> Tensor:
        """Of each question, how many known neighbours its missing token with the fewest has: 0, 1 or 2."""
        at, last = self.missing.long().sort(1).values, self.sizes().long()[:, None] - 1
        known = (at > 0).int() + (at < last).int()
        side_by_side = ((at[:, :-1] >= 0) & (at[:, 1:] == at[:, :-1] + 1)).int()
        known[:, 1:] -= side_by_side
        known[:, :-1] -= side_by_side
        return known.where(at >= 0, 2).amin(1)

    def batch(self, index: Tensor | slice) -> Batch:
        """Some questions side by side, as wide as the longest of them."""
        line, missing = self.line[index].long(), self.missing[index].long()
        lengths = self.lengths[line].long()
        n = int(lengths.max())
        known = torch.ones(len(line), n + 1, dtype=torch.bool)
        known.scatter_(1, missing.where(missing >= 0, n), False)  # the last column takes what is none
        same = bool((lengths == n).all())
        return Batch(self.lines[line, :n].long(), known[:, :n], None if same else lengths)


@dataclass(frozen=True)
class Sequences:
    """A data set: what to learn from, to choose the best epoch by, and to be tested on once."""

    name: str
    vocabulary: tuple[str, ...]
    longest: int
    train: Questions
    validation: Questions
    test: Questions

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same sequences and tokens."""
        of = hashlib.sha256("\n".join(self.vocabulary).encode())
        for part in (self.train, self.validation, self.test):
            of.update(part.lines.numpy().tobytes() + part.line.numpy().tobytes() + part.missing.numpy().tobytes())
        return of.hexdigest()


def load(data: str, validation: int = 10_000) -> Sequences:
    """The numbers, or a text file with a sequence in each line. `validation` questions are kept from training."""
    if data == NUMBERS:
        return numbers(validation)
    path = Path(data)
    if not path.is_file():
        raise FileError(f"--data {data}: is neither {NUMBERS!r} nor a text file with one sequence per line.")
    return words(path)


def numbers(validation: int = 10_000) -> Sequences:
    """All runs of consecutive numbers, up and down, of 8 to 24 of the numbers 1 to 64, with every choice of up to a
    tenth of their positions missing: 785,142 questions. A tenth of them, chosen by a fixed seed, is for testing.

    >>> data = numbers()
    >>> len(data.train) + len(data.validation), len(data.test)
    (706628, 78514)
    """
    runs, lengths, line, missing = [], [], [], []
    count = 0
    for n in range(SHORTEST, LONGEST + 1):
        up = torch.arange(HIGHEST - n + 1)[:, None] + torch.arange(n)
        both = torch.cat([up, up.flip(1)]).to(torch.uint8)
        choices = every_choice(n)
        runs.append(torch.nn.functional.pad(both, (0, LONGEST - n)))
        lengths.append(torch.full((len(both),), n, dtype=torch.uint8))
        line.append(torch.arange(count, count + len(both), dtype=torch.int16).repeat_interleave(len(choices)))
        missing.append(choices.repeat(len(both), 1))
        count += len(both)
    most = max(one.shape[1] for one in missing)
    padded = [torch.nn.functional.pad(one, (0, most - one.shape[1]), value=-1) for one in missing]
    every = Questions(torch.cat(runs), torch.cat(lengths), torch.cat(line), torch.cat(padded))
    order = torch.randperm(len(every), generator=generator(SPLIT))
    test, rest = order.split([int(TEST * len(every)), len(every) - int(TEST * len(every))])
    chosen = [every.pick(index) for index in (rest[validation:], rest[:validation], test)]
    vocabulary = tuple(str(number + 1) for number in range(HIGHEST))
    return Sequences(NUMBERS, vocabulary, LONGEST, *chosen)


def words(path: Path) -> Sequences:
    """A text file: a sequence in each line, its tokens between spaces. Equal lines count once.

    Of each line, up to a tenth of the positions are missing, in every way or in 32 that a fixed seed has drawn. A tenth
    of the lines is for testing, another one to choose the best epoch by; their tokens belong to the vocabulary too.
    Which lines these are depends on what they say and not on their place: where lines are added, few change sides.
    """
    lines = list(dict.fromkeys(_lines(path)))
    if len(lines) < FEWEST_LINES:
        raise FileError(f"{path}: has {len(lines)} different lines; at least {FEWEST_LINES} are needed to learn from.")
    vocabulary = tuple(sorted({token for line in lines for token in line}))
    if len(vocabulary) < 2:
        raise FileError(f"{path}: has only one token, {vocabulary[0]!r}; there is nothing to learn.")
    number = {token: i for i, token in enumerate(vocabulary)}
    longest = max(map(len, lines))
    kind = torch.uint8 if len(vocabulary) <= 2**8 else torch.int16 if len(vocabulary) <= 2**15 else torch.int32
    tokens = torch.zeros(len(lines), longest, dtype=kind)
    for row, line in zip(tokens, lines, strict=True):
        row[: len(line)] = torch.tensor([number[token] for token in line], dtype=kind)
    lengths = torch.tensor([len(line) for line in lines], dtype=torch.int16)
    source = generator(SPLIT)
    digests = [hashlib.sha256(f"{SPLIT} {' '.join(line)}".encode()).digest() for line in lines]
    order = torch.tensor(sorted(range(len(lines)), key=digests.__getitem__))
    part = math.ceil(TEST * len(lines))
    splits = []
    for index in (order[2 * part :], order[part : 2 * part], order[:part]):
        missing = [drawn_choices(int(lengths[i]), source) for i in index]
        which = index.to(torch.int32).repeat_interleave(torch.tensor([len(one) for one in missing]))
        most = gaps(longest)
        padded = [torch.nn.functional.pad(one, (0, most - one.shape[1]), value=-1) for one in missing]
        splits.append(Questions(tokens, lengths, which, torch.cat(padded)))
    return Sequences(str(path), vocabulary, longest, *splits)


def gaps(n: int) -> int:
    """How many of n tokens are missing at most."""
    return -(-n // PART)


def every_choice(n: int) -> Tensor:
    """Every set of 1 up to a tenth of n positions: (choices, most), -1 where there are fewer.

    >>> every_choice(11).shape  # 11 of one position, 55 of two
    torch.Size([66, 2])
    """
    most = gaps(n)
    positions = torch.arange(n, dtype=torch.int16)
    sets = [torch.combinations(positions, r) for r in range(1, most + 1)]
    return torch.cat([torch.nn.functional.pad(one, (0, most - one.shape[1]), value=-1) for one in sets])


def drawn_choices(n: int, source: torch.Generator, count: int = CHOICES) -> Tensor:
    """Every choice, or `count` different ones that are drawn, each number of positions as likely as the others."""
    most = gaps(n)
    if sum(math.comb(n, r) for r in range(1, most + 1)) <= count:
        return every_choice(n)
    rank = torch.rand(4 * count, n, generator=source).argsort(1)[:, :most].to(torch.int16)
    size = torch.randint(1, most + 1, (4 * count, 1), generator=source)
    chosen = rank.where(torch.arange(most) < size, -1).sort(1, descending=True).values.unique(dim=0)
    return chosen[torch.randperm(len(chosen), generator=source)[:count]]


def _lines(path: Path) -> Sequence[tuple[str, ...]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path}: is no text file in UTF-8.") from None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        tokens = tuple(line.split())
        if not tokens:
            continue
        if GAP in tokens:
            raise FileError(
                f"{path}, line {number}: has a {GAP!r}, which means a missing token. Learn from whole lines."
            )
        if not 2 <= len(tokens) <= MOST_TOKENS:
            raise FileError(f"{path}, line {number}: has {len(tokens)} tokens; 2 to {MOST_TOKENS} are possible.")
        lines.append(tokens)
    return lines
