"""A limit of time ends a process: by CPU time if it works, by the clock if it waits."""

import math
import signal
import subprocess
import sys
import time

import pytest

from passlab.process.clock import Limit, ran_out


@pytest.mark.parametrize(
    ("patience", "body", "by"),
    [(100, "while True: pass", signal.SIGPROF), (1, "signal.pause()", signal.SIGALRM), (1, "pass", 0)],
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
