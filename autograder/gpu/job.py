"""What every part of `make gpu` is told, and the work that it spreads over processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any


@dataclass(frozen=True)
class Job:
    """device: "cuda", or "cpu" with `interpret`. until: the time.monotonic() at which the part must have ended.

    sample: at most this many checks of a kind, drawn at random from `seed`; 0: all of them.
    """

    device: str
    until: float
    seed: int = 0
    sample: int = 0

    @property
    def interpret(self) -> bool:
        return not self.device.startswith("cuda")

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return self.until - time.monotonic()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(job: Job, task: Callable[..., Any], items: Iterable[tuple], most: int = 8, apart: bool = False) -> Iterator:
    """Yield `task(*item)` for each item, as soon as it is there, from at most `most` processes, until time is up.

    apart: give each item a process of its own, as where a process can hold only one compiler. A process that dies
    yields a RuntimeError that names its item. The processes share the cores: threads that wait for one spend CPU time,
    which answers have to pay.
    """
    items = list(items)
    count = max(1, min(most, cores(), len(items)))
    os.environ["OMP_NUM_THREADS"] = str(max(1, cores() // count))  # read by torch in the processes
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), max_tasks_per_child=1 if apart else None)
    running = {pool.submit(task, *item): item for item in items}
    try:
        while running and job.left > 0:
            finished, _ = wait(running, max(job.left, 0), FIRST_COMPLETED)
            for future in finished:
                item = running.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool:
                    yield RuntimeError(f"The process ended that ran {item[0]}.")
    finally:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
