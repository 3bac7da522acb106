"""Grading on a Dask cluster: a real scheduler, two workers, and one of them killed in the middle of the class."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.support import tiny
from tests.support.classes import GOOD, grades, hand_in

LEARNERS = 8


@contextlib.contextmanager
def dask(course, *arguments: str):
    """A Dask process of this environment, started in the course's folder."""
    log = course / f"dask-{arguments[0]}-{time.monotonic_ns()}.log"
    argv = [sys.executable, "-m", "dask", *arguments]
    with log.open("w") as out:
        env = tiny.environment(course) | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s"}
        process = subprocess.Popen(argv, cwd=course, env=env, stdout=out, stderr=out)
    process.log = log
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(process, pattern: str, seconds: float = 60) -> str:
    """What a Dask process has logged, once it has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := re.search(pattern, process.log.read_text()):
            return found[1]
        assert process.poll() is None, process.log.read_text()
        time.sleep(0.1)
    raise AssertionError(process.log.read_text())


@pytest.fixture(scope="module")
def cluster(course):
    """Scheduler and two workers of one thread each: (address, worker address → process)."""
    with contextlib.ExitStack() as running:
        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
        scheduler = running.enter_context(dask(course, "scheduler", *options))
        address = said(scheduler, r"Scheduler at: +(tcp://\S+)")
        workers = {}
        for _ in range(2):
            options = ("--nworkers", "1", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
            worker = running.enter_context(dask(course, "worker", address, *options))
            workers[said(worker, r"Start worker at: +(tcp://\S+)")] = worker
        yield address, workers


def test_a_class_on_two_workers_of_which_one_dies_has_every_score_once(course, cluster):
    from distributed import Client

    address, workers = cluster
    well = hand_in(course, LEARNERS, first="import time; time.sleep(0.5)")
    argv = [sys.executable, "-m", "passlab.cli", "grade", "class", "--scheduler", address, "--seed", "7"]
    env = tiny.environment(course) | {"PASSLAB_RUN": "autograder/run-cluster"}
    grader = subprocess.Popen(argv, cwd=course, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Client(address, set_as_default=False) as client:
        end, victim = time.monotonic() + 120, None
        while victim is None and time.monotonic() < end and grader.poll() is None:
            done = len(list((course / "autograder/run-cluster/feedback").glob("*")))
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            victim = busy[0] if done and len(busy) == 2 else None
            time.sleep(0.02)
        assert victim, "the two workers were never both at work"
        os.kill(workers[victim].pid, signal.SIGKILL)
    out, err = grader.communicate(timeout=240)
    assert grader.returncode == 0, out + err
    assert f"Graded {LEARNERS} of {LEARNERS}" in out
    found = grades(course, "autograder/run-cluster")
    assert len(found) == len(GOOD) * LEARNERS
    assert {(learner, q) for learner, q, points in found if points == "3"} == {
        (learner, q) for learner, questions in well.items() for q in questions
    }
    # and they are what grading here gives
    assert tiny.run(course, "-m", "passlab.cli", "grade", "class", "--seed", "7").returncode == 0
    assert grades(course, "autograder/run") == found


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("tcp://127.0.0.1:9", "No Dask scheduler answers"), ("nonsense", "is not the address of a Dask scheduler")],
)
def test_a_scheduler_that_is_not_there_is_said_in_a_sentence(course, address, sentence):
    hand_in(course, 1, folder="alone")
    ended = tiny.run(course, "-m", "passlab.cli", "grade", "alone", "--scheduler", address)
    assert ended.returncode == 1 and sentence in ended.stderr and "Traceback" not in ended.stderr
