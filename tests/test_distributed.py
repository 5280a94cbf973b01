"""The example of training on several processes: two give what one gives."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import undirected as un

EXAMPLE = Path(__file__).parents[1] / "examples" / "distributed.py"


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path, monkeypatch):  # the mean of two halves' means is the mean of the whole
    paths = [tmp_path / f"{name}.safetensors" for name in ("one", "two")]
    arguments = [str(EXAMPLE), "--steps", "5", "--out"]
    monkeypatch.setattr(sys, "argv", [*arguments, str(paths[0])])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*launcher, *arguments, paths[1]], check=True, timeout=300)
    one, two = (dict(un.load(path).named_parameters()) for path in paths)
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3, msg=name)
