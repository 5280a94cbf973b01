"""Parser: a sentence, its tree with the probability of every arc, and the next best trees."""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr
import torch

from undirected.app.figures import card, says, scroll, share
from undirected.app.query import Query
from undirected.app.visitor import answers, number, polite, text
from undirected.errors import QueryError
from undirected.models.parser import ORDER
from undirected.tasks.parsing.drawing import matrix, tree
from undirected.tasks.parsing.parser import Parse, load

TOY = "toy-parser"  #: in the package; it knows the words of the toy treebank
EXAMPLE = "that farmer sees those blue birds near the ducks ."
LONGEST, MOST_WORDS, MOST_TREES = 400, 40, 5


class Linguist:
    """A parser, and the answers that it gives, as HTML."""

    def __init__(self, model: str) -> None:
        self.parser = load(model)

    @torch.no_grad()
    def parse(self, sentence: str, k: int) -> tuple[str, Query]:
        """The tree, the probabilities of all arcs, and the k best trees."""
        words = sentence.split()
        if not words:
            raise QueryError("Type a sentence, with spaces between its words.")
        if len(words) > MOST_WORDS:
            raise QueryError(f"A sentence may have {MOST_WORDS} words here, not {len(words)}.")
        best = self.parser(words)
        sure = f"Probability of the whole tree {share(best.probability)}; entropy of all trees {best.entropy:.2f} nats."
        parts = [card("Tree", scroll(_drawn(best)), note=f"{sure} Below each word, the probability of its arc.")]
        grid = matrix(best.words, best.marginals.tolist(), best.heads)
        parts.append(
            card("All arcs", scroll(str(grid)), note="Rows are heads, columns words; framed is what was chosen.")
        )
        others = best.k_best(k)
        rest = [says(f"{i}. {share(one.probability)}") + scroll(_drawn(one)) for i, one in enumerate(others, 1)]
        parts.append(card(f"The {len(others)} best trees", *rest))
        net, way = self.parser.network.net, self.parser.way
        plan = net.plan(observe=["x", "w"], want="y", order=ORDER, iterations=way.iterations)
        return "".join(parts), Query(f"You asked for the tree of: {' '.join(words)}", net, plan)


def _drawn(parse: Parse) -> str:
    return str(tree(parse.words, parse.heads, parse.labels, parse.probabilities))


def parser_tab(model: str, query: gr.State) -> None:
    """Build the tab."""
    linguist = Linguist(model)
    own = (
        "This small parser has learned from invented sentences about farmers, dogs and ducks, and knows few words. "
        "Train one on your language and show it with <code>undirected demo --parser FOLDER</code>."
    )
    told = own if model == TOY else "Your own parser."
    gr.HTML(f"<p>A tree is a variable like any other here: it informs the words that it was found from. {told}</p>")
    with gr.Row():
        line = gr.Textbox(EXAMPLE, label="Sentence", max_lines=1, max_length=LONGEST, elem_id="sentence", scale=3)
        count = gr.Slider(1, MOST_TREES, 3, step=1, label="Trees", elem_id="trees", scale=1)
        button = gr.Button("Parse", variant="primary", scale=0, min_width=140)
    answer = gr.HTML(linguist.parse(EXAMPLE, 3)[0], elem_id="parsed")

    @polite(1)
    def on_line(value: object, k: object) -> Sequence[object]:
        return linguist.parse(text(value, "The sentence", LONGEST), number(k, "Trees", 1, MOST_TREES))

    answers([button.click, line.submit, count.input], on_line, [line, count], [answer, query])
