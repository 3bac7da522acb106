"""A limit of time ends a process: by CPU time if it works, by the clock if it waits."""

import math
import signal
import socket
import subprocess
import sys
import time

import pytest

from passlab.process.clock import Limit, ran_out, wait
from passlab.process.messages import DeadlineError


@pytest.mark.parametrize(
    ("patience", "body", "by"),
    [(100, "while True: pass", signal.SIGPROF), (1, "signal.pause()", signal.SIGALRM), (100, "pass", 0)],
)
def test_a_limit_of_time_ends_a_process(patience, body, by):
    limited = f"from passlab.process import clock; clock.PATIENCE = {patience}; clock.end_after(0.2)"
    code = f"import signal; {limited}\n{body}"
    status = subprocess.run([sys.executable, "-c", code]).returncode
    assert status == -by and ran_out(status) == bool(by)


def test_other_signals_are_not_the_limit():
    assert not ran_out(-signal.SIGSEGV) and not ran_out(1)


@pytest.mark.parametrize(
    ("elapsed", "spent", "over"),
    [
        (1.0, 1.9, False),
        (1.0, 2.0, True),
        (7.0, 0.0, False),  # it may wait for something
        (9.0, 0.0, True),
        (9.0, 0.1, True),  # it worked, and now it waits
        (9.0, 0.3, False),  # others use the processor
        (90.0, 1.9, False),
        (101.0, 1.99, True),
    ],
)
def test_a_limit_ends_by_cpu_time_or_by_the_clock(elapsed, spent, over):
    assert Limit(2.0, start=time.monotonic() - elapsed).over(spent) is over


def test_a_limit_may_say_how_long_it_lasts_for_what_works():
    assert Limit(2.0, longest=4, start=time.monotonic() - 9).over(1.9)
    assert Limit(2.0, patience=1, start=time.monotonic() - 3).over(0.0)


def test_some_limits_never_end():
    assert not Limit(math.inf).over(1e9)


@pytest.fixture
def ends():
    """Two ends of a socket: of one that waits, and of the process that it waits for."""
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_no_time_is_asked_for_where_there_is_something_to_read(ends):
    near, far = ends
    far.send(b"x")
    wait(near, Limit(0.0), lambda: pytest.fail("it was asked"))
    assert near.recv(1) == b"x"  # it is still there to read


@pytest.mark.parametrize(
    ("limit", "spent", "looks"),
    [
        (1.0, [0.5, 0.95, 1.0], [1.0, 0.5, 0.05]),  # no look is longer than what is left
        (60.0, [0.0, 1.0, math.inf], [1.0, 1.0, 1.0]),  # `spent` may know of another limit that is over
        (-1.0, [0.0], [0.0]),  # others have used up the time for all
    ],
)
def test_waiting_ends_when_the_process_is_over_its_limit(ends, monkeypatch, limit, spent, looks):
    lengths, seconds = [], iter(spent)
    monkeypatch.setattr("select.select", lambda *sockets_and_length: lengths.append(sockets_and_length[-1]) or [[]])
    with pytest.raises(DeadlineError):
        wait(ends[0], Limit(limit), lambda: next(seconds))
    assert lengths == pytest.approx([length + 0.01 for length in looks]) and list(seconds) == []


def test_waiting_for_a_process_that_waits_ends_by_the_clock(ends):
    with pytest.raises(DeadlineError):
        wait(ends[0], Limit(0.1, patience=2), lambda: 0.0)
