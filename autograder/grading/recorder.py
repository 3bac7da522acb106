"""The recorder: the only part of grading that writes scores to the gradebook.

One submission (all notebooks of one learner for one assignment) is recorded in one transaction: nbgrader's tables get
what `nbgrader autograde` would write, and two tables of this course get the seed and the verdicts behind the scores.
The files are written before the transaction ends, so a submission that is marked as done has all its files; a
submission that a kill interrupted is recorded again.

    with Recorder(source.settings()) as recorder:
        run = recorder.begin()
        done = recorder.digests(run)
        ...
        recorder.record(run, paper, digest(submission))
        recorder.finish(run)
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from nbformat.notebooknode import NotebookNode
from nbgrader import utils
from nbgrader.api import Gradebook, SubmittedNotebook, new_uuid
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties
from sqlalchemy import Connection, bindparam, create_engine, select
from traitlets.config import Config

from autograder.authoring.answers import SEED_BITS
from autograder.engine.data import NotebookResult, Verdict
from autograder.grading import scores
from autograder.grading.files import UnreadableError, read_bytes
from autograder.grading.gradebook import (
    INSERT,
    TABLES,
    GradebookError,
    add_learners,
    enter_names,
    place,
    prepare,
    transaction,
    unwritten,
    writing,
)
from autograder.grading.intake import TIMESTAMP, Submission
from autograder.grading.paper import Marks, extra_credit, when, written
from autograder.grading.roster import Learner
from autograder.grading.scores import (
    EXTENSION,
    NOTEBOOK,
    OWN,
    RUN,
    SCORE,
    Key,
    Run,
    Score,
    question,
    result_text,
    verdict_text,
)

if TYPE_CHECKING:
    from autograder.grading.paper import GradedSubmission

#: Renders the feedback on a notebook, with what was repaired; what it returns makes the page of the marks
#: (`feedback.draft`).
Page = Callable[[NotebookNode, NotebookResult, Sequence[str]], Callable[[Marks], str]]


def digest(submission: Submission) -> str:
    """Return a fingerprint of a submission: the bytes of its notebooks and of its times."""
    digest = hashlib.sha256()
    for name, path in [*sorted(submission.notebooks.items()), *((TIMESTAMP, time) for time in submission.times)]:
        try:
            data = read_bytes(path)
        except UnreadableError as error:
            data = str(error).encode("utf-8", "replace")
        digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
    digest.update(submission.undecided.encode("utf-8", "replace"))
    return digest.hexdigest()[:32]


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


class Entries(NamedTuple):
    """What a leaderboard needs to know: submissions by learner (`scores.handed_in`), who was late, the last seed."""

    handed_in: dict[str, list[tuple]]
    late: set[str]
    last_seed: int | None


class _Assignment(NamedTuple):
    """An assignment in nbgrader's gradebook. `cells`: notebook id → (name, {(cell name, kind): cell})."""

    id: str
    duedate: datetime | None
    cells: dict[str, tuple[str, dict[tuple[str, str], _Cell]]]


@dataclass
class _Cell:
    """A cell of an assignment in nbgrader's gradebook: a grade, a task, or a solution with its comment.

    `extra`: the most extra credit that it gives, which `max_score` does not contain.
    """

    id: str
    kind: str
    max_score: float
    checksum: str
    extra: float = 0.0

    @property
    def total(self) -> float:
        """The most points of either kind: a stretch question gives extra credit only, and others none."""
        return self.extra or self.max_score


