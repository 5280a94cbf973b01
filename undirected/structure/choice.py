"""BudgetedChoice: choose exactly k of n."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from undirected.regularizers import concrete, total
from undirected.structure.structure import Structure
from undirected.structure.weights import FORBIDDEN, draw, log_weights, or_minus_infinity, possible

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


class BudgetedChoice(Structure):
    """Exactly `k` of the n entries along the last axis, other axes independent of each other.

    `p(S) ~ exp(sum_(i in S) scores_i)` over the sets S of size k. `log Z` is the logarithm of the k-th elementary
    symmetric polynomial of `exp(scores)`, its gradient the probability of each entry to be chosen; both exact, by
    dynamic programming over how many of the first i entries are chosen: O(n k) work and memory, in n steps.
    `Psi(h)` is minus the entropy of the distribution of this family with marginals h, on `0 <= h <= 1, sum h = k`.

    A score of -inf is an entry that cannot be chosen; one of +inf an entry that must be (`condition` makes them),
    which then counts nothing in `log Z`.

    >>> choice = BudgetedChoice(2)
    >>> choice.log_partition(torch.zeros(1, 4)).exp()  # 4 choose 2
    tensor([6.])
    >>> choice.mode(torch.tensor([[0.1, 3.0, -1.0, 2.0]]))
    tensor([[0., 1., 0., 1.]])
    """

    def __init__(self, k: int, scale: float = 1.0) -> None:
        super().__init__(scale)
        if isinstance(k, bool) or not isinstance(k, int) or k < 0:
            raise ValueError(f"BudgetedChoice: k must be an integer from 0 to n, got {k!r}.")
        self.k = k

    def log_partition(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        weights, exists = self._weights(scores, mask)
        skip, take, shift = _skip_and_take(weights, self.k)
        log_z = or_minus_infinity(_forward(skip, take, self.k)[1] + shift)
        return total(log_z if exists is None else torch.where(exists, log_z, 0)).to(scores.dtype)

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        weights, exists = self._weights(scores, mask)
        skipping, taking = self._moves(weights, exists)
        # The distribution of how many of the first i are chosen, from i = n down.
        count = F.one_hot(torch.tensor(self.k, device=scores.device), self.k + 1).to(weights.dtype)
        h = []
        for skip, take in zip(reversed(skipping.unbind()), reversed(taking.unbind()), strict=True):
            chosen = count * take
            h.append(chosen.sum(-1))
            count = count * skip + F.pad(chosen[..., 1:], (0, 1))
        return self._existing(torch.stack(h[::-1], -1), exists).to(scores.dtype)

    def condition(self, scores: Tensor, known: Tensor, value: Tensor) -> Tensor:
        """Scores of -inf and +inf for the known entries."""
        return torch.where(known, torch.where(value == 1, math.inf, -math.inf).to(scores.dtype), scores)

    def mode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The k of highest score."""
        weights, exists = self._weights(scores.detach(), mask)
        self._require_possible(weights, exists)
        chosen = weights.topk(self.k, -1).indices
        return self._existing(torch.zeros_like(weights).scatter(-1, chosen, 1.0), exists).to(scores.dtype)

    def sample(
        self,
        scores: Tensor,
        count: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Exact: from the last entry to the first, choose it or not, given how many are still to be chosen."""
        weights, exists = self._weights(scores.detach(), mask)
        moves = torch.stack(self._moves(weights, exists), -1)
        left = torch.full((count, *weights.shape[:-1]), self.k, device=scores.device)
        h = []
        for i in range(weights.shape[-1] - 1, -1, -1):
            move = moves[i].expand(count, *moves[i].shape)
            p = move.gather(-2, left[..., None, None].expand(*left.shape, 1, 2)).squeeze(-2)
            taken = draw(p, generator)
            left = left - taken
            h.append(taken)
        return self._existing(torch.stack(h[::-1], -1).to(scores.dtype), exists)

    def top(self, scores: Tensor, count: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The best sets of k, by a best-first search; for a variable of one axis only.

        With the entries in order of score, the best set is the first k. Every other set follows from one that is no
        worse by moving one chosen place a step on, so that a heap of such moves yields the sets in order.
        """
        if count < 1:
            raise ValueError(f"{self}: count must be at least 1, got {count}.")
        if scores.dim() != 2:
            raise TypeError(
                f"{self}: top is for a variable of one axis, but the scores have shape {tuple(scores.shape)}. The "
                f"other axes are independent: flatten them into the batch, scores.flatten(0, -2)."
            )
        weights, _ = self._weights(scores.detach(), mask)
        ordered, order = or_minus_infinity(weights).sort(-1, descending=True)
        found = torch.zeros(count, *scores.shape, dtype=scores.dtype)
        values = torch.full((count, len(scores)), -math.inf, dtype=torch.float64)
        for example, row in enumerate(ordered.tolist()):
            for rank, (value, places) in enumerate(_best_sets(row, self.k, count)):
                found[rank, example, order[example, list(places)].cpu()] = 1.0
                values[rank, example] = value
        return found.to(scores.device), values.to(scores)

    def label_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank))

    def encode(self, labels: Int[Tensor, "batch *event"], shape: tuple[int, ...]) -> Float[Tensor, "batch *event"]:
        """1 for what is chosen and 0 for the rest; from the k chosen places it is `F.one_hot(places, n).sum(-2)`."""
        if tuple(labels.shape[1:]) != tuple(shape):
            raise ValueError(
                f"labels have shape {tuple(labels.shape)}; a variable of shape {tuple(shape)} with {self} takes a 1 "
                f"for each chosen entry and 0 elsewhere, in that shape: (batch, {', '.join(map(str, shape))})."
            )
        if concrete(labels) and labels.numel():
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high > 1:
                raise ValueError(
                    f"{self}: labels are 1 for what is chosen and 0 for the rest, but they are from {low} to {high}. "
                    f"If they are places, write F.one_hot(places, {shape[-1]}).sum(-2)."
                )
            # Fewer are no error here: those that are padding, or unknown, arrive as zeros.
            chosen = labels.sum(-1)
            if (chosen > self.k).any():
                where = tuple((chosen > self.k).nonzero()[0].tolist())
                raise ValueError(f"{self}: {int(chosen[where])} entries are chosen in example {where[0]}.")
        return labels.to(torch.get_default_dtype())

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(self.k * math.prod(shape[:-1]))

    def _weights(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Log-weights of the entries; which vectors exist (those with any entry)."""
        if scores.dim() < 2:
            raise ValueError(f"{self}: scores must have shape (batch, ..., n), got {tuple(scores.shape)}.")
        if self.k > scores.shape[-1]:
            raise ValueError(
                f"{self}: cannot choose {self.k} of {scores.shape[-1]}. The last axis of the scores, of shape "
                f"{tuple(scores.shape)}, must have at least {self.k} entries."
            )
        exists = None if mask is None else mask.expand_as(scores).any(-1)
        return log_weights(self, scores, mask, required=True), exists

    def _moves(self, weights: Tensor, exists: Tensor | None) -> tuple[Float[Tensor, "n ... k+1"], Tensor]:
        """The probabilities that entry i is left, and chosen, given that j of the entries up to i are chosen.

        The marginals are sums of products of these, without a difference, so that small ones have all their digits.
        """
        self._require_possible(weights, exists)
        skip, take, _ = _skip_and_take(weights, self.k)
        states, log_z = _forward(skip, take, self.k)
        before = torch.stack(states[:-1])
        fewer = F.pad(before[..., :-1], (1, 0), value=FORBIDDEN)
        skip, take = skip.movedim(-1, 0)[..., None], take.movedim(-1, 0)[..., None]
        moves = torch.stack([before + skip, fewer + take]).softmax(0)
        # Where nothing is possible (seen only by a compiled program, which cannot raise) the answer is not a number.
        impossible = ~possible(log_z)
        if exists is not None:
            impossible = impossible & exists
        skipping, taking = torch.where(impossible[..., None], math.nan, moves)
        return skipping, taking

    def _require_possible(self, weights: Tensor, exists: Tensor | None) -> None:
        if not concrete(weights):
            return
        allowed, required = possible(weights).sum(-1), (weights == math.inf).sum(-1)
        bad = (allowed < self.k) | (required > self.k)
        if exists is not None:
            bad = bad & exists
        if bad.any():
            where = tuple(bad.nonzero()[0].tolist())
            vector = f", vector {where[1:]}," if where[1:] else ""
            raise ValueError(
                f"{self}: cannot choose exactly {self.k} in example {where[0]}{vector} where {int(allowed[where])} of "
                f"{weights.shape[-1]} entries can be chosen and {int(required[where])} must be. Give it between "
                f"{int(required[where])} and {int(allowed[where])}, or allow more entries (scores above -inf)."
            )

    def _existing(self, h: Tensor, exists: Tensor | None) -> Tensor:
        return h if exists is None else torch.where(exists[..., None], h, 0)


def _skip_and_take(weights: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights of leaving and of choosing each entry, and what is to be added to the `log Z` made of them.

    Scores are taken from the highest one, so that a large number common to all costs no digits.
    """
    required = weights == math.inf
    top = torch.where(required, FORBIDDEN, weights.detach()).amax(-1, keepdim=True)
    top = torch.where(possible(top), top, 0)
    skip = torch.where(required, FORBIDDEN, torch.zeros_like(weights))
    take = torch.where(required, 0, weights - top)
    chosen_freely = k - required.sum(-1)
    return skip, take, top.squeeze(-1) * chosen_freely


def _forward(skip: Tensor, take: Tensor, k: int) -> tuple[list[Float[Tensor, "... k+1"]], Float[Tensor, "..."]]:
    """For i = 0..n, the log-weight of all ways to choose j = 0..k of the first i entries; and that of k of n."""
    state = F.pad(torch.zeros_like(skip[..., :1]), (0, k), value=FORBIDDEN)
    states = [state]
    for leave, choose in zip(skip.unbind(-1), take.unbind(-1), strict=True):
        fewer = F.pad(state[..., :-1], (1, 0), value=FORBIDDEN)
        # Not torch.logaddexp, whose second derivatives are NaN where the two are far apart.
        state = torch.stack([state + leave[..., None], fewer + choose[..., None]]).logsumexp(0)
        states.append(state)
    return states, state[..., k]


def _best_sets(ordered: list[float], k: int, count: int) -> list[tuple[float, tuple[int, ...]]]:
    """Up to `count` sets of k places in a descending list, with their sums, best first."""
    required = sum(score == math.inf for score in ordered)  # always chosen, and count nothing
    possible = sum(score > -math.inf for score in ordered)
    if required > k or possible < k:
        return []
    first = tuple(range(k))
    heap = [(-sum(ordered[required:k]), first)]
    seen = {first}
    found: list[tuple[float, tuple[int, ...]]] = []
    while heap and len(found) < count:
        cost, places = heapq.heappop(heap)
        found.append((-cost, places))
        for at in range(required, k):
            step = places[at] + 1
            if step < possible and (at + 1 == k or step < places[at + 1]):
                moved = (*places[:at], step, *places[at + 1 :])
                if moved not in seen:
                    seen.add(moved)
                    heapq.heappush(heap, (-math.fsum(ordered[j] for j in moved[required:]), moved))
    return found
