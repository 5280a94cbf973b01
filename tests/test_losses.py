"""fenchel_young against torch's own losses, and against the theorem about its gradient."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from strategies import REGULARIZERS, cases

import undirected as un
from undirected.errors import QueryError


def net_with(regularizer, shape=(5,), **options):
    net = un.UNN(un.Variable("x", (3,)), un.Variable("y", shape, regularizer, **options), un.Linear("x", "y"))
    return net.double()


def test_softmax_gives_cross_entropy(double):  # torch's own, for every reduction
    net = net_with(un.Softmax())
    x, labels = torch.randn(6, 3), torch.tensor([0, 1, 4, 2, 2, 3])
    solution = net(observe={"x": x}, want="y")
    logits = solution.preactivation["y"]
    for reduction in ("mean", "sum", "none"):
        expected = F.cross_entropy(logits, labels, reduction=reduction)
        torch.testing.assert_close(un.fenchel_young(solution, "y", labels, reduction), expected)
    soft = torch.rand(6, 5).softmax(-1)
    expected = F.cross_entropy(logits, soft) + (soft * soft.log()).sum(1).mean()  # less the target's own entropy
    torch.testing.assert_close(un.fenchel_young(solution, "y", soft), expected)


def test_cross_entropy_of_sequences(double):  # summed over positions that exist; torch ignores the others too
    net = un.UNN(un.Variable("x", ("n", 3)), un.Variable("y", ("n", 5), un.Softmax()), un.Linear("x", "y"))
    labels, lengths = torch.randint(5, (4, 6)), torch.tensor([6, 2, 1, 4])
    solution = net(observe={"x": torch.randn(4, 6, 3)}, want="y", lengths={"n": lengths})
    ignored = torch.where(torch.arange(6) < lengths[:, None], labels, -100)
    expected = F.cross_entropy(solution.preactivation["y"].transpose(1, 2), ignored, reduction="none").sum(1)
    torch.testing.assert_close(un.fenchel_young(solution, "y", labels, "none"), expected)


def test_sigmoid_gives_the_logistic_loss(double):  # torch's own
    net = net_with(un.Sigmoid())
    solution = net(observe={"x": torch.randn(6, 3)}, want="y")
    target = (torch.rand(6, 5) < 0.5).double()
    expected = F.binary_cross_entropy_with_logits(solution.preactivation["y"], target, reduction="none").sum(1)
    torch.testing.assert_close(un.fenchel_young(solution, "y", target, "none"), expected)


def test_tanh_gives_the_logistic_loss_of_spins(double):  # a spin is a bit, with twice the pre-activation
    net = net_with(un.Tanh())
    solution = net(observe={"x": torch.randn(6, 3)}, want="y")
    bits = (torch.rand(6, 5) < 0.5).double()
    expected = F.binary_cross_entropy_with_logits(2 * solution.preactivation["y"], bits, reduction="none").sum(1)
    torch.testing.assert_close(un.fenchel_young(solution, "y", 2 * bits - 1, "none"), expected)
    spins = torch.where(torch.rand(6, 5) < 0.5, 1.0, -1.0)
    soft = F.soft_margin_loss(2 * solution.preactivation["y"], spins, reduction="none").sum(1)
    torch.testing.assert_close(un.fenchel_young(solution, "y", spins, "none"), soft)


def test_identity_gives_half_the_squared_error(double):
    net = net_with(un.Identity())
    solution = net(observe={"x": torch.randn(6, 3)}, want="y")
    target = torch.randn(6, 5)
    expected = 0.5 * F.mse_loss(solution["y"], target, reduction="none").sum(1)
    torch.testing.assert_close(un.fenchel_young(solution, "y", target, "none"), expected)


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=repr)
def test_the_gradient_is_prediction_less_target(regularizer, double):  # Blondel et al. 2020, proposition 2
    net = net_with(regularizer)
    x = torch.randn(6, 3)
    solution = net(observe={"x": x}, want="y")
    t = solution.preactivation["y"]
    target = regularizer.activation(torch.randn(6, 5))
    loss = un.fenchel_young(solution, "y", target, "none")
    (gradient,) = torch.autograd.grad(loss.sum(), t)
    torch.testing.assert_close(gradient, solution["y"].detach() - target, rtol=1e-8, atol=1e-8)
    assert (loss >= -1e-10).all()
    own = un.fenchel_young(solution, "y", solution["y"].detach(), "none")
    torch.testing.assert_close(own, torch.zeros(6), rtol=0, atol=1e-10)  # zero at the target


@settings(max_examples=40)
@given(cases(inits=["zeros"]))
def test_the_loss_vanishes_at_what_was_found(case):  # also with lengths, and with entries observed in part
    solution = case()
    for name in solution.preactivation:
        loss = un.fenchel_young(solution, name, solution[name].detach(), "none")
        size = (solution.preactivation[name] * solution[name]).reshape(3, -1).abs().sum(1)
        assert (loss.abs() <= 1e-10 * (1 + size)).all()


def test_what_was_observed_counts_nothing(double):  # an elementwise loss is a sum over the entries that were not
    net = net_with(un.Sigmoid())
    target, known = (torch.rand(6, 5) < 0.5).double(), torch.rand(6, 5) < 0.5
    solution = net(observe={"x": torch.randn(6, 3), "y": un.Partial(target, known)}, want="y")
    every = F.binary_cross_entropy_with_logits(solution.preactivation["y"], target, reduction="none")
    expected = torch.where(known, 0, every).sum(1)
    torch.testing.assert_close(un.fenchel_young(solution, "y", target, "none"), expected)


def test_rows_that_were_observed_count_nothing(double):  # masked language modelling: the loss of hidden positions
    net = un.UNN(un.Variable("x", ("n", 3)), un.Variable("y", ("n", 5), un.Softmax()), un.Linear("x", "y"))
    labels, known = torch.randint(5, (4, 6)), torch.rand(4, 6) < 0.5
    observe = {"x": torch.randn(4, 6, 3), "y": un.Partial(labels, known)}
    solution = net(observe=observe, want="y")
    hidden = torch.where(known, -100, labels)
    expected = F.cross_entropy(solution.preactivation["y"].transpose(1, 2), hidden, reduction="none").sum(1)
    torch.testing.assert_close(un.fenchel_young(solution, "y", labels, "none"), expected)


def test_errors():
    net = net_with(un.Softmax())
    solution = net(observe={"x": torch.zeros(2, 3).double()}, want="y")
    with pytest.raises(QueryError, match=r"x has no pre-activation; it must be wanted and not observed. There are y"):
        un.fenchel_young(solution, "x", torch.zeros(2, 3).double())
    with pytest.raises(QueryError, match="reduction is 'mean', 'sum' or 'none', not 'max'"):
        un.fenchel_young(solution, "y", torch.zeros(2).long(), "max")
    with pytest.raises(QueryError, match="labels must be from 0 to 4, but they are from 0 to 5"):
        un.fenchel_young(solution, "y", torch.tensor([0, 5]))
    with pytest.raises(QueryError, match="has 3 examples, the solution 2"):
        un.fenchel_young(solution, "y", torch.zeros(3).long())
