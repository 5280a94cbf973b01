"""Projective trees: numerics outside the range of plain numbers, decoding, compilation."""

from __future__ import annotations

import math

import pytest
import torch

import undirected as un
from undirected.structure import eisner, heads
from undirected.structure.algebra import Log, Real


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("n", [1, 2, 10, 60])
def test_count_is_a_fuss_catalan_number(single_root, n):
    log_z = un.ProjectiveTree(single_root).conjugate(torch.zeros(1, n + 1, n, dtype=torch.float64))
    count = math.comb(3 * n - 2, n - 1) // n if single_root else math.comb(3 * n, n) // (2 * n + 1)
    assert log_z.item() == pytest.approx(math.log(count), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("spread", [1.0, 100.0, 2000.0])
def test_marginals_outside_the_range_of_numbers(single_root, spread):
    # The log domain is an independent path to what numbers give; its own marginals sum to one.
    scores = spread * torch.randn(6, 9, 8, dtype=torch.float64)
    tree = un.ProjectiveTree(single_root)
    s, length, largest = tree._square(scores, None)
    log_z, marginals, _ = eisner.inside_outside(s, length, single_root, Log())
    z, h = tree.infer(scores)
    torch.testing.assert_close(z, log_z + largest, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(h, marginals[:, :, 1:], rtol=0, atol=1e-11)
    torch.testing.assert_close(h.sum(1), torch.ones(6, 8, dtype=torch.float64), rtol=0, atol=1e-10)
    best = tree.mode(scores)
    gap = z - (scores * best).sum((1, 2))
    assert (gap >= -1e-9).all()
    assert (gap <= math.log(math.comb(24, 8))).all()
    leaf = scores.clone().requires_grad_()
    tree.activation(leaf).square().sum().backward()
    x = s.clone().requires_grad_()
    eisner.inside_outside(x, length, single_root, Log())[1].square().sum().backward()
    torch.testing.assert_close(leaf.grad, x.grad[:, :, 1:], rtol=0, atol=1e-9)


def test_a_sentence_that_leaves_the_range_does_not_disturb_the_others():
    near = torch.randn(2, 41, 40, dtype=torch.float64)
    far = near.clone()
    # Each word's best head makes a crossing: whatever does not cross costs 60 a word, below the smallest number.
    words = torch.arange(40)
    far[1] = -60.0
    far[1, (words + 20) % 40 + 1, words] = 0.0
    tree = un.ProjectiveTree()
    s, length, _ = tree._square(far, None)
    assert not (eisner.inside_outside(s.exp(), length, True, Real())[0][1] > 0)
    leaf = far.clone().requires_grad_()
    h = tree.activation(leaf)
    torch.testing.assert_close(h[:1], tree.activation(near[:1]))
    torch.testing.assert_close(h.sum(1), torch.ones_like(h.sum(1)), rtol=0, atol=1e-10)
    h.square().sum().backward()
    assert leaf.grad.isfinite().all()


def test_spanning_trees_that_cross_are_no_projective_ones():
    crossing = un.ProjectiveTree().encode(torch.tensor([[3, 4, 0, 3]]), (5, 4))
    assert un.SpanningTree().contains(crossing).all()
    assert not un.ProjectiveTree().contains(crossing).any()
    assert heads.crosses(torch.tensor([[3, 4, 0, 3]])).all()
    only = torch.where(crossing == 1, 0.0, -torch.inf)
    with pytest.raises(ValueError, match="no tree without crossing arcs is possible in example 0"):
        un.ProjectiveTree().activation(only)
    with pytest.raises(ValueError, match="no tree without crossing arcs is possible in example 0"):
        un.ProjectiveTree().mode(only)
    assert un.ProjectiveTree().value(crossing).item() == math.inf


@pytest.mark.slow
def test_compiled_in_one_graph():
    tree = un.ProjectiveTree()

    def loss(t: torch.Tensor) -> torch.Tensor:
        return tree.activation(t).square().sum() + tree.conjugate(t).sum()

    ours = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(ours).backward()
    loss(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_tape_is_quadratic():
    # Backward must not keep n tables of n^2 sums: what is saved is a few tables.
    n = 30
    scores = torch.randn(1, n + 1, n, dtype=torch.float64, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        un.ProjectiveTree().activation(scores)
    assert sum(saved) <= 20 * (n + 1) ** 2
