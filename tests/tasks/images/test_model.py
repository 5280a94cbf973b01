"""Model: torch.nn as the independent implementation, and the theorem that the energy falls."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from undirected.tasks.images.model import DRAW, READ, draw, drawing_loss, network, read


@pytest.mark.parametrize("side", [28, 8])
def test_reading_once_is_the_plain_convnet(side):
    net = network(side)
    (k1, s1), (k2, s2) = {28: ((6, 2), (4, 2)), 8: ((3, 1), (4, 2))}[side]
    plain = nn.Sequential(
        nn.Conv2d(1, 32, k1, s1), nn.Tanh(), nn.Conv2d(32, 64, k2, s2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(10)
    )
    x = torch.rand(5, 1, side, side) * 2 - 1
    plain(x)
    weights = [net.factors["x-h1"].weight, net.bias_h1.flatten(), net.factors["h1-h2"].weight, net.bias_h2.flatten()]
    weights += [net.factors["h2-y"].weight, net.bias_y]
    for parameter, weight in zip(plain.parameters(), weights, strict=True):
        parameter.data = weight.detach().clone()
    torch.testing.assert_close(read(net, x, 1).preactivation["y"], plain(x))


@pytest.mark.usefixtures("double")
def test_the_loss_of_ten_prototypes_is_the_loss_of_every_example():
    net = network(8)
    images, labels = torch.rand(64, 1, 8, 8) * 2 - 1, torch.randint(7, (64,))  # no example of three classes
    loss = drawing_loss(draw(net, torch.arange(10), 3), images, labels)
    each = draw(net, labels, 3).preactivation["x"]  # tanh(t) = 2 sigmoid(2t) - 1: a bit's logit is 2t
    expected = F.binary_cross_entropy_with_logits(2 * each, (images > 0).to(each.dtype))
    torch.testing.assert_close(loss, expected)
    weights = [factor.weight for factor in net.factors.values()] + [net.bias_h1, net.bias_h2]  # y has one, not used
    for a, b in zip(torch.autograd.grad(loss, weights), torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(a, b)


def test_dropout_has_one_mask_per_solve_and_the_energy_falls():
    net = network(8, dropout=0.5).train()
    solution = net(observe={"x": torch.rand(4, 1, 8, 8)}, order=READ, iterations=4, check=True, trace=True)
    dropped = [(h == 0) for h in solution.trace.of("h1")]
    assert 0.3 < dropped[0].float().mean() < 0.7
    assert all(torch.equal(dropped[0], later) for later in dropped[1:])
    net(observe={"y": torch.arange(10)}, order=DRAW, iterations=4, check=True)


def test_the_class_starts_where_it_is_told():
    net = network(8).eval()
    x = torch.rand(6, 1, 8, 8)
    given = net(observe={"x": x}, want="y", order=READ, iterations=2, init={"y": torch.full((6, 10), 0.1)})
    assert torch.equal(read(net, x, 2, "uniform")["y"], given["y"])
    zeros, random = read(net, x, 2), read(net, x, 2, "random")
    assert not torch.allclose(zeros["y"], given["y"])
    assert not torch.allclose(zeros["y"], random["y"])
