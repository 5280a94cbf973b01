"""Every model at one iteration against its twin in torch.nn, and how time and memory grow with the iterations.

python benchmarks/models.py                 # prints the tables
python benchmarks/models.py --out docs/results/models.md
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import torch
import torch.nn.functional as F
from stopwatch import medians, peak_memory, setting
from torch import Tensor, nn

import undirected as un

ITERATIONS = (1, 2, 4, 8)
TARGET = 1.10


@dataclass
class Case:
    """A model and its twin, which begins with the same weights."""

    name: str
    size: str
    twin_name: str
    model: Callable[[int], Tensor]  # from the number of iterations
    twin: Callable[[], Tensor]
    parameters: list[nn.Parameter]
    of_twin: list[nn.Parameter] | None = None  # where they are not the same tensors
    is_exact: bool = True  # does the twin compute the same?

    def steps(self) -> dict[str, Callable[[], None]]:
        """Forward and backward."""
        of_twin = self.parameters if self.of_twin is None else self.of_twin
        return {"model": training(lambda: self.model(1), self.parameters), "twin": training(self.twin, of_twin)}


def copied(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().flatten().clone())
    return layer


def layers(net: un.UNN) -> list[nn.Linear]:
    """The matrices of a network, each with the bias of where it leads."""
    factors = [factor for factor in net.factors.values() if isinstance(factor, un.Linear)]
    return [copied(factor.weight, net.bias(factor.b)) for factor in factors]


def learned(*modules: nn.Module) -> list[nn.Parameter]:
    return [parameter for module in modules for parameter in module.parameters()]


def asked(net: un.UNN, given: dict[str, Tensor], want: str, order: str) -> Callable[[int], Tensor]:
    return lambda iterations: net(observe=given, want=want, order=order, iterations=iterations)[want]


def begun(net: un.UNN, x: Tensor, order: str) -> Callable[[int], Tensor]:
    return lambda iterations: net(observe={}, init={"x": x}, order=order, want="x", iterations=iterations)["x"]


def mlp() -> Case:
    net, x = un.models.mlp(784, 512, 512, 10), torch.randn(256, 784)
    a, b, c = layers(net)
    twin = nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c, nn.Softmax(1))
    model = asked(net, {"x": x}, "y", "h1 h2 y h2")
    return Case(
        "mlp", "784-512-512-10, batch 256", "nn.Sequential", model, lambda: twin(x), learned(net), learned(twin)
    )


def pair() -> Case:
    net, x = un.models.pair(784, 512), torch.randn(256, 784)
    weight, b, c = net.factors["x-h"].weight, net.bias_h, net.bias_x

    def twin() -> Tensor:
        return F.linear(F.linear(x, weight, b).tanh(), weight.t(), c)

    return Case("pair", "784-512, batch 256", "tied auto-encoder", begun(net, x, "h x"), twin, learned(net))


def conv() -> Case:
    net = un.models.conv((1, 28, 28), (32, 64), 10, kernel_size=(6, 4))
    x = torch.randn(128, 1, 28, 28).tanh()
    first, second = nn.Conv2d(1, 32, 6, stride=2), nn.Conv2d(32, 64, 4, stride=2)
    with torch.no_grad():
        for layer, factor in ((first, "x-h1"), (second, "h1-h2")):
            layer.weight.copy_(net.factors[factor].weight)
            layer.bias.zero_()
    twin = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Flatten(), *layers(net), nn.Softmax(1))
    model = asked(net, {"x": x}, "y", "h1 h2 y h2")
    size = "28 x 28, 32 and 64 channels, batch 128"
    return Case("conv", size, "nn.Sequential", model, lambda: twin(x), learned(net), learned(twin))


def recurrent() -> Case:
    net, x = un.models.Recurrent(512, 512), torch.randn(128, 16, 512)
    twin = nn.RNN(512, 512, batch_first=True)
    with torch.no_grad():
        twin.weight_ih_l0.copy_(net.input.weight)
        twin.weight_hh_l0.copy_(net.recurrence.weight)
        twin.bias_ih_l0.copy_(net.input.bias)
        twin.bias_hh_l0.zero_()
    size = "512-512, 16 steps, batch 128"
    return Case("recurrent", size, "nn.RNN", lambda n: net(x, n), lambda: twin(x)[0], learned(net), learned(twin))


def small(net: un.UNN) -> un.UNN:
    """Weights with which eight iterations stay within bounds."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.3)
    return net


