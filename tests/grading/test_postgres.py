"""The gradebook on a real PostgreSQL server: the whole flow, and the same tables as on SQLite."""

from __future__ import annotations

import csv
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from nbgrader.api import Gradebook

from autograder.grading import gradebook
from autograder.grading.gradebook import GradebookError, StorageError, database, names, place, prepare
from autograder.grading.locks import process
from autograder.grading.recorder import Recorder
from autograder.grading.roster import Learner
from autograder.toys import tiny
from autograder.toys.classes import GOOD, submit
from tests.grading import test_recorder
from tests.grading.test_recorder import ALL, SCENARIOS, leave_the_same, total
from tests.grading.test_recorder_crash import CLASS, grade, grade_in_two, state, survives
from tests.support import books, postgres

pytestmark = test_recorder.pytestmark


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as running:
        yield running


@pytest.mark.parametrize("name", ["honest", "one of two notebooks", "graded again after a person", "task by hand",
                                  "late, with extra credit", "late, then extended"])  # fmt: skip
def test_the_tables_are_those_that_nbgrader_leaves_on_sqlite(server, tmp_path, name):
    ours = books.make(tmp_path / "ours", server.new())
    theirs = books.make(tmp_path / "theirs")
    leave_the_same(ours, theirs, SCENARIOS[name])


def test_a_recorder_resumes_after_kills(server, tmp_path):
    quiet = books.make(tmp_path / "quiet", server.new())
    hurt = books.make(tmp_path / "hurt", server.new())
    grade(quiet, 1)
    draw = random.Random(12)
    for kill in range(10):
        by_step = kill % 2
        step = draw.randint(1, 30) if by_step else None
        assert not survives(hurt, 1, step, None if by_step else draw.uniform(0.05, 0.2))
    with Recorder(hurt) as recorder:
        assert 0 < len(recorder.digests(recorder.begin(7))) < len(CLASS)
    assert survives(hurt, 1, None, None)
    assert state(hurt) == state(quiet)


def test_two_recorders_at_once_leave_what_one_does(server, tmp_path):
    alone = books.make(tmp_path / "alone", server.new())
    shared = books.make(tmp_path / "shared", server.new())
    grade(alone, 1)
    grade_in_two(shared)
    assert state(shared) == state(alone)


def test_what_the_database_refuses_costs_one_submission(server, tmp_path):
    config = books.make(tmp_path / "course", server.new())
    with Recorder(config) as recorder:
        run = recorder.begin()
        with pytest.raises(GradebookError, match="the gradebook cannot be written: value too long"):
            recorder.record(run, books.paper(config, "a" * 200, ALL), "")
        recorder.record(run, books.paper(config, "ada", ALL | {"four": "odd \0 \ud800"}), "")
        assert list(recorder.scores()) == [("ada", "ps1")] and total(recorder.scores()["ada", "ps1"]) == 13.5


def test_an_older_gradebook_gets_the_columns_that_it_lacks(server, tmp_path):
    config = books.make(tmp_path / "course", server.new())
    with Recorder(config) as recorder:
        for seed in (0, 1):
            recorder.record(recorder.begin(seed), books.paper(config, "ada", ALL, seed=seed), "")
        with recorder.engine.begin() as db:
            db.exec_driver_sql("ALTER TABLE passlab_notebook DROP COLUMN number")
            db.exec_driver_sql("ALTER TABLE passlab_score DROP COLUMN extra")
    with Recorder(config) as recorder:
        assert {score.seed for score in recorder.latest("ada", "ps1")} == {1}
        recorder.record(recorder.begin(2), books.paper(config, "ada", ALL, seed=2), "")
        assert {score.seed for score in recorder.latest("ada", "ps1")} == {2}


