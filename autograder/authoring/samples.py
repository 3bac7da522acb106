"""Write the sample class, one learner for each kind of submission: `python -m autograder.authoring.samples`.

Every notebook is the released one with answer cells filled in: from `solutions/`, with wrong answers, or with one
that crashes or never ends. Each kind is handed in where it shows something new: a crash once for each compiler, an
endless loop and a damaged file once. `passlab grade` builds the class; it is not under version control.
"""

from __future__ import annotations

import ast
import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import nbformat

from autograder.authoring import answers, source
from autograder.authoring.notebooks import source_notebook
from passlab import exercises
from passlab.notebook.cells import questions, unmarked

FOLDER = "autograder/samples"
#: Where an answer cannot import from while it is graded.
_WITHHELD = ("passlab.exercises", "autograder")

#: An answer cell for a place, or None to leave the stub. Called with the place's number in its notebook, from 0.
Fill = Callable[[int, str, source.Place], str | None]


def reference_text(place: source.Place) -> str:
    """Return the answer cell as in `solutions/`, without the marks around the answer."""
    return unmarked(place.answer.text)


def names_of(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    return {t.id for t in ast.walk(statement) if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}


def wrong_text(exercise: str, answer_expr: ast.expr) -> str | None:
    """Return the first wrong answer of an exercise that a learner could have typed: under the expected name, with what
    it uses of its module. None where there is none.

    It is read from the text, because the modules need several compilers and a process can hold only one TVM.
    """
    path = source.COURSE / Path(*answers.module_name(exercise).split(".")).with_suffix(".py")
    if not path.is_file():
        return None
    statements = [
        s
        for s in ast.parse(path.read_text(encoding="utf-8")).body
        if not (isinstance(s, ast.ImportFrom) and s.module in ("autograder.authoring.answers", "__future__"))
    ]
    definitions = {name: statement for statement in statements for name in names_of(statement)}
    for answer in statements:
        if isinstance(answer, ast.FunctionDef) and any(_is_mark(d, "wrong") for d in answer.decorator_list):
            used = _needed_statements(answer, definitions)
            parts = [node for statement in used for node in ast.walk(statement)]
            if not any(
                isinstance(part, ast.ImportFrom) and (part.module or "").startswith(_WITHHELD) for part in parts
            ):
                for part in parts:
                    if isinstance(part, ast.FunctionDef | ast.ClassDef):
                        part.decorator_list = [d for d in part.decorator_list if not _is_mark(d, "right", "wrong")]
                name = ast.unparse(answer_expr)
                cell = [ast.unparse(s) for s in statements if s in used]
                return "\n\n\n".join([*cell, *([f"{name} = {answer.name}"] if name != answer.name else [])])
    return None


def _needed_statements(answer: ast.FunctionDef, definitions: dict[str, ast.stmt]) -> list[ast.stmt]:
    """Return the statements that an answer needs, itself among them, apart from its mark."""
    used, todo = [], [answer.name]
    while todo:
        statement = definitions.get(todo.pop())
        if statement is not None and statement not in used:
            used.append(statement)
            bare = copy.copy(statement)
            if isinstance(bare, ast.FunctionDef | ast.ClassDef):
                bare.decorator_list = [d for d in bare.decorator_list if not _is_mark(d, "right", "wrong")]
            names = [node for node in ast.walk(bare) if isinstance(node, ast.Name)]
            own = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {
                node.arg for node in ast.walk(bare) if isinstance(node, ast.arg)
            }
            todo += {n.id for n in names} - own
    return used


def _is_mark(decorator: ast.expr, *kinds: str) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id in kinds


def _partly(number: int, exercise: str, place: source.Place) -> str | None:
    """Return a right answer to the first question, a wrong one to the second, and none to the others."""
    if number > 1:
        return None
    wrong = wrong_text(exercise, place.answer_expr) if number else None
    return wrong or reference_text(place)


def _accident(body: str) -> Fill:
    """Return a filler for two questions: the first has an answer with this body, the second a right one."""

    def fill(number: int, exercise: str, place: source.Place) -> str | None:
        if number > 1:
            return None
        return reference_text(place) if number else f"def {ast.unparse(place.answer_expr)}(*given):\n{body}"

    return fill


class Learner(NamedTuple):
    """A learner of the class: how the answer cells are filled, and in which notebooks, of all (`path`)."""

    fill: Fill
    hands_in: Callable[[Path], bool] = lambda path: True


def _first_of_its_compiler(path: Path) -> bool:
    """Return whether a notebook is the first that needs its compiler: a crash shows nothing new in the others."""
    return path in {_flavour(other): other for other in reversed(source.notebooks())}.values()


def _flavour(path: Path) -> str:
    """Return the flavour of an authored notebook's exercises."""
    return next((exercises.find(name).flavour for name in questions(path.read_text(encoding="utf-8"))), "torch")


def _first(path: Path) -> bool:
    return path == source.notebooks()[0]


CLASS = {
    "perfect": Learner(lambda number, exercise, place: reference_text(place)),
    "untouched": Learner(lambda number, exercise, place: None),
    "partly-right": Learner(_partly),
    "crash": Learner(_accident("    import os\n\n    os._exit(1)"), _first_of_its_compiler),
    "endless-loop": Learner(_accident("    while True:\n        pass"), _first),
}
#: Hands in half of the file of a perfect notebook.
DAMAGED = Learner(CLASS["perfect"].fill, _first)


#: Who answers the questions that a person grades.
WRITERS = ("perfect", "partly-right")


def _prose_answers(path: Path) -> dict[str, str]:
    """Return the answers in prose of an authored notebook: grade id → text."""
    texts = {}
    for cell in source_notebook(path.parent.name, path.stem).cells:
        meta = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "markdown" and meta.get("solution"):
            texts[meta["grade_id"]] = unmarked(cell.source)
    return texts


def filled(path: Path, fill: Fill, prose: bool = False) -> str:
    """Return the text of a released notebook with its answer cells filled. path: the authored `.py`. prose: answer what
    a person grades, too. Reads the release in `exercises/`."""
    nb = nbformat.read(source.COURSE / "exercises" / path.parent.name / f"{path.stem}.ipynb", as_version=4)
    places = {
        exercises.whole(name): spot for name, spot in source.places(path.parent.name).items() if spot.path == path
    }
    cells = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in nb.cells}
    for number, (exercise, place) in enumerate(places.items()):
        if (text := fill(number, exercise, place)) is not None:
            cells[exercise.split(".")[1]].source = text
    for name, text in _prose_answers(path).items() if prose else ():
        cells[name].source = text
    return nbformat.writes(nb, version=nbformat.NO_CONVERT) + "\n"


