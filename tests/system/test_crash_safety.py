"""A grader that is killed at any moment is started again, and nothing is lost or counted twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import nbformat

from autograder.toys import tiny
from autograder.toys.classes import grades, hand_in
from tests.support.amounts import KILLS

LEARNERS = 16


def command(course: Path, run: str) -> subprocess.Popen:
    argv = [sys.executable, "-m", "passlab.cli", "grade", "class", "--seed", "7"]
    env = tiny.environment(course) | {"PASSLAB_RUN": run}
    return subprocess.Popen(argv, cwd=course, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def engines(course: Path) -> set[int]:
    """Processes of an engine of this course: warm parents, verifiers, workers."""
    results = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment, words = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
            if str(course).encode() in environment and b"autograder.engine" in words:
                results.add(int(pid))
        except OSError:
            continue
    return results


def is_whole(course: Path, run: str, expected: list) -> None:
    """Each submission has exactly one score for each question, and all of its files."""
    assert grades(course, run) == expected
    with sqlite3.connect(course / run / "gradebook.db") as db:
        last = db.execute("SELECT id FROM passlab_run ORDER BY started DESC").fetchone()
        unfinished = db.execute("SELECT count(*) FROM passlab_run WHERE finished IS NULL").fetchone()
        seen = db.execute(
            "SELECT learner, count(*) FROM passlab_notebook WHERE run = ? GROUP BY learner", last
        ).fetchall()
        scores = db.execute("SELECT run, learner, question FROM passlab_score").fetchall()
    # A grader that is killed when its run is complete, on its way out, begins another run.
    assert [count for _, count in seen] == [1] * LEARNERS and unfinished == (0,)
    assert len(scores) == len(set(scores)) and sum(run == last[0] for run, _, _ in scores) == 3 * LEARNERS
    for learner in (course / "class").iterdir():
        where = f"{learner.name}/day00"
        assert nbformat.read(course / run / f"autograded/{where}/tiny.ipynb", as_version=4).cells
        assert (course / run / f"feedback/{where}/tiny.html").read_text().endswith("</html>\n")


def test_kills_at_random_moments_lose_nothing_and_count_nothing_twice(course):
    hand_in(course, LEARNERS)
    start = time.monotonic()
    undisturbed = command(course, "autograder/run-calm")
    assert undisturbed.wait() == 0, undisturbed.stderr.read()
    lasts = time.monotonic() - start
    expected = grades(course, "autograder/run-calm")
    is_whole(course, "autograder/run-calm", expected)
    draw, kills, number, resumed = random.Random(50), 0, 0, 0
    while kills < KILLS:
        run, killed = f"autograder/run-{number}", 0
        while True:
            grader = command(course, run)
            try:
                # Up to the end of an undisturbed run; once killed, a run has less to do, and is left to end at times.
                code = grader.wait(draw.uniform(0.3, 1.0) * lasts if kills < KILLS else None)
            except subprocess.TimeoutExpired:
                grader.send_signal(signal.SIGKILL)
                grader.wait()
                kills, killed = kills + 1, killed + 1
                continue
            assert code == 0, grader.stderr.read()
            is_whole(course, run, expected)
            resumed += bool(killed)
            break
        number += 1
    assert resumed
    end = time.monotonic() + 600
    while engines(course) and time.monotonic() < end:
        time.sleep(0.1)
    assert not engines(course)
