"""Scores from the gradebook: the points that count now, from nbgrader's tables, and their origin, from our own tables.

`passlab_run`: one grading of a class, with the seed of its hidden cases. `passlab_notebook`: a graded notebook, with
the fingerprint of the submission. `passlab_score`: one of its questions. They share a database with nbgrader's tables,
which nbgrader and formgrader keep editing: the points that count come from there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Float,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    TypeDecorator,
    event,
    func,
    inspect,
    select,
    text,
)

from autograder.engine.data import NotebookResult, Verdict, from_json, to_json, verdict_from_json
from autograder.grading.gradebook import TABLES
from autograder.grading.paper import Mark, Marks, extra_credit, question

Key = tuple[str, str]  # learner, assignment
#: Why a question that nothing was written for gives no points.
NOT_HANDED_IN, UNANSWERED = "not handed in", "not answered"


class Seed(TypeDecorator):
    """A whole number of any size, stored as text: "0x1f". Columns of older databases may hold integers, too."""

    impl, cache_ok = String(64), True

    def process_bind_param(self, value: Any, dialect: Any) -> str:
        return hex(value)

    def process_result_value(self, value: Any, dialect: Any) -> int:
        return int(value, 0) if isinstance(value, str) else value


OWN = MetaData()
RUN = Table(
    "passlab_run",
    OWN,
    Column("id", String(32), primary_key=True),
    Column("folder", Text, nullable=False),
    Column("seed", Seed, nullable=False),
    Column("started", DateTime, nullable=False),
    Column("finished", DateTime),
)
# A folder has at most one unfinished run: two graders that start at the same time share it.
Index(
    "passlab_run_unfinished",
    RUN.c.folder,
    unique=True,
    sqlite_where=RUN.c.finished.is_(None),
    postgresql_where=RUN.c.finished.is_(None),
)


def _of_a_notebook(name: str, *columns: Column) -> Table:
    key = ("run", "learner", "assignment", "notebook")
    table = Table(name, OWN, *(Column(part, Text, primary_key=True) for part in key), *columns)
    Index(f"{name}_of", table.c.learner, table.c.assignment)
    return table


#: `number` counts what is recorded: clocks can be set back, so `recorded` tells no order.
#: `result`: the NotebookResult as JSON, without outputs and verdicts (the notebook file and `passlab_score` have them).
NOTEBOOK = _of_a_notebook(
    "passlab_notebook",
    Column("digest", Text, nullable=False),
    Column("recorded", DateTime, nullable=False),
    Column("result", Text, nullable=False),
    Column("number", Integer, nullable=False),
)
Index("passlab_notebook_number", NOTEBOOK.c.number)
#: `points`: the automatic score, NULL if a person has to grade. `extra`: the extra credit that grading entered for
#: nbgrader, NULL if a person gave them. `verdict`: JSON, {} without a verdict.
SCORE = _of_a_notebook(
    "passlab_score",
    Column("question", Text, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("points", Float),
    Column("total", Float, nullable=False),
    Column("seed", Seed, nullable=False),
    Column("digest", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("extra", Float),
)


#: Extensions of the due date that `passlab extend` gave, also before the learner hands in: then nbgrader has no place
#: for them.
EXTENSION = Table(
    "passlab_extension",
    OWN,
    Column("learner", Text, primary_key=True),
    Column("assignment", Text, primary_key=True),
    Column("days", Float, nullable=False),
)


#: Database → the order in which it was filled, for rows without a number: SQLite numbers them by itself.
_FILLED = {"sqlite": "rowid", "postgresql": "recorded"}


@event.listens_for(OWN, "before_create")
def _upgrade(_: MetaData, db: Connection, **__: Any) -> None:
    """Add the columns that an older database lacks."""
    columns = {
        table.name: {column["name"] for column in inspect(db).get_columns(table.name)}
        for table in (NOTEBOOK, SCORE)
        if inspect(db).has_table(table.name)
    }
    if "number" not in columns.get("passlab_notebook", {"number"}):
        key = "run, learner, assignment, notebook"
        numbered = f"SELECT {key}, row_number() OVER (ORDER BY {_FILLED[db.dialect.name]}) AS n FROM passlab_notebook"
        db.execute(text("ALTER TABLE passlab_notebook ADD COLUMN number INTEGER NOT NULL DEFAULT 0"))
        db.execute(
            text(
                f"UPDATE passlab_notebook SET number = o.n FROM ({numbered}) AS o WHERE "
                + " AND ".join(f"passlab_notebook.{part} = o.{part}" for part in key.split(", "))
            )
        )
        db.execute(text("CREATE INDEX passlab_notebook_number ON passlab_notebook (number)"))
    if "extra" not in columns.get("passlab_score", {"extra"}):
        db.execute(text("ALTER TABLE passlab_score ADD COLUMN extra FLOAT"))
        db.execute(text("UPDATE passlab_score SET extra = points"))


@event.listens_for(OWN, "after_create")
def _widen(_: MetaData, db: Connection, **__: Any) -> None:
    """Let the seeds in an older PostgreSQL database be of any size. SQLite does not mind."""
    for table in (RUN, SCORE) if db.dialect.name == "postgresql" else ():
        kinds = {column["name"]: column["type"] for column in inspect(db).get_columns(table.name)}
        if isinstance(kinds["seed"], BigInteger):
            db.execute(text(f"ALTER TABLE {table.name} ALTER COLUMN seed TYPE VARCHAR(64) USING seed::text"))


@dataclass(frozen=True)
class Run:
    """One grading of a class, with all hidden cases drawn from `seed`."""

    id: str
    seed: int
    started: datetime


@dataclass(frozen=True)
class Score:
    """One question of one submission.

    `points`: the points that count, extra credit included; None until a person has graded it. `auto`, `manual`,
    `extra`: their parts. `total`: the most it gives; for a `stretch` question that is extra credit. `error`: why the
    whole question was lost, unless the answer was just wrong.
    """

    notebook: str
    question: str
    points: float | None
    total: float
    auto: float | None = None
    manual: float | None = None
    extra: float | None = None
    seed: int | None = None
    verdict: Verdict | None = None
    error: str = ""
    stretch: bool = False


@dataclass(frozen=True)
class Difference:
    """A question whose points change. `old`, `new`: None if there is no such score."""

    learner: str
    assignment: str
    question: str
    old: Score | None
    new: Score | None


def differences(old: dict[Key, list[Score]], new: dict[Key, list[Score]]) -> list[Difference]:
    """Return the questions whose scores differ between `old` and `new`, for the submissions in `new`."""
    changes = []
    for (learner, assignment), scores in sorted(new.items()):
        after = {(score.notebook, score.question): score for score in scores}
        before = {(score.notebook, score.question): score for score in old.get((learner, assignment), ())}
        for key in [*after, *(key for key in before if key not in after)]:
            was, current = before.get(key), after.get(key)
            if (
                was is None
                or current is None
                or (was.points, was.auto, was.total) != (current.points, current.auto, current.total)
            ):
                changes.append(Difference(learner, assignment, key[1], was, current))
    return changes


def verdict_text(verdict: Verdict | None) -> str:
    """Return a verdict as stored: JSON without the card, which is in the notebook."""
    return "{}" if verdict is None else json.dumps(msgspec.to_builtins(replace(verdict, html="", text="")))


def result_text(result: NotebookResult) -> str:
    """Return a result as stored: JSON without outputs and verdicts."""
    ran = {index: replace(one, outputs=[]) for index, one in result.ran.items()}
    return json.dumps(to_json(replace(result, ran=ran, verdicts={})))


def _verdict(text: str) -> Verdict | None:
    data = json.loads(text)
    return verdict_from_json(data) if data else None


def _latest(db: Connection, table: Table, learner: str | None = None, assignment: str | None = None) -> list[Row]:
    """Return the rows of one of our tables, for each submission from the run that recorded it last."""
    c = NOTEBOOK.c
    runs = select(c.learner, c.assignment, c.run, c.number).distinct().order_by(c.number)
    rows = select(table)
    if learner is not None:
        runs = runs.where(c.learner == learner, c.assignment == assignment)
        rows = rows.where(table.c.learner == learner, table.c.assignment == assignment)
    last = {(row.learner, row.assignment): row.run for row in db.execute(runs)}
    return [row for row in db.execute(rows) if last.get((row.learner, row.assignment)) == row.run]


def grades(learner: str | None, assignment: str | None):
    """Return the query for nbgrader's grades of one submission, or of all."""
    submitted, page, grade, cell = (
        TABLES[name] for name in ("submitted_assignment", "submitted_notebook", "grade", "base_cell")
    )
    assigned, notebook, checked, task = (
        TABLES[name] for name in ("assignment", "notebook", "grade_cells", "task_cells")
    )
    query = (
        select(
            grade.c.id,
            submitted.c.student_id.label("learner"),
            assigned.c.name.label("assignment"),
            notebook.c.name.label("notebook"),
            cell.c.name.label("cell"),
            grade.c.auto_score.label("auto"),
            grade.c.manual_score.label("manual"),
            grade.c.extra_credit.label("extra"),
            grade.c.needs_manual_grade.label("waits"),
            checked.c.max_score,
            task.c.max_score.label("task_score"),
        )
        .select_from(grade)
        .join(page, page.c.id == grade.c.notebook_id)
        .join(submitted, submitted.c.id == page.c.assignment_id)
        .join(assigned, assigned.c.id == submitted.c.assignment_id)
        .join(notebook, notebook.c.id == page.c.notebook_id)
        .join(cell, cell.c.id == grade.c.cell_id)
        .outerjoin(checked, checked.c.id == cell.c.id)
        .outerjoin(task, task.c.id == cell.c.id)
    )
    if learner is not None:
        query = query.where(submitted.c.student_id == learner, assigned.c.name == assignment)
    return query


