"""Grading the same class again: replay, regrade, and a machine whose sandbox is not whole."""

from __future__ import annotations

import csv
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from autograder.grading import locks
from autograder.toys import tiny
from autograder.toys.classes import BAD, GOOD, grades, hand_in, submit

RUN = "autograder/run"


def passlab(course, *arguments, **more):
    return tiny.run(course, "-m", "passlab.cli", *arguments, COLUMNS="200", **more)


@pytest.fixture(scope="module")
def graded(course):
    """Four learners, graded once."""
    hand_in(course, 4)
    ended = passlab(course, "grade", "class")
    assert ended.returncode == 0, ended.stderr
    return course


def seeds(course) -> set[int]:
    with sqlite3.connect(course / RUN / "gradebook.db") as db:
        return {seed for (seed,) in db.execute("SELECT seed FROM passlab_score")}


def names(course) -> set[str | None]:
    with sqlite3.connect(course / RUN / "gradebook.db") as db:
        return {name for (name,) in db.execute("SELECT last_name FROM student")}


def test_a_replay_draws_the_same_cases_and_finds_the_same_scores(graded):
    before = (graded / RUN / "gradebook.db").read_bytes(), grades(graded, RUN)
    assert len(seeds(graded)) == 1
    ended = passlab(graded, "grade", "class", "--replay")
    assert ended.returncode == 0 and "Every score is the same as the stored one" in ended.stdout, (
        ended.stdout + ended.stderr
    )
    assert ((graded / RUN / "gradebook.db").read_bytes(), grades(graded, RUN)) == before


def test_a_replay_names_a_stored_score_that_does_not_come_out(graded, tmp_path):
    course = shutil.copytree(graded, tmp_path / "tampered")
    with sqlite3.connect(course / RUN / "gradebook.db") as db:
        db.execute("UPDATE passlab_score SET points = 3 WHERE learner = 'learner-0001' AND question = 'double'")
    ended = passlab(course, "grade", "class", "--replay")
    row = next(line for line in ended.stdout.splitlines() if "learner-0001" in line and "│" in line)
    assert ended.returncode == 1 and [cell.strip() for cell in row.split("│")[3:7]] == ["double", "3", "0", "3"]


def test_a_regrade_shows_old_and_new_and_writes_only_when_told(graded, tmp_path):
    course = shutil.copytree(graded, tmp_path / "again")
    before = grades(course, RUN)
    submit(course, "learner-0000", BAD)
    submit(course, "learner-0003", GOOD)
    roster = [f"learner-000{n},Lovelace-{n}" for n in range(4)]
    (course / "class/roster.csv").write_text("\n".join(["id,name", *roster]))
    requests = passlab(course, "regrade", "class", input="n\n")
    assert requests.returncode == 0 and "Nothing was written" in requests.stdout, requests.stderr
    rows = {
        (cells[1].strip(), cells[3].strip()): (cells[4].strip(), cells[5].strip())
        for cells in (line.split("│") for line in requests.stdout.splitlines())
        if len(cells) > 6 and "learner-" in cells[1]
    }
    assert rows == {
        ("learner-0000", "double"): ("3", "0"),
        ("learner-0000", "shout"): ("3", "0"),
        ("learner-0000", "sort-words"): ("3", "0"),  # right on no case, so the point for sparing goes as well
        ("learner-0003", "double"): ("0", "3"),
        ("learner-0003", "shout"): ("0", "3"),
    }
    assert grades(course, RUN) == before and names(course) == {None}
    message = passlab(course, "regrade", "class", "--yes")
    assert message.returncode == 0, message.stderr
    assert names(course) == {f"Lovelace-{n}" for n in range(4)}
    changed = {(learner, question): points for learner, question, points in grades(course, RUN)}
    assert {key: changed[key] for key in rows} == {key: new for key, (_, new) in rows.items()}
    same = [row for row in before if row[:2] not in rows]
    assert [row for row in grades(course, RUN) if row[:2] not in rows] == same
    assert "No score changes" in passlab(course, "regrade", "class", "--yes").stdout


def test_files_for_canvas_and_moodle_lie_beside_the_grades(graded):
    with (graded / RUN / "canvas.csv").open(newline="") as lines:
        canvas = list(csv.reader(lines))
    assert canvas[0][-1] == "day00" and canvas[1][-1] == "9"
    assert {row[0]: row[-1] for row in canvas[2:]}["learner-0000"] == "9"
    with (graded / RUN / "moodle.csv").open(newline="") as lines:
        assert {row[0]: row[-1] for row in csv.reader(lines)}["learner-0000"] == "9"


