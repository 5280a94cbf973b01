"""Plans: the four savings, counted by hand."""

import gc
import linecache
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from strategies import cases

import undirected as un


def conv_net():
    """The convolutional network of the design."""
    return un.UNN(
        un.Variable("x", (1, 28, 28), un.Tanh(), bias=False), un.Variable("h1", (4, 12, 12), un.Tanh(), bias="channel"),
        un.Variable("h2", (6, 5, 5), un.Tanh(), bias="channel"), un.Variable("y", (10,), un.Softmax()),
        un.Conv2d("x", "h1", kernel_size=6, stride=2), un.Conv2d("h1", "h2", kernel_size=4, stride=2),
        un.Linear("h2", "y"),
    )  # fmt: skip


def vectors(*names, joined, **kinds):
    return un.UNN(
        *[un.Variable(name, (3,), kinds.get(name, un.Tanh())) for name in names],
        *[un.Linear(a, b) for a, b in joined],
    )


class Counted(un.Factor):
    """An inner product that counts the calls of its message."""

    def __init__(self, a, b):
        super().__init__(a, b)
        self.calls = 0

    def score(self, a, b):
        return (a * b).sum(1)

    def message(self, target, *values):
        self.calls += 1
        return 0.1 * values[1 - target]


def test_six_of_twelve_convolutions():  # the number in the design
    plan = conv_net().plan(["x"], want="y", order="h1 h2 y h2", iterations=3)
    convolutions = Counter(m.factor for m in plan.computed)
    assert convolutions["x-h1"] == 1  # hoisted
    assert convolutions["h1-h2"] == 2 + 3  # to h1 in iterations 2 and 3, to h2 in all three
    assert sum(count for factor, count in convolutions.items() if factor != "h2-y") == 6
    naive = 2 * 3 + 2 * 3  # h1 takes two convolutions an iteration, each of two h2 updates one
    assert naive == 12
    saved = plan.savings
    # Messages with the linear layer: h1 2, h2 2, y 1, h2 2 = 7 a sweep.
    assert saved.naive == 21
    assert saved.hoisted == 2  # x to h1, in iterations 2 and 3
    assert saved.pruned == 2  # the last h2
    # h2 is still zero for h1 in iteration 1, y for the first h2.
    assert saved.skipped == 2
    # h1 to the second h2 (iterations 1, 2); h2's y of the iteration before, in iterations 2 and 3.
    assert saved.reused == 2 + 2
    assert saved.computed == 21 - 2 - 2 - 2 - 4


def test_a_chain_counted_by_hand():
    net = vectors("x", "h", "y", joined=[("x", "h"), ("h", "y")])
    # h takes x and y, y takes h: 3 messages a sweep.
    one = net.plan(["x"], want="y", order="h y").savings
    assert (one.naive, one.computed, one.skipped, one.pruned, one.hoisted, one.reused) == (3, 2, 1, 0, 0, 0)
    three = net.plan(["x"], want="y", order="h y", iterations=3).savings
    assert (three.naive, three.computed, three.skipped, three.hoisted) == (9, 1 + 3 + 2, 1, 2)
    hidden = net.plan(["x"], want="h", order="h y", iterations=3).savings  # the last y serves nobody
    assert (hidden.naive, hidden.computed, hidden.pruned) == (9, 1 + 2 + 2, 1)


def test_everything_observed_around_a_block_is_done_once():
    net = vectors("x", "h", "y", joined=[("x", "h"), ("h", "y")])
    plan = net.plan(["x", "y"], want="h", iterations=5)
    assert len(plan.executed) == 1
    saved = plan.savings
    assert (saved.naive, saved.computed, saved.hoisted) == (10, 2, 8)
    assert str(plan).count("stays: nothing it depends on has changed") == 4


def test_updates_that_nothing_wanted_depends_on_are_pruned():
    net = vectors("x", "a", "b", "c", joined=[("x", "a"), ("x", "b"), ("b", "c")])
    plan = net.plan(["x"], want="a", order="a b c", iterations=4)
    assert [u.variable for u in plan.executed] == ["a"]
    assert plan.savings.computed == 1


def test_a_start_other_than_zero_is_not_skipped():
    net = vectors("x", "h", "y", joined=[("x", "h"), ("h", "y")])
    assert net.plan(["x"], want="h", order="h").savings.skipped == 1
    assert net.plan(["x"], want="h", order="h", init="uniform").savings.skipped == 0
    assert net.plan(["x"], want="h", order="h", init={"y": "random"}).savings.skipped == 0