def attention() -> Case:
    net, x = small(un.models.attention(256)), torch.randn(16, 128, 256)
    q, k, v = layers(net)

    def twin() -> Tensor:
        return F.scaled_dot_product_attention(q(x), k(x), v(x))

    model, name = asked(net, {"x": x}, "h", "q k v s h"), "nn.Linear and F.scaled_dot_product_attention"
    return Case("attention", "128 rows of 256, batch 16", name, model, twin, learned(net), learned(q, k, v))


def heads() -> Case:
    net, x = small(un.models.attention(256, heads=4, outputs=256)), torch.randn(16, 128, 256)
    twin = nn.MultiheadAttention(256, 4, batch_first=True)
    q, k, v, y = layers(net)
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([q.weight, k.weight, v.weight]))
        twin.out_proj.weight.copy_(y.weight)
    model, size = asked(net, {"x": x}, "y", "q k v s h y"), "4 heads, 128 rows of 256, batch 16"

    def attend() -> Tensor:
        return twin(x, x, x, need_weights=False)[0]

    return Case("attention", size, "nn.MultiheadAttention", model, attend, learned(net), learned(twin))


def hopfield() -> Case:
    patterns = torch.randint(0, 2, (128, 1024)) * 2.0 - 1
    x = patterns.repeat(4, 1) * (torch.rand(512, 1024) < 0.8)
    net = un.models.hopfield(patterns)
    weight = net.factors["x-m"].weight

    def twin() -> Tensor:
        return (F.linear(x, weight) @ weight / 0.1).tanh()

    size = "128 patterns of 1024, batch 512"
    return Case("hopfield", size, "tanh(x P' P / T)", begun(net, x, "m x"), twin, learned(net))


def modern_hopfield() -> Case:
    patterns = torch.randn(512, 256)
    net, x = un.models.modern_hopfield(patterns), patterns + 0.1 * torch.randn(512, 256)
    weight = net.factors["x-m"].weight

    def twin() -> Tensor:
        return F.linear(x, weight).softmax(-1) @ weight

    size = "512 patterns of 256, batch 512"
    return Case("modern_hopfield", size, "softmax(x P') P", begun(net, x, "m x"), twin, learned(net))


def distances() -> Case:
    f, g = nn.Sequential(nn.Linear(784, 512), nn.GELU()), nn.Linear(512, 10)
    net, x = un.models.distances(784, f, 512, g, 10, y=un.Softmax(), steps=5), torch.randn(256, 784)
    model, size = asked(net, {"x": x}, "y", "h1 y"), "784-512-10, batch 256"
    return Case("distances", size, "softmax(g(f(x)))", model, lambda: g(f(x)).softmax(1), learned(net))


def mixture() -> Case:
    front = nn.Sequential(nn.Linear(784, 512), nn.GELU(), nn.Linear(512, 512))
    net, x = un.models.mixture(front, 784, 512, 256, 10), torch.randn(256, 784)
    middle, last = layers(net)
    twin = nn.Sequential(front, nn.Tanh(), middle, nn.Tanh(), last, nn.Softmax(1))
    model = asked(net, {"x": x}, "y", "h1 h2 y h2")
    size = "784-512, 512-256-10, batch 256"
    return Case("mixture", size, "nn.Sequential", model, lambda: twin(x), learned(net), learned(twin))


