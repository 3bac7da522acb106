"""Running submitted notebooks, with nbgrader's own executor and gradebook.

Which notebook is run how is decided here and in `preprocessors`; what an answer is worth is decided in `grading`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from autograder.gradebook import Failed, convert, settings
from autograder.grading import VERDICT


@dataclass
class Score:
    """One question of one submission, as the gradebook has it. `verdict`: what `grading.grade` said, if it ran."""

    question: str
    points: float | None
    total: float
    verdict: dict = field(default_factory=dict)
    error: str = ""


@dataclass
class Graded:
    """What came of one submission. `failure`: why it could not be graded; empty if it was."""

    learner: str
    assignment: str
    scores: list[Score] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0


def grade_submission(learner: str, assignment: str) -> Graded:
    """Run, grade and write the feedback of what lies in the submitted folder. Never raises for what a learner did."""
    start, config = time.perf_counter(), settings()
    result = Graded(learner, assignment)
    try:
        convert(Autograde, config, assignment, learner)
        result.scores = scores(config, learner, assignment)
        convert(GenerateFeedback, config, assignment, learner)
    except Failed as error:
        result.failure = str(error)
    result.seconds = time.perf_counter() - start
    return result


def scores(config: Config, learner: str, assignment: str) -> list[Score]:
    """The scores of a submission in the gradebook, in the order of the questions; [] if there is none."""
    course = CourseDirectory(config=config)
    found = []
    with Gradebook(course.db_url, course.course_id) as gradebook:
        try:
            submission = gradebook.find_submission(assignment, learner)
        except MissingEntry:
            return []
        for notebook in sorted(submission.notebooks, key=lambda n: n.name):
            folder = Path(course.format_path(course.autograded_directory, learner, assignment))
            said = _said(folder / f"{notebook.name}.ipynb")
            grades = {grade.name: grade for grade in notebook.grades}
            for name in sorted(grades, key=lambda n: list(said).index(n) if n in said else len(said)):
                grade = grades[name]
                points = None if grade.needs_manual_grade and grade.manual_score is None else grade.score
                verdict, error = said.get(name, ({}, "not handed in"))
                found.append(Score(name.removesuffix("-check"), points, grade.max_score, verdict, error))
    return found


def _said(notebook: Path) -> dict[str, tuple[dict, str]]:
    """Check cell → what `grading.grade` published there, and the error that cost it its points."""
    if not notebook.exists():
        return {}
    said, broken = {}, ""
    for cell in nbformat.read(notebook, as_version=4).cells:
        meta, outputs = cell.metadata.get("nbgrader", {}), cell.get("outputs", [])
        error = next((f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"), "")
        if meta.get("solution"):
            broken = f"its cell ended with {error}" if error else ""
        if meta.get("grade"):
            verdict = next((o.data[VERDICT] for o in outputs if VERDICT in o.get("data", {})), {})
            said[meta["grade_id"]] = (dict(verdict), (broken or error) if error else "")
            broken = ""
    return said


def grade_quietly(task: tuple[str, str]) -> Graded:
    """`grade_submission` for a worker process: what nbgrader and the kernels print goes nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)
    return grade_submission(*task)
