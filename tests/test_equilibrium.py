"""Iterating to equilibrium: the same point as a long run, each example on its own clock."""

import pytest
import torch
from hypothesis import given, settings
from strategies import cases

import undirected as un
from undirected.errors import Diverged, NotConverged, QueryError


def net_of(scale: float = 0.5):
    net = un.UNN(
        un.Variable("x", (4,)), un.Variable("h", (5,), un.Tanh()), un.Variable("g", (4,), un.Sigmoid()),
        un.Variable("y", (3,), un.Softmax()), un.Linear("x", "h"), un.Linear("h", "g"), un.Linear("g", "y"),
    ).double()  # fmt: skip
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_().mul_(scale)
    return net


@settings(max_examples=30)
@given(cases(inits=["zeros", "uniform"], energies=True))
@torch.no_grad()
def test_a_fixed_number_of_sweeps_is_the_same_either_way(case):  # plans of n sweeps, tested against a plain loop
    for sweeps in (2, 5):
        tolerance = un.Tolerance(residual=1e-300, max_iterations=sweeps, otherwise="ignore")
        try:
            found, expected = case(until=tolerance, iterations=None), case(iterations=sweeps)
        except Diverged:  # random networks may have no lower bound; where they say so is tested elsewhere
            return
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-10, atol=1e-10)
        for name, t in expected.preactivation.items():
            torch.testing.assert_close(found.preactivation[name], t, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found.energy, expected.energy, rtol=1e-9, atol=1e-9)


def test_equilibrium_is_where_a_long_run_ends():
    net = net_of()
    x = torch.randn(20, 4).double()
    found = net(observe={"x": x}, until=un.Tolerance(1e-12, max_iterations=500))
    long = net(observe={"x": x}, iterations=300)
    assert found.converged.all()
    assert (found.residual <= 1e-12).all()
    for name in ("h", "g", "y"):
        torch.testing.assert_close(found[name], long[name], rtol=1e-10, atol=1e-10)
    again = net(observe={"x": x}, iterations=1, init={name: found[name] for name in ("h", "g", "y")})
    for name in ("h", "g", "y"):  # a fixed point, by its definition
        torch.testing.assert_close(again[name], found[name], rtol=1e-10, atol=1e-10)


def test_each_example_stops_on_its_own():  # alone it takes as many sweeps, and ends where it ends in a batch
    net = net_of(0.9)
    x = torch.cat([0.1 * torch.randn(6, 4), 6 * torch.randn(6, 4)]).double()
    until = un.Tolerance(1e-7, max_iterations=2000)
    found = net(observe={"x": x}, until=until)
    assert len(set(found.iterations.tolist())) > 2
    for i in range(len(x)):
        alone = net(observe={"x": x[i : i + 1]}, until=until)
        assert alone.iterations.item() == found.iterations[i].item()
        torch.testing.assert_close(alone["y"], found["y"][i : i + 1], rtol=1e-12, atol=1e-12)
        exact = net(observe={"x": x[i : i + 1]}, iterations=int(found.iterations[i]))  # frozen: not one sweep more
        torch.testing.assert_close(exact["y"], found["y"][i : i + 1], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(exact.preactivation["h"], found.preactivation["h"][i : i + 1])
    watched = net(observe={"x": x}, until=until, check=True, trace=True)
    assert torch.equal(watched.iterations, found.iterations)
    torch.testing.assert_close(watched["y"], found["y"], rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("acceleration", [None, "anderson"])
def test_examples_that_are_done_cost_nothing_more(acceleration, monkeypatch):  # rows that go through a factor
    net, x = net_of(0.9), 2 * torch.randn(8, 4).double()
    rows, score = [], un.Linear.message

    def counted(self, target, *values):
        rows.append(len(values[0] if target else values[1]))
        return score(self, target, *values)

    def sender(self, target, bias):
        return lambda *values: counted(self, target, *values) + (0 if bias is None else bias)

    monkeypatch.setattr(un.Linear, "sender", sender)
    until = un.Tolerance(1e-8, max_iterations=2000, acceleration=acceleration)
    found = net(observe={"x": x}, order="h g y", until=until)
    assert len(set(found.iterations.tolist())) > 1
    # From the second sweep on, messages are g to h, h to g, y to g and g to y; the first has no values to hear from.
    assert sum(rows) <= 4 * int(found.iterations.sum()) + 8


def test_freezing_with_lengths_parts_and_dropout():  # the same as each example alone
    net = un.UNN(
        un.Variable("x", ("n", 3), un.Tanh()), un.Variable("h", ("n", 4), un.Tanh()),
        un.Variable("y", (2,), un.Softmax()), un.Linear("x", "h"), un.Linear("h", "y"),
    ).double()  # fmt: skip
    x, known = torch.rand(5, 6, 3).double() - 0.5, torch.rand(5, 6, 3) < 0.5
    lengths = torch.tensor([6, 1, 3, 2, 5])
    until = un.Tolerance(1e-9, max_iterations=500)
    found = net(observe={"x": un.Partial(x, known)}, lengths={"n": lengths}, until=until)
    assert found.converged.all()
    for i, n in enumerate(lengths.tolist()):
        alone = net(observe={"x": un.Partial(x[i : i + 1, :n], known[i : i + 1, :n])}, until=until)
        torch.testing.assert_close(found["x"][i : i + 1, :n], alone["x"], rtol=1e-12, atol=1e-12)
    dropped = un.UNN(
        un.Variable("x", (3,)), un.Variable("h", (9,), un.Tanh(), dropout=0.5), un.Variable("y", (2,), un.Tanh()),
        un.Linear("x", "h"), un.Linear("h", "y"),
    ).double()  # fmt: skip
    solution = dropped.train()(observe={"x": x[:, 0]}, until=until, check=True)
    assert 0 < (solution["h"] == 0).sum() < solution["h"].numel()


def test_the_energy_can_be_asked_to_settle_too():
    net = net_of(0.9)
    x = 3 * torch.randn(8, 4).double()
    loose = net(observe={"x": x}, until=un.Tolerance(0.5))
    tight = net(observe={"x": x}, until=un.Tolerance(0.5, energy=1e-12))
    assert (tight.iterations >= loose.iterations).all()
    assert (tight.iterations > loose.iterations).any()
    more = net(observe={"x": x}, iterations=int(tight.iterations.max()) + 20)
    assert (tight.energy - more.energy).max() < 1e-9


def test_what_happens_otherwise():
    net = net_of(0.9)
    x = torch.randn(4, 4).double()
    message = r"Not converged: 4 of 4 examples, worst residual .* after 3 sweeps \(example \d(, variable '\w')?\)"
    with pytest.warns(NotConverged, match=message):
        solution = net(observe={"x": x}, until=un.Tolerance(1e-14, max_iterations=3))
    assert not solution.converged.any()
    assert solution.iterations.tolist() == [3] * 4
    assert "0 of 4 converged" in repr(solution)
    with pytest.raises(Diverged, match="Raise max_iterations"):
        net(observe={"x": x}, until=un.Tolerance(1e-14, max_iterations=3, otherwise="raise"))
    net(observe={"x": x}, until=un.Tolerance(1e-14, max_iterations=3, otherwise="ignore"))


def test_everything_observed_is_settled_at_once():
    net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (2,)), un.Linear("x", "y"))
    solution = net(observe={"x": torch.zeros(3, 2), "y": torch.zeros(3, 2)}, until=un.Tolerance())
    assert solution.converged.all()
    assert net(observe={"x": torch.zeros(3, 2), "y": torch.zeros(3, 2)})["y"].shape == (3, 2)


