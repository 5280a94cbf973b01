"""Evaluation: a saved network on test sequences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from undirected.errors import FileError, QueryError
from undirected.tasks.place import Place
from undirected.tasks.sequences.batches import Pieces
from undirected.tasks.sequences.data import NUMBERS, load
from undirected.tasks.sequences.model import ORDERS, scores, solve
from undirected.tasks.sequences.use import longest, open_model


@dataclass(frozen=True)
class Evaluation:
    """How many of the missing tokens of the test sequences a network found."""

    data: str
    order: str
    iterations: int
    right: int
    count: int

    @property
    def accuracy(self) -> float:
        return self.right / self.count


def evaluate(
    model: str | Path,
    data: str = NUMBERS,
    iterations: int | None = None,
    order: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "32",
) -> Evaluation:
    """Count the missing test tokens that are found, with the network's own iterations and order if not given."""
    if iterations is not None and iterations < 1:
        raise QueryError(f"--iterations {iterations}: must be at least 1.")
    place = Place.of(device, precision)
    net = open_model(model).to(place.device, place.dtype)
    sequences = load(data)
    if list(sequences.vocabulary) != net.notes["vocabulary"]:
        raise FileError(f"{model}: knows other tokens than {data}. Give --data the file that it was trained on.")
    if sequences.longest > longest(net):
        raise FileError(
            f"{model}: reads up to {longest(net)} tokens, and {data} has a line of {sequences.longest}. "
            f"Give --data the file that it was trained on."
        )
    order, iterations = order or net.notes["order"], iterations or net.notes["iterations"]
    torch.manual_seed(seed)
    right = count = 0
    for piece in Pieces(sequences.test):
        batch = piece.to(place.device)
        with place.asking():
            found = scores(net, batch, solve(net, batch, iterations, ORDERS[order])).argmax(1)
        right += int((found == batch.targets()).sum())
        count += len(found)
    return Evaluation(sequences.name, order, iterations, right, count)
