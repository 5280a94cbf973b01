"""Vocabulary: numbers for the words and characters of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

#: Numbers of words and of characters that stand for something else. END also begins a word.
PADDING, UNKNOWN, ROOT, END = 0, 1, 2, 3
SPECIAL = 4


@dataclass(frozen=True)
class Vocabulary:
    """The words (in lower case) and characters that have vectors of their own.

    >>> vocabulary = Vocabulary.of([["The", "cat"], ["the", "dog"]])
    >>> vocabulary.words  # those that occur twice
    ('the',)
    >>> vocabulary.number("The"), vocabulary.number("bird")
    (4, 1)
    >>> vocabulary.spell("cat!")  # its characters, with an end on both sides
    [3, 9, 8, 6, 1, 3]
    """

    words: tuple[str, ...]
    characters: tuple[str, ...]

    @staticmethod
    def of(sentences: Iterable[Sequence[str]], least: int = 2) -> Vocabulary:
        """The words that occur at least so often, and all characters."""
        words: Counter[str] = Counter()
        characters: Counter[str] = Counter()
        for sentence in sentences:
            for word in sentence:
                words[word.lower()] += 1
                characters.update(word)
        kept = [word for word, count in words.items() if count >= least]
        return Vocabulary(
            tuple(sorted(kept, key=lambda word: (-words[word], word))),
            tuple(sorted(characters, key=lambda character: (-characters[character], character))),
        )

    def number(self, word: str) -> int:
        return self._words.get(word.lower(), UNKNOWN)

    def spell(self, word: str, longest: int = 30) -> list[int]:
        """The numbers of a word's characters; of a very long word, of its first and last ones."""
        if len(word) > longest:
            word = word[: longest // 2] + word[-(longest - longest // 2) :]
        return [END, *(self._characters.get(character, UNKNOWN) for character in word), END]

    @cached_property
    def _words(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, SPECIAL)}

    @cached_property
    def _characters(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.characters, SPECIAL)}
