"""Read a submission, and mark its notebooks."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import nbformat
from nbformat.notebooknode import NotebookNode
from nbformat.v4.rwbase import split_lines, strip_transient
from nbgrader import utils

from autograder.authoring.notebooks import source_notebook
from autograder.engine.data import NotebookResult
from autograder.grading import files, intake
from autograder.grading.gradebook import writing
from autograder.grading.intake import TIMESTAMP, Submission, UnreadableError
from passlab import exercises
from passlab.judge import listed

#: The longest answer, in characters, that is kept as it is.
LONGEST = 50_000
#: The most characters of a time.
MAX_TIME = 200
#: A time zone that is a path: dateutil would open the file.
_PATH = re.compile(r"(^|[\s:])/|\.\.")


@dataclass
class GradedSubmission:
    """A submission that has been read: its notebooks as they will run, in nbgrader's form, and its time, if known.

    `error`: why it could not be graded.
    """

    submission: Submission
    notebooks: dict[str, NotebookNode] = field(default_factory=dict)
    results: dict[str, NotebookResult] = field(default_factory=dict)
    timestamp: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.submission.learner, self.submission.assignment)

    @property
    def failure(self) -> str:
        return self.error or next((result.failure for result in self.results.values() if result.failure), "")

    def shared(self, submission: Submission) -> GradedSubmission:
        """Return the same for another member of the learner's group."""
        results = {name: replace(result, learner=submission.learner) for name, result in self.results.items()}
        return GradedSubmission(submission, self.notebooks, results, self.timestamp, self.error)

    def answers(self) -> Iterator[tuple[str, str, str]]:
        """Yield (learner, exercise, source) of the answer cells; a digest for a long source: a class keeps them all."""
        for nb in self.notebooks.values():
            for cell in nb.cells:
                meta = cell.metadata.get("nbgrader", {})
                if meta.get("solution") and cell.cell_type == "code":
                    long = len(cell.source) > LONGEST and hashlib.sha256(cell.source.encode()).hexdigest()
                    exercise = f"{self.submission.assignment}.{meta['grade_id']}"
                    yield self.submission.learner, exercise, long or cell.source


def read(submission: Submission) -> GradedSubmission:
    """Read a submission. Files that cannot be read, and repairs, are noted in the submission."""
    if submission.undecided:
        return GradedSubmission(submission, error=submission.undecided)
    paper = GradedSubmission(submission)
    for name, path in sorted(submission.notebooks.items()):
        try:
            nb = intake.read(path)
        except UnreadableError as error:
            submission.note(str(error))
            continue
        if damaged := nb.metadata.pop("damaged", None):
            submission.note(
                f"{path.name}: a character that is not valid text, such as half of an emoji, was replaced by a question"
                f" mark in cell{'s' * (len(damaged) > 1)} {listed(list(map(str, damaged)))}."
            )
        for note in intake.repair(nb, source_notebook(submission.assignment, name)):
            submission.note(note)
        paper.notebooks[name] = nb
    paper.timestamp = _latest(submission)
    return paper


def when(timestamp: str) -> datetime | None:
    """Return the time in the text of a timestamp.txt, in UTC, or None if it has no valid one."""
    text = timestamp.strip()
    if not text or len(text) > MAX_TIME or _PATH.search(text):
        return None
    try:
        return utils.parse_utc(text)
    except Exception:  # the parser guesses, and raises what it meets on the way
        return None


def _latest(submission: Submission) -> str:
    """Return the latest of the valid times of a submission, as it is written; "" without one. Note the others."""
    texts = []
    for path in submission.times:
        try:
            texts.append(files.read_bytes(path).decode("utf-8-sig", "replace").strip())
        except UnreadableError as error:
            if os.path.lexists(path):
                submission.note(f"{error} This submission counts as being on time.")
    times = {text: time for text in texts if (time := when(text))}
    for text in texts:
        if text and text not in times:
            submission.note(
                f"{TIMESTAMP} says {files.printable(text)!r}, which is not a time such as 2026-11-26 10:00:00 UTC: "
                "this submission counts as being on time."
            )
    return max(times, key=lambda text: times[text], default="")


