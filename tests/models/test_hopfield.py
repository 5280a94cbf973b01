"""Hopfield networks against their textbook updates and energies."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import undirected as un


def spins(*shape: int) -> torch.Tensor:
    return torch.randint(0, 2, shape) * 2.0 - 1


@given(patterns=st.integers(1, 4), size=st.integers(2, 20), temperature=st.sampled_from([0.05, 0.5, 2.0]))
@settings(max_examples=15)
def test_one_round_is_the_update_of_all_spins_with_hebbs_weights(patterns, size, temperature):  # from the textbook
    stored, x = spins(patterns, size), spins(3, size)
    weights = stored.T @ stored / size
    net = un.models.hopfield(stored, temperature)
    found = net(observe={}, init={"x": x}, order="m x", want="x")["x"]
    torch.testing.assert_close(found, torch.tanh(x @ weights / temperature))


def test_spins_have_hopfields_energy(double):  # from minimising the overlaps away
    stored, x = spins(3, 12), torch.rand(5, 12) * 1.8 - 0.9
    weights = stored.T @ stored / 12
    entropy = -(torch.special.entr((1 + x) / 2) + torch.special.entr((1 - x) / 2)).sum(1)
    expected = 0.3 * entropy - 0.5 * (x @ weights * x).sum(1)
    net = un.models.hopfield(stored, temperature=0.3)
    torch.testing.assert_close(net(observe={"x": x}, want="m").energy, expected)


def test_spins_recover_stored_patterns():  # from Hopfield's theory: 5 patterns are few for 200 spins
    stored = spins(5, 200)
    corrupted = torch.where(torch.rand(5, 200) < 0.2, -stored, stored)
    net = un.models.hopfield(stored)
    found = net(observe={}, init={"x": corrupted}, order="m x", want="x", iterations=8, check=True)
    assert torch.equal(found["x"].sign(), stored)


def test_spins_complete_erased_patterns():  # the same, from a part that is known
    stored = spins(5, 200)
    known = torch.arange(200) < 80
    net = un.models.hopfield(stored)
    found = net(observe={"x": un.Partial(stored, known=known)}, order="m x", want="x", iterations=8, check=True)
    assert torch.equal(found["x"].sign(), stored)


@given(patterns=st.integers(1, 9), size=st.integers(1, 9), beta=st.sampled_from([0.5, 1.0, 8.0]))
@settings(max_examples=15)
def test_one_round_is_attention_over_the_stored_patterns(patterns, size, beta):  # from F.scaled_dot_product_attention
    stored, x = torch.randn(patterns, size), torch.randn(4, size)
    net = un.models.modern_hopfield(stored, beta)
    found = net(observe={}, init={"x": x}, order="m x", want="x")["x"]
    torch.testing.assert_close(found, F.scaled_dot_product_attention(x, stored, stored, scale=beta))


def test_continuous_states_have_the_modern_energy(double):  # from minimising the memory away
    stored, x = torch.randn(6, 4), torch.randn(5, 4)
    expected = 0.5 * x.square().sum(1) - (3.0 * x @ stored.T).logsumexp(1) / 3.0
    net = un.models.modern_hopfield(stored, beta=3.0)
    torch.testing.assert_close(net(observe={"x": x}, want="m").energy, expected)


def test_continuous_states_recover_more_patterns_than_they_have_entries():  # from the theory of modern networks
    stored = F.normalize(torch.randn(100, 40)) * math.sqrt(40)
    noisy = stored + 0.5 * torch.randn(100, 40)
    net = un.models.modern_hopfield(stored, beta=1.0)
    found = net(observe={}, init={"x": noisy}, order="m x", want="x", iterations=3, check=True)["x"]
    torch.testing.assert_close(found, stored, atol=1e-2, rtol=0)


def test_continuous_states_complete_what_is_erased():  # the same, from a part that is known
    stored = F.normalize(torch.randn(30, 40)) * math.sqrt(40)
    partial = un.Partial(stored, known=torch.arange(40) < 20)
    net = un.models.modern_hopfield(stored, beta=1.0)
    found = net(observe={"x": partial}, order="m x", want="x", iterations=3, check=True)["x"]
    torch.testing.assert_close(found, stored, atol=1e-2, rtol=0)


def test_patterns_are_kept_as_given_and_can_be_learned():
    stored = torch.randn(3, 4)
    net = un.models.modern_hopfield(stored)
    assert torch.equal(net.factors["x-m"].weight, stored)
    net.factors["x-m"].weight.data.zero_()
    assert (stored != 0).all()  # a copy
    net(observe={"x": torch.randn(2, 4)}, want="m")["m"].square().sum().backward()
    assert net.factors["x-m"].weight.grad is not None
