"""BudgetedChoice against the list of all sets, against exact arithmetic, and against theorems."""

import itertools
import math

import mpmath
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck

import undirected as un
from undirected.structure.choice import BudgetedChoice


def sets(n: int, k: int) -> torch.Tensor:
    h = torch.zeros(math.comb(n, k), n, dtype=torch.float64)
    for row, places in enumerate(itertools.combinations(range(n), k)):
        h[row, list(places)] = 1
    return h


def scores_of(*shape: int, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    return size * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("n", "k"), [(1, 0), (1, 1), (4, 0), (5, 2), (6, 3), (4, 4)])
def test_everything_agrees_with_the_list_of_all_sets(n, k):
    choice, scores, every = BudgetedChoice(k), scores_of(3, n), sets(n, k)
    of_each = scores @ every.T
    expected = of_each.softmax(1) @ every
    torch.testing.assert_close(choice.log_partition(scores), of_each.logsumexp(1))
    torch.testing.assert_close(choice.marginals(scores), expected)
    torch.testing.assert_close(choice.mode(scores), every[of_each.argmax(1)])
    best, best_scores = choice.top(scores, len(every) + 1)
    torch.testing.assert_close(best_scores[:-1], of_each.sort(1, descending=True).values.T)
    torch.testing.assert_close((best * scores).sum(2)[:-1], best_scores[:-1])
    assert (best_scores[-1] == -math.inf).all()
    assert (best[-1] == 0).all()
    probability = of_each.softmax(1)
    entropy = -(probability * probability.log()).sum(1)
    torch.testing.assert_close(choice.entropy(scores), entropy)
    torch.testing.assert_close(choice.value(expected), -entropy, rtol=1e-7, atol=1e-7)
    assert (choice.value(every) == 0).all()


def test_the_number_of_sets_is_binomial():
    log_z = BudgetedChoice(20).log_partition(torch.zeros(1, 60, dtype=torch.float64))
    torch.testing.assert_close(log_z.item(), math.log(math.comb(60, 20)))


def test_choosing_one_is_softmax_and_all_but_one_its_mirror():
    scores = scores_of(4, 7)
    torch.testing.assert_close(BudgetedChoice(1).marginals(scores), scores.softmax(1))
    torch.testing.assert_close(BudgetedChoice(6).marginals(scores), 1 - (-scores).softmax(1))


def test_derivatives_of_both_orders():
    choice, scores = BudgetedChoice(2), scores_of(2, 5).requires_grad_()
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    assert gradcheck(lambda s: choice.log_partition(s, mask), scores)
    (gradient,) = torch.autograd.grad(choice.log_partition(scores, mask).sum(), scores)
    torch.testing.assert_close(gradient, choice.marginals(scores, mask))
    assert gradcheck(lambda s: choice.marginals(s, mask), scores)
    assert gradgradcheck(lambda s: choice.marginals(s, mask), scores)


