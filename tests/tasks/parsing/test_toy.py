"""Toy: its sentences obey their own grammar."""

import io

import pytest

from undirected.errors import QueryError
from undirected.tasks.parsing import toy, treebank


def crossing(heads):
    arcs = [(min(word, head), max(word, head)) for word, head in enumerate(heads, 1)]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


@pytest.fixture(scope="module")
def bank():
    return treebank.load("toy")


def test_parts_are_always_the_same_and_share_no_sentence(bank):
    parts = [bank.train, bank.dev, bank.test]
    assert [len(part) for part in parts] == list(toy.PARTS.values())
    assert len({sentence.words for part in parts for sentence in part}) == sum(toy.PARTS.values())
    assert list(bank.test) == toy.part("test")
    with pytest.raises(QueryError, match="unknown part of the toy treebank 'tests'; known are 'train'"):
        toy.part("tests")


def test_it_is_a_treebank(bank):
    out = io.BytesIO()
    treebank.write(bank.train, out)
    out.seek(0)
    assert tuple(treebank.read(out)) == bank.train


def test_trees_are_non_projective_now_and_then(bank):
    share = sum(crossing(sentence.heads) for sentence in bank.train) / len(bank.train)
    assert 0.15 < share < 0.35


def test_verbs_and_determiners_agree_with_their_nouns(bank):
    seen = set()
    for sentence in bank.train:
        plural = [word.endswith("s") and word.rstrip("s") in toy.NOUNS for word in sentence.words]
        verbs = {*toy.TRANSITIVE, *toy.INTRANSITIVE}
        for word, head, label in zip(sentence.words, sentence.heads, sentence.labels, strict=True):
            if label == "det":
                assert word in toy.DETERMINERS["plural" if plural[head - 1] else "singular"]
            if label == "acl:relcl":  # agrees with the noun that it hangs from, wherever that stands
                assert (word in verbs) == plural[head - 1]
        for word, head, label in zip(sentence.words, sentence.heads, sentence.labels, strict=True):
            if label == "nsubj" and word != "who":
                assert (sentence.words[head - 1] in verbs) == word.endswith("s")
            seen.add(label)
    assert seen == {"root", "nsubj", "obj", "det", "amod", "case", "nmod", "advmod", "acl:relcl", "punct"}


def test_a_clause_apart_from_its_noun_could_belong_to_one_noun_only(bank):
    for sentence in bank.train:
        for word, (head, label) in enumerate(zip(sentence.heads, sentence.labels, strict=True), 1):
            if label == "acl:relcl" and sentence.labels[word - 3] == "advmod":
                root = sentence.heads.index(0) + 1
                subject, thing = (
                    noun
                    for noun, above in zip(sentence.words, sentence.heads, strict=True)
                    if above == root and noun.rstrip("s") in toy.NOUNS
                )
                assert subject.endswith("s") != thing.endswith("s")
                assert sentence.words[head - 1] in (subject, thing)
