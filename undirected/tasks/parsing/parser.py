"""Parser: a trained network that takes sentences and gives trees, from one file that holds all it needs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch

from undirected import packaged
from undirected.errors import FileError, QueryError
from undirected.gradients import Gradient, Implicit, OneStep
from undirected.structure import ProjectiveTree
from undirected.structure.heads import from_arcs
from undirected.structure.structure import inner
from undirected.structure.tree import Tree
from undirected.tasks.parsing.batches import pieces
from undirected.tasks.parsing.encoders import Words, described
from undirected.tasks.parsing.network import ACTIVATIONS, Network, Reading, Way
from undirected.tasks.parsing.settings import MODEL

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

KEY, FORMAT = "undirected-parser", 1
PIECE = 2_000  # words, padding included, that are parsed at a time
GRADIENTS: dict[str, Callable[[], Gradient]] = {"implicit": Implicit, "one-step": OneStep}


@dataclass(frozen=True)
class Parse:
    """The tree of a sentence, and how sure the network is of it."""

    words: tuple[str, ...]
    heads: tuple[int, ...]  #: of each word: the number of another, from 1, or 0 for the root
    labels: tuple[str, ...]  #: of the arc to each word
    probability: float  #: of the whole tree, arcs only
    entropy: float  #: of the distribution over trees, in nats: 0 if the network is sure
    marginals: Float[Tensor, "n+1 n"] = field(repr=False, compare=False)  #: the probability of each arc `[head, word]`
    scores: Float[Tensor, "n+1 n"] = field(repr=False, compare=False)  #: of arcs: what this distribution is made from
    tree: Tree = field(repr=False, compare=False)  #: which trees there are
    _name: Callable[[Tensor], tuple[str, ...]] = field(repr=False, compare=False)  # the labels for some heads

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Of the arc to each word."""
        heads = torch.tensor(self.heads)
        return tuple(self.marginals[heads, torch.arange(len(heads))].tolist())

    def k_best(self, k: int) -> list[Parse]:
        """The k most probable trees, best first; fewer where there are no more."""
        if k < 1:
            raise QueryError(f"k_best: k must be at least 1, not {k}.")
        found, scores = self.tree.top(self.scores[None].double(), k)
        rows = [from_arcs(tree[0]) for tree, score in zip(found, scores, strict=True) if score[0] > -torch.inf]
        return [self._with(heads) for heads in rows]

    def _with(self, heads: Tensor) -> Parse:
        probability = tree_probability(self.tree, self.scores, heads)
        return replace(self, heads=tuple(heads.tolist()), labels=self._name(heads), probability=probability)


