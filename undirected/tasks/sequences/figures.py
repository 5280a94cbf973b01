"""Figures: where a network looks, how it learns, and what more updates give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from undirected.network import UNN
from undirected.tasks.sequences.data import GAP, NUMBERS, Batch, Questions
from undirected.tasks.sequences.model import ORDERS, solve

EXAMPLE = "21 22 23 ? 25 26 27 28 29 ? 31 32"
SWEEPS = 6  #: whose attention is drawn at most
LABELS = 40  #: of rows, at most: beyond, every other one has none, or more
PASSES = {"forward-backward": ("forward", "backward"), "random": ("in a random order",)}


@torch.no_grad()
def attention(networks: Mapping[str, tuple[UNN, int]], text: str, path: Path) -> None:
    """The attention s of a sequence, each time that it is found in the first sweeps: a row of maps for each network.

    That is after each half-pass, forward and backward; with random orders, once in a sweep.
    """
    tokens = text.split()
    some = range(0, len(tokens), -(-len(tokens) // LABELS))
    labels = {"labels": [tokens[i] for i in some], "fontsize": 6, "parse_math": False}  # "$" is a token like others
    most = max(min(iterations, SWEEPS) * len(_passes(net)) for net, iterations in networks.values())
    figure = Figure(figsize=(2.6 * most + 0.6, 2.7 * len(networks) + 0.4), layout="constrained")
    axes: Any = figure.subplots(len(networks), most, squeeze=False)
    for line, (name, (net, iterations)) in zip(axes, networks.items(), strict=True):
        numbers = [net.notes["vocabulary"].index(token) if token != GAP else -1 for token in tokens]
        given = torch.tensor([numbers])
        order = ORDERS[net.notes["order"]]
        solution = solve(net, Batch(given.clamp(min=0), given >= 0, None), min(iterations, SWEEPS), order, trace=True)
        assert solution.trace is not None
        maps = solution.trace.of("s")
        for place, axis in enumerate(line):
            if place >= len(maps):
                axis.set_axis_off()
                continue
            axis.imshow(maps[place][0].cpu().numpy(), cmap="Blues", vmin=0, vmax=1)
            sweep, half = divmod(place, len(_passes(net)))
            axis.set_title(f"{name}, {sweep + 1} {_passes(net)[half]}", fontsize=9)
            axis.set_xticks(some, **labels)
            axis.set_yticks(some, **labels)
            axis.tick_params(length=0)
    axes[0][0].set_ylabel("row that looks", fontsize=8)
    axes[-1][0].set_xlabel("row looked at", fontsize=8)
    figure.savefig(path, dpi=120)


def _passes(net: UNN) -> tuple[str, ...]:
    """After which parts of a sweep there is a new s."""
    return PASSES[net.notes["order"]]


def example(data: str, questions: Questions, vocabulary: Sequence[str]) -> str:
    """A sequence to draw the attention of."""
    if data == NUMBERS:
        return EXAMPLE
    batch = questions.batch(torch.tensor([0]))
    pairs = zip(batch.tokens[0].tolist(), batch.known[0].tolist(), strict=True)
    return " ".join(vocabulary[token] if known else GAP for token, known in pairs)


def curves(series: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """The share of missing validation tokens that are wrong, against the training steps."""
    _plot(series, "training steps", ".", path)


def against_updates(series: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """The share of missing test tokens that are wrong, against the variable updates that a solve makes."""
    _plot(series, "variable updates", "o", path)


def _plot(series: Mapping[str, Sequence[tuple[int, float]]], what: str, marker: str, path: Path) -> None:
    """Errors in %, and not zero, for a logarithmic axis."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    for name, points in series.items():
        wrong = [max(100 * (1 - right), 1e-3) for _, right in points]
        axis.plot([at for at, _ in points], wrong, marker=marker, label=name)
    axis.set_yscale("log")
    axis.set_xlabel(what, fontsize=9)
    axis.set_ylabel("wrong, %", fontsize=9)
    axis.grid(alpha=0.3, which="both")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
