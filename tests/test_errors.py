# ruff: noqa: E501 (messages stay on one line, so that they can be searched for)
"""Bad input: each case is refused before any work is done, and the message says what to do."""

import pytest
import torch

import undirected as un
from undirected.errors import DeclarationError, QueryError, UnsafeGroup


def net():
    return un.UNN(
        un.Variable("x", ("n", 3)), un.Variable("h", ("n", 4), un.Tanh()), un.Variable("y", (5,), un.Softmax()),
        un.Linear("x", "h"), un.Linear("h", "y"),
    )  # fmt: skip


X = torch.zeros(2, 6, 3)
Y = torch.zeros(2, dtype=torch.long)
N = {"n": torch.tensor([6, 6])}


def broken(value, *index):
    x = X.clone()
    x[index] = value
    return x


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observe": {"z": X}}, r"observe: unknown variable 'z'; known are 'x', 'h', 'y'\."),
        ({"observe": {"x": X}, "want": "z"}, r"want: unknown variable 'z'; known are 'x', 'h', 'y'\."),
        ({"observe": {"x": X}, "order": "h z"}, r"order: unknown variable 'z'; known are 'x', 'h', 'y'\."),
        ({"observe": {"x": X}, "init": {"z": "zeros"}}, r"init: unknown variable 'z'; known are"),
        ({"observe": {"x": X}, "lengths": {"m": Y + 1}}, r"lengths: unknown symbol 'm'; known are 'n'\."),
        ({"observe": {"x": X}, "order": "x h y"}, r"order: updates x, which is observed. Leave it out, or observe an un.Partial"),
        ({"observe": X}, r"observe: takes values by name, such as observe=\{'x': x\}, not a Tensor"),
        ({"observe": {"x": X + 1j}}, r"observe: x is torch.complex64; energies are of real numbers"),
        ({"observe": {"x": X}, "lengths": {"n": 3}}, r"lengths: n is a int; give a tensor, one number per example"),
        ({"observe": {"x": X.tolist()}}, r"observe: x is a list; give a tensor, or an un.Partial"),
        ({"observe": {"x": X[0]}}, r"observe: x \(n, 3\) got the shape \(batch, 3\); it takes \(batch, n, 3\)"),
        ({"observe": {"x": torch.zeros(2, 6, 4)}}, r"got the shape \(batch, 6, 4\); it takes \(batch, n, 3\)"),
        ({"observe": {"x": broken(torch.nan, 1, 4, 2)}}, r"x has NaN or infinity, first at \[1, 4, 2\] \(example 1\).*un.Partial\(x, known=x.isfinite\(\)\)"),
        ({"observe": {"x": broken(torch.inf, 0, 0, 0)}}, r"x has NaN or infinity, first at \[0, 0, 0\]"),
        ({"observe": {"x": broken(-torch.inf, 0, 5, 1)}}, r"x has NaN or infinity, first at \[0, 5, 1\]"),
        ({"observe": {"x": X, "y": Y - 1}}, r"observe: y: labels must be from 0 to 4, but they are from -1 to -1"),
        ({"observe": {"x": X, "y": Y + 5}}, r"observe: y: labels must be from 0 to 4, but they are from 5 to 5"),
        ({"observe": {"x": X.long()}}, r"observe: x: Identity\(\) has no integer labels; give floating point values"),
        ({"observe": {"x": X[:0]}}, r"the batch is empty: x has no examples"),
        ({"observe": {"x": X, "y": Y[:1]}}, r"batch sizes disagree: x has 2, y has 1"),
        ({"observe": {"x": X, "h": torch.zeros(2, 5, 4)}}, r"h \(n, 4\) of shape \(5, 4\) makes n = 5, but n is 6 elsewhere"),
        ({"observe": {"x": X}, "lengths": {"n": torch.tensor([7, 1])}}, r"lengths: n must be from 1 to 6, but is from 1 to 7"),
        ({"observe": {"x": X}, "lengths": {"n": torch.tensor([0, 1])}}, r"lengths: n must be from 1 to 6, but is from 0 to 1"),
        ({"observe": {"x": X}, "lengths": {"n": torch.tensor([6])}}, r"batch sizes disagree: x has 2, lengths\['n'\] has 1"),
        ({"observe": {"x": X}, "lengths": {"n": torch.tensor([1.0, 2.0])}}, r"one whole number per example, got torch.float32 \(2,\)"),
        ({"observe": {"y": Y}}, r"nothing observed tells how large n is. Observe a variable with that axis, or give lengths="),
        ({"observe": {"x": X.double()}}, r"x is torch.float64, the network torch.float32. Write .to\(torch.float32\)"),
        ({"observe": {"x": X}, "init": "ones"}, r"init: 'ones' is none of zeros, uniform, random, and no tensor"),
        ({"observe": {"x": X}, "init": {"x": "uniform"}}, r"init: x is observed, so it needs no starting point"),
        ({"observe": {"x": X}, "init": {"h": torch.zeros(2, 6, 4).double()}}, r"init: h is torch.float64, the network torch.float32"),
        ({"observe": {"x": X}, "init": {"h": torch.full((2, 6, 4), torch.nan)}}, r"init: h has NaN or infinity"),
        ({"observe": {"x": X}, "iterations": 0}, r"iterations: must be at least 1"),
        ({"observe": {"x": X}, "want": "y", "order": "h"}, r"want: y is neither observed nor updated. Add it to the order, which updates h"),
    ],
)  # fmt: skip
def test_bad_questions(arguments, message):
    with pytest.raises(QueryError, match=message):
        net()(**arguments)


