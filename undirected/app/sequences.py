"""Sequences: numbers with gaps, completed by attention that works in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import gradio as gr
import torch
from torch import Tensor

from undirected.app.figures import card, heat, says, strip, table
from undirected.app.query import Query
from undirected.app.visitor import answers, number, polite, text
from undirected.tasks.sequences.data import GAP, Batch
from undirected.tasks.sequences.model import AROUND, scores, solve
from undirected.tasks.sequences.use import Completer
from undirected.variable import Partial

EXAMPLE = "3 4 ? 6 7 8 ? 10 11"
LONGEST, MOST = 400, 4  #: characters, iterations
PASSES = ("forward", "backward")


class Writer:
    """A network for sequences, and the answers that it gives, as HTML."""

    def __init__(self, model: str) -> None:
        self.completer = Completer(model)
        self.iterations = min(self.completer.iterations, MOST)

    @torch.no_grad()
    def complete(self, line: str, iterations: int) -> tuple[str, Query]:
        """The missing tokens, the candidates for each, and where every token looked after each half-pass."""
        net, given = self.completer.net, torch.tensor([self.completer.read(line)])
        batch = Batch(given.clamp(min=0), given >= 0, None)
        solution = solve(net, batch, iterations, AROUND, trace=True)
        assert solution.trace is not None
        tokens = line.split()
        found = scores(net, batch, solution).softmax(1)
        missing = (given[0] < 0).nonzero()[:, 0].tolist()
        whole = list(tokens)
        for place, row in zip(missing, found, strict=True):
            whole[place] = self.completer.vocabulary[int(row.argmax())]
        maps = [
            heat(s[0], tokens, tokens, f"iteration {i // 2 + 1}, {PASSES[i % 2]}")
            for i, s in enumerate(solution.trace.of("s"))
        ]
        note = "After each half-pass, where every position (row) looks (column)."
        asked = {"x": Partial(solution["x"], known=batch.known[..., None])}
        plan = net.plan(observe=asked, want="x", order=AROUND, iterations=iterations)
        answer = card(
            "Completed",
            says(" ".join(whole)),
            self._candidates(missing, found),
            note="Below, how probable the guesses are.",
        )
        query = Query(f"You asked for the gaps of {' '.join(tokens)}.", net, plan)
        return answer + card("Attention", strip(maps), note=note), query

    def _candidates(self, missing: Sequence[int], found: Tensor) -> str:
        """The guesses for each gap, in the order of the vocabulary; what rounds to 0 % everywhere is left out."""
        best = found.argmax(1).tolist()
        columns = sorted({*best, *(found.amax(0) >= 0.005).nonzero()[:, 0].tolist()})
        names = [self.completer.vocabulary[i] for i in columns]
        return table(found[:, columns], [f"position {place + 1}" for place in missing], names, "%")


def sequences_tab(model: str, query: gr.State) -> None:
    """Build the tab."""
    writer = Writer(model)
    known, longest = writer.completer.vocabulary, writer.completer.longest
    example = EXAMPLE if set(EXAMPLE.split()) - {GAP} <= set(known) else f"{known[0]} {GAP}"
    gr.HTML(
        "<p>Numbers in a row, up or down, with <b>?</b> for those that are missing. The network knows "
        f"{escape(known[0])} to {escape(known[-1])} and reads up to {longest} of them. Information flows forward from "
        "the numbers to their contexts, and back from the contexts to the gaps: a sweep. The network has learned with "
        f"{writer.completer.iterations} of them; see what more do.</p>"
    )
    with gr.Row():
        line = gr.Textbox(example, label="Numbers", max_lines=1, max_length=LONGEST, elem_id="numbers", scale=3)
        sweeps = gr.Slider(1, MOST, writer.iterations, step=1, label="Sweeps", elem_id="sweeps", scale=1)
        button = gr.Button("Complete", variant="primary", scale=0, min_width=140)
    answer = gr.HTML(writer.complete(example, writer.iterations)[0], elem_id="completed")

    @polite(1)
    def on_line(value: object, k: object) -> Sequence[object]:
        return writer.complete(text(value, "The sequence", LONGEST), number(k, "Sweeps", 1, MOST))

    answers([button.click, line.submit, sweeps.input], on_line, [line, sweeps], [answer, query])
