"""A hundred submissions in one run: no score is lost, and the grader's memory stays where it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from autograder.toys import tiny
from autograder.toys.classes import GOOD, grades, hand_in

LEARNERS = 100


def resident_mib(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm") as text:
            return int(text.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def recorded(folder) -> int:
    return sum(1 for _ in folder.glob("*/day00/tiny.html"))


def test_a_hundred_submissions_keep_their_scores_and_the_grader_its_size(course):
    well = hand_in(course, LEARNERS)
    run = course / "autograder/run-load"
    argv = [sys.executable, "-m", "passlab.cli", "grade", "class"]
    env = tiny.environment(course) | {"PASSLAB_RUN": "autograder/run-load"}
    grader = subprocess.Popen(argv, cwd=course, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    sizes: list[tuple[int, float]] = []
    while grader.poll() is None:
        sizes.append((recorded(run / "feedback"), resident_mib(grader.pid)))
        time.sleep(0.05)
    assert grader.returncode == 0, grader.stderr.read()
    early = max(size for done, size in sizes if 10 <= done < 30)
    late = max(size for done, size in sizes if 70 <= done < 100)
    assert late - early < 25, f"{early:.0f} MiB after 10 to 30 submissions, {late:.0f} MiB after 70"
    result = grades(course, "autograder/run-load")
    assert len(result) == len(GOOD) * LEARNERS
    assert {(learner, q) for learner, q, points in result if points == "3"} == {
        (learner, q) for learner, questions in well.items() for q in questions
    }
