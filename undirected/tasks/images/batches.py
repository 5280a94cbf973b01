"""Batches: the training images in an order that only the seed and the step decide, so that a run can go on anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from undirected.tasks.images.data import Split
from undirected.tasks.seeds import generator

Batch = tuple[Tensor, Tensor, Tensor]  # images to read (perhaps shifted), the images themselves, their classes


def shifted(images: Tensor, most: int, source: torch.Generator) -> Tensor:
    """Each image moved by up to `most` pixels along both axes; paper (-1) comes in from outside."""
    count, _, height, width = images.shape
    moves = torch.randint(0, 2 * most + 1, (2, count), generator=source)
    padded = torch.nn.functional.pad(images, [most] * 4, value=-1.0)
    rows = (moves[0, :, None] + torch.arange(height))[:, :, None]
    columns = (moves[1, :, None] + torch.arange(width))[:, None, :]
    return padded[torch.arange(count)[:, None, None], 0, rows, columns].unsqueeze(1)


class Batches:
    """Batches for training, without end: one pass over them is an epoch, and the next goes on with other ones.

    Every process gets its part of each batch. The state is the number of the next step.
    """

    def __init__(self, split: Split, batch: int, seed: int, shift: int = 0, rank: int = 0, processes: int = 1) -> None:
        self.split, self.batch, self.seed, self.shift = split, min(batch, len(split)), seed, shift
        self.rank, self.processes = rank, processes
        self.step = 0

    def __len__(self) -> int:
        return len(self.split) // self.batch

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = divmod(self.step, len(self))
        order = torch.randperm(len(self.split), generator=generator(self.seed, 0, epoch))
        for number in range(first, len(self)):
            rows = order[number * self.batch : (number + 1) * self.batch]
            images, labels = self.split.images[rows], self.split.labels[rows]
            seen = shifted(images, self.shift, generator(self.seed, 1, self.step)) if self.shift else images
            self.step += 1
            mine = slice(self.rank, None, self.processes)
            yield seen[mine], images[mine], labels[mine]

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


class Pieces:
    """All images once, in order, in large pieces; every process gets its part."""

    def __init__(self, split: Split, size: int = 500, rank: int = 0, processes: int = 1) -> None:
        self.split, self.size, self.rank, self.processes = split, size, rank, processes

    def __len__(self) -> int:
        return -(-len(range(self.rank, len(self.split), self.processes)) // self.size)

    def __iter__(self) -> Iterator[Batch]:
        for rows in torch.arange(self.rank, len(self.split), self.processes).split(self.size):
            images = self.split.images[rows]
            yield images, images, self.split.labels[rows]