def test_a_lock_that_another_client_holds_is_waited_for_with_a_limit(server, tmp_path, monkeypatch):
    url = server.new()
    monkeypatch.setenv("PASSLAB_DB", url)
    monkeypatch.setattr(gradebook, "WAIT", 1)
    config = books.make(tmp_path / "course", database(tmp_path))
    with Recorder(config) as recorder, psycopg.connect(url) as other:
        recorder.record(recorder.begin(7), books.paper(config, "ada", ALL), "")
        other.execute("SELECT * FROM student WHERE id = 'ada' FOR UPDATE")
        message = r"/course\d+ is locked by another process, for more than 1 s now\. To see by whom: SELECT pid"
        for write in (recorder.preview, lambda paper: recorder.record(recorder.begin(7), paper, "")):
            with pytest.raises(StorageError, match=message):
                write(books.paper(config, "ada", ALL))
        other.execute("LOCK TABLE student, assignment")
        with pytest.raises(StorageError, match=message):
            recorder.extend("ps1", "ada", 2)
        other.rollback()
        assert total(recorder.preview(books.paper(config, "ada", ALL))) == total(recorder.scores()["ada", "ps1"])


def test_a_server_that_goes_while_questions_are_entered_is_named(server, tmp_path):
    url = server.new()
    config = books.settings(tmp_path / "course", url.replace("postgresql:", "postgresql+psycopg:"))
    prepare(config)
    with psycopg.connect(url) as db:
        db.execute(
            "CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
        )
        db.execute("CREATE TRIGGER leave BEFORE INSERT ON assignment EXECUTE FUNCTION leave()")
    ends = "terminating connection|closed the connection|Connection reset by peer"  # as fast as each side is
    message = rf"The gradebook .*/course\d+ cannot be used: .*({ends})"
    with pytest.raises(StorageError, match=message):
        books.make(tmp_path / "course", config.CourseDirectory.db_url)


def test_the_whole_flow_by_the_commands(server, course):
    url = server.new()

    def passlab(command: str, *arguments: str, db: str = url):
        done = tiny.run(course, "-m", "passlab.cli", command, "class", "--db", db, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def points() -> dict[str, dict[str, str]]:
        with (course / "autograder/run/grades.csv").open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        return {who: {r["question"]: r["points"] for r in rows if r["learner"] == who} for who in ("ada", "bob")}

    answers = {"double": GOOD["double"], "sort-words": GOOD["sort-words"]}
    submit(course, "ada", answers)
    submit(course, "bob", {})
    passlab("grade", "--seed", "5")
    assert points() == {
        "ada": {"double": "3", "shout": "0", "sort-words": "3"},
        "bob": dict.fromkeys(("double", "shout", "sort-words"), "0"),
    }
    with Gradebook(url.replace("postgresql:", "postgresql+psycopg:"), "passlab") as book:
        grade = book.find_grade("shout-check", "tiny", "day00", "ada")
        grade.manual_score, grade.needs_manual_grade = 2.0, False
        book.db.commit()
    submit(course, "ada", answers | {"double": "double = None"})
    shown = passlab("regrade", "--yes", db=server.socket_url(url))
    changes = [line.split("│")[1:6] for line in shown.split("day00\n")[0].splitlines() if "│ day00" in line]
    assert [[part.strip() for part in line] for line in changes] == [["ada", "day00", "double", "3", "0"]]
    assert points()["ada"] == {"double": "0", "shout": "2", "sort-words": "3"}
    exported = tiny.run(course, "-m", "nbgrader", "export", "--to", "out.csv", PASSLAB_DB=url)
    assert "Traceback" not in exported.stderr and exported.returncode == 0, exported.stderr
    with (course / "out.csv").open(newline="") as lines:
        assert {row["student_id"]: float(row["score"]) for row in csv.DictReader(lines)} == {"ada": 5, "bob": 0}
    shutil.rmtree(course / "autograder/run/autograded")
    graded = tiny.run(course, "-m", "nbgrader", "autograde", "day00", PASSLAB_DB=url)
    assert graded.returncode == 0, graded.stderr
    with psycopg.connect(url) as db:
        items = db.execute("SELECT seed, verdict FROM passlab_score WHERE learner = 'ada' AND question = 'sort-words'")
        assert {json.loads(verdict)["points"] for _, verdict in items} == {3.0}
    assert not list((course / "autograder/run").glob("*.db")), "nothing goes into a file"


@pytest.mark.parametrize("name", ["X" * 300, "B\0ob", "Bob " + "漢" * 200, "B" * 200 + ", " + "b" * 200])
def test_no_name_that_a_learner_has_chosen_stops_the_class(server, tmp_path, name):
    config = books.make(tmp_path / "course", server.new())
    with Recorder(config) as recorder:
        recorder.enter([Learner("ada", "Ada Lovelace"), Learner("bob", name, "b" * 300), Learner("c" * 200, "Cyd")])
        recorder.record(recorder.begin(7), books.paper(config, "bob", ALL), "")
        with recorder.engine.connect() as db:
            rows = db.exec_driver_sql("SELECT id, last_name, length(email) FROM student ORDER BY id").all()
    last = names(name)[1].replace("\0", "")[:128]
    assert rows == [("ada", "Lovelace", None), ("bob", last, 128)]


def test_any_name_is_written_whatever_the_encoding_of_the_client(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PASSLAB_DB", server.new())
    config = books.make(tmp_path / "course", database(tmp_path))
    with Recorder(config) as recorder:
        recorder.enter([Learner("漢字", "Ω")])
        recorder.record(recorder.begin(7), books.paper(config, "漢字", ALL), "")
        assert list(recorder.scores()) == [("漢字", "ps1")]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_every_text_is_refused_with_a_remedy(server, tmp_path, monkeypatch, encoding):
    monkeypatch.setenv("PASSLAB_DB", server.new(f"ENCODING '{encoding}' TEMPLATE template0"))
    config = books.settings(tmp_path / "course", database(tmp_path))
    with pytest.raises(GradebookError, match=rf"has the encoding {encoding}, which .* ENCODING 'UTF8' TEMPLATE"):
        Recorder(config)


def test_a_name_that_the_database_refuses_does_not_hide_the_reason(server, course):
    submit(course, "ada", {})
    url = server.new()
    tiny.run(course, "-m", "passlab.cli", "grade", "class", "--db", url)
    with psycopg.connect(url) as db:
        db.execute("ALTER TABLE student ADD CHECK (last_name <> 'Lovelace')")
    (course / "names.csv").write_text("id,name\nada,Ada Lovelace\n")
    done = tiny.run(course, "-m", "passlab.cli", "grade", "class", "--db", url, "--roster", "names.csv")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "Grading stopped. the gradebook cannot be written: new row for relation" in " ".join(done.stderr.split())


#: What a URL gets, so that a lock is not waited for without a limit, and that any text can be written.
LIMIT = "?client_encoding=utf8&options=-c+lock_timeout%3D60s"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "sqlite:////course/run/gradebook.db?timeout=60"),
        ("postgresql://a:b@h/d", "postgresql+psycopg://a:b@h/d" + LIMIT),
        ("postgres://h/d", "postgresql+psycopg://h/d" + LIMIT),
        ("postgresql+psycopg://h/d", "postgresql+psycopg://h/d" + LIMIT),
        ("postgresql://h/d?options=-c a=1", "postgresql+psycopg://h/d" + LIMIT + "+-c+a%3D1"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
    ],
)
def test_which_database(monkeypatch, given, expected):
    monkeypatch.setenv("PASSLAB_DB", given)
    assert database(Path("/course/run")) == expected