class Recorder:
    """The gradebook and the folder of autograded notebooks of one course, as configured for nbgrader."""

    def __init__(self, config: Config):
        prepare(config, OWN)
        self.config = config
        self.course = CourseDirectory(config=config)
        self.folder = str(Path(self.course.root, self.course.autograded_directory).resolve().parent)
        self.late = AssignLatePenalties(config=config)
        self.place = place(config)
        self.engine = create_engine(self.course.db_url, pool_pre_ping=True)  # a server may have been restarted

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.engine.dispose()

    def _transaction(self) -> AbstractContextManager[Connection]:
        return transaction(self.config, self.engine)

    # Runs

    def begin(self, seed: int | None = None) -> Run:
        """Return this folder's unfinished run, unless `seed` differs from its seed; otherwise start a new one."""
        unfinished = select(RUN).where(RUN.c.folder == self.folder, RUN.c.finished.is_(None))
        with self._transaction() as db:
            row = db.execute(unfinished).one_or_none()
            if row and seed not in (None, row.seed):
                db.execute(RUN.update().where(RUN.c.id == row.id).values(finished=_now()))
                row = None
            if row is None:
                fresh = {"id": new_uuid(), "folder": self.folder, "started": _now()}
                fresh["seed"] = secrets.randbits(SEED_BITS) if seed is None else seed
                insert: Any = INSERT[db.dialect.name](RUN)
                db.execute(insert.on_conflict_do_nothing(), fresh)
                row = db.execute(unfinished).one()
        return Run(row.id, row.seed, row.started)

    def scratch_run(self, seed: int) -> Run:
        """Return a run for single submissions, which is finished from the start, so that it is never resumed."""
        run = Run(new_uuid(), seed, _now())
        with self._transaction() as db:
            row = {"id": run.id, "folder": self.folder, "seed": seed, "started": run.started, "finished": run.started}
            db.execute(RUN.insert(), row)
        return run

    def digests(self, run: Run) -> dict[Key, str]:
        """Return what this run has already recorded: (learner, assignment) → digest of the submission."""
        c = NOTEBOOK.c
        with self._transaction() as db:
            rows = db.execute(select(c.learner, c.assignment, c.digest).where(c.run == run.id)).all()
        return {(row.learner, row.assignment): row.digest for row in rows}

    def finish(self, run: Run) -> None:
        """Mark a run as complete; the next one draws new cases."""
        with self._transaction() as db:
            db.execute(RUN.update().where(RUN.c.id == run.id, RUN.c.finished.is_(None)).values(finished=_now()))

    def enter(self, roster: Iterable[Learner]) -> None:
        """Enter the names and addresses of learners, which nbgrader and formgrader then show."""
        with self._transaction() as db:
            enter_names(db, roster)

    def set_due(self, assignment: str, time: datetime) -> None:
        """Set the due date of an assignment, in UTC."""
        with Gradebook(self.course.db_url, self.course.course_id) as gradebook:
            gradebook.update_or_create_assignment(assignment, duedate=time)

    def extend(self, assignment: str, learner: str, days: float) -> bool:
        """Give a learner this many days more than the due date says, instead of an earlier extension. Return whether
        anything was handed in yet: grading again then counts them."""
        key = {"learner": learner, "assignment": assignment}
        submitted, assigned = TABLES["submitted_assignment"], TABLES["assignment"]
        with self._transaction() as db:
            db.execute(EXTENSION.delete().filter_by(**key))
            db.execute(EXTENSION.insert(), key | {"days": days})
            of = select(assigned.c.id).where(assigned.c.name == assignment).scalar_subquery()
            of_learner = (submitted.c.assignment_id == of) & (submitted.c.student_id == learner)
            changed = db.execute(submitted.update().where(of_learner).values(extension=timedelta(days=days)))
        return bool(changed.rowcount)

    # Writing

    def record(self, run: Run, paper: GradedSubmission, digest: str, page: Page | None = None) -> None:
        """Write a graded submission, all or nothing: its scores, its notebooks, and a feedback page for each.

        Raises GradebookError for a submission that was not graded, for an assignment that is not in the gradebook, and
        if the gradebook or a file cannot be written; StorageError, if no other can be written either.
        """
        notebooks, notes = paper.notebooks if page else {}, paper.submission.notes
        drafts = {name: page(nb, paper.results[name], notes) for name, nb in notebooks.items() if page}
        try:
            with self._transaction() as db:
                self._write(db, run, paper, digest)
                marks = scores.marks(db, *paper.key) if drafts else {}
                self._write_files(paper, {name: draft(marks[name]) for name, draft in drafts.items()})
        except OSError as error:
            raise unwritten(error) from None

    def note(self, run: Run, learner: str, nb: NotebookNode, result: NotebookResult) -> None:
        """Write the verdicts on a notebook whose grades nbgrader itself writes."""
        with self._transaction() as db:
            cells = self._assignment(db, result.assignment).cells
            known = next(known for name, known in cells.values() if name == result.notebook)
            scored, _ = _assess(nb, result, known)
            totals = {name: cell.total for (name, _), cell in known.items()}
            entered = scores.automatic_extra(db, learner, result.assignment)
            stored, extra = [], []
            for row in db.execute(scores.grades(learner, result.assignment)):
                if row.notebook == result.notebook and (auto := scored.get(row.cell)):
                    credit, own_extra = auto.extra(row.extra, entered.get((row.notebook, question(row.cell))))
                    extra.append({"row": row.id, "extra_credit": credit})
                    stored.append(auto.row | {"notebook": row.notebook, "total": totals[row.cell], "extra": own_extra})
            _update(db, "grade", extra)  # of which nbgrader knows only what people give
            _keep(db, run, (learner, result.assignment), {result.notebook: result}, "", stored)

    def preview(self, paper: GradedSubmission) -> list[Score]:
        """Return the scores that recording a submission now would give, without writing. Raises GradebookError."""
        with self._transaction() as db:
            self._write(db, Run("preview", 0, _now()), paper, "")
            preview = scores.scores(db, *paper.key)[paper.key]
            db.rollback()
        return preview

    def _write(self, db: Connection, run: Run, paper: GradedSubmission, digest: str) -> None:
        learner, assignment = paper.key
        if paper.failure or not paper.notebooks:
            raise GradebookError(f"{learner}, {assignment}: {paper.failure or 'none of its notebooks could be read'}")
        # Two graders with the same submission take turns: on SQLite from this first write, elsewhere by a row lock.
        add_learners(db, [learner])
        student = TABLES["student"].c
        db.execute(select(student.id).where(student.id == learner).with_for_update())

        id, duedate, cells = self._assignment(db, assignment)
        if unknown := set(paper.notebooks) - {name for name, _ in cells.values()}:
            raise GradebookError(
                f"{learner}, {assignment}: the gradebook has no notebook {', '.join(sorted(unknown))}."
            )
        submission = _submission(db, id, learner, when(paper.timestamp), scores.extension(db, learner, assignment))
        notebooks = _rows(db, "submitted_notebook", "assignment_id", [submission.id], "notebook_id")
        row_of = {notebook: notebooks.get((notebook,)) for notebook in cells}
        fresh = [
            {"id": new_uuid(), "assignment_id": submission.id, "notebook_id": notebook, "flagged": False}
            for notebook, row in row_of.items()
            if row is None
        ]
        _insert(db, "submitted_notebook", fresh)
        ids = {notebook: row.id for notebook, row in row_of.items() if row}
        ids |= {row["notebook_id"]: row["id"] for row in fresh}
        grades = _rows(db, "grade", "notebook_id", ids.values(), "notebook_id", "cell_id")
        comments = _rows(db, "comment", "notebook_id", ids.values(), "notebook_id", "cell_id")

        entered = scores.automatic_extra(db, learner, assignment)
        stored: list[Any] = []
        new_grades: dict[Any, Any] = {}
        new_comments: dict[Any, Any] = {}
        for notebook, (name, known) in cells.items():
            handed_in = name in paper.notebooks
            if handed_in:
                scored, remarks = _assess(paper.notebooks[name], paper.results[name], known)
            else:
                scored, remarks = _zeros(known, run.seed), {}
            for (cell, kind), entry in known.items():
                at = (ids[notebook], entry.id)
                if kind != "SolutionCell":
                    auto, old = scored.get(cell), grades.get(at)
                    manual = old.manual_score if old and handed_in else None
                    new_grades[at] = None
                    if auto:
                        credit = old and old.extra_credit
                        extra, own_extra = auto.extra(credit, entered.get((name, question(cell))))
                        new_grades[at] = auto.grade(manual, extra)
                        stored.append(auto.row | {"notebook": name, "total": entry.total, "extra": own_extra})
                if kind != "GradeCell":
                    new_comments[at] = {"auto_comment": remarks[cell]} if cell in remarks else None
        _put(db, "grade", grades, new_grades, {"auto_score": None, "needs_manual_grade": True, "extra_credit": None})
        _put(db, "comment", comments, new_comments, {"auto_comment": None})
        graded = [ids[notebook] for notebook, (name, _) in cells.items() if name in paper.notebooks]
        self._penalties(db, learner, submission, duedate, graded)
        _forget(db, run, paper.key)
        _keep(db, run, paper.key, paper.results, digest, stored)

    def _assignment(self, db: Connection, name: str) -> _Assignment:
        """Return an assignment as its release was entered. Raises GradebookError if it was not."""
        assignment, notebook, cell = (TABLES[t].c for t in ("assignment", "notebook", "base_cell"))
        home = db.execute(select(assignment.id, assignment.duedate).where(assignment.name == name)).one_or_none()
        if home is None:
            raise GradebookError(f"{name} is not in the gradebook {self.place}. Enter its release first.")
        grade, task, source = (TABLES[t] for t in ("grade_cells", "task_cells", "source_cell"))
        of_cell = (source.c.notebook_id == notebook.id) & (source.c.name == cell.name)
        query = (
            select(
                notebook.id.label("notebook"),
                notebook.name.label("notebook_name"),
                cell.id,
                cell.name,
                cell.type,
                grade.c.max_score,
                task.c.max_score.label("task_score"),
                source.c.checksum,
            )
            .select_from(TABLES["notebook"])
            .outerjoin(TABLES["base_cell"], cell.notebook_id == notebook.id)
            .outerjoin(grade, grade.c.id == cell.id)
            .outerjoin(task, task.c.id == cell.id)
            .outerjoin(source, of_cell)
            .where(notebook.assignment_id == home.id)
        )
        cells: dict[str, tuple[str, dict]] = {}
        for row in db.execute(query):
            known = cells.setdefault(row.notebook, (row.notebook_name, {}))[1]
            if row.id:
                most = row.max_score if row.max_score is not None else row.task_score or 0.0
                known[row.name, row.type] = _Cell(row.id, row.type, most, row.checksum, extra_credit(name, row.name))
        return _Assignment(home.id, home.duedate, cells)

    def _penalties(self, db: Connection, learner: str, submission, duedate, graded: list[str]) -> None:
        """Write the late penalties of graded notebooks, computed by the plugin configured for nbgrader."""
        late = 0.0
        if submission.timestamp is not None and duedate is not None:
            late = (submission.timestamp - duedate - (submission.extension or duedate - duedate)).total_seconds()
        penalties = dict.fromkeys(graded)
        if late > 0:
            self.late.init_plugin()
            query = select(SubmittedNotebook.id, SubmittedNotebook.score).where(SubmittedNotebook.id.in_(graded))
            for id, score in db.execute(query):
                penalty = self.late.plugin_inst.late_submission_penalty(learner, score, late)
                if penalty is not None:
                    penalty = self.late._check_late_penalty(SimpleNamespace(score=score), penalty)
                penalties[id] = penalty
        _update(db, "submitted_notebook", [{"row": id, "late_submission_penalty": p} for id, p in penalties.items()])

    def _write_files(self, paper: GradedSubmission, pages: Mapping[str, str]) -> None:
        """Write the graded notebooks and the pages, each file atomically; other files in the folders are removed."""
        learner, assignment = paper.key
        files = {f"{name}.ipynb": written(nb) for name, nb in paper.notebooks.items()}
        if when(paper.timestamp):
            files[TIMESTAMP] = paper.timestamp
        course = self.course
        _fill_folder(Path(course.format_path(course.autograded_directory, learner, assignment)), files, 0o444)
        if pages:
            files = {f"{name}.html": page for name, page in pages.items()}
            _fill_folder(Path(course.format_path(course.feedback_directory, learner, assignment)), files, 0o644)

    # Reading: see `scores`

    def scores(self) -> dict[Key, list[Score]]:
        """Return (learner, assignment) → the scores that count now, questions in the order of the notebooks."""
        with self._transaction() as db:
            return scores.scores(db)

    def latest(self, learner: str, assignment: str) -> list[Score]:
        """Return the latest automatic scores of a submission: points and seed of each question, for a replay."""
        with self._transaction() as db:
            return scores.latest(db, learner, assignment)

    def penalties(self) -> dict[Key, float]:
        """Return (learner, assignment) → points deducted for a late submission."""
        with self._transaction() as db:
            return scores.penalties(db)

    def tries(self) -> dict[tuple[str, str], list[int]]:
        """Return (assignment, question) → of each learner, how many submissions it took to the best one."""
        with self._transaction() as db:
            return scores.tries(db)

    def entries(self, assignment: str, question: str) -> Entries:
        """Return what a leaderboard needs to know about a question's submissions."""
        with self._transaction() as db:
            return Entries(
                scores.handed_in(db, assignment, question),
                scores.late(db, assignment),
                scores.last_seed(db, assignment),
            )

    def results(self) -> list[NotebookResult]:
        """Return the latest result of every notebook, for reports: verdicts without pictures, cells without outputs."""
        with self._transaction() as db:
            return scores.results(db)


