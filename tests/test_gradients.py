"""Gradients at equilibrium: against a long unrolled solve in float64, on graphs of every sort."""

import re
from pathlib import Path

import pytest
import torch

import undirected as un
from undirected.errors import Diverged, NotConverged, QueryError

TIGHT = un.Tolerance(1e-13, max_iterations=300)
FAST = un.Tolerance(1e-13, max_iterations=300, acceleration="anderson")
BRIEF = un.Tolerance(1e-9, max_iterations=40, otherwise="ignore")  # inner descents end at the root of the precision


def scaled(net, size, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.normal_().mul_(0.3 if "bias" in name else size)
    return net.eval()


def layered():
    net = un.UNN(
        un.Variable("x", (4,)), un.Variable("h", (6,), un.Tanh()), un.Variable("g", (5,), un.ReLU(scale=2.0)),
        un.Variable("y", (3,), un.Softmax()), un.Linear("x", "h"), un.Linear("h", "g"), un.Linear("g", "y"),
    )  # fmt: skip
    return scaled(net, 0.6), {"x": torch.randn(5, 4)}, {}


def bounded_relu():
    net = un.UNN(
        un.Variable("x", (4,)), un.Variable("h", (6,), un.ReLU()), un.Variable("y", (5,), un.ReLU()),
        un.Linear("x", "h"), un.spectral(un.Linear("h", "y"), below=0.7),
    )  # fmt: skip
    return scaled(net, 0.8), {"x": torch.randn(5, 4)}, {}


def convolution():
    net = un.UNN(
        un.Variable("x", (1, 8, 8), un.Tanh()), un.Variable("h", (3, 3, 3), un.Tanh(), bias="channel"),
        un.Variable("y", (4,), un.Softmax()), un.Conv2d("x", "h", 4, stride=2), un.Linear("h", "y"),
    )  # fmt: skip
    return scaled(net, 0.25), {"x": torch.randn(3, 1, 8, 8).tanh()}, {}


def partial():
    net, given, _ = convolution()
    return net, {"x": un.Partial(given["x"], torch.rand(3, 1, 8, 8) < 0.6)}, {}


def attention():
    net = un.UNN(
        un.Variable("x", ("n", 3)), un.Variable("q", ("n", 4), un.Tanh()), un.Variable("s", ("n", "n"), un.Softmax()),
        un.Variable("y", (2,), un.Softmax()),
        un.Linear("x", "q"), un.Einsum("s[i,j] q[i,d] W[d,e] x[j,e]"), un.Linear("q", "y"),
    )  # fmt: skip
    return scaled(net, 0.4), {"x": torch.randn(4, 6, 3)}, {"lengths": {"n": torch.tensor([6, 2, 4, 5])}}


def energy():
    net = un.UNN(
        un.Variable("x", (3,)), un.Variable("h", (4,)), un.Variable("y", (2,), un.Softmax()), un.Linear("x", "h"),
        un.Linear("h", "y"), un.Energy(lambda h: 0.1 * h.pow(4).sum(1), "h", steps=10),
    )  # fmt: skip
    return scaled(net, 0.5), {"x": torch.randn(4, 3)}, {}


EXACT = [layered, bounded_relu, convolution, partial, attention]
GRAPHS = [*EXACT, energy]


def gradients(case, gradient, until=FAST, iterations=None, on_values=True):
    """The gradient of a loss of values and pre-activations, by the weights and by what is observed."""
    torch.manual_seed(1)
    net, observe, more = case()
    given = {}
    leaves = []
    for name, value in observe.items():
        leaf = (value.value if isinstance(value, un.Partial) else value).clone().requires_grad_()
        leaves.append(leaf)
        given[name] = un.Partial(leaf, value.known) if isinstance(value, un.Partial) else leaf
    until = BRIEF if case is energy else until
    more = {**more, "until": until} if iterations is None else {**more, "iterations": iterations}
    solution = net(observe=given, want=["y"] + (["x"] if case is partial else []), gradient=gradient, **more)
    generator = torch.Generator().manual_seed(2)
    loss = 0.0
    for value in [solution["y"], *([solution.preactivation["y"]] if on_values else [])]:
        loss = loss + (value * torch.randn(value.shape, generator=generator)).sum()
    if case is partial:
        loss = loss + solution["x"].square().sum()
    parameters = [p for p in net.parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, [*parameters, *leaves], allow_unused=True, materialize_grads=True)
    return solution, torch.cat([g.flatten() for g in grads])


def apart(a, b):
    return float((a - b).norm() / b.norm())


@pytest.fixture(scope="module")
def unrolled():
    """The exact gradient of each graph: through many sweeps."""
    torch.set_default_dtype(torch.float64)
    found = {case: gradients(case, un.Unroll(), iterations=50 if case is energy else 150)[1] for case in GRAPHS}
    torch.set_default_dtype(torch.float32)
    return found


@pytest.mark.parametrize("method", ["anderson", "minres"])
@pytest.mark.parametrize("case", GRAPHS)
def test_implicit_is_a_long_unrolled_gradient(case, method, unrolled, double):  # the implicit function theorem
    solution, found = gradients(case, un.Implicit(1e-10, max_iterations=300, method=method))
    assert apart(found, unrolled[case]) < (1e-5 if case is energy else 1e-8)
    assert solution.adjoint.converged.all()
    assert solution.adjoint.residual.max() <= 1e-10
    assert solution.adjoint.iterations > 0


@pytest.mark.parametrize("case", EXACT)
def test_centred_propagation_errs_by_beta_squared(case, unrolled, double):  # by the theorem of equilibrium propagation
    errors = [
        apart(gradients(case, un.EquilibriumPropagation(b, until=TIGHT))[1], unrolled[case]) for b in (0.04, 0.02)
    ]
    assert errors[0] < 0.05
    if errors[0] > 1e-7:  # where the equilibrium is linear in beta there is no error to shrink
        assert 3.3 < errors[0] / errors[1] < 4.7


def test_propagation_through_an_inner_descent(unrolled, double):
    assert apart(gradients(energy, un.EquilibriumPropagation(0.1, until=BRIEF))[1], unrolled[energy]) < 0.02


def test_one_sided_propagation_errs_by_beta(unrolled, double):
    errors = [
        apart(gradients(layered, un.EquilibriumPropagation(b, centered=False, until=TIGHT))[1], unrolled[layered])
        for b in (0.02, 0.01)
    ]
    assert 1.8 < errors[0] / errors[1] < 2.2


@pytest.mark.parametrize("case", GRAPHS)
def test_truncated_gradients_approach_it(case, unrolled, double):  # a geometric series
    errors = [apart(gradients(case, un.Truncated(k))[1], unrolled[case]) for k in (1, 8, 40)]
    assert errors[2] < 0.02 * errors[0]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("case", GRAPHS)
def test_one_step_points_the_same_way(case, unrolled, double):
    _, found = gradients(case, un.OneStep())
    assert torch.nn.functional.cosine_similarity(found, unrolled[case], 0) > 0.8
    assert apart(found, gradients(case, un.Truncated(1))[1]) < 1e-12  # the same thing by another name


def test_with_dropout(double):  # one mask per solve: as fixed as any weight
    net = un.UNN(
        un.Variable("x", (4,)), un.Variable("h", (8,), un.Tanh(), dropout=0.4), un.Variable("y", (3,), un.Softmax()),
        un.Linear("x", "h"), un.Linear("h", "y"),
    )  # fmt: skip
    scaled(net, 1.0).train()
    x = torch.randn(6, 4)

    def gradient(**how):
        torch.manual_seed(5)
        loss = net(observe={"x": x}, want="y", **how)["y"][:, 0].sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters())[1:])])

    exact = gradient(iterations=300)
    assert exact.norm() > 1e-3
    for method in ("anderson", "minres"):
        assert apart(gradient(until=FAST, gradient=un.Implicit(1e-10, method=method)), exact) < 1e-8
    assert apart(gradient(until=FAST, gradient=un.EquilibriumPropagation(0.01, until=TIGHT)), exact) < 1e-3


