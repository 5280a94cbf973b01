"""Batches: sentences of like length together, as many as a number of words allows, in an order that can go on anywhere.

What a batch holds depends on the seed and the step alone, so that a stopped run continues exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from undirected.errors import QueryError
from undirected.tasks.parsing.sentence import Sentence
from undirected.tasks.seeds import generator

SPREAD = 0.2  # lengths count as up to so much greater at random, so that neighbours change from epoch to epoch


class Batch:
    """Sentences that are seen together. A plain object, for in lists and dataclasses Lightning looks for tensors.

    Args:
        sentences: some.
        share: how many times as many words they have as the mean part of a process; 0 if they do not count.
    """

    def __init__(self, sentences: Sequence[Sentence], share: float = 1.0) -> None:
        self.sentences, self.share = sentences, share


class Batches:
    """Batches for training, without end: one pass over them is an epoch, and the next goes on with other ones.

    Every sentence comes once an epoch, in one of `ceil(all words / words)` batches that have about equally many words.
    Every process gets its part of each batch; where there are fewer sentences than processes, some get one that does
    not count. The state is the number of the next step.

    >>> from undirected.tasks.parsing import toy
    >>> batches = Batches(toy.part("dev"), words=300, seed=0)
    >>> [sum(map(len, batch.sentences)) for batch in batches]
    [283, 283, 288, 291]
    >>> batches.step
    4
    """

    def __init__(self, sentences: Sequence[Sentence], words: int, seed: int, rank: int = 0, processes: int = 1) -> None:
        if not sentences or words < 1:
            raise QueryError(f"batches: {len(sentences)} sentences, {words} words a batch; both must be at least 1.")
        self.sentences, self.words, self.seed = sentences, words, seed
        self.rank, self.processes = rank, processes
        self._lengths = torch.tensor([len(sentence) for sentence in sentences])
        self.step = 0

    def __len__(self) -> int:
        return min(-(-int(self._lengths.sum()) // self.words), len(self.sentences))

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = divmod(self.step, len(self))
        random = generator(self.seed, epoch)
        factors = 1 + SPREAD * torch.rand(len(self.sentences), generator=random)
        order = (self._lengths * factors).argsort()
        cuts = _cuts(self._lengths[order], len(self))
        for number in torch.randperm(len(self), generator=random).tolist()[first:]:
            self.step += 1
            yield self._part([self.sentences[row] for row in order[cuts[number] : cuts[number + 1]].tolist()])

    def _part(self, batch: list[Sentence]) -> Batch:
        """What this process gets of a batch."""
        mine = batch[self.rank :: self.processes]
        if not mine:
            return Batch(batch[:1], share=0.0)
        return Batch(mine, self.processes * sum(map(len, mine)) / sum(map(len, batch)))

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def pieces(lengths: Sequence[int], words: int) -> list[list[int]]:
    """Rows of sentences with these lengths, by length, cut into pieces of at most so many words, padding included.

    >>> pieces([7, 2, 3, 30, 2], words=10)
    [[1, 4, 2], [0], [3]]
    """
    found: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if not found or (len(found[-1]) + 1) * lengths[row] > words:
            found.append([])
        found[-1].append(row)
    return found


def _cuts(lengths: Tensor, count: int) -> list[int]:
    """Where to cut sentences of these lengths into so many batches of about equally many words, none of them empty."""
    lengths = lengths.double()
    middles = lengths.cumsum(0) - lengths / 2
    cuts = torch.searchsorted(middles, lengths.sum() * torch.arange(count + 1) / count).tolist()
    for number in range(1, count):  # sentences longer than a batch's share would leave others without any
        cuts[number] = min(max(cuts[number], cuts[number - 1] + 1), len(lengths) - (count - number))
    return cuts
