"""Batches: everything once a round, of like length, in an order that the seed and the step decide."""

import pytest
import torch

from undirected.tasks.sequences.batches import Batches, Pieces
from undirected.tasks.sequences.data import numbers


def test_a_round_holds_every_question_and_hard_ones_more_often():
    questions = numbers().validation
    assert Batches(questions, 1, seed=1, steps=1)._drawn(0).flatten().sort().values.equal(torch.arange(len(questions)))
    batches = Batches(questions, 1, seed=1, steps=1, times=(7, 3, 1))
    rows = batches._drawn(0).flatten()
    assert torch.equal(rows.bincount(), torch.tensor([7, 3, 1])[questions.neighbours()])
    assert not torch.equal(rows, batches._drawn(1).flatten())
    assert Batches(questions, 64, seed=1, steps=1, times=(7, 3, 1))._drawn(0).shape == (len(rows) // 64, 64)


def test_known_neighbours_are_counted():  # from each sequence, token by token
    questions = numbers().validation.pick(torch.arange(2000))
    fewest = questions.neighbours().tolist()
    for index in range(2000):
        known = questions.batch(torch.tensor([index])).known[0].tolist()
        around = [False, *known, False]
        assert fewest[index] == min(around[i] + around[i + 2] for i in range(len(known)) if not known[i])
    assert set(fewest) == {0, 1, 2}


def test_little_is_padded():
    questions = numbers().validation
    whole = padding = 0
    for batch in Batches(questions, 64, seed=0, steps=100):
        whole += batch.tokens.numel()
        if batch.lengths is not None:
            padding += int((batch.tokens.shape[1] - batch.lengths).sum())
    assert padding < 0.05 * whole


def test_going_on_gives_what_would_have_come():
    questions = numbers().validation
    first = Batches(questions, 64, seed=3, steps=10)
    whole = [batch.tokens for _ in range(3) for batch in first]
    assert len(whole) == 30
    second = Batches(questions, 64, seed=3, steps=10)
    second.load_state_dict({"step": 14})  # in the middle of the second epoch
    rest = [batch.tokens for _ in range(2) for batch in second]
    assert len(rest) == 16
    assert all(torch.equal(a, b) for a, b in zip(whole[14:], rest, strict=True))
    assert second.state_dict() == first.state_dict() == {"step": 30}


def test_batches_are_no_larger_than_the_data(trained):
    questions = trained.sequences.validation
    (batch,) = Batches(questions, 10_000, seed=0, steps=1)
    assert len(batch) == len(questions)


def test_processes_share_a_batch_in_proportion_to_what_misses():
    questions = numbers().validation
    parts = [Batches(questions, 50, seed=0, steps=20, rank=rank, processes=3) for rank in range(3)]
    for whole, *shared in zip(Batches(questions, 50, seed=0, steps=20), *parts, strict=True):
        for rank, part in enumerate(shared):
            width = part.tokens.shape[1]
            assert torch.equal(whole.tokens[rank::3, :width], part.tokens)
            assert part.share * len(whole.targets()) == pytest.approx(3 * len(part.targets()))
        assert sum(len(part.targets()) for part in shared) == len(whole.targets())


def test_processes_share_the_pieces():
    questions = numbers().validation
    shared = [Pieces(questions, rank, 2) for rank in range(2)]
    assert [len(list(pieces)) for pieces in shared] == [len(pieces) for pieces in shared]
    found = sum(len(piece.targets()) for pieces in shared for piece in pieces)
    assert found == int((questions.missing >= 0).sum())


def test_pieces_hold_everything_once():
    questions = numbers().validation
    pieces = Pieces(questions)
    found = list(pieces)
    assert len(found) == len(pieces)
    assert sum(map(len, found)) == len(questions)
    assert sum(len(piece.targets()) for piece in found) == int((questions.missing >= 0).sum())


def test_pieces_are_small_enough_for_memory_and_many_enough_for_random_orders():
    questions = numbers().validation
    assert max(piece.tokens.numel() for piece in Pieces(questions)) <= 2400
    few = questions.pick(torch.arange(7))
    assert [len(piece) for piece in Pieces(few)] == [1] * 7
    assert len(Pieces(few, processes=3)) == 2  # each process has something of each piece