def test_the_derivative_of_the_value_is_the_scores_up_to_a_constant():
    choice, scores = BudgetedChoice(2), scores_of(3, 5)
    h = choice.marginals(scores).requires_grad_()
    (gradient,) = torch.autograd.grad(choice.value(h).sum(), h)
    torch.testing.assert_close(
        gradient - gradient.mean(1, keepdim=True), scores - scores.mean(1, keepdim=True), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("size", [50.0, 500.0])
def test_large_scores_agree_with_exact_arithmetic(size):
    n, k = 9, 4
    scores = size * (2 * torch.rand(4, n, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) - 1)
    choice = BudgetedChoice(k)
    marginals, log_z = choice.marginals(scores), choice.log_partition(scores)
    for row in range(4):
        with mpmath.workdps(60):
            weight = [mpmath.exp(mpmath.mpf(x)) for x in scores[row].tolist()]
            products = {s: mpmath.fprod(weight[i] for i in s) for s in itertools.combinations(range(n), k)}
            z = mpmath.fsum(products.values())
            chosen = [float(mpmath.fsum(p for s, p in products.items() if i in s) / z) for i in range(n)]
            expected = float(mpmath.log(z))
        torch.testing.assert_close(log_z[row].item(), expected, rtol=1e-14, atol=0)
        torch.testing.assert_close(marginals[row], torch.tensor(chosen, dtype=torch.float64), rtol=1e-11, atol=1e-300)
    torch.testing.assert_close(marginals.sum(1), torch.full((4,), float(k), dtype=torch.float64), rtol=1e-14, atol=0)


def test_forbidden_entries_are_as_if_they_were_not_there():
    choice, scores = BudgetedChoice(2), scores_of(2, 6)
    present = [0, 2, 3, 5]
    there = torch.zeros(6, dtype=torch.bool)
    there[present] = True
    weight = scores_of(2, 6, seed=1)

    def derivatives(function, weight):
        s = scores.clone().requires_grad_()
        h = function(s)
        (first,) = torch.autograd.grad((h * weight).sum(), s, create_graph=True)
        (second,) = torch.autograd.grad((first * scores).sum(), s)
        return h, first, second

    h, *actual = derivatives(lambda s: choice.marginals(torch.where(there, s, -math.inf)), weight)
    alone, *expected = derivatives(lambda s: choice.marginals(s[:, present]), weight[:, present])
    torch.testing.assert_close(h[:, present], alone)
    assert (h[:, ~there] == 0).all()
    torch.testing.assert_close(actual, expected)


def test_other_axes_are_independent_and_padding_changes_nothing():
    choice, scores = BudgetedChoice(2), scores_of(3, 4, 5)
    rows, columns = torch.tensor([4, 1, 2]), torch.tensor([5, 2, 3])
    mask = (torch.arange(4)[:, None] < rows[:, None, None]) & (torch.arange(5) < columns[:, None, None])
    padded = torch.where(mask, scores, math.nan)
    h, best = choice.marginals(padded, mask), choice.mode(padded, mask)
    log_z, drawn = choice.log_partition(padded, mask), choice.sample(padded, 3, mask)
    for result in (h, best, drawn):
        assert (torch.where(mask, 0, result) == 0).all()
    for b in range(3):
        alone = scores[b, : rows[b], : columns[b]]
        torch.testing.assert_close(h[b, : rows[b], : columns[b]], choice.marginals(alone), rtol=1e-15, atol=1e-15)
        torch.testing.assert_close(best[b, : rows[b], : columns[b]], choice.mode(alone))
        torch.testing.assert_close(log_z[b], choice.log_partition(alone).sum(), rtol=1e-15, atol=1e-15)
        assert (drawn[:, b, : rows[b]].sum(-1) == 2).all()
    torch.testing.assert_close(choice.value(h, mask), -choice.entropy(torch.where(mask, scores, 0), mask))


def test_samples_have_the_marginals_as_their_mean():
    choice, scores = BudgetedChoice(3), scores_of(2, 6)
    scores[1, 0] = -math.inf
    drawn = choice.sample(scores, 20_000, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 2, 6)
    assert (drawn.sum(-1) == 3).all()
    assert (drawn[:, 1, 0] == 0).all()
    assert (drawn.mean(0) - choice.marginals(scores)).abs().max() < 5 * 0.5 / math.sqrt(20_000)
    pairs = torch.einsum("sbi,sbj->bij", drawn, drawn) / len(drawn)  # not only the marginals, but what goes together
    every = sets(6, 3)
    of_each = (torch.where(scores.isfinite(), scores, -1e9) @ every.T).softmax(1)
    expected = torch.einsum("bs,si,sj->bij", of_each, every, every)
    assert (pairs - expected).abs().max() < 5 * 0.5 / math.sqrt(20_000)


def test_completing_is_conditioning():
    choice, scores, every = BudgetedChoice(3), scores_of(2, 6), sets(6, 3)
    known = torch.tensor([True, False, True, False, False, True]).expand(2, 6)
    value = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64).expand(2, 6)
    consistent = every[(every[:, known[0]] == value[0, known[0]]).all(1)]
    expected = (scores @ consistent.T).softmax(1) @ consistent
    completed = choice.complete(scores, known, value)
    torch.testing.assert_close(completed, expected)
    torch.testing.assert_close(choice.attained(completed, scores, known=known), choice.value(completed))
    given = choice.condition(scores, known, value)
    assert (choice.sample(given, 20)[..., known[0]] == value[0, known[0]]).all()
    best, best_scores = choice.top(given, 4)
    assert (best[:3, ..., known[0]] == value[0, known[0]]).all()
    assert (best_scores[3] == -math.inf).all()  # three sets are left
    assert gradcheck(lambda s: choice.complete(s, known, value), scores.requires_grad_())
    assert gradgradcheck(lambda s: choice.complete(s, known, value), scores)


def test_scale_is_a_temperature():
    scores, warm = scores_of(2, 5), BudgetedChoice(2, scale=2.5)
    h = warm.activation(scores)
    fenchel_young = warm.conjugate(scores) + warm.value(h) - (scores * h).sum(1)
    torch.testing.assert_close(fenchel_young, torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-7)
    torch.testing.assert_close(h, BudgetedChoice(2).marginals(scores / 2.5))


def test_value_is_infinite_outside_the_polytope():
    h = torch.tensor([[0.5, 0.5, 0.5], [1.2, 0.4, 0.4], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.5, 0.5]])
    assert BudgetedChoice(2).value(h.double()).isfinite().tolist() == [False, False, True, False, True]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_narrow_dtypes(dtype, tolerance):
    choice, scores = BudgetedChoice(2), scores_of(2, 5, size=4.0).to(dtype)
    for function in (choice.log_partition, choice.marginals, choice.entropy, choice.mode):
        result = function(scores)
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), function(scores.double()), rtol=tolerance, atol=tolerance)


