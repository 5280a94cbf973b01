"""The engine against code written by hand: time, memory and import time, as ratios.

python benchmarks/engine.py                 # prints the tables
python benchmarks/engine.py --out docs/results/engine.md
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from stopwatch import medians, peak_memory, setting
from torch import Tensor, nn

import undirected as un


def convolutional() -> un.UNN:
    return un.UNN(
        un.Variable("x", (1, 28, 28), un.Tanh(), bias=False),
        un.Variable("h1", (32, 12, 12), un.Tanh(), bias="channel"),
        un.Variable("h2", (64, 5, 5), un.Tanh(), bias="channel"),
        un.Variable("y", (10,), un.Softmax()),
        un.Conv2d("x", "h1", kernel_size=6, stride=2),
        un.Conv2d("h1", "h2", kernel_size=4, stride=2),
        un.Linear("h2", "y"),
    )


class Weights:
    """The same numbers as plain tensors, for the twins."""

    def __init__(self, net: un.UNN) -> None:
        self.w1, self.w2, self.w3 = (factor.weight for factor in net.factors.values())
        self.b1, self.b2 = net.bias_h1.flatten(), net.bias_h2.flatten()
        self.b3 = net.bias_y


def by_hand(w: Weights, x: Tensor, iterations: int) -> Tensor:
    """Order h1 h2 y h2, written by somebody who knows that every message is needed once."""
    from_x = F.conv2d(x, w.w1, w.b1, stride=2)
    h1, from_y = from_x.tanh(), None
    for iteration in range(iterations):
        from_h1 = F.conv2d(h1, w.w2, w.b2, stride=2)
        h2 = (from_h1 if from_y is None else from_h1 + from_y).tanh()
        logits = F.linear(h2.flatten(1), w.w3, w.b3)
        if iteration == iterations - 1:
            break
        from_y = (logits.softmax(1) @ w.w3).view_as(h2)
        h2 = (from_h1 + from_y).tanh()
        h1 = (from_x + F.conv_transpose2d(h2, w.w2, stride=2)).tanh()
    return logits


def naive(w: Weights, x: Tensor, iterations: int) -> Tensor:
    """The same, computing every message of every update."""
    h2 = x.new_zeros(len(x), 64, 5, 5)
    y = x.new_zeros(len(x), 10)
    logits = y
    for _ in range(iterations):
        h1 = (F.conv2d(x, w.w1, w.b1, stride=2) + F.conv_transpose2d(h2, w.w2, stride=2)).tanh()
        h2 = (F.conv2d(h1, w.w2, w.b2, stride=2) + (y @ w.w3).view_as(h2)).tanh()
        logits = F.linear(h2.flatten(1), w.w3, w.b3)
        y = logits.softmax(1)
        h2 = (F.conv2d(h1, w.w2, w.b2, stride=2) + (y @ w.w3).view_as(h2)).tanh()
    return logits


def training_step(forward: Callable[[], Tensor], labels: Tensor, parameters: list[nn.Parameter]) -> Callable[[], None]:
    def step() -> None:
        loss = F.cross_entropy(forward(), labels)
        torch.autograd.grad(loss, parameters)

    return step


def convolutions(rounds: int) -> list[str]:
    torch.manual_seed(0)
    net = convolutional()
    w, x, labels = Weights(net), torch.randn(256, 1, 28, 28).tanh(), torch.randint(10, (256,))
    parameters = [p for p in net.parameters() if p.requires_grad]
    sequential = nn.Sequential(
        nn.Conv2d(1, 32, 6, 2), nn.Tanh(), nn.Conv2d(32, 64, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(1600, 10)
    )

    def engine(k: int) -> Callable[[], Tensor]:
        return lambda: net({"x": x}, want="y", order="h1 h2 y h2", iterations=k).preactivation["y"]

    rows = [
        "| network | engine / best by hand | naive / engine | peak memory, engine / by hand |",
        "| --- | --- | --- | --- |",
    ]
    for k in (1, 3, 5):
        torch.testing.assert_close(engine(k)(), by_hand(w, x, k))
        torch.testing.assert_close(naive(w, x, k), by_hand(w, x, k))
        twin = training_step(lambda: sequential(x), labels, list(sequential.parameters()))
        hand = training_step(lambda k=k: by_hand(w, x, k), labels, parameters)
        steps = {
            "engine": training_step(engine(k), labels, parameters),
            "hand": twin if k == 1 else hand,
            "naive": training_step(lambda k=k: naive(w, x, k), labels, parameters),
        }
        seconds = medians(steps, rounds, time.process_time)
        memory = peak_memory(steps["engine"]) / peak_memory(hand)
        what = f"convolutional, k = {k}" + (" (by hand: nn.Sequential)" if k == 1 else "")
        rows.append(
            f"| {what} | {seconds['engine'] / seconds['hand']:.2f} | {seconds['naive'] / seconds['engine']:.2f} "
            f"| {memory:.2f} |"
        )
    return rows


def small(rounds: int) -> list[str]:
    """Widths 16 to 64, batch 8, 10 iterations: the engine's own bookkeeping shows."""
    torch.manual_seed(0)
    net = un.UNN(
        un.Variable("x", (16,)),
        un.Variable("h1", (64,), un.Tanh()),
        un.Variable("h2", (32,), un.Tanh()),
        un.Variable("y", (16,), un.Softmax()),
        un.Linear("x", "h1"),
        un.Linear("h1", "h2"),
        un.Linear("h2", "y"),
    )
    x, labels = torch.randn(8, 16), torch.randint(16, (8,))
    w1, w2, w3 = (factor.weight for factor in net.factors.values())
    b1, b2, b3 = net.bias_h1, net.bias_h2, net.bias_y

    def hand() -> Tensor:
        from_x = F.linear(x, w1, b1)
        h1, from_y = from_x.tanh(), None
        for iteration in range(10):
            from_h1 = F.linear(h1, w2, b2)
            h2 = (from_h1 if from_y is None else from_h1 + from_y).tanh()
            logits = F.linear(h2, w3, b3)
            if iteration == 9:
                break
            from_y = logits.softmax(1) @ w3
            h2 = (from_h1 + from_y).tanh()
            h1 = (from_x + h2 @ w2).tanh()
        return logits

    def engine() -> Tensor:
        return net({"x": x}, want="y", order="h1 h2 y h2", iterations=10).preactivation["y"]

    torch.testing.assert_close(engine(), hand())
    parameters = [w1, w2, w3, b1, b2, b3]
    seconds = medians(
        {"engine": training_step(engine, labels, parameters), "hand": training_step(hand, labels, parameters)},
        rounds * 20,
    )
    with torch.no_grad():
        forward = medians({"engine": engine, "hand": hand}, rounds * 20)
    return [
        "| small network (16-64-32-16, batch 8, k = 10) | engine / by hand |",
        "| --- | --- |",
        f"| forward and backward | {seconds['engine'] / seconds['hand']:.2f} |",
        f"| forward, no gradient | {forward['engine'] / forward['hand']:.2f} |",
    ]


def import_time(rounds: int) -> list[str]:
    code = "import time, torch; t = time.perf_counter(); import undirected; print(time.perf_counter() - t)"
    seconds = sorted(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(max(rounds // 5, 3)))
    return [
        "| `import undirected`, after `import torch` | seconds |",
        "| --- | --- |",
        f"| median | {seconds[len(seconds) // 2]:.3f} |",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the tables to this Markdown file")
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # so that CPU time compares, whatever else the machine does
    head = ["# The engine against code written by hand", "", setting(), ""]
    head += [
        "One training step (forward and backward), medians of interleaved runs. Order `h1 h2 y h2`, batch 256; "
        "CPU time of one thread.",
        "",
    ]
    tables = [convolutions(arguments.rounds), small(arguments.rounds), import_time(arguments.rounds)]
    text = "\n".join(head + ["\n".join([*table, ""]) for table in tables])
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
