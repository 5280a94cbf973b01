"""One thread, fixed seeds, no deadlines: a test that passes once passes always."""

import os
from pathlib import Path

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile(
    "undirected",
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.shrink],
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.load_profile("undirected")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed():
    """Every test begins with the same random numbers, and leaves the default dtype as it was."""
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture
def double():
    """New networks and tensors are float64, so that tolerances can be tight."""
    torch.set_default_dtype(torch.float64)


@pytest.fixture
def data():
    """The folder of data sets; tests that need it are skipped where it is not."""
    folder = os.environ.get("UNDIRECTED_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("$UNDIRECTED_DATA names no folder")
    return Path(folder)
