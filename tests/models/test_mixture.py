"""Mixture: a directed network in front, an undirected one behind."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import undirected as un


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4), inputs=st.integers(1, 5))
@settings(max_examples=10)
def test_one_sweep_from_zeros_is_the_directed_network(sizes, inputs):  # from torch.nn
    front = nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, sizes[0]))
    net = un.models.mixture(front, inputs, *sizes)
    x = torch.randn(3, inputs)
    value = torch.tanh(front(x) + net.bias_h1)
    for factor in list(net.factors.values())[1:]:
        logits = nn.functional.linear(value, factor.weight, net.bias(factor.b))
        value = torch.tanh(logits)
    order = [name for name in net.variables if name != "x"]
    torch.testing.assert_close(net(observe={"x": x}, want="y", order=order).preactivation["y"], logits)


def task() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(128, 4)
    return x, (x[:, 0] * x[:, 1] > 0).long()  # no linear function of x tells


def accuracy(net: un.UNN, x: torch.Tensor, labels: torch.Tensor) -> float:
    return (net(observe={"x": x}, want="y", iterations=2)["y"].argmax(1) == labels).double().mean().item()


def trained(net: un.UNN, parameters, x, labels) -> float:
    optimizer = torch.optim.Adam(parameters, 0.02)
    for _ in range(120):
        optimizer.zero_grad()
        un.fenchel_young(net(observe={"x": x}, want="y", iterations=2), "y", labels).backward()
        optimizer.step()
    return accuracy(net, x, labels)


def test_both_parts_are_trained_together_or_the_front_is_kept():  # from a task that needs the front
    x, labels = task()
    front = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))
    net = un.models.mixture(front, 4, 16, 2)
    before = [parameter.detach().clone() for parameter in front.parameters()]
    assert trained(net, net.parameters(), x, labels) > 0.95
    assert all(not torch.equal(a, b) for a, b in zip(before, front.parameters(), strict=True))

    # The front is pretrained now: a new network behind it learns while it stays as it is.
    behind = un.models.mixture(front.requires_grad_(False), 4, 16, 2)
    before = [parameter.detach().clone() for parameter in front.parameters()]
    learned = [parameter for parameter in behind.parameters() if parameter.requires_grad]
    assert trained(behind, learned, x, labels) > 0.9
    assert all(torch.equal(a, b) for a, b in zip(before, front.parameters(), strict=True))


def test_labels_act_on_the_features():  # from the block update: the front's message plus the label's
    front = nn.Linear(3, 4)
    net = un.models.mixture(front, 3, 4, 2)
    x, labels = torch.randn(2, 3), torch.tensor([0, 1])
    expected = torch.tanh(front(x) + net.bias_h1 + net.factors["h1-y"].weight[labels])
    torch.testing.assert_close(net(observe={"x": x, "y": labels}, want="h1", order="h1")["h1"], expected)


def test_inputs_of_the_front_must_be_observed():
    net = un.models.mixture(nn.Linear(3, 4), 3, 4, 2)
    with pytest.raises(un.errors.QueryError, match="must be observed"):
        net(observe={"y": torch.tensor([0])}, want="x")
    with pytest.raises(un.errors.DeclarationError, match="h1 and y at least"):
        un.models.mixture(nn.Linear(3, 4), 3, 4)
