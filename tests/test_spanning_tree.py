"""Spanning trees: numerics against enumeration and mpmath, decoding, samples, bad input, compilation."""

from __future__ import annotations

import itertools
import subprocess
import sys

import mpmath
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import undirected as un
from undirected.structure import arborescence, elimination, heads, laplacian, matrix_tree
from undirected.structure.arborescence import best_heads, best_heads_by_rounds


def draw(batch: int, n: int, seed: int = 0) -> Tensor:
    return torch.randn(batch, n + 1, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def like_a_parser(batch: int, n: int, seed: int = 0) -> Tensor:
    """Noise, with a random tree eight above it."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(batch, n + 1, n, generator=generator)
    for b in range(batch):
        order = torch.randperm(n, generator=generator)
        scores[b, 0, order[0]] += 8
        for k in range(1, n):
            scores[b, order[torch.randint(k, (1,), generator=generator)] + 1, order[k]] += 8
    return scores


def exactly(scores: Tensor, single_root: bool) -> tuple[float, Tensor]:
    """log Z and marginals of one sentence by the matrix-tree theorem in 1000 digits."""
    n = scores.shape[1]
    with mpmath.workdps(1000):
        w = [[mpmath.exp(mpmath.mpf(scores[h, m].item())) for m in range(n)] for h in range(n + 1)]

        def total(w):  # the sum over trees; with a single root, the part that is linear in the root's weights
            lap = mpmath.matrix(n, n)
            for h, m in itertools.product(range(n), repeat=2):
                if h != m:
                    lap[h, m] -= w[h + 1][m]
                    lap[m, m] += w[h + 1][m]
            for m in range(n):
                if single_root:
                    lap[0, m] = w[0][m]
                else:
                    lap[m, m] += w[0][m]
            return mpmath.det(lap)

        z = total(w)
        marginals = torch.zeros(n + 1, n, dtype=torch.float64)
        for h, m in itertools.product(range(n + 1), range(n)):
            if h != m + 1:
                without = [row[:] for row in w]
                without[h][m] = mpmath.mpf(0)
                marginals[h, m] = float(1 - total(without) / z)
        return float(mpmath.log(z)), marginals


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("spread", [1, 50, 500])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_marginals_in_high_precision_arithmetic(single_root, spread, n):
    generator = torch.Generator().manual_seed(n)
    scores = spread * (2 * torch.rand(4, n + 1, n, dtype=torch.float64, generator=generator) - 1)
    log_z, marginals = un.SpanningTree(single_root).infer(scores)
    for b in range(4):
        z, m = exactly(scores[b], single_root)
        assert log_z[b].item() == pytest.approx(z, rel=1e-12, abs=1e-11)
        torch.testing.assert_close(marginals[b], m, rtol=0, atol=1e-11)


@pytest.mark.parametrize("single_root", [True, False])
def test_elimination_alone_is_exact_to_the_last_digits(single_root):
    scores = 1000 * torch.rand(6, 7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 500
    log_z, marginals = elimination.derivative(scores, torch.ones(6, 6, dtype=torch.bool), single_root)
    for b in range(6):
        z, m = exactly(scores[b], single_root)
        assert log_z[b].item() == pytest.approx(z, rel=1e-14)
        torch.testing.assert_close(marginals[b], m, rtol=0, atol=1e-13)


@pytest.mark.parametrize("single_root", [True, False])
def test_root_scores_far_below_the_rest(single_root):
    scores = draw(8, 6)
    scores[:, 0] -= 30
    tree = matrix_tree.factorised(scores, None, single_root)
    assert not tree.eliminated.any()  # taking the root's row out of the sums is enough
    for b in range(2):
        z, m = exactly(scores[b], single_root)
        assert tree.log_z[b].item() == pytest.approx(z, abs=1e-12)
        torch.testing.assert_close(tree.marginals[b], m, rtol=0, atol=1e-13)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("spread", [1, 3, 10, 50, 500])
def test_the_self_test_lets_no_wrong_sentence_pass(single_root, spread):
    scores = spread * draw(300, 8, seed=spread)
    everyone = torch.ones(300, 8, dtype=torch.bool)
    tree = matrix_tree.factorised(scores, None, single_root)
    log_z, marginals = elimination.derivative(scores, everyone, single_root)
    torch.testing.assert_close(tree.log_z, log_z, rtol=1e-11, atol=1e-10)
    torch.testing.assert_close(tree.marginals, marginals, rtol=0, atol=1e-10)
    along = draw(300, 8, seed=7)
    derivative = laplacian.differentiate(scores, along, None, single_root, *tree[1:])
    expected = elimination.derivative(scores, everyone, single_root, (along,))[1]
    torch.testing.assert_close(derivative, expected, rtol=0, atol=1e-6)
    if spread <= 3:
        assert not tree.eliminated.any()
    if spread >= 50:
        assert tree.eliminated.any()


@pytest.mark.parametrize("single_root", [True, False])
def test_derivatives_of_eliminated_sentences(single_root, monkeypatch):
    monkeypatch.setattr(laplacian, "CONDITION", 0.0)  # so that everyone is eliminated
    tree = un.SpanningTree(single_root)
    scores = draw(2, 3).requires_grad_()
    assert gradcheck(tree.infer, (scores,))
    assert gradgradcheck(tree.infer, (scores,))


def test_an_eliminated_sentence_does_not_poison_its_batch():
    scores = torch.cat([draw(2, 5), 500 * draw(2, 5, seed=3)])
    assert matrix_tree.factorised(scores, None, True).eliminated.tolist()[:2] == [False, False]
    assert matrix_tree.factorised(scores, None, True).eliminated[2:].any()
    leaf = scores.clone().requires_grad_()
    un.SpanningTree().activation(leaf).square().sum().backward()
    alone = scores[:2].clone().requires_grad_()
    un.SpanningTree().activation(alone).square().sum().backward()
    torch.testing.assert_close(leaf.grad[:2], alone.grad)
    assert leaf.grad.isfinite().all()


def test_five_words_have_625_and_1296_trees():
    zeros = torch.zeros(1, 6, 5, dtype=torch.float64)
    assert un.SpanningTree(True).conjugate(zeros).exp().item() == pytest.approx(625)
    assert un.SpanningTree(False).conjugate(zeros).exp().item() == pytest.approx(1296)


@pytest.mark.parametrize("n", [100, 300])
def test_long_sentences_count_like_cayley(n):
    log_z = un.SpanningTree(False).conjugate(torch.zeros(1, n + 1, n, dtype=torch.float64))
    assert log_z.item() == pytest.approx((n - 1) * torch.tensor(n + 1.0, dtype=torch.float64).log().item(), rel=1e-13)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("forbid", [0.0, 0.5])
def test_both_decoders_agree(single_root, n, forbid):
    # Numbers of few bits, so that sums are exact and ties happen; then only the scores of the trees must agree.
    generator = torch.Generator().manual_seed(n)
    scores = torch.randint(-8, 8, (60, n + 1, n), generator=generator).double()
    scores[torch.rand(scores.shape, generator=generator) < forbid] = -torch.inf
    tree = un.SpanningTree(single_root)
    scores = scores[tree.possible(scores)]
    everyone = torch.ones(len(scores), n, dtype=torch.bool)
    fast = heads.to_arcs(best_heads(scores, everyone, single_root), torch.float64)
    slow, found = best_heads_by_rounds(scores, everyone, single_root)
    assert found.all()
    for arcs in (fast, heads.to_arcs(slow, torch.float64)):
        assert tree.contains(arcs).all()
    rating = torch.where(fast == 1, scores, 0).sum((1, 2))
    assert torch.equal(rating, scores.gather(1, slow[:, None]).sum((1, 2)))


def test_decoding_without_numba(monkeypatch):
    scores = torch.cat([like_a_parser(20, 12), torch.randn(20, 13, 12)])
    expected = un.SpanningTree().mode(scores)
    monkeypatch.setattr(arborescence, "_kernel", lambda: None)
    assert torch.equal(un.SpanningTree().mode(scores), expected)
    mask = torch.zeros(40, 13, 12, dtype=torch.bool)
    mask[:, :8, :7] = True
    assert torch.equal(un.SpanningTree().mode(scores, mask)[:, :8, :7], un.SpanningTree().mode(scores[:, :8, :7]))


def test_a_long_sentence_does_not_overflow_the_stack():
    n = 1500
    scores = torch.full((1, n + 1, n), -1.0)
    words = torch.arange(n - 1)
    scores[0, words + 2, words] = 1.0  # every word wants the next as its head, the last one the first: one long cycle
    scores[0, 1, n - 1] = 1.0
    scores[0, 0, 10] = 0.0
    found = heads.from_arcs(un.SpanningTree().mode(scores))[0]
    assert found[10] == 0
    assert (found == 0).sum() == 1
    assert (found[:-1] == torch.arange(2, n + 1)).sum() == n - 2


def test_sampling_of_eliminated_sentences(monkeypatch):
    monkeypatch.setattr(laplacian, "CONDITION", 0.0)  # so that everyone is eliminated
    scores, tree = draw(1, 4), un.SpanningTree(False)
    samples = tree.sample(scores, 150, generator=torch.Generator().manual_seed(0))
    assert tree.contains(samples.flatten(0, 1)).all()
    h = tree.activation(scores)
    assert ((samples.mean(0) - h).abs() <= 5 * (h * (1 - h) / 150).sqrt()).all()


def test_packed_form_and_back():
    arcs = draw(2, 4)
    arcs[:, 1:].diagonal(dim1=1, dim2=2).fill_(0)
    assert torch.equal(heads.unpack(heads.pack(arcs)), arcs)
    assert torch.equal(heads.pack(arcs).diagonal(dim1=1, dim2=2), arcs[:, 0])


def test_heads_as_labels():
    tree = un.SpanningTree()
    encoded = tree.encode(torch.tensor([[2, 0, -1]]), (4, 3))
    assert encoded.nonzero().tolist() == [[0, 0, 1], [0, 2, 0]]
    with pytest.raises(ValueError, match=r"heads are 0 \(the root\) to 3, or -1 for padding, but these go from 0 to 4"):
        tree.encode(torch.tensor([[2, 0, 4]]), (4, 3))
    with pytest.raises(ValueError, match="word 2 of example 0 is its own head"):
        tree.encode(torch.tensor([[2, 2, 0]]), (4, 3))
    with pytest.raises(ValueError, match=r"takes \(batch, 3\)"):
        tree.encode(torch.tensor([[2, 0]]), (4, 3))


BAD = {
    "square": (torch.zeros(1, 3, 3), r"shape \(batch, n \+ 1, n\).*these have \(1, 3, 3\).*unpack"),
    "nan": (torch.tensor([[[0.0, float("nan")], [0, 0], [0, 0]]]), r"arc \[head 0, word 2\] of example 0 is nan"),
    "orphan": (torch.tensor([[[0.0, -torch.inf], [0, -torch.inf], [0, 0]]]), "word 2 has no head"),
    "rootless": (torch.tensor([[[-torch.inf, -torch.inf], [0, 0], [0, 0]]]), "no word may be the root"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("method", ["conjugate", "activation", "mode", "sample"])
@pytest.mark.parametrize("tree", [un.SpanningTree(), un.ProjectiveTree()], ids=["spanning", "projective"])
def test_bad_scores_are_explained(kind, method, tree):
    scores, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        getattr(tree, method)(scores)


def test_words_cut_off_are_named():
    scores = torch.zeros(2, 5, 4)
    scores[1, :3, 2:] = -torch.inf  # words 3 and 4 can only have each other as heads
    with pytest.raises(ValueError, match="example 1: words 3, 4 have no path from the root"):
        un.SpanningTree(False).activation(scores)
    scores[1, 0, 2] = 0  # now they may, as a second root
    assert un.SpanningTree(False).activation(scores).isfinite().all()
    scores[1, 3:, :2] = -torch.inf
    with pytest.raises(ValueError, match="no word reaches all others, as a single root must"):
        un.SpanningTree(True).activation(scores)


def test_a_word_with_two_known_heads():
    known = torch.zeros(1, 3, 2, dtype=torch.bool)
    known[0, :, 1] = torch.tensor([True, True, False])
    with pytest.raises(ValueError, match=r"word 2 of example 0 has several known heads, \[0, 1\]"):
        un.SpanningTree().complete(torch.zeros(1, 3, 2), known, known.float())


def test_the_library_imports_without_numba():
    code = "import sys, undirected; undirected.SpanningTree(); assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sentences_of_different_length_in_a_graph():
    net = un.UNN(
        un.Variable("x", ("n", 6)),
        un.Variable("y", ("n+1", "n"), un.SpanningTree()),
        un.Variable("h", ("n", 5), un.Tanh()),
        un.Linear("x", "h"),
        un.Einsum("h[j,d] v[d] y[i,j]"),
    )
    x = torch.randn(2, 5, 6)
    lengths = torch.tensor([5, 3])
    both = net(observe={"x": x}, want="y", order="h y", iterations=3, lengths={"n": lengths}, check=True)
    alone = net(observe={"x": x[1:, :3]}, want="y", order="h y", iterations=3)
    torch.testing.assert_close(both["y"][1, :4, :3], alone["y"][0])
    assert (both["y"][1, 4:] == 0).all()
    gold = torch.tensor([[2, 0, 2, 3, 4], [0, 1, 1, -1, -1]])
    loss = un.fenchel_young(both, "y", gold, reduction="none")
    torch.testing.assert_close(loss[1:], un.fenchel_young(alone, "y", gold[1:, :3], reduction="none"))