# The scores of a notebook


@dataclass(frozen=True)
class _Auto:
    """The automatic score of a question, None if a person has to grade it, and its row of `passlab_score`.

    `task`: nbgrader leaves the grade of a task entirely to people. `most`: the most extra credit of a stretch question.
    """

    points: float | None
    row: dict[str, Any]
    task: bool = False
    most: float = 0.0

    def grade(self, manual: float | None, extra: float | None) -> dict[str, Any] | None:
        """Return the changes to nbgrader's grade. A question with a manual score is marked for another look."""
        if self.task:
            return None
        grade = {"needs_manual_grade": manual is not None or self.points is None, "extra_credit": extra}
        return grade | {"auto_score": 0.0 if self.most else self.points}

    def extra(self, credit: float | None, entered: float | None) -> tuple[float | None, float | None]:
        """Return the extra credit, and the same if it is automatic or None if it is a person's, which stays.

        credit: the extra credit in the gradebook. entered: what the last grading entered there.
        """
        if self.most and credit in (None, entered):
            return self.points, self.points
        return credit, None


def _assess(nb: NotebookNode, result: NotebookResult, known: dict[tuple[str, str], _Cell]):
    """Return cell name → automatic score and cell name → automatic comment, as nbgrader's SaveAutoGrades does."""
    scored: dict[str, _Auto] = {}
    remarks: dict[str, str | None] = {}
    for index, cell in enumerate(nb.cells):
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        graded, solution, task = (known.get((name, kind)) for kind in ("GradeCell", "SolutionCell", "TaskCell"))
        if original := graded or solution or task:
            cell.metadata["nbgrader"]["checksum"] = original.checksum  # the submission's is not trusted
        if graded and utils.is_grade(cell):
            scored[name] = _auto(index, cell, result, graded)
        elif task:
            scored[name] = _Auto(None, _row(index, name, None, result.seed, None, ""), task=True)
        if (solution and utils.is_solution(cell)) or (task and utils.is_task(cell)):
            same = original is not None and original.checksum == utils.compute_checksum(cell)
            untouched = same and not utils.is_task(cell)
            remarks[name] = "No response." if untouched else None
    return scored, remarks


