"""Figures: what a network draws, how its energy falls, what it fills in, and what it mixes up."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from undirected.equilibrium import Tolerance
from undirected.network import UNN
from undirected.tasks.images.batches import Pieces
from undirected.tasks.images.data import Images
from undirected.tasks.images.evaluation import Tester
from undirected.tasks.images.model import DRAW, READ, equilibrium
from undirected.tasks.images.run import Trained
from undirected.tasks.images.use import fill_in, hidden_half
from undirected.tasks.run import test

PALE, DARK = "#c3c9d2", "#33404f"
COLOURS = [f"C{number}" for number in range(10)]


def of_run(trained: Trained) -> list[Path]:
    """The pictures of a training run, in its folder."""
    if not isinstance(trained.net, UNN):
        return []
    net, out, iterations = copy.deepcopy(trained.net).float().cpu(), trained.folder, trained.settings.iterations
    paths = [out / f"{name}.png" for name in ("prototypes", "energy", "completion", "confusion")]
    prototypes({f"k = {iterations}": (net, iterations)}, trained.images.classes, paths[0])
    energy(net, trained.images, iterations, paths[1])
    sweeps = equilibrium(trained.settings.until) if trained.settings.until else iterations
    completion(net, trained.images, sweeps, paths[2])
    tester = Tester(net, len(trained.images.classes), sweeps, trained.settings.init, trained.settings.seed)
    test(tester, Pieces(trained.images.test), trained.settings.device, "32")
    confusion(tester.found["confusion"], trained.images.classes, paths[3])
    return paths


@torch.no_grad()
def prototypes(networks: Mapping[str, tuple[UNN, int]], classes: Sequence[str], path: Path) -> None:
    """What each network draws of each class: a row per iteration."""
    rows: list[tuple[str, Tensor]] = []
    for name, (net, iterations) in networks.items():
        solution = net(observe={"y": torch.arange(len(classes))}, order=DRAW, iterations=iterations, trace=True)
        assert solution.trace is not None
        drawn = solution.trace.of("x")
        rows += [(f"{name}\n{i} of {iterations}" if iterations > 1 else name, x) for i, x in enumerate(drawn, 1)]
    _grid([x[:, 0] for _, x in rows], path, [name for name, _ in rows], list(classes))


@torch.no_grad()
def energy(net: UNN, images: Images, iterations: int, path: Path) -> None:
    """The energy after every update, reading one image of each class and drawing each class. It may only fall."""
    chosen = first_of_each_class(images)
    classes = torch.arange(len(images.classes))
    reading = net(observe={"x": images.test.images[chosen]}, order=READ, iterations=iterations, check=True, trace=True)
    drawing = net(observe={"y": classes}, order=DRAW, iterations=iterations, check=True, trace=True)
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    traces = {"reading": reading.trace, "drawing": drawing.trace}
    for axis, (title, trace) in zip(figure.subplots(1, 2), traces.items(), strict=True):
        assert trace is not None
        steps = trace.steps[-len(trace.energy) :]  # the energy is known once every variable has a value
        for number, course in enumerate(trace.energy.T):
            axis.plot(
                course.cpu().numpy(), marker=".", linewidth=1.2, color=COLOURS[number], label=images.classes[number]
            )
        axis.set_title(f"{title}, k = {iterations}", fontsize=10)
        ticks = [f"{step.variable}\n{step.iteration}" for step in steps]
        every = max(len(ticks) // 12, 1)
        axis.set_xticks(range(0, len(ticks), every), ticks[::every], fontsize=8)
        axis.set_xlabel("variable updated, in iteration", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("energy", fontsize=9)
    figure.axes[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=130)


@torch.no_grad()
def completion(net: UNN, images: Images, sweeps: int | Tolerance, path: Path, which: str = "bottom") -> None:
    """One image of each class with a half hidden, filled in without its class and with it."""
    chosen = first_of_each_class(images)
    whole, labels = images.test.images[chosen], images.test.labels[chosen]
    hidden = hidden_half(images.side, which)
    alone = fill_in(net, whole, hidden, None, sweeps)
    guided = fill_in(net, whole, hidden, labels, sweeps)
    shown = torch.where(hidden, 0.0, whole)  # grey where nothing is known
    guesses = [images.classes[number] for number in alone["y"].argmax(1).tolist()]
    names = ["image", "half hidden", "filled in", "filled in,\nclass given"]
    rows = [whole, shown, alone["x"], guided["x"]]
    titles = [f"{images.classes[n]}, read {g}" for n, g in zip(labels.tolist(), guesses, strict=True)]
    _grid([x[:, 0] for x in rows], path, names, titles)


def confusion(matrix: Tensor, classes: Sequence[str], path: Path) -> None:
    """How many test images of each class were taken for each other: mistakes in colour, all in numbers."""
    wrong = matrix.clone().float()
    wrong.fill_diagonal_(0)
    figure = Figure(figsize=(5.6, 5.2), layout="constrained")
    axis = figure.subplots()
    axis.imshow(wrong.numpy(), cmap="Oranges", vmin=0, vmax=max(1.6 * float(wrong.max()), 1))
    for row, column in matrix.nonzero().tolist():
        weight = "bold" if row == column else "normal"
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": DARK, "fontweight": weight}
        axis.text(column, row, str(int(matrix[row, column])), **style)
    turned = 45 if max(map(len, classes)) > 2 else 0
    axis.set_xticks(range(len(classes)), classes, rotation=turned)
    axis.set_yticks(range(len(classes)), classes)
    axis.set_xlabel("taken for")
    axis.set_ylabel("class")
    axis.spines[:].set_color(PALE)
    axis.tick_params(length=0)
    share = matrix.diagonal().sum() / matrix.sum()
    axis.set_title(f"{share:.2%} of {int(matrix.sum())} test images read right", fontsize=10)
    figure.savefig(path, dpi=130)


def first_of_each_class(images: Images) -> list[int]:
    return [int((images.test.labels == number).nonzero()[0]) for number in range(len(images.classes))]


def _grid(rows: Sequence[Tensor], path: Path, names: Sequence[str], titles: Sequence[str]) -> None:
    """Images of shape (columns, height, width), row by row, dark ink on white."""
    columns = len(rows[0])
    size = (0.75 * columns + 1.1, 0.75 * len(rows) + 0.35)
    figure = Figure(figsize=size, layout="constrained")
    axes: Any = figure.subplots(len(rows), columns, squeeze=False)
    for line, row, name in zip(axes, rows, names, strict=True):
        for axis, image in zip(line, row, strict=True):
            axis.imshow(image.cpu().numpy(), cmap="gray_r", vmin=-1, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.spines[:].set_color(PALE)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8 if len(title) < 5 else 6)
    figure.savefig(path, dpi=130)