def _counts(row: Row) -> Mark:
    """Return the points of a grade that count now."""
    points = None
    if row.manual is not None or not row.waits:
        base = row.auto if row.manual is None else row.manual
        points = 0.0 if base is None else base + (row.extra or 0.0)
    stretch = extra_credit(row.assignment, row.cell)
    return Mark(points, stretch or (row.task_score if row.max_score is None else row.max_score), bool(stretch))


def scores(db: Connection, learner: str | None = None, assignment: str | None = None) -> dict[Key, list[Score]]:
    """Return (learner, assignment) → the scores that count now, questions in the order of the notebooks."""
    behind = {
        (row.learner, row.assignment, row.notebook, row.question): row
        for row in _latest(db, SCORE, learner, assignment)
    }
    table: dict[Key, list[tuple]] = {}
    for row in db.execute(grades(learner, assignment)):
        name = question(row.cell)
        detail = behind.get((row.learner, row.assignment, row.notebook, name))
        mark = _counts(row)
        auto = detail.points if mark.stretch and detail else row.auto
        parts = {"auto": auto, "manual": row.manual, "extra": row.extra}
        score = Score(row.notebook, name, mark.points, mark.most, **parts, stretch=mark.stretch)
        if detail:
            score = replace(score, seed=detail.seed, verdict=_verdict(detail.verdict), error=detail.error)
        order = (row.notebook, detail.place if detail else 10**6, name)
        table.setdefault((row.learner, row.assignment), []).append((order, score))
    return {key: [score for _, score in sorted(table[key], key=lambda s: s[0])] for key in sorted(table)}


