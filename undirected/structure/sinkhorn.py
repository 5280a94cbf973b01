"""Sinkhorn: the doubly stochastic matrix `exp(scores - u_i - v_j)`, by the prices v of its columns.

The prices minimise `D(v) = sum_i log sum_j exp(scores_ij - v_j) + sum_j v_j`, which is smooth and convex and whose
minimum is the log-partition of the relaxation. Sinkhorn's iteration alone needs a number of steps that grows with the
range of the scores, so a few of them, from a high temperature down, give the start of Newton's method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.regularizers import concrete
from undirected.structure.weights import possible

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

#: Temperatures from the range of the scores down to 1, halving: enough for a range of 2^12.
STAGES = 12
SWEEPS = 3
#: Newton's steps are tried at these lengths (the largest change of a price) at once, without decisions of Python's.
LENGTHS = (1e4, 512.0, 128.0, 32.0, 8.0, 4.0, 2.0, 1.0, 0.25, 0.03)
#: Blocks of rows and columns that exchange less than this are independent to all digits.
RIDGE = 1e-14


def log_partition_of(cells: Float[Tensor, "... n n"], prices: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """`D(v)`."""
    return (cells - prices[..., None, :]).logsumexp(-1).sum(-1) + prices.sum(-1)


def excess(cells: Float[Tensor, "... n n"], prices: Float[Tensor, "... n"]) -> Float[Tensor, "... n"]:
    """`-grad D(v)`: by how much the columns sum to more than 1 when the rows sum to 1."""
    return (cells - prices[..., None, :]).softmax(-1).sum(-2) - 1


@torch.no_grad()
def balance(
    cells: Float[Tensor, "batch n n"], tolerance: float, max_iterations: int
) -> tuple[Float[Tensor, "batch n"], tuple[Tensor, Tensor], Float[Tensor, " batch"], int]:
    """The prices, the factors of the Hessian of D there, the largest excess, and the number of Newton steps.

    An example that is within the tolerance stays as it is, whatever else is in its batch.
    """
    prices = _annealed(cells)
    error = excess(cells, prices).abs().amax(-1)
    steps = 0
    lengths = torch.tensor(LENGTHS, dtype=cells.dtype, device=cells.device)[:, None, None]
    while steps < max_iterations and not (concrete(error) and (error <= tolerance).all()):
        step = torch.linalg.solve(_hessian(cells, prices), excess(cells, prices))
        longest = step.abs().amax(-1, keepdim=True).clamp_min(1e-300)
        trials = prices + (lengths / longest).clamp_max(1) * step
        reached = log_partition_of(cells, trials)
        noise = 1e-14 * (1 + reached.abs().amax(0))
        best = (reached <= reached.amin(0) + noise).int().argmax(0)  # the longest of those that are as good
        moved = trials.gather(0, best[None, :, None].expand(1, *prices.shape)).squeeze(0)
        moved = _sweep(cells, moved, torch.ones_like(error))
        prices = torch.where((error <= tolerance)[:, None], prices, moved)
        error = excess(cells, prices).abs().amax(-1)
        steps += 1
    return prices, torch.linalg.lu_factor(_hessian(cells, prices)), error, steps


def implicit(
    cells: Float[Tensor, "batch n n"], prices: Float[Tensor, "batch n"], factors: tuple[Tensor, Tensor], steps: int
) -> Float[Tensor, "batch n"]:
    """The prices as a function of the scores: Newton's steps from the solution, with the Hessian held constant.

    They change nothing but the last digits; each makes one more order of the derivatives exact. (The Hessian is
    kept factored: an inverse would hold huge numbers where blocks hardly exchange anything, and lose the others.)
    """
    for _ in range(steps):
        prices = prices + torch.linalg.lu_solve(*factors, excess(cells, prices)[..., None]).squeeze(-1)
    return prices


def _sweep(cells: Tensor, prices: Tensor, temperature: Float[Tensor, " batch"]) -> Tensor:
    """One of Sinkhorn's: make the rows sum to 1, then the columns."""
    heat = temperature[:, None, None]
    x = (cells - prices[:, None, :]) / heat
    return prices + temperature[:, None] * (x - x.logsumexp(2, keepdim=True)).logsumexp(1)


def _annealed(cells: Tensor) -> Tensor:
    prices = torch.zeros_like(cells[..., 0])
    finite = torch.where(possible(cells), cells, 0)
    span = finite.amax((1, 2)) - finite.amin((1, 2))
    hot = torch.ones_like(span, dtype=torch.bool)
    for stage in range(STAGES):
        temperature = (span / 2 ** (stage + 2)).clamp_min(1)
        cooler = prices
        for _ in range(SWEEPS):
            cooler = _sweep(cells, cooler, temperature)
        prices = torch.where(hot[:, None], cooler, prices)
        hot = temperature > 1
        if concrete(hot) and not hot.any():
            break
    return prices


def _hessian(cells: Tensor, prices: Tensor) -> Tensor:
    """`diag(1) - h^T h`, and the identity along the vector of ones.

    It is the Laplacian of a graph between the columns: adding to all prices changes nothing. Its diagonal is written
    as a sum, since 1 - (h^T h)_jj would lose all digits where h is almost a permutation.
    """
    h = (cells - prices[:, None, :]).softmax(2)
    n = h.shape[-1]
    eye = torch.eye(n, dtype=h.dtype, device=h.device)
    weight = (h.mT @ h) * (1 - eye)
    return torch.diag_embed(weight.sum(-1) + RIDGE) - weight + 1 / n
