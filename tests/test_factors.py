"""Factors: a hand-written message is the derivative of its score, a score is linear in each variable."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from strategies import Agreement, Triple, networks
from torch import nn

import undirected as un
from undirected.errors import DeclarationError, QueryError


def random_values(net, factor, batch=3, n=3, m=2):
    shapes = [net.variables[name].event_shape({"n": n, "m": m}) for name in factor.variables]
    return [torch.randn(batch, *shape, dtype=torch.float64) for shape in shapes]


@settings(max_examples=60)
@given(networks())
def test_messages_are_derivatives_of_scores(net):  # autograd, for every kind of factor
    for factor in net.factors.values():
        values = random_values(net, factor)
        for target in range(len(values)):
            x = values[target].requires_grad_()
            (expected,) = torch.autograd.grad(factor.score(*values).sum(), x)
            given_values = [v.detach() for v in values]
            given_values[target] = torch.zeros(()).double().expand(x.shape)  # as the engine calls it
            message = factor.message(target, *given_values)
            assert message.shape == x.shape
            torch.testing.assert_close(message, expected, rtol=1e-10, atol=1e-10)
            x.requires_grad_(False)


@settings(max_examples=40)
@given(networks())
def test_scores_are_linear_in_each_variable(net):  # the definition of multilinear
    for factor in net.factors.values():
        values = random_values(net, factor)
        for target in range(len(values)):
            a, b = torch.randn_like(values[target]), torch.randn_like(values[target])
            scores = [factor.score(*values[:target], x, *values[target + 1 :]) for x in (a, b, 2 * a - 3 * b)]
            torch.testing.assert_close(scores[2], 2 * scores[0] - 3 * scores[1], rtol=1e-9, atol=1e-9)
            assert scores[0].shape == (3,)


@settings(max_examples=40)
@given(networks(shifts=False))
def test_a_carried_bias_is_an_added_bias(net):  # the fusion may not change the sum
    for factor in net.factors.values():
        values = random_values(net, factor)
        for target, name in enumerate(factor.variables):
            if net.variables[name].bias is not False:
                bias = net.bias(name)
                expected = factor.message(target, *values) + bias
                torch.testing.assert_close(factor.biased_message(target, bias, *values), expected)


CONVOLUTIONS = [
    (un.Conv1d, (2, 7), (3, 5), {"kernel_size": 3}),
    (un.Conv1d, (4, 8), (6, 3), {"kernel_size": 3, "stride": 3, "padding": 1, "groups": 2}),
    (un.Conv1d, (4, 9), (6, 3), {"kernel_size": 3, "stride": 3, "padding": 1, "groups": 2}),
    (un.Conv1d, (4, 10), (6, 4), {"kernel_size": 3, "stride": 3, "padding": 1, "groups": 2}),
    (un.Conv2d, (1, 28, 28), (3, 12, 12), {"kernel_size": 6, "stride": 2}),
    (un.Conv2d, (2, 9, 8), (2, 3, 6), {"kernel_size": (2, 3), "stride": (3, 1), "dilation": (2, 1), "groups": 2}),
    (un.Conv3d, (1, 4, 5, 6), (2, 2, 2, 6), {"kernel_size": 3, "stride": (2, 3, 1), "padding": (1, 1, 1)}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "a", "b", "options"), CONVOLUTIONS)
def test_convolutions_are_torchs_both_ways(kind, a, b, options, double):  # torch.nn forward, autograd backward
    net = un.UNN(un.Variable("a", a, bias=False), un.Variable("b", b, bias=False), kind("a", "b", **options))
    module = getattr(nn, kind.__name__)(a[0], b[0], bias=False, **options)
    assert net.factors["a-b"].weight.shape == module.weight.shape
    with torch.no_grad():
        module.weight.copy_(net.factors["a-b"].weight)
    x, y = torch.randn(2, *a, requires_grad=True), torch.randn(2, *b)
    expected = module(x)
    assert torch.equal(net(observe={"a": x})["b"], expected)
    (back,) = torch.autograd.grad(expected, x, y)
    torch.testing.assert_close(net(observe={"b": y})["a"], back)


@pytest.mark.parametrize(("kind", "a", "b", "options"), CONVOLUTIONS[:5])
def test_weights_start_as_in_torch(kind, a, b, options):  # same seed, same numbers
    torch.manual_seed(5)
    net = un.UNN(un.Variable("a", a), un.Variable("b", b), kind("a", "b", **options))
    torch.manual_seed(5)
    module = getattr(nn, kind.__name__)(a[0], b[0], bias=False, **options)
    assert torch.equal(net.factors["a-b"].weight, module.weight)


def test_linear_starts_as_in_torch():  # same seed, same numbers
    torch.manual_seed(5)
    net = un.UNN(un.Variable("a", (3, 2)), un.Variable("b", (4,)), un.Linear("a", "b"))
    torch.manual_seed(5)
    assert torch.equal(net.factors["a-b"].weight, nn.Linear(6, 4).weight)


def test_linear_along_and_across_symbolic_axes(double):  # einsum written out
    net = un.UNN(
        un.Variable("a", ("n", 2, "m", 3)), un.Variable("b", (4, "m"), bias=False), un.Linear("a", "b")
    )  # fmt: skip
    a, b = torch.randn(5, 6, 2, 7, 3), torch.randn(5, 4, 7)
    weight = net.factors["a-b"].weight.view(4, 2, 3)
    torch.testing.assert_close(net(observe={"a": a})["b"], torch.einsum("znimj,kij->zkm", a, weight))
    expected = torch.einsum("zkm,kij->zimj", b, weight)[:, None].expand_as(a)
    found = net(observe={"b": b}, lengths={"n": torch.full((5,), 6)})["a"]
    torch.testing.assert_close(found, expected)


def test_einsum_is_torchs(double):  # torch.einsum of the whole product
    net = un.UNN(
        un.Variable("y", ("n+1", "n")), un.Variable("h", ("n+1", 5)), un.Variable("m", ("n", 7)),
        un.Einsum("y[i,j] h[i,d] U[d,r] V[r,e] m[j,e]", sizes={"r": 2}),
    )  # fmt: skip
    factor = net.factors["y-h-m"]
    y, h, m = torch.randn(3, 5, 4), torch.randn(3, 5, 5), torch.randn(3, 4, 7)
    expected = torch.einsum("zij,zid,dr,re,zje->z", y, h, factor.U, factor.V, m)
    torch.testing.assert_close(factor.score(y, h, m), expected)
    assert (factor.U.shape, factor.V.shape) == ((5, 2), (2, 7))


@pytest.mark.parametrize("product", ["x[i]", "x[i] W[i]", "x[i] W[]", "x[i] y[j]", "x[i] W[i] y[j]"])
def test_einsums_with_indices_of_their_own(product, double):  # sums, outer sums, weights alone
    net = un.UNN(un.Variable("x", (3,)), un.Variable("y", (2,)), un.Einsum(product, name="f"), un.Linear("x", "y"))
    factor = net.factors["f"]
    values = [torch.randn(4, 3), torch.randn(4, 2)][: len(factor.variables)]
    x = values[0]
    weighted = x * factor.W if "W" in product else x
    expected = weighted.sum(1) * (values[1].sum(1) if len(values) > 1 else 1)
    torch.testing.assert_close(factor.score(*values), expected)
    (derivative,) = torch.autograd.grad(factor.score(x.requires_grad_(), *values[1:]).sum(), x)
    torch.testing.assert_close(factor.message(0, torch.zeros_like(x), *values[1:]), derivative)


def test_a_shift_is_a_constant_added_to_the_variable(double):  # algebra: (x + P) W y
    table = torch.randn(10, 3)
    net = un.UNN(
        un.Variable("x", ("n", 3)), un.Variable("y", ("n", 2), bias=False), un.Linear("x", "y", shift={"x": table})
    )  # fmt: skip
    x, y = torch.randn(2, 4, 3), torch.randn(2, 4, 2)
    weight = net.factors["x-y"].weight
    torch.testing.assert_close(net(observe={"x": x})["y"], (x + table[:4]) @ weight.T)
    torch.testing.assert_close(net(observe={"y": y})["x"], y @ weight)
    torch.testing.assert_close(
        net.energy_terms({"x": x, "y": y})["x-y"], -torch.einsum("znd,ed,zne->z", x + table[:4], weight, y)
    )
    y = net(observe={}, order="y", lengths={"n": torch.tensor([4, 2])})["y"]  # x is zero, its shift is not
    torch.testing.assert_close(y[0], table[:4] @ weight.T)
    assert not y[1, 2:].any()
    assert "factors.x-y.shift_x" in net.state_dict()


def test_a_learned_shift_is_a_parameter(double):
    net = un.UNN(
        un.Variable("x", (3,)), un.Variable("y", (2,)), un.Linear("x", "y", shift={"x": nn.Parameter(torch.ones(3))})
    )  # fmt: skip
    net(observe={"x": torch.zeros(1, 3)}, want="y")["y"].sum().backward()
    torch.testing.assert_close(net.factors["x-y"].shift_x.grad, net.factors["x-y"].weight.sum(0))


def test_tied_factors_share_their_weights(double):  # a recurrent network written in torch
    step = un.Linear("h0", "h1")
    net = un.UNN(
        *[un.Variable(f"h{i}", (4,), un.Tanh(), bias=False) for i in range(4)],
        step, step.tied("h1", "h2"), step.tied("h2", "h3"),
    )  # fmt: skip
    assert list(net.state_dict()) == ["factors.h0-h1.weight"]
    h = torch.randn(5, 4)
    found = net(observe={"h0": h}, order="h1 h2 h3", want="h3")["h3"]
    for _ in range(3):
        h = F.linear(h, step.weight).tanh()
    assert torch.equal(found, h)
    found.sum().backward()
    assert step.weight.grad is not None


def test_directed_feeds_a_message(double):  # the module itself
    module = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    net = un.UNN(
        un.Variable("x", (3,)), un.Variable("y", (2,), un.Softmax(), bias=False), un.Directed(module, "x", "y")
    )
    x = torch.randn(5, 3)
    assert torch.equal(net(observe={"x": x})["y"], module(x).softmax(-1))
    assert "factors.x-y.module.0.weight" in net.state_dict()
    with pytest.raises(QueryError, match=r"x feeds the directed factor 'x-y', so it must be observed whole"):
        net(observe={"y": torch.tensor([0])})
    net = un.UNN(un.Variable("x", (3,)), un.Variable("y", (5,)), un.Directed(module, "x", "y"))
    with pytest.raises(QueryError, match="the module gives"):
        net(observe={"x": x})


def test_factors_of_ones_own_need_only_a_score(double):  # the same as the Einsum of the same product
    parts = [un.Variable("a", (3,)), un.Variable("b", (3,), un.Tanh()), un.Variable("c", (3,), un.Softmax())]
    own = un.UNN(*parts, Agreement("a", "b"), Triple("a", "b", "c"))
    same = un.UNN(*parts, un.Einsum("a[i] b[i] W[]"), un.Einsum("a[i] b[j] c[k] W[]"))
    with torch.no_grad():
        same.factors["a-b"].W.fill_(0.5)
        same.factors["a-b-c"].W.fill_(0.3)
    a = torch.randn(4, 3)
    for name in ("b", "c"):
        kwargs = {"observe": {"a": a}, "want": name, "order": "b c b", "iterations": 3}
        torch.testing.assert_close(own(**kwargs)[name], same(**kwargs)[name])


def test_a_factor_with_a_constructor_of_its_own_can_be_shown():
    class Scaled(un.Factor):
        def __init__(self, a, b, size, **rest):
            super().__init__(a, b, **rest)
            self.weight = nn.Parameter(torch.tensor(float(size)))

        def score(self, a, b):
            return self.weight * (a * b).sum(1)

    net = un.UNN(un.Variable("a", (3,)), un.Variable("b", (3,)), Scaled("a", "b", 2.0))
    assert "Scaled" in repr(net)


def test_a_variable_twice_is_not_linear():
    for make in (lambda: un.Linear("x", "x"), lambda: un.Einsum("x[i] x[j] W[i,j]")):
        with pytest.raises(DeclarationError, match=r"twice, so (its|the) score is not linear in it"):
            make()
