"""Solving: every update lowers the energy, and a plan gives what block coordinate descent, written plainly, gives."""

import naive
import pytest
import torch
from hypothesis import given, settings
from strategies import cases

import undirected as un


def tolerance(energy: torch.Tensor) -> torch.Tensor:
    return 1e-11 * (1 + energy.abs())


@settings(max_examples=80)
@given(cases(energies=True))
def test_every_update_lowers_the_energy(case):  # the theorem: exact block minimisation, for any graph and any order
    solution = case(check=True, trace=True)
    energies = solution.trace.energy
    assert energies.isfinite().all()
    assert (energies.diff(dim=0) <= tolerance(energies[1:])).all()


@settings(max_examples=40)
@given(cases(dropout=True, energies=True))
def test_dropout_keeps_the_energy_falling(case):  # Psi's perspective: dropout with a fixed mask is block minimisation
    case.net.train()
    energies = case(check=True, trace=True, iterations=3).trace.energy
    finite = energies.isfinite()
    falls = energies.diff(dim=0) <= tolerance(energies[1:])
    assert (falls | ~finite[:-1]).all()
    assert finite[-1].all()


@settings(max_examples=80)
@given(cases(inits=["zeros"]))
def test_the_plan_gives_what_a_plain_loop_gives(case):  # an independent implementation: tests/naive.py
    solution = case()
    order = case.order.split()
    values, t = naive.solve(case, 3, [order] * case.iterations)
    # Energies without a lower bound make large numbers, whose rounding shows in small ones that depend on them.
    atol = 1e-9 + 1e-13 * max(float(x.abs().max()) for x in (*values.values(), *t.values()))
    for name in dict.fromkeys(order):
        torch.testing.assert_close(solution[name], values[name], rtol=1e-9, atol=atol)
        mask = naive.masks_of(case)[name]
        if isinstance(case.observe.get(name), un.Partial):  # what is known needs no pre-activation
            mask = mask & ~case.observe[name].known
        expected = torch.where(mask, t[name], 0)
        torch.testing.assert_close(torch.where(mask, solution.preactivation[name], 0), expected, rtol=1e-9, atol=atol)


@settings(max_examples=30)
@given(cases(inits=["zeros"]))
def test_pruning_and_watching_change_nothing(case):  # a plan saves work, not results
    everything = case(check=True)
    for name in dict.fromkeys(case.order.split()):
        torch.testing.assert_close(case(want=name)[name], everything[name], rtol=1e-12, atol=1e-12)


@settings(max_examples=40)
@given(cases(inits=["zeros"]))
def test_a_padded_batch_is_its_examples_alone(case):  # the contract of lengths; alone means without any padding
    everything = case()
    for i in range(3):
        sizes = {s: int(case.lengths[s][i]) if s in case.lengths else case.sizes[s] for s in case.sizes}

        def cut(x, name, sizes=sizes, i=i):
            x = x[i : i + 1]
            for axis, size in enumerate(case.net.variables[name].event_shape(sizes), 1):
                x = x.narrow(axis, 0, size)
            return x

        observe = {}
        for name, value in case.observe.items():
            if isinstance(value, un.Partial):
                observe[name] = un.Partial(cut(value.value, name), cut(value.known, name))
            else:
                observe[name] = cut(value, name)
        lengths = {s: case.lengths[s][i : i + 1] for s in case.lengths}
        alone = case.net(observe=observe, order=case.order, iterations=case.iterations, lengths=lengths)
        for name in alone:
            torch.testing.assert_close(cut(everything[name], name), alone[name], rtol=1e-9, atol=1e-9)
            rest = everything[name][i].clone()
            inner = rest
            for axis, size in enumerate(case.net.variables[name].event_shape(sizes)):
                inner = inner.narrow(axis, 0, size)
            inner.zero_()
            assert not rest.any()  # padding is zero
        torch.testing.assert_close(everything.energy[i : i + 1], alone.energy, rtol=1e-9, atol=1e-9)


def test_groups_update_together(double):  # by the definition of coordinate descent, order within a safe group is free
    net = un.UNN(
        un.Variable("x", (3,)), un.Variable("a", (4,), un.Tanh()), un.Variable("b", (5,), un.ReLU()),
        un.Variable("y", (2,), un.Softmax()),
        un.Linear("x", "a"), un.Linear("x", "b"), un.Linear("a", "y"), un.Linear("b", "y"),
    )  # fmt: skip
    x = torch.randn(6, 3)
    together = net(observe={"x": x}, order="(a b) y", iterations=3)
    for order in ("a b y", "b a y"):
        torch.testing.assert_close(together["y"], net(observe={"x": x}, order=order, iterations=3)["y"])


def test_dropout_multiplies_by_one_mask_per_solve(double):  # from the design: 0 or 1 / (1 - p), one mask a solve
    net = un.UNN(un.Variable("x", (50,)), un.Variable("h", (400,), un.Identity(), bias=False, dropout=0.25),
                 un.Variable("y", (3,), un.Tanh()), un.Linear("x", "h"), un.Linear("h", "y"))  # fmt: skip
    x = torch.randn(2, 50)
    net.train()
    solution = net(observe={"x": x}, order="h y", iterations=3, trace=True)
    first, *others = [h == 0 for h in solution.trace.of("h")]
    assert all(torch.equal(first, other) for other in others)
    assert 0.18 < first.double().mean() < 0.32  # 800 draws of p = 0.25, over four standard deviations
    h = solution.trace.of("h")[0]
    expected = torch.where(first, 0, x @ net.factors["x-h"].weight.T / 0.75)
    torch.testing.assert_close(h, expected)
    assert not torch.equal(net(observe={"x": x}, want="h")["h"] == 0, first)  # another solve, another mask
    net.eval()
    assert not (net(observe={"x": x}, want="h")["h"] == 0).any()


def test_what_is_known_is_never_dropped():  # a Partial observation is evidence, not an activation
    net = un.UNN(un.Variable("x", (6,), dropout=0.9), un.Variable("h", (3,)), un.Linear("x", "h")).train()
    value, known = torch.randn(4, 6), torch.arange(6) < 3
    x = net(observe={"x": un.Partial(value, known)}, want="x", iterations=2)["x"]
    assert torch.equal(x[:, :3], value[:, :3])


@pytest.mark.parametrize("init", ["zeros", "uniform", "random", "tensor"])
def test_starting_points(init):  # from the definition of each start
    net = un.UNN(un.Variable("x", (3,)), un.Variable("y", (4,), un.Softmax()), un.Linear("x", "y"))
    x = torch.randn(2, 3)
    start = {"zeros": "zeros", "uniform": "uniform", "random": "random", "tensor": {"x": torch.ones(1, 3)}}[init]
    if init == "tensor":
        y = net(observe={}, want="y", order="y", init=start)["y"]
        torch.testing.assert_close(y, net(observe={"x": torch.ones(1, 3)}, want="y")["y"])
        return
    first = net(observe={"y": torch.tensor([1, 2])}, want="x", init=start)["x"]  # what x starts from plays no part
    torch.testing.assert_close(first, net.factors["x-y"].weight[[1, 2]] + net.bias_x)
    # x is updated first, from the y it starts with
    guess = net(observe={}, order="x", want="x", init=start)["x"]
    if init == "uniform":
        torch.testing.assert_close(guess, net.factors["x-y"].weight.mean(0, keepdim=True))
    if init == "zeros":
        torch.testing.assert_close(guess, net.bias_x[None])
    assert x.shape == (2, 3)
