"""Random networks and questions about them: every factor kind, every regularizer, symbols, lengths, parts, orders."""

from __future__ import annotations

import string
from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

import undirected as un

ELEMENTWISE = [
    un.Identity(),
    un.Identity(scale=2.5),
    un.ReLU(),
    un.ReLU(scale=2.0),
    un.LeakyReLU(0.3),
    un.LeakyReLU(0.2, scale=1.5),
    un.SoftThreshold(0.4),
    un.SoftThreshold(0.3, scale=2.0),
    un.Sigmoid(),
    un.Sigmoid(scale=0.6),
    un.Tanh(),
    un.Tanh(scale=0.7),
    un.HardTanh(),
    un.HardTanh(-0.5, 1.5, scale=0.8),
]
SIMPLEX = [
    un.Softmax(),
    un.Softmax(temperature=0.7),
    un.Softmax(temperature=2.0, scale=0.5),
    un.Sparsemax(),
    un.Sparsemax(scale=0.6),
    un.Entmax15(),
    un.Entmax15(scale=1.7),
]
REGULARIZERS = ELEMENTWISE + SIMPLEX

SHAPES = [(3,), (4,), (2, 2), ("n", 3), (2, "n"), ("n+1", 2), (2, 5, 5), (2, 2, 2), (1, 3, 3, 3), ("n", "m"), ()]


class Agreement(un.Factor):
    """A factor with nothing but a score: `0.5 <a, b>`."""

    def score(self, a, b):
        return 0.5 * (a * b).reshape(len(a), -1).sum(1)


class Triple(un.Factor):
    """A factor with nothing but a score, of three variables: the product of their sums."""

    def score(self, a, b, c):
        a, b, c = (x.reshape(len(x), -1).sum(1) for x in (a, b, c))
        return 0.3 * a * b * c


class Wave(torch.nn.Module):
    """An energy that is linear in nothing."""

    def forward(self, *values):
        total = sum(x.reshape(len(x), -1).sum(1) for x in values)
        squares = sum(x.reshape(len(x), -1).square().sum(1) for x in values)
        return total.cos() + 0.1 * squares + 0.3 * torch.tanh(total)


@dataclass
class Case:
    """A network and a question about it."""

    net: un.UNN
    observe: dict
    order: str
    iterations: int
    init: str
    lengths: dict = field(default_factory=dict)
    sizes: dict = field(default_factory=dict)

    def __call__(self, **more):
        return self.net(
            observe=self.observe,
            **{
                "order": self.order,
                "iterations": self.iterations,
                "init": self.init,
                "lengths": self.lengths,
                **more,
            },
        )


def product(variables: list[un.Variable], with_weight: bool) -> str:
    """An Einsum of these variables: symbolic axes are shared indices, integer ones belong to a weight."""
    letters = iter(string.ascii_lowercase)
    terms, weight = [], []
    for variable in variables:
        indices = []
        for axis in variable.axes:
            if isinstance(axis, int):
                indices.append(next(letters))
                weight.append(indices[-1])
            else:
                indices.append(f"{axis.name}_{axis.offset}")
        terms.append(f"{variable.name}[{','.join(indices)}]")
    return " ".join([*terms, f"W[{','.join(weight)}]"] if with_weight and weight else terms)


def conv_for(a: un.Variable, b: un.Variable) -> un.Factor | None:
    """A convolution that joins these shapes, if there is one."""
    shapes = (a.shape, b.shape)
    if shapes == ((2, "n"), (2, "n")):
        return un.Conv1d(a.name, b.name, 3, padding=1, groups=2)
    if shapes == ((2, 5, 5), (2, 2, 2)):
        return un.Conv2d(a.name, b.name, (2, 4), stride=2, padding=(0, 1))
    if shapes == ((2, 5, 5), (2, 5, 5)):
        return un.Conv2d(a.name, b.name, 3, padding=2, dilation=2)
    if shapes == ((1, 3, 3, 3), (1, 3, 3, 3)):
        return un.Conv3d(a.name, b.name, 3, padding=1)
    return None