def marks(db: Connection, learner: str, assignment: str) -> dict[str, Marks]:
    """Return notebook → marks of a submission for its feedback: points that count, comments, late penalty."""
    submitted, page, comment, cell = (
        TABLES[name] for name in ("submitted_assignment", "submitted_notebook", "comment", "base_cell")
    )
    assigned, notebook = TABLES["assignment"], TABLES["notebook"]
    query = (
        select(notebook.c.name, page.c.id, page.c.late_submission_penalty)
        .select_from(page)
        .join(notebook, notebook.c.id == page.c.notebook_id)
        .join(submitted, submitted.c.id == page.c.assignment_id)
        .join(assigned, assigned.c.id == submitted.c.assignment_id)
        .where(submitted.c.student_id == learner, assigned.c.name == assignment)
    )
    pages = db.execute(query).all()
    points: dict[str, dict] = {row.name: {} for row in pages}
    for row in db.execute(grades(learner, assignment)):
        points[row.notebook][row.cell] = _counts(row)
    remarks = select(comment.c.notebook_id, cell.c.name, comment.c.manual_comment, comment.c.auto_comment)
    remarks = remarks.join(cell, cell.c.id == comment.c.cell_id).where(
        comment.c.notebook_id.in_([row.id for row in pages])
    )
    comments: dict[str, dict[str, str]] = {row.id: {} for row in pages}
    for row in db.execute(remarks):
        if text := row.auto_comment if row.manual_comment is None else row.manual_comment:
            comments[row.notebook_id][row.name] = text
    return {row.name: Marks(points[row.name], comments[row.id], row.late_submission_penalty or 0.0) for row in pages}


def penalties(db: Connection) -> dict[Key, float]:
    """Return (learner, assignment) → points deducted for a late submission, without the zeros."""
    submitted, page, assigned = (TABLES[name] for name in ("submitted_assignment", "submitted_notebook", "assignment"))
    late = page.c.late_submission_penalty
    query = (
        select(submitted.c.student_id, assigned.c.name, late)
        .join(submitted, submitted.c.id == page.c.assignment_id)
        .join(assigned, assigned.c.id == submitted.c.assignment_id)
        .where(late > 0)
    )
    by_key: dict[Key, float] = {}
    for learner, assignment, points in db.execute(query):
        by_key[learner, assignment] = by_key.get((learner, assignment), 0.0) + points
    return by_key


def next_number(db: Connection) -> int:
    """Return the number of what is recorded next."""
    return (db.execute(select(func.max(NOTEBOOK.c.number))).scalar() or 0) + 1


