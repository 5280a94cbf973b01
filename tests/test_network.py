"""The network as an nn.Module: copies, files of weights, dtypes, torch.func, hooks, parallel training."""

import copy
import pickle

import pytest
import torch
import torch.distributed
from strategies import Agreement, Wave
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

import undirected as un
from undirected.errors import DeclarationError, EnergyRose


def everything():
    """A network with a factor of every kind that can be pickled."""
    step = un.Linear("h", "g")
    return un.UNN(
        un.Variable("x", (2, 6), un.Tanh(), bias="channel"), un.Variable("h", (4,), un.Tanh(), dropout=0.2),
        un.Variable("g", (4,), un.Sigmoid()), un.Variable("k", (4,), un.HardTanh()),
        un.Variable("c", (3, 4), un.Sparsemax(axis=0)), un.Variable("y", (3,), un.Softmax()),
        un.Conv1d("x", "c", 3), un.Linear("x", "h"), step, step.tied("g", "k"), Agreement("k", "h"),
        un.Einsum("h[i] g[j] y[k] W[i,j,k]", shift={"h": torch.ones(4)}), un.Energy(Wave(), "k", "y", steps=2),
        un.Directed(nn.Linear(6, 6), "x", "x2"), un.Variable("x2", (2, 6), un.Entmax15()),
    ).eval()  # fmt: skip


def answer(net, x):
    solution = net(observe={"x": x}, iterations=2)
    return torch.cat([solution[name].flatten(1) for name in ("h", "g", "k", "c", "y", "x2")], 1)


def test_copies_answer_alike_and_share_nothing():
    net, x = everything(), torch.rand(3, 2, 6)
    expected = answer(net, x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(answer(other, x), expected)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1.0)
        assert torch.equal(answer(net, x), expected)
        assert not torch.equal(answer(other, x), expected)
        assert other.factors["g-k"].original is other.factors["h-g"]  # still tied, to the copy


def test_state_dicts():
    a, b, x = everything(), everything(), torch.rand(3, 2, 6)
    assert not torch.equal(answer(a, x), answer(b, x))
    b.load_state_dict(a.state_dict())
    assert torch.equal(answer(a, x), answer(b, x))
    assert sum("h-g" in name for name in a.state_dict()) == 1 + 2  # weight; the three-way factor's W and shift


def test_dtypes():  # float64 as the reference
    net, x = everything(), torch.rand(3, 2, 6)
    single = answer(net, x)
    double = answer(net.to(torch.float64), x.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)


def test_bfloat16():
    net = un.UNN(un.Variable("x", (4,)), un.Variable("h", (8,), un.Tanh()),
                 un.Variable("y", (3,), un.Softmax()),
                 un.Linear("x", "h"), un.Linear("h", "y"))  # fmt: skip
    x = torch.randn(5, 4)
    exact = net(observe={"x": x}, want="y", iterations=3)["y"]
    half = net.to(torch.bfloat16)(observe={"x": x.bfloat16()}, want="y", iterations=3)["y"]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0, atol=0.05)


def test_autocast():  # products in bfloat16, near those in float32, with gradients in float32
    net = un.UNN(un.Variable("x", (4,)), un.Variable("h", (8,), un.Tanh()),
                 un.Variable("y", (3,), un.Softmax()),
                 un.Linear("x", "h"), un.Linear("h", "y"))  # fmt: skip
    x, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    exact = net(observe={"x": x}, want="y", iterations=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = net(observe={"x": x}, want="y", iterations=3)
        loss = un.fenchel_young(solution, "y", labels)
    torch.testing.assert_close(solution["y"].float(), exact["y"], rtol=0, atol=0.05)
    loss.backward()
    for parameter in (net.factors["x-h"].weight, net.factors["h-y"].weight, net.bias_h):
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()
    known = torch.rand(5, 4) < 0.5
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(observe={"x": un.Partial(x, known)}, want="x", iterations=2)["x"].isfinite().all()


def test_functional_call_and_grad():  # against .backward()
    net, x, labels = everything(), torch.rand(3, 2, 6), torch.tensor([0, 2, 1])
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters):
        solution = functional_call(net, parameters, (), {"observe": {"x": x}, "want": "y", "iterations": 2})
        return un.fenchel_young(solution, "y", labels)

    gradients = grad(loss)(parameters)
    un.fenchel_young(net(observe={"x": x}, want="y", iterations=2), "y", labels).backward()
    for name, parameter in net.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradients[name], expected, rtol=1e-4, atol=1e-6)


