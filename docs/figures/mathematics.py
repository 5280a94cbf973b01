"""The pictures of docs/mathematics.md, computed with the library: regularizers, descent, dropout, lower bounds.

python docs/figures/mathematics.py
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes

import undirected as un

FOLDER = Path(__file__).parents[1] / "images" / "mathematics"
BLUE, RED, GREY = "#1f5fb4", "#c2410c", "#6b7280"
STYLE = {
    "svg.hashsalt": "undirected",  # the same file from the same numbers
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def entries(function, points: torch.Tensor) -> np.ndarray:
    """A function of one-entry examples at each of some points."""
    return function(points[:, None]).flatten().numpy()


def regularizers() -> None:
    """Psi, its conjugate, and the activation that follows."""
    kinds = [un.Identity(), un.ReLU(), un.Sigmoid(), un.Tanh(), un.HardTanh()]
    h, t = torch.linspace(-1.5, 1.5, 601), torch.linspace(-3, 3, 601)
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
    for kind, style in zip(kinds, ("-", "-", "-", "-", "--"), strict=True):
        psi = entries(kind.value, h)
        psi[~np.isfinite(psi)] = np.nan
        axes[0].plot(h, psi, style, label=type(kind).__name__)
        axes[1].plot(t, entries(kind.conjugate, t), style)
        axes[2].plot(t, entries(kind.activation, t), style)
    axes[0].set(title="Ψ(h)", xlabel="h")
    axes[1].set(title="Ψ*(t)", xlabel="t", ylim=(-0.1, 3))
    axes[2].set(title="activation, the slope of Ψ*", xlabel="t", ylim=(-1.6, 2.2))
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    save(figure, "regularizers")


def pair(weight: float) -> un.UNN:
    net = un.UNN(un.Variable("a", (1,), un.Tanh()), un.Variable("b", (1,), un.Tanh(), bias=False), un.Linear("a", "b"))
    with torch.no_grad():
        net.factors["a-b"].weight.fill_(weight)
        net.bias_a.fill_(0.15)
    return net


@torch.no_grad()
def contours(axis: Axes, net: un.UNN, reach: float = 0.999) -> None:
    grid = torch.linspace(-reach, reach, 161)
    a, b = torch.meshgrid(grid, grid, indexing="xy")
    energy = net.energy({"a": a.reshape(-1, 1), "b": b.reshape(-1, 1)}).view_as(a)
    axis.contour(a, b, energy, levels=18, colors="#c3c9d2", linewidths=0.8, linestyles="solid")
    axis.set(xlabel="a", ylabel="b", xticks=[-0.5, 0, 0.5], yticks=[-0.5, 0, 0.5], aspect="equal")


@torch.no_grad()
def descent() -> None:
    """Left: blocks one after the other. Right: both at once, for spins that repel each other."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 4.2), layout="constrained")
    net = pair(1.6)
    contours(axes[0], net)
    for a, b in ((-0.9, 0.35), (0.8, -0.95), (-0.1, 0.9)):
        start = {"a": torch.tensor([[a]]), "b": torch.tensor([[b]])}
        path = [(a, b)]
        trace = net(observe={}, init=start, order="a b", iterations=12, check=True, trace=True).trace
        for step in trace.steps:
            value = step.value.item()
            path.append((value, path[-1][1]) if step.variable == "a" else (path[-1][0], value))
        axes[0].plot(*zip(*path, strict=True), color=BLUE, linewidth=1.4)
        axes[0].plot(*path[0], "o", color=BLUE, markersize=5, markerfacecolor="white")
        axes[0].plot(*path[-1], "o", color=BLUE, markersize=5)
    axes[0].set_title("one block after the other:\nevery step is the best along its axis")
    net = pair(-1.6)
    net.bias_a.zero_()
    contours(axes[1], net)
    a = b = torch.tensor(0.12)
    path = [(float(a), float(b))]
    for _ in range(9):
        a, b = torch.tanh(-1.6 * b), torch.tanh(-1.6 * a)
        path.append((float(a), float(b)))
    axes[1].plot(*zip(*path, strict=True), color=RED, linewidth=1.2, alpha=0.7)
    axes[1].plot(*zip(*path, strict=True), "o", color=RED, markersize=4)
    axes[1].plot(*path[0], "o", color=RED, markersize=6, markerfacecolor="white")
    axes[1].set_title("both at once, though they share a factor:\nuphill, and to and fro for ever")
    save(figure, "descent")


def perspective() -> None:
    """Dropout as a change of Psi: that of tanh, for the masks of p = 1/2."""
    u, t = torch.linspace(-2, 2, 801), torch.linspace(-4, 4, 401)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.1), layout="constrained")
    for m, color in ((2.0, BLUE), (1.0, GREY)):
        psi = m * entries(un.Tanh().value, u / m)
        psi[~np.isfinite(psi)] = np.nan
        axes[0].plot(u, psi, color=color, label=f"m = {m:g}")
        axes[1].plot(t, m * entries(un.Tanh().activation, t), color=color)
    axes[0].plot([0], [0], "o", color=RED, label="m = 0: the point 0")
    axes[1].axhline(0, color=RED)
    axes[0].set(title="Ψₘ(u) = m Ψ(u / m)", xlabel="u")
    axes[1].set(title="its activation, m tanh(t)", xlabel="t")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    save(figure, "perspective")


def bounds() -> None:
    """a^2/2 + b^2/2 - w a b, below and above w = 1."""
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.7), layout="constrained", sharey=True)
    grid = np.linspace(-3, 3, 121)
    a, b = np.meshgrid(grid, grid)
    for axis, w in zip(axes, (0.8, 1.2), strict=True):
        energy = a * a / 2 + b * b / 2 - w * a * b
        shown = axis.contourf(
            a, b, energy, levels=np.linspace(-2, 8, 21), cmap="coolwarm", vmin=-9, vmax=9, extend="both"
        )
        axis.contour(a, b, energy, levels=[0], colors="black", linewidths=0.8)
        path = [(-2.8, 1.1)]
        for _ in range(6):
            path += [(w * path[-1][1], path[-1][1])]
            path += [(path[-1][0], w * path[-1][0])]
        axis.plot(*zip(*path, strict=True), color="black", linewidth=1.3)
        axis.plot(*path[-1], "ok", markersize=4)
        axis.set(title=f"w = {w}", xlabel="a", xlim=(-3, 3), ylim=(-3, 3), aspect="equal")
    axes[0].set_ylabel("b")
    figure.colorbar(shown, ax=axes, label="energy", ticks=[-2, 0, 2, 4, 6, 8])
    save(figure, "bounds")


def save(figure, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    print(f"docs/images/mathematics/{name}.svg")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        regularizers()
        descent()
        perspective()
        bounds()
    # A chain, and what three iterations of it compute.
    names = ("x", "h1", "h2", "y")
    kinds = (un.Tanh(), un.Tanh(), un.Tanh(), un.Softmax())
    chain = un.UNN(
        *(un.Variable(name, (8,), kind) for name, kind in zip(names, kinds, strict=True)),
        *(un.Linear(a, b) for a, b in pairwise(names)),
    )
    un.draw(chain, observed="x").save(FOLDER / "chain.svg")
    un.draw(chain.plan(["x"], "y", order="h1 h2 y")).save(FOLDER / "one-sweep.svg")
    un.draw(chain.plan(["x"], "y", order="h1 h2 y h2", iterations=2)).save(FOLDER / "two-sweeps.svg")
    un.draw(chain.plan(["x"], "y", iterations=2)).save(FOLDER.parent / "order.svg")


if __name__ == "__main__":
    main()
