"""nbgrader's gradebook for this course: settings, location, and the entries that grading requires."""

from __future__ import annotations

import contextlib
import errno
import glob
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nbgrader import utils
from nbgrader.api import Base, Gradebook, Student
from nbgrader.apps import api
from nbgrader.converters import GenerateAssignment, base
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.dbutil import ALEMBIC_DIR
from nbgrader.exchange.default import release_feedback
from nbgrader.preprocessors import savecells
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from traitlets.config import Config

from autograder.grading import locks
from autograder.grading.roster import Learner

#: Database → its INSERT … ON CONFLICT, which SQLAlchemy has no common form of.
INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


#: How many seconds a gradebook may be locked by another process.
WAIT = 60
#: PostgreSQL's code for a lock that was not available in time.
PG_LOCKED = "55P03"


class GradebookError(Exception):
    """A step that involves nbgrader or its gradebook failed. The message names what failed and why."""


class StorageError(GradebookError):
    """The machine cannot store any results now: a disk is full, or the gradebook cannot be used.

    What was stored before stays. The message names the thing and the reason.
    """


#: Errors of a disk that the next file will meet, too.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Have an OSError name this file: that of a full disk names none, and others a temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def unwritten(error: OSError) -> GradebookError:
    """Return the failure to write a file: StorageError if others cannot be written either."""
    kind = StorageError if error.errno in _DISK else GradebookError
    return kind(f"{error.filename or 'A file'} cannot be written: {error.strerror}.")


def unusable(config: Config, error: DBAPIError) -> GradebookError:
    """Return the failure of a transaction: StorageError, unless the gradebook only refused what was to be written."""
    where, reason = place(config), str(error.orig).strip().split("\n")[0]
    if _is_locked(error):
        holder = locks.holders(where) or "another process"
        return StorageError(f"The gradebook {where} is locked by {holder}, for more than {WAIT} s now.{_look(error)}")
    if isinstance(error, OperationalError):
        return StorageError(f"The gradebook {where} cannot be used: {reason}.")
    return GradebookError(f"the gradebook cannot be written: {reason}")


