"""Batches: sequences of like length side by side, in an order that only the seed and the step decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from undirected.tasks.seeds import generator
from undirected.tasks.sequences.data import Batch, Questions

POOL = 32  #: batches that are sorted by length together: little is padded, and a batch is nearly a random one
PIECE = 2_400  #: tokens that are solved together without gradients
FEWEST = 50  #: pieces: where orders are drawn at random, each has its own


class Batches:
    """Batches for training, without end. Going through them yields `steps` of them; the next time goes on.

    In a round, every question comes once, but for a rest; or as often as `times` says: first, those with a missing
    token that has no known neighbour, then with one that has one, then all others. Every process gets its part of each
    batch. The state is the number of the next step.
    """

    def __init__(
        self,
        questions: Questions,
        batch: int,
        seed: int,
        steps: int,
        rank: int = 0,
        processes: int = 1,
        times: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        self.questions, self.batch, self.seed, self.steps = questions, min(batch, len(questions)), seed, steps
        self.rank, self.processes = rank, processes
        self._index = torch.arange(len(questions)).repeat_interleave(torch.tensor(times)[questions.neighbours()])
        self.step = 0
        self._round, self._rows = -1, torch.empty(0)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        last = (self.step // self.steps + 1) * self.steps
        while self.step < last:
            number, place = divmod(self.step, len(self._index) // self.batch)
            if number != self._round:
                self._round, self._rows = number, self._drawn(number)
            self.step += 1
            yield self._part(self._rows[place])

    def _part(self, rows: Tensor) -> Batch:
        """What this process gets of a batch."""
        mine = rows[self.rank :: self.processes]
        missing = [(self.questions.missing[some] >= 0).sum().item() for some in (mine, rows)]
        return replace(self.questions.batch(mine), share=self.processes * missing[0] / missing[1])

    def _drawn(self, number: int) -> Tensor:
        """The questions of a round, in an order of its own: (batches, batch)."""
        source = generator(self.seed, 0, number)
        count = len(self._index) // self.batch
        order = self._index[torch.randperm(len(self._index), generator=source)[: count * self.batch]]
        sizes = self.questions.sizes()
        pools = [pool[sizes[pool].argsort(stable=True)] for pool in order.split(POOL * self.batch)]
        return torch.cat(pools).view(count, self.batch)[torch.randperm(count, generator=source)]

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


class Pieces:
    """All questions once, by their length, in pieces of like size; every process gets its part of each piece."""

    def __init__(self, questions: Questions, rank: int = 0, processes: int = 1) -> None:
        self.questions, self.rank, self.processes = questions, rank, processes

    def __len__(self) -> int:
        count = len(self.questions)
        fitting = max(1, PIECE // int(self.questions.sizes().max()))
        return min(max(-(-count // fitting), FEWEST), count // self.processes)

    def __iter__(self) -> Iterator[Batch]:
        # All processes have as many pieces, since what is drawn at random is drawn anew for each.
        for rows in self.questions.sizes().argsort(stable=True).tensor_split(len(self)):
            yield self.questions.batch(rows[self.rank :: self.processes])
