"""Matrix-tree: the ways into it agree, and one factorisation serves a whole training step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import undirected as un
from undirected.structure import laplacian, matrix_tree


def draw(batch: int, n: int, seed: int = 0) -> Tensor:
    return torch.randn(batch, n + 1, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_training_step_factorises_once(monkeypatch):
    count, factorise = [], laplacian.factorise
    monkeypatch.setattr(laplacian, "factorise", lambda *inputs: count.append(inputs) or factorise(*inputs))
    net = un.UNN(
        un.Variable("x", ("n", 3), bias=False),
        un.Variable("y", ("n+1", "n"), un.SpanningTree()),
        un.Einsum("x[j,d] v[d] y[i,j]"),
    )
    for lengths in ({}, {"n": torch.tensor([4, 2])}):
        count.clear()
        solution = net(observe={"x": torch.randn(2, 4, 3)}, want="y", lengths=lengths)
        gold = torch.tensor([[2, 0, 2, 3], [0, 1, -1, -1] if lengths else [0, 1, 1, 1]])
        (un.fenchel_young(solution, "y", gold) + solution["y"].square().sum()).backward()
        assert len(count) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_remembered_is_forgotten_in_time(dtype):
    tree = un.SpanningTree()
    scores = 2 * draw(2, 4).to(dtype).requires_grad_()
    log_z, marginals = tree.infer(scores)
    before = marginals.detach().clone()
    with torch.no_grad():
        marginals.zero_()  # written into: the next caller must not see it
    torch.testing.assert_close(tree.activation(scores), before)
    with torch.no_grad():
        scores.mul_(2)  # other scores
    torch.testing.assert_close(tree.activation(scores), tree.activation(scores.detach()))
    assert matrix_tree._memo.find(scores, None, True) is not None
    assert matrix_tree._memo.find(scores, None, False) is None
    assert log_z.grad_fn is not None
    del log_z, marginals, scores
    assert matrix_tree._memo._entry is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_order_gradients_do_not_depend_on_the_door(dtype):
    scores, along = draw(3, 5).to(dtype).requires_grad_(), draw(3, 5, seed=1).to(dtype)

    def penalty(s: Tensor) -> Tensor:
        log_z, marginals = un.SpanningTree().infer(s)
        (g,) = torch.autograd.grad(log_z.square().sum() + (marginals * along).sum(), s, create_graph=True)
        return g.square().sum()

    def mapped(s: Tensor) -> Tensor:
        def inner(s):
            log_z, marginals = un.SpanningTree().infer(s)
            return log_z.square().sum() + (marginals * along).sum()

        return torch.func.grad(inner)(s).square().sum()

    (ours,) = torch.autograd.grad(penalty(scores), scores)
    torch.testing.assert_close(ours, torch.func.grad(mapped)(scores.detach()))


def test_compiled_in_one_graph():
    tree = un.SpanningTree()

    def loss(t: Tensor) -> Tensor:
        return tree.activation(t).square().sum() + tree.conjugate(t).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for scores in (draw(2, 4).float(), 300 * draw(2, 4).float()):  # the second goes through elimination
        ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        compiled(ours).backward()
        loss(theirs).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_operators_are_what_they_claim():
    scores = draw(2, 3)
    tree = matrix_tree.factorised(scores, None, True)
    for operator, inputs in (
        (matrix_tree._solve_operator, (scores, None, True)),
        (matrix_tree._differentiate_operator, (scores, scores, None, True, *tree[1:])),
        (matrix_tree._differentiate_twice_operator, (scores, scores, scores, None, True, *tree[1:])),
    ):
        torch.library.opcheck(operator, inputs, test_utils=("test_schema", "test_faketensor"))