def _is_locked(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlite_errorname", "").startswith("SQLITE_BUSY") or _is_locked_in_server(error)


def _is_locked_in_server(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) == PG_LOCKED


def _look(error: DBAPIError) -> str:
    """Return how to find who holds a lock in a database server, "" for a file."""
    query = "SELECT pid, usename, state, query FROM pg_stat_activity"
    return f" To see by whom: {query}; to end it: pg_terminate_backend(pid)." if _is_locked_in_server(error) else ""


@contextlib.contextmanager
def transaction(config: Config, engine: Engine) -> Iterator[Connection]:
    """Provide a transaction; while the gradebook is locked, name its holder. Raises GradebookError, StorageError."""
    try:
        with locks.naming_holders(place(config), WAIT), engine.begin() as db:
            yield db
    except DBAPIError as error:
        raise unusable(config, error) from None


@contextlib.contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for a while. (nbgrader's `setenv` would delete the variable afterwards.)"""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def database(run: Path) -> str:
    """Return the URL of the gradebook: PASSLAB_DB if it is set, otherwise an SQLite file in the run's folder.

    Raises ValueError if PASSLAB_DB is not a URL of SQLite or PostgreSQL.
    """
    text = os.environ.get("PASSLAB_DB", "")
    if not text:
        # A second writer waits for the first instead of failing.
        url = URL.create("sqlite", database=str(run / "gradebook.db"), query={"timeout": str(WAIT)})
        return url.render_as_string()
    expected = "expected postgresql://user:password@host/database or sqlite:////folder/gradebook.db"
    try:
        # Name the driver that this course installs; SQLAlchemy's default may be another.
        url = make_url(re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", text))
    except (ArgumentError, ValueError):
        raise ValueError(f"PASSLAB_DB (or --db) is not a database URL: {expected}.") from None
    if url.get_backend_name() not in INSERT:
        raise ValueError(f"PASSLAB_DB (or --db) names a {url.get_backend_name()} database: {expected}.")
    if url.get_backend_name() == "postgresql":  # which waits for a lock without a limit, unless it is told one
        own = url.query.get("options", ())
        words = [f"-c lock_timeout={WAIT}s", *([own] if isinstance(own, str) else own)]
        # Whatever the server or PGCLIENTENCODING says, what is written is Unicode.
        url = url.update_query_dict({"options": " ".join(words), "client_encoding": "utf8"})
    return url.render_as_string(hide_password=False)


def place(config: Config) -> str:
    """Return the location of the gradebook for messages: a file, or a URL without its password."""
    url = make_url(CourseDirectory(config=config).db_url)
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    untold = ["options", "client_encoding", *(name for name in url.query if "password" in name)]
    return url.difference_update_query(untold).render_as_string(hide_password=True)


def take_literally(root: Path) -> None:
    """Have nbgrader take the path of the course as it is: it would read a [, * or ? in it as a pattern."""

    def matches(pattern: str) -> list[str]:
        below = pattern.removeprefix(str(root))
        return glob.glob(pattern if below == pattern else glob.escape(str(root)) + below)

    for module in (base, api, release_feedback, utils):
        module.glob = SimpleNamespace(glob=matches)


#: The line of a traceback in which SQLAlchemy tells an error of the database.
_OF_DATABASE = re.compile(r"sqlalchemy\.exc\.\w+: \((sqlite3|psycopg)\.")


class _Last(logging.Handler):
    """Collects the warnings and errors of nbgrader's log and picks the one to report."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def reason(self) -> str:
        """Return the last line of the last traceback or, without one, of the last message.

        Of an error of the database it is the line that names it: the statement and a link follow.
        """
        tracebacks = [line for line in self.lines if line.startswith("Traceback")]
        last = (tracebacks or self.lines or ["nbgrader gave no reason"])[-1].strip().split("\n")
        return next((line for line in reversed(last) if _OF_DATABASE.match(line)), last[-1])[:300]


def convert(converter_class, config: Config, assignment: str, learner: str = ".", **options) -> None:
    """Run one of nbgrader's converters on one assignment of one learner, without its log. Raises GradebookError."""
    course = CourseDirectory(config=config, assignment_id=assignment, student_id=learner)
    converter = converter_class(coursedir=course, config=config, force=True, **options)
    last = _Last()
    log, handlers = converter.log, converter.log.handlers
    propagate, log.handlers, log.propagate = log.propagate, [last], False
    try:
        converter.start()
    except NbGraderException as error:
        if isinstance(error.__context__, DBAPIError):
            raise unusable(config, error.__context__) from None
        reason = last.reason()
        if _OF_DATABASE.match(reason):  # not nbgrader's reason
            raise StorageError(f"The gradebook {place(config)} cannot be used: {reason}.") from None
        raise GradebookError(reason) from None
    except Exception as error:
        raise GradebookError(f"{type(error).__name__}: {str(error)[:300]}") from None
    finally:
        log.handlers, log.propagate = handlers, propagate


def prepare(config: Config, more: MetaData | None = None) -> None:
    """Create nbgrader's tables and those in `more` if they are missing. Raises GradebookError if the database fails."""
    course = CourseDirectory(config=config)
    for attempt in range(5):
        try:
            with locks.naming_holders(place(config), WAIT):
                _check_database(config, course.db_url)
                with Gradebook(course.db_url, course.course_id) as gradebook:
                    if more:
                        more.create_all(gradebook.engine)
            return
        except DBAPIError as error:  # another process may be creating the same tables: try again
            if attempt == 4 or _is_locked(error):
                raise unusable(config, error) from None
            time.sleep(0.1 * attempt)


def _check_database(config: Config, db_url: str) -> None:
    """Check a database before nbgrader opens it, and note the version of nbgrader's tables in an empty one."""
    engine = create_engine(db_url)
    try:
        _check_encoding(config, engine)
        _note_version(engine)
    finally:
        engine.dispose()


def _check_encoding(config: Config, engine: Engine) -> None:
    """Raise GradebookError for a database of a server that cannot store any text."""
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise GradebookError(
            f"The gradebook {place(config)} has the encoding {encoding}, which cannot hold every name and message. "
            "Make a database with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )


def _note_version(engine: Engine) -> None:
    """Write the version of nbgrader's tables into an empty database. nbgrader itself would start a program for it.

    (That program, `alembic heads`, takes three seconds, as it imports all of nbgrader and Jupyter.)
    """
    from alembic.script import ScriptDirectory

    if inspect(engine).get_table_names():
        return
    table = Table("alembic_version", MetaData(), Column("version_num", String(32), nullable=False))
    with engine.begin() as connection:
        table.create(connection)
        head = ScriptDirectory(ALEMBIC_DIR).get_current_head()
        connection.execute(table.insert().values(version_num=head))


class WritesAtOnce(Gradebook):
    """nbgrader's gradebook, with what is entered in a `with` block in one transaction: nbgrader commits every cell."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._commit, self.db.commit = self.db.commit, self.db.flush

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self._commit()
        super().__exit__(kind, *error)


def enter_release(config: Config, assignments: list[str]) -> None:
    """Enter the questions of these assignments, hidden tests included, into the gradebook. Raises GradebookError."""
    prepare(config)
    savecells.Gradebook = WritesAtOnce
    config = Config(config)
    run = config.CourseDirectory.submitted_directory.removesuffix("/submitted")
    config.CourseDirectory.release_directory = f"{run}/release"
    for assignment in assignments:
        convert(GenerateAssignment, config, assignment)


def add_learners(connection: Connection, learners: Iterable[str]) -> None:
    """Add learners who are not in the gradebook yet. Another process may be adding the same ones."""
    rows = [{"id": learner} for learner in sorted(set(learners))]
    if rows:
        insert: Any = INSERT[connection.dialect.name](Student.__table__)
        connection.execute(insert.on_conflict_do_nothing(), rows)


def enter_names(connection: Connection, roster: Iterable[Learner]) -> None:
    """Add the learners of a roster, with their names and addresses as far as it has them.

    Learners choose what they are called in Canvas or Moodle, and PostgreSQL refuses what SQLite takes: a text that is
    too long is cut. Who has such an id is left out, and is told so when something is handed in.
    """
    student = Student.__table__
    learners = sorted((one for one in roster if _fit(student.c.id, one.id) == one.id), key=lambda one: one.id)
    add_learners(connection, [one.id for one in learners])
    for one in learners:
        first, last = names(one.name)
        row = {"first_name": first, "last_name": last, "email": one.email}
        if row := {column: _fit(student.c[column], text) for column, text in row.items() if text}:
            connection.execute(student.update().where(student.c.id == one.id).values(row))


def _fit(column: Any, text: str) -> str:
    """Return as much of a text as a column of any database holds."""
    return text.replace("\0", "")[: column.type.length]


def names(full: str) -> tuple[str, str]:
    """Return first and last name of "Lovelace, Ada" or "Ada Lovelace"; of one word, a last name."""
    last, comma, first = full.partition(",")
    if not comma:
        first, _, last = full.strip().rpartition(" ")
    return first.strip(), last.strip()


#: nbgrader's tables, by name.
TABLES = Base.metadata.tables
