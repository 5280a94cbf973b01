"""Data: what there is, counted in another way, and what is refused."""

import itertools
import math

import pytest
import torch

from undirected.errors import FileError
from undirected.tasks.seeds import generator
from undirected.tasks.sequences.data import drawn_choices, every_choice, load, numbers, words


@pytest.fixture(scope="module")
def data():
    return numbers()


def spelled(questions, index):
    """A question as text."""
    batch = questions.batch(torch.tensor([index]))
    pairs = zip(batch.tokens[0].tolist(), batch.known[0].tolist(), strict=True)
    return [token + 1 if known else None for token, known in pairs]


def test_there_are_as_many_questions_as_the_counts_say(data):  # from binomial coefficients
    every = sum(
        2 * (64 - n + 1) * sum(math.comb(n, gaps) for gaps in range(1, math.ceil(n / 10) + 1)) for n in range(8, 25)
    )
    assert every == 785_142
    assert len(data.test) == 78_514
    assert len(data.train) + len(data.validation) + len(data.test) == every
    assert data.vocabulary == tuple(str(i) for i in range(1, 65))


def test_no_question_is_asked_twice(data):
    rows = [torch.cat([part.line[:, None], part.missing], 1) for part in (data.train, data.validation, data.test)]
    assert len(torch.cat(rows).unique(dim=0)) == 785_142


def test_questions_are_runs_with_up_to_a_tenth_missing(data):  # from the definition
    for index in range(0, len(data.test), 997):
        tokens = spelled(data.test, index)
        n, first = len(tokens), next(i for i, token in enumerate(tokens) if token is not None)
        runs = [[tokens[first] + step * (i - first) for i in range(n)] for step in (1, -1)]
        matching = [run for run in runs if all(t is None or t == r for t, r in zip(tokens, run, strict=True))]
        assert len(matching) == 1
        assert min(matching[0]) >= 1
        assert max(matching[0]) <= 64
        assert 8 <= n <= 24
        assert 1 <= tokens.count(None) <= math.ceil(n / 10)


@pytest.mark.parametrize("n", [8, 11, 21])
def test_every_choice_is_there_once(n):  # from itertools
    expected = {c for r in range(1, math.ceil(n / 10) + 1) for c in itertools.combinations(range(n), r)}
    found = [tuple(i for i in row if i >= 0) for row in every_choice(n).tolist()]
    assert len(found) == len(expected)
    assert set(found) == expected


def test_drawn_choices_are_different_and_within_a_tenth():
    found = drawn_choices(40, generator(0))
    rows = [tuple(i for i in row if i >= 0) for row in found.tolist()]
    assert len(set(rows)) == len(rows) == 32
    assert all(1 <= len(set(row)) == len(row) <= 4 and max(row) < 40 for row in rows)
    assert {len(row) for row in rows} == {1, 2, 3, 4}
    assert torch.equal(drawn_choices(9, generator(0)), every_choice(9))  # few enough for all


def test_the_split_is_always_the_same(data):
    again = numbers(validation=100)
    assert torch.equal(again.test.line, data.test.line)
    assert torch.equal(again.test.missing, data.test.missing)
    assert len(again.validation) == 100


def test_the_numbers_are_compact(data):
    tensors = [getattr(data.train, name) for name in ("lines", "lengths", "line", "missing")]
    assert sum(t.numel() * t.element_size() for t in tensors) < 10_000_000


def test_a_file_gives_its_lines(file):
    data = words(file)
    lines = {tuple(line.split()) for line in file.read_text().splitlines() if line}
    assert len(lines) == 49
    assert data.vocabulary == tuple(sorted({token for line in lines for token in line}))
    found = set()
    for part in (data.train, data.validation, data.test):
        batch = part.batch(torch.arange(len(part)))
        held = set()
        for tokens, known, n in zip(batch.tokens, batch.known, part.sizes().tolist(), strict=True):
            held.add(tuple(data.vocabulary[i] for i in tokens[:n]))
            assert (~known).sum() == 1
            assert known[n:].all()
        assert not held & found  # a line is learned from or tested, never both
        found |= held
    assert found == lines
    counts = {len(part.line.unique()) for part in (data.validation, data.test)}
    assert counts == {5}


def test_lines_stay_on_their_side_when_the_file_grows(file, tmp_path):
    def test_lines(text):
        (tmp_path / "text.txt").write_text(text, encoding="utf-8")
        data = words(tmp_path / "text.txt")
        return {tuple(data.vocabulary[i] for i in data.test.lines[j].tolist()) for j in data.test.line.unique().int()}

    lines = [line for line in file.read_text().splitlines() if len(line.split()) == 9] + [
        " ".join(file.read_text().split()[i : i + 9]) for i in range(60)
    ]
    before = test_lines("\n".join(lines))
    assert test_lines("\n".join(reversed(lines))) == before
    assert test_lines("\ufeff" + "\r\n".join(lines)) == before  # as some editors write files
    grown = test_lines("\n".join([*lines, "mon wed mon wed mon wed mon wed mon"]))
    assert len(grown & before) >= len(before) - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\n" * 20, "1 different lines; at least 10"),
        ("\n".join(f"a b{i}" for i in range(12)) + "\nc", "line 13: has 1 tokens; 2 to 512"),
        ("\n".join(f"a b{i}" for i in range(12)) + "\nc ? d", "line 13: has a '\\?'"),
        ("\n".join("a " * n for n in range(2, 14)), "only one token, 'a'"),
    ],
)
def test_files_that_cannot_be_learned_from_are_refused(tmp_path, text, message):
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(FileError, match=message):
        words(tmp_path / "text.txt")


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "image.bin").write_bytes(b"\xff\xfe\x00\x9f" * 10)
    with pytest.raises(FileError, match=r"image\.bin: is no text file"):
        load(str(tmp_path / "image.bin"))
    with pytest.raises(FileError, match="neither 'numbers' nor a text file"):
        load(str(tmp_path / "gone.txt"))


@pytest.mark.parametrize("count", [1, 3, 7, 100])
def test_parts_of_a_batch_are_the_batch(data, count):
    batch = data.test.batch(torch.arange(7))
    parts = batch.parts(count)
    assert len(parts) == min(count, 7)
    assert torch.equal(torch.cat([part.tokens for part in parts]), batch.tokens)
    assert torch.equal(torch.cat([part.lengths for part in parts]), batch.lengths)
    assert torch.equal(torch.cat([part.targets() for part in parts]), batch.targets())
