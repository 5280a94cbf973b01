"""Every way to differentiate a solve, on four networks: error against a long unrolled gradient, time, memory.

python benchmarks/gradients.py --out docs/gradients.md    # writes the table into the page
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from stopwatch import medians, peak_memory, setting
from torch import Tensor

import undirected as un

STRENGTH = 0.35  # of the random weights: with stronger ones some equilibria take thousands of sweeps
LONG = 800  # sweeps of the gradient that the others are compared with
MARKS = ("<!-- table -->\n", "<!-- end of table -->")
UNTIL = un.Tolerance(1e-8, max_iterations=1000, acceleration="anderson")
WAYS: dict[str, dict[str, object]] = {
    "`Unroll()`, 5 sweeps": {"iterations": 5},
    "`Unroll()`": {"until": un.Tolerance(1e-8, max_iterations=1000)},
    "`Truncated(3)`": {"until": UNTIL, "gradient": un.Truncated(3)},
    "`OneStep()`": {"until": UNTIL, "gradient": un.OneStep()},
    "`Implicit()`": {"until": UNTIL, "gradient": un.Implicit()},
    '`Implicit(method="minres")`': {"until": UNTIL, "gradient": un.Implicit(method="minres")},
    "`EquilibriumPropagation(0.1)`": {
        "until": UNTIL,
        "gradient": un.EquilibriumPropagation(0.1, until=un.Tolerance(1e-8, max_iterations=1000)),
    },
}


def layered() -> tuple[un.UNN, dict[str, object], dict[str, Tensor]]:
    net = un.UNN(
        un.Variable("x", (30,)),
        un.Variable("h", (60,), un.Tanh()),
        un.Variable("g", (40,), un.Tanh()),
        un.Variable("y", (10,), un.Softmax()),
        un.Linear("x", "h"),
        un.Linear("h", "g"),
        un.Linear("g", "y"),
    )
    return net, {"x": torch.randn(32, 30)}, {}


def convolutional() -> tuple[un.UNN, dict[str, object], dict[str, Tensor]]:
    net = un.UNN(
        un.Variable("x", (1, 12, 12), un.Tanh()),
        un.Variable("h", (8, 5, 5), un.Tanh(), bias="channel"),
        un.Variable("y", (10,), un.Softmax()),
        un.Conv2d("x", "h", 4, stride=2),
        un.Linear("h", "y"),
    )
    return net, {"x": torch.randn(32, 1, 12, 12).tanh()}, {}


def filling_in() -> tuple[un.UNN, dict[str, object], dict[str, Tensor]]:
    net, given, more = convolutional()
    return net, {"x": un.Partial(given["x"], torch.rand(32, 1, 12, 12) < 0.5)}, more


def attention() -> tuple[un.UNN, dict[str, object], dict[str, Tensor]]:
    net = un.UNN(
        un.Variable("x", ("n", 8)),
        un.Variable("q", ("n", 16), un.Tanh()),
        un.Variable("s", ("n", "n"), un.Softmax()),
        un.Variable("y", (4,), un.Softmax()),
        un.Linear("x", "q"),
        un.Einsum("s[i,j] q[i,d] W[d,e] x[j,e]"),
        un.Linear("q", "y"),
    )
    return net, {"x": torch.randn(32, 10, 8)}, {"n": torch.randint(2, 11, (32,)).clamp(max=10)}


NETWORKS = {
    "layers": layered,
    "convolution": convolutional,
    "filling in": filling_in,
    "attention, lengths": attention,
}


def row(make: Callable[..., tuple], rounds: int) -> dict[str, tuple[float, float, int]]:
    torch.manual_seed(0)
    net, observe, lengths = make()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_().mul_(STRENGTH / max(parameter.shape[0], 1) ** 0.5 if parameter.dim() > 1 else 0.1)
    if lengths:
        lengths["n"][0] = 10
    parameters = list(net.parameters())
    target = torch.randn(32, net.variables["y"].shape[0])

    def step(**how: object) -> Callable[[], Tensor]:
        def run() -> Tensor:
            solution = net(observe=observe, want="y", lengths=lengths, **how)
            loss = (solution["y"] * target).sum()
            grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            return torch.cat([g.flatten() for g in grads])

        return run

    exact = step(iterations=LONG)()
    shorter = step(iterations=LONG // 2)()
    apart = float((shorter - exact).norm() / exact.norm())
    if apart > 1e-9:
        raise SystemExit(f"{make.__name__}: the reference has not converged, {apart:.1e} from {LONG // 2} sweeps on.")
    steps = {name: step(**how) for name, how in WAYS.items()}
    seconds = medians(steps, rounds)
    return {
        name: (float((run() - exact).norm() / exact.norm()), seconds[name], peak_memory(run))
        for name, run in steps.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table into this page, between its marks")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error", un.errors.NotConverged)
    found = {name: row(make, arguments.rounds) for name, make in NETWORKS.items()}
    lines = [f"| gradient | {' | '.join(found)} |", f"| --- |{' --- |' * len(found)}"]
    for way in WAYS:
        cells = [
            f"{e:.0e}, {1e3 * s:.0f} ms, {m / 2**20:.1f} MiB" for e, s, m in (each[way] for each in found.values())
        ]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    text = "\n".join([*lines, "", f"({setting()}, float64, batch 32.)", ""])
    print(text)
    if arguments.out:
        page = arguments.out.read_text()
        head, rest = page.split(MARKS[0])
        tail = rest.split(MARKS[1])[1]
        arguments.out.write_text(f"{head}{MARKS[0]}{text}{MARKS[1]}{tail}")


if __name__ == "__main__":
    main()
