"""Run the notebooks and keep their outputs; what depends on the machine is left out.

python notebooks/execute.py              # all of them, whole
python notebooks/execute.py images.ipynb

With UNDIRECTED_QUICK=1 in the environment they train for a moment only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
TIMEOUT = 600  # seconds, of one cell


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs. It runs in an empty folder; an error in a cell is an error here."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": folder}})
        client.execute()
    return clean(notebook)


def clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without times, versions and names of this machine."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    return notebook


def main() -> None:
    for name in sys.argv[1:] or sorted(path.name for path in FOLDER.glob("*.ipynb")):
        nbformat.write(execute(FOLDER / name), FOLDER / name)
        print(name)


if __name__ == "__main__":
    main()
