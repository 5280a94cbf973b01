"""Lstm: words and their characters, read from both sides. Learns from the treebank alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from undirected.tasks.parsing.encoders.encoder import Encoder, Words
from undirected.tasks.parsing.encoders.vocabulary import PADDING, ROOT, SPECIAL, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

WIDTHS = (1, 3, 5)  #: of the filters over a word's characters


class Lstm(Encoder):
    """Vectors of words and of their spelling, through layers of LSTM in both directions.

    The spelling of a word is the largest response of filters over 1, 3 and 5 of its characters. The root is a word of
    its own, in front of the sentence, so its vector knows the sentence.

    Args:
        vocabulary: the words and characters that have vectors.
        word, character, spelling: sizes of the vectors of a word, a character, and a word's spelling.
        hidden: of each direction of a layer.
        layers: how many.
        dropout: the share of entries that are zero in training, before each layer the same ones for a whole sentence.
        word_dropout: the share of words that are taken for unknown in training, so that spelling is learned.

    >>> encoder = Lstm(Vocabulary.of([["a", "b"], ["a", "b"]]), hidden=5)
    >>> encoder([["a", "b", "c"], ["b"]]).shape
    torch.Size([2, 4, 10])
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        word: int = 100,
        character: int = 32,
        spelling: int = 100,
        hidden: int = 200,
        layers: int = 2,
        dropout: float = 0.25,
        word_dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.vocabulary, self.dropout, self.word_dropout = vocabulary, dropout, word_dropout
        self.sizes = {"word": word, "character": character, "spelling": spelling, "hidden": hidden, "layers": layers}
        self.size = 2 * hidden
        self.words = nn.Embedding(len(vocabulary.words) + SPECIAL, word, PADDING)
        self.characters = nn.Embedding(len(vocabulary.characters) + SPECIAL, character, PADDING)
        for table, scale in ((self.words, 0.1), (self.characters, 0.3)):
            nn.init.normal_(table.weight, std=scale)
            nn.init.zeros_(table.weight[PADDING])
        self.filters = nn.ModuleList(
            nn.Conv1d(character, spelling // len(WIDTHS) + (i < spelling % len(WIDTHS)), width, padding=width // 2)
            for i, width in enumerate(WIDTHS)
        )
        self.layers = nn.ModuleList(Both(word + spelling if i == 0 else self.size, hidden) for i in range(layers))

    def forward(self, sentences: Sequence[Words]) -> Float[Tensor, "batch n+1 size"]:
        device = self.words.weight.device
        lengths = torch.tensor([len(sentence) + 1 for sentence in sentences])
        numbers, spelled = self._numbers(sentences)
        x = torch.cat([self._word_vectors(numbers.to(device)), spelled], -1)
        places = torch.arange(x.shape[1])
        mirror = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places).to(device)
        for layer in self.layers:
            x = layer(self._dropped(x), mirror)
        return self._dropped(x)

    def _numbers(self, sentences: Sequence[Words]) -> tuple[Int[Tensor, "batch n+1"], Float[Tensor, "batch n+1 s"]]:
        """The words' numbers, and the vectors of their spelling: each word that occurs is spelled once."""
        different = {word: place for place, word in enumerate(dict.fromkeys(w for s in sentences for w in s), 1)}
        rows = [torch.tensor([ROOT, *map(self.vocabulary.number, sentence)]) for sentence in sentences]
        places = [torch.tensor([0, *(different[word] for word in sentence)]) for sentence in sentences]
        spelled = self._spell(list(different))
        spelled = torch.cat([spelled.new_zeros(1, spelled.shape[1]), spelled])
        return pad_sequence(rows, True, PADDING), spelled[pad_sequence(places, True, 0).to(spelled.device)]

    def _spell(self, words: list[str]) -> Float[Tensor, "words spelling"]:
        rows = [torch.tensor(self.vocabulary.spell(word)) for word in words]
        characters = pad_sequence(rows, True, PADDING).to(self.words.weight.device)
        vectors = self.characters(characters).transpose(1, 2)
        padding = (characters == PADDING)[:, None]
        found = [filters(vectors).masked_fill(padding, -torch.inf).amax(2) for filters in self.filters]
        return torch.cat(found, 1).relu()

    def _word_vectors(self, numbers: Int[Tensor, "batch n+1"]) -> Tensor:
        if self.training and self.word_dropout:
            hidden = (torch.rand(numbers.shape, device=numbers.device) < self.word_dropout) & (numbers >= SPECIAL)
            numbers = numbers.masked_fill(hidden, UNKNOWN)
        return self.words(numbers)

    def _dropped(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropout:
            return x
        keep = 1 - self.dropout
        return x * x.new_empty(len(x), 1, x.shape[2]).bernoulli_(keep).div_(keep)

    def description(self) -> dict[str, Any]:
        words, characters = list(self.vocabulary.words), list(self.vocabulary.characters)
        return {"kind": "lstm", "words": words, "characters": characters, **self.sizes}

    def pretrained(self) -> list[nn.Parameter]:
        return []


class Both(nn.Module):
    """A layer of LSTM in both directions, over sentences of different lengths.

    What torch does with packed sequences takes twice as long on a CPU as two plain layers, of which the second gets the
    sentences mirrored.

    Args:
        inputs: of each word.
        hidden: of each direction.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(inputs, hidden, batch_first=True)
        self.backwards = nn.LSTM(inputs, hidden, batch_first=True)

    def forward(self, x: Float[Tensor, "batch n inputs"], mirror: Int[Tensor, "batch n"]) -> Tensor:
        """`(batch, n, 2 hidden)`; `mirror` says where each word of a mirrored sentence comes from."""
        with torch.autocast(x.device.type, enabled=False):  # not every CPU has an LSTM in half precision
            x = x.to(next(self.parameters()).dtype)
            return torch.cat([self.forwards(x)[0], _mirrored(self.backwards(_mirrored(x, mirror))[0], mirror)], -1)


def _mirrored(x: Tensor, mirror: Tensor) -> Tensor:
    return x.gather(1, mirror[..., None].expand(-1, -1, x.shape[2]))
