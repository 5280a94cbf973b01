"""One training step of the image task against the naive unrolling, which computes every message of every update.

python benchmarks/images.py                 # prints the table
python benchmarks/images.py --out docs/results/images-speed.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from stopwatch import medians, setting
from torch import Tensor

import undirected as un
from undirected.tasks.images.model import draw, drawing_loss, network, read

BATCH, GAMMA = 256, 0.1


class Naive:
    """Both directions written out by hand from the same weights, with nothing hoisted, reused, skipped or pruned."""

    def __init__(self, net: un.UNN) -> None:
        self.w1, self.w2, self.w3 = (factor.weight for factor in net.factors.values())
        self.b1, self.b2, self.b3 = net.bias_h1, net.bias_h2, net.bias_y

    def h1(self, x: Tensor, h2: Tensor) -> Tensor:
        return (F.conv2d(x, self.w1, stride=2) + F.conv_transpose2d(h2, self.w2, stride=2) + self.b1).tanh()

    def h2(self, h1: Tensor, y: Tensor) -> Tensor:
        return (F.conv2d(h1, self.w2, stride=2) + (y @ self.w3).view(len(y), 64, 5, 5) + self.b2).tanh()

    def read(self, x: Tensor, iterations: int) -> Tensor:
        h2, y = x.new_zeros(len(x), 64, 5, 5), x.new_zeros(len(x), 10)
        for _ in range(iterations):
            h1 = self.h1(x, h2)
            h2 = self.h2(h1, y)
            t = F.linear(h2.flatten(1), self.w3, self.b3)
            y = t.softmax(1)
            h2 = self.h2(h1, y)
        return t

    def draw(self, y: Tensor, iterations: int) -> Tensor:
        h1, x = y.new_zeros(len(y), 32, 12, 12), y.new_zeros(len(y), 1, 28, 28)
        for _ in range(iterations):
            h2 = self.h2(h1, y)
            h1 = self.h1(x, h2)
            t = F.conv_transpose2d(h1, self.w1, stride=2)
            x = t.tanh()
            h1 = self.h1(x, h2)
        return t


def steps(iterations: int) -> dict[str, Callable[[], list[float]]]:
    """The same gradient, computed three ways."""
    torch.manual_seed(0)
    net = network()
    naive = Naive(net)
    x, labels = torch.rand(BATCH, 1, 28, 28) * 2 - 1, torch.randint(10, (BATCH,))
    weights = list(net.parameters())
    classes = torch.arange(10)
    signs = (x > 0).float()

    def gradient(loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, weights)

    def engine() -> tuple[Tensor, ...]:
        reading = un.fenchel_young(read(net, x, iterations), "y", labels)
        return gradient(reading + GAMMA * drawing_loss(draw(net, classes, iterations), x, labels))

    def prototypes() -> tuple[Tensor, ...]:
        t = naive.draw(F.one_hot(classes, 10).float(), iterations)[labels]
        drawing = F.binary_cross_entropy_with_logits(2 * t, signs)
        return gradient(F.cross_entropy(naive.read(x, iterations), labels) + GAMMA * drawing)

    def examples() -> tuple[Tensor, ...]:
        t = naive.draw(F.one_hot(labels, 10).float(), iterations)
        drawing = F.binary_cross_entropy_with_logits(2 * t, signs)
        return gradient(F.cross_entropy(naive.read(x, iterations), labels) + GAMMA * drawing)

    for other in (prototypes, examples):
        for a, b in zip(engine(), other(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    return {"engine": engine, "ten prototypes": prototypes, "one drawing per image": examples}


def table(rounds: int) -> str:
    lines = [
        "| iterations | engine, ms | naive / engine | naive, one drawing per image / engine |",
        "| --- | --- | --- | --- |",
    ]
    for iterations in (1, 3, 5):
        seconds = medians(steps(iterations), rounds, clock=time.process_time)
        ratios = [seconds[name] / seconds["engine"] for name in ("ten prototypes", "one drawing per image")]
        lines.append(f"| {iterations} | {1e3 * seconds['engine']:.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = "\n".join(
        [
            "# Training on images against the naive unrolling",
            "",
            setting(),
            "",
            f"One training step (reading and drawing, forward and backward), batch {BATCH}, medians of",
            "interleaved runs in processor time. All three compute the same gradient. The naive unrolling computes",
            "every message of every update; it draws ten prototypes as the engine does, or, as a plain training loop",
            "would, one for every image.",
            "",
            table(arguments.rounds),
            "",
        ]
    )
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
