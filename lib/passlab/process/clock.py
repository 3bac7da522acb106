"""How much CPU time this process has spent, and limits on it."""

from __future__ import annotations

import resource
import signal
import time
from dataclasses import dataclass, field

#: A limit is on CPU time, which other programs do not use up; by the clock, what is limited may take this many times as
#: long.
PATIENCE = 4


def cpu_time() -> float:
    """Return the seconds of CPU time that all threads of this process have spent.

    `time.process_time` counts in ticks of some milliseconds as soon as a process has a limit of CPU time.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Limit:
    """A limit of `cpu` seconds of CPU time, which begins now, at `start`; `PATIENCE` times as long by the clock."""

    cpu: float
    start: float = field(default_factory=time.monotonic)

    @property
    def clock(self) -> float:
        """The seconds that it lasts by the clock."""
        return PATIENCE * self.cpu

    @property
    def deadline(self) -> float:
        """The time at which it ends by the clock, as `time.monotonic` counts."""
        return self.start + self.clock

    def over(self, spent: float) -> bool:
        """Return whether it has ended for a process that has spent this many CPU seconds since it began."""
        return spent >= self.cpu or time.monotonic() > self.deadline


def end_after(seconds: float) -> None:
    """Have a signal end this process after `seconds` of CPU time, or by the clock after `PATIENCE` times as long."""
    limit = Limit(seconds)
    for timer, number, length in (
        (signal.ITIMER_PROF, signal.SIGPROF, limit.cpu),
        (signal.ITIMER_REAL, signal.SIGALRM, limit.clock),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, length)


def ran_out(status: int) -> bool:
    """Return whether `end_after` ended a process that has this exit status, negative for a signal."""
    return -status in (signal.SIGPROF, signal.SIGALRM)
