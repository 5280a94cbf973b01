"""Rows that are missing: computed alone, with the same result as all rows together."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import undirected as un
from undirected.missing import missing_rows, row_axes

ORDER = "q k v s h s v k q x"


def attention(size=6, **more):
    torch.manual_seed(0)
    return un.models.attention(size, positions=torch.randn(10, size), **more).double()


def question(known, entries=False, size=6):
    """An observation; with `entries`, one single entry of a known row is missing too, so that all rows are computed."""
    torch.manual_seed(1)
    x = torch.randn(*known.shape, size, dtype=torch.float64, requires_grad=True)
    mask = known[..., None].repeat(1, 1, size)
    mask[0, 0, 0] &= not entries
    return x, un.Partial(x, known=mask)


KNOWN = torch.tensor([[True, True, False, True, True], [True, False, True, True, True], [True] * 5])


def test_rows_are_numbered_through_the_batch():  # counted by hand
    x = un.Variable("x", ("n", 3))
    assert missing_rows(x, KNOWN[..., None].expand(3, 5, 3), None).tolist() == [2, 6]
    exists = torch.arange(5)[None, :, None] < torch.tensor([2, 5, 5])[:, None, None]
    assert missing_rows(x, KNOWN[..., None].expand(3, 5, 3), exists).tolist() == [6]


def test_rows_known_in_part_are_not_rows():
    x = un.Variable("x", ("n", 3))
    known = KNOWN[..., None].repeat(1, 1, 3)
    assert missing_rows(x, known, None).tolist() == [2, 6]
    known[0, 0, 1] = False
    assert missing_rows(x, known, None) is None


def test_many_missing_rows_are_computed_with_the_others():
    assert missing_rows(un.Variable("x", ("n", 3)), torch.zeros(2, 4, 3, dtype=torch.bool), None) is None


@pytest.mark.parametrize(
    ("shape", "depth"), [(("n", 3), 1), (("n", "m", 3, 2), 2), ((3, "n"), 0), ((3,), 0), (("n",), 0)]
)
def test_rows_are_the_symbolic_axes_in_front(shape, depth):
    assert row_axes(un.Variable("x", shape)) == depth


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("lengths", [None, {"n": torch.tensor([5, 3, 4])}])
def test_gradients_are_those_of_all_rows(iterations, lengths, monkeypatch):  # the same network with every row computed
    net = attention()
    found = []
    for most in (0.5, -1.0):
        monkeypatch.setattr("undirected.missing.MOST", most)
        x, given = question(KNOWN)
        solution = net(observe={"x": given}, want=["x", "h"], order=ORDER, iterations=iterations, lengths=lengths)
        loss = solution["x"].square().sum() + solution["h"].sin().sum()
        found.append([solution["x"], *torch.autograd.grad(loss, [x, *net.parameters()])])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_receivers_bias_is_added_once(monkeypatch):  # x is the second variable of its factor, which adds the bias
    net = un.UNN(
        un.Variable("h", ("n", 4), un.Tanh()), un.Variable("x", ("n", 3), un.Tanh()), un.Linear("h", "x")
    ).double()
    torch.nn.init.normal_(net.bias_x)
    _, given = question(KNOWN, size=3)
    once = net(observe={"x": given}, want="x", order="h x", iterations=3)
    monkeypatch.setattr("undirected.missing.MOST", -1.0)
    torch.testing.assert_close(once["x"], net(observe={"x": given}, want="x", order="h x", iterations=3)["x"])


def test_a_start_of_ones_own_is_respected(monkeypatch):
    net = attention()
    x, given = question(KNOWN)
    start = {"x": torch.randn_like(x)}
    once = net(observe={"x": given}, want="x", order=ORDER, iterations=2, init=start)
    monkeypatch.setattr("undirected.missing.MOST", -1.0)
    torch.testing.assert_close(
        once["x"], net(observe={"x": given}, want="x", order=ORDER, iterations=2, init=start)["x"]
    )


def test_untied_weights_of_later_steps_send_whole_messages():
    net = attention()
    x, given = question(KNOWN)
    tied = net.unrolled({"x": given}, "x", ORDER, 2)
    untied = net.unrolled({"x": given}, "x", ORDER, 2, tie=False)
    torch.testing.assert_close(untied(x.detach(), given.known), tied(x.detach(), given.known))


def test_the_loss_does_not_ask_for_what_is_known():  # fenchel_young counts what is missing alone: half squared errors
    net = attention()
    x, given = question(KNOWN)
    solution = net(observe={"x": given}, want="x", order=ORDER, iterations=2)
    errors = (solution["x"] - x)[~KNOWN].square().sum() / 2
    torch.testing.assert_close(un.fenchel_young(solution, "x", x, "sum"), errors)


def test_the_second_iteration_costs_little():  # counted in products; 64 wide, 3 of 40 rows missing
    net = attention(64)
    known = torch.ones(4, 10, dtype=torch.bool)
    known[[0, 1, 2], [3, 5, 7]] = False

    def work(iterations, entries):
        _, given = question(known, entries, 64)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            net(observe={"x": given}, want="x", order=ORDER, iterations=iterations)
        return counter.get_total_flops()

    rows, width = 40, 64
    projection = 2 * rows * width * width
    attending = 2 * 4 * 10 * 10 * width
    # Three projections, three with 3 of 40 rows, and a product for every message between q, k, v, s and h.
    assert work(1, False) == 3 * projection + 3 * projection * 3 // rows + 6 * attending
    assert work(2, False) - work(1, False) < 0.3 * (work(2, True) - work(1, True))