def test_a_shift_is_not_skipped():  # a zero variable with a constant added is not zero
    net = un.UNN(
        un.Variable("x", (3,)), un.Variable("p", (3,)), un.Variable("h", (3,)),
        un.Linear("x", "h"), un.Linear("p", "h", shift={"p": torch.ones(3)}),
    )  # fmt: skip
    plan = net.plan(["x"], want="h", order="h p")
    assert (plan.savings.computed, plan.savings.skipped) == (2, 0)


def test_factors_of_three_are_skipped_while_any_is_zero():  # a product with a zero in it
    net = un.UNN(
        un.Variable("x", (3,)), un.Variable("g", (3,)), un.Variable("h", (3,)), un.Einsum("x[i] g[i] h[i]")
    )  # fmt: skip
    plan = net.plan(["x"], order="g h", want="h", iterations=2)
    # g: h is zero; h: g is b; second sweep: both.
    assert (plan.savings.naive, plan.savings.skipped, plan.savings.computed) == (4, 1, 3)


def test_the_plan_is_what_runs():  # calls counted in the factor itself
    factors = [Counted("x", "h"), Counted("h", "g"), Counted("g", "y")]
    net = un.UNN(*[un.Variable(name, (3,), un.Tanh()) for name in "xhgy"], *factors)
    kwargs = {"want": "y", "order": "h g y g", "iterations": 4}
    net(observe={"x": torch.randn(2, 3)}, **kwargs)
    counts = Counter(m.factor for m in net.plan(["x"], **kwargs).computed)
    assert {factor.name: factor.calls for factor in factors} == counts
    assert counts == {"x-h": 1, "h-g": 4 + 3, "g-y": 4 + 3}


@settings(max_examples=60)
@given(cases())
def test_the_savings_add_up(case):  # every message of a naive unrolling is computed, or accounted for
    net = case.net
    for want in [None, *dict.fromkeys(case.order.split())]:
        plan = net.plan(case.observe, want=want, order=case.order, iterations=case.iterations, init=case.init)
        saved = plan.savings
        names = case.order.split() * case.iterations
        assert saved.naive == sum(len(net.links[name]) for name in names)
        assert saved.naive == saved.computed + saved.hoisted + saved.reused + saved.skipped + saved.pruned
        assert saved.computed == len(plan.computed)
        assert str(plan).count("\n") == len(names) + 1


def test_a_plan_reads_well():
    net = vectors("x", "h", "y", joined=[("x", "h"), ("h", "y")], y=un.Softmax())
    text = str(net.plan(["x"], want="y", order="h y h", iterations=2))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == "observe x; want y"
    assert lines[1].startswith("1.1")
    assert lines[1].endswith("h = Tanh(b + x-h)   skipped, still zero: h-y")
    assert lines[2].endswith("y = Softmax(b + h-y)")
    assert lines[3].endswith("h = Tanh(b + [x-h] + h-y)")
    assert lines[4].endswith("stays: nothing it depends on has changed")
    assert lines[6].endswith("pruned: nothing wanted depends on it")
    assert "in part" in str(net.plan({"x": un.Partial(torch.zeros(1, 3), torch.ones(3, dtype=torch.bool))}, want="y"))


def test_plans_are_kept_and_bounded():
    net = vectors("x", "h", "y", joined=[("x", "h"), ("h", "y")])
    assert net.plan(["x"], want="y") is net.plan(["x"], want="y")
    for iterations in range(1, 270):
        net.plan(["x"], want="y", order=("h", *"y" * iterations))
    assert len(net._plans) <= 256
    net.plan(["x"], want="y", order=un.orders.random())
    assert all(not isinstance(key[4], un.orders.Random) for key in net._plans)


@pytest.mark.parametrize("observe", [["x"], "x", {"x": torch.zeros(1, 3)}])
def test_what_plan_takes(observe):
    assert str(vectors("x", "y", joined=[("x", "y")]).plan(observe, want="y")).startswith("observe x; want y")


def test_random_orders_leave_nothing_behind():  # their programs are written anew each time, and forgotten
    net = vectors("x", "a", "b", "c", "d", joined=[("x", "a"), ("a", "b"), ("b", "c"), ("c", "d")])
    gc.collect()
    before = len(linecache.cache)
    for _ in range(20):
        net(observe={"x": torch.zeros(1, 3)}, order=un.orders.random(), iterations=3)
    gc.collect()
    assert len(linecache.cache) - before <= 2
