"""A limit of time ends a process: by CPU time if it works, by the clock if it waits."""

import signal
import subprocess
import sys

import pytest

from passlab.process.clock import ran_out


@pytest.mark.parametrize(
    ("body", "by"), [("while True: pass", signal.SIGPROF), ("signal.pause()", signal.SIGALRM), ("pass", 0)]
)
def test_a_limit_of_time_ends_a_process(body, by):
    code = f"import signal; from passlab.process.clock import end_after; end_after(0.2)\n{body}"
    status = subprocess.run([sys.executable, "-c", code]).returncode
    assert status == -by and ran_out(status) == bool(by)


def test_other_signals_are_not_the_limit():
    assert not ran_out(-signal.SIGSEGV) and not ran_out(1)
