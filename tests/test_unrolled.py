"""Unrolled queries: the same numbers as a call, compiled, exported and in onnxruntime."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from strategies import cases
from torch import nn

import undirected as un
from undirected.errors import QueryError


def image_net(**options):
    return un.UNN(
        un.Variable("x", (1, 12, 12), un.Tanh(), bias=False), un.Variable("h1", (4, 4, 4), un.Tanh(), bias="channel"),
        un.Variable("h2", (6,), un.ReLU(), **options), un.Variable("y", (3,), un.Softmax()),
        un.Conv2d("x", "h1", kernel_size=6, stride=2), un.Linear("h1", "h2"), un.Linear("h2", "y"),
    )  # fmt: skip


def attention_net():
    """Attention as an energy: s between queries and keys, with positions added to x."""
    shift = {"x": nn.Parameter(torch.randn(16, 4))}
    return un.UNN(
        un.Variable("x", ("n", 4)), un.Variable("q", ("n", 3)), un.Variable("k", ("n", 3)), un.Variable("v", ("n", 3)),
        un.Variable("s", ("n", "n"), un.Softmax(temperature=3**0.5)), un.Variable("h", ("n", 3)),
        un.Linear("x", "q", shift=shift), un.Linear("x", "k"), un.Linear("x", "v"),
        un.Einsum("s[i,j] q[i,d] k[j,d]"), un.Einsum("s[i,j] h[i,d] v[j,d]"),
    )  # fmt: skip


@settings(max_examples=30)
@given(cases(inits=["zeros"]))
def test_unrolled_is_the_call(case):  # the two ways to run one plan
    want = case.order.split()[-1]
    module = case.net.unrolled(case.observe, want=want, order=case.order, iterations=case.iterations)
    inputs = []
    for value in case.observe.values():
        inputs += [value.value, value.known] if isinstance(value, un.Partial) else [value]
    assert torch.equal(module(*inputs, lengths=case.lengths), case(want=want)[want])


def test_several_wanted_and_preactivations():
    net, x = image_net(), torch.randn(2, 1, 12, 12)
    solution = net(observe={"x": x}, want=["y", "h2"], iterations=2)
    y, h2 = net.unrolled(["x"], want="y h2", iterations=2)(x)
    assert torch.equal(y, solution["y"])
    assert torch.equal(h2, solution["h2"])
    logits = net.unrolled(["x"], want="y", iterations=2, preactivation=True)(x)
    assert torch.equal(logits, solution.preactivation["y"])


def test_it_is_in_the_mode_of_the_network():  # a network in eval mode drops nothing, and neither does its unrolling
    net, x = image_net(dropout=0.5).eval(), torch.randn(2, 1, 12, 12)
    module = net.unrolled(["x"], want="y")
    assert not module.training
    assert torch.equal(module(x), net(observe={"x": x}, want="y")["y"])
    assert not torch.equal(module.train()(x), net.eval()(observe={"x": x}, want="y")["y"])


def test_tied_weights_are_the_networks():
    net = image_net()
    module = net.unrolled(["x"], want="y", iterations=2)
    assert {id(p) for p in module.parameters()} == {id(p) for p in net.parameters()}


def test_untied_steps_begin_as_copies_and_part():  # one sweep changes with its own weights alone
    torch.manual_seed(0)
    net = attention_net().double()
    x = torch.randn(2, 5, 4).double()
    order, kwargs = "q k v s h", {"want": "h", "iterations": 3}
    tied = net.unrolled(["x"], order=order, **kwargs)
    untied = net.unrolled(["x"], order=order, tie=False, **kwargs)
    torch.testing.assert_close(untied(x), tied(x))
    mine = {id(p) for p in net.parameters()}
    assert not any(id(p) in mine for p in untied.parameters())
    untied(x).square().sum().backward()
    assert all(p.grad is None for p in net.parameters())  # none of the network's, its shift included
    shifts = [p for name, p in untied.named_parameters() if "shift" in name]
    assert shifts
    assert all(p.grad is not None for p in shifts)
    before = tied(x)
    with torch.no_grad():
        for parameter in untied.parameters():
            parameter.add_(0.3)
    assert torch.equal(tied(x), before)
    assert not torch.allclose(untied(x), before)


def test_untied_with_tied_factors_and_biases():
    step = un.Linear("h0", "h1")
    net = un.UNN(*[un.Variable(f"h{i}", (4,), un.Tanh()) for i in range(3)], step, step.tied("h1", "h2"))
    with torch.no_grad():
        net.bias_h1.normal_()
    x = torch.randn(3, 4)
    kwargs = {"want": "h2", "order": "h1 h2", "iterations": 2}
    torch.testing.assert_close(net.unrolled(["h0"], tie=False, **kwargs)(x), net.unrolled(["h0"], **kwargs)(x))


@pytest.mark.parametrize("make", [image_net, attention_net])
def test_compiles_in_one_graph(make):  # against eager mode, forward and backward
    torch._dynamo.reset()
    net = make().double()
    want = "y" if make is image_net else "h"
    x = (torch.randn(3, 1, 12, 12) if make is image_net else torch.randn(3, 5, 4)).double()
    order = None if make is image_net else "q k v s h"
    module = net.unrolled(["x"], want=want, order=order, iterations=2)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))
    expected = torch.autograd.grad(module(x).square().sum(), list(net.parameters()), allow_unused=True)
    found = torch.autograd.grad(compiled(x).square().sum(), list(net.parameters()), allow_unused=True)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


@pytest.mark.slow
def test_compiles_with_inductor():  # against eager mode
    torch._dynamo.reset()
    net, x = image_net(), torch.randn(3, 1, 12, 12)
    module = net.unrolled(["x"], want="y", iterations=3)
    torch.testing.assert_close(torch.compile(module, fullgraph=True)(x), module(x))


def test_the_network_itself_compiles():  # with graph breaks allowed, and against eager mode
    torch._dynamo.reset()
    net, x = image_net(), torch.randn(3, 1, 12, 12)
    compiled = torch.compile(net, backend="eager")
    expected = net(observe={"x": x}, want="y", iterations=2)["y"]
    torch.testing.assert_close(compiled(observe={"x": x}, want="y", iterations=2)["y"], expected)


@pytest.mark.parametrize("partial", [False, True])
def test_exports_with_a_dynamic_batch(partial):  # torch.export, run at other batch sizes
    net = image_net().eval()
    x = torch.randn(3, 1, 12, 12)
    known = torch.rand(3, 1, 12, 12) < 0.5
    observe = {"x": un.Partial(x, known)} if partial else ["x"]
    module = net.unrolled(observe, want="y", iterations=3)
    batch = torch.export.Dim("batch")
    inputs = (x, known) if partial else (x,)
    shapes = tuple({0: batch} for _ in inputs)
    program = torch.export.export(module, inputs, dynamic_shapes={"observed": shapes})
    for size in (2, 7):
        inputs = (torch.randn(size, 1, 12, 12), torch.rand(size, 1, 12, 12) < 0.5)[: 1 + partial]
        torch.testing.assert_close(program.module()(*inputs), module(*inputs))


@pytest.mark.parametrize("want", ["y", "x"])
def test_onnx_gives_equal_output(want, tmp_path):  # onnxruntime is another implementation of every operation
    onnxruntime = pytest.importorskip("onnxruntime")
    net = image_net().eval()
    observed, example = ("x", torch.randn(3, 1, 12, 12)) if want == "y" else ("y", torch.randn(3, 3).softmax(-1))
    module = net.unrolled([observed], want=want, iterations=3)
    shapes = {"observed": ({0: torch.export.Dim("batch")},)}
    path = tmp_path / "net.onnx"
    torch.onnx.export(module, (example,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in (1, 5):
        value = torch.randn(size, *example.shape[1:])
        value = value.softmax(-1) if want == "x" else value
        (found,) = session.run(None, {session.get_inputs()[0].name: value.numpy()})
        np.testing.assert_allclose(found, module(value).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_errors():
    net = image_net()
    with pytest.raises(QueryError, match="takes 1 tensors"):
        net.unrolled(["x"], want="y")(torch.zeros(1, 1, 12, 12), torch.zeros(1, 3))
    with pytest.raises(QueryError, match="x is not updated, so it has no pre-activation"):
        net.unrolled(["x"], want="x", preactivation=True)
    with pytest.raises(QueryError, match="unknown variable 'z'"):
        net.unrolled(["z"], want="y")
    inner = un.UNN(un.Variable("x", (2,)), un.Variable("h", (2,)), un.Linear("x", "h"),
                   un.Energy(lambda h: h.pow(4).sum(1), "h"))  # fmt: skip
    with pytest.raises(QueryError, match="found by an inner descent, which has no steps to untie"):
        inner.unrolled(["x"], want="h", tie=False)
