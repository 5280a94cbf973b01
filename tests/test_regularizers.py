"""Regularizers against the mathematics of conjugates: what holds for every Psi, elementwise or on the simplex."""

import math
import pickle

import numpy as np
import pytest
import scipy.optimize
import torch
from strategies import ELEMENTWISE, REGULARIZERS, SIMPLEX
from torch.autograd import gradcheck

import undirected as un

every = pytest.mark.parametrize("regularizer", REGULARIZERS, ids=repr)
elementwise = pytest.mark.parametrize("regularizer", ELEMENTWISE, ids=repr)


def preactivations(batch: int = 40, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(batch, 2, 5, dtype=torch.float64, generator=generator)


def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).flatten(1).sum(1)


@every
def test_fenchel_young_equality(regularizer):  # Psi(h) + Psi*(t) = <t, h> at h = grad Psi*(t)
    t = preactivations()
    h = regularizer.activation(t)
    torch.testing.assert_close(regularizer.value(h) + regularizer.conjugate(t), inner(t, h), rtol=1e-10, atol=1e-10)


@every
def test_fenchel_young_inequality(regularizer):  # Psi(h') + Psi*(t) >= <t, h'> for every other h' of the domain
    t = preactivations(200, seed=1)
    other = regularizer.activation(preactivations(200, seed=2))
    assert (regularizer.value(other) + regularizer.conjugate(t) - inner(t, other) >= -1e-10).all()


@every
def test_the_activation_is_the_derivative_of_the_conjugate(regularizer):  # by autograd, and by finite differences
    t = preactivations(4).requires_grad_()
    (derivative,) = torch.autograd.grad(regularizer.conjugate(t).sum(), t)
    torch.testing.assert_close(derivative, regularizer.activation(t), rtol=1e-9, atol=1e-9)
    assert gradcheck(regularizer.conjugate, t)


@every
def test_the_activation_has_the_right_derivative(regularizer):  # finite differences; no entry lies at a kink
    assert gradcheck(regularizer.activation, preactivations(4).requires_grad_())


