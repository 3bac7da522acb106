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

from autograder.grading.cluster import _is_here
from autograder.toys import tiny
from autograder.toys.classes import GOOD, grades, hand_in

LEARNERS = 8


@contextlib.contextmanager
def part(course, *arguments: str):
    """The cluster's scheduler or one of its workers, started in the course's folder."""
    log = course / f"cluster-{time.monotonic_ns()}.log"
    argv = [sys.executable, "-m", "passlab.cli", "cluster", *arguments]
    with log.open("w") as out:
        env = tiny.environment(course) | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s"}
        process = subprocess.Popen(argv, cwd=course, env=env, stdout=out, stderr=out, start_new_session=True)
    process.log = log
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def said(process, pattern: str, seconds: float = 60) -> str:
    """What a Dask process has logged, once it has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if match := re.search(pattern, process.log.read_text()):
            return match[1]
        assert process.poll() is None, process.log.read_text()
        time.sleep(0.1)
    raise AssertionError(process.log.read_text())


@pytest.fixture(scope="module")
def cluster(course):
    """Scheduler and two workers of one thread each: (address, worker address → process)."""
    with contextlib.ExitStack() as running:
        scheduler = running.enter_context(part(course, "--port", "0"))
        address = said(scheduler, r"Scheduler at: +(tls://\S+)")
        workers = {}
        for _ in range(2):
            worker = running.enter_context(part(course, address, "--threads", "1"))
            workers[said(worker, r"Start worker at: +(tls://\S+)")] = worker
        yield address, workers


def security(folder):
    """What a client shows: the certificate in this folder."""
    from distributed.security import Security

    cert, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    return Security(require_encryption=True, tls_ca_file=cert, tls_client_cert=cert, tls_client_key=key)


def test_nobody_speaks_to_the_cluster_without_its_certificate(course, cluster, tmp_path):
    from distributed import Client
    from distributed.security import Security

    address, workers = cluster
    copy = course / "autograder/run/cluster"
    assert [oct(p.stat().st_mode & 0o777) for p in (copy, copy / "key.pem")] == ["0o700", "0o600"]
    with Client(address, security=security(copy), set_as_default=False, timeout="20s") as client:
        assert client.submit(int, "7").result() == 7
    foreign = Security.temporary()
    (tmp_path / "key.pem").write_text(foreign.tls_client_key)
    (tmp_path / "certificate.pem").write_text(foreign.tls_ca_file)
    for place in (address, *workers):
        for strange in (security(tmp_path), None):
            with pytest.raises((OSError, TypeError, ValueError)):
                Client(place.replace("tls", "tls" if strange else "tcp"), security=strange, timeout="3s")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["grade", "alone", "--scheduler", "tcp://192.0.2.1:8786"], "has no TLS: anybody there could run code"),
        (["cluster", "tcp://127.0.0.1:8786"], "is not the address of a scheduler with TLS"),
    ],
)
def test_a_scheduler_without_tls_is_refused(course, words, sentence):
    hand_in(course, 1, folder="alone")
    ended = tiny.run(course, "-m", "passlab.cli", *words)
    assert ended.returncode == 1 and sentence in ended.stderr and "Traceback" not in ended.stderr


def test_a_machine_without_the_certificate_is_told_what_to_copy(course):
    (course / "autograder/run/cluster").rename(aside := course / "aside")
    ended = tiny.run(course, "-m", "passlab.cli", "cluster", "tls://192.0.2.1:8786")
    aside.rename(course / "autograder/run/cluster")
    assert ended.returncode == 1 and "Copy the folder autograder/run/cluster" in ended.stderr


def test_a_scheduler_on_this_machine_needs_no_certificate():
    assert [_is_here(f"tcp://{host}:1") for host in ("127.0.0.1", "[::1]", "localhost", "192.0.2.1", "no.invalid")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_class_on_two_workers_of_which_one_dies_has_every_score_once(course, cluster):
    from distributed import Client

    address, workers = cluster
    well = hand_in(course, LEARNERS, first="import time; time.sleep(0.5)")
    argv = [sys.executable, "-m", "passlab.cli", "grade", "class", "--scheduler", address, "--seed", "7"]
    env = tiny.environment(course) | {"PASSLAB_RUN": "autograder/run-cluster"}
    grader = subprocess.Popen(argv, cwd=course, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Client(address, security=security(course / "autograder/run/cluster"), set_as_default=False) as client:
        end, victim = time.monotonic() + 120, None
        while victim is None and time.monotonic() < end and grader.poll() is None:
            done = len(list((course / "autograder/run-cluster/feedback").glob("*")))
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            victim = busy[0] if done and len(busy) == 2 else None
            time.sleep(0.02)
        assert victim, "the two workers were never both at work"
        os.killpg(workers[victim].pid, signal.SIGKILL)  # the worker and the nanny that would start it again
    out, err = grader.communicate(timeout=240)
    assert grader.returncode == 0, out + err
    assert f"Graded {LEARNERS} of {LEARNERS}" in out
    result = grades(course, "autograder/run-cluster")
    assert len(result) == len(GOOD) * LEARNERS
    assert {(learner, q) for learner, q, points in result if points == "3"} == {
        (learner, q) for learner, questions in well.items() for q in questions
    }
    # and they are what grading here gives
    assert tiny.run(course, "-m", "passlab.cli", "grade", "class", "--seed", "7").returncode == 0
    assert grades(course, "autograder/run") == result


@pytest.mark.parametrize(
    ("address", "sentence"),
    [("tcp://127.0.0.1:9", "No Dask scheduler answers"), ("nonsense", "is not the address of a Dask scheduler")],
)
def test_a_scheduler_that_is_not_there_is_said_in_a_sentence(course, address, sentence):
    hand_in(course, 1, folder="alone")
    ended = tiny.run(course, "-m", "passlab.cli", "grade", "alone", "--scheduler", address)
    assert ended.returncode == 1 and sentence in ended.stderr and "Traceback" not in ended.stderr
