"""Inspection: `net.check()` finds what is wrong with a factor, and nothing wrong with those that are right."""

from __future__ import annotations

import torch

import undirected as un


class Agreement(un.Factor):
    def score(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).flatten(1).sum(1)


class Squared(un.Factor):
    """Not multilinear: quadratic in a."""

    def score(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.square() * b).flatten(1).sum(1)


class WrongMessage(un.Factor):
    """Multilinear, but its hand-written message is twice the derivative."""

    def score(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).flatten(1).sum(1)

    def message(self, target: int, *values: torch.Tensor) -> torch.Tensor:
        return 2 * values[1 - target]


def pair(factor: un.Factor) -> un.UNN:
    return un.UNN(un.Variable("a", (3,), un.Tanh()), un.Variable("b", (3,), un.Tanh()), factor)


def test_own_factors_are_judged() -> None:  # from their definitions
    right, squared, wrong = (pair(f("a", "b")).check() for f in (Agreement, Squared, WrongMessage))
    assert right.ok
    assert not squared.ok
    assert squared.factors[0].nonlinearity > 0.01
    assert "NOT multilinear" in str(squared)
    assert not wrong.ok
    assert abs(wrong.factors[0].message_error - 1) < 0.5  # twice a message is off by the message
    assert "NOT its derivative" in str(wrong)


def test_factors_of_the_library_are_right() -> None:
    net = un.UNN(
        un.Variable("x", (4, 9), un.Tanh()),
        un.Variable("h", (6, 4), un.Tanh()),
        un.Variable("s", ("n", "n+1"), un.Softmax()),
        un.Variable("q", ("n", 3), un.Sigmoid()),
        un.Variable("k", ("n+1", 3), un.Sigmoid()),
        un.Variable("y", (5,), un.Softmax()),
        un.Conv1d("x", "h", 3, stride=2, padding=0, shift={"x": torch.ones(4, 1)}),
        un.Linear("h", "y"),
        un.Linear("q", "y"),
        un.Einsum("s[i,j] q[i,d] W[d,e] k[j,e]"),
        un.Directed(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 5)), "x", "y", name="directed"),
        un.Energy(lambda y: y.pow(3).sum(1), "y", name="cube"),
    )
    report = net.check()
    assert all(factor.ok for factor in report.factors), str(report)
    assert {factor.name for factor in report.factors} == set(net.factors)
    assert "any energy, minimised by an inner descent" in str(report)


def test_each_query_gets_its_verdict() -> None:  # from the spectral norm, which is the weight's largest singular value
    net = un.UNN(un.Variable("x", (3,)), un.Variable("h", (4,), un.ReLU()), un.Linear("x", "h"))
    with torch.no_grad():
        net.factors["x-h"].weight.mul_(0.5 / torch.linalg.matrix_norm(net.factors["x-h"].weight, 2))
    report = net.check()
    assert [bound.verdict for bound in report.bounds] == ["while", "always", "always"]
    assert abs(report.bounds[0].couplings[0].norm - 0.5) < 1e-5
    assert report.ok
    with torch.no_grad():
        net.factors["x-h"].weight.mul_(3)
    report = net.check()
    assert [bound.verdict for bound in report.bounds] == ["no", "always", "always"]
    assert not report.ok
    assert "With nothing observed, the energy has no lower bound" in str(report)
    assert [bound.verdict for bound in net.check([["x", "h"]]).bounds] == ["always"]


def test_checking_changes_nothing() -> None:
    net = pair(Agreement("a", "b"))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    net.check()
    assert torch.equal(torch.get_rng_state(), state)
    assert net.bias_a.dtype == torch.float32
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