def test_values_do_not_depend_on_the_gradient(double):
    for case in EXACT:
        torch.manual_seed(1)
        net, observe, more = case()
        plain = net(observe=observe, want="y", until=TIGHT, **more)
        for gradient in (un.OneStep(), un.Truncated(3), un.Implicit(), un.EquilibriumPropagation()):
            found = net(observe=observe, want="y", until=TIGHT, gradient=gradient, **more)
            torch.testing.assert_close(found["y"], plain["y"], rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(found.preactivation["y"], plain.preactivation["y"], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(found.energy, plain.energy, rtol=1e-8, atol=1e-8)


def test_a_number_of_iterations_is_kept(double):  # n sweeps are n sweeps, whatever is differentiated
    net, observe, _ = layered()
    expected = net(observe=observe, want="y", iterations=6)
    for gradient in (un.Unroll(), un.OneStep(), un.Truncated(2), un.Truncated(9), un.Implicit(otherwise="ignore")):
        found = net(observe=observe, want="y", iterations=6, gradient=gradient)
        torch.testing.assert_close(found["y"], expected["y"])
        with torch.no_grad():
            torch.testing.assert_close(
                net(observe=observe, want="y", iterations=6, gradient=gradient)["y"], expected["y"]
            )
    exact = torch.autograd.grad(expected["y"][:, 0].sum(), net.bias_h)[0]
    whole = net(observe=observe, want="y", iterations=6, gradient=un.Truncated(6))
    torch.testing.assert_close(torch.autograd.grad(whole["y"][:, 0].sum(), net.bias_h)[0], exact)
    random = net(observe=observe, want="y", order=un.orders.random(seed=1), until=TIGHT, gradient=un.Implicit(1e-9))
    settled = net(observe=observe, want="y", until=TIGHT, gradient=un.Implicit(1e-9))
    grads = [torch.autograd.grad(s["y"][:, 0].sum(), net.bias_h)[0] for s in (random, settled)]
    torch.testing.assert_close(*grads, rtol=1e-6, atol=1e-9)


def test_memory_does_not_grow_with_the_sweeps():
    net = un.UNN(
        un.Variable("x", (50,)), un.Variable("h", (400,), un.Tanh()), un.Variable("y", (30,), un.Softmax()),
        un.Linear("x", "h"), un.Linear("h", "y"),
    )  # fmt: skip
    x = torch.randn(64, 50)

    def kept(iterations, gradient):
        total = 0

        def pack(tensor):
            nonlocal total
            total += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            net(observe={"x": x}, want="y", iterations=iterations, gradient=gradient)
        return total

    assert kept(100, un.Implicit()) == kept(5, un.Implicit())
    assert kept(100, un.OneStep()) == kept(5, un.OneStep()) < kept(5, un.Unroll()) / 2
    assert kept(100, un.EquilibriumPropagation()) == kept(5, un.EquilibriumPropagation())
    assert kept(100, un.Unroll()) > 10 * kept(5, un.Unroll())


def test_a_backward_solve_that_does_not_converge_says_so(double):
    net, observe, _ = layered()

    def backward(**settings):
        gradient = un.Implicit(1e-13, max_iterations=2, **settings)
        solution = net(observe=observe, want="y", until=TIGHT, gradient=gradient)
        solution["y"][:, 0].sum().backward()
        return solution

    message = (
        r"backward solve did not converge: \d of 5 examples, worst relative residual .* after 2 steps \(example \d\)"
    )
    for method in ("anderson", "minres"):
        with pytest.warns(NotConverged, match=message):
            solution = backward(method=method)
        assert not solution.adjoint.converged.all()
        with pytest.raises(Diverged, match=message):
            backward(method=method, otherwise="raise")
    backward(otherwise="ignore")


@pytest.mark.parametrize("method", ["anderson", "minres"])
def test_a_loss_that_is_not_finite_names_the_example(method, double):
    net, observe, _ = layered()
    solution = net(observe=observe, want="y", until=TIGHT, gradient=un.Implicit(method=method))
    weights = torch.ones(5, 3)
    weights[3] = torch.nan
    with pytest.raises(Diverged, match=r"the loss's gradient left the finite numbers \(example 3, variable '\w'\)"):
        (solution["y"] * weights).sum().backward()


def test_settings_are_checked():
    for make in (
        lambda: un.Truncated(0),
        lambda: un.Implicit(0),
        lambda: un.Implicit(method="newton"),
        lambda: un.Implicit(otherwise="stop"),
        lambda: un.EquilibriumPropagation(0),
    ):
        with pytest.raises(QueryError):
            make()
    net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (2,), un.Softmax()), un.Linear("x", "y"))
    with pytest.raises(QueryError, match="needs an equilibrium"):
        net(observe={"x": torch.zeros(1, 2)}, want="y", iterations=1, gradient=un.Implicit())


