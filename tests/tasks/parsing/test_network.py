"""The parsing network: its losses and trees, against all trees written out."""

from itertools import product

import torch

from undirected.structure.heads import crosses, rooted
from undirected.tasks.parsing.encoders import Lstm, Vocabulary
from undirected.tasks.parsing.network import Network, Way

SENTENCES = [["the", "cats", "sleep", "here"], ["dogs", "bark"]]
HEADS = torch.tensor([[2, 3, 0, 3], [2, 0, -1, -1]])
LABELS = torch.tensor([[0, 1, 2, 0], [1, 2, -1, -1]])


def network(**settings) -> Network:
    return Network(Lstm(Vocabulary.of(SENTENCES), hidden=6), labels=3, hidden=9, **settings).double().eval()


def trees(n: int, projective: bool) -> torch.Tensor:
    """All heads of n words that make a tree with one root."""
    found = torch.tensor(list(product(range(n + 1), repeat=n)))
    found = found[rooted(found) & ((found == 0).sum(1) == 1)]
    return found[~crosses(found)] if projective else found


def score(scores: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    return scores[heads, torch.arange(heads.shape[-1])].sum(-1)


def test_loss_is_the_likelihood_of_trees_and_the_cross_entropy_of_labels():  # from an enumeration of all trees
    for projective in (False, True):
        net = network(projective=projective)
        with torch.no_grad():
            net.net.factors["y-h-m"].V.mul_(3)
        reading = net(SENTENCES, Way(iterations=2))
        expected, names = 0.0, 0.0
        for row, n in ((0, 4), (1, 2)):
            scores = reading.scores[row, : n + 1, :n]
            every = score(scores, trees(n, projective))
            expected = expected + every.logsumexp(0) - score(scores, HEADS[row, :n])
            labels = net.labels(reading.x[row : row + 1, : n + 1], HEADS[row : row + 1, :n])[0].log_softmax(-1)
            names = names - labels[torch.arange(n), LABELS[row, :n]].sum()
        found = reading.loss(HEADS, LABELS)
        torch.testing.assert_close(found[0], expected / 6)
        torch.testing.assert_close(found[1], names / 6)


def test_heads_are_those_of_the_best_tree():  # from an enumeration of all trees
    for projective in (False, True):
        reading = network(projective=projective)(SENTENCES, Way(iterations=3))
        for row, n in ((0, 4), (1, 2)):
            every = trees(n, projective)
            best = every[score(reading.scores[row, : n + 1, :n], every).argmax()]
            assert reading.heads[row, :n].tolist() == best.tolist()
        assert reading.heads[1].tolist()[2:] == [-1, -1]


def test_a_solve_to_equilibrium_ends_where_many_sweeps_do():  # from the sweeps
    net = network()
    with torch.no_grad():
        net.net.factors["y-h-m"].V.mul_(0.3)
    settled = net(SENTENCES, Way(until=1e-9)).marginals
    torch.testing.assert_close(settled, net(SENTENCES, Way(iterations=100)).marginals)
