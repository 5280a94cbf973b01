"""Place: where and in which precision a trained network computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from undirected.errors import QueryError

DTYPES = {"32": torch.float32, "64": torch.float64, "bf16-mixed": torch.float32}


@dataclass(frozen=True)
class Place:
    """A device and a number type, as the flags --device and --precision name them."""

    device: torch.device
    dtype: torch.dtype
    is_mixed: bool

    @staticmethod
    def of(device: str, precision: str) -> Place:
        found = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
        if device == "gpu" and found.type == "cpu":
            raise QueryError("--device gpu: there is no GPU here. Use cpu or auto.")
        if precision not in DTYPES:
            raise QueryError(f"--precision {precision}: is none of {', '.join(DTYPES)}.")
        return Place(found, DTYPES[precision], precision == "bf16-mixed")

    @contextmanager
    def asking(self) -> Iterator[None]:
        """No gradients, and mixed precision if that was wanted."""
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_mixed):
            yield
