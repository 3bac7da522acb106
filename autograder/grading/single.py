"""Grade without a class: one notebook, or answers as Python files. No gradebook, no feedback, only data comes back."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from nbformat.notebooknode import NotebookNode

from autograder.authoring import source
from autograder.authoring.notebooks import source_notebook
from autograder.engine.data import Verdict
from autograder.grading import files, intake
from autograder.grading.class_run import Grader, grade
from autograder.grading.files import UnreadableError
from autograder.grading.intake import Submission, claims
from autograder.grading.intake.cells import grade_id, nbgrader_meta
from autograder.grading.paper import marks, question
from passlab import exercises
from passlab.judge import WORDS
from passlab.notebook.cells import check_call

#: The version of the JSON that this module makes: fields may be added, and none is renamed or dropped.
SCHEMA = 1
#: How the name of a file says which task it answers: day03.cse.py, or day03/channels_last.py.
_TASK = re.compile(r"(?:.*/)?(day\d\d)[./]([A-Za-z0-9_-]+)\.py")


def grade_notebook(path: Path, known: Mapping[str, set[str]], grader: Grader, seed: int) -> dict[str, Any]:
    """Grade one notebook and return the result as JSON data. Raises UnreadableError if it is none of the course's."""
    place = claims.place(path, known)
    if place is None:
        files.read_bytes(path)  # says what is wrong with the file
        raise UnreadableError(f"{path.name} has no check of a notebook of this course: {', '.join(sorted(known))}.")
    assignment, name = place
    with tempfile.TemporaryDirectory(prefix="passlab-") as scratch:
        paper = grade(Submission("learner", assignment, {name: path}), grader, seed, Path(scratch))
    if paper.failure or name not in paper.notebooks:
        raise UnreadableError(paper.failure or " ".join(paper.submission.notes))
    result, nb = paper.results[name], paper.notebooks[name]
    graded = marks(nb, result)
    verdicts = {grade_id(nb.cells[at]): verdict for at, verdict in result.verdicts.items()}
    questions = []
    for cell, mark in graded.points.items():
        row = {"question": question(cell), "points": mark.points, "of": mark.most, "extra": mark.stretch}
        questions.append(row | (_verdict(verdicts[cell]) if cell in verdicts else {}))
    return {
        "schema": SCHEMA,
        "assignment": assignment,
        "notebook": name,
        "core": {"points": graded.core, "of": graded.most},
        "extra": {"points": graded.extra, "of": graded.most_extra},
        "questions": questions,
        "notes": paper.submission.notes,
        "seed": seed,
        "sandboxed": not result.unsafe,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "exercise": verdict.exercise,
        "verdicts": {WORDS[name]: ok for name, ok in verdict.verdicts.items()},
        "attempted": verdict.attempted,
        "message": verdict.crash or verdict.message,
        "misconception": verdict.misconception,
        "seconds": round(verdict.seconds, 3),
    }


# Answers as Python files


def answers(folder: Path) -> dict[str, Path]:
    """Return task → its answer: the files below a folder that are called day03.cse.py or day03/cse.py.

    Raises KeyError for a file whose name is of that form and names no exercise.
    """
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.py")):
        if name := _TASK.fullmatch(path.relative_to(folder).as_posix()):
            files[exercises.find(f"{name[1]}.{name[2].replace('_', '-')}").id] = path
    return files


def tasks() -> list[str]:
    """Return the ids of all exercises, in the order of the course; a core comes before its whole exercise."""
    return [exercise.id for day in exercises.days() for exercise in exercises.of_day(day)]


def prompt(task: str) -> dict[str, Any]:
    """Return a task as it is put to learners: its text, the cell to be written, the name to define, and its points."""
    place, exercise = source.find(task), exercises.find(task)
    nb = source_notebook(place.day, place.notebook)
    at = next(i for i, cell in enumerate(nb.cells) if grade_id(cell) == exercises.whole(task).split(".")[1])
    texts: list[str] = []
    for cell in reversed(nb.cells[:at]):  # back to the heading of the exercise, with the cells that show something
        if grade_id(cell):
            break
        texts.insert(0, cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            break
    return {
        "schema": SCHEMA,
        "task": task,
        "title": exercise.title,
        "text": "\n\n".join(texts),
        "stub": source.blank(place.answer.text),
        "points": {WORDS[name]: points for name, points in exercise.points.items()},
        "extra": exercise.stretch,
        "seconds": exercise.seconds,
    }


def judge_answers(
    files: Mapping[str, Path], chosen: Iterable[str], grader: Grader, seed: int
) -> Iterator[dict[str, Any]]:
    """Judge answers, `grader.jobs` at once, and yield one result for each task in their order.

    files: exercise → file; the core of an exercise is answered by the same file.
    """
    chosen = list(chosen)
    with ThreadPoolExecutor(grader.jobs) as pool:
        yield from pool.map(partial(_judge, files, grader, seed), chosen)


def _judge(answers: Mapping[str, Path], grader: Grader, seed: int, task: str) -> dict[str, Any]:
    exercise = exercises.find(task)
    row: dict[str, Any] = {
        "schema": SCHEMA,
        "task": task,
        "points": 0.0,
        "of": exercise.total,
        "extra": exercise.stretch,
    }
    path = answers.get(exercises.whole(task))
    if path is None:
        return row | {"attempted": False, "message": "There is no answer."}
    try:
        text = files.read_text(path)
    except UnreadableError as error:
        return row | {"attempted": False, "message": str(error)}
    place = source.find(task)
    authored = source_notebook(place.day, place.notebook)
    job = intake.job(_notebook(authored, task, text), authored, "answer", place.day, place.notebook, seed)
    result = grader.grade(job)
    if result.failure or not result.verdicts:
        return row | {"attempted": True, "message": result.failure or "It was not judged."}
    (verdict,) = result.verdicts.values()
    return row | {"points": verdict.points} | _verdict(verdict) | {"sandboxed": not result.unsafe}


def _notebook(authored: NotebookNode, task: str, text: str) -> NotebookNode:
    """Return the notebook of a task: the cells of the course, the answer, and its check."""
    nb = copy.deepcopy(authored)
    answer = exercises.whole(task).split(".")[1]
    cells = []
    for cell in nb.cells:
        meta = nbgrader_meta(cell)
        if cell.cell_type != "code":
            continue
        if meta.get("solution"):
            cell.source = text if grade_id(cell) == answer else ""
        elif meta.get("grade") and (check := check_call(cell.source)) and check.exercise != task:
            continue
        cells.append(cell)
    nb.cells = cells
    return nb


def line(row: Mapping[str, Any]) -> str:
    """Return a result as one line of JSON."""
    return json.dumps(row, ensure_ascii=False)