def _auto(index: int, cell: NotebookNode, result: NotebookResult, graded: _Cell) -> _Auto:
    verdict, ran = result.verdicts.get(index), result.ran.get(index)
    error = ""
    if verdict:
        points, error = min(max(round(verdict.points, 4), 0.0), graded.total), verdict.crash
    elif cell.cell_type == "code" and not utils.is_solution(cell) and (ran is None or ran.error or ran.died):
        # nbgrader would give full points to a cell that did not run, since it has no error.
        points, error = 0.0, (ran.error or ran.died) if ran else "Its cell did not run."
    else:
        cell.metadata["nbgrader"]["points"] = graded.max_score
        try:
            points, _ = utils.determine_grade(cell)
            if utils.is_solution(cell) and (points is not None or not cell.source.strip()):  # as released, or empty
                points, error = 0.0, scores.UNANSWERED
        except (ValueError, KeyError):  # its result exceeds the maximum or has no text, which nbgrader rejects
            points, error = None, "The result of the cell is not a number of points; it has to be graded by hand."
    row = _row(index, cell.metadata["nbgrader"]["grade_id"], points, result.seed, verdict, error)
    return _Auto(points, row, most=graded.extra)


def _zeros(known: dict[tuple[str, str], _Cell], seed: int) -> dict[str, _Auto]:
    """Return zero points for every question of a notebook that was not handed in."""
    graded = [(name, cell) for (name, kind), cell in known.items() if kind != "SolutionCell"]
    return {
        name: _Auto(0.0, _row(i, name, 0.0, seed, None, scores.NOT_HANDED_IN), most=cell.extra)
        for i, (name, cell) in enumerate(graded)
    }


