"""Lstm: words and their characters, read from both sides. Learns from the treebank alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from undirected.tasks.parsing.encoders.encoder import Encoder, Words
from undirected.tasks.parsing.encoders.vocabulary import PADDING, ROOT, SPECIAL, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


class Lstm(Encoder):
    """Vectors of words and of their spelling, through layers of LSTM in both directions.

    The spelling of a word is the largest response of filters over its characters. The root is a word of its own, in
    front of the sentence, so its vector knows the sentence.

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
        self.filters = nn.Conv1d(character, spelling, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.LSTM(word + spelling if i == 0 else self.size, hidden, batch_first=True, bidirectional=True)
            for i in range(layers)
        )

    def forward(self, sentences: Sequence[Words]) -> Float[Tensor, "batch n+1 size"]:
        device = self.words.weight.device
        lengths = torch.tensor([len(sentence) + 1 for sentence in sentences])
        numbers, spelled = self._numbers(sentences)
        x = torch.cat([self._word_vectors(numbers.to(device)), spelled], -1)
        for layer in self.layers:
            packed = pack_padded_sequence(self._dropped(x), lengths, batch_first=True, enforce_sorted=False)
            x, _ = pad_packed_sequence(layer(packed)[0], batch_first=True)
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
        responses = self.filters(self.characters(characters).transpose(1, 2)).transpose(1, 2)
        return responses.masked_fill((characters == PADDING)[..., None], -torch.inf).amax(1).relu()

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
