"""How much CPU time this process has spent."""

from __future__ import annotations

import resource

#: A limit is on CPU time, which other programs do not use up; by the clock, what is limited may take this many times as
#: long.
PATIENCE = 4


def cpu_time() -> float:
    """Return the seconds of CPU time that all threads of this process have spent.

    `time.process_time` counts in ticks of some milliseconds as soon as a process has a limit of CPU time.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
