"""ProjectiveTree: a variable that is a distribution over dependency trees without crossing arcs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.regularizers import concrete
from undirected.structure import eisner, heads
from undirected.structure.algebra import Draw, Dual, Largest, Log, Real
from undirected.structure.elimination import NOTHING
from undirected.structure.reachability import require_tree
from undirected.structure.tree import Tree

if TYPE_CHECKING:
    from torch import Tensor


class ProjectiveTree(Tree):
    """Trees whose arcs do not cross, with the root left of all: `Psi*(t) = log sum over trees of exp(<t, tree>)`.

    By Eisner's algorithm: time O(n^3), in n steps over all spans of one width; memory O(n^2) per sentence.
    `single_root`: exactly one word hangs on the root. For scores of shape (batch, n + 1, n):

    >>> tree = ProjectiveTree()
    >>> tree.conjugate(torch.zeros(1, 4, 3)).exp().round(decimals=4)  # of the 9 trees over three words, 7 do not cross
    tensor([7.])
    """

    def infer(self, scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        s, length, largest = self._square(scores, mask)
        log_z, marginals = _marginals(s, length, self.single_root)
        log_z = torch.where(log_z > NOTHING / 2, log_z + largest, -torch.inf)
        self._require(log_z, scores, mask)
        return log_z.to(scores.dtype), marginals[:, :, 1:].to(scores.dtype)

    def mode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        return self._derivation(scores.detach(), mask, Largest()).to(scores.dtype)

    def sample(
        self,
        scores: Tensor,
        count: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        if count < 1:
            raise ValueError(f"{self}: the number of samples must be at least 1, got {count}.")
        many = scores.detach().expand(count, *scores.shape).flatten(0, 1)
        rows = None if mask is None else mask.expand(scores.shape).expand(count, *scores.shape).flatten(0, 1)
        drawn = self._derivation(many, rows, Draw(generator))
        return drawn.unflatten(0, (count, -1)).to(scores.dtype)

    def contains(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().contains(h, mask) & ~heads.crosses(heads.from_arcs(h))

    def possible(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        s, length, _ = self._square(scores.detach(), mask)
        return eisner.inside(s, length, self.single_root, Log()).z.squeeze(1) > NOTHING / 2

    def _square(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of shape (batch, n + 1, n + 1) relative to each word's largest, lengths, and what was taken out."""
        masked, exists = self._masked(scores, mask)
        s = masked.double()
        own = torch.eye(s.shape[2], dtype=torch.bool, device=s.device)
        allowed = (s != -torch.inf) & ~torch.cat([torch.zeros_like(own[:1]), own])
        largest = torch.where(allowed, s.detach(), NOTHING).amax(1, keepdim=True)
        largest = torch.where(allowed.any(1, keepdim=True), largest, 0)
        s = torch.where(allowed, torch.where(allowed, s, 0) - largest, NOTHING)
        s = torch.cat([torch.full_like(s[:, :, :1], NOTHING), s], 2)
        return s, exists.sum(1), largest.sum((1, 2))

    def _derivation(self, scores: Tensor, mask: Tensor | None, algebra: Log) -> Tensor:
        """The arcs of the one derivation that the algebra chooses: its sums pass their derivative to one term each."""
        s, length, _ = self._square(scores, mask)
        with torch.enable_grad():
            s.requires_grad_()
            log_z = eisner.inside(s, length, self.single_root, algebra).z.squeeze(1)
            self._require(torch.where(log_z > NOTHING / 2, log_z, -torch.inf).detach(), scores, mask)
            (arcs,) = torch.autograd.grad(log_z.sum(), s)
        return arcs[:, :, 1:]

    def _require(self, log_z: Tensor, scores: Tensor, mask: Tensor | None) -> None:
        if not concrete(log_z) or log_z.isfinite().all():
            return
        masked, exists = self._masked(scores.detach(), mask)
        require_tree(str(self), masked, exists, self.single_root)
        example = int((~log_z.isfinite()).nonzero()[0])
        raise ValueError(
            f"{self}: no tree without crossing arcs is possible in example {example} under its forbidden arcs (-inf), "
            "only trees that cross. Allow more arcs, or take SpanningTree."
        )


def _marginals(s: Tensor, length: Tensor, single_root: bool) -> tuple[Tensor, Tensor]:
    """`log Z` and the marginals for logarithms of weights."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return eisner.inside_outside(s, length, single_root, Log())[:2]
    return _InsideOutside.apply(s, length, single_root)


class _InsideOutside(torch.autograd.Function):
    """`log Z` and marginals; backward takes the derivative of the marginals *along* the cotangent.

    That is the same, as the second derivative of log Z is symmetric, and needs no tape of O(n^3) numbers. Both run on
    plain numbers; only sentences that leave their range go through logarithms.
    """

    @staticmethod
    def forward(ctx, s: Tensor, length: Tensor, single_root: bool):
        ctx.single_root = single_root
        ctx.set_materialize_grads(False)
        z, marginals, around = eisner.inside_outside(s.exp(), length, single_root, Real())
        # What is below the smallest number inside a span was lost; it must not matter, whatever surrounds the span.
        lost = torch.finfo(s.dtype).tiny * around
        overflow = ~((lost <= 1e-14 * z) & marginals.flatten(1).amax(1).isfinite())
        log_z = z.log()
        if overflow.any():
            s_over, length_over = s[overflow], length[overflow]
            log_z[overflow], marginals[overflow], _ = eisner.inside_outside(s_over, length_over, single_root, Log())
        ctx.save_for_backward(s, length, marginals, overflow)
        return log_z, marginals

    @staticmethod
    def backward(ctx, for_log_z, for_marginals):
        s, length, marginals, overflow = ctx.saved_tensors
        grad = None if for_log_z is None else for_log_z[:, None, None] * marginals
        if for_marginals is not None:
            along = _derivative(s, length, ctx.single_root, for_marginals, overflow)
            grad = along if grad is None else grad + along
        return grad, None, None


def _derivative(s: Tensor, length: Tensor, single_root: bool, along: Tensor, overflow: Tensor) -> Tensor:
    if torch.is_grad_enabled():  # someone will differentiate once more
        return _derivative_by_logarithms(s, length, single_root, along)
    weights = s.exp()
    dual = torch.stack([weights, weights * along])
    out = eisner.inside_outside(dual, length, single_root, Dual())[1][1]
    if overflow.any():
        rows = (s[overflow], length[overflow], single_root, along[overflow])
        out[overflow] = _derivative_by_logarithms(*rows)
    return out


def _derivative_by_logarithms(s: Tensor, length: Tensor, single_root: bool, along: Tensor) -> Tensor:
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        x = s if s.requires_grad else s.detach().requires_grad_()
        marginals = eisner.inside_outside(x, length, single_root, Log())[1]
        return torch.autograd.grad(marginals, x, along, create_graph=again)[0]
