"""Losses: the one that belongs to a variable's regularizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.errors import QueryError
from undirected.regularizers import Elementwise, total
from undirected.solution import Solution

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


def fenchel_young(
    solution: Solution,
    name: str,
    target: Float[Tensor, "batch *event"] | Int[Tensor, "batch ..."],
    reduction: str = "mean",
) -> Tensor:
    """`Psi*(t) + Psi(target) - <t, target>` at the variable's pre-activation t: at least 0, and 0 only at the target.

    Cross-entropy for Softmax, the logistic loss for Sigmoid and Tanh, half the squared error for Identity, the
    negative log-likelihood of a conditional random field for structures. Its gradient by t is `activation(t) - target`.
    Summed over the variable's entries; those that were observed, or do not exist by `lengths`, count nothing.

    Args:
        target: values of the variable's shape, or integer labels where the regularizer has them.
        reduction: "mean" over the examples, "sum", or "none".
    """
    if reduction not in ("mean", "sum", "none"):
        raise QueryError(f"fenchel_young: reduction is 'mean', 'sum' or 'none', not {reduction!r}.")
    if name not in solution.preactivation:
        raise QueryError(
            f"fenchel_young: {name} has no pre-activation; it must be wanted and not observed. There are "
            f"{', '.join(solution.preactivation) or 'none'}."
        )
    t = solution.preactivation[name]
    regularizer, mask = solution.regularizer(name), solution.counted(name)
    target = solution.read(name, target)
    part = solution.part(name)
    if part is not None and not isinstance(regularizer, Elementwise):
        # Entries hang together: what is known stays as it is, in the conjugate's maximiser and in the target.
        known, value, mask = part
        h, target = regularizer.complete(t, known, value, mask), torch.where(known, value, target)
        conjugate = total(t * h, mask) - regularizer.attained(h, t, mask, known)
    else:
        conjugate = regularizer.conjugate(t, mask)
    losses = conjugate + regularizer.value(target, mask) - total(t * target, mask)
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()
