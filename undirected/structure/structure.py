"""Structure: a variable that is a distribution over combinatorial structures, in one vocabulary for all of them.

A structure is a 0/1 tensor of the variable's shape (the arcs of a tree, the cells of a permutation matrix); scores
of the same shape give the distribution `p(s) = exp(<scores, s>) / Z`. A score of -inf forbids an entry. All methods
take the scores of a batch and an optional `mask` that broadcasts to them: entries where it is False do not exist.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch

from undirected.regularizers import Regularizer, concrete, positive, total
from undirected.structure.inverse import potentials
from undirected.structure.k_best import k_best

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor


class Structure(Regularizer):
    """`Psi(h) = -scale * max entropy of a distribution over structures with marginals h`.

    Its conjugate is the log-partition function, its activation marginal inference, both of `scores = t / scale`.
    To make one of your own write `log_partition`, `marginals`, `condition`, `mode` and `sample`.
    """

    bounded = True

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = positive(scale, self)

    @abstractmethod
    def log_partition(
        self, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Float[Tensor, " batch"]:
        """`log Z = log sum_s exp(<scores, s>)` per example."""

    @abstractmethod
    def marginals(
        self, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Float[Tensor, "batch *event"]:
        """The expected structure, the gradient of `log Z`; zero outside the mask."""

    @abstractmethod
    def condition(
        self,
        scores: Float[Tensor, "batch *event"],
        known: Bool[Tensor, "batch *event"],
        value: Float[Tensor, "batch *event"],
    ) -> Float[Tensor, "batch *event"]:
        """Scores of the same distribution given that the entries `known` are as in the 0/1 tensor `value`.

        Entries that are known to be absent, or that a present one excludes, get -inf; the others keep their score.
        """

    @abstractmethod
    def mode(
        self, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Float[Tensor, "batch *event"]:
        """The structure of highest score, as a 0/1 tensor."""

    @abstractmethod
    def sample(
        self,
        scores: Float[Tensor, "batch *event"],
        count: int = 1,
        mask: Bool[Tensor, ...] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "count batch *event"]:
        """Independent exact samples, as 0/1 tensors."""

    def top(
        self, scores: Float[Tensor, "batch *event"], count: int, mask: Bool[Tensor, ...] | None = None
    ) -> tuple[Float[Tensor, "count batch *event"], Float[Tensor, "count batch"]]:
        """The `count` structures of highest score, best first, and their scores.

        Where fewer exist, the rest are zeros with a score of -inf. By Lawler and Murty's partition: about as many calls
        of `mode` as `count` times the entries of a structure, which must all have equally many.
        """
        return k_best(self, scores, count, mask)

    def possible(
        self, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Bool[Tensor, " batch"]:
        """Is there a structure that no score of -inf forbids, per example? Override it if `log_partition` raises."""
        return self.log_partition(scores, mask) > -torch.inf

    def infer(
        self, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch *event"]]:
        """`log_partition` and `marginals`; to be overridden where one computation gives both."""
        return self.log_partition(scores, mask), self.marginals(scores, mask)

    def contains(
        self, h: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Bool[Tensor, " batch"]:
        """Is h a structure (a 0/1 tensor), per example?"""
        binary = ((h == 0) | (h == 1)).flatten(1).all(1)
        # If h is a structure, it alone has all of its entries, so that rewarding them makes it the mode.
        candidates = self.mode(2 * h.detach().clamp(0, 1) - 1, mask)
        return binary & (candidates == h).flatten(1).all(1)

    def entropy(
        self, scores: Float[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None = None
    ) -> Float[Tensor, " batch"]:
        """`log Z - <scores, marginals>` per example: in nats, 0 if only one structure is possible."""
        exact = scores.double()
        log_z, h = self.infer(exact, mask)
        return (log_z - inner(exact, h)).to(scores.dtype)

    def value(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        """`Psi(h) = scale * max_t <t, h> - log Z(t)`; exactly 0 at a structure, infinite outside the marginal polytope.

        Elsewhere it takes a convex optimisation (for an h that came from `activation(t)`, `attained` is free of it).
        Its derivative in h is the maximiser; second derivatives are not defined through it.
        """
        if mask is not None:
            h = torch.where(mask, h, 0)
        return self.scale * _NegativeEntropy.apply(h, self, mask)

    def conjugate(self, t: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.scale * self.log_partition(self._scores(t), mask)

    def activation(self, t: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.marginals(self._scores(t), mask)

    def complete(self, t: Tensor, known: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """The marginals given the entries that are known, which must be 0 or 1."""
        if concrete(value):
            _require_binary(self, known, value)
        h = self.marginals(self.condition(self._scores(t), known, value), mask)
        return torch.where(known, value.to(h.dtype), h)

    def attained(
        self, h: Tensor, t: Tensor, mask: Tensor | None = None, known: Tensor | None = None
    ) -> Float[Tensor, " batch"]:
        scores = self._scores(t.double())
        if known is not None:
            scores = self.condition(scores, known, h.detach())
        return (self.scale * (inner(scores, h.double()) - self.log_partition(scores, mask))).to(h.dtype)

    def _scores(self, t: Tensor) -> Tensor:
        return t if self.scale == 1.0 else t / self.scale


def inner(scores: Tensor, h: Tensor) -> Float[Tensor, " batch"]:
    """`<scores, h>` per example, where a forbidden entry (-inf, and h = 0) counts nothing."""
    return total(torch.where(scores.isfinite(), scores, 0) * h)


def _require_binary(structure: Structure, known: Tensor, value: Tensor) -> None:
    bad = known & (value != 0) & (value != 1)
    if bad.any():
        where = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"{structure}: known entries must be 0 or 1, but entry {where[1:]} of example {where[0]} is "
            f"{value.expand_as(bad)[where].item():g}. Leave uncertain entries unknown."
        )


class _NegativeEntropy(torch.autograd.Function):
    """`max_t <t, h> - log Z(t)`, with the maximiser t as its derivative (the envelope theorem)."""

    @staticmethod
    def forward(ctx, h: Tensor, structure: Structure, mask: Tensor | None) -> Tensor:
        exact = h.detach().double()
        scores, psi = torch.zeros_like(exact), exact.new_zeros(len(exact))
        general = ~structure.contains(exact, mask)  # observed labels, the common case, need no search
        if general.any():
            rows = None if mask is None else mask.expand_as(h)[general]
            inside = exact[general]
            sure = (inside == 0) | (inside == 1)
            found = potentials(structure, inside, sure, rows, precision=torch.finfo(h.dtype).eps)
            scores[general], psi[general] = found
        ctx.save_for_backward(torch.where(scores.isfinite(), scores, 0).to(h.dtype))
        return psi.to(h.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, cotangent: Tensor):
        (scores,) = ctx.saved_tensors
        return cotangent.reshape(-1, *[1] * (scores.dim() - 1)) * scores, None, None
