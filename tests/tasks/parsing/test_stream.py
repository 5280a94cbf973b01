"""Stream: text in, CoNLL-U, pictures and pages out. Trees need not be good ones here, so nothing is trained."""

import io
import json
import random
import weakref
import xml.etree.ElementTree as ET

import pytest
import torch

from undirected.cli import main
from undirected.errors import FileError, QueryError
from undirected.structure.heads import crosses
from undirected.tasks.parsing import stream, toy, treebank
from undirected.tasks.parsing.learner import Learner
from undirected.tasks.parsing.parser import load
from undirected.tasks.parsing.settings import Settings

TEXT = b"the dogs sing .\n\n  \nthis cat sees\tthose birds often .\r\nbad\xff line\n\xe0\xb0\x85 unseen & <word>\nlast"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "some.safetensors"
    Learner(Settings(hidden=16, size=8, layers=1), treebank.load("toy")).parser().save(path)
    return str(path)


@pytest.fixture(scope="module")
def parser(model):
    return load(model)


def parse(model, text, **options):
    out = io.BytesIO()
    stream.parse(model, io.BytesIO(text), out, **options)
    return out.getvalue()


def test_text_becomes_trees_with_probabilities(model, parser, capsys):
    out = parse(model, TEXT)
    found = list(treebank.read(io.BytesIO(out)))
    rows = [line.decode().split() for line in TEXT.split(b"\n") if b"\xff" not in line and line.strip()]
    assert [list(sentence.words) for sentence in found] == rows
    for sentence, expected in zip(found, parser.many(rows), strict=True):
        assert (sentence.heads, sentence.labels) == (expected.heads, expected.labels)
        misc = [line.split("\t")[9] for line in sentence.source.splitlines() if "\t" in line]
        assert misc == [f"ArcProbability={chance:.4f}" for chance in expected.probabilities]
        assert f"# tree_probability = {expected.probability:.4f}\n" in sentence.source
        assert f"# entropy = {expected.entropy:.4f}\n" in sentence.source
    lines = [line for line in out.decode().splitlines() if line.startswith("# sent_id")]
    assert lines == [f"# sent_id = {number}" for number in (1, 4, 6, 7)]
    told = capsys.readouterr().err
    assert "line 5: byte 4 (0xff) is not UTF-8. It is left out." in told
    assert "4 sentences in " in told
    assert "1 lines left out" in told


def test_conllu_keeps_all_but_the_tree(model, parser):
    token, word = "1-2\tdele" + "\t_" * 8, "{}\tw\tl\tX\t_\tF=1\t{}\t_\t_\tK=v"
    rows = ["# sent_id = a", "# entropy = old", token, word, word, word]
    text = "\r\n".join(rows).format(1, "_", 2, 2, 3, "?") + "\r\n"
    out = parse(model, text.encode(), conllu=True)
    best = parser(["w"] * 3)
    (sentence,) = treebank.read(io.BytesIO(out))
    assert sentence.heads == best.heads
    chances = [f"# tree_probability = {best.probability:.4f}", f"# entropy = {best.entropy:.4f}"]
    expected = ["# sent_id = a", *chances, token]
    for word, (head, label, chance) in enumerate(zip(best.heads, best.labels, best.probabilities, strict=True), 1):
        expected.append(f"{word}\tw\tl\tX\t_\tF=1\t{head}\t{label}\t_\tK=v|ArcProbability={chance:.4f}")
    assert out.decode() == "\r\n".join(expected) + "\r\n"
    assert parse(model, out, conllu=True) == out


def test_treebanks_can_be_parsed_anew(model):
    source = io.BytesIO()
    treebank.write(toy.part("dev"), source)
    found = treebank.read(io.BytesIO(parse(model, source.getvalue(), conllu=True)))
    assert [sentence.words for sentence in found] == [sentence.words for sentence in toy.part("dev")]


def test_the_best_trees_are_ranked_and_different(model, parser):
    out = parse(model, b"a b c d\nalone", k_best=3)
    *ranked, alone = treebank.read(io.BytesIO(out))
    assert [f"# tree_rank = {rank}\n" in ranked[rank - 1].source for rank in (1, 2, 3)] == [True] * 3
    assert len({sentence.heads for sentence in ranked}) == 3
    assert alone.heads == (0,)
    assert "tree_rank" not in alone.source
    chances = [float(s.source.partition("tree_probability = ")[2].split()[0]) for s in ranked]
    assert chances == sorted(chances, reverse=True)


def test_projective_trees_do_not_cross(model):
    random.seed(0)
    text = "\n".join(" ".join(random.choices("abcdefgh", k=12)) for _ in range(40)).encode()
    trees = {}
    for projective in (False, True):
        found = treebank.read(io.BytesIO(parse(model, text, projective=projective)))
        trees[projective] = [bool(crosses(torch.tensor([sentence.heads]))) for sentence in found]
    assert any(trees[False])
    assert not any(trees[True])


