"""Acceleration: the same equilibria in fewer sweeps, never at a higher energy."""

import math

import pytest
import scipy.optimize
import torch
from test_equilibrium import net_of

import undirected as un
from undirected.anderson import Anderson
from undirected.errors import QueryError


def stiff():
    """Couplings that make plain sweeps slow."""
    net = un.UNN(
        un.Variable("x", (4,)), un.Variable("h", (12,), un.Tanh()), un.Variable("g", (10,), un.Sigmoid()),
        un.Variable("y", (5,), un.Softmax()), un.Linear("x", "h"), un.Linear("h", "g"), un.Linear("g", "y"),
    ).double()  # fmt: skip
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_()
    return net


@torch.no_grad()
def test_fewer_sweeps_to_points_as_low():  # 0.6 is what the documentation promises
    net, x = stiff(), torch.randn(40, 4).double()
    plain = net(observe={"x": x}, until=un.Tolerance(1e-9, max_iterations=5000))
    fast = net(observe={"x": x}, until=un.Tolerance(1e-9, max_iterations=5000, acceleration="anderson"))
    assert fast.converged.all()
    assert fast.iterations.sum() <= 0.6 * plain.iterations.sum()
    again = net(observe={"x": x}, iterations=1, init={name: fast[name] for name in ("h", "g", "y")})
    for name in ("h", "g", "y"):  # a fixed point, by its definition
        torch.testing.assert_close(again[name], fast[name], rtol=1e-7, atol=1e-7)


@torch.no_grad()
def test_the_energy_never_rises_from_sweep_to_sweep():  # the promise of the safeguard, for every budget of sweeps
    net, x = stiff(), torch.randn(30, 4).double()
    energies = []
    for sweeps in range(2, 30):
        until = un.Tolerance(1e-12, max_iterations=sweeps, acceleration="anderson", otherwise="ignore")
        energies.append(net(observe={"x": x}, until=until).energy)
    assert (torch.stack(energies).diff(dim=0) <= 1e-9).all()


@torch.no_grad()
def test_extrapolations_that_raise_the_energy_are_taken_back(monkeypatch):  # wild proposals change nothing but time
    wild = Anderson.__call__

    def thrown(self, image, error):
        return wild(self, image, error) + 30 * torch.randn_like(image)

    monkeypatch.setattr(Anderson, "__call__", thrown)
    net, x = net_of(), torch.randn(10, 4).double()
    until = un.Tolerance(1e-10, max_iterations=400, acceleration="anderson")
    found = net(observe={"x": x}, until=until)
    expected = net(observe={"x": x}, until=un.Tolerance(1e-12, max_iterations=400))
    torch.testing.assert_close(found["y"], expected["y"], rtol=1e-7, atol=1e-7)


@torch.no_grad()
def test_sweeps_that_leave_a_saddle_are_not_taken_back_to_it():  # one variable against itself: x = tanh(2 x + tiny)
    net = un.UNN(un.Variable("a", (1,), un.Tanh(), bias=False), un.Variable("b", (1,), un.Tanh()), un.Linear("a", "b"))
    with torch.no_grad():
        net.factors["a-b"].weight.fill_(2.0)
        net.bias_b.fill_(1e-5)  # zero is a saddle; a float32 energy does not see that values near it are worse
    until = un.Tolerance(1e-6, max_iterations=200, acceleration="anderson")
    found = net(observe={}, init={"a": torch.zeros(1, 1), "b": torch.zeros(1, 1)}, order="a b", until=until)
    root = scipy.optimize.brentq(lambda a: math.tanh(2 * math.tanh(2 * a) + 1e-5) - a, 0.5, 1.0)
    assert found["b"].item() == pytest.approx(root, abs=1e-4)


@torch.no_grad()
def test_every_variable_stays_in_its_domain():  # extrapolated pre-activations, activated
    net = un.UNN(
        un.Variable("x", ("n", 3), un.Tanh()), un.Variable("s", ("n", 4), un.Softmax()),
        un.Variable("h", (5,), un.ReLU()), un.Linear("x", "s"), un.Linear("s", "h"),
    ).double()  # fmt: skip
    x, known = torch.rand(6, 5, 3).double() - 0.5, torch.rand(6, 5, 3) < 0.5
    lengths = {"n": torch.tensor([5, 1, 3, 2, 4, 5])}
    for sweeps in (2, 4, 7):
        until = un.Tolerance(1e-12, max_iterations=sweeps, acceleration="anderson", otherwise="ignore")
        found = net(observe={"x": un.Partial(x, known)}, lengths=lengths, until=until)
        assert (found["h"] >= 0).all()
        exists = torch.arange(5) < lengths["n"][:, None]
        torch.testing.assert_close(found["s"].sum(2), exists.double())
        torch.testing.assert_close(found["x"][known & exists[:, :, None]], x[known & exists[:, :, None]])
        assert found.energy.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("acceleration", [None, "anderson"])
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_examples_do_not_disturb_each_other(acceleration, damping):  # alone or in a batch, frozen or not
    net, x = net_of(0.9), 2 * torch.randn(5, 4).double()
    until = un.Tolerance(1e-8, max_iterations=2000, acceleration=acceleration, damping=damping)
    together = net(observe={"x": x}, until=until)
    assert len(set(together.iterations.tolist())) > 1
    for i in range(5):
        alone = net(observe={"x": x[i : i + 1]}, until=until)
        assert abs(alone.iterations.item() - together.iterations[i].item()) <= 1
        torch.testing.assert_close(alone["y"], together["y"][i : i + 1], rtol=1e-6, atol=1e-6)


