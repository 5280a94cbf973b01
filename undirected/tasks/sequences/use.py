"""Use: fill in the missing tokens of sequences, one or a stream of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from undirected import packaged
from undirected.errors import FileError, QueryError
from undirected.files import load as load_network
from undirected.network import UNN
from undirected.tasks.place import Place
from undirected.tasks.sequences.data import GAP, Batch
from undirected.tasks.sequences.model import ORDERS, scores, solve
from undirected.tasks.sequences.settings import MODEL

VARIABLES = {"x", "q", "k", "v", "s", "h", "y"}
SHOWN = 8  # of the vocabulary, in a message


@dataclass(frozen=True)
class Found:
    """A token that was missing: where (from 0), which, and how probable."""

    position: int
    token: str
    probability: float


@dataclass(frozen=True)
class Completion:
    """A sequence with its missing tokens found."""

    tokens: tuple[str, ...]
    found: tuple[Found, ...]

    def __str__(self) -> str:
        return f"{' '.join(self.tokens)}\t{' '.join(f'{one.token} ({one.probability:.1%})' for one in self.found)}"


def open_model(model: str | Path) -> UNN:
    """A network for sequences by its name, from a file or a run's folder."""
    path = packaged.locate(model)
    path = path / MODEL if path.is_dir() else path
    if not path.is_file():
        raise FileError(f"{model}: no network there. Give a .safetensors file, or the folder of a run that is done.")
    net = load_network(path)
    if not fits(net):
        raise FileError(
            f"{path}: a network of {', '.join(net.variables)}, not one for sequences with its vocabulary, as "
            f"`undirected train sequences` makes them."
        )
    return net.eval()


def fits(net: UNN) -> bool:
    """Is it a network for sequences?"""
    return set(net.variables) == VARIABLES and "vocabulary" in net.notes


def longest(net: UNN) -> int:
    """How many tokens it reads at most: its table of positions has no more."""
    shift = net.factors["x-q"].shift
    assert shift is not None
    return len(shift["x"])


class Completer:
    """A network with its vocabulary, ready to be asked.

    Args:
        model: the name of a packaged network, a file, or the folder of a run.
        iterations: as in its training if not given.
    """

    def __init__(
        self,
        model: str | Path = "sequences",
        iterations: int | None = None,
        seed: int = 0,
        device: str = "cpu",
        precision: str = "32",
    ) -> None:
        torch.manual_seed(seed)
        if iterations is not None and iterations < 1:
            raise QueryError(f"--iterations {iterations}: must be at least 1.")
        self.place = Place.of(device, precision)
        net = open_model(model)
        self.net = net.to(self.place.device, self.place.dtype)
        self.vocabulary: list[str] = net.notes["vocabulary"]
        self.longest = longest(net)
        self.iterations = iterations or int(net.notes["iterations"])
        self.order = ORDERS[net.notes["order"]]
        self._numbers = {token: number for number, token in enumerate(self.vocabulary)}

    def read(self, text: str) -> list[int]:
        """The numbers of the tokens, -1 where one is missing."""
        tokens = text.split()
        if not tokens:
            raise QueryError("the sequence is empty.")
        if len(tokens) > self.longest:
            raise QueryError(f"the sequence has {len(tokens)} tokens; this network reads up to {self.longest}.")
        if GAP not in tokens:
            raise QueryError(f"nothing is missing. Write {GAP} for each token to be found, such as '3 4 {GAP} 6'.")
        if set(tokens) == {GAP}:
            raise QueryError("nothing is known: give at least one token.")
        for place, token in enumerate(tokens, 1):
            if token != GAP and token not in self._numbers:
                raise QueryError(f"token {place}, {token!r}, is unknown. {self._known(token)}")
        return [self._numbers.get(token, -1) for token in tokens]

    def complete(self, texts: list[str]) -> list[Completion]:
        """Some sequences together.

        >>> Completer().complete(["3 4 ? 6 7 8 ? 10"])[0].tokens
        ('3', '4', '5', '6', '7', '8', '9', '10')
        """
        return self._solve([self.read(text) for text in texts])

    def stream(self, lines: Iterable[str], batch: int = 256) -> Iterator[Completion]:
        """A sequence in each line, which may go on without end; empty lines are left out."""
        waiting: list[list[int]] = []
        for number, line in zip(count(1), lines, strict=False):
            if number == 1:
                line = line.removeprefix("\ufeff")  # as some editors begin a file in UTF-8
            if not line.strip():
                continue
            try:
                waiting.append(self.read(line))
            except QueryError as error:
                yield from self._solve(waiting)
                raise QueryError(f"line {number}: {error}") from None
            if len(waiting) == batch:
                yield from self._solve(waiting)
                waiting = []
        yield from self._solve(waiting)

    def _solve(self, numbers: list[list[int]]) -> list[Completion]:
        if not numbers:
            return []
        tokens = pad_sequence([torch.tensor(one) for one in numbers], batch_first=True)
        lengths = torch.tensor([len(one) for one in numbers])
        same = bool((lengths == tokens.shape[1]).all())
        batch = Batch(tokens.clamp(min=0), tokens >= 0, None if same else lengths).to(self.place.device)
        with self.place.asking():
            solution = solve(self.net, batch, self.iterations, self.order)
            shares, best = scores(self.net, batch, solution).float().softmax(1).max(1)
        pairs = iter(zip(best.tolist(), shares.tolist(), strict=True))
        return [self._completion(one, pairs) for one in numbers]

    def _completion(self, numbers: list[int], pairs: Iterator[tuple[int, float]]) -> Completion:
        """Takes as many pairs as are missing: a token's number and its probability."""
        tokens, found = [self.vocabulary[number] for number in numbers], []
        for position, number in enumerate(numbers):
            if number < 0:
                best, share = next(pairs)
                tokens[position] = self.vocabulary[best]
                found.append(Found(position, tokens[position], share))
        return Completion(tuple(tokens), tuple(found))

    def _known(self, token: str) -> str:
        near = difflib.get_close_matches(token, self.vocabulary, 3)
        if near:
            return f"Known ones like it: {', '.join(near)}."
        some = ", ".join(self.vocabulary[:SHOWN])
        return f"Known are {some}{', ...' if len(self.vocabulary) > SHOWN else ''} ({len(self.vocabulary)} tokens)."
