"""Every lesson and every solution notebook runs from a fresh kernel, with our own warnings as failures."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from autograder.authoring import notebooks
from autograder.authoring.source import ROOT
from passlab import exercises
from passlab.notebook.cells import check_call
from tests.support.amounts import LESSONS

#: Warnings that arise in a notebook's cells or in this project's code become errors; those inside other packages pass.
STRICT = 'import warnings\nwarnings.filterwarnings("error", module=r"(__main__|passlab|autograder)(\\.|$)")'


def execute(nb, folder, timeout: int = 300):
    """Run a notebook with the strict cell before it; give it back without that cell."""
    nb.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    NotebookClient(nb, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    del nb.cells[0]
    return nb


#: The largest first: they take longest.
NOTEBOOKS = sorted(notebooks.authored_paths(), key=lambda path: -path.stat().st_size)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(ROOT)))
def test_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    nb, asked = notebooks.notebook(path), []
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code":
            asked.append(check_call(cell.source).exercise)
    execute(nb, path.parent)
    assert bool(asked) == ("solutions" in path.parts)
    if asked:
        found = json.loads((tmp_path / "progress.json").read_text())
        assert {name: found[name]["points"] for name in asked} == {name: exercises.find(name).total for name in asked}


#: A program that keeps a core busy until it is ended, and where a notebook says which random numbers it draws.
BUSY = "while True: pass"
SEEDED = re.compile(r"\b(manual_seed|default_rng)\((\d+)\)")


@pytest.fixture
def load():
    there = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    yield
    for process in there:
        process.kill()
        process.wait()


if LESSONS > 1:  # in `make test-full`

    @pytest.mark.usefixtures("load")
    @pytest.mark.parametrize("time", range(1, LESSONS))
    @pytest.mark.parametrize("path", [path for path in NOTEBOOKS if "course" in path.parts], ids=lambda p: p.stem)
    def test_a_lesson_runs_under_load_with_other_random_numbers(path, time, tmp_path, monkeypatch):
        monkeypatch.setenv("PASSLAB_PROGRESS", str(tmp_path / "progress.json"))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        nb = notebooks.notebook(path)
        for cell in nb.cells:
            cell.source = SEEDED.sub(rf"\g<1>(\g<2> + {1000 * time})", cell.source)
        execute(nb, path.parent, timeout=900)


@pytest.mark.parametrize(
    "cell", ["import warnings\nwarnings.warn('ours')", "1 / 0", "from passlab import graph\n'\\d'.nothing"]
)
def test_a_notebook_that_warns_or_fails_is_caught(cell, tmp_path):
    with pytest.raises(Exception, match=r"UserWarning|ZeroDivisionError|AttributeError"):
        execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)]), tmp_path)
