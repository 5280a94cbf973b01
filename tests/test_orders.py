"""Orders: what each of them updates, and what is refused."""

import itertools

import pytest
import torch

import undirected as un
from undirected import orders
from undirected.errors import QueryError, UnsafeGroup


def chain(*names):
    variables = [un.Variable(name, (2,), un.Tanh()) for name in names]
    return un.UNN(*variables, *[un.Linear(a, b) for a, b in itertools.pairwise(names)])


def updates(net, observe, order=None, iterations=1, **kwargs):
    plan = net.plan(observe, order=order, iterations=iterations, **kwargs)
    return " ".join(update.variable for update in plan.updates)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ("x", "h1 h2 y h2"),
        ("y", "h2 h1 x h1"),
        ("x y", "h1 h2"),
        ("h1", "x h2 y h2"),
        ("h1 h2", "x y"),
        ("x h1 h2", "y"),
    ],
)
def test_forward_then_backward(observed, expected):  # from the design: away from what is observed, and back
    net = chain("x", "h1", "h2", "y")
    found = updates(net, observed.split())
    assert found == expected
    assert found == updates(net, observed.split(), order=orders.forward_backward())


def test_a_partly_observed_end_is_updated_last():
    net = chain("x", "h", "y")
    part = un.Partial(torch.zeros(1, 2), torch.tensor([True, False]))
    assert updates(net, {"x": part}) == "h y h x"


def test_nothing_observed_updates_everything():
    net = chain("x", "h", "y")
    assert set(updates(net, []).split()) == {"x", "h", "y"}


@pytest.mark.parametrize(
    ("written", "sweep"),
    [
        ("a b", (("a",), ("b",))),
        ("a (b c)d", (("a",), ("b", "c"), ("d",))),
        (["a", "b", "a"], (("a",), ("b",), ("a",))),
        (["a", "(b c)"], (("a",), ("b", "c"))),
        (["a", ("b", "c"), ["d"]], (("a",), ("b", "c"), ("d",))),
    ],
)
def test_written_orders(written, sweep):
    assert orders.parse(written).sweep == sweep


@pytest.mark.parametrize("written", ["(a b", "a)", "((a b) c)", "()", "a ()"])
def test_parentheses_must_match(written):
    with pytest.raises(QueryError, match="parentheses do not match"):
        orders.parse(written)


def test_an_empty_order():
    with pytest.raises(QueryError, match="is empty"):
        orders.parse("  ")


def test_random_orders_follow_the_seed():
    net = chain("x", "a", "b", "c", "d", "e")
    order = orders.random()
    torch.manual_seed(1)
    first = updates(net, ["x"], order, 6)
    assert first != updates(net, ["x"], order, 6)  # drawn anew
    torch.manual_seed(1)
    assert first == updates(net, ["x"], order, 6)
    sweeps = [first.split()[i : i + 5] for i in range(0, 30, 5)]
    assert all(sorted(sweep) == list("abcde") for sweep in sweeps)  # each a permutation
    assert len(set(map(tuple, sweeps))) > 1


def test_random_orders_with_a_seed_of_their_own():
    net = chain("x", "a", "b", "c", "d")
    a, b = (updates(net, ["x"], orders.random("a b c", last="d", seed=3), 4) for _ in range(2))
    assert a == b
    assert all(sweep.endswith("d") for sweep in [a[i : i + 7] for i in range(0, len(a), 8)])
    torch.manual_seed(1)
    state = torch.get_rng_state()
    updates(net, ["x"], orders.random(seed=3))
    assert torch.equal(state, torch.get_rng_state())


def test_colored_groups_share_no_factor():  # a proper colouring, by its definition; two colours suffice for a chain
    net = chain("x", "a", "b", "c", "d", "e")
    (sweep,) = orders.colored().sweeps(net, ["x"], [], 1)
    assert sorted(name for group in sweep for name in group) == list("abcde")
    assert len(sweep) == 2
    for group in sweep:
        for factor in net.factors.values():
            assert len(set(group) & set(factor.variables)) <= 1
    net(observe={"x": torch.zeros(1, 2)}, order=orders.colored(), iterations=3, check=True)


def test_unsafe_groups_are_refused():
    net = chain("x", "a", "b")
    message = (
        r"\(a b\) are updated together, but a and b both belong to factor 'a-b', so the energy could rise. Write them "
        r'one after the other: "a b"'
    )
    with pytest.raises(UnsafeGroup, match=message):
        net(observe={"x": torch.zeros(1, 2)}, order="(a b)")


def test_iterations():
    assert orders.count(3, training=True) == 3
    assert {orders.count((1, 5), training=True) for _ in range(200)} == {1, 2, 3, 4, 5}
    assert orders.count((1, 5), training=False) == 3
    assert orders.count([2, 2], training=True) == 2
    for wrong in (0, -1, (3, 2), (0, 2)):
        with pytest.raises(QueryError, match="at least 1 and in order"):
            orders.count(wrong, training=False)
    for wrong in (1.5, "2", (1, 2, 3), True, None):
        with pytest.raises(QueryError, match="is a whole number or a range"):
            orders.count(wrong, training=False)


def test_a_range_of_iterations_is_drawn_in_training():
    net = chain("x", "h", "y").train()
    x = torch.zeros(2, 2)
    drawn = {int(net(observe={"x": x}, iterations=(1, 4)).iterations[0]) for _ in range(60)}
    assert drawn == {1, 2, 3, 4}
    net.eval()
    assert net(observe={"x": x}, iterations=(1, 5)).iterations.tolist() == [3, 3]


def test_plan_checks_its_iterations_too():
    net = chain("x", "h", "y")
    for wrong in (0, 1.5):
        with pytest.raises(QueryError, match="iterations"):
            net.plan(["x"], iterations=wrong)
        with pytest.raises(QueryError, match="iterations"):
            net.unrolled(["x"], want="y", iterations=wrong)


def test_an_order_may_be_a_generator():
    net = chain("x", "h", "y")
    order = (name for name in ["h", ["y"]])
    assert net(observe={"x": torch.zeros(1, 2)}, order=order)["y"].shape == (1, 2)
