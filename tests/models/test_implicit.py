"""Implicit layers against closed forms."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import undirected as un


class Smoothness(nn.Module):
    """`strength / 2 |D h|^2` with the differences D of neighbours."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(strength))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return self.strength / 2 * h.diff(dim=1).square().sum(1)


def denoised(x: torch.Tensor, strength: torch.Tensor) -> torch.Tensor:
    """`(I + strength D'D)^-1 x`."""
    size = x.shape[1]
    differences = torch.eye(size, dtype=x.dtype).diff(dim=0)
    return torch.linalg.solve(torch.eye(size, dtype=x.dtype) + strength * differences.T @ differences, x.T).T


@given(size=st.integers(2, 8), strength=st.sampled_from([0.1, 1.0, 4.0]))
@settings(max_examples=5)
def test_a_denoiser_is_its_linear_system(size, strength):  # from the closed form
    net = un.models.implicit(Smoothness(strength), size, steps=200).double()
    x = torch.randn(3, size, dtype=torch.float64)
    found = net(observe={"x": x}, want="h", check=True)["h"]
    expected = denoised(x, torch.tensor(strength, dtype=torch.float64))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_its_derivatives_are_those_of_the_linear_system(double):  # from autograd of the closed form
    prior = Smoothness(2.0)
    net = un.models.implicit(prior, 5, steps=120)
    x, direction = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
    found = torch.autograd.grad((net(observe={"x": x}, want="h")["h"] * direction).sum(), [x, prior.strength])
    expected = torch.autograd.grad((denoised(x, prior.strength) * direction).sum(), [x, prior.strength])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_a_soft_projection_onto_a_plane(double):  # from Sherman and Morrison
    normal, offset, weight = torch.randn(4), 0.7, 3.0

    def violation(h):
        return weight / 2 * (h @ normal - offset).square()

    net = un.models.implicit(violation, 4, steps=300)
    x = torch.randn(5, 4)
    gap = (x @ normal - offset) / (1 + weight * normal @ normal)
    expected = x - weight * gap[:, None] * normal
    torch.testing.assert_close(net(observe={"x": x}, want="h")["h"], expected, atol=1e-5, rtol=0)


def test_a_projection_onto_the_simplex_needs_no_descent(double):  # from bisection for the threshold
    net = un.models.implicit(lambda h: 0 * h.sum(1), 6, h=un.Sparsemax())
    x = torch.randn(5, 6)
    low, high = x.amin(1) - 1, x.amax(1)
    for _ in range(60):
        middle = (low + high) / 2
        mass = (x - middle[:, None]).clamp_min(0).sum(1)
        low, high = torch.where(mass > 1, middle, low), torch.where(mass > 1, high, middle)
    found = net(observe={"x": x}, want="h")["h"]
    torch.testing.assert_close(found, (x - low[:, None]).clamp_min(0), atol=1e-9, rtol=0)


def test_in_a_box_the_gradient_vanishes_or_points_outward(double):  # from the conditions of a constrained minimum
    net = un.models.implicit(Smoothness(1.0), 6, h=un.HardTanh(), steps=300)
    x = 2 * torch.randn(4, 6)
    h = net(observe={"x": x}, want="h")["h"].detach()
    slope = torch.autograd.functional.jacobian(lambda h: (0.5 * h.square() - x * h).sum() + Smoothness(1.0)(h).sum(), h)
    inside = h.abs() < 1
    torch.testing.assert_close(slope[inside], torch.zeros_like(slope[inside]), atol=1e-4, rtol=0)
    assert (slope[~inside] * h[~inside] <= 1e-4).all()


def test_inside_a_larger_network_its_function_learns():  # from the strength that made the data
    x, readout = torch.randn(64, 8), torch.randn(2, 8)
    targets = denoised(x, torch.tensor(1.5)) @ readout.T
    prior = Smoothness(0.2)
    net = un.models.implicit(prior, 8, outputs=2, steps=10)
    net.factors["h-y"].weight.data.copy_(readout)
    optimizer = torch.optim.Adam([prior.strength], 0.1)
    for _ in range(40):
        optimizer.zero_grad()
        un.fenchel_young(net(observe={"x": x}, want="y", order="h y"), "y", targets).backward()
        optimizer.step()
    torch.testing.assert_close(prior.strength.detach(), torch.tensor(1.5), atol=0.1, rtol=0)


def test_observed_outputs_pull_the_layer(double):  # from the closed form with the output's term
    prior = Smoothness(1.0)
    net = un.models.implicit(prior, 4, outputs=2, steps=200)
    x, y = torch.randn(3, 4), torch.randn(3, 2)
    expected = denoised(x + y @ net.factors["h-y"].weight, prior.strength)
    found = net(observe={"x": x, "y": y}, want="h")["h"]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_images(double):  # shapes of any rank, from the closed form of shrinkage
    net = un.models.implicit(lambda h: 0.5 * h.flatten(1).square().sum(1), (1, 3, 4), steps=30)
    x = torch.randn(2, 1, 3, 4)
    torch.testing.assert_close(net(observe={"x": x}, want="h")["h"], x / 2, atol=1e-6, rtol=0)


def test_energy_is_the_sum_that_is_written(double):  # from the definition, term by term
    net = un.models.implicit(Smoothness(1.5), 4, outputs=2)
    x, h, y = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 2)
    expected = 0.5 * (x.square().sum(1) + h.square().sum(1) + y.square().sum(1)) - (x * h).sum(1)
    expected = expected + Smoothness(1.5)(h) - (y * (h @ net.factors["h-y"].weight.T + net.bias_y)).sum(1)
    torch.testing.assert_close(net.energy({"x": x, "h": h, "y": y}), expected)
    assert list(net.factors) == ["x-h", "energy-h", "h-y"]  # no factor has a variable's name


def test_a_factor_may_not_have_a_variables_name():  # the energy's terms are known by name
    with pytest.raises(un.errors.DeclarationError, match="there is a variable 'h' already"):
        un.UNN(un.Variable("h", (2,)), un.Energy(Smoothness(1.0), "h", name="h"))
