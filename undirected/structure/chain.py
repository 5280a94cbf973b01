"""LinearChain: a sequence of tags, by its transitions (the conditional random field)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from undirected.regularizers import concrete, t_log_t, total, within
from undirected.structure.structure import Structure
from undirected.structure.weights import FORBIDDEN, draw, log_weights, or_minus_infinity, possible

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


class LinearChain(Structure):
    """A tag for each of n positions, of L tags; a variable of shape `("n", L, L)`.

    Entry `[i, a, b]` is the probability that position i - 1 has tag a and position i has tag b. Position 0 has no
    predecessor: there only row a = 0 is used, and all other rows of position 0 are zero whatever their scores.

    `Psi(h) = scale * (sum_i sum_ab h_i log h_i - sum_(i > 0) sum_a p_(i-1) log p_(i-1))` with the tags' marginals
    `p_i[b] = sum_a h_i[a, b]` (`node_marginals`), on the h whose neighbours agree about the tag they share: minus the
    entropy of the Markov chain with these transitions. Its conjugate is the log-partition function of the chain, its
    activation forward-backward.

    A variable's bias, over its integer axes, is a table of L x L transition scores; emissions come from a factor
    such as `un.Einsum("y[i,a,b] x[i,d] W[d,b]")`; outside of a network, `chain_scores` adds the two. Where some tags
    are known and others not, observe `un.Partial(tags, known=...)`.

    >>> scores = chain_scores(emissions=torch.zeros(1, 3, 2), transitions=torch.tensor([[0.0, -math.inf], [0.0, 0.0]]))
    >>> LinearChain().log_partition(scores).exp()  # the sequences of 3 bits in which no 1 follows a 0
    tensor([4.])
    >>> tag_sequence(LinearChain().mode(scores + torch.tensor([0.0, 1.0])))
    tensor([[1, 1, 1]])
    """

    def log_partition(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        edges, exists = self._edges(scores, mask)
        _, _, log_z = _forward(edges, exists)
        return or_minus_infinity(log_z).to(scores.dtype)

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        edges, exists = self._edges(scores, mask)
        tags, previous = self._posterior(edges, exists)
        h = []
        given_next = previous.unbind(1)  # not [:, i], whose derivative is a tensor of zeros for every i
        for i in range(edges.shape[1] - 1, 0, -1):
            edge = tags[:, None, :] * given_next[i - 1]
            h.append(edge)
            tags = _choose(exists, i, edge.sum(2), tags)
        h.append(torch.cat([tags[:, None], torch.zeros_like(edges[:, 0, 1:])], 1))
        marginals = torch.stack(h[::-1], 1).to(scores.dtype)
        return marginals if exists is None else torch.where(exists[:, :, None, None], marginals, 0)

    def condition(self, scores: Tensor, known: Tensor, value: Tensor) -> Tensor:
        present = known & (value == 1)
        excluded = present.any((-2, -1), keepdim=True) & ~present  # one transition per position
        return torch.where(excluded | (known & (value == 0)), -math.inf, scores)

    def mode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Viterbi's algorithm."""
        best, score = self.top(scores, 1, mask)
        if concrete(score) and (score == -math.inf).any():
            self._posterior(*self._edges(scores, mask))  # which raises, with the position
        return best[0]

    def top(self, scores: Tensor, count: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Viterbi's algorithm with the `count` best prefixes for every tag."""
        if count < 1:
            raise ValueError(f"{self}: count must be at least 1, got {count}.")
        edges, exists = self._edges(scores.detach(), mask)
        n, tags = edges.shape[1:3]
        best = F.pad(_start(edges, exists)[..., None], (0, count - 1), value=FORBIDDEN)
        pointers = []
        for i in range(1, n):
            candidates = (best[:, :, None] + edges[:, i, :, :, None]).transpose(1, 2).flatten(2)
            found, pointer = candidates.topk(count, -1)
            stay = torch.arange(tags * count, device=edges.device).view(tags, count).expand_as(pointer)
            best = _choose(exists, i, found, best)
            pointers.append(_choose(exists, i, pointer, stay))
        final, state = best.flatten(1).topk(count, -1)
        path = [state // count]
        for pointer in reversed(pointers):
            state = pointer.flatten(1).gather(1, state)
            path.append(state // count)
        sequences = torch.stack(path[::-1], -1).movedim(1, 0)
        there = possible(final.T)[..., None].expand_as(sequences)
        if exists is not None:
            there = there & exists
        return _indicator(sequences, tags, scores.dtype, there), or_minus_infinity(final.T).to(scores.dtype)

    def sample(
        self,
        scores: Tensor,
        count: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Exact: filter forwards, then draw each tag given the next, backwards."""
        edges, exists = self._edges(scores.detach(), mask)
        last, previous = self._posterior(edges, exists)
        tag = draw(last.expand(count, *last.shape), generator)
        path = [tag]
        for i in range(edges.shape[1] - 1, 0, -1):
            column = tag[:, :, None, None].expand(-1, -1, edges.shape[2], 1)
            given = previous[:, i - 1].expand(count, -1, -1, -1).gather(3, column).squeeze(3)
            if exists is not None:  # a position that does not exist leaves the tag as it is
                given = torch.where(exists[:, i, None], given, F.one_hot(tag, edges.shape[2]).to(given.dtype))
            tag = draw(given, generator)
            path.append(tag)
        sequences = torch.stack(path[::-1], -1)
        return _indicator(sequences, edges.shape[2], scores.dtype, exists)

    def value(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        """`Psi(h)` in closed form; 0 at a sequence, infinite where neighbours do not agree."""
        slack = torch.finfo(h.dtype).eps ** 0.5
        wide, exists = h.double() if mask is None else torch.where(mask, h.double(), 0), _existing(mask, h)
        left, right = wide.sum(3)[:, 1:], wide.sum(2)  # what an edge says of its first tag, and of its second
        agree = ((left - right[:, :-1]).abs() <= slack).all(2)
        whole = (right[:, 0].sum(1) - 1).abs() <= slack
        if exists is not None:
            agree, whole = agree | ~exists[:, 1:], whole | ~exists[:, 0]
        inside = agree.all(1) & whole & (wide >= -slack).flatten(1).all(1)
        inside = inside & (wide[:, 0, 1:].abs() <= slack).flatten(1).all(1)
        return within(inside, self.attained(h, h, mask))

    def attained(self, h: Tensor, t: Tensor, mask: Tensor | None = None, known: Tensor | None = None) -> Tensor:
        """The entropies alone, which need no t: `sum_i H(tag_i | tag_(i-1))`, with opposite sign."""
        wide, exists = h.double() if mask is None else torch.where(mask, h.double(), 0), _existing(mask, h)
        shared = t_log_t(wide.sum(2)[:, :-1])
        if exists is not None:
            shared = torch.where(exists[:, 1:, None], shared, 0)
        return (self.scale * (total(t_log_t(wide)) - total(shared))).to(h.dtype)

    def label_axes(self, rank: int) -> tuple[int, ...]:
        return (0,)

    def known_entries(self, labels: Tensor, known: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A known tag excludes the transitions into and out of all other tags."""
        return known_tags(torch.where(known, labels, -1), shape[-1])[1]

    def encode(self, labels: Int[Tensor, "batch n"], shape: tuple[int, ...]) -> Float[Tensor, "batch n tags tags"]:
        """Tags from 0 to L - 1 as their transitions; -1, at the end only, is padding and gives zeros."""
        if len(shape) != 3 or shape[1] != shape[2]:
            raise ValueError(f"{self} is for variables of shape (n, L, L), but this one is {shape}.")
        if tuple(labels.shape[1:]) != (shape[0],):
            raise ValueError(
                f"tags have shape {tuple(labels.shape)}; a variable of shape {shape} with {self} takes "
                f"(batch, {shape[0]})."
            )
        if concrete(labels) and labels.numel():
            low, high = int(labels.min()), int(labels.max())
            if low < -1 or high >= shape[1]:
                raise ValueError(f"tags must be from 0 to {shape[1] - 1}, but they are from {low} to {high}.")
            gap = (labels[:, :-1] < 0) & (labels[:, 1:] >= 0)
            if gap.any():
                example, position = gap.nonzero()[0].tolist()
                raise ValueError(
                    f"the tag of example {example} at position {position} is -1, but that is padding, and stands at "
                    f"the end only. Where only some tags are known, observe un.Partial(tags, known=tags >= 0)."
                )
        return _indicator(labels.long().clamp_min(0), shape[1], torch.get_default_dtype(), labels >= 0)

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(shape[0])

    def _edges(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Log-weights of the transitions, and which positions exist."""
        if scores.dim() != 4 or scores.shape[2] != scores.shape[3] or 0 in scores.shape[1:]:
            raise ValueError(
                f"{self}: scores must have shape (batch, n, L, L) with n and L at least 1, got {tuple(scores.shape)}."
            )
        edges = log_weights(self, scores, mask)
        unused = torch.full_like(edges[:, :1, 1:], FORBIDDEN)
        first = torch.cat([edges[:, :1, :1], unused], 2)
        return torch.cat([first, edges[:, 1:]], 1), _existing(mask, scores)

    def _posterior(self, edges: Tensor, exists: Tensor | None) -> tuple[Tensor, Tensor]:
        """The last tag's probabilities, and those of each tag given the next one and all scores up to it.

        Marginals are products of these: no quotient of large numbers, so that nothing cancels at large scores.
        """
        prefixes, shifts, log_z = _forward(edges, exists)
        impossible = ~possible(log_z)
        if concrete(impossible) and impossible.any():
            example = int(impossible.nonzero()[0])
            position = int((~possible(shifts[example])).nonzero()[0])
            raise ValueError(
                f"{self}: no sequence of tags is possible for example {example}. Every transition to position "
                f"{position} has a score of -inf, or starts from a tag that cannot be reached. Allow one of them."
            )
        previous = (prefixes[:, :-1, :, None] + edges[:, 1:]).softmax(2)
        last = prefixes[:, -1].softmax(1)
        return torch.where(impossible[:, None], math.nan, last), previous


def _forward(
    edges: Tensor, exists: Tensor | None
) -> tuple[Float[Tensor, "batch n tags"], Float[Tensor, "batch n"], Float[Tensor, " batch"]]:
    """The log-weight of all prefixes that end in a tag, less a shift of each position; the shifts; `log Z`."""
    prefix = _start(edges, exists)
    prefixes, shifts = [], []
    for i, edge in enumerate(edges.unbind(1)):
        if i > 0:
            prefix = _choose(exists, i, (prefix[:, :, None] + edge).logsumexp(1), prefix)
        shift = prefix.detach().amax(1, keepdim=True)
        prefix = prefix - shift  # stays near zero, so that long sequences cost no digits
        prefixes.append(prefix)
        shifts.append(shift)
    added = torch.cat(shifts, 1)
    return torch.stack(prefixes, 1), added, prefix.logsumexp(1) + added.sum(1)


def _start(edges: Tensor, exists: Tensor | None) -> Float[Tensor, "batch tags"]:
    """Scores of the first tag; an example of length 0 has one sequence, the empty one, of score 0."""
    nothing = F.pad(torch.zeros_like(edges[:, 0, 0, :1]), (0, edges.shape[3] - 1), value=FORBIDDEN)
    return _choose(exists, 0, edges[:, 0, 0], nothing)


def _choose(exists: Tensor | None, i: int, new: Tensor, old: Tensor) -> Tensor:
    return new if exists is None else torch.where(exists[:, i].view(-1, *[1] * (new.dim() - 1)), new, old)


def _existing(mask: Tensor | None, like: Tensor) -> Bool[Tensor, "batch n"] | None:
    return None if mask is None else mask.expand_as(like).flatten(2).any(2)


def _indicator(tags: Tensor, count: int, dtype: torch.dtype, exists: Tensor | None) -> Tensor:
    """The 0/1 transitions `(..., n, count, count)` of sequences of tags `(..., n)`."""
    previous = torch.cat([torch.zeros_like(tags[..., :1]), tags[..., :-1]], -1)
    h = F.one_hot(previous * count + tags, count * count).unflatten(-1, (count, count)).to(dtype)
    return h if exists is None else torch.where(exists[..., None, None], h, 0)


def chain_scores(
    emissions: Float[Tensor, "batch n tags"], transitions: Float[Tensor, "tags tags"]
) -> Float[Tensor, "batch n tags tags"]:
    """`scores[i, a, b] = emissions[i, b] + transitions[a, b]`, with no transition at position 0.

    >>> chain_scores(torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]), torch.tensor([[0.1, 0.2], [0.3, 0.4]]))[0, :, 0]
    tensor([[1.0000, 2.0000],
            [0.1000, 0.2000]])
    """
    begins = torch.arange(emissions.shape[1], device=emissions.device) == 0
    return emissions[:, :, None, :] + torch.where(begins[:, None, None], 0, transitions)


def node_marginals(h: Float[Tensor, "... n tags tags"]) -> Float[Tensor, "... n tags"]:
    """The probability of each tag at each position, from the transitions' probabilities h.

    >>> node_marginals(LinearChain().marginals(torch.zeros(1, 2, 4, 4)))[0, 1]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return h.sum(-2)


def tag_sequence(h: Float[Tensor, "... n tags tags"]) -> Int[Tensor, "... n"]:
    """The likeliest tag of each position; -1 at positions that do not exist.

    >>> tag_sequence(LinearChain().encode(torch.tensor([[2, 0, 1]]), (3, 4, 4)))
    tensor([[2, 0, 1]])
    """
    nodes = node_marginals(h)
    return torch.where(nodes.sum(-1) > 0, nodes.argmax(-1), -1)


def known_tags(tags: Int[Tensor, "batch n"], count: int) -> tuple[Float[Tensor, "..."], Bool[Tensor, "..."]]:
    """`(value, known)` for `un.Partial` when some tags are known, of `count`, and the others are given as -1.

    >>> value, known = known_tags(torch.tensor([[1, -1, 0]]), 2)
    >>> LinearChain().complete(torch.zeros(1, 3, 2, 2), known, value).sum(-2)
    tensor([[[0.0000, 1.0000],
             [0.5000, 0.5000],
             [1.0000, 0.0000]]])
    """
    if concrete(tags) and tags.numel() and not -1 <= int(tags.min()) <= int(tags.max()) < count:
        raise ValueError(
            f"tags must be from 0 to {count - 1}, or -1 where unknown, but they are from {int(tags.min())} to "
            f"{int(tags.max())}."
        )
    is_another = (tags >= 0)[..., None] & ~F.one_hot(tags.clamp_min(0), count).bool()
    known = is_another[..., None, :].repeat(1, 1, count, 1)
    known[:, 1:] |= is_another[:, :-1, :, None]
    return torch.zeros(known.shape, device=tags.device), known