def test_scalar_variables_settle():  # a shape without axes
    net = un.UNN(un.Variable("x", ()), un.Variable("y", (), un.Tanh()), un.Linear("x", "y")).double()
    x = torch.randn(3).double()
    y = net(observe={"x": x}, want="y", until=un.Tolerance(1e-9))["y"]
    torch.testing.assert_close(y, (x * net.factors["x-y"].weight[0, 0] + net.bias_y).tanh())


def test_gradients_flow_through_the_iterations():  # the same as through as many sweeps of a fixed run
    net = net_of()
    x = torch.randn(3, 4).double()
    found = net(observe={"x": x}, want="y", until=un.Tolerance(1e-6, max_iterations=50))
    grads = torch.autograd.grad(found["y"][:, 0].sum(), list(net.parameters()), allow_unused=True)
    total = 0
    for i in range(3):
        fixed = net(observe={"x": x[i : i + 1]}, want="y", iterations=int(found.iterations[i]))
        total = total + fixed["y"][0, 0]
    expected = torch.autograd.grad(total, list(net.parameters()), allow_unused=True)
    for a, b in zip(grads, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "settings_", [{"residual": 0}, {"residual": -1}, {"energy": 0}, {"max_iterations": 1}, {"otherwise": "stop"}]
)
def test_settings_are_checked(settings_):
    with pytest.raises(QueryError):
        un.Tolerance(**settings_)


def test_a_count_and_a_tolerance_exclude_each_other():
    net, x = net_of(), torch.zeros(1, 4).double()
    with pytest.raises(QueryError, match="either iterations or until"):
        net(observe={"x": x}, iterations=3, until=un.Tolerance())


def test_divergence_is_explained():  # the coupling grows without bound, and the message says which variables
    net = un.UNN(
        un.Variable("x", (2,)), un.Variable("a", (2,)), un.Variable("b", (2,)), un.Linear("x", "a"), un.Linear("a", "b")
    )
    with torch.no_grad():
        net.factors["a-b"].weight.copy_(3 * torch.eye(2))
    with pytest.raises(
        Diverged, match=r"b has grown to .* finite numbers \(example 0\).*spectral norm of the coupling of a, b"
    ) as caught:
        net(observe={"x": torch.ones(1, 2)}, until=un.Tolerance(max_iterations=1000))
    assert "is 3 and must stay below 1" in str(caught.value)
