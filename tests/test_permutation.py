"""Permutation: the relaxation against its definition and exact arithmetic, the exact parts against the list of all."""

import itertools
import math
import sys

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import undirected as un
from undirected.errors import NotConverged
from undirected.structure.assignment import (
    NoAssignment,
    best_assignment,
    best_assignments,
    hungarian,
    in_some_assignment,
)
from undirected.structure.permutation import Permutation

permutation = Permutation()


def permutations(n: int) -> torch.Tensor:
    return torch.eye(n, dtype=torch.float64)[torch.tensor(list(itertools.permutations(range(n))))]


def scores_of(batch: int, n: int, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    return size * torch.randn(batch, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def square_mask(lengths: list[int], n: int) -> torch.Tensor:
    exists = torch.arange(n) < torch.tensor(lengths)[:, None]
    return exists[:, :, None] & exists[:, None, :]


def sums_to_one(h: torch.Tensor, tolerance: float = 1e-9) -> bool:
    return bool(
        ((h.sum(1) - 1).abs() < tolerance).all() and ((h.sum(2) - 1).abs() < tolerance).all() and (h >= 0).all()
    )


@pytest.mark.parametrize("n", [1, 2, 5, 30])
@pytest.mark.parametrize("size", [0.0, 1.0, 50.0, 500.0])
def test_the_marginals_are_the_only_doubly_stochastic_matrix_of_the_form(n, size):
    # Sinkhorn's theorem: it is characterised by `log h - scores` being a row's number plus a column's, and the sums.
    scores = size * (2 * torch.rand(4, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) - 1)
    h = permutation.marginals(scores)
    assert sums_to_one(h)
    remainder = h.log() - scores
    interaction = remainder - remainder[:, :1] - remainder[:, :, :1] + remainder[:, :1, :1]
    seen = (h > 1e-280) & (h[:, :1] > 1e-280) & (h[:, :, :1] > 1e-280) & (h[:, :1, :1] > 1e-280)
    assert torch.where(seen, interaction, 0).abs().max() < 1e-10
    psi = torch.where(h > 0, h * h.log(), 0).flatten(1).sum(1)
    torch.testing.assert_close(permutation.log_partition(scores), (scores * h).flatten(1).sum(1) - psi)
    torch.testing.assert_close(permutation.value(h), psi)


@pytest.mark.parametrize("size", [1.0, 50.0, 500.0])
def test_two_by_two_in_closed_form(size):
    # h = [[p, 1-p], [1-p, p]] with p the logistic function of half the difference of the two permutations' scores.
    scores = size * (2 * torch.rand(6, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 1)
    with mpmath.workdps(50):
        for row, h in zip(scores.tolist(), permutation.marginals(scores), strict=True):
            (a, b), (c, d) = row
            p = 1 / (1 + mpmath.exp(-(mpmath.mpf(a) + d - b - c) / 2))
            expected = torch.tensor([[float(p), float(1 - p)], [float(1 - p), float(p)]], dtype=torch.float64)
            torch.testing.assert_close(h, expected, rtol=1e-9, atol=1e-12)


def exact_marginals(scores: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Sinkhorn's matrix with 60 digits, by Newton's method from the prices of h."""
    n = len(scores)
    with mpmath.workdps(60):
        cells = mpmath.matrix(scores.tolist())
        prices = [cells[0, j] - mpmath.log(mpmath.mpf(float(h[0, j]))) for j in range(n)]

        def matrix(v):
            weight = [[mpmath.exp(cells[i, j] - v[j]) for j in range(n)] for i in range(n)]
            return [[x / mpmath.fsum(row) for x in row] for row in weight]

        def excess(*v):
            m = matrix([*v, prices[-1]])
            return [mpmath.fsum(m[i][j] for i in range(n)) - 1 for j in range(n - 1)]

        solved = mpmath.findroot(excess, prices[:-1], tol=1e-80, maxsteps=60, verify=False)
        assert max(abs(x) for x in excess(*solved)) < mpmath.mpf("1e-40")
        return torch.tensor([[float(x) for x in row] for row in matrix([*solved, prices[-1]])], dtype=torch.float64)


@pytest.mark.parametrize("size", [1.0, 10.0, 30.0])
def test_the_marginals_agree_with_exact_arithmetic(size):
    strict = Permutation(tolerance=1e-13)
    scores = size * (2 * torch.rand(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(7)) - 1)
    for matrix, h in zip(scores, strict.marginals(scores), strict=True):
        torch.testing.assert_close(h, exact_marginals(matrix, h), rtol=1e-8, atol=1e-11)


def test_log_partition_bounds_the_sum_over_all_permutations():
    scores, every = scores_of(8, 5, size=2.0), permutations(5)
    of_each = scores.flatten(1) @ every.flatten(1).T
    relaxed = permutation.log_partition(scores)
    assert (relaxed > of_each.logsumexp(1)).all()
    assert (relaxed >= of_each.amax(1)).all()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_mode_and_top_agree_with_the_list_of_all_permutations(n):
    scores, every = scores_of(3, n), permutations(n)
    of_each = scores.flatten(1) @ every.flatten(1).T
    torch.testing.assert_close(permutation.mode(scores), every[of_each.argmax(1)])
    best, best_scores = permutation.top(scores, len(every) + 1)
    torch.testing.assert_close(best_scores[:-1], of_each.sort(1, descending=True).values.T)
    torch.testing.assert_close((best * scores).flatten(2).sum(2)[:-1], best_scores[:-1])
    assert (best_scores[-1] == -math.inf).all()


def test_assignments_agree_with_the_list_of_all(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    possible = 0
    for trial in range(150):
        n = trial % 5 + 1
        scores = torch.randn(n, n, dtype=torch.float64, generator=generator)
        scores[torch.rand(n, n, generator=generator) < (trial % 3) * 0.25] = -math.inf
        every = [(float(scores[torch.arange(n), list(p)].sum()), list(p)) for p in itertools.permutations(range(n))]
        every = sorted((each for each in every if each[0] > -math.inf), reverse=True)
        if every:
            possible += 1
            assert best_assignment(scores) == hungarian(scores.tolist()) == every[0][1]
            assert [columns for _, columns in best_assignments(scores, 6)] == [columns for _, columns in every[:6]]
            used = torch.zeros(n, n, dtype=torch.bool)
            for _, columns in every:
                used[torch.arange(n), columns] = True
            assert (in_some_assignment((scores > -math.inf)[None], torch.tensor([every[0][1]]))[0] == used).all()
        else:  # Hall's theorem: it names rows that have fewer columns than they are
            with pytest.raises(NoAssignment) as caught:
                best_assignment(scores)
            rows, columns = caught.value.rows, caught.value.columns
            assert len(rows) > len(columns)
            assert (scores[rows] > -math.inf).any(0).nonzero().flatten().tolist() == columns
    assert 100 < possible < 150
    large = torch.randn(40, 40, dtype=torch.float64, generator=generator)
    with_scipy = best_assignment(large)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert best_assignment(large) == with_scipy


def test_derivatives_of_both_orders():
    scores, mask = scores_of(2, 4).requires_grad_(), square_mask([4, 3], 4)
    assert gradcheck(lambda s: permutation.log_partition(s, mask), scores)
    assert gradgradcheck(lambda s: permutation.log_partition(s, mask), scores)
    (gradient,) = torch.autograd.grad(permutation.log_partition(scores, mask).sum(), scores)
    torch.testing.assert_close(gradient, permutation.marginals(scores, mask))
    assert gradcheck(lambda s: permutation.marginals(s, mask), scores)
    assert gradgradcheck(lambda s: permutation.marginals(s, mask), scores)


@pytest.mark.parametrize("size", [50.0, 500.0])
def test_derivatives_at_large_scores_keep_the_sums_and_agree_in_closed_form(size):
    scores = size * (2 * torch.rand(4, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 1)
    scores.requires_grad_()
    h = permutation.marginals(scores)
    (gradient,) = torch.autograd.grad((h * scores_of(4, 8, seed=2)).sum(), scores)
    assert gradient.isfinite().all()
    # A number added to a row or to a column of the scores changes nothing.
    assert gradient.sum(1).abs().max() < 1e-9
    assert gradient.sum(2).abs().max() < 1e-9
    two = scores.detach()[:, :2, :2].clone().requires_grad_()
    (actual,) = torch.autograd.grad(permutation.marginals(two)[:, 0, 0].sum(), two)
    p = torch.sigmoid((two[:, 0, 0] + two[:, 1, 1] - two[:, 0, 1] - two[:, 1, 0]) / 2)
    (expected,) = torch.autograd.grad(p.sum(), two)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-10)


def test_forbidden_cells():
    scores = scores_of(1, 4)
    scores[
        0, 0, 1:
    ] = -math.inf  # row 0 must take column 0, so that the other rows' cells in column 0 are in no permutation
    scores[0, 3, 2] = -math.inf
    h = permutation.marginals(scores)
    assert sums_to_one(h)
    assert h[0, 0, 0] == 1
    rest = scores[:, 1:, 1:]
    torch.testing.assert_close(h[:, 1:, 1:], permutation.marginals(rest))
    torch.testing.assert_close(permutation.log_partition(scores), scores[:, 0, 0] + permutation.log_partition(rest))
    free = torch.where(scores.isfinite(), scores, 0).requires_grad_()
    forbidden = ~scores.isfinite()
    assert gradcheck(lambda s: permutation.marginals(torch.where(forbidden, -math.inf, s)), free)
    assert gradgradcheck(lambda s: permutation.marginals(torch.where(forbidden, -math.inf, s)), free)


def test_a_padded_batch_is_its_members():
    scores, lengths = scores_of(3, 5), [5, 1, 3]
    mask = square_mask(lengths, 5)
    padded = torch.where(mask, scores, math.nan)
    h, best, log_z = (
        permutation.marginals(padded, mask),
        permutation.mode(padded, mask),
        permutation.log_partition(padded, mask),
    )
    second, drawn = permutation.top(padded, 2, mask)[0][1], permutation.sample(padded, 4, mask)
    for result in (h, best, second, drawn):
        assert (torch.where(mask, 0, result) == 0).all()
    value = permutation.value(h, mask)
    for b, n in enumerate(lengths):
        alone = scores[b : b + 1, :n, :n]
        torch.testing.assert_close(h[b, :n, :n], permutation.marginals(alone)[0], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(log_z[b], permutation.log_partition(alone)[0], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(best[b, :n, :n], permutation.mode(alone)[0])
        torch.testing.assert_close(second[b, :n, :n], permutation.top(alone, 2)[0][1, 0])
        torch.testing.assert_close(value[b], -permutation.entropy(alone)[0])
        assert sums_to_one(drawn[:, b, :n, :n])


def test_the_company_in_a_batch_changes_nothing():
    easy, hard = scores_of(1, 5, seed=1), scores_of(3, 5, seed=2, size=200.0)
    together = Permutation(tolerance=1e-3).marginals(torch.cat([hard, easy]))[3:]
    torch.testing.assert_close(together, Permutation(tolerance=1e-3).marginals(easy), rtol=1e-14, atol=1e-14)


def test_samples_are_of_the_true_distribution():
    scores, every = scores_of(2, 4), permutations(4)
    drawn = permutation.sample(scores, 20_000, generator=torch.Generator().manual_seed(0))
    true_marginals = ((scores.flatten(1) @ every.flatten(1).T).softmax(1) @ every.flatten(1)).view_as(scores)
    assert (drawn.mean(0) - true_marginals).abs().max() < 5 * 0.5 / math.sqrt(20_000)
    assert (true_marginals - permutation.marginals(scores)).abs().max() > 1e-3  # the relaxation's are others
    with pytest.raises(NotImplementedError, match=r"n up to 8; here n is 9"):
        permutation.sample(torch.zeros(1, 9, 9))


def test_completing_is_the_relaxation_of_what_is_left():
    scores = scores_of(1, 4)
    known = torch.zeros(1, 4, 4, dtype=torch.bool)
    value = torch.zeros(1, 4, 4, dtype=torch.float64)
    known[0, 1, 2] = known[0, 0, 0] = True
    value[0, 1, 2] = 1.0
    completed = permutation.complete(scores, known, value)
    rest = scores[:, [0, 2, 3]][:, :, [0, 1, 3]].clone()
    rest[0, 0, 0] = -math.inf
    torch.testing.assert_close(completed[:, [0, 2, 3]][:, :, [0, 1, 3]], permutation.marginals(rest))
    assert completed[0, 1].tolist() == [0, 0, 1, 0]
    torch.testing.assert_close(permutation.attained(completed, scores, known=known), permutation.value(completed))


def test_scale_is_a_temperature():
    scores, warm = scores_of(2, 4), Permutation(scale=2.5)
    h = warm.activation(scores)
    fenchel_young = warm.conjugate(scores) + warm.value(h) - (scores * h).flatten(1).sum(1)
    torch.testing.assert_close(fenchel_young, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(h, permutation.marginals(scores / 2.5))


def test_value_is_infinite_outside_the_polytope_and_zero_at_its_corners():
    h = torch.stack([torch.full((2, 2), 0.5), torch.full((2, 2), 0.6), torch.tensor([[1.5, -0.5], [-0.5, 1.5]])])
    assert permutation.value(h).isfinite().tolist() == [True, False, False]
    assert (permutation.value(permutations(4)) == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_narrow_dtypes(dtype, tolerance):
    scores = scores_of(2, 5, size=4.0).to(dtype)
    for function in (permutation.log_partition, permutation.marginals, permutation.entropy, permutation.mode):
        result = function(scores)
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), function(scores.double()), rtol=tolerance, atol=tolerance)


def test_under_vmap():
    few, scores = Permutation(max_iterations=3), scores_of(3, 4)
    mapped = torch.func.vmap(lambda s: few.marginals(s[None])[0])(scores)
    torch.testing.assert_close(mapped, permutation.marginals(scores))


@pytest.mark.slow
def test_under_fullgraph_compilation():
    few, scores = Permutation(max_iterations=3), scores_of(3, 4)
    torch._dynamo.reset()
    leaf = scores.clone().requires_grad_()
    compiled = torch.compile(few.marginals, fullgraph=True, backend="aot_eager")(leaf)
    torch.testing.assert_close(compiled, permutation.marginals(scores))
    weight = scores_of(3, 4, seed=1)
    (actual,) = torch.autograd.grad((compiled * weight).sum(), leaf)
    (wanted,) = torch.autograd.grad((few.marginals(leaf) * weight).sum(), leaf)
    torch.testing.assert_close(actual, wanted)


def test_what_does_not_converge_says_so():
    hard = scores_of(2, 12, size=300.0)
    hasty = Permutation(max_iterations=1)
    with pytest.warns(NotConverged, match=r"not converged for 2 of 2 examples after 1 Newton steps"):
        hasty.marginals(hard)
    assert torch.func.vmap(lambda s: hasty.marginals(s[None])[0])(hard).isnan().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Permutation(tolerance=0), r"tolerance must be from 1e-13"),
        (lambda: Permutation(max_iterations=0), r"at least 1, got 0"),
        (lambda: permutation.marginals(torch.zeros(2, 3, 4)), r"\(batch, n, n\).*got \(2, 3, 4\)"),
        (lambda: permutation.mode(torch.full((1, 2, 2), math.nan)), r"entry \(0, 0\) of example 0 is nan"),
        (lambda: permutation.top(torch.zeros(1, 2, 2), 0), r"at least 1, got 0"),
        (lambda: permutation.encode(torch.tensor([[0, 2]]), (2, 2)), r"from 0 to 1, but these from 0 to 2"),
        (lambda: permutation.encode(torch.tensor([[0, -2]]), (2, 2)), r"but these from -2 to 0"),
        (lambda: permutation.encode(torch.tensor([[1, 2, 1]]), (3, 3)), r"\[1, 2, 1\].*column 1 is there twice"),
        (lambda: permutation.encode(torch.tensor([[0, 1]]), (3, 3)), r"\(batch, 3\)"),
        (lambda: permutation.encode(torch.tensor([[0, 1]]), (2, 3)), r"shape \(n, n\)"),
        (
            lambda: permutation.mode(torch.zeros(1, 3, 3), torch.tensor([True, True, False]).expand(1, 3, 3)),
            r"example 0 has 3 rows and 2 columns",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["marginals", "mode", "sample"])
def test_an_impossible_permutation_names_the_rows(name):
    scores = torch.zeros(3, 4, 4)
    scores[1, [0, 2]] = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf])
    with pytest.raises(ValueError, match=r"possible for example 1: rows \[0, 2\] can only go to columns \[1\]"):
        getattr(permutation, name)(scores)
    assert permutation.log_partition(scores).isfinite().tolist() == [True, False, True]
    assert permutation.top(scores, 2)[1][:, 1].tolist() == [-math.inf, -math.inf]


def test_labels_are_the_columns():
    assert permutation.encode(torch.tensor([[2, 0, 1]]), (3, 3)).tolist() == [[[0, 0, 1], [1, 0, 0], [0, 1, 0]]]
    assert permutation.encode(torch.tensor([[1, 0, -1]]), (3, 3)).tolist() == [[[0, 1, 0], [1, 0, 0], [0, 0, 0]]]


def test_in_a_network_the_energy_never_rises():
    torch.manual_seed(0)
    net = un.UNN(
        un.Variable("x", ("n", 2), bias=False),
        un.Variable("h", ("n", 4), un.Tanh()),
        un.Variable("z", ("n", 3), un.Tanh()),
        un.Variable("p", ("n", "n"), Permutation(scale=0.5)),
        un.Linear("x", "h"),
        un.Einsum("p[i,j] h[i,d] z[j,e] W[d,e]"),
    ).double()
    x, lengths = torch.randn(4, 5, 2, dtype=torch.float64), torch.tensor([5, 1, 3, 4])
    solution = net(observe={"x": x}, init="random", iterations=4, lengths={"n": lengths}, check=True)
    assert sums_to_one(solution["p"][2:3, :3, :3])
    labels = torch.tensor([[4, 3, 2, 1, 0], [0, 0, 0, 0, 0], [1, 2, 0, 0, 0], [3, 2, 1, 0, 0]])
    loss = un.fenchel_young(solution, "p", labels, reduction="none")
    assert (loss > -1e-12).all()
    loss.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
    told = un.Partial(labels, known=torch.arange(5) == 0)  # where the first item of each goes
    solution = net(observe={"x": x, "p": told}, init="random", iterations=4, lengths={"n": lengths}, check=True)
    assert solution["p"][:, 0].argmax(1).tolist() == labels[:, 0].tolist()


def test_a_loose_tolerance_is_still_inside():
    loose, scores = Permutation(tolerance=1e-2), scores_of(4, 6, size=5.0)
    h = loose.marginals(scores)
    assert loose.value(h).isfinite().all()
    assert ((h.sum(1) - 1).abs() <= 1e-2).all()