def _row(index: int, cell: str, points: float | None, seed: int, verdict: Verdict | None, error: str) -> dict[str, Any]:
    # PostgreSQL accepts neither NUL nor lone surrogates.
    error = error.replace("\0", "").encode("utf-8", "replace").decode()
    row = {"question": question(cell), "place": index, "points": points, "seed": seed, "error": error}
    return row | {"verdict": verdict_text(verdict)}


# Rows


def _rows(db: Connection, table: str, column: str, values: Iterable[str], *key: str) -> dict[tuple, Any]:
    """Return key → row for the rows of an nbgrader table with one of `values` in `column`."""
    rows = db.execute(select(TABLES[table]).where(TABLES[table].c[column].in_(list(values))))
    return {tuple(getattr(row, part) for part in key): row for row in rows}


def _insert(db: Connection, table: str, rows: list[dict]) -> None:
    if rows:
        db.execute(TABLES[table].insert(), rows)


def _update(db: Connection, table: str, rows: list[dict]) -> None:
    """Update rows; the "row" of each is the id."""
    if rows:
        db.execute(TABLES[table].update().where(TABLES[table].c.id == bindparam("row")), rows)


def _put(db: Connection, table: str, old: Mapping[tuple, Any], rows: dict[tuple, dict | None], fresh: dict) -> None:
    """Update or insert the rows of a submission, by (notebook, cell). `old`: the existing rows.

    None in place of a row leaves an existing one unchanged and inserts a missing one with the values in `fresh`.
    """
    new = [at for at in rows if at not in old]
    keys = {at: {"id": new_uuid(), "notebook_id": at[0], "cell_id": at[1]} for at in new}
    _insert(db, table, [fresh | (rows[at] or {}) | keys[at] for at in new])
    _update(db, table, [values | {"row": row.id} for at, row in old.items() if (values := rows.get(at))])


