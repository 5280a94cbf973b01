"""Muon: against singular value decompositions, and against PyTorch's own, which rounds to bfloat16."""

import pytest
import torch

from undirected.tasks.muon import Muon, orthogonal


def rotation(n):
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]


@pytest.mark.parametrize(("m", "n"), [(5, 5), (4, 9), (9, 4), (1, 6)])
def test_singular_vectors_stay_and_singular_values_come_near_one(m, n):
    torch.manual_seed(0)
    left, right = rotation(m), rotation(n)
    values = torch.logspace(-1.5, 1, min(m, n), dtype=torch.float64)  # from 0.03 to 10: at least 0.003 of the norm
    found = orthogonal(left[:, : len(values)] @ values.diag() @ right[: len(values)])
    turned = left.T @ found @ right.T
    assert turned.diagonal().min() > 0.6
    assert turned.diagonal().max() < 1.25
    rest = turned.clone()
    rest.diagonal().zero_()
    assert rest.abs().max() < 1e-12


def test_it_steps_as_pytorchs():
    torch.manual_seed(0)
    start = [torch.randn(8, 8), torch.randn(4, 10), torch.randn(12, 3)]
    gradients = [[torch.randn_like(weight) for weight in start] for _ in range(4)]

    def after(optimizer, **more):
        weights = [torch.nn.Parameter(weight.clone()) for weight in start]
        chosen = optimizer(weights, lr=0.05, momentum=0.9, weight_decay=0.1, **more)
        for step in gradients:
            for weight, gradient in zip(weights, step, strict=True):
                weight.grad = gradient.clone()
            chosen.step()
        return [weight.detach() - begin for weight, begin in zip(weights, start, strict=True)]

    theirs = after(torch.optim.Muon, adjust_lr_fn="match_rms_adamw")
    for ours, other in zip(after(Muon), theirs, strict=True):
        assert (ours - other).norm() < 0.03 * other.norm()  # eight bits of precision


def test_a_quadratic_falls():
    """`1/2 |A (W - B)|^2`, where A stretches some directions 100 times as much as others; its minimum is 0."""
    torch.manual_seed(0)
    a = rotation(6) @ torch.logspace(-1, 1, 6, dtype=torch.float64).diag()
    goal = torch.randn(6, 6, dtype=torch.float64)
    weight = torch.nn.Parameter(torch.zeros_like(goal))
    optimizer = Muon([weight], lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=300)

    def loss():
        optimizer.zero_grad()
        value = (a @ (weight - goal)).square().sum() / 2
        value.backward()
        return value

    first = optimizer.step(loss)
    for _ in range(299):
        schedule.step()
        last = optimizer.step(loss)
    assert last < 1e-3 * first


def test_weights_that_are_no_matrices_are_refused():
    with pytest.raises(ValueError, match=r"not for weights of shape \(3,\)"):
        Muon([torch.nn.Parameter(torch.zeros(3))], lr=0.1)
