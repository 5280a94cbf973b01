"""How fast a parser learns and parses, by the number of iterations. The encoder is left out of the parsing.

python benchmarks/parsing.py --data te --model out/parsing/te                 # prints the tables
python benchmarks/parsing.py --data te --model out/parsing/te --out docs/results/parsing-speed.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from stopwatch import medians, setting
from torch import Tensor, nn

from undirected.tasks.parsing.encoders import Encoder, Words
from undirected.tasks.parsing.learner import Learner
from undirected.tasks.parsing.parser import Parser, load
from undirected.tasks.parsing.settings import Settings
from undirected.tasks.parsing.treebank import Treebank
from undirected.tasks.parsing.treebank import load as load_treebank

ITERATIONS = (1, 2, 3, 5)
STEPS = 8  # batches that a timed call learns from


class Known(Encoder):
    """The vectors that another encoder gave: what remains is the parser."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder, self.size = encoder, encoder.size
        self.found: dict[tuple[Words, ...], Tensor] = {}

    def forward(self, sentences: Sequence[Words]) -> Tensor:
        key = tuple(sentences)
        if key not in self.found:
            self.found[key] = self.encoder(sentences)
        return self.found[key]

    def description(self) -> dict[str, Any]:
        return self.encoder.description()

    def pretrained(self) -> list[nn.Parameter]:
        return self.encoder.pretrained()


def training(treebank: Treebank, data: str) -> dict[int, Callable[[], None]]:
    """Some steps of training with each number of iterations, from the same weights on the same batches."""
    steps = {}
    for iterations in ITERATIONS:
        learner = Learner(Settings(data=data, iterations=iterations, single=0.0), treebank).train()
        batches = [batch for batch, _ in zip(learner.train_dataloader(), range(STEPS), strict=False)]
        steps[iterations] = partial(learn, learner, torch.optim.AdamW(learner.parameters(), lr=1e-6), batches)
    return steps


def learn(learner: Learner, optimizer: torch.optim.Optimizer, batches: list[Any]) -> None:
    learner.log = lambda *_, **__: None  # type: ignore[method-assign]
    for index, batch in enumerate(batches):
        loss = learner.training_step(batch, index)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), learner.settings.clip)
        optimizer.step()


def parsing(parser: Parser, treebank: Treebank) -> dict[int, Callable[[], Any]]:
    """Parsing all of the test part: trees, labels, probabilities and entropies."""
    parser.network.encoder = Known(parser.network.encoder)
    sentences = [sentence.words for sentence in treebank.test]
    ways = {k: Parser(parser.network, parser.labels, replace(parser.way, iterations=k, until=0.0)) for k in ITERATIONS}
    return {k: partial(one.many, sentences) for k, one in ways.items()}


def table(treebank: Treebank, data: str, model: str | None, rounds: int) -> list[str]:
    steps = medians(training(treebank, data), rounds, clock=time.process_time)
    parser = load(model) if model else Learner(Settings(data=data), treebank).parser()
    parses = medians(parsing(parser, treebank), rounds, clock=time.process_time)
    lines = [
        "| k | training step, ms | of k = 1's | parsing, sentences a second |",
        "| --- | --- | --- | --- |",
    ]
    for k in ITERATIONS:
        speed = len(treebank.test) / parses[k]
        lines.append(f"| {k} | {1e3 * steps[k] / STEPS:.0f} | {steps[k] / steps[1]:.2f} | {speed:.0f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="toy", help="the treebank")
    parser.add_argument("--model", help="a trained parser; an untrained one if not given")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    treebank = load_treebank(arguments.data)
    words = sum(map(len, treebank.test)) / len(treebank.test)
    text = "\n".join(
        [
            "# Speed of parsing",
            "",
            setting(),
            "",
            f"{treebank.name}, lstm encoder, {'a trained' if arguments.model else 'an untrained'} parser. Medians of",
            "interleaved runs, in seconds of one processor. A training step is one batch: encoder, solve, gradient,",
            "optimizer. Parsing leaves the encoder out, and gives trees, labels, probabilities and entropies of the",
            f"{len(treebank.test)} test sentences, which have {words:.1f} words on average.",
            "",
            *table(treebank, arguments.data, arguments.model, arguments.rounds),
            "",
        ]
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
