"""Gradients through a solve against finite differences in float64, and Energy blocks against an optimiser."""

import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from strategies import Wave, cases
from torch.autograd import gradcheck
from torch.func import functional_call

import undirected as un

SMOOTH = [
    un.Identity(),
    un.Sigmoid(),
    un.Tanh(),
    un.Softmax(),
    un.Softmax(temperature=0.6),
    un.Entmax15(),
    un.Sparsemax(),
]
PIECEWISE = [un.ReLU(), un.LeakyReLU(0.3), un.HardTanh(), un.SoftThreshold(0.2)]


def small(regularizer, **options):
    net = un.UNN(
        un.Variable("x", (3,), un.Tanh()), un.Variable("h", (3,), regularizer, **options),
        un.Variable("y", (2,), un.Softmax()), un.Linear("x", "h"), un.Linear("h", "y"),
    ).double()  # fmt: skip
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_().mul_(0.6)
    return net


def differentiate(net, observe, want, seed=0, **kwargs):
    """gradcheck of what is wanted, its pre-activation and the energy by every parameter."""
    names = [name for name, _ in net.named_parameters()]

    def outputs(*parameters):
        torch.manual_seed(seed)  # the same dropout masks every time
        arguments = dict(observe=observe, want=want, **kwargs)
        solution = functional_call(net, dict(zip(names, parameters, strict=True)), (), arguments)
        return solution[want], solution.preactivation[want], solution.energy

    return gradcheck(outputs, tuple(p.detach().clone().requires_grad_() for p in net.parameters()))


@pytest.mark.parametrize("regularizer", SMOOTH + PIECEWISE, ids=repr)
def test_through_three_iterations(regularizer):
    x = torch.tensor([[0.3, -0.5, 0.8], [-0.2, 0.1, 0.4]]).double()
    assert differentiate(small(regularizer), {"x": x}, "y", iterations=3)


@pytest.mark.parametrize("regularizer", [un.Tanh(), un.Softmax(), un.Entmax15(), un.Sparsemax()], ids=repr)
def test_through_a_partial_observation(regularizer):
    value = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3]]).double()
    known = torch.tensor([[True, False, False], [False, True, False]])
    net = small(regularizer)
    observe = {"h": un.Partial(value, known), "y": torch.tensor([0, 1])}
    assert differentiate(net, observe, "h", order="x h", iterations=3)
    rest = {"h": un.Partial(value, torch.tensor([[True] * 3, [False] * 3]))}  # all of one example, none of another
    assert differentiate(net, rest, "y", order="h y", iterations=2)


def test_through_dropout_with_a_fixed_mask():
    net = small(un.Tanh(), dropout=0.5).train()
    assert differentiate(net, {"x": torch.rand(2, 3).double()}, "y", iterations=3)


def test_through_an_energy():  # step sizes are chosen, not differentiated; no difference is large enough to flip one
    net = un.UNN(
        un.Variable("x", (2,)), un.Variable("h", (2,), un.Tanh()), un.Linear("x", "h"),
        un.Energy(lambda h: 0.1 * h.pow(4).sum(1), "h", steps=3),
    ).double()  # fmt: skip
    assert differentiate(net, {"x": torch.tensor([[0.4, -0.7], [0.3, 0.9]]).double()}, "h", iterations=1)


def test_gradients_by_what_is_observed():
    net = small(un.Tanh())

    def outputs(x, t):
        solution = net(observe={"x": x, "y": t.softmax(-1)}, want="h", iterations=3)
        return solution["h"], solution.energy

    assert gradcheck(outputs, (torch.rand(2, 3).double().requires_grad_(), torch.rand(2, 2).double().requires_grad_()))


@pytest.mark.parametrize("regularizer", [un.Identity(), un.Tanh(), un.Sigmoid(), un.Softmax()], ids=repr)
def test_an_energy_block_is_minimised(regularizer):  # many steps, against scipy on the pre-activations
    wave = Wave()
    net = un.UNN(
        un.Variable("x", (3,)), un.Variable("h", (3,), regularizer), un.Linear("x", "h"),
        un.Energy(lambda h: 0.3 * wave(h), "h", steps=100),
    ).double()  # fmt: skip
    x = torch.tensor([[0.4, -0.7, 0.2]]).double()
    solution = net(observe={"x": x}, want="h")

    def energy(t):
        t = torch.tensor(t, requires_grad=True)
        value = net.energy({"x": x, "h": regularizer.activation(t[None])})[0]
        value.backward()
        return float(value.detach()), t.grad.numpy()

    start = (x @ net.factors["x-h"].weight.T).detach()[0].numpy()
    best = scipy.optimize.minimize(energy, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    assert float(solution.energy.detach()) == pytest.approx(best.fun, abs=1e-7)


def test_a_linear_energy_is_an_exact_update(double):  # Energy(-score) of a Linear is that Linear
    net = un.UNN(un.Variable("x", (3,)), un.Variable("h", (2,), un.Tanh()), un.Linear("x", "h"))
    weight = net.factors["x-h"].weight
    other = un.UNN(
        un.Variable("x", (3,)), un.Variable("h", (2,), un.Tanh()),
        un.Energy(lambda x, h: -((x @ weight.T) * h).sum(1), "x", "h"),
    ).double()  # fmt: skip
    x = torch.randn(4, 3)
    torch.testing.assert_close(other(observe={"x": x})["h"], net(observe={"x": x})["h"], rtol=1e-6, atol=1e-8)


@settings(max_examples=25)
@given(cases(energies=True, inits=["zeros"]))
def test_gradients_are_finite_on_random_networks(case):  # gradients of everything found, by everything learned
    solution = case()
    parameters = list(case.net.parameters())
    if parameters:
        total = sum(solution[name].sum() for name in solution)
        if total.requires_grad:
            found = torch.autograd.grad(total, parameters, allow_unused=True)
            assert all(g.isfinite().all() for g in found if g is not None)
