"""Who writes into a folder of results, and who holds a lock that somebody waits for."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from autograder.grading import gradebook, locks
from autograder.grading.gradebook import StorageError, prepare, transaction
from autograder.grading.recorder import Recorder
from autograder.toys import tiny
from tests.support import books

#: Take the lock on a folder, or on a gradebook.
GRADER = "from autograder.grading.locks import only_grader; lock = only_grader(Path(sys.argv[1])); lock.__enter__()"
LOCKER = "import sqlite3; db = sqlite3.connect(sys.argv[1]); db.execute('BEGIN EXCLUSIVE')"


@contextlib.contextmanager
def holding(code: str, path, *more: str) -> Iterator[subprocess.Popen]:
    """Run a process that takes a lock and keeps it until its standard input ends."""
    body = f"import sys; from pathlib import Path; {code}; print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", body, str(path), *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tiny.ROOT, text=True) as values:
        assert values.stdout.readline() == "held\n"
        yield values
        values.stdin.close()


def test_a_second_grading_is_told_of_the_first(tmp_path):
    run = tmp_path / "new/run"
    with holding(GRADER, run, "--db", "postgresql://ann:secret@host/db") as first:
        with pytest.raises(locks.LockedError) as values, locks.only_grader(run):
            pass
        message = str(values.value)
        assert (
            f"{run} is in use: process {first.pid} (" in message and "since 2" in message and "PASSLAB_RUN" in message
        )
        assert "secret" not in message
    with locks.only_grader(run):
        assert (run / locks.LOCK).read_text().startswith(f"process {os.getpid()} (")
    assert (run / locks.LOCK).read_text() == ""


def test_a_killed_grading_holds_nothing(tmp_path):
    with holding(GRADER, tmp_path) as first:
        first.kill()
        first.wait()
        with locks.only_grader(tmp_path):
            pass


def test_a_process_is_known_by_its_command_and_when_it_started(tmp_path):
    command = [sys.executable, "-m", "http.server", "0", "--directory", "/a://b:secret@c"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        time.sleep(0.1)
        message = locks.process(server.pid)
        server.kill()
    assert message.startswith(f"process {server.pid} (http.server 0 --directory /a://b:***@c, since ")
    started = time.mktime(time.strptime(message.rstrip(")")[-16:], "%Y-%m-%d %H:%M"))
    assert abs(time.time() - started) < 120
    assert locks.process(2**22 + 1) == f"process {2**22 + 1}"


@pytest.fixture
def impatient(tmp_path, monkeypatch):
    """A course whose gradebook waits a second for a lock, and says so after a tenth."""
    config = books.make(tmp_path / "course")
    config.CourseDirectory.db_url = config.CourseDirectory.db_url.replace("timeout=60", "timeout=1")
    monkeypatch.setattr(gradebook, "WAIT", 1)
    monkeypatch.setattr(locks, "QUIET_SECONDS", 0.1)
    return config


def test_who_waits_for_a_locked_gradebook_is_told_for_whom_and_stops(impatient, capsys):
    path = gradebook.place(impatient)
    with Recorder(impatient) as recorder:
        run, paper = recorder.begin(), books.paper(impatient, "ada", {"one": 4})
        recorder.record(run, paper, "")
        with holding(LOCKER, path) as other:
            for act in (lambda: recorder.record(run, paper, ""), recorder.scores, lambda: prepare(impatient)):
                start = time.monotonic()
                with pytest.raises(StorageError) as stopped:
                    act()
                assert time.monotonic() - start >= 1
                message = str(stopped.value)
                assert message.startswith(f"The gradebook {path} is locked by process {other.pid} (python")
                text = capsys.readouterr().err
                assert text.startswith(f"Waiting for {path}, which is locked by process {other.pid}"), text
        assert recorder.begin() == run and list(recorder.scores()) == [("ada", "ps1")], "and nothing is lost"
    assert capsys.readouterr().err == ""


def test_who_waits_briefly_gets_the_gradebook(impatient):
    engine = create_engine(impatient.CourseDirectory.db_url)
    with holding(LOCKER, gradebook.place(impatient)) as other:
        other.stdin.close()
        other.wait()
        with transaction(impatient, engine) as db:
            assert db.execute(text("SELECT count(*) FROM assignment")).scalar() == 1
    engine.dispose()


def test_a_file_that_nobody_locks_has_no_holders(tmp_path):
    path = tmp_path / "book.db"
    assert locks.holders(path) == ""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")
        assert locks.holders(path) == "", "this process waits for others, not for itself"
