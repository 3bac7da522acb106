"""Read the authored notebooks in `solutions/` as Python: which cell is which, and what an answer is made of.

A percent-format `.py` is valid Python from top to bottom, so it is parsed once and its statements are dealt out to the
cells by line number. Tracebacks and `inspect.getsource` therefore point at the real line of the real file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from autograder.authoring.edits import edit
from passlab import course_paths
from passlab.notebook.cells import BEGIN, END, Cell, cells, questions
from passlab.process.parsing import parse

ROOT = Path(__file__).resolve().parents[2]
#: Where notebooks, exercises and results are: here, or where PASSLAB_COURSE says.
COURSE = course_paths.course()
STUB = "raise NotImplementedError()"


class Region(NamedTuple):
    """How the lines around a part of a cell begin that learners do not get."""

    begin: str
    end: str


SOLUTION = Region(BEGIN, END)
HIDDEN_TESTS = Region("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
#: The rubric of a question that a person grades; its id follows in the first line.
RUBRIC = Region("### BEGIN MARK SCHEME", "### END MARK SCHEME")

_SOLUTION = re.compile(rf"^([ \t]*){SOLUTION.begin}.*?^[ \t]*{SOLUTION.end}[^\n]*$", re.S | re.M)


def blank(text: str) -> str:
    """Return `text` with every SOLUTION region replaced by the stub, as nbgrader does it."""
    return _SOLUTION.sub(lambda m: m[1] + STUB, text)


def settings() -> Any:
    """Return this course's settings for nbgrader, a traitlets `Config`, from `autograder/nbgrader_config.py`."""
    from traitlets.config import PyFileConfigLoader

    # In one piece: traitlets would expand a $ in a folder to search.
    return PyFileConfigLoader(str(ROOT / "autograder" / "nbgrader_config.py")).load_config()


def notebooks(day: str | None = None) -> list[Path]:
    """Return the authored notebooks (`.py`) of one day, or of all days."""
    return sorted((COURSE / "solutions").glob(f"{day or 'day*'}/*.py"))


@dataclass(frozen=True)
class Place:
    """The place of an exercise: its notebook, its answer cell and its check cell."""

    path: Path
    answer: Cell
    check: Cell
    answer_expr: ast.expr

    @property
    def notebook(self) -> str:
        return self.path.stem

    @property
    def day(self) -> str:
        return self.path.parent.name


@cache
def _places(path: Path, text: str) -> dict[str, Place]:
    return {name: Place(path, *question) for name, question in questions(text).items()}


def places(day: str | None = None) -> dict[str, Place]:
    """Return exercise id → its place, in the order of the notebooks."""
    return {name: place for path in notebooks(day) for name, place in _places(path, path.read_text()).items()}


def find(exercise_id: str) -> Place:
    """Return the place of an exercise. Raises KeyError if no notebook of its day checks it."""
    day = exercise_id.split(".")[0]
    cells = places(day)
    if exercise_id not in cells:
        raise KeyError(
            f"No notebook in solutions/{day} has a cell `check({exercise_id!r}, …)`. "
            f"It has: {', '.join(cells) or 'none'}."
        )
    return cells[exercise_id]


def _is_needed(statement: ast.stmt) -> bool:
    """Return whether answers may need a statement of an ordinary cell: an import, a definition, a CONSTANT."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return all(isinstance(t, ast.Name) and t.id.isupper() for t in targets)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)


@cache
def _above(path: Path, text: str, first: int) -> CodeType:
    """Return the code that an answer needs of the lines above its cell, compiled once for all answers in its place."""
    owner = {line: cell for cell in cells(text) for line in range(cell.first, cell.last + 1)}
    body = []
    for statement in ast.parse("\n".join(text.split("\n")[: first - 1])).body:
        cell = owner.get(statement.lineno)
        if cell and (cell.is_answer or _is_needed(statement)):
            body.append(statement)
    return compile(ast.Module(body, []), str(path), "exec")


def answer_of(exercise_id: str, text: str | None = None, changes: Iterable[tuple[str, str]] = ()) -> Any:
    """Return the reference answer to an exercise, made in a fresh namespace.

    Runs the imports, definitions and CONSTANTS of the cells above, the answer cells above, and its own answer cell.
    text: is run instead of the answer cell. changes: what `edits.edit` exchanges in it. Raises ValueError for a change
    that does not fit.
    """
    place = find(exercise_id)
    cell = place.answer
    tree = parse("\n" * (cell.first - 1) + (cell.text if text is None else text))
    for change in changes:
        try:
            edit(tree, *change)
        except ValueError as error:
            path = place.path.relative_to(COURSE)
            raise ValueError(f"in the answer to {exercise_id}, {path}:{cell.first}, {error}") from None
    namespace: dict[str, Any] = {"__name__": f"solutions.{place.day}.{place.notebook}"}
    exec(_above(place.path, place.path.read_text(), cell.first), namespace)
    exec(compile(tree, str(place.path), "exec"), namespace)
    return eval(compile(ast.Expression(place.answer_expr), str(place.path), "eval"), namespace)