def test_vmap_over_an_ensemble():  # against the networks one by one
    nets = [everything() for _ in range(3)]
    parameters, buffers = stack_module_state(nets)
    x = torch.rand(4, 2, 6)

    def one(parameters, buffers):
        kwargs = {"observe": {"x": x}, "want": "y", "iterations": 2}
        return functional_call(nets[0], (parameters, buffers), (), kwargs)["y"]

    found = vmap(one)(parameters, buffers)
    for i, net in enumerate(nets):
        torch.testing.assert_close(found[i], net(observe={"x": x}, want="y", iterations=2)["y"], rtol=1e-4, atol=1e-5)


def test_vmap_over_examples_gives_gradients_per_example():  # against a loop
    net, x, labels = everything(), torch.rand(4, 2, 6), torch.tensor([0, 2, 1, 1])
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, x, label):
        kwargs = {"observe": {"x": x[None]}, "want": "y", "iterations": 2}
        return un.fenchel_young(functional_call(net, parameters, (), kwargs), "y", label[None])

    found = vmap(grad(loss), (None, 0, 0))(parameters, x, labels)
    for i in range(4):
        alone = grad(loss)(parameters, x[i], labels[i])
        for name in alone:
            torch.testing.assert_close(found[name][i], alone[name], rtol=1e-4, atol=1e-6)


def test_hooks():
    net, calls = everything(), []
    net.register_forward_hook(lambda module, inputs, output: calls.append(output))
    net.register_forward_pre_hook(lambda module, args, kwargs: (args, {**kwargs, "iterations": 3}), with_kwargs=True)
    solution = net(observe={"x": torch.rand(1, 2, 6)}, want="y")
    assert calls == [solution]
    assert solution.iterations.tolist() == [3]


def test_repr_names_everything():
    text = repr(everything())
    for part in ("Variable('x', (2, 6), Tanh(), bias='channel')", "dropout=0.2", "Sparsemax(axis=0)",
                 "Conv1d('x', 'c', 3)", "Einsum('h[i] g[j] y[k] W[i,j,k]'",
                 "Energy(Wave, 'k', 'y')", "tied('g', 'k')", "Directed(Linear"):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize("find_unused", [False, True])
