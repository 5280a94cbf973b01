"""Sentence: trees in, everything else as it was."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undirected.errors import QueryError
from undirected.tasks.parsing.sentence import Sentence, fault

ROWS = (
    "# sent_id = 1\n"
    "1-2\tdele\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n"
    "1\tde\tde\tADP\t_\t_\t0\troot\t0:root\tA=1|ArcProbability=0.1|B\n"
    "1.1\tx\t_\t_\t_\t_\t_\t_\t1:dep\t_\n"
    "2\tele\tele\tPRON\t_\tCase=Nom|Gender=Masc\t1\tdep\t1:dep\t_{end}\n"
    "{end}\n"
)


def sentence(end=""):
    return Sentence(("de", "ele"), (0, 1), ("root", "dep"), ROWS.format(end=end))


@pytest.mark.parametrize("end", ["", "\r"])
def test_a_new_tree_changes_two_columns_of_words_and_nothing_else(end):
    new = sentence(end).with_tree([2, 0], ["case", "root"])
    expected = ROWS.format(end=end).replace("\t0\troot\t", "\t2\tcase\t").replace("\t1\tdep\t", "\t0\troot\t")
    assert new.source == expected
    assert (new.heads, new.labels, new.words) == ((2, 0), ("case", "root"), ("de", "ele"))
    assert new.with_tree([0, 1], ["root", "dep"]) == sentence(end)


@pytest.mark.parametrize("end", ["", "\r"])
def test_probabilities_go_into_misc_once(end):
    new = sentence(end).with_tree([0, 1], ["root", "dep"], [0.25, 1.0]).source
    assert "\tA=1|B|ArcProbability=0.2500\n" in new
    assert f"\tArcProbability=1.0000{end}\n" in new
    assert "SpaceAfter=No\n" in new  # a multiword token has no arc


def test_what_does_not_fit_is_refused():
    with pytest.raises(QueryError, match="2 words, but 1 heads, 2 labels and 3 probabilities"):
        sentence().with_tree([0], ["root", "dep"], [1, 1, 1])
    with pytest.raises(QueryError, match="words 1 and 2 both have head 0"):
        sentence().with_tree([0, 0], ["root", "root"])
    for words, problem in (
        ([], "at least one"),
        ([""], "word 1 is ''"),
        (["a", "b\tc"], "word 2"),
        (["a\nb"], "word 1"),
    ):
        with pytest.raises(QueryError, match=problem):
            Sentence.of(words)


def test_a_fault_is_found_in_everything_but_a_tree():
    for n in range(1, 5):
        for heads in itertools.product(range(n + 1), repeat=n):
            walks = [{0}]  # the words that reach the root in so many steps, by definition of a tree
            for _ in range(n):
                walks.append({word for word in range(1, n + 1) if heads[word - 1] in walks[-1]} | {0})
            tree = len(walks[-1]) == n + 1 and heads.count(0) == 1
            assert (fault(heads) is None) == tree


@given(st.lists(st.integers(-3, 12), min_size=1, max_size=10))
def test_a_fault_names_a_word(heads):
    problem = fault(heads)
    assert problem is None or 1 <= problem[0] <= len(heads)


def test_a_cycle_is_spelled_out():
    assert fault([2, 3, 1, 0]) == (1, "words 1 -> 2 -> 3 -> 1 form a cycle.")
    assert fault([0, 2]) == (2, "words 2 -> 2 form a cycle.")
    assert fault([0, 1, 4]) == (3, "word 3 has head 4, but the heads of 3 words are 0 to 3.")
