"""Running submitted notebooks, with nbgrader's own executor and gradebook.

Which notebook is run how is decided here and in `preprocessors`; what an answer is worth is decided in `grading`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

from autograder.grading import VERDICT

HERE = Path(__file__).resolve().parent


def settings() -> Config:
    """This course's settings for nbgrader, from `nbgrader_config.py` beside this file."""
    return PyFileConfigLoader("nbgrader_config.py", path=str(HERE)).load_config()


class Failed(Exception):
    """nbgrader gave up on something. The message says on what and why."""


class _Last(logging.Handler):
    """Remembers the warnings and errors of nbgrader's log, to say in one sentence what went wrong."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def reason(self) -> str:
        """The last line of the last traceback; without one, the last message."""
        tracebacks = [line for line in self.lines if line.startswith("Traceback")]
        last = (tracebacks or self.lines or ["nbgrader said nothing"])[-1]
        return last.strip().split("\n")[-1][:300]


def _run(converter_class, config: Config, assignment: str, learner: str = ".", **more) -> None:
    """Run one of nbgrader's converters on one assignment of one learner, quietly. Raises Failed."""
    course = CourseDirectory(config=config, assignment_id=assignment, student_id=learner)
    converter = converter_class(coursedir=course, config=config, force=True, **more)
    last = _Last()
    log, handlers = converter.log, converter.log.handlers
    propagate, log.handlers, log.propagate = log.propagate, [last], False
    try:
        converter.start()
    except NbGraderException:
        raise Failed(last.reason()) from None
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {str(error)[:300]}") from None
    finally:
        log.handlers, log.propagate = handlers, propagate


def enter_release(config: Config, assignments: list[str]) -> None:
    """Enter the questions of these assignments, with their hidden tests, into the gradebook. Raises Failed."""
    config = Config(config)
    run = config.CourseDirectory.submitted_directory.removesuffix("/submitted")
    config.CourseDirectory.release_directory = f"{run}/release"
    for assignment in assignments:
        _run(GenerateAssignment, config, assignment)


def enter_learners(config: Config, learners: Iterable[str]) -> None:
    """Enter learners into the gradebook, where they are not in it: two processes that do it at once get in each
    other's way when one learner handed in several assignments."""
    course = CourseDirectory(config=config)
    with Gradebook(course.db_url, course.course_id) as gradebook:
        for learner in sorted(set(learners)):
            gradebook.update_or_create_student(learner)


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
        _run(Autograde, config, assignment, learner)
        result.scores = scores(config, learner, assignment)
        _run(GenerateFeedback, config, assignment, learner)
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
