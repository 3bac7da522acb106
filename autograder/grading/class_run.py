"""Grade a class: each submission is read, run, judged, recorded, and then released from memory.

Only those being graded at once are in memory. The gradebook keeps the data for tables and the report.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from autograder.authoring.notebooks import source_notebook
from autograder.engine.data import Job, NotebookResult
from autograder.grading import intake
from autograder.grading.gradebook import GradebookError, StorageError, unwritten
from autograder.grading.intake import Submission
from autograder.grading.paper import GradedSubmission, read, write_submitted
from autograder.grading.recorder import Page, Recorder, digest
from autograder.grading.scores import Difference, Key, Run, differences
from passlab import exercises
from passlab.graph.registry import COMPILERS


class Grader(Protocol):
    """The interface of Engine and Cluster: turn a job into a result. `jobs`: how many at once. `ready`: the flavours
    whose processes have started, so that a notebook need not wait for them."""

    jobs: int
    unsafe: bool

    @property
    def ready(self) -> Collection[str]: ...

    def grade(self, job: Job) -> NotebookResult: ...


def grade(
    submission: Submission, grader: Grader, seed: int, submitted: Path, run_all: bool = False
) -> GradedSubmission:
    """Read, run and judge one submission; its notebooks then hold outputs and points.

    run_all: also run the cells of the course that nothing graded depends on. Whatever goes wrong with one submission
    (a bug here) is noted in it, and the class goes on. Raises StorageError if a disk is full.
    """
    try:
        return _grade(submission, grader, seed, submitted, run_all)
    except Exception as error:
        if isinstance(error, OSError) and isinstance(failure := unwritten(error), StorageError):
            raise failure from None
        traceback.print_exc()
        note = f"It could not be graded ({type(error).__name__}: {str(error)[:200]})."
        submission.notes.append(note)
        return GradedSubmission(submission, error=note)


def _grade(submission: Submission, grader: Grader, seed: int, submitted: Path, run_all: bool) -> GradedSubmission:
    paper = read(submission)
    write_submitted(paper, submitted)
    for name, nb in paper.notebooks.items():
        authored = source_notebook(submission.assignment, name)
        job = intake.job(nb, authored, submission.learner, submission.assignment, name, seed, run_all)
        result = paper.results[name] = grader.grade(job)
        intake.fill(nb, result)
    return paper


def by_day(submissions: Iterable[Submission]) -> dict[str, deque[Submission]]:
    """Return assignment → its submissions, in the order of the assignments, the smallest first: the first verdict of a
    day waits for its test cases, and need not wait for much else."""
    days: dict[str, deque[Submission]] = {}
    for submission in sorted(submissions, key=lambda submission: (submission.assignment, _size(submission))):
        days.setdefault(submission.assignment, deque()).append(submission)
    return days


def _size(submission: Submission) -> int:
    """Return the bytes of a submission's notebooks, as far as they can be told."""
    total = 0
    for path in submission.notebooks.values():
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _take(waiting: dict[str, deque[Submission]], ready: Collection[str], busy: Mapping[str, int]) -> Submission:
    """Remove and return the next submission.

    It is of a day whose processes have started; before any have, of one with the fewest compilers, since a compiler
    loads slowly. Of those days, one of which least submissions are being graded (`busy`: day → their number): what one
    of a day has had built need not be built for the next. Of those that have started, one with the most compilers:
    what takes longest does not come last, when there is nothing else to do beside it.
    """
    needs = {day: exercises.flavours([day]) for day in waiting}
    fewest = min(map(len, needs.values()))
    started = [day for day, names in needs.items() if all(name in ready for name in names)]
    days = started or [day for day, names in needs.items() if len(names) == fewest]
    day = min(days, key=lambda day: (busy.get(day, 0), -len({*COMPILERS} & {*needs[day]}) if started else 0))
    submission = waiting[day].popleft()
    if not waiting[day]:
        del waiting[day]
    return submission


def grade_all(
    submissions: Iterable[Submission],
    grader: Grader,
    seed_of: Callable[[Submission], int],
    submitted: Path,
    run_all: bool = False,
) -> Iterator[GradedSubmission]:
    """Grade submissions, `grader.jobs` at once, and yield each when done; at most one waits for the consumer."""
    waiting = by_day(submissions)
    with ThreadPoolExecutor(grader.jobs) as pool:
        running: dict[Future[GradedSubmission], str] = {}
        begun = False
        try:
            while True:
                while waiting and len(running) <= grader.jobs:
                    # The first verdict comes soonest if only one day's test cases have to be made for it.
                    submission = _take(waiting, grader.ready, Counter(running.values() if begun else ()))
                    future = pool.submit(grade, submission, grader, seed_of(submission), submitted, run_all)
                    running[future] = submission.assignment
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    begun = True
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


