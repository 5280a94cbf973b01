"""Pictures: well-formed, complete, and without a text on top of anything. Counts come from the plan itself."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import undirected as un
from undirected.draw import draw
from undirected.draw.canvas import Drawing
from undirected.errors import QueryError
from undirected.plan import Plan

SVG = "{http://www.w3.org/2000/svg}"


def chain() -> un.UNN:
    return un.UNN(
        un.Variable("x", (1, 28, 28), un.Tanh(), bias=False),
        un.Variable("h1", (32, 12, 12), un.Tanh(), bias="channel"),
        un.Variable("h2", (64, 5, 5), un.Tanh(), bias="channel"),
        un.Variable("y", (10,), un.Softmax()),
        un.Conv2d("x", "h1", kernel_size=6, stride=2),
        un.Conv2d("h1", "h2", kernel_size=4, stride=2),
        un.Linear("h2", "y"),
    )


def attention() -> un.UNN:
    return un.UNN(
        *(un.Variable(name, ("n", 8)) for name in "xqkv"),
        un.Variable("s", ("n", "n"), un.Softmax()),
        un.Variable("h", ("n", 8)),
        *(un.Linear("x", name) for name in "qkv"),
        un.Einsum("s[i,j] q[i,d] k[j,d]"),
        un.Einsum("s[i,j] v[j,d] h[i,d]"),
    )


def parser() -> un.UNN:
    return un.UNN(
        un.Variable("x", ("n+1", 16)),
        un.Variable("h", ("n+1", 8), un.Tanh()),
        un.Variable("m", ("n", 8), un.Tanh()),
        un.Variable("y", ("n+1", "n"), un.Softmax(axis=0)),
        un.Directed(nn.Linear(16, 8), "x", "h"),
        un.Directed(nn.Linear(16, 8), "x", "m"),
        un.Einsum("y[i,j] h[i,d] V[d,e] m[j,e]"),
    )


def recurrent(length: int = 5) -> un.UNN:
    times = range(1, length + 1)
    reads, steps = un.Linear("x_1", "h_1"), un.Linear("h_1", "h_2")
    return un.UNN(
        *(un.Variable(f"x_{t}", (3,)) for t in times),
        *(un.Variable(f"h_{t}", (4,), un.Tanh()) for t in times),
        un.Variable("y", (2,), un.Softmax()),
        reads,
        *(reads.tied(f"x_{t}", f"h_{t}") for t in times[1:]),
        steps,
        *(steps.tied(f"h_{t}", f"h_{t + 1}") for t in times[1:-1]),
        un.Linear(f"h_{length}", "y"),
    )


def stacked(length: int = 4) -> un.UNN:
    """Two layers through time, with an energy of one variable alone and two factors on the same pair."""
    up = [un.Linear("x1", "g1"), un.Linear("g1", "h1"), un.Linear("h1", "y1")]
    on = [un.Linear("g1", "g2"), un.Linear("h1", "h2")]
    return un.UNN(
        *(un.Variable(f"{name}{t}", (4,), un.Tanh()) for name in "xghy" for t in range(1, length + 1)),
        *up,
        *(f.tied(*(f"{name[0]}{t}" for name in f.variables)) for f in up for t in range(2, length + 1)),
        *on,
        *(f.tied(*(f"{f.variables[0][0]}{t + i}" for i in (0, 1))) for f in on for t in range(2, length)),
        un.Energy(lambda h: h.pow(4).sum(1), "h1", name="prior"),
        un.Linear("h2", "y2", name="again"),
    )


def star() -> un.UNN:
    leaves = [f"a_leaf_with_a_long_name_{i}" for i in range(7)]
    return un.UNN(
        un.Variable("center", (4,)),
        *(un.Variable(name, (1, 2, 3, 4), un.Sigmoid()) for name in leaves),
        *(un.Linear("center", name) for name in leaves),
        un.Energy(lambda x: x.pow(4).sum(1), "center", name="prior"),
    )


def ten() -> un.UNN:
    return un.UNN(
        *(un.Variable(name, (i + 1,), un.Tanh()) for i, name in enumerate("abcdefghij")),
        *(un.Linear(*pair) for pair in ("ab", "ac", "bd", "cd", "ce", "df", "eg", "fh", "gh", "hi", "hj", "ai", "cj")),
    )


def pieces() -> un.UNN:
    return un.UNN(*(un.Variable(name, (2,)) for name in "abcd"), un.Linear("a", "b"))


NETWORKS = {f.__name__: f for f in (chain, attention, parser, recurrent, stacked, star, ten, pieces)}


@st.composite
def networks(draw_from: st.DrawFn) -> un.UNN:
    """Any graph of up to nine variables, with factors of one to three of them, several on the same ones too."""
    names = [f"{letter}{i}" for i, letter in enumerate("vhlongname"[: draw_from(st.integers(1, 9))])]
    groups = draw_from(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True), max_size=12))
    factors = [
        un.Einsum(
            " ".join(f"{name}[i{name}]" for name in group) + f" W{'[' + ','.join('i' + n for n in group) + ']'}",
            name=f"f{i}",
        )
        for i, group in enumerate(groups)
    ]
    return un.UNN(*(un.Variable(name, (2,), un.Tanh()) for name in names), *factors)


def parts(drawing: Drawing, kind: str) -> list[ET.Element]:
    """The groups of a kind, such as `message computed`."""
    root = ET.fromstring(str(drawing))
    return [g for g in root.iter(f"{SVG}g") if set(kind.split()) <= set(g.get("class", "").split())]


def assert_readable(drawing: Drawing) -> None:
    """No text on a text or half on a node (a name lies inside its own); no node on a node; all on the page."""
    for one, other in combinations(drawing.texts, 2):
        assert not one.overlaps(other), (one, other)
    for one, other in combinations(drawing.nodes, 2):
        assert not one.overlaps(other), (one, other)
    for text in drawing.texts:
        for node in drawing.nodes:
            inside = node.left <= text.left and text.right <= node.right and node.top <= text.top
            assert not text.overlaps(node) or (inside and text.bottom <= node.bottom), (text, node)
    left, top, width, height = map(float, ET.fromstring(str(drawing)).get("viewBox", "").split())
    for box in (*drawing.texts, *drawing.nodes):
        assert left <= box.left < box.right <= left + width
        assert top <= box.top < box.bottom <= top + height


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_every_variable_and_factor_appears(make):
    net = make()
    drawing = un.draw(net)
    assert [g.get("data-name") for g in parts(drawing, "variable")] == list(net.variables)
    assert [g.get("data-name") for g in parts(drawing, "factor")] == list(net.factors)
    edges = sum(len(factor.variables) for factor in net.factors.values())
    assert len(list(ET.fromstring(str(drawing)).iter(f"{SVG}polyline"))) == edges


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_nothing_overlaps_in_a_graph(make):
    assert_readable(un.draw(make()))


@settings(max_examples=40, deadline=None)
@given(networks())
def test_nothing_overlaps_in_any_graph(net):
    assert_readable(un.draw(net))


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_edges_pass_no_other_node(make):
    net = make()
    drawing = un.draw(net)
    lines = [line.get("points", "") for line in ET.fromstring(str(drawing)).iter(f"{SVG}polyline")]
    node = dict(zip([*net.factors, *net.variables], drawing.nodes, strict=True))
    joined = [(factor.name, name) for factor in net.factors.values() for name in factor.variables]
    for ends, points in zip(joined, lines, strict=True):
        start, end = (tuple(map(float, point.split(","))) for point in points.split())
        assert not [name for name, box in node.items() if name not in ends and box.meets(start, end)]


def test_a_chain_is_drawn_on_a_level_from_left_to_right():
    drawing = un.draw(chain())
    centers = [((node.left + node.right) / 2, (node.top + node.bottom) / 2) for node in drawing.nodes]
    assert len({round(y, 3) for _, y in centers}) == 1
    assert [x for x, _ in centers[3:]] == sorted(x for x, _ in centers[3:])  # factors come first


def test_time_runs_to_the_right_with_inputs_below():
    drawing = un.draw(recurrent())
    names = [g.get("data-name") for g in parts(drawing, "variable")]
    node = dict(zip(names, drawing.nodes[-len(names) :], strict=True))
    for t in range(1, 6):
        assert node[f"x_{t}"].left == node[f"h_{t}"].left
        assert node[f"x_{t}"].top > node[f"h_{t}"].bottom
    assert node["h_1"].top == node["h_5"].top
    assert node["h_1"].right < node["h_2"].left


def test_factors_that_share_weights_share_a_colour():
    drawing = un.draw(recurrent())
    color = {g.get("data-name"): g.find(f"{SVG}rect").get("fill") for g in parts(drawing, "factor")}
    assert color["x_1-h_1"] == color["x_4-h_4"] != color["h_1-h_2"] == color["h_3-h_4"] != color["h_5-y"]


def test_a_directed_factor_has_an_arrow():
    assert str(un.draw(parser())).count("<polygon") == 2
    assert "<polygon" not in str(un.draw(attention()))


def test_observed_variables_are_shaded():
    drawing = un.draw(chain(), observed=["x", "y"])
    fills = {g.get("data-name"): g.find(f"{SVG}rect").get("fill") for g in parts(drawing, "variable")}
    assert fills["x"] == fills["y"] != fills["h1"] == fills["h2"]
    assert str(un.draw(chain(), observed="x y")) == str(drawing)


def test_names_are_escaped():
    net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (2,)), un.Linear("x", "y", name="<a & 'b' \"c\">"))
    drawing = un.draw(net)
    assert [g.get("data-name") for g in parts(drawing, "factor")] == ["<a & 'b' \"c\">"]
    assert "<a & 'b' \"c\">" in [text.text for text in ET.fromstring(str(drawing)).iter(f"{SVG}text")]
    plan = net.plan(observe=["x"], want="y")
    assert [g.get("data-name") for g in parts(un.draw(plan), "message")] == ["<a & 'b' \"c\">"]


def test_notebooks_show_it():
    drawing = un.draw(chain())
    assert drawing._repr_svg_() == str(drawing)
    assert str(drawing).startswith("<svg xmlns=")


def test_it_is_saved_as_svg_alone(tmp_path):
    drawing = un.draw(chain())
    assert drawing.save(tmp_path / "graph.svg").read_text(encoding="utf-8") == str(drawing)
    with pytest.raises(ValueError, match=re.escape("written as .svg, not 'graph.png'. Write 'graph.svg'.")):
        drawing.save(tmp_path / "graph.png")


def test_what_cannot_be_drawn_is_named():
    with pytest.raises(QueryError, match="observed: unknown variable 'z'; known are 'x', 'h1', 'h2', 'y'"):
        un.draw(chain(), observed=["z"])
    with pytest.raises(TypeError, match="takes a network or a plan, not Linear"):
        draw(nn.Linear(2, 2))
    with pytest.raises(QueryError, match="a plan knows what is observed"):
        un.draw(chain().plan(observe=["x"]), observed=["x"])


def plans() -> dict[str, Plan]:
    seen = un.Partial(torch.zeros(1, 1, 28, 28), known=torch.ones(28, 28, dtype=torch.bool))
    quartic = un.Energy(lambda h: h.pow(4).sum(1), "hidden", name="quartic")
    inner = un.UNN(
        *(un.Variable(name, (3,)) for name in ("x", "hidden", "y")),
        un.Linear("x", "hidden"),
        un.Linear("hidden", "y"),
        quartic,
    )
    return {
        "chain": chain().plan(observe=["x"], want="y", order="h1 h2 y h2", iterations=3),
        "prototype": chain().plan(observe=["y"], want="x", order="h2 h1 x h1", iterations=10),
        "part": chain().plan(observe={"x": seen}, want=["x", "y"], iterations=2),
        "attention": attention().plan(observe=["x"], want="h", order="q k v s h", iterations=3),
        "parser": parser().plan(observe=["x"], want="y", order="h m y", iterations=3),
        "recurrent": recurrent().plan(observe=[f"x_{t}" for t in range(1, 6)], want="y", iterations=4),
        "started": chain().plan(observe=["x"], want="y", init="random", iterations=2),
        "repeated": inner.plan(observe=["x"], want="y", order="hidden y y", iterations=2),
        "nothing": chain().plan(observe=[], want="y", order="x h1 h2 y", iterations=2),
    }


PLANS = plans()


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plans_picture_counts_what_its_savings_count(plan):
    drawing, savings = un.draw(plan), plan.savings
    for fate in ("computed", "hoisted", "reused", "skipped"):
        assert len(parts(drawing, f"message {fate}")) == getattr(savings, fate), fate
    solid = [g for g in parts(drawing, "message computed") if "stroke-dasharray" not in ET.tostring(g, "unicode")]
    assert len(solid) == savings.computed
    for fate in ("hoisted", "reused"):
        assert all("stroke-dasharray" in ET.tostring(g, "unicode") for g in parts(drawing, f"message {fate}"))
    assert len(parts(drawing, "update")) == len(plan.updates)
    assert len(parts(drawing, "update pruned")) == plan.live.count(False)
    assert len(parts(drawing, "update updated")) == len(plan.executed)
    assert f"{savings}." in str(drawing)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_nothing_overlaps_in_a_plan(plan):
    assert_readable(un.draw(plan))


def test_what_is_given_stands_at_the_left():
    drawing = un.draw(PLANS["part"])
    assert [g.get("data-name") for g in parts(drawing, "given")] == ["x"]
    assert parts(un.draw(PLANS["nothing"]), "given") == []
    # What h1 starts from is replaced before anything is computed from it.
    assert [g.get("data-name") for g in parts(un.draw(PLANS["started"]), "given")] == ["x", "h2", "y"]
