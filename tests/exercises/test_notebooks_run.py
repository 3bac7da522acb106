"""Every lesson and every solution notebook runs from a fresh kernel, with our own warnings as failures."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbclient import NotebookClient

from autograder.authoring import notebooks
from autograder.authoring.source import ROOT
from passlab import exercises
from passlab.notebook.cells import checked

#: Warnings that arise in a notebook's cells or in this project's code become errors; those inside other packages pass.
STRICT = 'import warnings\nwarnings.filterwarnings("error", module=r"(__main__|passlab|autograder)(\\.|$)")'


def execute(nb, folder, timeout: int = 300):
    """Run a notebook with the strict cell before it; give it back without that cell."""
    nb.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    NotebookClient(nb, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    del nb.cells[0]
    return nb


#: The largest first: they take longest.
NOTEBOOKS = sorted(notebooks.authored(), key=lambda path: -path.stat().st_size)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    nb, asked = notebooks.notebook(path), []
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code":
            asked.append(checked(cell.source).exercise)
    execute(nb, path.parent)
    assert bool(asked) == ("solutions" in path.parts)
    if asked:
        found = json.loads((tmp_path / "progress.json").read_text())
        assert {name: found[name]["points"] for name in asked} == {name: exercises.find(name).total for name in asked}


@pytest.mark.parametrize(
    "cell", ["import warnings\nwarnings.warn('ours')", "1 / 0", "from passlab import graph\n'\\d'.nothing"]
)
def test_a_notebook_that_warns_or_fails_is_caught(cell, tmp_path):
    with pytest.raises(Exception, match=r"UserWarning|ZeroDivisionError|AttributeError"):
        execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)]), tmp_path)
