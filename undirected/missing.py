"""Missing: the rows of a partly observed variable that are not known, so that row-wise factors compute those alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undirected.regularizers import concrete
from undirected.variable import Symbol, Variable

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

MOST = 0.5  # the share of missing rows above which computing all of them is no slower


def missing_rows(
    variable: Variable, known: Bool[Tensor, "batch *event"], mask: Bool[Tensor, ...] | None
) -> Int[Tensor, " rows"] | None:
    """The numbers of the rows that exist and are not known, of all rows of all examples; None if not worth knowing.

    A row is an entry of the symbolic axes, with all the integer axes that follow them.

    >>> x = Variable("x", ("n", 3))
    >>> missing_rows(x, torch.tensor([[True, True, False], [False, True, True]])[..., None].expand(2, 3, 3), None)
    tensor([2, 3])
    """
    depth = row_axes(variable)
    if not depth or not concrete(known):
        return None
    entries = known.flatten(1 + depth)
    if entries.stride(-1) == 0:  # the same mask for all entries of a row, as it was given
        whole = entries[..., 0]
    else:
        whole = entries.all(-1)
        if not torch.equal(whole, entries.any(-1)):
            return None
    wanted = ~whole if mask is None else ~whole & mask.expand_as(known).flatten(1 + depth)[..., 0]
    rows = wanted.flatten().nonzero().squeeze(1)
    return rows if len(rows) <= MOST * wanted.numel() else None


def row_axes(variable: Variable) -> int:
    """How many symbolic axes come before the integer axes; 0 if none, or if they are mixed."""
    depth = len(variable.symbols)
    symbols_first = all(isinstance(axis, Symbol) for axis in variable.axes[:depth])
    return depth if symbols_first and depth < len(variable.axes) else 0
