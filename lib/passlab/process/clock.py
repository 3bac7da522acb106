"""How much CPU time this process has spent, and an end to it."""

from __future__ import annotations

import resource
import signal

#: A limit is on CPU time, which other programs do not use up; by the clock, what is limited may take this many times as
#: long.
PATIENCE = 4


def cpu_time() -> float:
    """Return the seconds of CPU time that all threads of this process have spent.

    `time.process_time` counts in ticks of some milliseconds as soon as a process has a limit of CPU time.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def end_after(seconds: float) -> None:
    """Have a signal end this process after `seconds` of CPU time, or by the clock after `PATIENCE` times as long."""
    for timer, number, limit in (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE * seconds),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, limit)


def ran_out(status: int) -> bool:
    """Return whether `end_after` ended a process that has this exit status, negative for a signal."""
    return -status in (signal.SIGPROF, signal.SIGALRM)
