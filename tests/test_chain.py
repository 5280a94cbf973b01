"""LinearChain against the list of all sequences, against exact arithmetic, and against theorems."""

import itertools
import math

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import undirected as un
from undirected.structure.chain import LinearChain, chain_scores, known_tags, node_marginals, tag_sequence

chain = LinearChain()


def sequences(n: int, tags: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All sequences, and the sum of the scores at `[i, previous, tag]` written as a 0/1 tensor."""
    every = torch.tensor(list(itertools.product(range(tags), repeat=n)))
    h = torch.zeros(len(every), n, tags, tags, dtype=torch.float64)
    for row, sequence in enumerate(every.tolist()):
        for i, tag in enumerate(sequence):
            h[row, i, sequence[i - 1] if i else 0, tag] = 1
    return every, h


def scores_of(batch: int, n: int, tags: int, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return size * torch.randn(batch, n, tags, tags, dtype=torch.float64, generator=generator)


def prefix_mask(lengths: list[int], n: int) -> torch.Tensor:
    return (torch.arange(n) < torch.tensor(lengths)[:, None])[:, :, None, None]


@pytest.mark.parametrize(("n", "tags"), [(1, 1), (1, 3), (2, 2), (4, 3), (6, 1)])
def test_everything_agrees_with_the_list_of_all_sequences(n, tags):
    scores, (every, h) = scores_of(3, n, tags), sequences(n, tags)
    of_each = scores.flatten(1) @ h.flatten(1).T
    expected = (of_each.softmax(1) @ h.flatten(1)).view_as(scores)
    torch.testing.assert_close(chain.log_partition(scores), of_each.logsumexp(1))
    torch.testing.assert_close(chain.marginals(scores), expected)
    torch.testing.assert_close(chain.mode(scores), h[of_each.argmax(1)])
    best, best_scores = chain.top(scores, len(every) + 2)
    torch.testing.assert_close(best_scores[: len(every)], of_each.sort(1, descending=True).values.T)
    torch.testing.assert_close((best * scores).flatten(2).sum(2)[: len(every)], best_scores[: len(every)])
    assert (best_scores[len(every) :] == -math.inf).all()
    assert (best[len(every) :] == 0).all()
    assert (chain.entropy(scores) >= -1e-12).all()
    torch.testing.assert_close(chain.value(expected), -chain.entropy(scores))
    torch.testing.assert_close(chain.encode(every, (n, tags, tags)).double(), h)


def test_there_are_tags_to_the_power_of_n_sequences():
    log_z = chain.log_partition(torch.zeros(1, 40, 7, 7, dtype=torch.float64))
    torch.testing.assert_close(log_z.item(), 40 * math.log(7))


def test_derivatives_of_both_orders():
    scores = scores_of(2, 4, 3).requires_grad_()
    mask = prefix_mask([4, 2], 4)
    assert gradcheck(lambda s: chain.log_partition(s, mask), scores)
    (gradient,) = torch.autograd.grad(chain.log_partition(scores, mask).sum(), scores)
    torch.testing.assert_close(gradient, chain.marginals(scores, mask))
    assert gradcheck(lambda s: chain.marginals(s, mask), scores)
    assert gradgradcheck(lambda s: chain.marginals(s, mask), scores)
    assert gradcheck(lambda s: chain.value(chain.marginals(s, mask), mask), scores)


def test_derivatives_with_forbidden_transitions_are_those_without_their_sequences():
    scores = scores_of(1, 4, 3)
    forbidden = torch.zeros(4, 3, 3, dtype=torch.bool)
    forbidden[1:, 0, 1] = forbidden[2, :, 2] = True  # nothing may enter tag 2 at position 2
    _, h = sequences(4, 3)
    h = h[~(h.bool() & forbidden).flatten(1).any(1)]

    def by_list(s):
        of_each = s.flatten(1) @ h.flatten(1).T
        return (of_each.softmax(1) @ h.flatten(1)).view_as(s), of_each.logsumexp(1)

    def by_chain(s):
        s = torch.where(forbidden, -math.inf, s)
        return chain.marginals(s), chain.log_partition(s)

    weight = scores_of(1, 4, 3, seed=1)
    results = []
    for function in (by_list, by_chain):
        s = scores.clone().requires_grad_()
        marginals, log_z = function(s)
        (first,) = torch.autograd.grad((marginals * weight).sum() + log_z.square().sum(), s, create_graph=True)
        (second,) = torch.autograd.grad((first * weight).sum(), s)
        results.append((marginals, log_z, first, second))
    for actual, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("size", [50.0, 500.0])
def test_large_scores_agree_with_exact_arithmetic(size):
    scores = size * (2 * torch.rand(1, 5, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) - 1)
    every, h = sequences(5, 3)
    with mpmath.workdps(60):
        weights = [
            mpmath.exp(mpmath.fsum(mpmath.mpf(x) for x in row)) for row in (scores * h).flatten(2).flatten(1).tolist()
        ]
        z = mpmath.fsum(weights)
        log_z = float(mpmath.log(z))
        probability = torch.tensor([float(w / z) for w in weights], dtype=torch.float64)
    expected = torch.einsum("s,siab->iab", probability, h)
    torch.testing.assert_close(chain.log_partition(scores).item(), log_z, rtol=1e-14, atol=0)
    torch.testing.assert_close(chain.marginals(scores)[0], expected, rtol=1e-11, atol=1e-300)
    assert len(every) == 3**5


def test_a_padded_batch_is_its_members():
    scores, lengths = scores_of(4, 6, 3), [6, 1, 4, 0]
    mask = prefix_mask(lengths, 6)
    padded = torch.where(mask, scores, math.nan)
    results = [
        chain.marginals(padded, mask), chain.mode(padded, mask), chain.top(padded, 3, mask)[0][2],
        chain.sample(padded, 1, mask)[0],
    ]  # fmt: skip
    for h in results:
        assert (torch.where(mask, 0, h) == 0).all()
    log_z, value = chain.log_partition(padded, mask), chain.value(results[0], mask)
    for b, n in enumerate(lengths[:3]):
        alone = scores[b : b + 1, :n]
        torch.testing.assert_close(log_z[b], chain.log_partition(alone)[0], rtol=1e-15, atol=1e-15)
        torch.testing.assert_close(results[0][b, :n], chain.marginals(alone)[0], rtol=1e-15, atol=1e-15)
        torch.testing.assert_close(results[1][b, :n], chain.mode(alone)[0])
        torch.testing.assert_close(results[2][b, :n], chain.top(alone, 3)[0][2, 0])
        torch.testing.assert_close(value[b], -chain.entropy(alone)[0])
        assert chain.value(results[3][b : b + 1, :n]).item() == 0
    assert log_z[3].item() == 0  # there is one empty sequence
    assert value[3].item() == 0


def test_samples_have_the_marginals_as_their_mean():
    scores, mask = scores_of(2, 4, 3, seed=5), prefix_mask([4, 3], 4)
    drawn = chain.sample(scores, 20_000, mask, torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 2, 4, 3, 3)
    assert (chain.value(drawn[:50].flatten(0, 1), mask.repeat(50, 1, 1, 1)) == 0).all()
    assert (drawn.mean(0) - chain.marginals(scores, mask)).abs().max() < 5 * 0.5 / math.sqrt(20_000)


def test_impossible_tags_are_never_drawn():
    scores = torch.where(torch.eye(3, dtype=torch.bool), 0.0, -math.inf).expand(1, 5, 3, 3).clone()
    scores[0, 0, 0] = torch.tensor([-math.inf, 0.0, 0.0])
    tags = tag_sequence(chain.sample(scores, 500))
    assert (tags == tags[..., :1]).all()
    assert set(tags.unique().tolist()) == {1, 2}


def test_completing_is_conditioning():
    scores, (every, h) = scores_of(1, 4, 3), sequences(4, 3)
    value, known = known_tags(torch.tensor([[-1, 2, 1, -1]]), 3)
    known[0, 3, 1, 0], value[0, 3, 1, 0] = True, 1.0  # and the last transition is from 1 to 0
    consistent = (every[:, 1] == 2) & (every[:, 2] == 1) & (every[:, 3] == 0)
    of_each = scores.flatten(1) @ h[consistent].flatten(1).T
    completed = chain.complete(scores, known, value)
    torch.testing.assert_close(completed, (of_each.softmax(1) @ h[consistent].flatten(1)).view_as(scores))
    torch.testing.assert_close(chain.attained(completed, scores, known=known), chain.value(completed))


def test_scale_is_a_temperature():
    scores, warm = scores_of(2, 4, 3), LinearChain(scale=2.5)
    h = warm.activation(scores)
    torch.testing.assert_close(h, chain.marginals(scores / 2.5))
    fenchel_young = warm.conjugate(scores) + warm.value(h) - (scores * h).flatten(1).sum(1)
    torch.testing.assert_close(fenchel_young, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(warm.attained(h, scores), warm.value(h))


def test_value_is_infinite_outside_the_polytope():
    h = chain.marginals(scores_of(5, 3, 2))
    h[0, 0, 0] *= 1.1  # does not sum to 1
    h[1, 2] = h[1, 2].flip(0)  # its neighbour says something else of the tag they share
    h[2, 0] = h[2, 0].flip(0)  # position 0 uses row 0
    h[3, 1] = torch.tensor([[0.6, -0.1], [-0.1, 0.6]])
    assert chain.value(h).isfinite().tolist() == [False, False, False, False, True]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_narrow_dtypes(dtype, tolerance):
    scores = scores_of(2, 5, 3, size=4.0).to(dtype)
    for function in (chain.log_partition, chain.marginals, chain.entropy, chain.mode):
        result = function(scores)
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), function(scores.double()), rtol=tolerance, atol=tolerance)


def test_under_vmap_and_fullgraph_compilation():
    scores, mask = scores_of(3, 4, 3), prefix_mask([4, 2, 3], 4).expand(3, 4, 3, 3)
    scores[:, 1, 0, 1] = -math.inf
    expected = chain.marginals(scores, mask)
    mapped = torch.func.vmap(lambda s, m: chain.marginals(s[None], m[None])[0])(scores, mask)
    torch.testing.assert_close(mapped, expected)
    torch._dynamo.reset()
    leaf = scores.clone().requires_grad_()
    compiled = torch.compile(chain.marginals, fullgraph=True, backend="aot_eager")(leaf, mask)
    torch.testing.assert_close(compiled, expected)
    weight = scores_of(3, 4, 3, seed=2)
    (actual,) = torch.autograd.grad((compiled * weight).sum(), leaf)
    (wanted,) = torch.autograd.grad((chain.marginals(leaf, mask) * weight).sum(), leaf)
    torch.testing.assert_close(actual, wanted)


def test_helpers():
    emissions, transitions = torch.randn(2, 4, 3), torch.randn(3, 3)
    scores = chain_scores(emissions, transitions)
    tags = torch.randint(3, (2, 4))
    h = chain.encode(tags, (4, 3, 3))
    expected = emissions.gather(2, tags[..., None]).flatten(1).sum(1)
    expected += transitions[tags[:, :-1], tags[:, 1:]].sum(1)
    torch.testing.assert_close((scores * h).flatten(1).sum(1), expected)
    assert (tag_sequence(h) == tags).all()
    torch.testing.assert_close(node_marginals(chain.marginals(scores)).sum(2), torch.ones(2, 4))
    mask = prefix_mask([2, 4], 4)
    padded = tag_sequence(torch.where(mask, h, 0))
    assert padded[0].tolist() == [*tags[0, :2].tolist(), -1, -1]
    torch.testing.assert_close(chain.encode(padded, (4, 3, 3)), torch.where(mask, h, 0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chain.marginals(torch.zeros(2, 3, 4, 5)), r"\(batch, n, L, L\).*got \(2, 3, 4, 5\)"),
        (lambda: chain.marginals(torch.zeros(2, 0, 4, 4)), r"at least 1"),
        (lambda: chain.mode(torch.full((1, 2, 3, 3), math.nan)), r"entry \(0, 0, 0\) of example 0 is nan"),
        (lambda: chain.log_partition(torch.full((1, 2, 3, 3), math.inf)), r"is inf .18 of 18"),
        (lambda: chain.encode(torch.tensor([[0, 3]]), (2, 3, 3)), r"from 0 to 2.*from 0 to 3"),
        (lambda: chain.encode(torch.tensor([[0, -2]]), (2, 3, 3)), r"from 0 to 2.*from -2 to 0"),
        (lambda: chain.encode(torch.tensor([[0, -1, 1]]), (3, 3, 3)), r"example 0 at position 1 is -1.*known=tags"),
        (lambda: chain.encode(torch.tensor([[0, 1]]), (5, 3, 3)), r"\(1, 2\).*\(batch, 5\)"),
        (lambda: chain.encode(torch.tensor([[0, 1]]), (2, 3)), r"shape \(n, L, L\).*\(2, 3\)"),
        (lambda: chain.top(torch.zeros(1, 2, 2, 2), 0), r"at least 1, got 0"),
        (lambda: known_tags(torch.tensor([[0, 5]]), 3), r"from 0 to 2, or -1"),
        (lambda: LinearChain(scale=0.0), r"scale must be positive"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("call", [chain.marginals, chain.mode, chain.sample])
def test_an_impossible_sequence_names_the_position(call):
    scores = torch.zeros(3, 5, 2, 2)
    scores[1, 2, :, 1] = -math.inf  # tag 0 at position 2 ...
    scores[1, 3, 0] = -math.inf  # ... leads nowhere
    with pytest.raises(ValueError, match=r"possible for example 1\. Every transition to position 3 "):
        call(scores)
    assert chain.log_partition(scores).isfinite().tolist() == [True, False, True]


def test_integer_scores_are_refused():
    with pytest.raises(TypeError, match=r"int64.*encode"):
        chain.marginals(torch.zeros(1, 2, 2, 2, dtype=torch.long))


def test_in_a_network_the_energy_never_rises():
    torch.manual_seed(0)
    net = un.UNN(
        un.Variable("x", ("n", 3), bias=False),
        un.Variable("h", ("n", 4), un.Tanh()),
        un.Variable("y", ("n", 3, 3), LinearChain(scale=0.5)),
        un.Linear("x", "h"),
        un.Einsum("y[i,a,b] h[i,d] W[d,b]"),
    ).double()
    x, lengths = torch.randn(3, 5, 3, dtype=torch.float64), torch.tensor([5, 1, 3])
    solution = net(observe={"x": x}, iterations=4, lengths={"n": lengths}, check=True)
    assert tag_sequence(solution["y"])[1].tolist()[1:] == [-1] * 4
    labels = torch.randint(3, (3, 5))
    loss = un.fenchel_young(solution, "y", labels, reduction="none")
    assert (loss > -1e-12).all()
    loss.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
    value, known = known_tags(torch.where(torch.arange(5) % 2 == 0, labels, -1), 3)
    told = un.Partial(value.double(), known=known)
    solution = net(observe={"x": x, "y": told}, iterations=4, lengths={"n": lengths}, check=True)
    assert tag_sequence(solution["y"])[0, ::2].tolist() == labels[0, ::2].tolist()
    backwards = net(observe={"y": labels}, want="x", iterations=4, lengths={"n": lengths}, check=True)
    assert backwards["x"].shape == (3, 5, 3)


def test_integer_tags_known_in_part_condition_the_chain() -> None:  # from the sum over all sequences that agree
    torch.manual_seed(0)
    tags, length = 3, 4
    net = un.UNN(
        un.Variable("x", ("n", 2)),
        un.Variable("y", ("n", tags, tags), un.LinearChain()),
        un.Einsum("y[i,a,b] x[i,d] W[d,b]"),
    ).double()
    torch.nn.init.normal_(net.bias_y)
    x = torch.randn(1, length, 2, dtype=torch.float64)
    gold, known = torch.tensor([[1, 0, 2, 0]]), torch.tensor([[False, True, False, True]])
    found = net({"x": x, "y": un.Partial(gold, known=known)}, check=True)["y"]
    every, structures = sequences(length, tags)
    structures = structures[(every[:, 1] == 0) & (every[:, 3] == 0)]
    energies = net.energy({"x": x.expand(len(structures), -1, -1), "y": structures})
    expected = torch.einsum("s,siab->iab", (-energies).softmax(0), structures)
    torch.testing.assert_close(found[0], expected)
