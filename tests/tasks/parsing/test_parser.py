"""The parser: what it says about a sentence is consistent, and a file keeps it."""

import math

import pytest
import torch

from undirected.errors import FileError, QueryError
from undirected.tasks.parsing.encoders import Lstm, Vocabulary, named
from undirected.tasks.parsing.network import Network, Way
from undirected.tasks.parsing.parser import Parser, load

from .tiny_bert import save_tiny_bert

SENTENCES = [["the", "cats", "sleep"], ["dogs", "bark"], ["run"], ["dogs", "see", "the", "cats"]]
LABELS = ("det", "nsubj", "root")


def parser(projective: bool = False, encoder=None) -> Parser:
    torch.manual_seed(1)
    encoder = encoder or Lstm(Vocabulary.of(SENTENCES), hidden=6)
    network = Network(encoder, labels=3, hidden=9, projective=projective)
    with torch.no_grad():
        network.net.factors["y-h-m"].V.mul_(3)
    return Parser(network.eval(), LABELS, Way(iterations=2))


def test_a_text_its_words_and_a_batch_give_the_same_parse():  # from each other
    parse = parser()
    together = parse.many(SENTENCES)
    for words, found in zip(SENTENCES, together, strict=True):
        for alone in (parse(" ".join(words)), parse(words)):
            assert (alone.words, alone.heads, alone.labels) == (tuple(words), found.heads, found.labels)
            torch.testing.assert_close(alone.marginals, found.marginals, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("projective", "count"), [(False, 64), (True, 30)])
def test_all_trees_in_order_make_up_the_distribution(projective, count):  # from the laws of probability
    parse = parser(projective)(SENTENCES[3])  # four words: 4 * 4^2 trees with one root, of which 30 do not cross
    ranked = parse.k_best(1000)
    assert len({one.heads for one in ranked}) == len(ranked) == count
    chances = [one.probability for one in ranked]
    assert chances == sorted(chances, reverse=True)
    assert sum(chances) == pytest.approx(1, abs=1e-5)
    assert parse.heads == ranked[0].heads
    assert parse.entropy == pytest.approx(-sum(p * math.log(p) for p in chances), abs=1e-4)
    for word in range(4):
        arc = sum(one.probability for one in ranked if one.heads[word] == parse.heads[word])
        assert parse.probabilities[word] == pytest.approx(arc, abs=1e-5)
    assert len(parse.k_best(2)) == 2


def test_labels_belong_to_the_arcs():  # from the network
    parse = parser()
    for one in parse(SENTENCES[3]).k_best(5):
        with torch.no_grad():
            x = parse.network.encoder([SENTENCES[3]])
            numbers = parse.network.labels(x, torch.tensor([one.heads])).argmax(-1)[0]
        assert one.labels == tuple(LABELS[number] for number in numbers)


@pytest.mark.parametrize("kind", ["lstm", "projective", "bert"])
def test_a_file_keeps_the_parser(kind, tmp_path):  # from the parser itself
    encoder = named(str(save_tiny_bert(tmp_path / "bert")), []) if kind == "bert" else None
    before = parser(kind == "projective", encoder)
    before.save(tmp_path / "parser.safetensors")
    for path in (tmp_path / "parser.safetensors", tmp_path):
        after = load(path)
        assert (after.labels, after.way) == (before.labels, before.way)
        for one, other in zip(before.many(SENTENCES), after.many(SENTENCES), strict=True):
            assert (one.heads, one.labels) == (other.heads, other.labels)
            assert torch.equal(one.marginals, other.marginals)


def test_wrong_input_is_refused(tmp_path):
    parse = parser()
    for wrong in ("", "  ", [], ["a", ""], ["a", " "]):
        with pytest.raises(QueryError, match="takes words"):
            parse(wrong)
    with pytest.raises(QueryError, match="at least 1"):
        parse("dogs bark").k_best(0)
    with pytest.raises(FileError, match="no parser"):
        load(tmp_path)
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    with pytest.raises(FileError, match="not a safetensors file"):
        load(tmp_path / "broken.safetensors")
    with pytest.raises(FileError, match="not a parser"):
        load("digits")