def test_distributed_data_parallel(find_unused, tmp_path):  # one process on gloo: the gradients are the network's own
    net = un.UNN(un.Variable("x", (4,), bias=False), un.Variable("h", (8,), un.Tanh()),
                 un.Variable("y", (3,), un.Softmax()),
                 un.Linear("x", "h"), un.Linear("h", "y"))  # fmt: skip
    alone, x, labels = copy.deepcopy(net), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(net, find_unused_parameters=find_unused)
        solution = parallel(observe={"x": x}, want="y", iterations=2)
        un.fenchel_young(solution, "y", labels).backward()
    finally:
        torch.distributed.destroy_process_group()
    un.fenchel_young(alone(observe={"x": x}, want="y", iterations=2), "y", labels).backward()
    for a, b in zip(net.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_a_network_can_be_trained():  # both ways with the same weights: labels from x, and x from labels
    torch.manual_seed(0)
    net = un.UNN(un.Variable("x", (2,), un.Tanh()), un.Variable("h", (16,), un.Tanh()),
                 un.Variable("y", (4,), un.Softmax()),
                 un.Linear("x", "h"), un.Linear("h", "y"))  # fmt: skip
    corners = torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]]) * 0.8
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(150):
        labels = torch.randint(4, (64,))
        x = (corners[labels] + 0.1 * torch.randn(64, 2)).clamp(-0.99, 0.99)
        forward = net(observe={"x": x}, want="y", iterations=2)
        backward = net(observe={"y": labels}, want="x", iterations=2)
        loss = un.fenchel_young(forward, "y", labels) + un.fenchel_young(backward, "x", x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (net(observe={"x": corners}, want="y", iterations=2)["y"].argmax(1) == torch.arange(4)).all()
    drawn = net(observe={"y": torch.arange(4)}, want="x", iterations=2)["x"]
    assert (drawn.sign() == corners.sign()).all()


def test_a_message_that_is_no_derivative_is_caught():  # check=True names the block, the example and the numbers
    class Wrong(un.Factor):
        def score(self, a, b):
            return (a * b).sum(1)

        def message(self, target, *values):
            return -values[1 - target]

    net = un.UNN(un.Variable("x", (2,)), un.Variable("a", (2,), un.Tanh()), un.Variable("b", (2,), un.Tanh()),
                 un.Linear("x", "a"), Wrong("a", "b"))  # fmt: skip
    with torch.no_grad():
        net.factors["x-a"].weight.copy_(3 * torch.eye(2))
    with pytest.raises(
        EnergyRose, match=r"The update of \w in iteration \d raised the energy of example \d from .* to"
    ):
        net(observe={"x": torch.ones(3, 2)}, order="a b", iterations=4, check=True)


def test_parametrized_weights_are_read_once_in_a_solve():  # else their power iteration would change them half way
    net = un.UNN(
        un.Variable("x", (4,)),
        un.Variable("h", (4,), un.Tanh()),
        un.Variable("g", (4,), un.Tanh()),
        un.Linear("x", "h"),
        un.Linear("h", "g"),
    )
    torch.nn.utils.parametrizations.spectral_norm(net.factors["h-g"], "weight")
    for _ in range(5):
        net.train()(observe={"x": torch.randn(3, 4)}, iterations=4, check=True)


def test_a_directed_module_runs_once_in_a_solve():  # with dropout, a second run would give another energy
    runs = []

    class Noisy(torch.nn.Linear):
        def forward(self, x):
            runs.append(len(x))
            return torch.nn.functional.dropout(super().forward(x), 0.5, self.training)

    net = un.UNN(
        un.Variable("x", (4,)),
        un.Variable("h", (4,), un.Tanh()),
        un.Variable("g", (4,), un.Tanh()),
        un.Directed(Noisy(4, 4), "x", "h"),
        un.Linear("h", "g"),
    )
    solution = net(observe={"x": torch.randn(3, 4)}, iterations=3, check=True, trace=True)
    torch.testing.assert_close(solution.energy, solution.trace.energy[-1])
    assert runs == [3]
    assert net.check().ok
    assert net.bounded().verdict == "always"  # the couplings of h and g are on a bounded domain


def test_one_factor_has_one_layout():
    factor = un.Linear("x", "h")
    un.UNN(un.Variable("x", (6,)), un.Variable("h", (4,)), factor)
    un.UNN(un.Variable("x", (6,)), un.Variable("h", (4,)), factor)  # shares its weights
    with pytest.raises(DeclarationError, match="is part of another network"):
        un.UNN(un.Variable("x", (2, 3)), un.Variable("h", (2, 2)), factor)


def test_absent_variables_count_nothing():
    net = un.UNN(
        un.Variable("x", (2,)),
        un.Variable("h", (2,), un.Tanh()),
        un.Variable("y", (3,), un.Softmax()),
        un.Linear("x", "h"),
        un.Linear("h", "y"),
    )
    solution = net(observe={"x": torch.randn(2, 2)}, want="h")  # y is pruned
    assert solution.energy.isfinite().all()
    assert "y" not in solution.energy_terms
