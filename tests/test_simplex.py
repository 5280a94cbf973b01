"""Probability vectors: the sparse maps against optimisers and closed forms, and vectors that are known in part."""

import numpy as np
import pytest
import scipy.optimize
import torch
import torch.nn.functional as F
from strategies import SIMPLEX
from torch.autograd import gradcheck, gradgradcheck

import undirected as un
from undirected.errors import DeclarationError, QueryError

simplex = pytest.mark.parametrize("regularizer", SIMPLEX, ids=repr)


def minimise(regularizer, t: np.ndarray, fixed: dict[int, float]) -> np.ndarray:
    """argmin of Psi(h) - <t, h> over the simplex with some entries fixed, by scipy: h = left * softmax(u)."""
    free = [i for i in range(len(t)) if i not in fixed]
    left = 1 - sum(fixed.values())

    def point(u):
        h = torch.zeros(len(t), dtype=torch.float64)
        for i, value in fixed.items():
            h[i] = value
        h[free] = left * (u.square() / u.square().sum())
        return h

    def energy(u):
        u = torch.tensor(u, dtype=torch.float64, requires_grad=True)
        h = point(u)
        value = regularizer.value(h[None])[0] - torch.from_numpy(t) @ h
        value.backward()
        return float(value.detach()), u.grad.numpy()

    starts = [np.ones(len(free)), *np.random.default_rng(0).uniform(0.2, 1, (3, len(free)))]
    found = [scipy.optimize.minimize(energy, u, jac=True, method="BFGS", options={"gtol": 1e-12}) for u in starts]
    return point(torch.from_numpy(min(found, key=lambda f: f.fun).x)).numpy()


@simplex
def test_the_activation_minimises(regularizer):  # against BFGS on h = u^2 / |u|^2
    for t in np.random.default_rng(1).normal(0, 1, (6, 4)):
        h = regularizer.activation(torch.from_numpy(t)[None])[0].numpy()
        np.testing.assert_allclose(h, minimise(regularizer, t, {}), atol=2e-6)


@simplex
def test_complete_minimises_what_is_left(regularizer):  # against BFGS with the known entries held fast
    for t in np.random.default_rng(2).normal(0, 1, (6, 5)):
        known = torch.tensor([[True, False, False, True, False]])
        value = torch.tensor([[0.25, torch.nan, torch.nan, 0.35, torch.nan]], dtype=torch.float64)
        h = regularizer.complete(torch.from_numpy(t)[None], known, value)[0].numpy()
        np.testing.assert_allclose(h, minimise(regularizer, t, {0: 0.25, 3: 0.35}), atol=2e-6)


@simplex
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_complete_with_nothing_left(regularizer, dtype):  # known entries that sum to 1 leave 0 to the others, not NaN
    t = torch.tensor([[5.0, -3.0, 100.0, 2.0]] * 3, dtype=dtype, requires_grad=True)
    value = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]], dtype=dtype)
    known = torch.tensor([[True, False, False, False], [True, True, False, False], [True] * 4])
    h = regularizer.complete(t, known, value)
    torch.testing.assert_close(h, value, rtol=0, atol=4 * torch.finfo(dtype).eps)
    (gradient,) = torch.autograd.grad((h * torch.arange(4.0)).sum(), t)
    assert gradient.isfinite().all()


@simplex
def test_vectors_sum_to_one(regularizer):  # the definition of the simplex, also far out
    for size in (0.1, 1.0, 100.0, 1e4):
        h = regularizer.activation(size * torch.randn(100, 7, dtype=torch.float64))
        assert (h >= 0).all()
        torch.testing.assert_close(h.sum(-1), torch.ones(100, dtype=torch.float64))


def test_softmax_is_torchs():  # torch.nn.functional
    t = torch.randn(5, 3, 4)
    assert torch.equal(un.Softmax().activation(t), F.softmax(t, -1))
    torch.testing.assert_close(un.Softmax(temperature=2.0).activation(t), F.softmax(t / 2, -1))
    torch.testing.assert_close(un.Softmax(scale=4.0).activation(t), F.softmax(t / 4, -1))


@pytest.mark.parametrize("kind", [un.Softmax, un.Sparsemax, un.Entmax15])
def test_axis(kind):  # an axis counts the variable's own axes: the same as moving it to the end
    t = torch.randn(5, 3, 4, 2, dtype=torch.float64)
    for axis in (0, 1, 2, -1, -2, -3):
        dim = axis + 1 if axis >= 0 else axis
        h = kind(axis=axis).activation(t)
        torch.testing.assert_close(h, kind().activation(t.movedim(dim, -1)).movedim(-1, dim))
        torch.testing.assert_close(kind(axis=axis).conjugate(t), kind().conjugate(t.movedim(dim, -1)))
        torch.testing.assert_close(kind(axis=axis).value(h), kind().value(h.movedim(dim, -1)))


