"""The proof of a notebook: every cell runs from a fresh kernel, this project's own warnings count as errors, and the
answers of `solutions/` have all points."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.authoring import notebooks, source
from passlab import exercises
from passlab.building import cache
from passlab.notebook.cells import check_call

#: Warnings that arise in a notebook's cells or in this project's code become errors; those inside other packages pass.
STRICT = 'import warnings\nwarnings.filterwarnings("error", module=r"(__main__|passlab|autograder)(\\.|$)")'


def execute(nb: NotebookNode, folder: Path, timeout: int = 300) -> NotebookNode:
    """Run a notebook in a folder, after a cell with `STRICT`; return it with its outputs, without that cell.

    timeout: seconds for each cell. Raises CellExecutionError where a cell fails.
    """
    from nbclient import NotebookClient

    nb.cells.insert(0, nbformat.v4.new_code_cell(STRICT))
    NotebookClient(nb, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    del nb.cells[0]
    return nb


def questions(nb: NotebookNode) -> list[str]:
    """Return the ids of the exercises whose answers a notebook checks for points."""
    checks = (c for c in nb.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("grade"))
    return [check_call(cell.source).exercise for cell in checks]


def cells(name: str) -> list[NotebookNode]:
    """Return the code cells of a notebook, "course/day01_graphs.py"."""
    return [cell for cell in notebooks.notebook(source.COURSE / name).cells if cell.cell_type == "code"]


def problems(name: str) -> list[str]:
    """Run a notebook, "course/day01_graphs.py", and return one sentence for each thing that went wrong.

    Its own progress file and one thread of OpenMP are set in the environment while it runs.
    """
    from nbclient.exceptions import CellExecutionError

    path = source.COURSE / name
    nb = notebooks.notebook(path)
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder, "progress.json")
        variables = {"PASSLAB_PROGRESS": str(progress), "OMP_NUM_THREADS": "1"}
        variables |= {cache.FOLDER: os.environ.get(cache.FOLDER) or str(source.ROOT / cache.PLACE)}
        before = {variable: os.environ.get(variable) for variable in variables}
        os.environ.update(variables)
        try:
            execute(nb, path.parent)
        except CellExecutionError as error:
            return [f"{name}: {error.ename}: {error.evalue}\n{error.traceback}"]
        except Exception as error:  # a cell took too long, or the kernel died
            return [f"{name}: {type(error).__name__}: {error}"]
        finally:
            for variable, value in before.items():
                os.environ.pop(variable) if value is None else os.environ.update({variable: value})
        points = json.loads(progress.read_text()) if progress.exists() else {}
    earned = {question: points.get(question, {}).get("points") for question in questions(nb)}
    return [
        f"{name}: {question} has {points} of {exercises.find(question).total:g} points"
        for question, points in earned.items()
        if points != exercises.find(question).total
    ]
