"""MLP against `nn.Sequential`."""

import onnxruntime
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import undirected as un

ACTIVATIONS = [(un.Tanh(), nn.Tanh()), (un.ReLU(), nn.ReLU()), (un.Sigmoid(), nn.Sigmoid())]


def twin(net: un.UNN, activation: nn.Module) -> nn.Sequential:
    """The directed network with the same weights, up to the logits."""
    layers: list[nn.Module] = []
    for factor in net.factors.values():
        linear = nn.Linear(factor.weight.shape[1], factor.weight.shape[0])
        linear.weight, linear.bias = factor.weight, nn.Parameter(net.bias(factor.b).detach())
        layers += [linear, activation]
    return nn.Sequential(*layers[:-1])


@given(
    sizes=st.lists(st.integers(1, 7), min_size=2, max_size=5),
    batch=st.integers(1, 4),
    activation=st.sampled_from(ACTIVATIONS),
)
@example(sizes=[784, 256, 10], batch=64, activation=ACTIVATIONS[0])
@settings(max_examples=15)
def test_one_sweep_from_zeros_is_sequential_bit_for_bit(sizes, batch, activation):  # from torch.nn
    net = un.models.mlp(*sizes, hidden=activation[0])
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(batch, sizes[0])
    order = [name for name in net.variables if name != "x"]
    solution = net(observe={"x": x}, want="y", order=order)
    logits = twin(net, activation[1])(x)
    assert torch.equal(solution.preactivation["y"], logits)
    assert torch.equal(solution["y"], logits.softmax(-1))


def test_gradients_of_one_sweep_are_those_of_sequential():  # from torch.nn
    net = un.models.mlp(5, 6, 4)
    x, labels = torch.randn(8, 5), torch.randint(4, (8,))
    un.fenchel_young(net(observe={"x": x}, want="y", order="h1 y"), "y", labels).backward()
    directed = twin(net, nn.Tanh())
    gradients = torch.autograd.grad(nn.functional.cross_entropy(directed(x), labels), list(directed.parameters()))
    mine = [net.factors["x-h1"].weight.grad, net.bias_h1.grad, net.factors["h1-y"].weight.grad, net.bias_y.grad]
    for found, expected in zip(mine, gradients, strict=True):
        torch.testing.assert_close(found, expected)


def test_more_sweeps_reach_a_point_that_no_block_can_improve(double):  # from the conditions of a minimum
    net = un.models.mlp(4, 6, 3)
    x = torch.randn(5, 4)
    found = net(observe={"x": x}, until=un.Tolerance(1e-12, max_iterations=1000))
    h, y = found["h1"], found["y"]
    torch.testing.assert_close(h, torch.tanh(net.factors["x-h1"].message(1, x, h) + y @ net.factors["h1-y"].weight))
    torch.testing.assert_close(y, torch.softmax(h @ net.factors["h1-y"].weight.T, 1))


def test_x_from_y_runs_the_weights_backward():  # from the block updates, written out
    net = un.models.mlp(4, 6, 3)
    y = torch.eye(3)
    h = torch.tanh(y @ net.factors["h1-y"].weight + net.bias_h1)
    x = h @ net.factors["x-h1"].weight
    torch.testing.assert_close(net(observe={"y": torch.arange(3)}, want="x", order="h1 x")["x"], x)


def test_training_classifies_and_draws_what_it_learned():  # from a task with a known answer: two separate clusters
    centre = torch.tensor([[2.0, 0.0, -2.0], [-2.0, 1.0, 2.0]])
    labels = torch.arange(40) % 2
    x = centre[labels] + 0.1 * torch.randn(40, 3)
    net = un.models.mlp(3, 8, 2, hidden=un.Tanh())
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(80):
        optimizer.zero_grad()
        forward = net(observe={"x": x}, want="y", iterations=2)
        backward = net(observe={"y": labels}, want="x", order="h1 x")
        loss = un.fenchel_young(forward, "y", labels) + un.fenchel_young(backward, "x", x)
        loss.backward()
        optimizer.step()
    assert (net(observe={"x": x}, want="y", iterations=2)["y"].argmax(1) == labels).all()
    drawn = net(observe={"y": torch.tensor([0, 1])}, want="x", order="h1 x")["x"]
    torch.testing.assert_close(drawn, centre, atol=0.3, rtol=0)


def test_dropout_keeps_the_energy_falling_and_is_off_in_evaluation():  # from the perspective of Psi
    net = un.models.mlp(4, 30, 30, 3, dropout=0.5)
    x = torch.randn(6, 4)
    net(observe={"x": x}, iterations=4, check=True)
    dropped = net(observe={"x": x}, want="h1", order="h1")["h1"]
    assert 0.3 < (dropped == 0).double().mean() < 0.7
    assert torch.equal(
        net.eval()(observe={"x": x}, want="y", order="h1 h2 y").preactivation["y"], twin(net, nn.Tanh())(x)
    )


def test_onnx_answers_the_same(tmp_path):  # from onnxruntime, an independent machine
    net = un.models.mlp(4, 6, 3).eval()
    x = torch.randn(5, 4)
    directed = net.unrolled(["x"], "y", "h1 y", iterations=3)
    torch.onnx.export(directed, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    expected = net(observe={"x": x}, want="y", order="h1 y", iterations=3)["y"].detach()
    torch.testing.assert_close(torch.from_numpy(found), expected)


def test_one_size_is_an_error():
    with pytest.raises(un.errors.DeclarationError, match="x and y at least"):
        un.models.mlp(4)
