"""A small course for tests of the gradebook: two notebooks with every kind of cell that nbgrader grades.

`make(folder)` gives nbgrader's settings for it, with the release entered; `paper` is a submission as the engine leaves
it: cells run, verdicts given. No learner code is run.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from traitlets.config import Config

from autograder.engine.data import NotebookResult, Ran, Verdict
from autograder.grading.gradebook import enter_release
from autograder.grading.intake import Submission
from autograder.grading.paper import GradedSubmission

TASK = "Describe it.\n=== BEGIN MARK SCHEME ===\none point\n=== END MARK SCHEME ==="
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def cell(name: str, source: str, points: float | None = None, markdown: bool = False, **kind: bool):
    """A cell with nbgrader's metadata; `kind`: grade, solution, task, locked."""
    meta = {"grade": False, "solution": False, "task": False, "locked": False} | kind
    meta |= {"grade_id": name, "schema_version": 3} | ({} if points is None else {"points": points})
    return (new_markdown_cell if markdown else new_code_cell)(source, id=name, metadata={"nbgrader": meta})


def check(name: str, points: float):
    return cell(f"{name}-check", f"check({name!r})", points, grade=True, locked=True)


def answer(name: str):
    return cell(name, f"### BEGIN SOLUTION\n{name} = 1\n### END SOLUTION", solution=True)


P1 = [
    new_markdown_cell("# Problems", id="title"),
    *(part for name in ("one", "two", "three", "four", "five") for part in (answer(name), check(name, 4))),
    cell("own", "assert one", 2, grade=True, locked=True),
    cell("essay", "Why?", 5, markdown=True, grade=True, solution=True),
    cell("code-by-hand", "pass", 3, grade=True, solution=True),
    cell("sketch", TASK, 6, markdown=True, task=True, locked=True),
    cell("given", "GIVEN = 1", locked=True),
]
P2 = [answer("bonus"), check("bonus", 0), answer("six"), check("six", 1)]  # a bonus is extra credit, or nothing


def make(folder: Path, db_url: str = "") -> Config:
    """Settings for nbgrader in `folder`, with the release of assignment ps1 (p1, p2) in the gradebook."""
    for name, cells in (("p1", P1), ("p2", P2)):
        path = folder / "solutions/ps1" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(new_notebook(cells=copy.deepcopy(cells), metadata={"kernelspec": KERNEL}), path)
    config = settings(folder, db_url)
    enter_release(config, ["ps1"])
    return config


def settings(folder: Path, db_url: str = "") -> Config:
    config = Config()
    course = config.CourseDirectory
    course.root, course.course_id = str(folder), "passlab"
    course.source_directory = "solutions"
    for name in ("submitted", "autograded", "feedback"):
        course[f"{name}_directory"] = f"run/{name}"
    course.db_url = db_url or f"sqlite:///{folder / 'run/gradebook.db'}?timeout=60"
    (folder / "run").mkdir(parents=True, exist_ok=True)
    return config


def paper(
    config: Config, learner: str, points: dict[str, float | str], timestamp: str = "", seed: int = 7
) -> GradedSubmission:
    """A submission. `points`: question → points, or the error that took them; notebooks without any are not handed in.

    A question by hand has the learner's text instead.
    """
    found = GradedSubmission(Submission(learner, "ps1"), timestamp=timestamp)
    for name in ("p1", "p2"):
        nb = nbformat.read(Path(config.CourseDirectory.root, f"run/release/ps1/{name}.ipynb"), as_version=4)
        ids = {c.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-check") for c in nb.cells}
        if not ids & set(points):
            continue
        result = NotebookResult(learner, "ps1", name, seed, seconds=0.25)
        for index, c in enumerate(nb.cells):
            _answer(c, index, result, points)
        found.notebooks[name], found.results[name] = nb, result
    return found


def _answer(c, index: int, result: NotebookResult, points: dict[str, float | str]) -> None:
    meta = c.metadata.get("nbgrader", {})
    name = meta.get("grade_id", "").removesuffix("-check")
    given = points.get(name)
    if meta.get("solution") and given is not None:
        c.source = given if isinstance(given, str) and meta.get("grade") else f"{name} = {given!r}"
    if c.cell_type != "code":
        return
    outputs, error = [], given if isinstance(given, str) and not meta.get("solution") else ""
    if meta.get("grade") and not meta.get("solution"):
        if error:
            outputs = [new_output("error", ename="E", evalue=error, traceback=[error])]
        elif name != "own":
            data = {"text/plain": repr(min(float(given or 0), float(meta["points"])))}
            outputs = [new_output("execute_result", execution_count=1, data=data)]
    c.outputs = outputs
    if name != "own" and meta.get("grade") and not meta.get("solution"):
        earned = 0.0 if error else float(given or 0)
        verdict = Verdict(f"ps1.{name}", earned, meta["points"], result.seed, {"did": earned > 0}, crash=error)
        result.verdicts[index] = verdict
    else:
        result.ran[index] = Ran(outputs=[dict(output) for output in outputs], error=error)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
