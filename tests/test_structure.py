"""What every structure must do. Expectations come from enumerating all structures of a small size, or from theorems.

To put a structure through these tests, append a `Case`.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import undirected as un


def all_heads(n: int, single_root: bool) -> list[tuple[int, ...]]:
    """All trees over n words, by trying all heads; independent of the library."""

    def is_tree(heads: tuple[int, ...]) -> bool:
        for word in range(1, n + 1):
            seen = set()
            while word and word not in seen:
                seen.add(word)
                word = heads[word - 1]
            if word:
                return False
        return heads.count(0) == 1 or not single_root

    return [heads for heads in itertools.product(range(n + 1), repeat=n) if is_tree(heads)]


def without_crossings(trees: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Trees in which everything between a head and its modifier hangs on the head."""

    def below(heads: tuple[int, ...], word: int, head: int) -> bool:
        while word and word != head:
            word = heads[word - 1]
        return word == head

    def projective(heads: tuple[int, ...]) -> bool:
        arcs = [(head, word) for word, head in enumerate(heads, 1)]
        return all(below(heads, k, h) for h, m in arcs for k in range(min(h, m) + 1, max(h, m)))

    return [heads for heads in trees if projective(heads)]


def arcs(trees: list[tuple[int, ...]]) -> Tensor:
    out = torch.zeros(len(trees), len(trees[0]) + 1, len(trees[0]), dtype=torch.float64)
    for t, heads in enumerate(trees):
        for word, head in enumerate(heads):
            out[t, head, word] = 1
    return out


@dataclass
class Case:
    """A structure, all of them (count, *event) by enumeration, how many a formula says, and a smaller size."""

    name: str
    structure: un.Regularizer
    every: Tensor
    count: int
    smaller: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.every.shape[1:])


def tree_cases() -> list[Case]:
    n, cases = 4, []
    for single, word in ((True, "single"), (False, "many")):
        cayley = n ** (n - 1) if single else (n + 1) ** (n - 1)
        trees = all_heads(n, single)
        cases.append(Case(f"spanning-{word}", un.SpanningTree(single), arcs(trees), cayley, (3, 2)))
        # Non-crossing trees: ternary-tree (Fuss-Catalan) numbers.
        catalan = math.comb(3 * n - 2, n - 1) // n if single else math.comb(3 * n, n) // (2 * n + 1)
        trees = without_crossings(trees)
        cases.append(Case(f"projective-{word}", un.ProjectiveTree(single), arcs(trees), catalan, (3, 2)))
    return cases


def chain_case() -> Case:
    n, tags = 4, 2
    every = torch.zeros(tags**n, n, tags, tags, dtype=torch.float64)
    for row, sequence in enumerate(itertools.product(range(tags), repeat=n)):
        for i, tag in enumerate(sequence):
            every[row, i, sequence[i - 1] if i else 0, tag] = 1
    return Case("chain", un.LinearChain(), every, tags**n, (2, tags, tags))


def choice_case() -> Case:
    n, k = 6, 2
    every = torch.zeros(math.comb(n, k), n, dtype=torch.float64)
    for row, places in enumerate(itertools.combinations(range(n), k)):
        every[row, list(places)] = 1
    return Case("choice", un.BudgetedChoice(k), every, math.comb(n, k), (3,))


