"""Tables: which experiments they hold, and that nothing is run twice."""

import csv
import json

import pytest

from undirected.tasks.images.commands import TABLES
from undirected.tasks.images.tables import reproduce, rows, run_name


@pytest.mark.parametrize("name", TABLES)
def test_the_experiments_of_each_table(name):
    settings = [row.settings for row in rows(name, "mnist", 8)]
    assert all(one.batch == 256 for one in settings)  # the recipe of MNIST, not of the digits
    assert len({run_name(one) for one in settings}) == len(settings)
    if name == "images-accuracy":
        assert [(one.gamma, one.iterations) for one in settings] == [(0, 1), *((0.1, k) for k in range(1, 6))]
    elif name == "images-initialization":
        assert {one.init for one in settings} == {"zeros", "random", "uniform"}
    else:
        assert all(one.gamma == 0 for one in settings)
        assert all(one.tied == (name != "images-unconstrained") for one in settings)


@pytest.mark.slow
def test_a_table_goes_on_where_it_was_stopped(tmp_path):
    table = reproduce("images-unconstrained", "digits", quick=True, epochs=1, out=tmp_path)
    assert "1 seed, 1 epochs" in table.note
    assert "quick" in table.note
    lines = list(csv.DictReader((tmp_path / "images-unconstrained.csv").read_text().splitlines()))
    assert [line["network"] for line in lines] == [f"untied, k = {k}" for k in range(2, 6)]
    assert table.markdown() == (tmp_path / "images-unconstrained.md").read_text()
    # A finished run is read, not run again: changed results appear in the table.
    path = next(tmp_path.glob("digits-gamma0-k2-*")) / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "test_accuracy": 0.125}))
    again = reproduce("images-unconstrained", "digits", quick=True, epochs=1, out=tmp_path)
    assert again.rows[0]["test accuracy"] == "12.50"
    assert again.rows[1:] == table.rows[1:]
