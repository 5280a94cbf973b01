"""The factor graphs of docs/models.md: one SVG for each model.

python docs/figures/models.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import undirected as un

FOLDER = Path(__file__).parents[1] / "images" / "models"


def smoothness(h: torch.Tensor) -> torch.Tensor:
    return h.diff(dim=1).square().sum(1)


#: The networks, and which of their variables a typical question observes.
NETWORKS = {
    "mlp": (un.models.mlp(784, 256, 64, 10), "x"),
    "pair": (un.models.pair(784, 64), ""),
    "conv": (un.models.conv((1, 28, 28), (32, 64), 10, kernel_size=(6, 4)), "x"),
    "recurrent": (un.models.Recurrent(32, 64, classes=5).network(4), "x1 x2 x3 x4"),
    "attention": (un.models.attention(64), "x"),
    "parser": (un.models.parser(400), "x w"),
    "hopfield": (un.models.hopfield(torch.ones(5, 200)), ""),
    "distances": (un.models.distances(4, nn.Linear(4, 8), 8, nn.Linear(8, 3), 3), "x"),
    "mixture": (un.models.mixture(nn.Linear(784, 64), 784, 64, 10), "x"),
    "implicit": (un.models.implicit(smoothness, 64, outputs=10), "x"),
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (net, observed) in NETWORKS.items():
        print(un.draw(net, observed=observed).save(FOLDER / f"{name}.svg").relative_to(FOLDER.parents[2]))


if __name__ == "__main__":
    main()