# Permutation is a relaxation, whose marginals are not those of the enumeration: see test_permutation.py.
CASES = [*tree_cases(), chain_case(), choice_case()]
pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def scores_for(case: Case, batch: int = 3, scale: float = 2.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(batch, *case.shape, dtype=torch.float64, generator=generator)


def enumerated(every: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log Z, marginals and the score of every structure."""
    ratings = torch.where(every == 1, scores[:, None], 0.0).flatten(2).sum(2)
    shares = ratings.softmax(1)
    return ratings.logsumexp(1), torch.einsum("bs,s...->b...", shares, every), ratings


def test_count_of_structures_is_the_known_formula(case):
    assert len(case.every) == case.count
    log_z = case.structure.conjugate(torch.zeros(1, *case.shape, dtype=torch.float64))
    assert log_z.exp().item() == pytest.approx(case.count, rel=1e-12)


def test_partition_marginals_entropy_and_mode_by_enumeration(case):
    scores = scores_for(case)
    log_z, marginals, ratings = enumerated(case.every, scores)
    structure = case.structure
    torch.testing.assert_close(structure.log_partition(scores), log_z, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(structure.marginals(scores), marginals, rtol=0, atol=1e-12)
    shares = ratings.softmax(1)
    torch.testing.assert_close(structure.entropy(scores), -(shares * shares.log()).sum(1), rtol=0, atol=1e-11)
    assert torch.equal(structure.mode(scores), case.every[ratings.argmax(1)])
    assert (ratings.amax(1) <= structure.log_partition(scores)).all()


def test_marginals_are_the_gradient_of_the_log_partition(case):
    scores = scores_for(case).requires_grad_()
    (gradient,) = torch.autograd.grad(case.structure.log_partition(scores).sum(), scores)
    torch.testing.assert_close(case.structure.marginals(scores), gradient, rtol=0, atol=1e-12)


def test_first_and_second_derivatives(case):
    scores = scores_for(case, batch=1, scale=1.0).requires_grad_()
    assert gradcheck(case.structure.infer, (scores,))
    assert gradgradcheck(case.structure.infer, (scores,))


def test_scale_is_a_temperature(case):
    hot = copy.copy(case.structure)
    hot.scale = 2.5
    scores = scores_for(case)
    torch.testing.assert_close(hot.activation(scores), case.structure.activation(scores / 2.5))
    torch.testing.assert_close(hot.conjugate(scores), 2.5 * case.structure.conjugate(scores / 2.5))


def test_value_attains_the_fenchel_young_equality(case):
    t = scores_for(case)
    h = case.structure.activation(t)
    expected = (t * h).flatten(1).sum(1) - case.structure.conjugate(t)
    torch.testing.assert_close(case.structure.value(h), expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(case.structure.attained(h, t), expected, rtol=0, atol=1e-12)
    h32 = h.float()  # rounded, it is in the polytope up to its precision only
    torch.testing.assert_close(case.structure.value(h32), expected.float(), rtol=0, atol=1e-4)


def test_value_is_zero_at_structures_and_infinite_outside(case):
    some = case.every[:: max(1, len(case.every) // 7)]
    assert torch.equal(case.structure.value(some), torch.zeros(len(some), dtype=torch.float64))
    outside = torch.stack([some[0] * 1.1, torch.zeros_like(some[0]), some[0] - 0.3 * some[1] + 0.3 * some[2]])
    assert torch.equal(case.structure.value(outside), torch.full((3,), torch.inf, dtype=torch.float64))


def test_value_on_a_face_of_the_polytope(case):
    # The mean of two structures: entropy log 2 if no other distribution has these marginals, more otherwise.
    h = case.every[:2].mean(0, keepdim=True)
    inside = (case.every * (h == 0)).flatten(1).sum(1) == 0
    if inside.sum() == 2:
        assert case.structure.value(h).item() == pytest.approx(-math.log(2), abs=1e-6)
    else:
        assert case.structure.value(h).item() < -math.log(2) + 1e-6


def test_derivative_of_value_is_the_preactivation(case):
    t = scores_for(case)
    h = case.structure.activation(t).requires_grad_()
    (gradient,) = torch.autograd.grad(case.structure.value(h).sum(), h)
    # Up to what changes no distribution: so compare along directions from one structure to another.
    along = case.every[1:] - case.every[:1]
    torch.testing.assert_close(
        torch.einsum("b...,s...->bs", gradient, along), torch.einsum("b...,s...->bs", t, along), rtol=0, atol=1e-5
    )


def test_best_structures_by_enumeration(case):
    scores = scores_for(case)
    count = min(6, case.count)
    found, ratings = case.structure.top(scores, count)
    expected = enumerated(case.every, scores)[2].topk(count)
    torch.testing.assert_close(ratings.T, expected.values)
    assert torch.equal(found, case.every[expected.indices.T])


def test_asking_for_more_structures_than_exist(case):
    found, ratings = case.structure.top(scores_for(case, batch=1), case.count + 2)
    assert ratings[: case.count].isfinite().all()
    assert (ratings[case.count :] == -torch.inf).all()
    assert (found[case.count :] == 0).all()
    assert len(found[: case.count].flatten(1).unique(dim=0)) == case.count


def test_samples_are_structures_with_the_right_frequencies(case):
    scores = scores_for(case, batch=2, scale=1.0)
    count = 4000
    samples = case.structure.sample(scores, count, generator=torch.Generator().manual_seed(1))
    shares = enumerated(case.every, scores)[2].softmax(1)
    for b in range(2):
        which = (samples[:, b, None] == case.every).flatten(2).all(2)
        assert (which.sum(1) == 1).all()
        frequencies = which.double().mean(0)
        # Five standard deviations, of as many binomials as there are structures.
        assert ((frequencies - shares[b]).abs() <= 5 * (shares[b] * (1 - shares[b]) / count).sqrt() + 1e-9).all()


def test_a_padded_example_is_the_example_alone(case):
    large, small = scores_for(case), scores_for(case)[(slice(None), *map(slice, case.smaller))]
    mask = torch.zeros(3, *case.shape, dtype=torch.bool)
    mask[0] = True
    mask[(slice(1, None), *map(slice, case.smaller))] = True
    large = torch.where(mask, large, 1e6)  # what is in the padding must not matter
    structure = case.structure
    for part, alone in ((0, structure.activation(large[:1])), (1, structure.activation(small[1:]))):
        padded = torch.zeros(len(alone), *case.shape, dtype=torch.float64)
        padded[(slice(None), *map(slice, alone.shape[1:]))] = alone
        h = structure.activation(large, mask)[:1] if part == 0 else structure.activation(large, mask)[1:]
        torch.testing.assert_close(h, padded, rtol=0, atol=1e-13)
    torch.testing.assert_close(structure.conjugate(large, mask)[1:], structure.conjugate(small[1:]))
    torch.testing.assert_close(structure.entropy(large, mask)[1:], structure.entropy(small[1:]), atol=1e-12, rtol=0)
    modes = structure.mode(large, mask)
    assert torch.equal(modes[1:][(slice(None), *map(slice, case.smaller))], structure.mode(small[1:]))
    assert (modes[~mask] == 0).all()
    assert torch.equal(structure.value(modes, mask), torch.zeros(3, dtype=torch.float64))
    assert (structure.sample(large, 5, mask)[:, ~mask] == 0).all()
    assert structure.contains(structure.sample(large, 1, mask)[0], mask).all()
    h = structure.activation(large, mask)
    torch.testing.assert_close(structure.value(h, mask), -structure.entropy(large, mask), rtol=0, atol=1e-9)
    leaf = large.clone().requires_grad_()
    structure.activation(leaf, mask).square().sum().backward()
    assert (leaf.grad[~mask] == 0).all()


def test_partial_observation_is_conditioning(case):
    scores = scores_for(case, batch=2)
    observed = case.every[len(case.every) // 2]
    generator = torch.Generator().manual_seed(3)
    known = torch.rand(2, *case.shape, generator=generator) < 0.3
    value = observed.expand(2, *case.shape)
    h = case.structure.complete(scores, known, value)
    for b in range(2):
        agrees = ((case.every == value[b]) | ~known[b]).flatten(1).all(1)
        left = case.every[agrees]
        log_z, marginals, _ = enumerated(left, scores[b : b + 1])
        torch.testing.assert_close(h[b], marginals[0], rtol=0, atol=1e-12)
        attained = case.structure.attained(h, scores, known=known)[b]
        expected = (scores[b] * marginals[0]).sum() - log_z[0]
        torch.testing.assert_close(attained, expected, rtol=0, atol=1e-11)


def test_known_entries_must_be_binary(case):
    half = torch.full((1, *case.shape), 0.5)
    with pytest.raises(ValueError, match="must be 0 or 1"):
        case.structure.complete(half, half > 0, half)


def test_forbidden_entries_by_enumeration(case):
    scores = scores_for(case)
    forbidden = case.every[0] == 0
    forbidden &= torch.rand(case.shape, generator=torch.Generator().manual_seed(5)) < 0.5
    scores = scores.masked_fill(forbidden, -torch.inf).requires_grad_()
    left = case.every[(case.every * forbidden).flatten(1).sum(1) == 0]
    log_z, marginals, ratings = enumerated(left, scores.detach())
    torch.testing.assert_close(case.structure.conjugate(scores), log_z)
    h = case.structure.activation(scores)
    torch.testing.assert_close(h, marginals, rtol=0, atol=1e-12)
    assert torch.equal(case.structure.mode(scores), left[ratings.argmax(1)])
    assert case.structure.entropy(scores).isfinite().all()
    (gradient,) = torch.autograd.grad(h.square().sum(), scores)
    assert gradient.isfinite().all()
    assert (gradient[:, forbidden] == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
def test_coarser_types_come_in_and_go_out(case, dtype, tolerance):
    scores = scores_for(case).to(dtype)
    log_z, marginals, _ = enumerated(case.every, scores.double())
    h = case.structure.activation(scores)
    assert h.dtype == case.structure.conjugate(scores).dtype == case.structure.mode(scores).dtype == dtype
    torch.testing.assert_close(h.double(), marginals, rtol=0, atol=tolerance)
    torch.testing.assert_close(case.structure.conjugate(scores).double(), log_z, rtol=tolerance, atol=0)


def test_vmap_maps_over_the_batch(case):
    scores = scores_for(case, batch=4).unflatten(0, (2, 2))
    mapped = torch.func.vmap(case.structure.activation)(scores)
    torch.testing.assert_close(mapped.flatten(0, 1), case.structure.activation(scores.flatten(0, 1)))
    gradients = torch.func.vmap(torch.func.grad(lambda t: case.structure.activation(t[None]).square().sum()))(scores[0])
    leaf = scores[0].clone().requires_grad_()
    case.structure.activation(leaf).square().sum().backward()
    torch.testing.assert_close(gradients, leaf.grad)


def test_energy_descends_in_a_graph(case):
    torch.manual_seed(0)
    net = un.UNN(
        un.Variable("x", (5,), un.Tanh()),
        un.Variable("h", (4,), un.Tanh()),
        un.Variable("y", case.shape, case.structure),
        un.Linear("x", "h"),
        un.Linear("h", "y"),
    )
    solution = net(observe={"x": torch.randn(3, 5)}, want="y", order="h y", iterations=5, check=True)
    solution.energy.sum().backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())
    # Observing the structure itself needs its Psi at a vertex.
    observed = case.every[:2].float()
    assert net(observe={"y": observed}, want="x", iterations=3, check=True).energy.isfinite().all()


def test_fenchel_young_loss_is_the_negative_log_likelihood(case):
    torch.manual_seed(0)
    net = un.UNN(un.Variable("x", (5,)), un.Variable("y", case.shape, case.structure), un.Linear("x", "y"))
    solution = net(observe={"x": torch.randn(2, 5)}, want="y", order="y", iterations=1)
    gold = case.every[[1, 2]]
    scores = solution.preactivation["y"].double()
    log_z, _, ratings = enumerated(case.every, scores)
    expected = (log_z - ratings[[0, 1], [1, 2]]).mean()
    loss = un.fenchel_young(solution, "y", gold.float())
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
