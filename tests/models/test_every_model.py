"""What holds for every model: falling energy, right gradients, export, and an untied twin."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.autograd import gradcheck

import undirected as un

from .questions import QUESTIONS, Question

every_model = pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())


def test_constructors_take_at_most_six_arguments():  # from the promise that declarations stay short
    for name in un.models.__all__:
        assert len(inspect.signature(getattr(un.models, name)).parameters) <= 6, name


@every_model
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_no_update_raises_the_energy(question: Question, scale: float):  # from exact block minimisation
    for seed in range(3):
        net = question.network(seed, scale)
        solution = net(observe=question.given(seed), order=question.order, iterations=3, check=True, trace=True)
        energy = solution.trace.energy
        assert len(energy) >= 1
        assert (energy.diff(dim=0) <= 1e-9 * (1 + energy[1:].abs())).all()


@every_model
def test_derivatives_are_those_of_finite_differences(question: Question):  # from calculus
    net = question.network(scale=0.7)
    given = question.given()
    floats = [value.requires_grad_() for value in given.values() if value.is_floating_point()]

    def answer(*_):
        return net(observe=given, want=question.want, order=question.order, iterations=question.iterations)[
            question.want
        ]

    assert gradcheck(answer, (*floats, *net.parameters()), fast_mode=True)


@every_model
def test_exported_and_network_agree(question: Question):  # from the network itself, run by another machine
    net = question.network().eval()
    given = question.given()
    with torch.no_grad():
        expected = net(observe=given, want=question.want, order=question.order, iterations=question.iterations)[
            question.want
        ]
        directed = net.unrolled(list(given), question.want, question.order, iterations=question.iterations)
        program = torch.export.export(directed, tuple(given.values()))
        torch.testing.assert_close(program.module()(*given.values()), expected)


@every_model
def test_untied_twin_begins_equal_and_has_weights_of_its_own(question: Question):  # from the unrolling lemma
    if question.descends:
        with pytest.raises(un.errors.QueryError, match="inner descent"):
            question.network().unrolled(list(question.given()), question.want, question.order, tie=False)
        return
    net, given = question.network(), question.given()
    tied = net.unrolled(list(given), question.want, question.order, question.iterations)
    untied = net.unrolled(list(given), question.want, question.order, question.iterations, tie=False)
    expected = tied(*given.values())
    torch.testing.assert_close(untied(*given.values()), expected, rtol=0, atol=0)

    # One copy of a factor's weights for each message that the plan computes, one of a bias wherever it is added.
    plan = tied.plan
    count = sum(sum(p.numel() for p in net.factors[m.factor].original.parameters()) for m in plan.computed)
    for name, carrier in plan.biases.items():
        size = net.bias(name).numel()
        if carrier is None:
            count += size * sum(update.variable == name for update in plan.executed)
        else:
            count += size * sum((m.factor, m.target) == (carrier, name) for m in plan.computed)
    assert sum(p.numel() for p in untied.parameters()) == count

    # The network's own weights no longer matter to the twin, and each step can go its own way.
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(untied(*given.values()), expected, rtol=0, atol=0)
    untied(*given.values()).square().sum().backward()
    assert all(p.grad is not None for p in untied.parameters())


@every_model
def test_a_file_keeps_the_network(question: Question, tmp_path):  # from the network itself
    net, given = question.network(), question.given()
    un.save(net, tmp_path / "net.safetensors")
    code = [factor for factor in net.factors.values() if isinstance(factor, (un.Directed, un.Energy))]
    again = un.load(tmp_path / "net.safetensors", factors=code)
    expected = net(observe=given, want=question.want, order=question.order)[question.want]
    assert torch.equal(again(observe=given, want=question.want, order=question.order)[question.want], expected)
    count = [sum(p.numel() for p in network.parameters()) for network in (net, again)]
    assert count[0] == count[1]  # tied weights stay tied
