"""Evaluation: a trained parser on the test part of a treebank."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from undirected.errors import QueryError
from undirected.tasks.parsing.learner import Pieces
from undirected.tasks.parsing.metrics import TreeAccuracy
from undirected.tasks.parsing.network import Reading
from undirected.tasks.parsing.parser import Parser, load
from undirected.tasks.parsing.treebank import load as load_treebank
from undirected.tasks.place import Place
from undirected.tasks.run import SETTINGS


@dataclass(frozen=True)
class Evaluation:
    """How a parser did."""

    treebank: str
    sentences: int
    iterations: int
    metrics: dict[str, float]
    seconds: float  #: of parsing
    encoder_seconds: float  #: the part of it that the encoder took


def evaluate(
    model: str,
    data: str | None = None,
    iterations: int | None = None,
    device: str = "cpu",
    precision: str = "32",
) -> Evaluation:
    """Parse the test part of a treebank, the one of the run if none is given, and compare."""
    place = Place.of(device, precision)
    parser = load(model)
    parser.network.to(place.device, place.dtype)
    settings = Path(model) / SETTINGS
    if data is None:
        if not settings.is_file():
            raise QueryError(f"{model}: is not the folder of a run, so it does not say which treebank. Give --data.")
        data = str(yaml.safe_load(settings.read_text())["data"])
    if iterations is not None:
        parser = Parser(parser.network, parser.labels, replace(parser.way, iterations=iterations, until=0.0))
    treebank = load_treebank(data)
    accuracy = TreeAccuracy(parser.labels).to(place.device)
    clock = _EncoderClock(parser)
    began = time.perf_counter()
    for batch in Pieces(treebank.test):
        with place.asking():
            reading: Reading = parser.read([sentence.words for sentence in batch.sentences])
            accuracy.update(reading.heads, reading.labels(reading.heads), batch.sentences)
    seconds = time.perf_counter() - began
    found = {name: float(value) for name, value in accuracy.compute().items()}
    return Evaluation(treebank.name, len(treebank.test), parser.way.iterations, found, seconds, clock.seconds)


class _EncoderClock:
    """Seconds that a parser's encoder takes from now on."""

    def __init__(self, parser: Parser) -> None:
        self.seconds, self._since = 0.0, 0.0
        parser.network.encoder.register_forward_pre_hook(self._start)
        parser.network.encoder.register_forward_hook(self._stop)

    def _start(self, *_: object) -> None:
        self._since = time.perf_counter()

    def _stop(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._since