@elementwise
def test_the_activation_minimises(regularizer):  # scipy's scalar minimiser knows nothing of conjugates
    for t in (-3.0, -0.9, -0.25, 0.0, 0.3, 1.1, 2.7):

        def energy(h, t=t):
            return float(regularizer.value(torch.tensor([[h]], dtype=torch.float64))) - t * h

        low, high = domain(regularizer)
        found = scipy.optimize.minimize_scalar(energy, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
        h = regularizer.activation(torch.tensor([[t]], dtype=torch.float64))
        assert float(h) == pytest.approx(found.x, abs=2e-5)  # the square root of what float64 resolves in the energy
        assert energy(float(h)) <= found.fun + 1e-12


def domain(regularizer) -> tuple[float, float]:
    if isinstance(regularizer, un.HardTanh):
        return regularizer.low, regularizer.high
    ends = {un.Sigmoid: (0.0, 1.0), un.Tanh: (-1.0, 1.0), un.ReLU: (0.0, 20.0)}
    return ends.get(type(regularizer), (-20.0, 20.0))


@elementwise
def test_psi_is_infinite_outside_its_domain_alone(
    regularizer,
):  # and finite at its ends, where Psi is defined by limits
    low, high = domain(regularizer)
    ends = torch.tensor([[low], [high]], dtype=torch.float64, requires_grad=True)
    value = regularizer.value(ends)
    assert value.isfinite().all()
    (gradient,) = torch.autograd.grad(value.sum(), ends)
    assert gradient.isfinite().all()
    outside = torch.tensor([[low - 0.01], [high + 0.01]], dtype=torch.float64)
    expected = [low > -20, high < 20]
    assert regularizer.value(outside).isinf().tolist() == expected
    assert regularizer.bounded == all(expected)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
def test_finite_values_and_gradients(regularizer, dtype, size):  # at +-1e4 and at the domain's ends
    rows = [[1.0, -1.0, 0.0], [1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, 0.5, -0.5]]
    t = (size * torch.tensor(rows, dtype=torch.float64)).to(dtype).requires_grad_()
    h = regularizer.activation(t)
    assert h.dtype == dtype
    assert regularizer.conjugate(t).dtype == dtype
    for output in (h, regularizer.conjugate(t), regularizer.value(h.detach().requires_grad_())):
        assert output.isfinite().all()
    h_leaf = h.detach().requires_grad_()
    weights = torch.arange(1, 4, dtype=dtype)
    for output, leaf in ((h * weights, t), (regularizer.conjugate(t), t), (regularizer.value(h_leaf), h_leaf)):
        (gradient,) = torch.autograd.grad(output.sum(), leaf)
        assert gradient.isfinite().all()
        assert gradient.dtype == dtype


@every
def test_low_precision_is_near_float64(
    regularizer,
):  # bfloat16 has 8 bits: two roundings of the input, one of the output
    t = preactivations(8).bfloat16()
    exact = regularizer.activation(t.double())
    slack = 2**-7 * (1 + t.double().abs() / min(1.0, getattr(regularizer, "psi_scale", regularizer.scale)))
    assert ((regularizer.activation(t).double() - exact).abs() <= slack).all()
    torch.testing.assert_close(regularizer.activation(t.float()).double(), exact, rtol=1e-5, atol=1e-5)


@every
def test_a_mask_means_that_entries_do_not_exist(regularizer):  # equal to the shorter variable
    t = preactivations(6)
    mask = torch.arange(5) < 3
    h = regularizer.activation(t, mask)
    assert not h[..., 3:].any()
    torch.testing.assert_close(h[..., :3], regularizer.activation(t[..., :3]))
    torch.testing.assert_close(regularizer.conjugate(t, mask), regularizer.conjugate(t[..., :3]))
    torch.testing.assert_close(regularizer.value(h, mask), regularizer.value(h[..., :3]))
    nothing = torch.zeros(5, dtype=torch.bool)
    t.requires_grad_()
    assert not regularizer.activation(t, nothing).any()
    assert not regularizer.conjugate(t, nothing).any()
    (gradient,) = torch.autograd.grad(regularizer.activation(t, nothing).sum(), t)
    assert not gradient.any()  # zero, not NaN


@pytest.mark.parametrize("regularizer", {type(r): r for r in REGULARIZERS}.values(), ids=repr)
def test_compiles_in_one_graph(regularizer):  # against eager mode, forward and backward
    torch._dynamo.reset()
    t = preactivations(3).requires_grad_()

    def everything(t):
        h = regularizer.activation(t)
        return h, regularizer.conjugate(t), regularizer.value(h)

    expected, found = everything(t), torch.compile(everything, fullgraph=True, backend="aot_eager")(t)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b)
    (a,), (b,) = (torch.autograd.grad(outputs[0][..., 0].sum(), t) for outputs in (expected, found))
    torch.testing.assert_close(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", [un.Tanh(), un.Softmax(), un.Entmax15(), un.Sparsemax()], ids=repr)
def test_compiles_with_inductor(regularizer):  # against eager mode
    torch._dynamo.reset()
    t = preactivations(3).float()
    compiled = torch.compile(regularizer.activation, fullgraph=True)
    torch.testing.assert_close(compiled(t), regularizer.activation(t))


@every
def test_the_declared_curvature_holds(regularizer):  # Psi(h) >= c/2 |h|^2 + constant, with the constant at the minimum
    h = regularizer.activation(10 * preactivations(100))
    gap = regularizer.value(h) - regularizer.curvature / 2 * inner(h, h)
    assert (gap >= -1e-9).all() or regularizer.bounded


@every
def test_copies_and_pictures(regularizer):  # repr is the declaration: evaluating it gives the same function
    again = eval(repr(regularizer), {name: getattr(un, name) for name in un.__all__})
    t = preactivations(2)
    for copy in (again, pickle.loads(pickle.dumps(regularizer))):
        assert torch.equal(copy.activation(t), regularizer.activation(t))
        assert torch.equal(copy.conjugate(t), regularizer.conjugate(t))


@elementwise
def test_complete_keeps_what_is_known(regularizer):  # entries are independent, so the others are as without it
    t, known = preactivations(3), preactivations(3, seed=3) > 0
    value = regularizer.activation(preactivations(3, seed=4))
    h = regularizer.complete(t, known, value)
    assert torch.equal(h, torch.where(known, value, regularizer.activation(t)))


@every
def test_radius_bounds_the_domain(regularizer):  # the largest norm there is, attained at the ends
    radius = regularizer.radius((2, 5))
    norms = regularizer.activation(1e6 * preactivations(50)).flatten(1).norm(dim=1)
    if regularizer.bounded:
        assert (norms <= radius + 1e-9).all()
        assert radius < math.inf
    else:
        assert radius == math.inf


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("kind", [un.Identity, un.Softmax, un.HardTanh, un.Sparsemax])
def test_a_scale_must_be_positive(kind, scale):
    with pytest.raises(ValueError, match="scale must be positive"):
        kind(scale=scale)


def test_other_settings_are_checked():
    with pytest.raises(ValueError, match="low must be below high"):
        un.HardTanh(1.0, 1.0)
    with pytest.raises(ValueError, match=r"slope must be in \(0, 1\]"):
        un.LeakyReLU(0.0)
    with pytest.raises(ValueError, match="must not be negative"):
        un.SoftThreshold(-0.1)
    with pytest.raises(ValueError, match="positive"):
        un.Softmax(temperature=0)


def test_tanh_and_sigmoid_keep_their_digits():  # against numpy's log1p forms, far out and near zero
    t = np.linspace(-40, 40, 801)
    tanh = un.Tanh().conjugate(torch.from_numpy(t)[:, None]).numpy()
    np.testing.assert_allclose(tanh, np.logaddexp(t, -t), rtol=1e-13)
    sigmoid = un.Sigmoid().conjugate(torch.from_numpy(t)[:, None]).numpy()
    np.testing.assert_allclose(sigmoid, np.logaddexp(0, t), rtol=1e-13)


def test_every_regularizer_is_tested():  # the list of this file against the public names
    public = {kind for kind in vars(un).values() if isinstance(kind, type) and issubclass(kind, un.Regularizer)}
    engine = {kind for kind in public if kind.__module__ in ("undirected.regularizers", "undirected.simplex")}
    others = {un.Regularizer, un.Elementwise, un.CausalSoftmax}  # the last needs two axes: see test_simplex.py
    assert engine - others == {type(r) for r in ELEMENTWISE + SIMPLEX}
