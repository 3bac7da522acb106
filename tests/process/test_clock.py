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


def test_a_limit_ends_by_cpu_time_or_by_the_clock():
    limit = Limit(2.0)
    assert limit.deadline == limit.start + limit.clock and limit.clock > limit.cpu
    assert not limit.over(1.9) and limit.over(2.0)
    assert Limit(2.0, start=time.monotonic() - limit.clock - 1).over(0.0)
    assert not Limit(math.inf).over(1e9)
