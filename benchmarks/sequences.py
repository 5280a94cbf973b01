"""One training step of the sequence task against the naive unrolling, and against one written by hand.

python benchmarks/sequences.py                 # prints the table
python benchmarks/sequences.py --out docs/results/sequences-speed.md
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from stopwatch import medians, setting
from torch import Tensor

import undirected as un
from undirected.tasks.sequences.data import Batch
from undirected.tasks.sequences.model import embeddings, network, scores, solve

BATCH, LENGTH, SIZE = 128, 22, 256


class Twin:
    """The order q k v s h s v k q x written out from the same weights."""

    def __init__(self, net: un.UNN) -> None:
        self.w_q, self.w_k, self.w_v = (net.factors[f"x-{name}"].weight for name in "qkv")
        self.e = embeddings(net)
        self.p = net.factors["x-q"].shift["x"]

    def attend(self, t: Tensor) -> Tensor:
        return (t / math.sqrt(SIZE)).softmax(-1)


class Naive(Twin):
    """Every message of every update is computed, of all rows: nothing is hoisted, reused, skipped or left out."""

    def scores(self, batch: Batch, iterations: int) -> Tensor:
        p = self.p[: batch.tokens.shape[1]]
        known = batch.known[..., None]
        observed = F.embedding(batch.tokens, self.e) * known
        x, q = observed, torch.zeros_like(observed)
        k, v, h = q, q, q
        s = q.new_zeros(len(q), len(p), len(p))
        for _ in range(iterations):
            q = F.linear(x + p, self.w_q) + s @ k
            k = F.linear(x + p, self.w_k) + s.mT @ q
            v = F.linear(x + p, self.w_v) + s.mT @ h
            s = self.attend(q @ k.mT + h @ v.mT)
            h = s @ v
            s = self.attend(q @ k.mT + h @ v.mT)
            v = F.linear(x + p, self.w_v) + s.mT @ h
            k = F.linear(x + p, self.w_k) + s.mT @ q
            q = F.linear(x + p, self.w_q) + s @ k
            x = torch.where(known, observed, q @ self.w_q + k @ self.w_k + v @ self.w_v)
        return F.linear(x[~batch.known], self.e)


class ByHand(Twin):
    """What one would write with care: a message is computed once, what is still zero is left out."""

    def scores(self, batch: Batch, iterations: int) -> Tensor:
        p = self.p[: batch.tokens.shape[1]]
        known = batch.known[..., None]
        observed = x = F.embedding(batch.tokens, self.e) * known
        q, k, v, s, h = (None,) * 5
        for _ in range(iterations):
            rows = x + p
            x_q, x_k, x_v = F.linear(rows, self.w_q), F.linear(rows, self.w_k), F.linear(rows, self.w_v)
            q = x_q if s is None else x_q + s_k
            k = x_k if s is None else x_k + s.mT @ q
            v = x_v if s is None else x_v + s_h
            q_k = q @ k.mT
            s = self.attend(q_k if h is None else q_k + h @ v.mT)
            h = s @ v
            s = self.attend(q_k + h @ v.mT)
            s_h = s.mT @ h
            v = x_v + s_h
            k = x_k + s.mT @ q
            s_k = s @ k
            q = x_q + s_k
            x = torch.where(known, observed, q @ self.w_q + k @ self.w_k + v @ self.w_v)
        return F.linear(x[~batch.known], self.e)


class ByHandMissing(Twin):
    """The same, and only the missing rows of x are computed, as the engine does."""

    def scores(self, batch: Batch, iterations: int) -> Tensor:
        p = self.p[: batch.tokens.shape[1]]
        observed = F.embedding(batch.tokens, self.e) * batch.known[..., None]
        shape = observed.shape
        rows = (~batch.known).flatten().nonzero().squeeze(1)
        places = rows % shape[1]
        first = observed + p
        x_q, x_k, x_v = (F.linear(first, w) for w in (self.w_q, self.w_k, self.w_v))
        for i in range(iterations):
            if i:
                more = found + p[places]
                x_q, x_k, x_v = (
                    message.flatten(0, 1).index_copy(0, rows, F.linear(more, w)).view(shape)
                    for message, w in ((x_q, self.w_q), (x_k, self.w_k), (x_v, self.w_v))
                )
            q = x_q + s_k if i else x_q
            k = x_k + s.mT @ q if i else x_k
            v = x_v + s_h if i else x_v
            q_k = q @ k.mT
            s = self.attend(q_k + h @ v.mT if i else q_k)
            h = s @ v
            s = self.attend(q_k + h @ v.mT)
            s_h = s.mT @ h
            v = x_v + s_h
            k = x_k + s.mT @ q
            s_k = s @ k
            q = x_q + s_k
            q_m, k_m, v_m = (one.flatten(0, 1).index_select(0, rows) for one in (q, k, v))
            found = q_m @ self.w_q + k_m @ self.w_k + v_m @ self.w_v
        return F.linear(found, self.e)


Step = Callable[[], tuple[Tensor, ...]]


def ways(net: un.UNN, batch: Batch, iterations: int) -> dict[str, Step]:
    """The gradient of a training step, computed in four ways."""
    weights, targets = list(net.parameters()), batch.targets()

    def step(found: Callable[[], Tensor]) -> Step:
        return lambda: torch.autograd.grad(F.cross_entropy(found(), targets), weights)

    return {
        "engine": step(lambda: scores(net, batch, solve(net, batch, iterations))),
        "naive": step(lambda: Naive(net).scores(batch, iterations)),
        "by hand": step(lambda: ByHand(net).scores(batch, iterations)),
        "by hand, missing rows": step(lambda: ByHandMissing(net).scores(batch, iterations)),
    }


def steps(iterations: int) -> dict[str, Step]:
    """The four ways in single precision, once they have agreed in double precision."""
    torch.manual_seed(0)
    net = network([str(i) for i in range(64)], LENGTH, SIZE).double()
    tokens = torch.randint(64, (BATCH, LENGTH))
    known = torch.rand(BATCH, LENGTH).argsort(1) >= 3  # as in most sequences of this length, three are missing
    few = Batch(tokens[:8], known[:8], None)
    first, *others = (step() for step in ways(net, few, iterations).values())
    for other in others:
        torch.testing.assert_close(first, other)
    return ways(net.float(), Batch(tokens, known, None), iterations)


def table(rounds: int) -> str:
    lines = [
        "| iterations | engine, ms | naive / engine | engine / by hand | engine / by hand, missing rows alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for iterations in (1, 2, 3):
        seconds = medians(steps(iterations), rounds, clock=time.process_time)
        engine = seconds["engine"]
        ratios = (seconds["naive"] / engine, engine / seconds["by hand"], engine / seconds["by hand, missing rows"])
        lines.append(f"| {iterations} | {1e3 * engine:.0f} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = "\n".join(
        [
            "# Training on sequences against unrolling by hand",
            "",
            setting(),
            "",
            f"One training step (forward and backward), {BATCH} sequences of {LENGTH} tokens, d = {SIZE}, medians of",
            f"{arguments.rounds} interleaved runs in processor time. All compute the same gradient. The naive",
            "unrolling computes every message of every update. Written by hand with care, each message is computed",
            "once; in the last column, those to and from x for its missing rows alone, as the engine does.",
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
