"""Variables: shapes with symbols, biases, masks, observations in part."""

import pytest
import torch

import undirected as un
from undirected.errors import DeclarationError, QueryError
from undirected.variable import Symbol


@pytest.mark.parametrize(
    ("text", "expected"),
    [("n", ("n", 0)), ("n+1", ("n", 1)), ("n-2", ("n", -2)), (" time + 3 ", ("time", 3)), ("n_1", ("n_1", 0))],
)
def test_symbols(text, expected):  # as the design writes them
    (axis,) = un.Variable("x", (text,)).axes
    assert axis == Symbol(*expected)
    assert Symbol.parse(str(axis), "") == axis


@pytest.mark.parametrize("axis", ["", "2n", "n*2", "n+m", "n+-1", 0, -1, 1.5, True, None])
def test_what_is_no_axis(axis):
    with pytest.raises(DeclarationError, match="is no axis"):
        un.Variable("x", (3, axis))


@pytest.mark.parametrize(
    ("shape", "bias", "expected"),
    [
        ((3, 4), True, (3, 4)),
        ((3, 4), "channel", (3, 1)),
        ((3, 4), False, None),
        (("n", 4), True, (1, 4)),
        ((3, "n"), True, (3, 1)),
        ((3, "n"), "channel", (3, 1)),
        (("n", "m"), True, (1, 1)),
        ((), True, ()),
    ],
)
def test_bias_shapes(shape, bias, expected):  # True: the integer axes; "channel": the first axis; broadcastable
    variable = un.Variable("x", shape, bias=bias)
    assert variable.bias_shape() == expected
    if expected is not None:
        whole = variable.event_shape({"n": 5, "m": 6})
        assert torch.broadcast_shapes(expected, whole) == whole


def test_a_mask_says_which_entries_exist():  # counted by hand
    variable = un.Variable("x", ("n+1", 2, "m"))
    lengths = {"n": torch.tensor([1, 2]), "m": torch.tensor([3, 1])}
    mask = variable.mask(lengths, {"n": 2, "m": 3}).expand(2, 3, 2, 3)
    expected = torch.zeros(2, 3, 2, 3, dtype=torch.bool)
    expected[0, :2, :, :3] = True
    expected[1, :3, :, :1] = True
    assert torch.equal(mask, expected)
    assert un.Variable("y", (3,)).mask(lengths, {"n": 2, "m": 3}) is None
    assert un.Variable("y", ("k",)).mask(lengths, {"n": 2, "m": 3, "k": 4}) is None


@pytest.mark.parametrize("name", ["", "1x", "a b", "a-b", "x.y", None])
def test_names(name):
    with pytest.raises(DeclarationError, match="a name is made of letters"):
        un.Variable(name, (3,))


def test_declarations_are_checked():
    with pytest.raises(DeclarationError, match=r"Variable\('x'\): bias is True, False or 'channel', not 'full'"):
        un.Variable("x", (3,), bias="full")
    with pytest.raises(DeclarationError, match="needs a first axis of fixed size"):
        un.Variable("x", ("n", 3), bias="channel")
    with pytest.raises(DeclarationError, match=r"no regularizer; write for example un.Tanh"):
        un.Variable("x", (3,), un.Tanh)
    with pytest.raises(DeclarationError, match="dropout is a share"):
        un.Variable("x", (3,), dropout=1.0)
    with pytest.raises(DeclarationError, match="dropout keeps the energy falling only where"):
        un.Variable("x", (3,), un.Softmax(), dropout=0.5)


def test_repr_reads_like_the_declaration():
    assert repr(un.Variable("h", (2, "n+1"), un.Tanh(), bias="channel", dropout=0.1)) == (
        "Variable('h', (2, n+1), Tanh(), bias='channel', dropout=0.1)"
    )


def test_partial_broadcasts_what_is_known():
    partial = un.Partial(torch.zeros(4, 2, 3), known=torch.tensor([True, False, True]))
    assert partial.known.shape == (4, 2, 3)
    with pytest.raises(QueryError, match=r"known \(2,\) does not broadcast to value \(4, 3\)"):
        un.Partial(torch.zeros(4, 3), known=torch.ones(2, dtype=torch.bool))
    with pytest.raises(QueryError, match=r"known is a boolean mask, not torch.int64. Write known=mask.bool\(\)"):
        un.Partial(torch.zeros(4, 3), known=torch.ones(3, dtype=torch.long))