@pytest.mark.parametrize("arguments", ["gradebook.db", "mysql://h/d", "mysql+pymysql://h/d", "postgresql://h:port/d"])
def test_what_is_no_database_is_refused_with_a_remedy(monkeypatch, arguments):
    monkeypatch.setenv("PASSLAB_DB", arguments)
    with pytest.raises(ValueError, match=r"PASSLAB_DB \(or --db\).*expected postgresql://"):
        database(Path("/course/run"))


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path):
    config = books.settings(tmp_path, "postgresql+psycopg://grader:secret@127.0.0.1:1/course")
    with pytest.raises(GradebookError) as failure:
        prepare(config)
    assert "127.0.0.1:1/course cannot be used" in str(failure.value) and "secret" not in str(failure.value)
    assert place(config) == "postgresql+psycopg://grader:***@127.0.0.1:1/course"


def test_a_password_among_the_options_of_a_url_is_not_shown_either(tmp_path):
    url = "postgresql+psycopg://grader@127.0.0.1:1/course?password=secret&sslpassword=secret&sslmode=prefer"
    config = books.settings(tmp_path, url)
    assert place(config) == "postgresql+psycopg://grader@127.0.0.1:1/course?sslmode=prefer"
    with subprocess.Popen([sys.executable, "-c", "input()", "--db", url], stdin=subprocess.PIPE) as grader:
        assert "secret" not in process(grader.pid) and "sslmode=prefer" in process(grader.pid)
        grader.kill()