def test_every_tree_is_drawn_in_a_file_and_on_a_page(model, tmp_path):
    svg, html = tmp_path / "new" / "folder", tmp_path / "page.html"
    parse(model, b"the cat sleeps\n\n<b> &amp; .\n", svg=svg, html=html, k_best=2)
    names = sorted(path.name for path in svg.iterdir())
    assert names == ["1-2.svg", "1-arcs.svg", "1.svg", "3-2.svg", "3-arcs.svg", "3.svg"]
    for path in svg.iterdir():
        ET.fromstring(path.read_text(encoding="utf-8"))
    page = html.read_text(encoding="utf-8")
    assert page.count("<svg") == 6
    assert page.endswith("</html>\n")
    assert "<b>" not in page


def test_a_long_input_is_parsed_in_constant_memory(parser):
    """However long the text, nothing of it is kept but two chunks of 50 sentences, the last one and the present."""
    text = (b"%d these dogs sing near every cat .\n" % number for number in range(500))
    log = stream.Log()
    alive = []
    for result in log.count(stream.written(stream.parsed(parser, stream.lines(text, log), chunk=400), _Nowhere())):
        alive = [thing for thing in alive if thing() is not None]
        alive += map(weakref.ref, (result.sentence, result.parses[0], result.parses[0].marginals))
        assert len(alive) <= 3 * 2 * 50
        del result
    assert log.sentences == 500


class _Nowhere(io.BytesIO):
    def write(self, text):
        return len(text)


def test_lines_that_no_sentence_fits_are_left_out(capsys):
    log = stream.Log()
    text = [b"a b", b"x " * 1001, *[b"\xff"] * 20, b"c"]
    assert [(number, s.words) for number, s in stream.lines(text, log)] == [(1, ("a", "b")), (23, ("c",))]
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "line 2: 1001 words, but a sentence has at most 1000. Write one a line. It is left out."
    assert len(told) == stream.NAMED
    assert log.left_out == 21


def test_typed_lines_are_answered_one_by_one(parser):
    asked = []

    def typing():
        for number, words in enumerate((["a"], ["b", "c"]), 1):
            asked.append(number)
            yield number, treebank.Sentence.of(words)

    results = stream.parsed(parser, typing(), chunk=1)
    next(results)
    assert asked == [1]


def test_wrong_input_is_refused(model, tmp_path):
    with pytest.raises(QueryError, match="--k-best must be at least 1, not 0"):
        parse(model, b"a", k_best=0)
    with pytest.raises(FileError, match="there is no parser"):
        parse(str(tmp_path / "none"), b"a")
    with pytest.raises(FileError, match="line 1: 1 columns"):
        parse(model, b"plain text", conllu=True)
    words = "\n".join(f"{number}\tw" + "\t_" * 8 for number in range(1, 1002))
    with pytest.raises(QueryError, match="sentence 1: 1001 words"):
        parse(model, words.encode(), conllu=True)


def test_the_command_reads_and_writes_standard_streams(model, monkeypatch, capfdbinary):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the dogs sing\n")))
    assert main(["parse", model]) == 0
    out, err = capfdbinary.readouterr()
    assert [sentence.words for sentence in treebank.read(io.BytesIO(out))] == [("the", "dogs", "sing")]
    assert out.endswith(b"\n\n")
    assert not out.endswith(b"\n\n\n")
    assert b"1 sentences in" in err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["parse", model, "--conllu"]) == 1
    assert b"has no sentences" in capfdbinary.readouterr().err


def test_a_parser_that_is_refused_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the dogs sing\n")))
    assert main(["parse", str(tmp_path / "none"), f"--out={tmp_path / 'trees'}"]) == 1
    assert not (tmp_path / "trees").exists()


def test_trees_as_json_to_a_folder_in_double_precision(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the dogs sing\n")))
    flags = ["--json", "--k-best=2", "--precision=64", f"--out={tmp_path / 'trees'}"]
    assert main(["parse", "toy-parser", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["trees"].endswith("trees.jsonl")
    best, second = map(json.loads, (tmp_path / "trees" / "trees.jsonl").read_text().splitlines())
    expected = load("toy-parser")("the dogs sing")
    assert (tuple(best["heads"]), tuple(best["labels"])) == (expected.heads, expected.labels)
    assert best["tree_probability"] == pytest.approx(expected.probability, abs=1e-4)
    assert (best["rank"], second["rank"]) == (1, 2)
    assert best["tree_probability"] >= second["tree_probability"]
