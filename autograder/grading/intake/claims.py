"""Tell by its content which notebook of the course a submitted file is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from nbformat.notebooknode import NotebookNode

from autograder.authoring.notebooks import source_notebook
from autograder.grading.files import UnreadableError
from autograder.grading.intake.cells import grade_id
from autograder.grading.intake.contents import contents
from autograder.grading.reading import read
from passlab.notebook.cells import check_call

Place = tuple[str, str]


def place(path: Path, known: Mapping[str, set[str]]) -> Place | None:
    """Return the assignment and the name of the notebook of which a file has most checks; None if no one has most.

    Checks count by the exercise that they name, and where there are none, cells by their nbgrader ids.
    known: assignment → names of its notebooks.
    """
    try:
        nb = read(path)
    except UnreadableError:
        return None
    said = contents([cell.source for cell in nb.cells if cell.cell_type == "code"])
    checks = {cell.exercise for cell in said if cell.exercise}
    ids = {name for cell in nb.cells if (name := grade_id(cell))}
    places = [(assignment, name) for assignment in sorted(known) for name in sorted(known[assignment])]
    for marks, of in ((checks, _checks), (ids, _ids)):
        count = Counter({place: len(marks & of(*place)) for place in places})
        best = max(count.values(), default=0)
        first = [place for place in places if best and count[place] == best]
        if len(first) == 1:
            return first[0]
    return None


def _cells(assignment: str, name: str) -> list[NotebookNode]:
    """Return the cells of a notebook of the course; none if the course does not have it."""
    try:
        return source_notebook(assignment, name).cells
    except FileNotFoundError:
        return []


@cache
def _checks(assignment: str, name: str) -> frozenset[str]:
    """Return the exercises that a notebook of the course checks."""
    calls = (check_call(cell.source) for cell in _cells(assignment, name) if cell.cell_type == "code")
    return frozenset(call.exercise for call in calls if call)


@cache
def _ids(assignment: str, name: str) -> frozenset[str]:
    """Return the nbgrader ids of a notebook of the course."""
    return frozenset(filter(None, map(grade_id, _cells(assignment, name))))
