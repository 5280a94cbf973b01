"""Images: draw a digit and have it read, draw classes, fill in what is hidden. One network does all three."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr
import numpy as np
import torch
from torch import Tensor

from undirected.app.figures import card, energy, picture, says, strip, table
from undirected.app.query import Query
from undirected.app.sketch import GRID, Drawing, decode, sketch
from undirected.app.visitor import answers, choice, number, polite
from undirected.solution import Solution
from undirected.tasks.images.model import DRAW, READ
from undirected.tasks.images.picture import frame, framed
from undirected.tasks.images.saved import open_model
from undirected.tasks.images.use import fill_in
from undirected.trace import Trace
from undirected.variable import Partial

MOST = 10  #: iterations that a visitor may ask for


class Reader:
    """A network for images, and the answers that it gives, as HTML."""

    def __init__(self, model: str) -> None:
        saved = open_model(model)
        self.net, self.iterations = saved.net, saved.iterations
        self.side = int(self.net.variables["x"].shape[-1])
        self.names = [str(name) for name in range(int(self.net.variables["y"].shape[0]))]

    def seen(self, drawing: Drawing) -> tuple[Tensor, Tensor]:
        """A drawing as the network sees it, fitted into the frame, and which of its pixels are hidden."""
        where = frame(drawing.ink, self.side)
        image = torch.from_numpy(2 * framed(drawing.ink, self.side) - 1).view(1, 1, self.side, self.side)
        rows = _origins(where.rows, where.top, where.height, self.side)
        columns = _origins(where.columns, where.left, where.width, self.side)
        return image, torch.from_numpy(drawing.hidden[rows[:, None], columns[None, :]])

    @torch.no_grad()
    def read(self, drawing: Drawing, iterations: int) -> tuple[str, Query]:
        """What the drawing is taken for after every iteration, and how the energy falls."""
        image, hidden = self.seen(drawing)
        ask: dict[str, Any] = {"observe": {"x": image}, "want": "y", "order": READ, "iterations": iterations}
        words = "You drew a picture"
        if hidden.any():  # what is hidden starts as paper
            ask |= {"observe": {"x": Partial(image, known=~hidden)}, "init": {"x": torch.full_like(image, -1)}}
            words += " and hid a part of it"
        found = self.net(**ask, trace=True)
        trace = _trace(found)
        shares = torch.cat(trace.of("y"))
        best = int(shares[-1].argmax())
        parts = [
            says(f"Taken for {self.names[best]} ({float(shares[-1, best]):.1%})."),
            table(shares, _counted("iteration", len(shares)), self.names, "%"),
            _energy(trace),
        ]
        note = "Probability of each class after every iteration; below, the energy after every update."
        return card("Read", *parts, note=note), Query(f"{words}: which class is it?", self.net, self.net.plan(**ask))

    @torch.no_grad()
    def fill(self, drawing: Drawing, label: int, iterations: int) -> str:
        """The hidden part of the drawing, found without the class and with it."""
        image, hidden = self.seen(drawing)
        if not hidden.any():
            return card("Fill in", says("Hide a part of your drawing: the network fills it in."))
        free = fill_in(self.net, image, hidden, None, iterations)
        given = fill_in(self.net, image, hidden, torch.tensor([label]), iterations)
        guess = int(free["y"][0].argmax())
        pictures = [
            picture(image[0, 0], "what it sees", hidden),
            picture(free["x"][0, 0], f"found: a {self.names[guess]}"),
            picture(given["x"][0, 0], f"told: a {self.names[label]}"),
        ]
        return card(
            "Fill in", strip(pictures), note="Orange is unknown to the network. It finds the class itself, or is told."
        )

    @torch.no_grad()
    def draw(self, first: int, second: int, share: float, iterations: int) -> tuple[str, Query]:
        """A prototype of a class or of a mixture of two, after every iteration."""
        y = torch.zeros(1, len(self.names))
        y[0, first] += 1 - share
        y[0, second] += share
        ask: dict[str, Any] = {"observe": {"y": y}, "want": "x", "order": DRAW, "iterations": iterations}
        trace = _trace(self.net(**ask, trace=True))
        images = trace.of("x")
        captions = _counted("iteration", len(images))
        parts = [strip([picture(x[0, 0], name) for x, name in zip(images, captions, strict=True)]), _energy(trace)]
        mixed = first != second and 0 < share < 1
        only = self.names[second if share == 1 else first]
        what = f"{1 - share:.0%} a {self.names[first]}, {share:.0%} a {self.names[second]}" if mixed else f"a {only}"
        query = Query(f"You chose a class: what does {what} look like?", self.net, self.net.plan(**ask))
        return card("Drawn", says(f"The class is {what}; nothing else is given."), *parts), query


def _origins(ink: slice, start: int, length: int, side: int) -> np.ndarray:
    """For each pixel along a side of the frame, the drawing's cell that it shows; beyond the drawing, its border."""
    cells = ink.start + (np.arange(side) - start + 0.5) * (ink.stop - ink.start) / length
    return np.clip(cells.astype(int), 0, GRID - 1)


