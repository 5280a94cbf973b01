"""Encoder: a directed network that turns sentences into vectors, one for the root and one for each word."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

Words = Sequence[str]


class Encoder(nn.Module, ABC):
    """Sentences, each a sequence of words, to vectors `(batch, n + 1, size)`: the root first, and padding last.

    Attributes:
        size: of each vector.
    """

    size: int

    @abstractmethod
    def forward(self, sentences: Sequence[Words]) -> Float[Tensor, "batch n+1 size"]:
        """The vectors of a batch of sentences."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """All that is needed, beside the weights, to build the encoder again: plain data, for a file's header."""

    @abstractmethod
    def pretrained(self) -> list[nn.Parameter]:
        """The weights that come from elsewhere, and so learn more slowly."""