@pytest.mark.skipif(not shutil.which("faketime"), reason="sets the clock by faketime (Debian: apt install faketime)")
def test_a_clock_that_was_ahead_once_is_not_believed(graded, tmp_path):
    course = shutil.copytree(graded, tmp_path / "clock")
    command = ["faketime", "+400 days", sys.executable, "-m", "passlab.cli", "grade", "class", "--seed", "1"]
    ahead = subprocess.run(command, cwd=course, env=tiny.environment(course), capture_output=True, text=True)
    assert ahead.returncode == 0, ahead.stderr
    submit(course, "learner-0000", BAD)
    now = passlab(course, "grade", "class", "--seed", "2")
    assert now.returncode == 0, now.stderr
    with (course / RUN / "grades.csv").open(newline="") as lines:
        assert {row["seed"] for row in csv.DictReader(lines)} == {"2"}
    assert passlab(course, "grade", "class", "--replay").returncode == 0


#: A disk that is full when a file of that name is written.
FULL = """
import errno, os, sys
from pathlib import Path
name = sys.argv.pop(1)
real = os.replace

def replace(fresh, path, *more, **named):
    if Path(path).name == name:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    real(fresh, path, *more, **named)

os.replace = replace
sys.argv[0] = "passlab"
from passlab.cli import main
main()
"""


@pytest.mark.parametrize(("name", "recorded"), [("grades.csv", 4), ("report.html", 4), ("tiny.ipynb", 0)])
def test_after_a_full_disk_the_same_command_goes_on_with_the_same_cases(graded, tmp_path, name, recorded):
    course = shutil.copytree(graded, tmp_path / "full")
    shutil.rmtree(course / RUN)
    stopped = tiny.run(course, "-c", FULL, name, "grade", "class", "--jobs", "1")
    assert stopped.returncode == 1 and "Traceback" not in stopped.stderr, stopped.stderr
    assert f"{name} cannot be written: No space left on device." in stopped.stderr
    assert f"What is recorded stays: {recorded} of 4 submissions. When that is mended" in stopped.stderr
    with sqlite3.connect(course / RUN / "gradebook.db") as db:
        ((seed, finished),) = db.execute("SELECT seed, finished FROM passlab_run")
    assert finished is None
    again = passlab(course, "grade", "class")
    assert again.returncode == 0 and seeds(course) == {seed}, again.stderr
    assert ("Resumed: 4 submissions" in again.stdout) == (recorded == 4)
    assert grades(course, RUN) == grades(graded, RUN)


def test_what_could_not_be_recorded_is_said_and_tried_again(graded, tmp_path):
    course = shutil.copytree(graded, tmp_path / "refused")
    shutil.rmtree(course / RUN)
    (course / RUN / "feedback").mkdir(parents=True)
    (course / RUN / "feedback/learner-0002").touch()
    first = passlab(course, "grade", "class")
    assert first.returncode == 1 and "Graded 3 of 4 submissions (1 could not be recorded)" in first.stdout, first.stderr
    assert first.stdout.splitlines()[-1].startswith("Not everything is recorded. When that is mended")
    before = seeds(course)
    (course / RUN / "feedback/learner-0002").unlink()
    again = passlab(course, "grade", "class")
    assert again.returncode == 0 and "Resumed: 3 submissions" in again.stdout and seeds(course) == before


def test_two_gradings_into_one_folder_take_turns(graded, tmp_path):
    course = shutil.copytree(graded, tmp_path / "two")
    with locks.only_grader(course / RUN):
        second = passlab(course, "grade", "class")
    assert second.returncode == 1 and f"is in use: process {os.getpid()} (" in second.stderr
    assert grades(course, RUN) == grades(graded, RUN)


WITHOUT = """
import sys
from autograder.engine import sandbox
sandbox.missing = lambda: ["The layer “bubblewrap” is missing. Install it."]
sys.argv = ["passlab", *sys.argv[1:]]
from passlab.cli import main
main()
"""


def test_without_a_whole_sandbox_grading_refuses_unless_told_and_then_every_page_says_so(graded, tmp_path):
    course = shutil.copytree(graded, tmp_path / "unsafe")
    shutil.rmtree(course / RUN)
    refused = tiny.run(course, "-c", WITHOUT, "grade", "class")
    assert refused.returncode == 1 and "bubblewrap" in refused.stderr and "--unsafe" in refused.stderr
    assert not (course / RUN / "grades.csv").exists()
    message = tiny.run(course, "-c", WITHOUT, "grade", "class", "--unsafe")
    assert message.returncode == 0, message.stderr
    assert message.stdout.splitlines()[-1].startswith(
        "WARNING: graded with --unsafe, without the whole sandbox. Learners' "
    )
    assert grades(course, RUN) == grades(graded, RUN)
    pages = [course / RUN / "report.html", *(course / RUN / "feedback").rglob("*.html")]
    assert len(pages) == 5 and all("--unsafe" in page.read_text() for page in pages)
    assert "--unsafe" not in (graded / RUN / "report.html").read_text()
