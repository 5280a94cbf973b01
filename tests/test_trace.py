"""Trace and check: what they compare, and what they must not take for a rise."""

import pytest
import torch

import undirected as un
from undirected.errors import EnergyRose


class WrongMessage(un.Factor):
    """A product whose message points the other way: its updates raise the energy."""

    def score(self, a, b):
        return (a * b).sum(1)

    def message(self, target, *values):
        return -2 * values[1 - target]


@pytest.mark.parametrize("size", [0.1, 10.0])
def test_a_rise_is_found_wherever_the_observation_lies(size):  # outside its domain, Psi of x is infinite for ever
    tanh = un.Tanh()
    net = un.UNN(
        un.Variable("x", (4,), tanh),
        un.Variable("h", (4,), tanh),
        un.Variable("g", (4,), tanh),
        WrongMessage("x", "h"),
        WrongMessage("h", "g"),
    )
    with pytest.raises(EnergyRose, match=r"raised the energy of example \d"):
        net(observe={"x": size * torch.randn(3, 4)}, order="h g", iterations=5, check=True)


def test_rounding_of_a_dropped_entry_is_no_way_out_of_the_domain():  # m * 0.7 / m may be 0.7 and a last digit
    net = un.UNN(
        un.Variable("x", (4,)), un.Variable("h", (200,), un.HardTanh(-0.7, 0.7), dropout=0.35), un.Linear("x", "h")
    )
    solution = net.train()(observe={"x": 100 * torch.randn(5, 4)}, check=True)
    assert solution.energy.isfinite().all()


def test_a_dropped_entry_that_is_not_zero_is_outside(double):  # from the perspective's domain
    net = un.UNN(un.Variable("x", (4,)), un.Variable("h", (50,), un.Tanh(), dropout=0.5), un.Linear("x", "h"))
    solution = net.train()(observe={"x": torch.randn(2, 4)})
    evidence = solution._evidence
    assert (evidence.dropout["h"] == 0).any()
    assert net.psi("h", torch.full((2, 50), 0.1), None, evidence).isinf().all()


def test_coarse_messages_are_not_taken_for_a_rise():  # autocast rounds messages to bfloat16
    net = un.UNN(
        un.Variable("x", (4,)),
        un.Variable("h", (6,), un.Tanh()),
        un.Variable("y", (3,), un.Softmax()),
        un.Linear("x", "h"),
        un.Linear("h", "y"),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(10):
            net(observe={"x": torch.randn(8, 4)}, iterations=3, check=True)


def test_the_trace_ends_at_the_solution():
    net = un.UNN(un.Variable("x", (3,)), un.Variable("h", (4,), un.Tanh()), un.Linear("x", "h"))
    solution = net(observe={"x": torch.randn(2, 3)}, trace=True)
    torch.testing.assert_close(solution.trace.energy[-1], solution.energy)
    assert torch.equal(solution.trace.of("h")[-1], solution["h"])