@st.composite
def factors(draw, a: un.Variable, b: un.Variable, c: un.Variable | None, energies: bool, shifts: bool):
    """A factor of two or three variables."""
    kinds = ["linear", "linear", "einsum"]
    kinds += ["conv"] * 3 if conv_for(a, b) else []
    kinds += ["agreement"] if a.shape == b.shape else []
    kinds += ["einsum3", "triple"] if c is not None else []
    kinds += ["energy"] if energies else []
    kind = draw(st.sampled_from(kinds))
    if kind == "conv":
        return conv_for(a, b)
    if kind == "agreement":
        return Agreement(a.name, b.name)
    if kind == "triple":
        return Triple(a.name, b.name, c.name)
    if kind == "energy":
        return un.Energy(Wave(), a.name, b.name, steps=3)
    shift = None
    if shifts and draw(st.booleans()):
        sizes = [axis if isinstance(axis, int) else 9 for axis in b.axes]
        shift = {b.name: torch.linspace(-1, 1, torch.Size(sizes).numel()).reshape(sizes)}
    if kind == "linear":
        return un.Linear(a.name, b.name, shift=shift)
    variables = [a, b] if kind == "einsum" else [a, b, c]
    return un.Einsum(product(variables, draw(st.booleans())), shift=shift)


@st.composite
def networks(draw, energies: bool = False, dropout: bool = False, shifts: bool = True) -> un.UNN:
    """Three to five variables in a connected graph, in float64."""
    shapes = [draw(st.sampled_from(SHAPES))]
    for _ in range(draw(st.integers(2, 4))):
        shapes.append(draw(st.sampled_from([*SHAPES, *[shapes[-1]] * 4])))
    variables = []
    for i, shape in enumerate(shapes):
        regularizer = draw(st.sampled_from(REGULARIZERS if shape else ELEMENTWISE))
        channel = bool(shape) and isinstance(shape[0], int)
        bias = draw(st.sampled_from([True, False, "channel"] if channel else [True, False]))
        drop = draw(st.sampled_from([0.0, 0.5])) if dropout and isinstance(regularizer, un.Elementwise) else 0.0
        variables.append(un.Variable(f"v{i}", shape, regularizer, bias=bias, dropout=drop))
    parts: dict[str, un.Factor] = {}
    for i, b in enumerate(variables[1:], 1):
        a = variables[draw(st.integers(max(0, i - 2), i - 1))]
        c = next((v for v in variables[:i] if v is not a), None)
        factor = draw(factors(a, b, c, energies, shifts))
        parts[factor.name or f"f{i}"] = factor
    torch.manual_seed(draw(st.integers(0, 99)))
    net = un.UNN(*variables, *parts.values()).double()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "bias" in name:
                parameter.normal_().mul_(0.5)
            else:
                parameter.normal_().mul_(0.7 / parameter.numel() ** 0.5)
    return net.eval()


def point(variable: un.Variable, sizes: dict[str, int], lengths: dict, batch: int) -> torch.Tensor:
    """A point of the variable's domain."""
    t = torch.randn(batch, *variable.event_shape(sizes), dtype=torch.float64)
    return variable.regularizer.activation(t, variable.mask(lengths, sizes))


@st.composite
def cases(draw, batch: int = 3, inits=("zeros", "zeros", "uniform", "random"), **options) -> Case:
    net = draw(networks(**options))
    names = list(net.variables)
    given = draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names) - 1, unique=True))
    sizes = {"n": draw(st.integers(2, 4)), "m": draw(st.integers(1, 3))}
    symbols = sorted({s.name for v in net.variables.values() for s in v.symbols})
    bound = {s.name for name in given for s in net.variables[name].symbols}
    lengths = {}
    for symbol in symbols:
        if symbol not in bound or draw(st.booleans()):
            lengths[symbol] = torch.randint(1, sizes[symbol] + 1, (batch,))
            lengths[symbol][0] = sizes[symbol]
    observe: dict = {}
    free = [name for name in names if name not in given]
    for name in given:
        value = point(net.variables[name], sizes, lengths, batch)
        if draw(st.integers(0, 3)) == 0:
            known = torch.rand(value.shape) < 0.5
            if draw(st.booleans()):  # whole rows
                axes = net.variables[name].axes
                rows = [1 if isinstance(axis, int) else size for axis, size in zip(axes, value.shape[1:], strict=True)]
                known = (torch.rand(batch, *rows) < 0.7).expand_as(value)
            value = un.Partial(torch.where(known, value, torch.nan), known)
            free.append(name)
        observe[name] = value
    order = [*draw(st.permutations(free)), *draw(st.lists(st.sampled_from(free), max_size=3))]
    return Case(net, observe, " ".join(order), draw(st.integers(1, 3)), draw(st.sampled_from(inits)), lengths, sizes)
