"""Every lesson and every solution notebook runs from a fresh kernel, with our own warnings as failures."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from autograder.authoring import notebooks
from autograder.authoring.source import ROOT
from autograder.grading.intake import VERDICT

#: Warnings that arise in a notebook's cells or in this project's code become errors; those inside other packages pass.
STRICT = 'import warnings\nwarnings.filterwarnings("error", module=r"(__main__|passlab|autograder)(\\.|$)")'


def execute(nb, folder, timeout: int = 300):
    """Run a notebook with the strict cell before it; give it back without that cell."""
    nb.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    NotebookClient(nb, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    del nb.cells[0]
    return nb


@pytest.mark.parametrize("path", notebooks.authored(), ids=lambda p: str(p.relative_to(ROOT)))
def test_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("PASSLAB_SEED", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    nb = execute(notebooks.notebook(path), path.parent)
    for cell in nb.cells:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("grade") and cell.cell_type == "code":
            result = [o for o in cell.outputs if o.output_type == "execute_result"]
            said = next((o.data["text/plain"] for o in cell.outputs if VERDICT in o.get("data", {})), "")
            assert float(result[-1].data["text/plain"]) == meta["points"], said


@pytest.mark.parametrize(
    "cell", ["import warnings\nwarnings.warn('ours')", "1 / 0", "from passlab import graph\n'\\d'.nothing"]
)
def test_a_notebook_that_warns_or_fails_is_caught(cell, tmp_path):
    with pytest.raises(Exception, match=r"UserWarning|ZeroDivisionError|AttributeError"):
        execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)]), tmp_path)
