"""Visitor: wrong input is answered with a sentence."""

import math

import pytest

from undirected.app.figures import card, picture, says, table
from undirected.app.visitor import choice, number, polite, text
from undirected.errors import QueryError


@pytest.mark.parametrize("wrong", [0, 11, math.nan, math.inf, "3", None, [1]])
def test_numbers_stay_within_bounds(wrong):
    with pytest.raises(QueryError, match="Iterations must be a number from 1 to 10"):
        number(wrong, "Iterations", 1, 10)


@pytest.mark.parametrize("wrong", ["c", 1, None, ["a"]])
def test_choices_are_among_those_offered(wrong):
    with pytest.raises(QueryError, match="Letter must be one of a, b"):
        choice(wrong, ["a", "b"], "Letter")


def test_texts_are_short():
    assert text(" word ", "It", 6) == "word"
    with pytest.raises(QueryError, match="It may have 6 characters, not 7"):
        text("1234567", "It", 6)
    with pytest.raises(QueryError, match="It must be text"):
        text(["a"], "It", 6)


def test_errors_of_a_visitor_become_sentences_and_others_do_not():
    @polite(2)
    def answer(value):
        if value == "wrong":
            raise QueryError("<b>no</b>")
        raise KeyError(value)

    first, second, query = answer("wrong")
    assert first == '<p class="wrong">&lt;b&gt;no&lt;/b&gt;</p>'
    assert second == ""
    assert query["__type__"] == "update"
    with pytest.raises(KeyError):
        answer("a fault of ours")


def test_no_text_becomes_markup():
    import torch

    evil = '<img src=x onerror="alert(1)">'
    for html in (
        card(evil, note=evil),
        says(evil),
        picture(torch.zeros(2, 2), evil),
        table(torch.eye(2), [evil, evil], [evil, evil], evil),
    ):
        assert "<img src=x" not in html
        assert 'onerror="' not in html
