"""Distances against the directed networks whose outputs they measure."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import undirected as un


def f_and_g(inputs: int = 3, hidden: int = 4, outputs: int = 2) -> tuple[nn.Module, nn.Module]:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU()), nn.Sequential(
        nn.LayerNorm(hidden), nn.Linear(hidden, outputs)
    )


@given(sizes=st.tuples(st.integers(1, 5), st.integers(2, 6), st.integers(1, 4)), batch=st.integers(1, 4))
@settings(max_examples=10)
def test_one_sweep_is_the_directed_network_and_its_energy_is_zero(sizes, batch):  # from torch.nn
    f, g = (module.double() for module in f_and_g(*sizes))
    net = un.models.distances(sizes[0], f, sizes[1], g, sizes[2])
    x = torch.randn(batch, sizes[0], dtype=torch.float64)
    found = net(observe={"x": x}, order="h1 y", check=True)
    assert torch.equal(found["h1"], f(x))
    assert torch.equal(found["y"], g(f(x)))
    torch.testing.assert_close(found.energy, torch.zeros(batch, dtype=torch.float64), atol=1e-12, rtol=0)


def test_energy_is_half_the_squared_distances(double):  # from the definition
    f, g = f_and_g()
    net = un.models.distances(3, f, 4, g, 2)
    x, h, y = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 2)
    expected = 0.5 * (h - f(x)).square().sum(1) + 0.5 * (y - g(h)).square().sum(1)
    torch.testing.assert_close(net.energy({"x": x, "h1": h, "y": y}), expected)
    assert (expected > 0).all()


def test_convolutions_and_classes(double):  # from torch.nn: modules of any kind, shapes of any rank
    f, g = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    net = un.models.distances((1, 6, 6), f, (3, 4, 4), g, 5, y=un.Softmax())
    x = torch.randn(2, 1, 6, 6)
    found = net(observe={"x": x}, order="h1 y")
    torch.testing.assert_close(found["y"], g(f(x)).softmax(1))
    torch.testing.assert_close(found.energy, torch.zeros(2), atol=1e-12, rtol=0)
    # Further sweeps stay at the minimum.
    again = net(observe={"x": x}, want=["h1", "y"], order="h1 y", iterations=3, check=True)
    torch.testing.assert_close(again["h1"], f(x), atol=1e-6, rtol=0)
    # With y observed, the energy is the cross-entropy when h1 stays where x puts it.
    labels = torch.tensor([0, 3])
    energy = net.energy({"x": x, "h1": f(x), "y": labels})
    torch.testing.assert_close(energy, nn.functional.cross_entropy(g(f(x)), labels, reduction="none"))


def test_training_the_energy_trains_the_directed_network():  # from the energy: an upper bound of the loss
    f, g = f_and_g()
    net = un.models.distances(3, f, 4, g, 2, y=un.Softmax())
    x = torch.randn(64, 3)
    labels = (x[:, 0] > 0).long()
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss = un.fenchel_young(net(observe={"x": x}, want="y", order="h1 y"), "y", labels)
        loss.backward()
        optimizer.step()
    assert (g(f(x)).argmax(1) == labels).double().mean() > 0.95


def test_hidden_states_of_an_observed_output_lower_the_distance(double):  # from the definition of the energy
    f, g = f_and_g()
    net = un.models.distances(3, f, 4, g, 2, steps=40)
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    start = 0.5 * (y - g(f(x))).square().sum(1)  # the energy where h1 is f(x)
    found = net(observe={"x": x, "y": y}, want="h1", order="h1", iterations=3, check=True)
    assert (found.energy < start).all()


def test_x_is_found_from_y(double):  # from an invertible linear network, solved
    f = nn.Linear(2, 2)
    with torch.no_grad():
        f.weight.copy_(torch.tensor([[1.0, 0.3], [-0.2, 0.8]]))
    net = un.models.distances(2, f, 2, steps=200)
    y = torch.randn(4, 2)
    expected = torch.linalg.solve(f.weight, (y - f.bias).T).T
    found = net(observe={"y": y}, want="x", order="x")["x"]
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


def test_message_is_the_derivative_of_the_score(double):  # from autograd
    f, g = f_and_g()
    net = un.models.distances(3, f, 4, g, 2)
    h, y = torch.randn(5, 4), torch.randn(5, 2, requires_grad=True)
    factor = net.factors["h1-y"]
    derived = torch.autograd.grad(factor.score(h, y).sum(), y)[0]
    torch.testing.assert_close(factor.message(1, h, y), derived)


@pytest.mark.parametrize("chain", [(3,), (3, nn.Linear(3, 2)), (3, 4, 5), ()])
def test_a_broken_chain_is_an_error(chain):
    with pytest.raises(un.errors.DeclarationError, match="shapes and modules in turn"):
        un.models.distances(*chain)


def test_the_forward_sweep_needs_no_descent():  # from the energy: linear in each output, and y is absent at first
    f, g = f_and_g()
    net = un.models.distances(3, f, 4, g, 2)
    first, second, third, fourth = net.plan(observe=["x"], order="h1 y", iterations=2).updates
    assert (first.variable, first.extra, first.skipped) == ("h1", (), ("h1-y",))
    assert (second.variable, second.extra) == ("y", ())
    assert [message.factor for message in third.extra] == ["h1-y"]
    assert fourth.extra == ()


def test_linear_variables_of_an_energy_must_be_its_own():
    with pytest.raises(un.errors.DeclarationError, match="linear names an unknown variable 'z'"):
        un.Energy(lambda x: x.sum(1), "x", linear="z")
