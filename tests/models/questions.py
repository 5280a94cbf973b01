"""One question for every model: what is asked of it in the tests that all models share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import undirected as un


@dataclass(frozen=True)
class Question:
    build: Callable[[], un.UNN]
    observe: dict[str, tuple[int, ...]]  # shapes, with the batch
    order: str
    want: str
    labels: dict[str, int] = field(default_factory=dict)  # variables that integers observe, and how many there are
    descends: bool = False  # has a block that an inner descent finds
    domain: un.Regularizer = field(default_factory=un.Identity)  # of what is observed
    iterations: int = 2

    def network(self, seed: int = 0, scale: float = 1.0) -> un.UNN:
        """In float64, with random weights of this scale, biases included."""
        torch.manual_seed(seed)
        net = self.build().double()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.normal_(0, scale / max(1, parameter.shape[-1]) ** 0.5)
        return net

    def given(self, seed: int = 0) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        drawn = {
            name: self.domain.activation(torch.randn(shape, generator=generator, dtype=torch.float64))
            for name, shape in self.observe.items()
        }
        batch = next((shape[0] for shape in self.observe.values()), 2)
        for name, classes in self.labels.items():
            drawn[name] = torch.randint(classes, (batch,), generator=generator)
        return drawn


def _recurrent(steps: int) -> un.UNN:
    return un.models.Recurrent(3, 4, classes=2).double().network(steps)


def _smoothness(h: Tensor) -> Tensor:
    return h.diff(dim=1).square().sum(1)


QUESTIONS = {
    "mlp": Question(lambda: un.models.mlp(4, 5, 6, 3), {"x": (3, 4)}, "h1 h2 y h2", "y"),
    "mlp backward": Question(lambda: un.models.mlp(4, 5, 6, 3), {}, "h2 h1 x h1", "x", labels={"y": 3}),
    "pair": Question(lambda: un.models.pair(5, 3), {"h": (2, 3)}, "x", "x"),
    "conv": Question(
        lambda: un.models.conv((2, 7, 8), (3, 4), 3, kernel_size=(3, 2), stride=(2, 1)),
        {"x": (2, 2, 7, 8)},
        "h1 h2 y h2",
        "y",
        domain=un.Tanh(),
    ),
    "conv backward": Question(
        lambda: un.models.conv((2, 7, 8), (3, 4), 3, kernel_size=(3, 2), stride=(2, 1)),
        {},
        "h2 h1 x h1",
        "x",
        labels={"y": 3},
    ),
    "recurrent": Question(lambda: _recurrent(3), {f"x{t}": (2, 3) for t in (1, 2, 3)}, "h1 h2 h3 y h3 h2", "y"),
    "attention": Question(lambda: un.models.attention(4), {"x": (2, 5, 4)}, "q k v s h", "h"),
    "attention in heads": Question(
        lambda: un.models.attention(4, heads=2, causal=True, positions=torch.ones(9, 4), outputs=3),
        {"x": (2, 5, 4)},
        "q k v s h y",
        "y",
    ),
    "parser": Question(lambda: un.models.parser(4, 5), {"x": (2, 4, 4), "w": (2, 3, 4)}, "h m y", "y"),
    "hopfield": Question(
        lambda: un.models.hopfield(torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1]]), 0.5), {"m": (2, 2)}, "x", "x"
    ),
    "modern hopfield": Question(lambda: un.models.modern_hopfield(torch.eye(4)), {"x": (2, 4)}, "m", "m"),
    "distances": Question(
        lambda: un.models.distances(3, nn.Linear(3, 4), 4, nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), 2),
        {"x": (2, 3)},
        "h1 y",
        "y",
        iterations=1,
    ),
    "mixture": Question(
        lambda: un.models.mixture(nn.Sequential(nn.Linear(3, 4), nn.GELU()), 3, 4, 5, 2),
        {"x": (2, 3)},
        "h1 h2 y h2",
        "y",
    ),
    "implicit": Question(
        lambda: un.models.implicit(_smoothness, 4, outputs=2, steps=3), {"x": (2, 4)}, "h y", "y", descends=True
    ),
}
