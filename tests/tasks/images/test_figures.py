"""Figures: they are written, and show what they should (their pixels are looked at by people)."""

import pytest
import torch
from PIL import Image

from undirected.tasks.images import figures


@pytest.mark.slow
def test_a_run_gets_its_four_pictures(trained):
    paths = figures.of_run(trained)
    assert [path.name for path in paths] == ["prototypes.png", "energy.png", "completion.png", "confusion.png"]
    for path in paths:
        with Image.open(path) as picture:
            assert picture.width > 300
            assert len(picture.convert("L").getcolors()) > 10  # not blank


def test_prototypes_have_a_row_per_iteration(trained, monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr(figures, "_grid", lambda rows, path, names, titles: seen.update(rows=rows, names=names))
    figures.prototypes({"a": (trained.net, 3), "b": (trained.net, 1)}, tuple("0123456789"), tmp_path / "a.png")
    assert seen["names"] == ["a\n1 of 3", "a\n2 of 3", "a\n3 of 3", "b"]
    assert torch.equal(seen["rows"][0], seen["rows"][3])
    assert not torch.equal(seen["rows"][0], seen["rows"][1])
