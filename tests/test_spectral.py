"""Bounded norms: against singular values of the factor written out as a matrix, while training pushes against them."""

import copy

import pytest
import torch

import undirected as un
from undirected.errors import DeclarationError


def matrix(factor, a, b):
    """The factor between variables of shapes a and b as a matrix, from its score alone."""
    size_a, size_b = torch.Size(a).numel(), torch.Size(b).numel()
    eye_a, eye_b = torch.eye(size_a), torch.eye(size_b)
    rows = [factor.score(eye_a.view(-1, *a), eye_b[i].expand(size_a, -1).reshape(-1, *b)) for i in range(size_b)]
    return torch.stack(rows)


CASES = {
    "linear": ((7,), (5,), lambda: un.Linear("a", "b")),
    "linear of pairs": ((2, 3), (4,), lambda: un.Linear("a", "b")),
    "conv1d": ((2, 9), (3, 7), lambda: un.Conv1d("a", "b", 3)),
    "conv2d": ((2, 7, 7), (3, 3, 3), lambda: un.Conv2d("a", "b", 3, stride=2)),
    "conv padded": ((2, 6, 5), (4, 6, 5), lambda: un.Conv2d("a", "b", 3, padding=1, groups=2)),
    "einsum": ((3, 4), (4, 2), lambda: un.Einsum("a[i,j] b[j,k] W[i,k]")),
    "product of weights": ((6,), (5,), lambda: un.Einsum("a[i] U[i,r] V[r,j] b[j]", sizes={"r": 2})),
}


@pytest.mark.parametrize("case", CASES)
def test_training_against_the_bound_does_not_pass_it(case, double):  # torch.linalg's largest singular value
    a, b, make = CASES[case]
    net = un.UNN(un.Variable("a", a), un.Variable("b", b), un.spectral(make(), below=0.8))
    factor = net.factors["a-b"]
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    inputs, targets = torch.randn(8, *a), torch.randn(8, *b)
    norms = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = (net(observe={"a": inputs}, want="b")["b"] - 20 * targets).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            norms.append(torch.linalg.matrix_norm(matrix(factor, a, b), 2))
            assert norms[-1] <= 0.8
    assert net.bounded().verdict == "while"
    assert norms[-1] > 0.79  # it is a bound, not a fixed size far below
    raw = torch.linalg.matrix_norm(matrix(factor.factor, a, b), 2)
    assert raw > 1.2  # without it, the weights would be here
    torch.testing.assert_close(factor.norm(), raw, rtol=2e-3, atol=0)


def test_below_the_bound_nothing_changes(double):
    net = un.UNN(un.Variable("a", (4,)), un.Variable("b", (3,)), un.spectral(un.Linear("a", "b"), below=50.0))
    x = torch.randn(2, 4)
    expected = x @ net.factors["a-b"].factor.weight.T + net.bias_b
    torch.testing.assert_close(net(observe={"a": x}, want="b")["b"], expected)


def test_the_gradient_is_that_of_the_scaled_weight(double):  # autograd through torch.linalg's norm
    net = un.UNN(un.Variable("a", (4,)), un.Variable("b", (3,), bias=False), un.spectral(un.Linear("a", "b"), 0.5))
    weight = net.factors["a-b"].factor.weight
    with torch.no_grad():
        weight.normal_()
    x, target = torch.randn(6, 4), torch.randn(6, 3)
    loss = (net(observe={"a": x}, want="b")["b"] * target).sum()
    (found,) = torch.autograd.grad(loss, weight)
    scaled = weight * 0.5 / torch.linalg.matrix_norm(weight, 2) / (1 + 1e-3)
    (expected,) = torch.autograd.grad((x @ scaled.T * target).sum(), weight)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_three_variables_are_bounded_too(double):  # by Frobenius norms, which no unit vectors exceed
    net = un.UNN(
        un.Variable("s", (3,), un.Softmax()), un.Variable("a", (4,)), un.Variable("b", (5,)),
        un.spectral(un.Einsum("s[k] a[i] b[j] W[k,i,j]"), below=0.9),
    )  # fmt: skip
    with torch.no_grad():
        net.factors["s-a-b"].factor.W.normal_()
    assert net.bounded().verdict == "while"
    units = [torch.nn.functional.normalize(torch.randn(5000, n)) for n in (3, 4, 5)]
    assert net.factors["s-a-b"].score(*units).abs().max() <= 0.9


def test_copies_and_states_keep_the_bound(double, tmp_path):
    def make():
        return un.UNN(
            un.Variable("a", (4,)), un.Variable("b", (3,)), un.Variable("c", (3,)),
            un.spectral(un.Linear("a", "b"), below=0.7), un.Linear("b", "c"),
        )  # fmt: skip

    net, x = make(), torch.randn(5, 4)
    with torch.no_grad():
        net.factors["a-b"].factor.weight.mul_(20)
    expected = net(observe={"a": x}, want="b", iterations=2)["b"]
    torch.testing.assert_close(copy.deepcopy(net)(observe={"a": x}, want="b", iterations=2)["b"], expected)
    torch.save(net.state_dict(), tmp_path / "state.pt")
    other = make()
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    torch.testing.assert_close(other(observe={"a": x}, want="b", iterations=2)["b"], expected, rtol=1e-6, atol=1e-9)
    un.save(net, tmp_path / "net.safetensors")
    loaded = un.load(tmp_path / "net.safetensors")
    torch.testing.assert_close(loaded(observe={"a": x}, want="b", iterations=2)["b"], expected, rtol=1e-6, atol=1e-9)
    copied = copy.deepcopy(net)
    with torch.no_grad():
        copied.factors["a-b"].factor.weight.mul_(3)
    assert torch.linalg.matrix_norm(matrix(copied.factors["a-b"], (4,), (3,)), 2) <= 0.7
    torch.testing.assert_close(net(observe={"a": x}, want="b", iterations=2)["b"], expected)


def test_symbols_shifts_and_ties(double):
    factor = un.spectral(un.Conv1d("a", "b", 3, padding=1, shift={"a": torch.ones(2, 1)}), below=0.6)
    net = un.UNN(
        un.Variable("a", (2, "n")),
        un.Variable("b", (2, "n")),
        un.Variable("c", (2, "n")),
        factor,
        factor.tied("b", "c"),
    )
    with torch.no_grad():
        net.factors["a-b"].factor.weight.mul_(9)
    for size in (3, 10, 32):
        assert torch.linalg.matrix_norm(matrix(net.factors["b-c"], (2, size), (2, size)), 2) <= 0.6
    net.energy({name: torch.randn(1, 2, 5) for name in "abc"})
    assert all(report.ok for report in net.check([["a"]]).factors)


def test_what_has_no_norm_is_refused():
    with pytest.raises(DeclarationError, match="below must be positive"):
        un.spectral(un.Linear("a", "b"), below=0)
    with pytest.raises(DeclarationError, match="no norm to bound"):
        un.spectral(un.Energy(lambda a: a.sum(1), "a"), below=1)
    with pytest.raises(DeclarationError, match="grows with the size"):
        un.UNN(un.Variable("a", ("n", 3)), un.Variable("b", (2,)), un.spectral(un.Linear("a", "b"), below=1))
    with pytest.raises(DeclarationError, match="index k stands in one place only"):
        un.UNN(
            *[un.Variable(name, (2,)) for name in "abc"],
            un.spectral(un.Einsum("a[i] b[i] c[k]"), below=1),
        )
