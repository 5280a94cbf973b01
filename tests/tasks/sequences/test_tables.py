"""Tables: which experiments they hold, what they count, and that nothing is run twice."""

import csv
import json
from dataclasses import replace

import pytest

from undirected.cli import main
from undirected.tasks.sequences import tables
from undirected.tasks.sequences.commands import TABLES


@pytest.mark.parametrize("name", TABLES)
def test_the_experiments_of_each_table(name):
    settings = tables.experiments(name, 2)
    assert len({tables.run_name(one) for one in settings}) == len(settings)
    if name == "sequences-order":
        assert [one.span for one in settings] == [(k, k) for k in range(1, 6)] * 2
        assert {one.order for one in settings} == {"forward-backward", "random"}
    else:
        assert all(one.order == "forward-backward" for one in settings)
    assert ("1-5" in [one.iterations for one in settings]) == (name == "sequences-random-iterations")


def test_updates_are_counted():  # q k v s h s v k q x; five in any order, and x
    assert [tables.updates(one) for one in tables.experiments("sequences-order", 2)] == [
        10, 20, 30, 40, 50, 6, 12, 18, 24, 30,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["sequences-order", "sequences-random-iterations", "sequences-attention"])
def test_a_table_with_its_figure(name, file, tmp_path, monkeypatch):
    few = {"size": 16, "steps": 10, "batch": 8, "data": str(file)}
    wanted = [replace(one, **few) for one in tables.experiments(name, 1)[:2]]
    monkeypatch.setattr(tables, "experiments", lambda name, epochs: wanted)
    monkeypatch.setattr(tables.figures, "EXAMPLE", "mon ? wed thu")
    table = tables.reproduce(name, quick=True, out=tmp_path)
    assert "quick" in table.note
    assert (tmp_path / f"{name}.png").stat().st_size > 5_000
    lines = list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines()))
    assert [line["k"] for line in lines] == ["1", "2"]
    # A finished run is read, not run again: changed results appear in the table.
    path = tmp_path / tables.run_name(wanted[0]) / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "test_accuracy": 0.125}))
    again = tables.reproduce(name, quick=True, out=tmp_path)
    assert again.rows[0]["test accuracy"] == "12.50"
    assert again.rows[1] == table.rows[1]


def test_another_activation_has_runs_and_files_of_its_own(file, tmp_path, monkeypatch):
    wanted = [replace(tables.experiments("sequences-order", 1)[5], size=16, steps=5, batch=8, data=str(file))]
    monkeypatch.setattr(tables, "experiments", lambda name, epochs: wanted)
    plain = tables.reproduce("sequences-order", quick=True, out=tmp_path)
    bounded = tables.reproduce("sequences-order", quick=True, activation="tanh", out=tmp_path)
    assert "tanh" in bounded.note
    assert "tanh" not in plain.note
    assert (tmp_path / "sequences-order.csv").exists()
    assert (tmp_path / "sequences-order-tanh.csv").exists()
    settings = (tmp_path / tables.run_name(replace(wanted[0], activation="tanh")) / "settings.yaml").read_text()
    assert "activation: tanh" in settings


@pytest.mark.parametrize("flag", ["--seeds", "--epochs"])
def test_no_seeds_and_no_epochs_are_refused(flag, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["reproduce", "sequences-order", flag, "0", "--out", str(tmp_path / "table")])
    assert flag in capsys.readouterr().err
    assert not (tmp_path / "table").exists()
