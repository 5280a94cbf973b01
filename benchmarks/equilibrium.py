"""Solving to equilibrium: memory that does not grow, fewer sweeps with Anderson, time beside torchdeq.

    python benchmarks/equilibrium.py --out docs/results/equilibrium.md

The comparison with torchdeq 0.1.0 needs `pip install --no-deps torchdeq==0.1.0` and is left out without it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from engine import convolutional
from stopwatch import medians, peak_memory, setting
from torch import Tensor

import undirected as un

ORDER = "h1 h2 y h2"
BATCH = 64


def digits() -> tuple[Tensor, Tensor]:
    """The 1797 digits of scikit-learn, drawn at 28 x 28, from -1 to 1."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 8 - 1
    return F.interpolate(images, (28, 28), mode="bilinear"), torch.tensor(data.target)


def trained(epochs: int, kept: Path | None = None) -> tuple[un.UNN, Tensor, Tensor]:
    """The image network after training with five unrolled sweeps, and data that it has not seen."""
    torch.manual_seed(0)
    if kept is not None and kept.exists():
        weights, x, labels = torch.load(kept)
        net = convolutional()
        net.load_state_dict(weights)
        return net, x, labels
    net, (x, labels) = convolutional(), digits()
    order = torch.randperm(len(x))
    x, labels = x[order], labels[order]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            solution = net({"x": x[rows]}, want="y", order=ORDER, iterations=5)
            F.cross_entropy(solution.preactivation["y"], labels[rows]).backward()
            optimizer.step()
    if kept is not None:
        torch.save((net.state_dict(), x[1500:], labels[1500:]), kept)
    return net, x[1500:], labels[1500:]


def step_of(net: un.UNN, x: Tensor, labels: Tensor, **arguments) -> Callable[[], list[Tensor]]:
    parameters = list(net.parameters())

    def step() -> list[Tensor]:
        solution = net({"x": x}, want="y", order=ORDER, **arguments)
        loss = F.cross_entropy(solution.preactivation["y"], labels)
        return list(torch.autograd.grad(loss, parameters))

    return step


def memory(net: un.UNN, x: Tensor, labels: Tensor) -> list[str]:
    implicit = un.Implicit(max_iterations=20, otherwise="ignore")
    ways: dict[str, dict[str, object]] = {
        "Unroll, 5 sweeps": {"iterations": 5},
        "Implicit, 5 sweeps": {"iterations": 5, "gradient": implicit},
        "Implicit, 50 sweeps": {"iterations": 50, "gradient": implicit},
    }
    bytes_ = {name: peak_memory(step_of(net, x, labels, **way)) for name, way in ways.items()}
    rows = ["| one training step, batch 64 | peak memory (MiB) | to Implicit at 5 | to Unroll at 5 |"]
    rows.append("| --- | --- | --- | --- |")
    for name, peak in bytes_.items():
        small, unrolled = peak / bytes_["Implicit, 5 sweeps"], peak / bytes_["Unroll, 5 sweeps"]
        rows.append(f"| {name} | {peak / 2**20:.1f} | {small:.2f} | {unrolled:.2f} |")
    return rows


