"""Evidence: what a call was given, read as declared."""

import pytest
import torch
import torch.nn.functional as F

import undirected as un
from undirected.errors import QueryError


def tagger(**options):
    return un.UNN(
        un.Variable("x", ("n", 3)), un.Variable("h", ("n", 4), un.Tanh()), un.Variable("y", ("n", 5), un.Softmax()),
        un.Linear("x", "h"), un.Linear("h", "y"),
    ).double()  # fmt: skip


def test_labels_are_one_hot_vectors(double):  # torch's one_hot
    net = tagger()
    labels = torch.tensor([[0, 4, 2], [1, 1, 3]])
    one_hot = F.one_hot(labels, 5).double()
    a = net(observe={"y": labels}, want="x", iterations=2)
    b = net(observe={"y": one_hot}, want="x", iterations=2)
    assert torch.equal(a["x"], b["x"])
    assert torch.equal(a["y"], one_hot)  # want of an observed variable: as it was given


def test_partial_labels(double):  # the same as a Partial of one-hot rows
    net = tagger()
    labels = torch.tensor([[0, -100, 2], [-100, 1, 3]])  # unknown labels may be anything
    known = labels >= 0
    x = torch.randn(2, 3, 3)
    one_hot = F.one_hot(labels.clamp_min(0), 5).double()
    a = net(observe={"x": x, "y": un.Partial(labels, known)}, want="y", iterations=3)["y"]
    b = net(observe={"x": x, "y": un.Partial(one_hot, known[..., None])}, want="y", iterations=3)["y"]
    assert torch.equal(a, b)
    assert torch.equal(a[known], one_hot[known])
    torch.testing.assert_close(a.sum(-1), torch.ones(2, 3))
    assert (a[~known] > 0).all()


def test_labels_of_padding_may_be_anything(double):
    net = tagger()
    lengths = {"n": torch.tensor([3, 1])}
    a = net(observe={"y": torch.tensor([[0, 4, 2], [1, -1, 99]])}, want="x", lengths=lengths)["x"]
    b = net(observe={"y": torch.tensor([[0, 4, 2], [1, 0, 0]])}, want="x", lengths=lengths)["x"]
    assert torch.equal(a, b)


def test_what_is_unknown_or_padding_may_be_nan(double):
    net = tagger()
    x = torch.randn(2, 3, 3)
    x[1, 1:] = torch.nan
    lengths = {"n": torch.tensor([3, 1])}
    y = net(observe={"x": x}, want="y", lengths=lengths)["y"]
    assert torch.equal(y, net(observe={"x": x.nan_to_num()}, want="y", lengths=lengths)["y"])
    y = net(observe={"x": un.Partial(x, known=x.isfinite())}, want="y", iterations=2)["y"]
    assert y.isfinite().all()


def test_all_known_is_observed_and_nothing_known_is_free(double):  # the two ends of Partial
    net = tagger()
    x = torch.randn(2, 3, 3)
    whole = net(observe={"x": x}, order="h y", want="y", iterations=3)["y"]
    everything = net(observe={"x": un.Partial(x, x == x)}, order="h y x", want="y", iterations=3)["y"]
    torch.testing.assert_close(everything, whole)
    y = torch.tensor([[0, 4, 2], [1, 1, 3]])
    free = net(observe={"y": y}, order="h x", want="x", iterations=3)["x"]
    nothing = net(observe={"y": y, "x": un.Partial(x, x != x)}, order="h x", want="x", iterations=3)["x"]
    torch.testing.assert_close(nothing, free)


def test_lengths_alone_can_bind_a_symbol(double):  # prototypes of a given length
    net = tagger()
    x = net(observe={}, init="uniform", order="x", lengths={"n": torch.tensor([2, 4])})["x"]
    assert x.shape == (2, 4, 3)
    assert not x[0, 2:].any()


def test_half_open_symbols(double):  # n+1 and n-1 are bound through n
    net = un.UNN(
        un.Variable("y", ("n+1", "n"), un.Softmax(axis=0)), un.Variable("h", ("n+1", 2)), un.Variable("m", ("n", 2)),
        un.Variable("g", (2, "n-1")), un.Einsum("y[i,j] h[i,d] m[j,d]"), un.Linear("m", "g"),
    )  # fmt: skip
    solution = net(observe={"m": torch.randn(2, 3, 2)}, init="uniform")
    assert [tuple(solution[name].shape) for name in "yhg"] == [(2, 4, 3), (2, 4, 2), (2, 2, 2)]
    torch.testing.assert_close(solution["y"].sum(1), torch.ones(2, 3))


def test_the_batch_follows_the_dtype_of_the_network():
    net = tagger()
    assert net(observe={"y": torch.tensor([[1, 2]])}, want="x")["x"].dtype == torch.float64
    with pytest.raises(QueryError, match=r"x is torch.float32, the network torch.float64. Write .to\(torch.float64\)"):
        net(observe={"x": torch.zeros(1, 2, 3, dtype=torch.float32)})


def test_a_network_without_parameters():  # takes the dtype of what it is given
    class Agreement(un.Factor):
        def score(self, a, b):
            return (a * b).sum(1)

    net = un.UNN(un.Variable("a", (2,), bias=False), un.Variable("b", (2,), un.Tanh(), bias=False), Agreement("a", "b"))
    a = torch.randn(3, 2, dtype=torch.float64)
    torch.testing.assert_close(net(observe={"a": a})["b"], a.tanh())


def test_gradients_reach_what_is_observed(double):  # by hand: y = W x + b
    net = un.UNN(un.Variable("x", (3,)), un.Variable("y", (2,)), un.Linear("x", "y"))
    x = torch.randn(4, 3, requires_grad=True)
    net(observe={"x": x}, want="y")["y"].sum().backward()
    torch.testing.assert_close(x.grad, net.factors["x-y"].weight.sum(0).expand(4, 3))


def test_gradients_reach_the_starting_point(double):
    net = un.UNN(un.Variable("x", (3,)), un.Variable("y", (2,)), un.Linear("x", "y"))
    start = torch.randn(1, 3, requires_grad=True)
    net(observe={}, order="y", want="y", init={"x": start})["y"].sum().backward()
    torch.testing.assert_close(start.grad, net.factors["x-y"].weight.sum(0)[None])
