"""`make bench`, part first-hour: what somebody waits for who has just cloned the project.

Set-up, the sample class, the tests: each in a fresh clone of the last commit, with the packages that pip and uv keep.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from autograder.authoring.source import ROOT
from autograder.bench.figures import Figure, at_most, not_measured
from autograder.engine.sandbox.cgroups import Group, cgroup, parents

#: A verdict as `passlab grade` prints it.
VERDICT = re.compile(r"[\w-]+, day\d\d: [\d.]+ of ")
#: More than a command of the Makefile takes.
MOST_MIB, MOST_PROCESSES = 2**30, 2**15
#: Seconds, on two quiet cores.
SETUP, GRADE, FIRST_VERDICT, TEST, QUICK = 120, 90, 15, 720, 60


class Wait(NamedTuple):
    """What a command took, in seconds: until a line that is looked for, to its end, and of all processors together.
    `last`: its last line."""

    first: float
    seconds: float
    busy: float
    last: str
    ok: bool


def wait(clone: Path, *words: str, line: re.Pattern = VERDICT) -> Wait:
    """Run a command of the Makefile in a clone."""
    dropped = ("PASSLAB_RUN", "PASSLAB_BUILDS", "MAKEFLAGS", "MAKELEVEL", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    begin, before, first, last = time.perf_counter(), children_cpu(), 0.0, ""
    with counted(["make", *words], cwd=clone, env=environment, stderr=subprocess.STDOUT) as (process, group):
        for text in process.stdout or ():
            last = text.strip() or last
            if not first and line.match(text):
                first = time.perf_counter() - begin
        process.wait()
        busy = group.cpu_seconds() if group else children_cpu() - before
    return Wait(first, time.perf_counter() - begin, busy, last, process.returncode == 0)


def counting_group() -> contextlib.AbstractContextManager[Group]:
    """Return a control group that counts all processes of a command, those of a sandbox among them, and limits none.

    Where the kernel has version 2, it is empty: the grader could make none for its submissions inside.
    """
    with contextlib.suppress(OSError):
        if not parents(os.getpid())[1]:
            return cgroup("first-hour", MOST_MIB, MOST_PROCESSES)
    return contextlib.nullcontext(Group({}))


@contextlib.contextmanager
def counted(argv: Sequence[str], **options: Any) -> Iterator[tuple[subprocess.Popen[str], Group]]:
    """Run a command in `counting_group`, its output in a pipe. options: for `subprocess.Popen`."""
    with (
        counting_group() as group,
        subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: group.add(os.getpid()),  # before it starts others
            **options,
        ) as process,
    ):
        yield process, group


def children_cpu() -> float:
    """Return the CPU seconds of the processes below this one that have ended and were waited for by their parents."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_hour(largest: int) -> Iterator[Figure | str]:
    """Measure the two commands of the README and the tests, as a stranger runs them."""
    with tempfile.TemporaryDirectory(prefix="passlab-first-hour-") as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        yield "make setup"
        setup = wait(clone, "setup")
        if not setup.ok:
            yield not_measured("this part", f"make setup failed: {setup.last[:160]}")
            return
        repeat = wait(clone, "setup")
        base = f"again, with nothing to do: {repeat.seconds:.2g} s"
        yield at_most("make setup, packages cached", setup.seconds, SETUP, " s", base)
        yield "make grade"
        grade = wait(clone, "grade")
        yield "make grade, again"
        warm = wait(clone, "grade")
        base = f"{grade.busy:.3g} s of CPU; again, with what was kept: {warm.seconds:.3g} s, {warm.busy:.3g} s of CPU, "
        base += f"first verdict {warm.first:.3g} s"
        yield at_most("make grade, fresh clone", grade.seconds, GRADE, " s", base)
        yield at_most("make grade, first verdict", grade.first, FIRST_VERDICT, " s", base)
        yield "make quick"
        quick = wait(clone, "quick")
        yield at_most("make quick", quick.seconds, QUICK, " s", quick.last)
        yield "make test"
        test = wait(clone, "test")
        yield at_most("make test", test.seconds, TEST, " s", f"{test.busy:.4g} s of CPU; {test.last}")
        for name, result in (("grade", grade), ("quick", quick), ("test", test)):
            if not result.ok:
                yield not_measured(f"make {name}", f"it failed: {result.last[:160]}")