def written(nb: NotebookNode) -> str:
    """Return a notebook as the text of its file, as `nbformat.v4.writes` does in three times the time.

    Half a character stays half a character, which has no encoding: `errors="replace"` writes a question mark.
    """
    copy = strip_transient(split_lines(nbformat.from_dict(msgspec.to_builtins(nb))))
    try:
        return msgspec.json.format(msgspec.json.encode(copy, order="sorted"), indent=1).decode() + "\n"
    except UnicodeEncodeError:  # half a character, in an output or a message
        return nbformat.v4.writes(nb) + "\n"


def write_submitted(paper: GradedSubmission, folder: Path) -> None:
    """Copy the submission to where nbgrader expects it, so that its commands and formgrader's buttons work."""
    target = folder / paper.submission.learner / paper.submission.assignment
    target.mkdir(parents=True, exist_ok=True)
    for name, nb in paper.notebooks.items():
        with writing(target / f"{name}.ipynb"):
            (target / f"{name}.ipynb").write_text(written(nb), encoding="utf-8")
    if paper.timestamp:
        with writing(target / TIMESTAMP):
            (target / TIMESTAMP).write_text(paper.timestamp, encoding="utf-8")
    elif target / TIMESTAMP not in paper.submission.times:  # of an earlier grading
        (target / TIMESTAMP).unlink(missing_ok=True)


class Mark(NamedTuple):
    """The points of a question, extra credit included (None until a person has graded it), and the most it can give.

    `stretch`: all of them are extra credit.
    """

    points: float | None
    most: float
    stretch: bool = False


@dataclass(frozen=True)
class Marks:
    """The marks of a notebook. `points`: grade id → its mark. `comments`: grade id → a grader's comment."""

    points: Mapping[str, Mark] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    late_penalty: float = 0.0

    @property
    def most(self) -> float:
        """The points without extra credit."""
        return sum(mark.most for mark in self.points.values() if not mark.stretch)

    @property
    def most_extra(self) -> float:
        """The most extra credit."""
        return sum(mark.most for mark in self.points.values() if mark.stretch)

    @property
    def core(self) -> float:
        """The points that the learner got, without those for stretch questions."""
        return sum(mark.points or 0.0 for mark in self.points.values() if not mark.stretch)

    @property
    def extra(self) -> float:
        """The points that the learner got for stretch questions."""
        return sum(mark.points or 0.0 for mark in self.points.values() if mark.stretch)

    @property
    def total(self) -> str:
        return total(self.core, self.most, self.extra, self.most_extra)


def total(core: float, most: float, extra: float, most_extra: float) -> str:
    """Return "4 of 9 points", "4 of 9 points and 5 of 8 extra", or, of extra credit alone, "5 of 8 extra points"."""
    bonus = f"{round(extra, 2):g} of {round(most_extra, 2):g} extra"
    if most_extra and not most:
        return f"{bonus} points"
    return f"{round(core, 2):g} of {round(most, 2):g} points" + (f" and {bonus}" if extra else "")


def question(cell: str) -> str:
    """Return the question that a check cell belongs to."""
    return cell.removesuffix("-check")


def extra_credit(assignment: str, cell: str) -> float:
    """Return the most extra credit that a check cell gives; 0 for a core question, and for one that is not ours."""
    return exercises.extra_credit(f"{assignment}.{question(cell)}")


def marks(nb: NotebookNode, result: NotebookResult) -> Marks:
    """Return the marks of automatic grading alone, before a person grades the notebook."""
    by_question: dict[str, Mark] = {}
    for index, cell in enumerate(nb.cells):
        meta = cell.metadata.get("nbgrader") or {}
        if meta.get("grade") or meta.get("task"):
            verdict, ran, points = result.verdicts.get(index), result.ran.get(index), None
            if verdict:
                points = verdict.points
            elif ran and not meta.get("solution"):
                points = 0.0 if ran.error or ran.died else float(meta["points"])
            extra = extra_credit(result.assignment, meta["grade_id"])
            by_question[meta["grade_id"]] = Mark(points, extra or float(meta.get("points", 0)), bool(extra))
    return Marks(by_question)
