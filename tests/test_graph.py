"""The graph: energies by name, and one sweep from zeros is the feed-forward network."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from strategies import cases
from torch import nn

import undirected as un
from undirected.errors import DeclarationError, QueryError


def small():
    return un.UNN(
        un.Variable("x", (3,), un.Tanh()), un.Variable("h", (4,), un.ReLU()), un.Variable("y", (2,), un.Softmax()),
        un.Linear("x", "h"), un.Linear("h", "y"),
    )  # fmt: skip


def test_energy_by_hand(double):  # E = sum [Psi - <b, x>] - sum score, written out
    net = small()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_()
    x, h, y = torch.rand(5, 3) * 2 - 1, torch.rand(5, 4), torch.rand(5, 2).softmax(-1)
    terms = net.energy_terms({"x": x, "h": h, "y": y})
    p, q = (1 + x) / 2, (1 - x) / 2
    W, V = net.factors["x-h"].weight, net.factors["h-y"].weight
    expected = {
        "x": (p * p.log() + q * q.log()).sum(1) - x @ net.bias_x,
        "h": 0.5 * h.square().sum(1) - h @ net.bias_h,
        "y": (y * y.log()).sum(1) - y @ net.bias_y,
        "x-h": -((x @ W.T) * h).sum(1),
        "h-y": -((h @ V.T) * y).sum(1),
    }
    assert terms.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(terms[name], expected[name])
    torch.testing.assert_close(net.energy({"x": x, "h": h, "y": y}), sum(expected.values()))


def test_energy_outside_a_domain_is_infinite():
    net = small()
    energy = net.energy({"x": torch.tensor([[2.0, 0, 0]]), "h": torch.zeros(1, 4), "y": torch.tensor([0])})
    assert energy.item() == torch.inf


@settings(max_examples=40)
@given(cases(inits=["zeros"], energies=True))
def test_a_solutions_energy_is_the_networks(case):  # two ways to the same number
    solution = case()
    if len(solution.values) == len(case.net.variables):
        energy = case.net.energy(solution.values, lengths=case.lengths)
        torch.testing.assert_close(solution.energy, energy, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(case(trace=True).trace.energy[-1], energy, rtol=1e-10, atol=1e-10)


def test_one_sweep_from_zeros_is_the_feed_forward_network():  # torch.nn, bit for bit: the operations are the same
    net = un.UNN(
        un.Variable("x", (1, 28, 28), un.Tanh(), bias=False),
        un.Variable("h1", (32, 12, 12), un.Tanh(), bias="channel"),
        un.Variable("h2", (64, 5, 5), un.ReLU(), bias="channel"), un.Variable("y", (10,), un.Softmax()),
        un.Conv2d("x", "h1", kernel_size=6, stride=2), un.Conv2d("h1", "h2", kernel_size=4, stride=2),
        un.Linear("h2", "y"),
    )  # fmt: skip
    with torch.no_grad():
        for name in ("h1", "h2", "y"):
            net.bias(name).normal_()
    plain = nn.Sequential(
        nn.Conv2d(1, 32, 6, 2), nn.Tanh(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1600, 10)
    )
    with torch.no_grad():
        for place, factor, name in ((0, "x-h1", "h1"), (2, "h1-h2", "h2"), (5, "h2-y", "y")):
            plain[place].weight.copy_(net.factors[factor].weight)
            plain[place].bias.copy_(net.bias(name).flatten())
    x = torch.rand(4, 1, 28, 28)
    solution = net(observe={"x": x}, want="y", order="h1 h2 y")
    assert torch.equal(solution.preactivation["y"], plain(x))
    assert torch.equal(solution["y"], plain(x).softmax(-1))
    labels = torch.tensor([0, 3, 9, 3])
    un.fenchel_young(solution, "y", labels).backward()
    F.cross_entropy(plain(x), labels).backward()
    torch.testing.assert_close(net.factors["x-h1"].weight.grad, plain[0].weight.grad)
    torch.testing.assert_close(net.bias_h2.grad.flatten(), plain[2].bias.grad)


@pytest.mark.parametrize(
    ("regularizer", "activation"),
    [
        (un.Identity(), nn.Identity()),
        (un.ReLU(), nn.ReLU()),
        (un.LeakyReLU(0.2), nn.LeakyReLU(0.2)),
        (un.Sigmoid(), nn.Sigmoid()),
        (un.Tanh(), nn.Tanh()),
        (un.HardTanh(), nn.Hardtanh()),
        (un.SoftThreshold(0.5), nn.Softshrink(0.5)),
        (un.Softmax(), nn.Softmax(-1)),
    ],
    ids=repr,
)
def test_activations_are_torchs(regularizer, activation):  # torch.nn, bit for bit
    net = un.UNN(
        un.Variable("x", ("n", 3)), un.Variable("h", ("n", 5), regularizer), un.Variable("y", ("n", 2)),
        un.Linear("x", "h"), un.Linear("h", "y"),
    )  # fmt: skip
    first, last = nn.Linear(3, 5), nn.Linear(5, 2)
    net.load_state_dict(
        {
            "bias_x": torch.zeros(1, 3), "bias_h": first.bias[None], "bias_y": last.bias[None],
            "factors.x-h.weight": first.weight, "factors.h-y.weight": last.weight,
        }
    )  # fmt: skip
    x = torch.randn(4, 6, 3)
    assert torch.equal(net(observe={"x": x}, want="y", order="h y")["y"], last(activation(first(x))))


def test_names_are_read_only():
    net = small()
    assert list(net.variables) == ["x", "h", "y"]
    assert list(net.factors) == net.factors.keys() == ["x-h", "h-y"]
    assert net.factors["x-h"] is net.factors.values()[0]
    assert "x-h" in net.factors
    assert len(net.factors) == 2
    with pytest.raises(TypeError):
        net.variables["z"] = un.Variable("z", (2,))
    with pytest.raises(KeyError, match="unknown factor 'h-x'; known are 'x-h', 'h-y'"):
        net.factors["h-x"]


def test_declarations_that_do_not_fit():
    x, h = un.Variable("x", (3,)), un.Variable("h", (4,))
    with pytest.raises(DeclarationError, match="two variables called 'x'"):
        un.UNN(x, h, un.Variable("x", (2,)))
    with pytest.raises(DeclarationError, match=r"there is a factor 'x-h' already. Give it a name="):
        un.UNN(x, h, un.Linear("x", "h"), un.Linear("x", "h"))
    with pytest.raises(DeclarationError, match=r"neither a variable nor a factor"):
        un.UNN(x, torch.nn.Linear(3, 4))
    with pytest.raises(DeclarationError, match="at least one variable"):
        un.UNN()
    with pytest.raises(DeclarationError, match="must be in the same network"):
        un.UNN(x, h, un.Variable("g", (4,)), un.Linear("x", "h").tied("x", "g"))
    step = un.Linear("x", "h")
    with pytest.raises(DeclarationError, match=r"h is \(4,\), but x, whose weights it shares, is \(3,\)"):
        un.UNN(x, h, un.Variable("g", (4,)), step, step.tied("h", "g"))
    with pytest.raises(DeclarationError, match=r"shift of x has shape \(4,\), but x is \(3,\)"):
        un.UNN(x, h, un.Linear("x", "h", shift={"x": torch.zeros(4)}))
    with pytest.raises(DeclarationError, match="shift names an unknown variable 'g'"):
        un.UNN(x, h, un.Linear("x", "h", shift={"g": torch.zeros(4)}))
    with pytest.raises(QueryError, match="missing are h"):
        un.UNN(x, h, un.Linear("x", "h")).energy({"x": torch.zeros(1, 3)})
    un.UNN(x, h, un.Linear("x", "h"), un.Linear("x", "h", name="second"))


def test_a_score_must_be_one_number_per_example():
    class Wrong(un.Factor):
        def score(self, a, b):
            return (a * b).sum()

    net = un.UNN(un.Variable("a", (2,)), un.Variable("b", (2,)), Wrong("a", "b"))
    with pytest.raises(QueryError, match="score gives the shape"):
        net.energy({"a": torch.zeros(3, 2), "b": torch.zeros(3, 2)})


def test_the_energy_needs_whole_values():
    net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (2,)), un.Linear("x", "y"))
    with pytest.raises(QueryError, match=r"needs a value for every variable; missing are y"):
        net.energy({"x": torch.zeros(1, 2)})
    with pytest.raises(QueryError, match=r"x is known in part only; find the rest first"):
        net.energy({"x": un.Partial(torch.zeros(1, 2), torch.tensor([True, False])), "y": torch.zeros(1, 2)})
