"""Batches: what a seed and a step decide, nothing else changes."""

import itertools

import pytest
import torch

from undirected.tasks.images.batches import Batches, Pieces, generator, shifted
from undirected.tasks.images.data import Split


@pytest.fixture
def split():
    return Split(torch.rand(50, 1, 8, 8) * 2 - 1, torch.arange(50))


def test_an_epoch_has_every_image_at_most_once(split):
    batches = Batches(split, 16, seed=0)
    first = torch.cat([labels for _, _, labels in batches])
    second = torch.cat([labels for _, _, labels in batches])
    assert len(first) == len(first.unique()) == 48
    assert first.tolist() != second.tolist()


def test_a_restored_state_goes_on_with_the_same_batches(split):
    whole, part, rest = (Batches(split, 16, seed=3, shift=1) for _ in range(3))
    expected = [batch for _ in range(3) for batch in whole]
    taken = list(itertools.islice(part, 2))
    rest.load_state_dict(part.state_dict())
    taken += [batch for _ in range(3) for batch in rest][: len(expected) - 2]
    for a, b in zip(expected, taken, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_batch_is_shared_among_processes(split):
    whole = Batches(split, 16, seed=0, shift=1)
    parts = [Batches(split, 16, seed=0, shift=1, rank=rank, processes=2) for rank in range(2)]
    for batch, a, b in zip(whole, *parts, strict=True):
        for x, y, z in zip(batch, a, b, strict=True):
            assert torch.equal(x[0::2], y)
            assert torch.equal(x[1::2], z)


def test_shifts_move_each_image_and_bring_in_paper():
    images = torch.rand(40, 1, 6, 7)
    moved = shifted(images, 2, generator(1))
    seen = set()
    for image, result in zip(images, moved, strict=True):
        found = []
        for down, right in itertools.product(range(-2, 3), repeat=2):  # a plain loop over all shifts
            expected = torch.full((1, 6, 7), -1.0)
            for row, column in itertools.product(range(6), range(7)):
                if 0 <= row - down < 6 and 0 <= column - right < 7:
                    expected[0, row, column] = image[0, row - down, column - right]
            if torch.equal(expected, result):
                found.append((down, right))
        assert len(found) == 1
        seen.update(found)
    assert len(seen) > 10


def test_pieces_are_all_images_once(split):
    assert torch.cat([labels for _, _, labels in Pieces(split, 16)]).tolist() == list(range(50))
    halves = [torch.cat([labels for _, _, labels in Pieces(split, 7, rank, 2)]) for rank in range(2)]
    assert sorted(torch.cat(halves).tolist()) == list(range(50))
    assert len(Pieces(split, 16)) == 4
