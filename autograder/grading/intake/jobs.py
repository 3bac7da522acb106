"""Make the engine's job of a repaired notebook."""

from __future__ import annotations

import ast
from dataclasses import replace

from nbformat.notebooknode import NotebookNode

from autograder.engine import bounded_call
from autograder.engine.data import Cell, Job
from autograder.grading.intake.cells import grade_id, is_autograded, is_run, is_shown
from passlab.notebook.cells import check_call

#: The tag with which an author marks a cell that must always run.
RUNS = "runs"


def job(
    nb: NotebookNode,
    authored: NotebookNode,
    learner: str,
    assignment: str,
    notebook: str,
    seed: int,
    run_all: bool = False,
) -> Job:
    """Return the engine's job for a repaired notebook: its code cells in order, without blank ones.

    Unless `run_all` is set, cells of the course that nothing graded depends on are marked as idle.
    """
    known = {grade_id(cell): cell for cell in authored.cells if grade_id(cell)}
    cells = []
    for index, cell in enumerate(nb.cells):
        if not is_run(cell):
            continue
        name, exercise, answer = grade_id(cell), "", ""
        graded = name in known and is_autograded(known[name])
        if graded and (check := check_call(known[name].source)):
            exercise, answer, graded = check.exercise, ast.unparse(check.answer), False
        cells.append(Cell(index, name or cell.id, cell.source, exercise, answer, graded))
    if not run_all:
        cells = _mark_idle(cells, nb, authored)
    return Job(learner, assignment, notebook, tuple(cells), seed)


def _mark_idle(cells: list[Cell], nb: NotebookNode, authored: NotebookNode) -> list[Cell]:
    """Return the cells, with `idle` and `calls` set on those that may be skipped: always, or after a lost answer."""
    shown = {cell.source for cell in authored.cells if is_shown(cell) and RUNS not in cell.metadata.get("tags", ())}
    free = [cell.index for cell in cells if is_shown(nb.cells[cell.index])]
    course = [cell.index for cell in cells if cell.index in free and cell.source in shown]
    sources = [(cell.index, cell.answer if cell.exercise else cell.source) for cell in cells]
    checks = [cell.index for cell in cells if cell.exercise]
    planned = bounded_call.call("autograder.grading.idle:plan", sources, course, free, checks) or ((), ())
    never, calls = set(planned[0]), {at: tuple(answers) for at, answers in planned[1]}
    return [replace(cell, idle=cell.index in never, calls=calls.get(cell.index, ())) for cell in cells]
