"""How much CPU time this process has spent, and limits on it."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from passlab.process.messages import DeadlineError

#: A limit is on CPU time, which other programs do not use up. By the clock, what waits has `PATIENCE` times as long.
#: What works, at least 1 / `LONGEST` of the time, has `LONGEST` times as long: on a busy machine it gets there late.
PATIENCE, LONGEST = 4.0, 50.0
#: What waits for another process looks at least this often whether the limit is over.
_LOOK_SECONDS = 1.0


def cpu_time() -> float:
    """Return the seconds of CPU time that all threads of this process have spent.

    `time.process_time` counts in ticks of some milliseconds as soon as a process has a limit of CPU time.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Limit:
    """A limit of `cpu` seconds of CPU time, which begins now, at `start`.

    By the clock, what waits has `patience` times as long, and what works `longest` times; see `PATIENCE`.
    """

    cpu: float
    patience: float = field(default_factory=lambda: PATIENCE)
    longest: float = field(default_factory=lambda: LONGEST)
    start: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        """The time at which it ends for anything, as `time.monotonic` counts."""
        return self.start + self.longest * self.cpu

    def over(self, spent: float) -> bool:
        """Return whether it has ended for a process that has spent this many CPU seconds since it began."""
        elapsed = time.monotonic() - self.start
        waits = elapsed > self.patience * self.cpu and spent < elapsed / LONGEST
        return spent >= self.cpu or waits or elapsed > self.longest * self.cpu


def wait(sock: socket.socket, limit: Limit, spent: Callable[[], float]) -> None:
    """Wait until there is something to read. Raises DeadlineError once the limit is over.

    spent: returns the CPU seconds that the process at the other end has spent since the limit began.
    """
    left = limit.cpu
    while not select.select([sock], [], [], max(0.0, min(left, _LOOK_SECONDS)) + 0.01)[0]:
        seconds = spent()
        if limit.over(seconds):
            raise DeadlineError
        left = limit.cpu - seconds


def end_after(seconds: float) -> None:
    """Have a signal end this process once it is over its limit of `seconds` of CPU time."""
    limit, before = Limit(seconds), cpu_time()
    for timer, number, length in (
        (signal.ITIMER_PROF, signal.SIGPROF, limit.cpu),
        (signal.ITIMER_REAL, signal.SIGALRM, limit.longest * limit.cpu),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, length)

    def watch() -> None:
        while not limit.over(cpu_time() - before):
            time.sleep(max(0.1, seconds / 10))
        os.kill(os.getpid(), signal.SIGALRM)

    threading.Thread(target=watch, daemon=True).start()


def ran_out(status: int) -> bool:
    """Return whether `end_after` ended a process that has this exit status, negative for a signal."""
    return -status in (signal.SIGPROF, signal.SIGALRM)
