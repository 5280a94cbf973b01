"""Seeds: random numbers that a seed and a step decide, so that a run can go on anywhere."""

from __future__ import annotations

import torch


def generator(*numbers: int) -> torch.Generator:
    """Random numbers that belong to these numbers alone, such as a seed and a step."""
    state = 0
    for number in numbers:
        state = (state * 1_000_003 + number + 1) % 2**62
    return torch.Generator().manual_seed(state)
