"""Drawing: well-formed, complete, and without a text on top of another."""

import random
import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undirected.errors import QueryError
from undirected.tasks.parsing import toy
from undirected.tasks.parsing.drawing import Figure, matrix, page, tree
from undirected.tasks.parsing.sentence import fault

SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def trees(draw):
    """Any tree, often with crossing arcs, over any words."""
    n = draw(st.integers(1, 12))
    order = draw(st.permutations(range(1, n + 1)))
    heads = [0] * n
    for place, word in enumerate(order):
        heads[word - 1] = 0 if place == 0 else order[draw(st.integers(0, place - 1))]
    assert fault(heads) is None
    words = draw(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), min_size=n, max_size=n))
    labels = draw(st.lists(st.sampled_from(["det", "acl:relcl", "nsubj", "<&>"]), min_size=n, max_size=n))
    return words, heads, labels


@settings(max_examples=40)
@given(trees())
def test_a_tree_has_every_word_and_arc_once_and_no_text_on_another(drawn):
    words, heads, labels = drawn
    drawing = tree(words, heads, labels, [0.5] * len(words))
    root = ET.fromstring(str(drawing))
    names = sorted(group.get("data-name") for group in root.iter(f"{SVG}g"))
    assert names == sorted(f"{head or None}-{word}" for word, head in enumerate(heads, 1))
    assert len(list(root.iter(f"{SVG}text"))) == 3 * len(words)  # word, label, probability
    assert [text.text for text in root.iter(f"{SVG}text")][: len(words)] == labels
    assert not any(a.overlaps(b) for a, b in combinations(drawing.texts, 2))


def test_arcs_are_as_thick_as_they_are_probable():
    sentence, source = max(toy.part("dev"), key=len), random.Random(0)
    chances = [source.random() for _ in sentence.words]
    root = ET.fromstring(str(tree(sentence.words, sentence.heads, sentence.labels, chances)))
    widths = {}
    for group in root.iter(f"{SVG}g"):
        word = int(group.get("data-name").split("-")[1])
        widths[word] = float(group.find(f"{SVG}polyline").get("stroke-width"))
    by_chance = sorted(range(1, len(sentence) + 1), key=lambda word: chances[word - 1])
    assert [widths[word] for word in by_chance] == sorted(widths.values())
    assert len(set(widths.values())) == len(sentence)


def test_arcs_do_not_run_along_each_other():
    """Two arcs over a common stretch are at different heights, and no two end at the same point."""
    for sentence in toy.part("dev"):
        root = ET.fromstring(str(tree(sentence.words, sentence.heads, sentence.labels)))
        spans, feet = [], []
        for group in root.iter(f"{SVG}g"):
            points = [tuple(map(float, p.split(","))) for p in group.find(f"{SVG}polyline").get("points").split()]
            xs, ys = zip(*points, strict=True)
            feet += {xs[0], xs[-1]}
            spans.append((min(xs), max(xs), min(ys)))
        assert len(feet) == len(set(feet))
        for (left, right, top), (other_left, other_right, other_top) in combinations(spans, 2):
            if left < other_right and other_left < right:
                assert top != other_top


def test_a_matrix_shows_every_probability_that_can_be_seen():
    marginals = [[0.25, 0.75, 0.0], [0.0, 0.001, 0.5], [0.75, 0.0, 0.5], [0.0, 0.249, 0.0]]
    root = ET.fromstring(str(matrix(["a", "<b>", "c"], marginals, heads=[2, 0, 1])))
    cells = {
        group.get("data-name"): float(group.find(f"{SVG}rect").get("fill-opacity")) for group in root.iter(f"{SVG}g")
    }
    assert cells == {"0-1": 0.25, "0-2": 0.75, "1-3": 0.5, "2-1": 0.75, "2-3": 0.5, "3-2": 0.249}
    framed = [rect for rect in root.iter(f"{SVG}rect") if rect.get("stroke")]
    assert [(rect.get("x"), rect.get("y")) for rect in framed] == [("0", "36"), ("18", "0"), ("36", "18")]
    assert [text.text for text in root.iter(f"{SVG}text")] == ["root", "a", "<b>", "c", "a", "<b>", "c"]


def test_a_page_needs_nothing_from_outside_and_escapes_text():
    words = ["<script>alert(1)</script>", "&", "\x00\x1b"]
    drawing = tree(words, [2, 0, 2], ["a", "b", "c"])
    figures = [Figure(drawing, "<i>", [("<more>", [drawing, drawing])])]
    text = "".join(page(figures, "<title>"))
    assert "<script" not in text
    assert "<i>" not in text
    assert "<more>" not in text
    assert "\x00" not in text
    assert text.count("<svg") == 3
    addresses = set(re.findall(r"https?://[^\"' ]*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nothing loads
    assert not re.search(r"(src|href|@import|url\()", text)


def test_a_page_is_written_while_it_is_made():
    drawing = tree(["a"], [0], ["root"])
    pieces = page((Figure(drawing) for _ in iter(int, 1)), "endless")
    assert "endless" in next(pieces)
    assert "<figure>" in next(pieces)


def test_what_does_not_fit_is_refused():
    with pytest.raises(QueryError, match="2 words, 1 heads, 2 labels, 2 prob"):
        tree(["a", "b"], [0], ["root", "x"])
    with pytest.raises(QueryError, match="1 words, 1 heads, 1 labels, 2 prob"):
        tree(["a"], [0], ["root"], [1.0, 1.0])
    with pytest.raises(QueryError, match=r"2 words need 3 rows of 2, not \[2, 2\]"):
        matrix(["a", "b"], [[1, 0], [0, 1]])