def _submission(
    db: Connection, assignment: str, learner: str, timestamp: datetime | None, extension: timedelta | None
) -> Any:
    """Return the submission's row, inserted if it is new. An unknown time does not replace a known one.

    extension: of a new row; that of an old one may have been changed since.
    """
    table = TABLES["submitted_assignment"]
    query = select(table).where(table.c.assignment_id == assignment, table.c.student_id == learner)
    row = db.execute(query).one_or_none()
    if row is None:
        fresh = {"id": new_uuid(), "assignment_id": assignment, "student_id": learner, "timestamp": timestamp}
        fresh["extension"] = extension
        _insert(db, "submitted_assignment", [fresh])
    elif timestamp is not None and timestamp != row.timestamp:
        _update(db, "submitted_assignment", [{"row": row.id, "timestamp": timestamp}])
    else:
        return row
    return db.execute(query).one()


def _forget(db: Connection, run: Run, key: Key) -> None:
    """Delete this course's rows on a submission that the same run wrote earlier."""
    for table in (NOTEBOOK, SCORE):
        c = table.c
        db.execute(table.delete().where(c.run == run.id, c.learner == key[0], c.assignment == key[1]))


def _keep(
    db: Connection, run: Run, key: Key, results: Mapping[str, NotebookResult], digest: str, stored: list[dict]
) -> None:
    """Insert this course's rows on a submission."""
    row = {"run": run.id, "learner": key[0], "assignment": key[1], "digest": digest}
    common = row | {"recorded": _now(), "number": scores.next_number(db)}
    rows = [common | {"notebook": name, "result": result_text(result)} for name, result in results.items()]
    db.execute(NOTEBOOK.insert(), rows)
    if stored:
        db.execute(SCORE.insert(), [key | row for key in stored])


# Files


def _fill_folder(folder: Path, files: Mapping[str, str], mode: int) -> None:
    """Fill a folder with these files and remove all others. At any moment each file is the complete old or new one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        fresh = folder / f".{name}.{os.getpid()}.tmp"
        with writing(folder / name):
            fresh.unlink(missing_ok=True)
            with fresh.open("xb") as out:
                out.write(text.encode("utf-8", "replace"))
                out.flush()
                os.fsync(out.fileno())
            fresh.chmod(mode)
            fresh.replace(folder / name)
    for file in folder.iterdir():
        if file.name not in files and not file.is_dir():
            file.unlink()
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
