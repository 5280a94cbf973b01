"""Tags: part of speech and features of words, which treebanks have and an encoder may learn beside the trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from undirected.tasks.parsing.sentence import Sentence

UPOS, FEATS = 3, 5  # columns


class Tags:
    """Numbers of the tags that occur at least twice in some sentences; -1 for all others.

    A tag is a word's part of speech with its features, such as `NOUN|Case=Nom|Number=Sing`.

    >>> from undirected.tasks.parsing.sentence import Sentence
    >>> source = "1\\tDogs\\t_\\tNOUN\\t_\\tNumber=Plur\\t0\\troot\\t_\\t_\\n\\n"
    >>> dogs = Sentence(("Dogs",), (0,), ("root",), source)
    >>> tags = Tags([dogs, dogs])
    >>> tags.names, tags.numbers(dogs)
    (['NOUN|Number=Plur'], [0])
    """

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        counts = Counter(tag for sentence in sentences for tag in _tags(sentence))
        self.names = sorted(tag for tag, count in counts.items() if count > 1)
        self._numbers = {tag: number for number, tag in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, sentence: Sentence) -> list[int]:
        return [self._numbers.get(tag, -1) for tag in _tags(sentence)]


def _tags(sentence: Sentence) -> list[str]:
    rows = (line.split("\t") for line in sentence.source.lstrip("\ufeff").split("\n"))
    return [f"{row[UPOS]}|{row[FEATS]}" for row in rows if row[0].isdecimal()]
