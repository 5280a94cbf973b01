"""Pair against a tied auto-encoder in torch, and against the restricted Boltzmann machine's formulas."""

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import undirected as un

ENDS = st.sampled_from([(un.Identity(), nn.Identity()), (un.Tanh(), nn.Tanh()), (un.Sigmoid(), nn.Sigmoid())])


def randomized(net: un.UNN) -> un.UNN:
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    return net


@given(visible=st.integers(1, 6), hidden=st.integers(1, 6), x=ENDS, h=ENDS)
@settings(max_examples=15)
def test_one_round_is_the_tied_auto_encoder(visible, hidden, x, h):  # from torch.nn
    net = randomized(un.models.pair(visible, hidden, x=x[0], h=h[0]))
    data = x[1](torch.randn(3, visible))
    weight = net.factors["x-h"].weight
    code = h[1](F.linear(data, weight, net.bias_h))
    again = x[1](F.linear(code, weight.T, net.bias_x))
    found = net(observe={}, init={"x": data}, order="h x")
    assert torch.equal(found["h"], code)
    torch.testing.assert_close(found["x"], again)


def test_rounds_lower_the_energy_from_data():  # from exact block minimisation
    net = randomized(un.models.pair(6, 4, x=un.Tanh())).double()
    data = torch.randn(5, 6, dtype=torch.float64).tanh()
    net(observe={}, init={"x": data}, order="h x", iterations=6, check=True)


def test_training_reconstructs_data_on_a_line():  # one hidden unit is enough for data on a line through zero
    direction = F.normalize(torch.tensor([[1.0, -2.0, 0.5]]))
    data = torch.randn(64, 1) @ direction
    net = un.models.pair(3, 1, h=un.Identity())
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(200):
        optimizer.zero_grad()
        loss = un.fenchel_young(net(observe={}, init={"x": data}, order="h x"), "x", data)
        loss.backward()
        optimizer.step()
    assert loss < 1e-3
    learned = F.normalize(net.factors["x-h"].weight.detach())
    torch.testing.assert_close(learned.abs(), direction.abs(), atol=0.01, rtol=0)


def test_bits_have_the_free_energy_of_a_restricted_boltzmann_machine(double):  # from summing h out, by brute force
    net = randomized(un.models.pair(3, 4, x=un.Sigmoid(), h=un.Sigmoid()))
    x = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)))
    every_h = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)))
    scores = (x @ net.bias_x)[:, None] + every_h @ net.bias_h + x @ net.factors["x-h"].weight.T @ every_h.T
    free_energy = -scores.logsumexp(1)
    torch.testing.assert_close(net(observe={"x": x}, want="h").energy, free_energy)


def test_equilibrium_is_a_fixed_point_of_mean_field(double):  # from the mean-field equations
    net = un.models.pair(5, 4, x=un.Sigmoid(), h=un.Sigmoid())
    found = net(observe={}, init="random", until=un.Tolerance(1e-12, max_iterations=500))
    weight = net.factors["x-h"].weight
    torch.testing.assert_close(found["x"], torch.sigmoid(found["h"] @ weight + net.bias_x))
    torch.testing.assert_close(found["h"], torch.sigmoid(found["x"] @ weight.T + net.bias_h))


def test_encoder_and_decoder_export_one_after_the_other():  # from the network itself
    net = un.models.pair(5, 3)
    data = torch.randn(4, 5)
    both = nn.Sequential(net.unrolled(["x"], "h", "h"), net.unrolled(["h"], "x", "x"))
    program = torch.export.export(both, (data,))
    expected = net(observe={}, init={"x": data}, order="h x", want="x")["x"]
    torch.testing.assert_close(program.module()(data), expected)
