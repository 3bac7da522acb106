"""`make bench`, part sixty: a class as students send it, from the archive of Canvas to the report.

It is that of `autograder.toys.sixty`, on the first notebook of day 1.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat

from autograder.authoring.notebooks import source_notebook
from autograder.authoring.source import ROOT
from autograder.bench.figures import Figure, apart, at_least, at_most
from autograder.bench.first_hour import children_cpu
from autograder.toys.sixty import KINDS, Notebooks, write
from passlab.notebook.cells import unmarked

DAY, NAME, RUN = "day01", "graphs", "autograder/run/bench-sixty"
#: Linux's number of the option that makes a process the parent of orphans below it.
_SUBREAPER = 36
#: The limit in seconds of CPU time, of all processes.
CPU = 120


def notebooks() -> Notebooks:
    """Return the notebook as learners get it, and with the answers of the course."""
    released = nbformat.read(ROOT / f"exercises/{DAY}/{NAME}.ipynb", as_version=4)
    solved = nbformat.read(ROOT / f"exercises/{DAY}/{NAME}.ipynb", as_version=4)
    authored = {cell.id: cell.source for cell in source_notebook(DAY, NAME).cells}
    for cell in solved.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = unmarked(authored[cell.id])
    return Notebooks(solved, released, DAY, NAME)


def sixty(largest: int) -> Iterator[Figure | str]:
    """Grade the class once, and measure."""
    yield from apart(measure)


def measure() -> Iterator[Figure | str]:
    """Yield the figures. What the grader leaves behind becomes a child of this process, which counts its time."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    yield "grading a class of sixty from the archive of Canvas"
    with tempfile.TemporaryDirectory(prefix="passlab-bench-") as scratch:
        archive = write(Path(scratch), "canvas", notebooks())
        words = ["grade", str(archive), "--roster", f"{scratch}/roster.csv", "--assignment", DAY, "--seed", "7"]
        before, begin = _cpu(), time.perf_counter()
        environment = os.environ | {"PASSLAB_RUN": RUN}
        try:
            graded = subprocess.run(
                [sys.executable, "-m", "passlab.cli", *words], cwd=ROOT, env=environment, capture_output=True, text=True
            )
            wall = time.perf_counter() - begin
            used = _cpu() - before
            if graded.returncode > 1 or not (ROOT / RUN / "report.html").exists():
                raise RuntimeError((graded.stderr.strip() or "it said nothing").splitlines()[-1])
            with (ROOT / RUN / "grades.csv").open(newline="") as lines:
                rows = list(csv.DictReader(lines))
        finally:
            shutil.rmtree(ROOT / RUN, ignore_errors=True)
    known = {row["learner"] for row in rows}
    with_grade = {row["learner"] for row in rows if row["question"]}
    expected = sum(bool(kind.points) for kind in KINDS.values())
    base = f"{len(KINDS)} learners, {len(with_grade)} with a grade; {os.cpu_count()} cores"
    yield at_most("from the archive to the report: CPU", used, CPU, " s", base)
    yield Figure("from the archive to the report", f"{wall:.0f} s", base, value=wall)
    yield at_least("learners in grades.csv", len(known & KINDS.keys()), len(KINDS), "")
    yield at_least("learners with a grade", len(with_grade), expected, "", "the others handed in nothing that can be")


def _cpu() -> float:
    """Return the CPU seconds of this process's children, and of theirs; wait until all have ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return children_cpu()
