"""Use: a sequence comes back whole, alone or in a stream, and wrong input is told what is wrong."""

import io
import itertools
import json
import re
from pathlib import Path

import pytest
import torch

import undirected as un
from undirected import packaged
from undirected.cli import main
from undirected.errors import FileError, QueryError
from undirected.tasks.sequences.data import Batch, numbers
from undirected.tasks.sequences.evaluation import evaluate
from undirected.tasks.sequences.model import scores, solve
from undirected.tasks.sequences.use import Completer

LINES = ["mon ? wed thu", "sat sun mon tue ?", "? sun mon", "wed thu fri ? sun mon tue wed"]


@pytest.fixture(scope="module")
def completer(trained):
    return Completer(trained.folder)


def test_completion_says_what_the_network_says(trained, completer):  # from a solve of each sequence alone
    number = {token: i for i, token in enumerate(trained.sequences.vocabulary)}
    for text, found in zip(LINES, completer.complete(LINES), strict=True):
        tokens = text.split()
        given = torch.tensor([[number.get(token, 0) for token in tokens]])
        batch = Batch(given, torch.tensor([[token != "?" for token in tokens]]), None)
        with torch.no_grad():
            shares = scores(trained.net, batch, solve(trained.net, batch)).softmax(1)[0]
        (one,) = found.found
        assert one.position == tokens.index("?")
        assert one.token == found.tokens[one.position] == trained.sequences.vocabulary[int(shares.argmax())]
        assert one.probability == pytest.approx(float(shares.max()), abs=1e-4)
        assert [a for a, b in zip(found.tokens, tokens, strict=True) if b != "?"] == [t for t in tokens if t != "?"]


def test_the_days_are_found(completer):
    found = completer.complete(LINES)
    expected = ("tue", "wed", "sat", "sat")
    assert sum(one.found[0].token == day for one, day in zip(found, expected, strict=True)) >= 3
    assert str(found[0]).split("\t")[0].split()[:1] == ["mon"]


def test_a_stream_gives_a_line_for_a_line_and_needs_no_end(completer):
    endless = itertools.cycle([*LINES, "\n"])
    found = list(itertools.islice(completer.stream(endless, batch=8), 40))
    whole = completer.complete(LINES)
    assert [one.tokens for one in found] == [one.tokens for one in whole] * 10


def test_a_stream_may_begin_with_a_mark_of_its_encoding(completer):
    marked = [f"\ufeff{LINES[0]}", *LINES[1:]]
    assert list(completer.stream(marked)) == list(completer.stream(LINES))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("mon tue wed", r"nothing is missing. Write \?"),
        ("? ?", "nothing is known"),
        ("mon ? wedd", "token 3, 'wedd', is unknown. Known ones like it: wed"),
        ("mon ? 17", r"token 3, '17', is unknown. Known are fri, mon, .* \(7 tokens\)"),
        ("mon ? wed thu fri sat sun mon tue wed", "10 tokens; this network reads up to 9"),
    ],
)
def test_wrong_input_is_refused(completer, text, message):
    with pytest.raises(QueryError, match=message):
        completer.complete([text])


def test_a_wrong_line_is_named_after_the_ones_before_it(completer):
    stream = completer.stream([LINES[0], "", LINES[1], "mon ? never"])
    assert next(stream).tokens[0] == "mon"
    assert next(stream).tokens[0] == "sat"
    with pytest.raises(QueryError, match="line 4: token 3, 'never'"):
        next(stream)


def test_networks_of_other_kinds_are_refused(tmp_path):
    un.save(un.models.attention(4), tmp_path / "other.safetensors")
    with pytest.raises(FileError, match="not one for sequences"):
        Completer(tmp_path / "other.safetensors")
    with pytest.raises(FileError, match="no network there"):
        Completer(tmp_path)


def test_evaluation_needs_the_network_s_own_tokens(trained):
    with pytest.raises(FileError, match="knows other tokens than numbers"):
        evaluate(trained.folder)
    with pytest.raises(QueryError, match="--iterations 0: must be at least 1"):
        evaluate(trained.folder, trained.settings.data, iterations=0)
    found = evaluate(trained.folder, trained.settings.data, iterations=2, order="random")
    assert found.count == int((trained.sequences.test.missing >= 0).sum())
    assert (found.iterations, found.order) == (2, "random")


def test_evaluation_needs_lines_that_the_network_can_read(trained, tmp_path):
    days = Path(trained.settings.data).read_text()
    longer = tmp_path / "longer.txt"
    longer.write_text(days + " ".join(days.split()[:20]) + "\n")
    with pytest.raises(FileError, match=r"reads up to 9 tokens, and .* has a line of 20"):
        evaluate(trained.folder, str(longer))


def test_the_command_completes_a_sequence(trained, capsys):
    assert main(["complete", str(trained.folder), LINES[0], "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["sequence"][2:] == ["wed", "thu"]
    assert data["found"][0]["position"] == 1
    assert 0 < data["found"][0]["probability"] <= 1


def test_the_command_reads_lines_from_standard_input(trained, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(LINES) + "\n"))
    assert main(["complete", str(trained.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(LINES)
    assert all("?" not in line and line.endswith("%)") for line in lines)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(LINES) + "\n"))
    assert main(["complete", str(trained.folder), "--json"]) == 0
    data = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.split("\t")[0].split() for line in lines] == [one["sequence"] for one in data]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mon", "?", "wed"], "in quotes"),
        (["mon ?", "tue ?"], "not a model"),
        (["no/such/run", "tue ?"], "no/such/run: no such file or folder"),
        (["1 " * 300 + "?"], "301 tokens; this network reads up to 24"),
        (["mon ? wed", "--hide", "top"], "--hide: is for pictures"),
    ],
)
def test_wrong_calls_say_what_to_write(trained, words, message, capsys):
    model = [str(trained.folder)] if "--hide" in words else []
    assert main(["complete", *model, *words]) == 1
    assert message in capsys.readouterr().err


def test_the_packaged_network_counts(capsys):
    assert main(["complete", "3 4 ? 6 7 8 ? 10"]) == 0
    whole, found = capsys.readouterr().out.strip().split("\t")
    assert whole == "3 4 5 6 7 8 9 10"
    assert found.split()[::2] == ["5", "9"]
    assert main(["complete", "sequences", "3 4 ? 65"]) == 1
    assert "'65', is unknown" in capsys.readouterr().err


def test_the_packaged_network_is_as_good_as_its_card_says():  # counted again, on a part of the test sequences
    test = numbers().test
    batch = test.batch(torch.arange(0, len(test), 40))
    net = un.load("sequences").eval()
    with torch.no_grad():
        right = scores(net, batch, solve(net, batch)).argmax(1) == batch.targets()
    (written,) = re.findall(r"test accuracy: ([\d.]+) %", (packaged.FOLDER / "sequences.md").read_text())
    assert 100 * float(right.double().mean()) == pytest.approx(float(written), abs=0.15)
