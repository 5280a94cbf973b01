"""The parser against a biaffine parser and a loop, both written out here."""

import pytest
import torch
from torch.nn import functional as F

import undirected as un
from undirected.models.parser import ORDER

INPUTS, HIDDEN = 5, 7


def network(scale: float = 0.5, **settings) -> un.UNN:
    net = un.models.parser(INPUTS, HIDDEN, **settings)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0, scale)
    return net


def observed(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"x": x, "w": x[:, 1:]}


def parts(net: un.UNN):
    v = net.factors["y-h-m"].V
    return net.factors["x-h"].weight, net.factors["w-m"].weight, net.bias("h"), net.bias("m"), v


def test_one_sweep_is_a_biaffine_parser_bit_for_bit():  # from torch.nn.functional
    net = network()
    x = torch.randn(3, 6, INPUTS)
    wh, wm, bh, bm, v = parts(net)
    heads, modifiers = F.linear(x, wh, bh.flatten()).relu(), F.linear(x[:, 1:], wm, bm.flatten()).relu()
    scores = heads @ v @ modifiers.mT
    found = net(observe=observed(x), want="y", order=ORDER)
    assert torch.equal(found.preactivation["y"], scores)
    assert torch.equal(found["y"], un.SpanningTree().marginals(scores))


@pytest.mark.parametrize("projective", [False, True])
def test_three_sweeps_are_the_loop(double, projective):  # from the updates, written out: m is updated from the new h
    net = network(projective=projective)
    x = torch.randn(3, 6, INPUTS)
    wh, wm, bh, bm, v = parts(net)
    tree = un.ProjectiveTree() if projective else un.SpanningTree()
    y, m = torch.zeros(3, 6, 5), torch.zeros(3, 5, HIDDEN)
    for _ in range(3):
        h = (x @ wh.T + bh + y @ m @ v.T).relu()
        m = (x[:, 1:] @ wm.T + bm + y.mT @ h @ v).relu()
        y = tree.marginals(h @ v @ m.mT)
    found = net(observe=observed(x), want="y", order=ORDER, iterations=3)
    torch.testing.assert_close(found["y"], y)


@pytest.mark.parametrize("projective", [False, True])
def test_no_update_raises_the_energy(double, projective):  # from exact block minimisation
    net = network(scale=0.3, projective=projective, dropout=0.3).train()
    x = torch.randn(3, 6, INPUTS)
    found = net(
        observe=observed(x), order=ORDER, iterations=4, lengths={"n": torch.tensor([5, 2, 1])}, check=True, trace=True
    )
    assert (found.trace.energy.diff(dim=0) <= 1e-9).all()


def test_padding_changes_nothing(double):  # from the sentence alone
    net = network()
    x = torch.randn(2, 7, INPUTS)
    lengths = torch.tensor([6, 3])
    together = net(observe=observed(x), want="y", order=ORDER, iterations=3, lengths={"n": lengths})["y"]
    alone = net(observe=observed(x[1:, :4]), want="y", order=ORDER, iterations=3)["y"]
    torch.testing.assert_close(together[1:, :4, :3], alone)
    assert (together[1, :, 3:] == 0).all()


def test_dropout_has_one_mask_for_a_whole_solve():  # from the definition: what is dropped once stays dropped
    net = network(dropout=0.5).train()
    with torch.no_grad():
        net.bias("h").fill_(100.0)  # so that nothing else is zero
        net.factors["y-h-m"].V.mul_(1e-3)
    x = torch.randn(2, 6, INPUTS)
    trace = net(observe=observed(x), order=ORDER, iterations=3, trace=True).trace
    heads = trace.of("h")
    assert len(heads) == 3
    assert 0 < int((heads[0] == 0).sum()) < heads[0].numel()
    assert all(torch.equal(heads[0] == 0, later == 0) for later in heads[1:])


def test_a_strong_coupling_diverges_and_says_why():  # from the energy, which has no lower bound
    net = network(scale=3.0)
    x = torch.randn(2, 6, INPUTS)
    with pytest.raises(un.errors.Diverged, match=r"no lower bound.*h, m \(factor 'y-h-m'\)"):
        net(observe=observed(x), want="y", order=ORDER, until=un.Tolerance())


def test_gradients_reach_the_vectors_and_all_weights(double):  # from finite differences
    net = network()
    x = torch.randn(1, 4, INPUTS, requires_grad=True)
    gold = torch.tensor([[2, 0, 2]])

    def loss(x, *_):
        return un.fenchel_young(net(observe=observed(x), want="y", order=ORDER, iterations=2), "y", gold)

    assert torch.autograd.gradcheck(loss, (x, *net.parameters()), fast_mode=True)