class Parser:
    """Sentences to trees.

    >>> parser = load("toy-parser")
    >>> parse = parser("the old dogs sleep .")
    >>> parse.heads, parse.labels
    ((3, 3, 4, 0, 4), ('det', 'amod', 'nsubj', 'root', 'punct'))

    Args:
        network: trained.
        labels: their names.
        way: how the network is solved.
    """

    def __init__(self, network: Network, labels: Sequence[str], way: Way) -> None:
        self.network, self.labels, self.way = network, tuple(labels), way

    def __call__(self, sentence: str | Words) -> Parse:
        """The tree of one sentence: a text with spaces between its words, or its words."""
        return self.many([sentence])[0]

    def many(self, sentences: Iterable[str | Words]) -> list[Parse]:
        """The trees of many sentences, each a text or its words. Those of like length are parsed together."""
        if isinstance(sentences, str):
            raise QueryError("many: takes several sentences; for one, call the parser itself.")
        rows = [tuple(words.split() if isinstance(words, str) else words) for words in sentences]
        for number, words in enumerate(rows):
            if not words or not all(isinstance(word, str) and word.strip() for word in words):
                raise QueryError(f"sentence {number}: takes words, none of them empty, but got {words!r}.")
        found: dict[int, Parse] = {}
        for piece in pieces([len(words) for words in rows], PIECE):
            found |= zip(piece, self._parses([rows[row] for row in piece]), strict=True)
        return [found[row] for row in range(len(rows))]

    @torch.no_grad()
    def read(self, sentences: Sequence[Words], way: Way | None = None) -> Reading:
        """What the network finds in a batch of sentences, as tensors."""
        self.network.eval()
        reading: Reading = self.network(sentences, way or self.way)
        return reading

    @torch.no_grad()
    def _parses(self, sentences: Sequence[tuple[str, ...]]) -> Iterator[Parse]:
        """The trees of a batch; what can be computed for all of them at once is."""
        reading = self.read(sentences)
        heads, tree, exact = reading.heads, reading.tree, reading.scores.double()
        log_z, expected = tree.infer(exact, reading.exists)
        chosen = exact.gather(1, heads.clamp_min(0)[:, None])[:, 0]
        probabilities = (torch.where(heads >= 0, chosen, 0).sum(-1) - log_z).exp().tolist()
        entropies = (log_z - inner(exact, expected)).clamp_min(0).tolist()
        numbers, labels = heads.tolist(), reading.labels(heads).tolist()
        scores, marginals = reading.scores.cpu(), reading.marginals.cpu()
        for row, words in enumerate(sentences):
            n = len(words)
            yield Parse(
                words,
                tuple(numbers[row][:n]),
                tuple(self.labels[number] for number in labels[row][:n]),
                probabilities[row],
                entropies[row],
                marginals[row, : n + 1, :n],
                scores[row, : n + 1, :n],
                tree,
                partial(self._names, reading.x[row : row + 1, : n + 1]),
            )

    @torch.no_grad()
    def _names(self, x: Float[Tensor, "1 n+1 size"], heads: Int[Tensor, " n"]) -> tuple[str, ...]:
        numbers = self.network.labels(x, heads[None].to(x.device)).argmax(-1)
        return tuple(self.labels[number] for number in numbers[0].tolist())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that is needed to one file; no pickle, so that reading it runs no code."""
        variables = self.network.net.variables
        header = {
            "format": FORMAT,
            "encoder": self.network.encoder.description(),
            "labels": self.labels,
            "hidden": variables["h"].shape[-1],
            "projective": isinstance(variables["y"].regularizer, ProjectiveTree),
            "activation": next(name for name, kind in ACTIVATIONS.items() if type(variables["h"].regularizer) is kind),
            "iterations": self.way.iterations,
            "until": self.way.until,
        }
        tensors = {name: value.contiguous() for name, value in self.network.state_dict().items()}
        Path(path).write_bytes(safetensors.torch.save(tensors, metadata={KEY: json.dumps(header)}))


def load(path: str | os.PathLike[str], iterations: int | None = None, projective: bool = False) -> Parser:
    """A parser from the file that `Parser.save` wrote, from the folder of a run, or by its name in the package.

    Args:
        path: the file, the folder or the name.
        iterations: sweeps, if not as many as it was trained with.
        projective: no arcs cross, even if it was trained on trees with arcs that do.
    """
    file = packaged.find(path) or Path(path)
    file = file / MODEL if file.is_dir() else file
    if not file.is_file():
        raise FileError(f"{path}: there is no parser. Train one with `undirected train parser`.")
    header, tensors = _read(file)
    try:
        projective = projective or header["projective"]
        encoder, labels = described(header["encoder"]), len(header["labels"])
        network = Network(encoder, labels, header["hidden"], 0.0, projective, header["activation"])
        network.load_state_dict(tensors)
        way = Way(header["iterations"], header["until"]) if iterations is None else Way(iterations)
        return Parser(network.eval(), header["labels"], way)
    except (KeyError, TypeError, RuntimeError) as error:
        raise FileError(f"{file}: what it says about itself does not fit its weights: {error}") from error


def ways(iterations: int, until: float, gradient: str) -> Way:
    """How a network is solved, from settings."""
    return Way(iterations, until, GRADIENTS[gradient]() if gradient in GRADIENTS else None)


def tree_probability(tree: Tree, scores: Float[Tensor, "n+1 n"], heads: Tensor) -> float:
    """`exp(score - log Z)` of a tree."""
    exact = scores.double()
    score = exact[heads, torch.arange(len(heads))].sum()
    return float((score - tree.log_partition(exact[None])[0]).exp())


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no dict)
    except safetensors.SafetensorError as error:
        raise FileError(f"{file}: not a safetensors file, or only part of one ({error}).") from None
    if KEY not in metadata:
        raise FileError(f"{file}: a safetensors file, but not a parser: its header has no {KEY!r}.")
    header = json.loads(metadata[KEY])
    if header.get("format") != FORMAT:
        raise FileError(f"{file}: has format {header.get('format')}; this version reads {FORMAT}. Update undirected.")
    return header, tensors
