"""A small network that was trained on the digits, once for all tests of this folder."""

import pytest
import torch

from undirected.tasks.images.run import train
from undirected.tasks.images.settings import Settings

SMALL = Settings(data="digits", iterations=1, gamma=0.1, epochs=4, batch=64, shift=0, checkpoint_every=10)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    torch.manual_seed(0)
    return train(SMALL, tmp_path_factory.mktemp("run"), progress=False)