def test_training_at_equilibrium_learns(double):  # as much as with unrolled sweeps
    ends = {}
    for gradient in (un.Unroll(), un.Implicit(), un.EquilibriumPropagation(0.05), un.OneStep()):
        net, observe, _ = layered()
        labels = torch.tensor([0, 1, 2, 0, 1])
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        losses = []
        for _ in range(8):
            optimizer.zero_grad()
            solution = net(observe=observe, want="y", until=un.Tolerance(1e-5), gradient=gradient)
            loss = un.fenchel_young(solution, "y", labels).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] - 0.1
        ends[type(gradient)] = losses[-1]
    assert abs(ends[un.Implicit] - ends[un.Unroll]) < 0.02
    assert abs(ends[un.EquilibriumPropagation] - ends[un.Unroll]) < 0.02


@pytest.mark.parametrize("gradient", [un.Unroll(), un.Implicit(otherwise="ignore")], ids=repr)
def test_training_that_loses_the_lower_bound_stops_with_finite_weights(gradient):  # it rewards ever larger values
    net = un.UNN(un.Variable("x", (2,)), un.Variable("h", (2,)), un.Variable("g", (2,)), un.Linear("x", "h"),
                 un.Linear("h", "g"))  # fmt: skip
    x = torch.ones(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    until = un.Tolerance(1e-3, max_iterations=2000, otherwise="ignore")

    def train():
        for _ in range(500):
            optimizer.zero_grad()
            solution = net(observe={"x": x}, until=until, gradient=gradient)
            (-solution["g"].square().sum()).backward()
            optimizer.step()

    with pytest.raises(Diverged, match=r"no lower bound.*must stay below 1"):
        train()
    assert all(parameter.isfinite().all() for parameter in net.parameters())


def test_the_page_runs_as_printed():
    text = (Path(__file__).parents[1] / "docs" / "gradients.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "docs/gradients.md", "exec"), names)
    assert names["solution"].adjoint.converged.all()


@pytest.mark.parametrize(
    "gradient",
    [
        un.Implicit(residual=1e-10),
        un.Implicit(method="minres", residual=1e-10),
        un.EquilibriumPropagation(1e-3, until=un.Tolerance(residual=1e-12)),
    ],
)
def test_what_is_observed_may_come_from_the_weights_themselves(gradient):  # embeddings, as in sequences; against Unroll
    torch.manual_seed(0)
    net = un.UNN(
        un.Variable("x", ("n", 3), un.Tanh()), un.Variable("h", ("n", 4), un.Tanh()), un.Linear("x", "h")
    ).double()
    torch.nn.init.normal_(net.bias_x)  # or zeros would be an equilibrium from the start, and Unroll have no sweeps
    weight = net.factors["x-h"].weight
    known = torch.tensor([[True, False], [True, True]])[..., None]
    found = []
    for how in (un.Unroll(), gradient):
        x = weight[torch.tensor([[0, 1], [2, 3]])].tanh()
        solution = net(
            observe={"x": un.Partial(x, known=known)},
            want=["x", "h"],
            order="h x",
            until=un.Tolerance(residual=1e-12),
            gradient=how,
        )
        loss = solution["x"].sin().sum() + solution["h"].square().sum()
        found.append(torch.autograd.grad(loss, list(net.parameters())))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-7)