def test_under_vmap_and_fullgraph_compilation():
    choice, scores = BudgetedChoice(2), scores_of(3, 5)
    scores[0, 1], scores[1, 2] = -math.inf, math.inf
    expected = choice.marginals(scores)
    torch.testing.assert_close(torch.func.vmap(lambda s: choice.marginals(s[None])[0])(scores), expected)
    torch._dynamo.reset()
    leaf = scores.clone().requires_grad_()
    compiled = torch.compile(choice.marginals, fullgraph=True, backend="aot_eager")(leaf)
    torch.testing.assert_close(compiled, expected)
    weight = scores_of(3, 5, seed=1)
    (actual,) = torch.autograd.grad((compiled * weight).sum(), leaf)
    (wanted,) = torch.autograd.grad((choice.marginals(leaf) * weight).sum(), leaf)
    torch.testing.assert_close(actual, wanted)
    assert wanted.isfinite().all()


def test_labels_are_zeros_and_ones():
    places = torch.tensor([[3, 0], [1, 2]])
    h = BudgetedChoice(2).encode(F.one_hot(places, 4).sum(-2), (4,))
    assert h.tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BudgetedChoice(-1), r"integer from 0 to n, got -1"),
        (lambda: BudgetedChoice(1.5), r"got 1.5"),
        (lambda: BudgetedChoice(3).marginals(torch.zeros(2, 2)), r"choose 3 of 2"),
        (lambda: BudgetedChoice(1).marginals(torch.zeros(2)), r"\(batch, ..., n\), got \(2,\)"),
        (lambda: BudgetedChoice(1).mode(torch.tensor([[0.0, math.nan]])), r"entry \(1,\) of example 0 is nan"),
        (lambda: BudgetedChoice(1).top(torch.zeros(1, 2), 0), r"at least 1, got 0"),
        (lambda: BudgetedChoice(1).encode(torch.tensor([[0, 3]]), (2,)), r"from 0 to 3.*one_hot\(places, 2\)"),
        (lambda: BudgetedChoice(1).encode(torch.tensor([[1, 1]]), (2,)), r"2 entries are chosen in example 0"),
        (lambda: BudgetedChoice(1).encode(torch.tensor([[1, 0]]), (3,)), r"\(1, 2\).*\(batch, 3\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["marginals", "mode", "sample"])
def test_an_impossible_choice_names_the_example(name):
    scores = torch.zeros(3, 2, 4)
    scores[2, 1, :3] = -math.inf
    with pytest.raises(ValueError, match=r"exactly 2 in example 2, vector \(1,\), where 1 of 4 entries can be chosen"):
        getattr(BudgetedChoice(2), name)(scores)
    assert BudgetedChoice(2).log_partition(scores).tolist()[2] == -math.inf
    required = torch.tensor([[math.inf, math.inf, math.inf, 0.0]])
    with pytest.raises(ValueError, match=r"and 3 must be"):
        getattr(BudgetedChoice(2), name)(required)


def test_top_is_for_one_axis():
    with pytest.raises(TypeError, match=r"\(1, 2, 3\).*flatten"):
        BudgetedChoice(1).top(torch.zeros(1, 2, 3), 2)


def test_in_a_network_the_energy_never_rises():
    torch.manual_seed(0)
    net = un.UNN(
        un.Variable("x", ("n", 3), bias=False),
        un.Variable("h", (4,), un.Tanh()),
        un.Variable("c", ("n",), BudgetedChoice(2, scale=0.5)),
        un.Einsum("c[i] x[i,a] W[a,d] h[d]"),
    ).double()
    x, lengths = torch.randn(3, 6, 3, dtype=torch.float64), torch.tensor([6, 2, 4])
    solution = net(observe={"x": x}, init="random", iterations=4, lengths={"n": lengths}, check=True)
    torch.testing.assert_close(solution["c"].sum(1), torch.full((3,), 2.0, dtype=torch.float64))
    labels = torch.tensor([[0, 1, 0, 0, 1, 0], [1, 1, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0]])
    loss = un.fenchel_young(solution, "c", labels, reduction="none")
    assert (loss > -1e-12).all()
    loss.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
    told = un.Partial(labels, known=torch.arange(6) == 1)
    solution = net(observe={"x": x, "c": told}, init="random", iterations=4, lengths={"n": lengths}, check=True)
    assert solution["c"][:, 1].tolist() == labels[:, 1].tolist()
    torch.testing.assert_close(solution["c"].sum(1), torch.full((3,), 2.0, dtype=torch.float64))
