"""The notebooks run, in quick mode, and are kept with their outputs and without traces of a machine."""

import re
import runpy
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["energy", "images", "parsing"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the notebook machinery, in its own process
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, monkeypatch):
    monkeypatch.setenv("UNDIRECTED_QUICK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ran = runpy.run_path(str(FOLDER / "execute.py"))["execute"](path)
    assert all(cell.execution_count for cell in ran.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_as_it_ran(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))  # all of it, in order, once
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert all(output.get("name") != "stderr" for output in outputs)
    pictures = [o for o in outputs if {"image/png", "image/svg+xml"} & set(o.get("data", {}))]
    assert len(pictures) >= 4
    assert not re.search(r"/(?:home|root|Users|work|tmp)/", path.read_text(encoding="utf-8"))