def _trace(found: Solution) -> Trace:
    assert found.trace is not None
    return found.trace


def _counted(name: str, count: int) -> list[str]:
    return [f"{name} {i}" for i in range(1, count + 1)]


def _energy(trace: Trace) -> str:
    labels = [step.variable for step in trace.steps][-len(trace.energy) :]
    return energy(labels, trace.energy[:, 0].tolist())


def images_tab(model: str, query: gr.State) -> Query:
    """Build the tab; the question that its page begins with."""
    reader = Reader(model)
    first, begun = reader.draw(3, 8, 0.0, reader.iterations)
    names = reader.names
    gr.HTML(
        "<p>One network, one set of weights. It <b>reads</b> what you draw, <b>fills in</b> what you hide, and "
        "<b>draws</b> a class that you choose.</p>"
    )
    with gr.Row():
        with gr.Column(scale=0, min_width=310):
            paper = sketch()
            sweeps = gr.Slider(1, MOST, reader.iterations, step=1, label="Iterations", elem_id="iterations")
            told = gr.Dropdown(names, value=names[5], label="Class that it is told, to fill in", elem_id="told")
        with gr.Column(scale=1, min_width=420):
            reading = gr.HTML(elem_id="reading")
            filling = gr.HTML(elem_id="filling")
    gr.HTML("<h2>Choose a class, or mix two</h2>")
    with gr.Row():
        one = gr.Dropdown(names, value=names[3], label="Class", elem_id="class-one")
        other = gr.Dropdown(names, value=names[8], label="Mixed with", elem_id="class-two")
        share = gr.Slider(0, 100, 0, step=5, label="Share of the second, %", elem_id="share")
    drawn = gr.HTML(first, elem_id="drawn")

    @polite(2)
    def on_sketch(value: object, label: object, k: object) -> Sequence[object]:
        iterations, known = number(k, "Iterations", 1, MOST), choice(label, names, "Class")
        drawing = decode(value)
        if drawing is None:
            return card("Read", says("Draw a digit with the mouse.")), "", gr.skip()
        answer, asked = reader.read(drawing, iterations)
        return answer, reader.fill(drawing, known, iterations), asked

    @polite(1)
    def on_class(a: object, b: object, percent: object, k: object) -> Sequence[object]:
        pair = choice(a, names, "Class"), choice(b, names, "Mixed with")
        weight = number(percent, "Share", 0, 100) / 100
        return reader.draw(*pair, weight, number(k, "Iterations", 1, MOST))

    answers([one.input, other.input, share.input, sweeps.input], on_class, [one, other, share, sweeps], [drawn, query])
    answers([paper.sketch, told.input, sweeps.input], on_sketch, [paper, told, sweeps], [reading, filling, query])
    return begun
