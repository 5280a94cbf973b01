"""Model: the updates written out by hand, and what must not matter."""

import math
import unittest.mock

import pytest
import torch
from matplotlib.image import imread

import undirected as un
from undirected.tasks.run import parameters
from undirected.tasks.sequences import figures
from undirected.tasks.sequences.data import Batch
from undirected.tasks.sequences.model import RANDOM, embeddings, network, scores, sinusoids, solve

VOCABULARY = tuple("abcdefg")


def net_and_batch(n=6, count=3):
    torch.manual_seed(0)
    net = network(VOCABULARY, longest=9, size=8).double()
    tokens = torch.randint(7, (count, n))
    known = torch.stack([torch.randperm(n) >= 2 for _ in range(count)])
    return net, Batch(tokens, known, None)


def by_hand(net, batch, iterations):
    """The order q k v s h s v k q x, from the gradient of the energy."""
    w_q, w_k, w_v, e = (net.factors[f"x-{name}"].weight for name in "qkvy")
    p = sinusoids(9, 8).double()[: batch.tokens.shape[1]]
    x = torch.where(batch.known[..., None], e[batch.tokens], 0)
    root = math.sqrt(8)
    s = h = None
    for _ in range(iterations):
        q = (x + p) @ w_q.T + (0 if s is None else s @ k)
        k = (x + p) @ w_k.T + (0 if s is None else s.mT @ q)
        v = (x + p) @ w_v.T + (0 if s is None else s.mT @ h)
        s = ((q @ k.mT + (0 if h is None else h @ v.mT)) / root).softmax(-1)
        h = s @ v
        s = ((q @ k.mT + h @ v.mT) / root).softmax(-1)
        v = (x + p) @ w_v.T + s.mT @ h
        k = (x + p) @ w_k.T + s.mT @ q
        q = (x + p) @ w_q.T + s @ k
        x = torch.where(batch.known[..., None], x, q @ w_q + k @ w_k + v @ w_v)
    return (x @ e.T)[~batch.known]


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_a_sweep_is_what_the_paper_s_updates_say(iterations):  # from the gradient of the energy, written out
    net, batch = net_and_batch()
    found = scores(net, batch, solve(net, batch, iterations))
    torch.testing.assert_close(found, by_hand(net, batch, iterations))


def test_embeddings_and_projections_are_all_that_is_learned():
    net = network(VOCABULARY, longest=9, size=8)
    assert parameters(net) == 7 * 8 + 3 * 8 * 8
    assert parameters(network(range(64), 24)) == 64 * 256 + 3 * 256 * 256


def test_missing_tokens_are_not_looked_at():
    net, batch = net_and_batch()
    other = Batch(torch.where(batch.known, batch.tokens, (batch.tokens + 3) % 7), batch.known, None)
    torch.testing.assert_close(scores(net, batch, solve(net, batch, 2)), scores(net, other, solve(net, other, 2)))


def test_padding_changes_nothing():  # from each sequence by itself
    net, batch = net_and_batch()
    lengths = torch.tensor([6, 3, 5])
    exists = torch.arange(6) < lengths[:, None]
    known = torch.tensor([[1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1]], dtype=torch.bool)
    padded = Batch(batch.tokens * exists, known, lengths)
    found = scores(net, padded, solve(net, padded, 2))
    for i, n in enumerate(lengths.tolist()):
        alone = Batch(batch.tokens[i : i + 1, :n], known[i : i + 1, :n], None)
        torch.testing.assert_close(found[i : i + 1], scores(net, alone, solve(net, alone, 2)))


@pytest.mark.parametrize("order", ["q k v s h s v k q x", RANDOM])
def test_the_energy_never_rises(order):  # from exact block minimisation
    net, batch = net_and_batch()
    x = torch.nn.functional.embedding(batch.tokens, embeddings(net))
    observed = {"x": un.Partial(x, known=batch.known[..., None])}
    found = net(observe=observed, want="x", order=order, iterations=3, check=True, trace=True)
    assert (found.trace.energy.diff(dim=0) <= 1e-9 * found.trace.energy.abs().max()).all()


def test_the_tokens_are_a_variable_too():  # y's update is the softmax of the scores
    net, batch = net_and_batch()
    solution = solve(net, batch, 2)
    tokens = net(observe={"x": solution["x"]}, want="y", order="y")["y"]
    torch.testing.assert_close(tokens[~batch.known], scores(net, batch, solution).softmax(1))


def test_every_pass_updates_the_attention():
    net, batch = net_and_batch()
    maps = solve(net, batch, 2, trace=True).trace.of("s")
    assert len(maps) == 4
    for one in maps:
        torch.testing.assert_close(one.sum(-1), torch.ones(3, 6, dtype=torch.float64))


@pytest.mark.parametrize(("order", "count"), [("forward-backward", 4), ("random", 2)])
def test_the_attention_is_drawn_in_the_networks_own_order(order, count, tmp_path):
    net = network(VOCABULARY, longest=9, size=8)
    net.notes["order"] = order
    drawn: list[object] = []
    text = f"{VOCABULARY[0]} ? {VOCABULARY[1]}"
    with unittest.mock.patch("matplotlib.axes.Axes.imshow", lambda axis, *_, **__: drawn.append(axis)):
        figures.attention({"net": (net, 2)}, text, tmp_path / "attention.png")
    assert len(drawn) == len(set(drawn)) == count


def test_attention_of_any_tokens_and_many_sweeps_makes_a_picture_of_modest_size(tmp_path):
    net = network([r"$\nope$", "$", "b"], longest=90, size=8, bounded=True)
    net.notes["order"] = "random"
    figures.attention({"net": (net, 50)}, " ".join([r"$\nope$", "?", "$"] * 30), tmp_path / "attention.png")
    height, width, _ = imread(tmp_path / "attention.png").shape
    assert width < 2500
    assert height < 500


def test_the_vocabulary_is_saved_with_the_network(tmp_path):
    net = network(VOCABULARY, longest=9, size=8)
    un.save(net, tmp_path / "net.safetensors")
    again = un.load(tmp_path / "net.safetensors")
    assert again.notes == {"vocabulary": list(VOCABULARY)}
    assert torch.equal(again.factors["x-k"].shift["x"], sinusoids(9, 8))
