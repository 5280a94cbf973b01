"""Schedule: how the learning rate rises."""

from __future__ import annotations


def rise(share: float, steps: int) -> float:
    """The share of the steps in which the rate rises, as OneCycleLR takes it: that divides by zero if it is one step.

    >>> rise(0.05, 4000), rise(0.05, 20)
    (0.05, 0.025)
    """
    return share / 2 if share * steps == 1 else share