def test_damped_updates_never_raise_the_energy():  # by convexity of a block's energy along its pre-activation
    net, x = stiff(), torch.randn(8, 4).double()
    for damping in (0.2, 0.8):
        until = un.Tolerance(1e-9, max_iterations=40, damping=damping, otherwise="ignore")
        energies = net(observe={"x": x}, until=until, check=True, trace=True).trace.energy  # check raises if one does
        assert len(energies) > 50
    plain = net(observe={"x": x}, until=un.Tolerance(1e-10, max_iterations=5000))
    damped = net(observe={"x": x}, until=un.Tolerance(1e-10, max_iterations=5000, damping=0.3))
    assert damped.converged.all()
    assert (damped.energy - plain.energy).abs().median() < 1e-8


def test_random_orders_settle_too():
    net, x = net_of(), torch.randn(6, 4).double()
    found = net(observe={"x": x}, order=un.orders.random(seed=3), until=un.Tolerance(1e-11, max_iterations=500))
    expected = net(observe={"x": x}, until=un.Tolerance(1e-12, max_iterations=500))
    assert found.converged.all()
    torch.testing.assert_close(found["y"], expected["y"], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_greedy_choice_settles_where_sweeps_do():  # one equilibrium, by any way to it
    net, x = net_of(), torch.randn(6, 4).double()
    found = net(observe={"x": x}, order=un.orders.greedy(), until=un.Tolerance(1e-11, max_iterations=300))
    expected = net(observe={"x": x}, until=un.Tolerance(1e-12, max_iterations=500))
    assert found.converged.all()
    torch.testing.assert_close(found["y"], expected["y"], rtol=1e-9, atol=1e-9)
    with pytest.raises(QueryError, match="give until"):
        net(observe={"x": x}, order=un.orders.greedy(), iterations=3)


@torch.no_grad()
def test_greedy_updates_the_block_that_changes_most():  # written again, one example at a time
    net, x = net_of(0.9), torch.randn(3, 4).double()
    until = un.Tolerance(1e-14, max_iterations=2, otherwise="ignore")
    found = net(observe={"x": x}, order=un.orders.greedy(), until=until)
    for i in range(3):
        values = {"x": x[i : i + 1]} | {n: net(observe={"x": x[i : i + 1]})[n] for n in ("h", "g", "y")}
        for _ in range(3):
            tried = {}
            for name in ("h", "g", "y"):
                rest = {other: value for other, value in values.items() if other != name}
                tried[name] = net(observe=rest, want=name)[name]
            most = max(tried, key=lambda name, t=tried, v=values: float((t[name] - v[name]).abs().max()))
            values[most] = tried[most]
        for name in ("h", "g", "y"):
            torch.testing.assert_close(found[name][i : i + 1], values[name])


def test_what_does_not_go_together():
    net, x = net_of(), torch.randn(2, 4).double()
    fast = un.Tolerance(acceleration="anderson")
    with pytest.raises(QueryError, match="the same in every sweep"):
        net(observe={"x": x}, order=un.orders.random(), until=fast)
    with pytest.raises(QueryError, match="follow single updates"):
        net(observe={"x": x}, until=fast, check=True)
    for settings in ({"acceleration": "newton"}, {"depth": 0}, {"damping": 1.0}):
        with pytest.raises(QueryError):
            un.Tolerance(**settings)


def test_on_a_linear_map_anderson_ends_after_as_many_steps_as_there_are_dimensions():  # it is GMRES
    torch.manual_seed(0)
    matrix, right = 0.3 * torch.randn(3, 4, 4).double(), torch.randn(3, 4).double()
    exact = torch.linalg.solve(torch.eye(4).double() - matrix, right)
    anderson, x = Anderson(4), right
    for _ in range(6):
        image = right + (matrix @ x[:, :, None])[:, :, 0]
        x = anderson(image, image - x)
    torch.testing.assert_close(x, exact, rtol=1e-8, atol=1e-8)