def test_an_unsafe_group():
    with pytest.raises(UnsafeGroup, match=r"\(h y\) are updated together, but h and y both belong to factor 'h-y'"):
        net()(observe={"x": X}, order="(h y)")


def test_a_graph_in_pieces():
    pieces = un.UNN(
        un.Variable("x", (3,)), un.Variable("h", (4,)), un.Variable("far", (2,)), un.Variable("away", (2,)),
        un.Linear("x", "h"), un.Linear("far", "away"),
    )  # fmt: skip
    message = (
        r"want: far cannot be reached from what is observed \(x\): no chain of factors joins them. Reached are x, h"
    )
    with pytest.raises(QueryError, match=message):
        pieces(observe={"x": torch.zeros(1, 3)}, want="far")
    solution = pieces(observe={"x": torch.zeros(1, 3)})  # without want: what can be reached
    assert set(solution) == {"x", "h"}


def test_want_of_what_is_observed_gives_it_back():
    x = torch.randn(2, 6, 3)
    solution = net()(observe={"x": x}, want=["x", "y"])
    assert torch.equal(solution["x"], x)
    assert torch.equal(net()(observe={"x": x}, want="x")["x"], x)


def test_what_was_not_wanted():
    solution = net()(observe={"x": X}, want="y")
    with pytest.raises(KeyError, match=r"h was not wanted, so its last updates were left out. Add it to want="):
        solution["h"]
    with pytest.raises(KeyError, match="unknown variable 'z'"):
        solution["z"]


def test_an_unknown_factor():
    with pytest.raises(KeyError, match="unknown factor 'x-y'; known are 'x-h', 'h-y'"):
        net().factors["x-y"]


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (un.Linear("x", "z"), r"Linear\('x', 'z'\): unknown variable 'z'; known are 'x', 'h', 's', 'p'"),
        (un.Conv2d("x", "h", 6, stride=2), r"Conv2d\('x', 'h'\): x is \(1, 28, 28\), kernel 6 and stride 2 make \(32, 12, 12\), but h is declared \(32, 11, 11\)"),
        (un.Conv2d("x", "s", 3), r"s is \(n, 4\), but a Conv2d joins variables of shape \(channels, size, size\)"),
        (un.Conv2d("x", "h", 29), r"an axis of size 28 with padding 0 is smaller than the kernel 29"),
        (un.Conv2d("x", "h", 3, groups=2), r"groups 2 does not divide channels \[1, 32\]"),
        (un.Linear("p", "h"), r"p \(n, n\) has an axis twice. Write it as an un.Einsum"),
        (un.Einsum("x[i] s[j,k]"), r"x\[i\] needs one index of its own for each axis of x \(1, 28, 28\)"),
        (un.Einsum("s[i,j] p[j,i]"), r"index j is n in p \(n, n\), but 4 elsewhere"),
        (un.Einsum("s[i,j] W[i,j]"), r"the weight W has index i, which has no fixed size \(n\)"),
        (un.Einsum("s[i,j] W[j,r]"), r"the weight W has index r, which no variable has. Give sizes=\{'r': ...\}"),
        (un.Einsum("a[i] b[j]"), r"none of \['a', 'b'\] is a variable; they are \['x', 'h', 's', 'p'\]"),
    ],
)  # fmt: skip
def test_factors_that_do_not_fit(factor, message):
    variables = [
        un.Variable("x", (1, 28, 28)), un.Variable("h", (32, 11, 11)), un.Variable("s", ("n", 4)), un.Variable("p", ("n", "n"))
    ]  # fmt: skip
    with pytest.raises(DeclarationError, match=message):
        un.UNN(*variables, factor)


@pytest.mark.parametrize("product", ["s[i", "s(i)", "", "s[i] + q[i]", "2 s[i]"])
def test_products_that_cannot_be_read(product):
    with pytest.raises(DeclarationError, match=r"Einsum\("):
        un.Einsum(product)


def test_convolution_settings():
    for options in (
        {"kernel_size": 0},
        {"kernel_size": (3, 3)},
        {"kernel_size": 3, "stride": 0},
        {"kernel_size": 2.5},
    ):
        with pytest.raises(DeclarationError, match="is a whole number of at least"):
            un.Conv1d("x", "h", **options)
    with pytest.raises(DeclarationError, match="axis n has no fixed size, so its stride must be 1, not 2"):
        un.UNN(un.Variable("x", (1, "n")), un.Variable("h", (1, "n")), un.Conv1d("x", "h", 3, stride=2))
