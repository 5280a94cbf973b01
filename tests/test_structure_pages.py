"""The examples of structures reach what their page claims."""

import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


def results(example: str) -> dict[str, float]:
    return runpy.run_path(str(HERE / "examples" / f"{example}.py"))["main"]()


@pytest.mark.slow
def test_tagging():
    found = results("tagging")
    assert found["chain"] > found["word by word"] + 0.15
    assert found["chain"] > found["best possible"] - 0.02


@pytest.mark.slow
def test_sorting():
    found = results("sort_numbers")
    assert found["sorted 6"] > 0.9
    assert found["off 20"] < 0.2
    assert found["made"] == 1


@pytest.mark.slow
def test_choosing():
    found = results("choose_k")
    assert found["choice error"] < 0.1 < found["sigmoids error"]
    assert found["choice of three"] == 1
    assert abs(found["sum"] - 3) < 1e-5


@pytest.mark.slow
def test_brackets():
    found = results("brackets")
    assert found["projective trees"] > 0.9
    assert found["free trees"] < 0.5


@pytest.mark.slow
def test_trees():
    found = results("trees")
    assert found["trees"] > found["each head alone"] + 0.05