@torch.no_grad()
def sweeps(net: un.UNN, x: Tensor) -> list[str]:
    """How many sweeps each example takes to a residual of 1e-5, and how long the batch takes."""
    ways = {
        "plain": un.Tolerance(1e-5, max_iterations=500, otherwise="ignore"),
        "Anderson": un.Tolerance(1e-5, max_iterations=500, otherwise="ignore", acceleration="anderson"),
    }
    queries: dict[str, dict[str, object]] = {
        "digit given image": {"observe": {"x": x}, "want": "y", "order": ORDER},
        "image given digit": {"observe": {"y": torch.arange(10)}, "want": "x", "order": "h2 h1 x h1"},
    }
    rows = [
        "| query | way | sweeps, mean | median | most | converged | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for query, arguments in queries.items():
        found, seconds = {}, {}
        for name, until in ways.items():
            begin = time.perf_counter()
            found[name] = net(**arguments, until=until)
            seconds[name] = time.perf_counter() - begin
        mean = {}
        for name, each in found.items():
            taken, mean[name] = each.iterations.double(), float(each.iterations.double().mean())
            rows.append(
                f"| {query} | {name} | {mean[name]:.1f} | {taken.median():.0f} | {taken.max():.0f} "
                f"| {int(each.converged.sum())} of {len(taken)} | {seconds[name]:.2f} |"
            )
        ratio = seconds["Anderson"] / seconds["plain"]
        rows.append(f"| {query} | ratio | {mean['Anderson'] / mean['plain']:.2f} | | | | {ratio:.2f} |")
    return rows


def sweep_by_hand(net: un.UNN, x: Tensor) -> Callable[..., list[Tensor]]:
    """The sweep as a map of (h2, y), for torchdeq; what comes from x is computed once."""
    w1, w2, w3 = (factor.weight for factor in net.factors.values())
    b1, b2, b3 = net.bias_h1.flatten(), net.bias_h2.flatten(), net.bias_y
    from_x = F.conv2d(x, w1, b1, stride=2)

    def sweep(h2: Tensor, y: Tensor) -> list[Tensor]:
        h1 = (from_x + F.conv_transpose2d(h2, w2, stride=2)).tanh()
        from_h1 = F.conv2d(h1, w2, b2, stride=2)
        h2 = (from_h1 + (y @ w3).view_as(h2)).tanh()
        y = F.linear(h2.flatten(1), w3, b3).softmax(1)
        return [(from_h1 + (y @ w3).view_as(h2)).tanh(), y]

    return sweep


def against_torchdeq(net: un.UNN, x: Tensor, labels: Tensor, rounds: int) -> list[str]:
    try:
        from torchdeq import get_deq
    except ImportError:
        return ["torchdeq is not installed: no comparison."]
    parameters = list(net.parameters())
    residual = 1e-4
    close = un.Tolerance(1e-6, max_iterations=400, acceleration="anderson", otherwise="ignore")
    exact = step_of(net, x, labels, until=close, gradient=un.Implicit(1e-6, otherwise="ignore"))()

    def deq_step(f_tol: float, b_tol: float) -> tuple[Callable[[], list[Tensor]], Callable[[], float]]:
        deq = get_deq(
            f_solver="anderson", b_solver="anderson", ift=True, f_max_iter=100, b_max_iter=100, f_tol=f_tol, b_tol=b_tol
        ).train()
        last: dict[str, Tensor] = {}

        def step() -> list[Tensor]:
            sweep = sweep_by_hand(net, x)
            start = [x.new_zeros(len(x), 64, 5, 5), x.new_zeros(len(x), 10)]
            (found,), _ = deq(sweep, start)
            last["h2"], last["y"] = found
            logits = F.linear(found[0].flatten(1), parameters[-1], net.bias_y)
            return list(torch.autograd.grad(F.cross_entropy(logits, labels), parameters))

        def reached() -> float:
            with torch.no_grad():
                after = sweep_by_hand(net, x)(last["h2"], last["y"])
            return max(float((a - last[name].detach()).abs().max()) for a, name in zip(after, last, strict=True))

        return step, reached

    def error(grads: list[Tensor]) -> float:
        apart = sum((a - b).square().sum() for a, b in zip(grads, exact, strict=True))
        return float((apart / sum(b.square().sum() for b in exact)).sqrt())

    # torchdeq measures a whole example, undirected its largest entry: give it the loosest tolerance that does the same.
    until = un.Tolerance(residual, max_iterations=100, acceleration="anderson", otherwise="ignore")
    ours = step_of(net, x, labels, until=until, gradient=un.Implicit(1e-3, otherwise="ignore"))
    goal = error(ours())
    for f_tol in (3e-3, 1e-3, 3e-4, 1e-4):
        theirs, reached = deq_step(f_tol, 1e-3)
        theirs()
        if reached() <= residual:
            break
    for b_tol in (1e-3, 1e-4, 1e-5, 1e-6):
        theirs, reached = deq_step(f_tol, b_tol)
        if error(theirs()) <= max(goal, 1e-3):
            break
    seconds = medians({"undirected": ours, "torchdeq": theirs}, rounds)
    rows = ["| one training step to residual 1e-4 | seconds | relative error of the gradient |", "| --- | --- | --- |"]
    rows.append(f"| undirected: Anderson, Implicit | {seconds['undirected']:.3f} | {error(ours()):.1e} |")
    what = f"torchdeq 0.1.0: Anderson, ift (f_tol {f_tol:g}, b_tol {b_tol:g})"
    rows.append(f"| {what} | {seconds['torchdeq']:.3f} | {error(theirs()):.1e} |")
    rows.append(f"| ratio | {seconds['undirected'] / seconds['torchdeq']:.2f} | |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the tables to this Markdown file")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--kept", type=Path, help="where the trained network is kept for the next time")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    net, x, labels = trained(arguments.epochs, arguments.kept)
    with torch.no_grad():
        until = un.Tolerance(1e-3, max_iterations=500, acceleration="anderson")
        guess = net({"x": x}, want="y", order=ORDER, until=until)["y"].argmax(1)
    accuracy = float((guess == labels).float().mean())
    x, labels = x[:BATCH], labels[:BATCH]
    head = ["# Solving to equilibrium", "", setting(), ""]
    head += [
        "The convolutional network of the paper, trained on 1500 of scikit-learn's digits with five unrolled sweeps "
        f"({100 * accuracy:.1f} % of the other 297 right at equilibrium). Order `{ORDER}`. Measured by "
        "`benchmarks/equilibrium.py`.",
        "",
    ]
    tables: list[Callable[[], list[str]]] = [
        lambda: ["## Memory", "", *memory(net, x, labels)],
        lambda: ["## Time", "", "Interleaved, medians.", "", *against_torchdeq(net, x, labels, arguments.rounds)],
        lambda: [
            "## Sweeps",
            "",
            "To a residual of 1e-5. Sweeps that Anderson took back count too.",
            "",
            *sweeps(net, x),
        ],
    ]
    for table in tables:
        head += [*table(), ""]
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text("\n".join(head))
    print("\n".join(head))


if __name__ == "__main__":
    main()
