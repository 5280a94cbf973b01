"""Batches: what a seed and a step decide, nothing else changes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undirected.errors import QueryError
from undirected.tasks.parsing import toy
from undirected.tasks.parsing.batches import Batches, pieces
from undirected.tasks.parsing.sentence import Sentence

SENTENCES = toy.part("train")


def epoch_of(batches):
    """The sentences of each batch of an epoch."""
    return [batch.sentences for batch in batches]


def test_every_sentence_comes_once_an_epoch():
    batches = Batches(SENTENCES, 300, seed=0)
    for _ in range(2):
        epoch = epoch_of(batches)
        assert len(epoch) == len(batches)
        assert sorted(sentence.words for batch in epoch for sentence in batch) == sorted(s.words for s in SENTENCES)


def test_epochs_and_seeds_differ():
    batches = Batches(SENTENCES, 300, seed=0)
    first, second, other = (epoch_of(each) for each in (batches, batches, Batches(SENTENCES, 300, seed=1)))
    assert first != second
    assert first != other
    neighbours = [{frozenset(s.words for s in batch) for batch in epoch} for epoch in (first, second)]
    assert not neighbours[0] & neighbours[1]  # not only in another order: with others


def test_a_batch_has_like_sentences_and_about_so_many_words():
    epoch = epoch_of(Batches(SENTENCES, 300, seed=0))
    assert len(epoch) == -(-sum(map(len, SENTENCES)) // 300)
    for batch in epoch:
        assert abs(sum(map(len, batch)) - sum(map(len, SENTENCES)) / len(epoch)) <= max(map(len, batch))
    padded = sum(len(batch) * max(map(len, batch)) for batch in epoch)
    assert padded < 1.25 * sum(map(len, SENTENCES))
    mixed = [SENTENCES[start::16] for start in range(16)]
    assert padded < 0.6 * sum(len(batch) * max(map(len, batch)) for batch in mixed)


def test_a_restored_state_goes_on_with_the_same_batches():
    whole, part, rest = (Batches(SENTENCES, 500, seed=3) for _ in range(3))
    expected = [sentences for _ in range(3) for sentences in epoch_of(whole)]
    taken = epoch_of(itertools.islice(part, 12))  # into the second epoch
    taken += epoch_of(itertools.islice(part, 12 - len(taken)))
    rest.load_state_dict(part.state_dict())
    taken += [sentences for _ in range(3) for sentences in epoch_of(rest)][: len(expected) - 12]
    assert taken == expected


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 100), st.integers(0, 5))
def test_no_batch_is_empty_whatever_the_lengths(lengths, words, seed):
    sentences = [Sentence.of([str(row)] * length) for row, length in enumerate(lengths)]
    batches = Batches(sentences, words, seed)
    epoch = epoch_of(batches)
    assert len(epoch) == len(batches)
    assert all(epoch)
    assert sorted(int(s.words[0]) for batch in epoch for s in batch) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 60), st.integers(1, 4))
def test_processes_share_a_batch_in_proportion_to_their_words(lengths, words, processes):
    sentences = [Sentence.of([str(row)] * length) for row, length in enumerate(lengths)]
    parts = [Batches(sentences, words, 0, rank, processes) for rank in range(processes)]
    for whole, *shared in zip(Batches(sentences, words, 0), *parts, strict=True):
        counted = [part for part in shared if part.share]
        assert sorted(s.words for part in counted for s in part.sentences) == sorted(s.words for s in whole.sentences)
        size = sum(map(len, whole.sentences))
        for part in shared:
            assert part.sentences
            if part.share:
                assert part.share / processes == pytest.approx(sum(map(len, part.sentences)) / size)


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 100))
def test_pieces_hold_every_row_once_within_the_limit(lengths, words):
    found = pieces(lengths, words)
    assert sorted(itertools.chain(*found)) == list(range(len(lengths)))
    for piece in found:
        assert len(piece) == 1 or len(piece) * max(lengths[row] for row in piece) <= words


def test_nothing_to_batch_is_refused():
    with pytest.raises(QueryError, match="0 sentences, 10 words"):
        Batches([], 10, seed=0)
    with pytest.raises(QueryError, match="480 sentences, 0 words"):
        Batches(SENTENCES, 0, seed=0)