@dataclass
class Session:
    """One grading of a class.

    `submitted`: nbgrader's folder of that name. `page`: renders the feedback on a notebook. `advance`: called with each
    graded submission, or with None for one that this run had graded before. `run_all`: see `grade`. `failures`: reasons
    why submissions are not in the gradebook. `missed`: what could not be done with these: they could not be "read",
    "graded" or "recorded". `recorded`: how many this run has recorded. `answers`: (learner, question, source) of the
    answer cells. Methods that grade or record raise StorageError where nothing can be stored.
    """

    recorder: Recorder
    grader: Grader
    submitted: Path
    page: Page
    advance: Callable[[GradedSubmission | None], None] = lambda _: None
    run_all: bool = False
    failures: dict[Key, str] = field(default_factory=dict)
    missed: dict[Key, str] = field(default_factory=dict)
    recorded: int = 0
    answers: list[tuple[str, str, str]] = field(default_factory=list)

    def _papers(
        self, submissions: Iterable[Submission], seed_of: Callable[[Submission], int]
    ) -> Iterator[GradedSubmission]:
        for paper in grade_all(submissions, self.grader, seed_of, self.submitted, self.run_all):
            self.advance(paper)
            self.answers += paper.answers()
            if paper.failure or not paper.notebooks:
                reason = paper.failure or " ".join(paper.submission.notes) or "it holds no notebook"
                self._miss(paper.key, "graded" if paper.failure else "read", reason)
            else:
                yield paper

    def grade(self, submissions: Iterable[Submission], run: Run) -> int:
        """Grade and record what this run has not recorded yet; return how many it had recorded before."""
        recorded, todo, digests = self.recorder.digests(run), [], {}
        for submission in submissions:
            key = (submission.learner, submission.assignment)
            digests[key] = digest(submission)
            if recorded.get(key) == digests[key]:
                with self._only(key, "read"):
                    self.answers += () if submission.same_as else read(submission).answers()
                self.recorded += 1
                self.advance(None)
            else:
                todo.append(submission)
        graded = {id(submission) for submission in todo}
        of_group: dict[Key, list[Submission]] = {}
        for submission in todo:
            if submission.same_as and id(submission.same_as) in graded:
                of_group.setdefault((submission.same_as.learner, submission.assignment), []).append(submission)
        shared = {id(submission) for some in of_group.values() for submission in some}
        for paper in self._papers([one for one in todo if id(one) not in shared], lambda _: run.seed):
            for one in (paper, *(paper.shared(submission) for submission in of_group.pop(paper.key, ()))):
                with self._only(one.key):
                    if one is not paper:
                        write_submitted(one, self.submitted)
                        self.advance(one)
                    self.recorder.record(run, one, digests[one.key], self.page)
                    self.recorded += 1
        for key, some in of_group.items():  # what was handed in for these could not be graded
            for submission in some:
                self.advance(None)
                self._miss((submission.learner, submission.assignment), self.missed[key], self.failures[key])
        return len(digests) - len(todo)

    def _miss(self, key: Key, step: str, reason: str) -> None:
        self.missed[key], self.failures[key] = step, reason

    @contextlib.contextmanager
    def _only(self, key: Key, step: str = "recorded") -> Iterator[None]:
        """Note whatever goes wrong inside as the failure of this submission, and go on with the class."""
        try:
            yield
        except StorageError:
            raise
        except GradebookError as error:
            self._miss(key, step, str(error))
        except Exception as error:
            traceback.print_exc()
            self._miss(key, step, f"{', '.join(key)}: {type(error).__name__}: {str(error)[:200]}")

    def _stored_seed(self, submission: Submission, otherwise: int) -> int:
        seeds = (score.seed for score in self.recorder.latest(submission.learner, submission.assignment))
        return next((seed for seed in seeds if seed is not None), otherwise)

    def replay(self, submissions: Iterable[Submission]) -> list[Difference]:
        """Grade again on the same cases as last time; return the differences. Writes nothing."""
        known = [s for s in submissions if self.recorder.latest(s.learner, s.assignment)]
        changes = []
        for paper in self._papers(known, lambda s: self._stored_seed(s, 0)):
            with self._only(paper.key):
                new = [replace(score, points=score.auto) for score in self.recorder.preview(paper)]
                changes += differences({paper.key: self.recorder.latest(*paper.key)}, {paper.key: new})
        return changes

    def regrade(
        self, submissions: Iterable[Submission], run: Run, fresh: bool
    ) -> tuple[list[Difference], list[GradedSubmission]]:
        """Grade again, on last time's cases unless `fresh`; return what would change, and the papers to record."""
        before = self.recorder.scores()
        changes, papers = [], []
        for paper in self._papers(submissions, lambda s: run.seed if fresh else self._stored_seed(s, run.seed)):
            with self._only(paper.key):
                if own_changes := differences(before, {paper.key: self.recorder.preview(paper)}):
                    changes += own_changes
                    papers.append(paper)
        return changes, papers

    def record(self, papers: Iterable[GradedSubmission], run: Run) -> None:
        for paper in papers:
            with self._only(paper.key):
                self.recorder.record(run, paper, digest(paper.submission), self.page)
                self.recorded += 1