def automatic_extra(db: Connection, learner: str, assignment: str) -> dict[tuple[str, str], float | None]:
    """Return (notebook, question) → the extra credit that the last grading of a notebook entered; None if it left a
    person's."""
    c, n = SCORE.c, NOTEBOOK.c
    runs = select(n.run, func.max(n.number).label("number")).where(n.learner == learner, n.assignment == assignment)
    last = runs.group_by(n.run).subquery()
    query = select(c.notebook, c.question, c.extra).join(last, last.c.run == c.run)
    query = query.where(c.learner == learner, c.assignment == assignment).order_by(last.c.number)
    return {(row.notebook, row.question): row.extra for row in db.execute(query)}


def latest(db: Connection, learner: str, assignment: str) -> list[Score]:
    """Return the latest automatic scores of a submission: points and seed of each question, for a replay."""
    return [
        Score(r.notebook, r.question, r.points, r.total, r.points, None, None, r.seed, _verdict(r.verdict), r.error)
        for r in sorted(_latest(db, SCORE, learner, assignment), key=lambda r: (r.notebook, r.place))
    ]


def results(db: Connection) -> list[NotebookResult]:
    """Return the latest result of every notebook: verdicts without pictures, cells without outputs."""
    verdicts: dict[tuple, dict[str, Any]] = {}
    for row in _latest(db, SCORE):
        if verdict := json.loads(row.verdict):
            verdicts.setdefault((row.learner, row.assignment, row.notebook), {})[str(row.place)] = verdict
    by_key = {(row.learner, row.assignment, row.notebook): json.loads(row.result) for row in _latest(db, NOTEBOOK)}
    return [from_json(by_key[key] | {"verdicts": verdicts.get(key, {})}) for key in sorted(by_key)]


def handed_in(db: Connection, assignment: str, question: str) -> dict[str, list[tuple[datetime, str, float | None]]]:
    """Return learner → the different submissions that were graded, oldest first: (when, fingerprint, points)."""
    c, n = SCORE.c, NOTEBOOK.c
    query = (
        select(c.learner, n.recorded, c.digest, c.points)
        .join(NOTEBOOK, (n.run == c.run) & (n.learner == c.learner) & (n.assignment == c.assignment))
        .where(n.notebook == c.notebook, c.assignment == assignment, c.question == question)
        .order_by(n.number)
    )
    by_learner: dict[str, dict[str, tuple]] = {}
    for row in db.execute(query):
        before = by_learner.setdefault(row.learner, {}).get(row.digest)
        by_learner[row.learner][row.digest] = (before[0] if before else row.recorded, row.digest, row.points)
    return {learner: list(rows.values()) for learner, rows in by_learner.items()}


def tries(db: Connection) -> dict[tuple[str, str], list[int]]:
    """Return (assignment, question) → of each learner, how many different submissions were graded up to the first of
    those with the most points."""
    c, n = SCORE.c, NOTEBOOK.c
    query = (
        select(c.learner, c.assignment, c.question, c.digest, c.points)
        .join(NOTEBOOK, (n.run == c.run) & (n.learner == c.learner) & (n.assignment == c.assignment))
        .where(n.notebook == c.notebook)
        .order_by(n.number)
    )
    points: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in db.execute(query):
        points.setdefault((row.learner, row.assignment, row.question), {})[row.digest] = row.points or 0.0
    table: dict[tuple[str, str], list[int]] = {}
    for key, by_digest in points.items():
        values = list(by_digest.values())
        table.setdefault(key[1:], []).append(values.index(max(values)) + 1)
    return table


def extension(db: Connection, learner: str, assignment: str) -> timedelta | None:
    """Return the extension that `passlab extend` gave a learner, or None."""
    c = EXTENSION.c
    days = db.execute(select(c.days).where(c.learner == learner, c.assignment == assignment)).scalar()
    return None if days is None else timedelta(days=days)


def last_seed(db: Connection, assignment: str) -> int | None:
    """Return the seed of the run that graded this assignment last; None if none did."""
    c = NOTEBOOK.c
    query = select(RUN.c.seed).join(NOTEBOOK, c.run == RUN.c.id).where(c.assignment == assignment)
    return db.execute(query.order_by(c.number.desc())).scalars().first()


def late(db: Connection, assignment: str) -> set[str]:
    """Return the learners whose submission came after its due date, extensions counted."""
    submitted, assigned = (TABLES[name] for name in ("submitted_assignment", "assignment"))
    query = (
        select(submitted.c.student_id, submitted.c.timestamp, submitted.c.extension, assigned.c.duedate)
        .join(assigned, assigned.c.id == submitted.c.assignment_id)
        .where(assigned.c.name == assignment)
    )
    return {
        row.student_id
        for row in db.execute(query)
        if row.timestamp and row.duedate and row.timestamp > row.duedate + (row.extension or timedelta())
    }
