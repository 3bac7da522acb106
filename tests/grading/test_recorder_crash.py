"""A recorder is killed again and again in the middle of a class; whoever resumes leaves one whole score of each."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, event, select

from autograder.grading.recorder import Recorder
from autograder.grading.scores import NOTEBOOK, RUN, SCORE
from tests.grading.test_recorder import tables
from tests.support import books
from tests.support.amounts import KILLS

CLASS = [f"learner {n:02}" for n in range(30)]
CHANGED = CLASS[3]
fork = multiprocessing.get_context("fork")


def points(learner: str, version: int) -> dict[str, float | str]:
    draw = random.Random(f"{learner} {version}")
    names = ("one", "two", "three", "four", "five")
    own = {name: draw.choice((0.0, 1.0, 2.5, 4.0, "NameError: x")) for name in names}
    return own | ({"six": 1.0} if draw.random() < 0.7 else {})


def page(nb, result, notes):
    return lambda marks: f"{sorted(marks.points.items())}\n" * 200


def grade(config, version: int) -> None:
    """Grade the class as `passlab grade` does: only what this run has not recorded yet."""
    with Recorder(config) as recorder:
        run = recorder.begin(7)
        done = recorder.digests(run)
        for learner in CLASS:
            own = version if learner == CHANGED else 1
            if done.get((learner, "ps1")) != f"{learner} {own}":
                paper = books.paper(config, learner, points(learner, own), "2030-01-02 00:00:00 UTC", run.seed)
                time.sleep(0.02)  # the engine at work
                recorder.record(run, paper, f"{learner} {own}", page)
        recorder.finish(run)


def die_at(step: int) -> None:
    """From here on this process kills itself at its `step`-th touch of a file's name, of the disk or of a commit."""
    left = [step]

    def counted(function: Callable) -> Callable:
        def call(*arguments, **more):
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **more)

        return call

    os.fsync = counted(os.fsync)
    for name in ("replace", "unlink", "chmod"):
        setattr(Path, name, counted(getattr(Path, name)))
    event.listen(Engine, "commit", counted(lambda connection: None))


def attempt(config, version: int, step: int | None) -> None:
    if step is not None:
        die_at(step)
    grade(config, version)


def survives(config, version: int, step: int | None, seconds: float | None) -> bool:
    """Run one more process; return whether it lived to the end."""
    process = fork.Process(target=attempt, args=(config, version, step))
    process.start()
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    process.join(120)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def state(config) -> tuple:
    """Return all that grading stores, except ids, times, and the order in which it came."""
    own = []
    with Recorder(config) as recorder, recorder.engine.connect() as db:
        for table in (NOTEBOOK, SCORE):
            columns = [column for column in table.c if column.name not in ("run", "recorded", "number", "result")]
            own.append(sorted((tuple(row) for row in db.execute(select(*columns))), key=str))
        runs = [(row.seed, row.finished is not None) for row in db.execute(select(RUN))]
    root = Path(config.CourseDirectory.root, "run")
    paths = [path for part in ("autograded", "feedback") for path in root.glob(f"{part}/*/*/*")]
    files = {str(path.relative_to(root)): path.read_text() for path in paths}
    return tables(config.CourseDirectory.db_url), own, files, runs


def test_a_recorder_killed_many_times_leaves_what_an_undisturbed_one_does(tmp_path):
    quiet = books.make(tmp_path / "quiet")
    hurt = books.settings(shutil.copytree(tmp_path / "quiet", tmp_path / "hurt"))
    grade(quiet, 2)
    draw, kills, most = random.Random(11), 0, min(KILLS, 25)  # after more of them it would be done
    while kills < most:
        by_step = kills % 2
        step = draw.randint(1, 30) if by_step else None
        seconds = None if by_step else draw.uniform(0.0, 0.08)
        # The changed notebook comes in when half of the kills are over.
        assert not survives(hurt, 1 if kills < most // 2 else 2, step, seconds), "it was done before it could be killed"
        kills += 1
    with Recorder(hurt) as recorder:
        assert 0 < len(recorder.digests(recorder.begin(7))) < len(CLASS), "the kills came in the middle of the class"
    assert survives(hurt, 2, None, None)
    expected, actual = state(quiet), state(hurt)
    assert actual[0] == expected[0] and actual[1] == expected[1]
    assert actual[2].keys() == expected[2].keys()
    assert actual[2] == expected[2]
    assert actual[3] == [(7, True)], "one run, finished"
    for name, text in actual[2].items():
        assert not name.endswith(".ipynb") or json.loads(text)["cells"], name


def grade_in_two(config) -> None:
    """Grade the class in two processes at once."""
    pair = [fork.Process(target=attempt, args=(config, 1, None)) for _ in range(2)]
    for process in pair:
        process.start()
    for process in pair:
        process.join(120)
        assert process.exitcode == 0


def test_two_recorders_at_once_leave_what_one_does(tmp_path):
    alone = books.make(tmp_path / "alone")
    shared = books.settings(shutil.copytree(tmp_path / "alone", tmp_path / "shared"))
    grade(alone, 1)
    grade_in_two(shared)
    expected, actual = state(alone), state(shared)
    assert actual[:3] == expected[:3]