def test_sparsemax_is_the_euclidean_projection():  # solved by bisection of sum max(t - tau, 0) = 1
    t = np.random.default_rng(3).normal(0, 2, (50, 9))
    for row in t:
        tau = scipy.optimize.brentq(lambda tau, row=row: np.maximum(row - tau, 0).sum() - 1, row.min() - 1, row.max())
        h = un.Sparsemax().activation(torch.from_numpy(row)[None])[0].numpy()
        np.testing.assert_allclose(h, np.maximum(row - tau, 0), atol=1e-10)


def test_entmax15_solves_its_equation():  # h = max(t/2 - tau, 0)^2 with sum 1, by bisection (Peters et al. 2019)
    t = np.random.default_rng(4).normal(0, 2, (50, 9)) / 2
    for row in t:
        tau = scipy.optimize.brentq(
            lambda tau, row=row: (np.maximum(row - tau, 0) ** 2).sum() - 1, row.min() - 1, row.max()
        )
        h = un.Entmax15().activation(torch.from_numpy(2 * row)[None])[0].numpy()
        np.testing.assert_allclose(h, np.maximum(row - tau, 0) ** 2, atol=1e-10)


@pytest.mark.parametrize("kind", [un.Softmax, un.Sparsemax, un.Entmax15])
@pytest.mark.parametrize("n", [1, 2, 1000])
def test_ties_and_sizes(kind, n):  # by symmetry, equal pre-activations share equally
    h = kind().activation(torch.full((2, n), 3.0))
    torch.testing.assert_close(h, torch.full((2, n), 1 / n))


@pytest.mark.parametrize("kind", [un.Softmax, un.Sparsemax, un.Entmax15])
def test_derivatives_of_second_order(kind):  # finite differences of the gradient
    t = torch.tensor([[0.3, -0.2, 0.9, -4.0], [1.0, 0.1, 0.2, 0.35]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(kind().activation, t)
    assert gradgradcheck(kind().activation, t)


@simplex
def test_psi_outside_the_simplex_is_infinite(regularizer):
    h = torch.tensor([[0.5, 0.6], [0.5, 0.4], [1.2, -0.2], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    assert regularizer.value(h).isinf().tolist() == [True, True, True, False, False]


def test_labels():  # one-hot vectors, along any axis
    labels = torch.tensor([[0, 2], [1, 1]])
    assert torch.equal(un.Softmax().encode(labels, (2, 3)), F.one_hot(labels, 3).float())
    assert torch.equal(un.Softmax(axis=0).encode(labels, (3, 2)), F.one_hot(labels, 3).float().transpose(1, 2))
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match="labels must be from 0 to 2"):
            un.Softmax().encode(torch.tensor([[0, wrong]]), (2, 3))


def test_causal_softmax_is_the_softmax_of_what_comes_before(double):  # from Softmax, row by row
    t = torch.randn(2, 4, 4, requires_grad=True)
    causal = un.CausalSoftmax(scale=1.5)
    rows = [un.Softmax(scale=1.5).activation(t[:, i, : i + 1]) for i in range(4)]
    expected = torch.stack([torch.nn.functional.pad(row, (0, 3 - i)) for i, row in enumerate(rows)], 1)
    h = causal.activation(t)
    torch.testing.assert_close(h, expected)
    torch.testing.assert_close(causal.value(h) + causal.conjugate(t), (t * h).flatten(1).sum(1))
    (slope,) = torch.autograd.grad(causal.conjugate(t).sum(), t)
    torch.testing.assert_close(slope, h)
    assert causal.value(torch.full((1, 2, 2), 0.5)).isinf().all()  # looks ahead


def test_an_axis_that_the_variable_does_not_have():
    for axis, shape in ((-2, (10,)), (1, (10,)), (-1, ())):
        with pytest.raises(DeclarationError, match=rf"along axis {axis}, but there are {len(shape)} axes"):
            un.Variable("y", shape, un.Softmax(axis=axis))


def test_known_probabilities_sum_to_one_at_most():
    net = un.UNN(un.Variable("x", (2,)), un.Variable("y", (4,), un.Softmax()), un.Linear("x", "y"))
    part = un.Partial(torch.full((1, 4), 0.9), torch.tensor([True, True, False, False]))
    with pytest.raises(QueryError, match=r"y: known entries of Softmax\(\) are probabilities.*sum to 1\.8"):
        net({"x": torch.zeros(1, 2), "y": part})
