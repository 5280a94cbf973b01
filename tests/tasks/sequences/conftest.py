"""A small network that was trained on a text file, once for all tests of this folder."""

import pytest
import torch

from undirected.tasks.sequences.run import train
from undirected.tasks.sequences.settings import Settings

DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """The days of the week in a row, from each day on, 3 to 9 of them: 49 lines."""
    path = tmp_path_factory.mktemp("text") / "days.txt"
    lines = [[DAYS[(first + i) % 7] for i in range(n)] for first in range(7) for n in range(3, 10)]
    path.write_text("\n\n".join(map(" ".join, lines)) + "\n")
    return path


def small(file, **more):
    return Settings(
        **{"data": str(file), "size": 64, "epochs": 3, "steps": 100, "batch": 16, "learning_rate": 0.02, **more}
    )


@pytest.fixture(scope="session")
def trained(file, tmp_path_factory):
    torch.manual_seed(0)
    return train(small(file), tmp_path_factory.mktemp("run"), progress=False)
