"""Solving to equilibrium: memory that does not grow, fewer sweeps with Anderson, time beside torchdeq.

    UNDIRECTED_DATA=... python benchmarks/equilibrium.py --out docs/results/equilibrium.md

Writes into the page between its marks, and leaves the rest of it. The comparison with torchdeq 0.1.0 needs
`pip install --no-deps torchdeq==0.1.0` and is left out without it.
"""

from __future__ import annotations

import argparse
import copy
import resource
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from stopwatch import medians, peak_memory, setting
from torch import Tensor

import undirected as un
from undirected.tasks.images.data import load
from undirected.tasks.images.model import READ, network

MARKS = ("<!-- measured -->\n", "<!-- end of measured -->")
BATCH = 64


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def step_of(net: un.UNN, x: Tensor, labels: Tensor, **arguments) -> Callable[[], list[Tensor]]:
    parameters = list(net.parameters())

    def step() -> list[Tensor]:
        solution = net({"x": x}, want="y", order=READ, **arguments)
        loss = F.cross_entropy(solution.preactivation["y"], labels)
        return list(torch.autograd.grad(loss, parameters))

    return step


def memory(net: un.UNN, x: Tensor, labels: Tensor) -> list[str]:
    implicit = un.Implicit(max_iterations=20, otherwise="ignore")
    until = un.Tolerance(1e-4, max_iterations=50, otherwise="ignore")
    fast = un.Tolerance(1e-4, max_iterations=50, otherwise="ignore", acceleration="anderson")
    ways: dict[str, dict[str, object]] = {
        "Unroll, 5 sweeps": {"iterations": 5},
        "Implicit, 5 sweeps": {"iterations": 5, "gradient": implicit},
        "Implicit, 50 sweeps": {"iterations": 50, "gradient": implicit},
        "Implicit, up to 50 sweeps, until 1e-4": {"until": until, "gradient": implicit},
        "the same with Anderson": {"until": fast, "gradient": implicit},
        "OneStep, 50 sweeps": {"iterations": 50, "gradient": un.OneStep()},
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
        "plain": un.Tolerance(1e-5, max_iterations=1000, otherwise="ignore"),
        "Anderson": un.Tolerance(1e-5, max_iterations=1000, otherwise="ignore", acceleration="anderson"),
    }
    queries: dict[str, dict[str, object]] = {
        "digit given image": {"observe": {"x": x}, "want": "y", "order": READ},
        "image given digit": {"observe": {"y": torch.arange(10)}, "want": "x", "order": "h2 h1 x h1"},
    }
    rows = [
        "| query | way | sweeps, mean | median | most | converged | CPU seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for query, arguments in queries.items():
        found, seconds = {}, {}
        for name, until in ways.items():
            begin = cpu_seconds()
            found[name] = net(**arguments, until=until)
            seconds[name] = cpu_seconds() - begin
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


def precise(net: un.UNN, x: Tensor, labels: Tensor) -> list[Tensor]:
    """The gradient at equilibrium in float64, by plain sweeps alone."""
    net = copy.deepcopy(net).double()
    until = un.Tolerance(1e-11, max_iterations=2000, otherwise="raise")
    grads = step_of(net, x.double(), labels, until=until, gradient=un.Unroll())()
    return [g.float() for g in grads]


def against_torchdeq(net: un.UNN, x: Tensor, labels: Tensor, rounds: int) -> list[str]:
    try:
        from torchdeq import get_deq
    except ImportError:
        return ["torchdeq is not installed: no comparison."]
    parameters = list(net.parameters())
    residual = 1e-4
    exact = precise(net, x, labels)

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
    for b_tol in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5):
        theirs, reached = deq_step(f_tol, b_tol)
        if error(theirs()) <= goal:
            break
    seconds = medians({"undirected": ours, "torchdeq": theirs}, rounds, cpu_seconds)
    rows = [
        "| one training step to residual 1e-4 | CPU seconds | relative error of the gradient |",
        "| --- | --- | --- |",
    ]
    rows.append(f"| undirected: Anderson, Implicit | {seconds['undirected']:.3f} | {error(ours()):.1e} |")
    what = f"torchdeq 0.1.0: Anderson, ift (f_tol {f_tol:g}, b_tol {b_tol:g})"
    rows.append(f"| {what} | {seconds['torchdeq']:.3f} | {error(theirs()):.1e} |")
    rows.append(f"| ratio | {seconds['undirected'] / seconds['torchdeq']:.2f} | |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    net, test = un.load("mnist"), load("mnist").test
    x, labels = test.images[:BATCH], test.labels[:BATCH]
    torch.manual_seed(0)
    new = network()
    lines = [f"{setting()}. Order `{READ}` to read, `h2 h1 x h1` to draw; float32.", "", "## Memory", ""]
    lines += ["The trained network of the package (`mnist`), one training step. `Implicit` with 20 backward steps.", ""]
    lines += [*memory(net, x, labels), "", "## Sweeps", ""]
    lines += ["The same network to a residual of 1e-5. Sweeps that were taken back count too.", ""]
    lines += [*sweeps(net, x), "", "## Time", ""]
    lines += [
        "A new network of the same form, whose equilibrium is unique. In one run, in turns; medians. torchdeq has the",
        "loosest of some tolerances with which it reaches the same residual and the same error. The error is relative",
        "to the gradient through plain sweeps to 1e-11 in float64.",
        "",
        *against_torchdeq(new, x, labels, arguments.rounds),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        head, rest = arguments.out.read_text().split(MARKS[0])
        arguments.out.write_text(f"{head}{MARKS[0]}{text}{MARKS[1]}{rest.split(MARKS[1])[1]}")


if __name__ == "__main__":
    main()
