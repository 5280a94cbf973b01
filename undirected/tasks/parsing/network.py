"""Network: an encoder, the undirected parser on its vectors, and a scorer of labels beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from undirected.equilibrium import Tolerance
from undirected.gradients import Gradient
from undirected.losses import fenchel_young
from undirected.models.parser import ORDER, parser
from undirected.regularizers import Regularizer, ReLU, Tanh
from undirected.structure import heads as trees
from undirected.structure.tree import Tree
from undirected.tasks.parsing.encoders.encoder import Encoder, Words

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from undirected.solution import Solution

ACTIVATIONS: dict[str, type[Regularizer]] = {"relu": ReLU, "tanh": Tanh}
LABEL_SIZE = 64  # of the features that labels are scored with


@dataclass(frozen=True)
class Way:
    """How the network is solved: with a number of sweeps, or until nothing moves by more than `until`."""

    iterations: int = 2
    until: float = 0.0
    gradient: Gradient | None = None


class Labels(nn.Module):
    """Scores of the labels of given arcs, biaffine in features of head and modifier.

    Args:
        inputs: the size of the encoder's vectors.
        count: how many labels there are.
        dropout: of the features.
    """

    def __init__(self, inputs: int, count: int, dropout: float) -> None:
        super().__init__()
        self.head, self.modifier = nn.Linear(inputs, LABEL_SIZE), nn.Linear(inputs, LABEL_SIZE)
        self.dropout = nn.Dropout(dropout)
        self.both = nn.Parameter(torch.empty(count, LABEL_SIZE, LABEL_SIZE).normal_(0, 1 / LABEL_SIZE))
        self.each = nn.Linear(2 * LABEL_SIZE, count)

    def forward(self, x: Float[Tensor, "batch n+1 inputs"], heads: Int[Tensor, "batch n"]) -> Tensor:
        """`(batch, n, count)` for the arc from each word's head to it."""
        above = self.dropout(self.head(x).relu())
        above = above.gather(1, heads.clamp_min(0)[..., None].expand(-1, -1, LABEL_SIZE))
        below = self.dropout(self.modifier(x[:, 1:]).relu())
        pairs = torch.einsum("bnh,lhm->bnlm", above, self.both)
        return torch.einsum("bnlm,bnm->bnl", pairs, below) + self.each(torch.cat([above, below], -1))


@dataclass(frozen=True)
class Reading:
    """What the network found in a batch of sentences."""

    x: Float[Tensor, "batch n+1 size"]
    lengths: Int[Tensor, " batch"]
    solution: Solution
    network: Network

    @property
    def marginals(self) -> Float[Tensor, "batch n+1 n"]:
        """The probability of each arc `[head, modifier]`; head 0 is the root."""
        return self.solution["y"]

    @property
    def scores(self) -> Float[Tensor, "batch n+1 n"]:
        """Scores of arcs that make this distribution over trees."""
        return self.solution.preactivation["y"]

    @property
    def tree(self) -> Tree:
        regularizer = self.solution.regularizer("y")
        assert isinstance(regularizer, Tree)
        return regularizer

    @cached_property
    def exists(self) -> Bool[Tensor, "batch 1 n"]:
        """Which words do, as a mask of arcs."""
        n = self.x.shape[1] - 1
        words = torch.arange(n, device=self.x.device) < self.lengths[:, None]
        rows = torch.arange(n + 1, device=self.x.device) <= self.lengths[:, None]
        return rows[:, :, None] & words[:, None, :]

    @cached_property
    def heads(self) -> Int[Tensor, "batch n"]:
        """The heads of the best tree; -1 after the end of a sentence."""
        return trees.from_arcs(self.tree.mode(self.scores.detach(), self.exists))

    def labels(self, heads: Int[Tensor, "batch n"]) -> Int[Tensor, "batch n"]:
        """The best label of each of these arcs."""
        return self.network.labels(self.x, heads).argmax(-1)

    def loss(self, heads: Int[Tensor, "batch n"], labels: Int[Tensor, "batch n"]) -> tuple[Tensor, Tensor]:
        """Of trees (the negative log-likelihood, Fenchel-Young) and of labels given the right arcs, each per word.

        -1 stands for no word.
        """
        words = self.lengths.sum()
        arcs = fenchel_young(self.solution, "y", heads, reduction="sum") / words
        scores = self.network.labels(self.x, heads)
        return arcs, F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-1)


class Network(nn.Module):
    """Sentences to trees: `encoder -> x`, then the undirected `x - h, m - y`, and labels of the arcs chosen.

    Args:
        encoder: sentences to vectors.
        labels: how many labels there are.
        hidden: of heads and modifiers.
        dropout: of heads and modifiers, with one mask for a solve; and of the labels' features.
        projective: arcs do not cross.
        activation: of heads and modifiers, one of ACTIVATIONS.
    """

    def __init__(
        self,
        encoder: Encoder,
        labels: int,
        hidden: int = 400,
        dropout: float = 0.3,
        projective: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.net = parser(encoder.size, hidden, dropout, projective, ACTIVATIONS[activation]())
        self.labels = Labels(encoder.size, labels, dropout)
        for name, weight in self.net.named_parameters():  # so that scores of arcs differ from the beginning
            if weight.dim() == 2 and min(weight.shape) > 1:
                # Bounded features are meant for many sweeps, in which a tree that is a mere guess should say little.
                nn.init.orthogonal_(weight, 0.1 if name.endswith(".V") and activation == "tanh" else 1.0)

    def forward(self, sentences: Sequence[Words], way: Way) -> Reading:
        x = self.encoder(sentences)
        lengths = torch.tensor([len(words) for words in sentences], device=x.device)
        until = Tolerance(residual=way.until, otherwise="ignore") if way.until else None
        solution = self.net(
            observe={"x": x, "w": x[:, 1:]},
            want="y",
            order=ORDER,
            iterations=None if until else way.iterations,
            until=until,
            gradient=way.gradient,
            lengths={"n": lengths},
        )
        return Reading(x, lengths, solution, self)