def expected_files() -> dict[Path, str]:
    """Return every file of the sample class and its expected text. Reads the releases in `exercises/`."""
    files = {}
    for path in source.notebooks():
        place = Path(path.parent.name, f"{path.stem}.ipynb")
        for name, learner in CLASS.items():
            if learner.hands_in(path):
                files[source.COURSE / FOLDER / name / place] = filled(path, learner.fill, name in WRITERS)
        if DAMAGED.hands_in(path):
            text = filled(path, DAMAGED.fill)
            files[source.COURSE / FOLDER / "damaged" / place] = text[: len(text) // 2]
    return files


def out_of_step(files: dict[Path, str]) -> list[str]:
    """Return one sentence for each file that is missing, differs, or should not be there."""
    present = [p for p in (source.COURSE / FOLDER).rglob("*") if p.is_file()]
    problems = [f"{p.relative_to(source.COURSE)} is out of step" for p, text in files.items() if not _has_text(p, text)]
    return problems + [f"{p.relative_to(source.COURSE)} belongs to no sample" for p in present if p not in files]


def _has_text(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() == text.encode("utf-8")


def build() -> bool:
    """Rewrite the sample class if any of its files is outdated; return whether it was."""
    files = expected_files()
    if not out_of_step(files):
        return False
    shutil.rmtree(source.COURSE / FOLDER, ignore_errors=True)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return True


if __name__ == "__main__":
    print(f"wrote {FOLDER}" if build() else "The sample class was in step.")
