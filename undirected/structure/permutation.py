"""Permutation: a one-to-one assignment of rows to columns, relaxed to a doubly stochastic matrix."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from undirected.errors import NotConverged
from undirected.regularizers import concrete, t_log_t, total, within
from undirected.structure.assignment import NoAssignment, best_assignment, best_assignments, in_some_assignment
from undirected.structure.sinkhorn import balance, implicit, log_partition_of
from undirected.structure.structure import Structure
from undirected.structure.weights import FORBIDDEN, log_weights, or_minus_infinity, possible

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

#: 8! = 40,320 permutations are still quickly listed.
LARGEST_LISTED = 8


class Permutation(Structure):
    """A permutation matrix `[row, column]`, **relaxed**; a variable of shape `("n", "n")` or `(k, k)`.

    `Psi(h) = scale * sum h log h` on the doubly stochastic matrices (entropic optimal transport). This is a relaxation:
    the entropy of a distribution over permutations with marginals h is smaller, its marginals are hard to compute
    (permanents), and `log_partition` is an upper bound of the logarithm of `sum_P exp(<scores, P>)`. `activation` is
    Sinkhorn's doubly stochastic matrix; `mode`, `top` and, for n <= 8, `sample` are of the true permutations.

    `tolerance` bounds how far the sum of a column may be from 1 (rows always sum to 1), `max_iterations` the number of
    Newton steps that follow a few of Sinkhorn's; a compiled program runs all of them, and has NaN where they do not
    suffice. Derivatives go through the fixed point implicitly: those of `log_partition` are exact up to the third
    order, those of `marginals` up to the second.

    >>> permutation = Permutation()
    >>> permutation.marginals(torch.tensor([[[1.0, 0.0], [0.0, 0.0]]]))
    tensor([[[0.6225, 0.3775],
             [0.3775, 0.6225]]])
    >>> permutation.mode(torch.tensor([[[9.0, 8.0], [7.0, 0.0]]]))
    tensor([[[0., 1.],
             [1., 0.]]])
    """

    def __init__(self, tolerance: float = 1e-10, max_iterations: int = 50, scale: float = 1.0) -> None:
        super().__init__(scale)
        if not 1e-13 <= tolerance < 1:
            raise ValueError(f"Permutation: tolerance must be from 1e-13 (float64's digits) to 1, got {tolerance}.")
        if max_iterations < 1:
            raise ValueError(f"Permutation: max_iterations must be at least 1, got {max_iterations}.")
        self.tolerance = tolerance
        self.max_iterations = max_iterations

    def log_partition(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        cells, impossible = self._cells(scores, mask)
        prices, factors = self._balance(cells)
        # One step more, with derivatives: what it leaves out of the prices counts in the fourth order only.
        log_z = log_partition_of(cells, implicit(cells, prices, factors, steps=1))
        if impossible:
            gone = torch.zeros(len(cells), dtype=torch.bool, device=cells.device)
            gone[list(impossible)] = True
            log_z = torch.where(gone, -math.inf, log_z)
        return log_z.to(scores.dtype)

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        cells, impossible = self._cells(scores, mask)
        self._require(impossible)
        prices, factors = self._balance(cells)
        h = (cells - implicit(cells, prices, factors, steps=2)[:, None, :]).softmax(2).to(scores.dtype)
        return h if mask is None else torch.where(mask, h, 0)

    def condition(self, scores: Tensor, known: Tensor, value: Tensor) -> Tensor:
        present = known & (value == 1)
        excluded = (present.any(-1, keepdim=True) | present.any(-2, keepdim=True)) & ~present
        return torch.where(excluded | (known & (value == 0)), -math.inf, scores)

    def mode(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The permutation of highest score, exactly: the Hungarian algorithm."""
        cells, impossible = self._cells(scores.detach(), mask)
        self._require(impossible)
        found = [best_assignment(matrix) for matrix in or_minus_infinity(cells).cpu()]
        columns = torch.tensor(found, device=scores.device).view(cells.shape[:2])
        return _indicator(columns, mask, scores.dtype)

    def top(self, scores: Tensor, count: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The `count` permutations of highest score, exactly: Murty's algorithm, O(count n^4)."""
        if count < 1:
            raise ValueError(f"{self}: count must be at least 1, got {count}.")
        cells, impossible = self._cells(scores.detach(), mask)
        found = torch.zeros(count, *scores.shape, dtype=scores.dtype)
        values = torch.full((count, len(scores)), -math.inf, dtype=torch.float64)
        for example, matrix in enumerate(or_minus_infinity(cells).cpu()):
            if example not in impossible:
                for rank, (value, columns) in enumerate(best_assignments(matrix, count)):
                    found[rank, example, torch.arange(len(columns)), columns] = 1.0
                    values[rank, example] = value
        if mask is not None:
            found = torch.where(mask.cpu(), found, 0)
        return found.to(scores.device), values.to(scores)

    def sample(
        self,
        scores: Tensor,
        count: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Exact samples of `p(P) ~ exp(<scores, P>)`, up to n = 8, by listing all n! permutations.

        Their mean is the matrix of true marginals, not that of the relaxation (`marginals`).
        """
        cells, impossible = self._cells(scores.detach(), mask)
        self._require(impossible)
        n = scores.shape[-1]
        if n > LARGEST_LISTED:
            raise NotImplementedError(
                f"{self}: exact samples are drawn by listing all n! permutations, for n up to {LARGEST_LISTED}; here n "
                f"is {n}. For larger n there is no exact sampler: take `mode`, `top`, or the `mode` of scores to which "
                f"Gumbel noise is added (which samples another distribution)."
            )
        every = torch.tensor(list(itertools.permutations(range(n))), device=scores.device)
        weight = torch.stack([cells[:, i, every[:, i]] for i in range(n)]).sum(0)
        edges = weight.softmax(1).cumsum(1)
        uniform = torch.rand(len(scores), count, generator=generator, dtype=edges.dtype, device=edges.device)
        chosen = torch.searchsorted(edges, uniform * edges[:, -1:], right=True).clamp_max(len(every) - 1)
        return _indicator(every[chosen.T], mask, scores.dtype)

    def value(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        """`scale * sum h log h`; infinite where a row or column does not sum to 1."""
        slack = max(torch.finfo(h.dtype).eps ** 0.5, 2 * self.tolerance)
        wide = h.double() if mask is None else torch.where(mask, h.double(), 0)
        rows, columns = (wide.sum(2) - 1).abs() <= slack, (wide.sum(1) - 1).abs() <= slack
        if mask is not None:
            exists = mask.expand_as(h)
            rows, columns = rows | ~exists.any(2), columns | ~exists.any(1)
        inside = rows.all(1) & columns.all(1) & (wide >= -slack).flatten(1).all(1)
        return within(inside, self.attained(h, h, mask))

    def attained(self, h: Tensor, t: Tensor, mask: Tensor | None = None, known: Tensor | None = None) -> Tensor:
        """The sum alone, which needs no t, and no fixed point."""
        return (self.scale * total(t_log_t(h.double()), mask)).to(h.dtype)

    def label_axes(self, rank: int) -> tuple[int, ...]:
        return (0,)

    def encode(self, labels: Int[Tensor, "batch n"], shape: tuple[int, ...]) -> Float[Tensor, "batch n n"]:
        """The column of each row, from 0 to n - 1; -1 is padding and gives zeros.

        Only column 0 may be there twice: the network writes it for rows that do not exist or are not known.
        """
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"{self} is for variables of shape (n, n), but this one is {shape}.")
        if tuple(labels.shape[1:]) != (shape[0],):
            raise ValueError(
                f"labels have shape {tuple(labels.shape)}; a variable of shape {shape} with {self} takes "
                f"(batch, {shape[0]}), the column of each row."
            )
        if concrete(labels) and labels.numel():
            low, high = int(labels.min()), int(labels.max())
            if low < -1 or high >= shape[1]:
                raise ValueError(f"{self}: columns are from 0 to {shape[1] - 1}, but these from {low} to {high}.")
            ordered = labels.sort(1).values
            repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] > 0)
            if repeated.any():
                example, place = repeated.nonzero()[0].tolist()
                raise ValueError(
                    f"{self}: the labels of example {example}, {labels[example].tolist()}, are not a permutation: "
                    f"column {int(ordered[example, place])} is there twice."
                )
        h = F.one_hot(labels.long().clamp_min(0), shape[1]) * (labels >= 0)[..., None]
        return h.to(torch.get_default_dtype())

    def radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(shape[0])

    def _cells(self, scores: Tensor, mask: Tensor | None) -> tuple[Tensor, dict[int, NoAssignment]]:
        """Log-weights, forbidden for cells in no permutation; the examples for which there is none, and why.

        A row and a column that do not exist are each other's only choice, at a score of 0: that changes no result.
        """
        if scores.dim() != 3 or scores.shape[1] != scores.shape[2] or scores.shape[1] == 0:
            raise ValueError(f"{self}: scores must have shape (batch, n, n) with n > 0, got {tuple(scores.shape)}.")
        cells = log_weights(self, scores, mask)
        forbidden = ~possible(cells)
        if mask is not None:
            exists = mask.expand_as(scores)
            rows, columns = exists.any(2), exists.any(1)
            if concrete(exists) and (rows != columns).any():
                example = int((rows != columns).any(1).nonzero()[0])
                raise ValueError(
                    f"{self}: example {example} has {int(rows[example].sum())} rows and {int(columns[example].sum())} "
                    f"columns. Both axes must have the same length: declare the variable ('n', 'n')."
                )
            padding = torch.diag_embed(~rows)
            cells, forbidden = torch.where(padding, 0, cells), forbidden & exists
        impossible: dict[int, NoAssignment] = {}
        if concrete(cells) and forbidden.any():
            cells, impossible = _possible(cells)
        return cells, impossible

    def _require(self, impossible: dict[int, NoAssignment]) -> None:
        for example, why in impossible.items():
            raise ValueError(
                f"{self}: no permutation is possible for example {example}: {why}, all their other scores are -inf. "
                f"Allow one more of them."
            )

    def _balance(self, cells: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        prices, factors, error, steps = balance(cells.detach(), self.tolerance, self.max_iterations)
        poor = error > self.tolerance
        if not concrete(error):
            return torch.where(poor[:, None], math.nan, prices), factors
        if poor.any():
            warnings.warn(
                f"{self}: not converged for {int(poor.sum())} of {len(poor)} examples after {steps} Newton steps; a "
                f"column of example {int(error.argmax())} sums to 1 only within {float(error.max()):.1e}. Raise "
                f"max_iterations or tolerance, or make the scores smaller (they range over "
                f"{float(torch.where(possible(cells), cells, 0).detach().abs().max()):.3g}).",
                NotConverged,
                stacklevel=4,
            )
        return prices, factors


def _possible(cells: Float[Tensor, "batch n n"]) -> tuple[Tensor, dict[int, NoAssignment]]:
    """Forbid what no permutation can have, on which the relaxation would converge only in the limit."""
    impossible: dict[int, NoAssignment] = {}
    found = []
    for example, matrix in enumerate(cells.detach().cpu()):
        try:
            found.append(best_assignment(torch.where(possible(matrix), 0.0, -math.inf)))
        except NoAssignment as why:
            impossible[example] = why
            found.append(list(range(len(matrix))))
    keep = in_some_assignment(possible(cells), torch.tensor(found, device=cells.device))
    cells = torch.where(keep, cells, FORBIDDEN)
    if impossible:
        hopeless = torch.tensor([example in impossible for example in range(len(cells))], device=cells.device)
        cells = torch.where(hopeless[:, None, None], 0, cells)
    return cells, impossible


def _indicator(columns: Int[Tensor, "... n"], mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    h = F.one_hot(columns, columns.shape[-1]).to(dtype)
    return h if mask is None else torch.where(mask, h, 0)