class Prior(nn.Module):
    """`1/2 |A h|^2`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(512, 512) / 32)

    def forward(self, h: Tensor) -> Tensor:
        return 0.5 * F.linear(h, self.weight).square().sum(1)


def descent(prior: Prior, x: Tensor, searches: bool) -> Tensor:
    """Ten steps that lower `1/2 |h|^2 - <x, h> + prior(h)`, of half size, or of the best of four sizes."""

    @torch.no_grad()
    def energy(h: Tensor) -> Tensor:
        return 0.5 * h.square().sum(1) - (x * h).sum(1) + prior(h)

    h, rate = x, torch.full((len(x),), 0.5)
    for _ in range(10):
        direction = x - F.linear(h, prior.weight) @ prior.weight - h
        if searches:
            tried = torch.stack([(rate * factor).clamp_max(1.0) for factor in (2.0, 1.0, 0.5, 0.25)])
            energies = torch.stack([energy(h), *(energy(h + size[:, None] * direction) for size in tried)])
            best = energies.argmin(0, keepdim=True)
            rate = torch.cat([rate[None] / 8, tried]).gather(0, best)[0]
            direction = torch.where((best[0] > 0)[:, None], direction, 0)
        h = h + rate[:, None] * direction
    return h


def implicit(searches: bool = True) -> Case:
    prior, x = Prior(), torch.randn(256, 512)
    net = un.models.implicit(prior, 512, steps=10)
    model, size = asked(net, {"x": x}, "h", "h"), "512, 10 inner steps, batch 256"
    name = "the same descent by hand" if searches else "10 steps of one size, without search"
    return Case("implicit", size, name, model, lambda: descent(prior, x, searches), learned(net), is_exact=searches)


def without_search() -> Case:
    return implicit(searches=False)


CASES = (
    mlp,
    pair,
    conv,
    recurrent,
    attention,
    heads,
    hopfield,
    modern_hopfield,
    distances,
    mixture,
    implicit,
    without_search,
)


def training(forward: Callable[[], Tensor], parameters: list[nn.Parameter]) -> Callable[[], None]:
    weights = torch.randn(forward().shape)

    def step() -> None:
        torch.autograd.grad((forward() * weights).sum(), parameters)

    return step


def measure(case: Case, rounds: int) -> tuple[str, str]:
    """One row of each table; nothing for the second where the twin does not compute the same."""
    if case.is_exact:
        torch.testing.assert_close(case.model(1), case.twin(), rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        forward = medians({"model": lambda: case.model(1), "twin": case.twin}, rounds, process_time)
    both = medians(case.steps(), rounds, process_time)
    ratios = [forward["model"] / forward["twin"], both["model"] / both["twin"]]
    comparison = (
        f"| {case.name} | {case.size} | {case.twin_name} | {1e3 * forward['model']:.2f} | {ratios[0]:.2f} | "
        f"{1e3 * both['model']:.2f} | {ratios[1]:.2f} |"
    )
    print(comparison, flush=True)
    if not case.is_exact:
        return comparison, ""
    steps = {n: training(lambda n=n: case.model(n), case.parameters) for n in ITERATIONS}
    times = medians({str(n): step for n, step in steps.items()}, 5, process_time)
    memory = {n: peak_memory(step) for n, step in steps.items()}
    cells = [f"{times[str(n)] / times['1']:.2f}" for n in ITERATIONS[1:]]
    cells += [f"{memory[1] / 2**20:.1f}", *(f"{memory[n] / memory[1]:.2f}" for n in ITERATIONS[1:])]
    return comparison, f"| {case.name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a Markdown file to write the tables to")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", help="one model")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = [measure(case(), arguments.rounds) for case in CASES if arguments.only in (None, case.__name__)]
    later = " | ".join(f"{n} iterations" for n in ITERATIONS[1:])
    text = "\n".join(
        [
            "# Models against their twins",
            "",
            f"{setting()}. Medians of the processor time of {arguments.rounds} rounds, model and twin "
            "in turn, in one process.",
            "",
            "## One iteration",
            "",
            f"Milliseconds, and the ratio to the twin (the aim is at most {TARGET:.2f}). Forward without gradients; "
            "then forward and backward.",
            "",
            "| model | size | twin | forward | ratio | with backward | ratio |",
            "| --- | --- | --- | ---: | ---: | ---: | ---: |",
            *(row for row, _ in rows),
            "",
            "The models check that inputs and results are finite, which the twins do not: it shows without gradients. "
            "A descent that searches evaluates the function at four sizes of each step, besides its gradient.",
            "",
            "## More iterations",
            "",
            "Forward and backward: time as a multiple of one iteration; the largest memory held by tensors, in MiB at "
            "one iteration and then as a multiple of it.",
            "",
            f"| model | time: {later} | memory: MiB | {later} |",
            f"| --- |{' ---: |' * (2 * len(ITERATIONS) - 1)}",
            *(row for _, row in rows if row),
            "",
        ]
    )
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
