"""Conv against `nn.Sequential` of `nn.Conv2d`."""

import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import undirected as un


def twin(net: un.UNN) -> nn.Sequential:
    layers: list[nn.Module] = []
    for factor in list(net.factors.values())[:-1]:
        out, into, kernel, _ = factor.weight.shape
        layer = nn.Conv2d(into, out, kernel, stride=factor.stride)
        layer.weight, layer.bias = factor.weight, nn.Parameter(net.bias(factor.b).detach().flatten())
        layers += [layer, nn.Tanh()]
    last = list(net.factors.values())[-1]
    linear = nn.Linear(last.weight.shape[1], last.weight.shape[0])
    linear.weight, linear.bias = last.weight, nn.Parameter(net.bias_y.detach())
    return nn.Sequential(*layers, nn.Flatten(), linear)


def randomized(net: un.UNN) -> un.UNN:
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    return net


@given(
    layers=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2)), min_size=1, max_size=3),
    image=st.tuples(st.integers(1, 3), st.integers(12, 15), st.integers(12, 15)),
)
@settings(max_examples=12)
def test_one_sweep_from_zeros_is_the_directed_network(layers, image):  # from torch.nn
    channels, kernels, strides = zip(*layers, strict=True)
    net = randomized(un.models.conv(image, channels, 4, kernels, strides))
    x = torch.randn(2, *image).tanh()
    order = [name for name in net.variables if name != "x"]
    torch.testing.assert_close(net(observe={"x": x}, want="y", order=order).preactivation["y"], twin(net)(x))


@given(image=st.tuples(st.integers(1, 2), st.integers(9, 12), st.integers(9, 12)))
@settings(max_examples=6)
def test_a_drawn_image_is_the_transposed_network(image):  # from autograd of torch.nn: the derivative is the transpose
    net = randomized(un.models.conv(image, (3, 4), 5))
    h1, h2 = net.variables["h1"].shape, net.variables["h2"].shape
    first, second = (nn.Conv2d(*sizes, 3, stride=2, bias=False) for sizes in ((image[0], 3), (3, 4)))
    first.weight, second.weight = net.factors["x-h1"].weight, net.factors["h1-h2"].weight

    def transposed(layer, value, shape):
        start = torch.zeros(len(value), *shape, requires_grad=True)
        return torch.autograd.grad(layer(start), start, value)[0]

    y = torch.eye(5)
    top = torch.tanh((y @ net.factors["h2-y"].weight).view(5, *h2) + net.bias_h2)
    middle = torch.tanh(transposed(second, top, h1) + net.bias_h1)
    expected = torch.tanh(transposed(first, middle, image))
    found = net(observe={"y": torch.arange(5)}, want="x", order="h2 h1 x")["x"]
    torch.testing.assert_close(found, expected)


def test_known_pixels_stay_and_the_rest_is_found():  # from what a partial observation means
    net = randomized(un.models.conv((1, 9, 9), (4,), 3))
    x = torch.randn(2, 1, 9, 9).tanh()
    known = torch.rand(9, 9) < 0.5
    found = net(observe={"x": un.Partial(x, known=known)}, want=["x", "y"], iterations=4, check=True)
    assert torch.equal(found["x"][..., known], x[..., known])
    assert (found["x"][..., ~known] != 0).all()


def test_onnx_answers_the_same(tmp_path):  # from onnxruntime, an independent machine
    net = randomized(un.models.conv((1, 9, 9), (4, 5), 3)).eval()
    x = torch.randn(2, 1, 9, 9).tanh()
    directed = net.unrolled(["x"], "y", "h1 h2 y h2", iterations=2)
    torch.onnx.export(directed, (x,), tmp_path / "net.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    expected = net(observe={"x": x}, want="y", order="h1 h2 y h2", iterations=2)["y"].detach()
    torch.testing.assert_close(torch.from_numpy(found), expected)


def test_layers_that_do_not_fit_are_errors():
    with pytest.raises(un.errors.DeclarationError, match=r"kernel of 5 does not fit into h1 \(2, 4, 4\)"):
        un.models.conv((1, 8, 8), (2, 3), 10, kernel_size=5, stride=1)
    with pytest.raises(un.errors.DeclarationError, match="2 layers, but stride has 1 entries"):
        un.models.conv((1, 8, 8), (2, 3), 10, stride=[2])
