"""Recurrent against `nn.RNN`."""

import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import undirected as un


def twin(rnn: un.models.Recurrent, nonlinearity: str) -> nn.RNN:
    directed = nn.RNN(rnn.inputs, rnn.hidden, nonlinearity=nonlinearity, batch_first=True)
    directed.weight_ih_l0, directed.weight_hh_l0 = rnn.input.weight, rnn.recurrence.weight
    directed.bias_ih_l0 = nn.Parameter(rnn.input.bias.detach())
    nn.init.zeros_(directed.bias_hh_l0)
    return directed


@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 6)),
    steps=st.integers(1, 9),
    activation=st.sampled_from([(un.Tanh(), "tanh"), (un.ReLU(), "relu")]),
)
@settings(max_examples=15)
def test_one_sweep_from_zeros_is_the_directed_network(sizes, steps, activation):  # from nn.RNN
    rnn = un.models.Recurrent(*sizes, activation=activation[0])
    nn.init.normal_(rnn.input.bias)
    x = torch.randn(3, steps, sizes[0])
    expected, _ = twin(rnn, activation[1])(x)
    torch.testing.assert_close(rnn(x), expected)


def test_gradients_are_those_of_the_directed_network(double):  # from nn.RNN
    rnn = un.models.Recurrent(3, 4)
    directed = twin(rnn, "tanh")
    x, target = torch.randn(2, 6, 3), torch.randn(2, 6, 4)
    mine = torch.autograd.grad((rnn(x) * target).sum(), list(rnn.parameters()))
    weights = [directed.weight_ih_l0, directed.bias_ih_l0, directed.weight_hh_l0]
    theirs = torch.autograd.grad((directed(x)[0] * target).sum(), weights)
    for found, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(found, expected)


def test_the_last_state_classifies(double):  # from nn.RNN and nn.Linear
    rnn = un.models.Recurrent(3, 4, classes=5)
    x = torch.randn(2, 6, 3)
    given = {f"x{t}": x[:, t - 1] for t in range(1, 7)}
    found = rnn.network(6)(observe=given, want="y", order="h1 h2 h3 h4 h5 h6 y")
    torch.testing.assert_close(found.preactivation["y"], rnn.readout(twin(rnn, "tanh")(x)[0][:, -1]))


def test_late_inputs_change_early_states_from_the_second_sweep_on():  # from the graph: a chain is joined both ways
    rnn = un.models.Recurrent(2, 3)
    x = torch.randn(1, 4, 2)
    other = x.clone()
    other[:, -1] += 1
    assert torch.equal(rnn(x)[:, :3], rnn(other)[:, :3])
    # Each further sweep carries the news one step back.
    assert torch.equal(rnn(x, iterations=2)[:, :2], rnn(other, iterations=2)[:, :2])
    assert not torch.equal(rnn(x, iterations=2)[:, 2], rnn(other, iterations=2)[:, 2])
    assert not torch.equal(rnn(x, iterations=4)[:, 0], rnn(other, iterations=4)[:, 0])


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_no_update_raises_the_energy_at_any_length(steps):  # from exact block minimisation
    rnn = un.models.Recurrent(2, 3, classes=2).double()
    x = torch.randn(4, steps, 2, dtype=torch.float64)
    given = {f"x{t}": x[:, t - 1] for t in range(1, steps + 1)}
    rnn.network(steps)(observe=given, iterations=5, check=True)
    missing = {name: value for name, value in given.items() if name != "x1"}
    rnn.network(steps)(observe={**missing, "y": torch.zeros(4, dtype=torch.long)}, iterations=5, check=True)


def test_graphs_of_all_lengths_learn_the_same_parameters():
    rnn = un.models.Recurrent(2, 3, classes=2)
    names = ["input.weight", "input.bias", "recurrence.weight", "readout.weight", "readout.bias"]
    assert [name for name, _ in rnn.named_parameters()] == names
    mine = {id(parameter) for parameter in rnn.parameters()}
    for steps in (2, 3, 7):
        assert {id(parameter) for parameter in rnn.network(steps).parameters()} == mine
    assert rnn.network(3) is rnn.network(3)
    rnn(torch.randn(1, 7, 2))
    assert list(rnn.state_dict()) == names


def test_conversion_copies_and_training_mode_reach_every_graph():
    rnn = un.models.Recurrent(2, 3)
    x = torch.randn(2, 4, 2)
    before = rnn(x)
    torch.testing.assert_close(rnn.double()(x.double()).float(), before)
    other = copy.deepcopy(rnn)
    with torch.no_grad():
        other.input.weight.zero_()
        other.input.bias.zero_()
    assert (other(x.double()) == 0).all()
    torch.testing.assert_close(rnn(x.double()).float(), before)
    assert not rnn.eval().network(4).training
    assert rnn.train().network(4).training


def test_saved_weights_load_into_a_new_network():
    rnn, other = un.models.Recurrent(2, 3), un.models.Recurrent(2, 3)
    x = torch.randn(2, 4, 2)
    other(x)  # has declared its graph before it loads
    file = io.BytesIO()
    torch.save(rnn.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), rnn(x))


def test_the_module_exports():  # from the network itself
    rnn = un.models.Recurrent(2, 3)
    x = torch.randn(2, 4, 2)
    torch.testing.assert_close(torch.export.export(rnn, (x,)).module()(x), rnn(x))


def test_errors_say_what_to_give():
    with pytest.raises(un.errors.DeclarationError, match="1, 2, 3"):
        un.models.Recurrent(2, 3).network(0)
    with pytest.raises(un.errors.QueryError, match=r"takes \(batch, steps, 2\)"):
        un.models.Recurrent(2, 3)(torch.randn(4, 2))
