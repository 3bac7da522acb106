"""A class, from submissions to scores: each is read, run, judged, recorded, and then forgotten.

Several go at once, and no more of them are in memory. What is kept of each is a line for the table; the report takes
the rest from the gradebook.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nbformat.notebooknode import NotebookNode

from autograder import intake
from autograder.engine.data import Job, NotebookResult
from autograder.intake import Damaged, Submission
from autograder.notebooks import source_notebook

#: When learners handed in, beside their notebooks, as nbgrader's exchange writes it.
TIMESTAMP = "timestamp.txt"


class Grader(Protocol):
    """Whoever turns a job into a result: an Engine here, or a Cluster of them. `jobs`: how many at once."""

    jobs: int

    def grade(self, job: Job) -> NotebookResult: ...


@dataclass
class Paper:
    """A submission that has been read: its notebooks as they will be run, in nbgrader's form, and when it came in."""

    submission: Submission
    notebooks: dict[str, NotebookNode] = field(default_factory=dict)
    results: dict[str, NotebookResult] = field(default_factory=dict)
    timestamp: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return (self.submission.learner, self.submission.assignment)

    @property
    def failure(self) -> str:
        return next((result.failure for result in self.results.values() if result.failure), "")


def read(submission: Submission) -> Paper:
    """Read a submission. What cannot be read, and what had to be put right, is noted in the submission."""
    paper = Paper(submission)
    for name, path in sorted(submission.notebooks.items()):
        try:
            nb = intake.read(path)
        except Damaged as error:
            submission.notes.append(str(error))
            continue
        submission.notes += intake.repair(nb, source_notebook(submission.assignment, name))
        paper.notebooks[name] = nb
        paper.timestamp = paper.timestamp or _timestamp(path.with_name(TIMESTAMP))
    return paper


def _timestamp(path: Path) -> str:
    try:
        return intake.read_text(path, 200).strip()
    except Damaged:
        return ""


def grade(submission: Submission, grader: Grader, seed: int) -> Paper:
    """Read, run and judge one submission; its notebooks then hold outputs and points."""
    start = time.monotonic()
    paper = read(submission)
    for name, nb in paper.notebooks.items():
        authored = source_notebook(submission.assignment, name)
        job = intake.job(nb, authored, submission.learner, submission.assignment, name, seed)
        result = paper.results[name] = grader.grade(job)
        intake.fill(nb, result)
    paper.seconds = time.monotonic() - start
    return paper


def grade_all(
    submissions: Iterable[Submission], grader: Grader, seed_of: Callable[[Submission], int]
) -> Iterator[Paper]:
    """Grade submissions, `grader.jobs` at once, and give them back as they are done. No two wait to be taken."""
    waiting = iter(submissions)
    with ThreadPoolExecutor(grader.jobs) as pool:
        running = set()
        try:
            while True:
                for submission in waiting:
                    running.add(pool.submit(grade, submission, grader, seed_of(submission)))
                    if len(running) > grader.jobs:
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()
