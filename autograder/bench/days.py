"""`make bench`, part days: the CPU time of grading a perfect notebook, for each day; beside it, all of its cells run.

One notebook at a time, nothing kept from earlier runs. A control group counts all processes. What starts for the first
notebook that needs it, such as the processes of a compiler, counts to that one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from autograder.authoring import samples
from autograder.authoring.source import ROOT
from autograder.bench.figures import Figure, not_measured
from autograder.bench.first_hour import counted
from autograder.bench.grading import LINE
from passlab.building import cache

RUN = "autograder/run/bench-days"


def days(largest: int) -> Iterator[Figure | str]:
    """Grade the sample class's perfect learner, with all cells and with what is graded."""
    samples.build()
    with tempfile.TemporaryDirectory(prefix="passlab-days-") as folder:
        shutil.copytree(ROOT / samples.FOLDER / "perfect", Path(folder, "class", "perfect"))
        yield "perfect notebooks, all cells"
        whole = cpu_of_days(Path(folder), "--run-all")
        yield "perfect notebooks, what is graded"
        graded = cpu_of_days(Path(folder))
    total, base = sum(graded.values()), f"all cells {sum(whole.values()):.4g} s"
    if not total:
        yield not_measured("CPU of a perfect notebook", "no control group counts the processes of a sandbox here")
        return
    for day in sorted(graded):
        yield Figure(f"{day}: CPU", f"{graded[day]:.3g} s", f"all cells {whole[day]:.3g} s", value=graded[day])
    yield Figure(f"{len(graded)} days: CPU", f"{total:.4g} s", base, value=total)


def cpu_of_days(folder: Path, *options: str) -> dict[str, float]:
    """Return day → CPU seconds of all processes, from one verdict to the next. Raise RuntimeError if grading fails."""
    command = [sys.executable, "-m", "passlab.cli", "grade", str(folder / "class"), "--seed", "7", "--jobs", "1"]
    environment = os.environ | {"PASSLAB_RUN": RUN, cache.FOLDER: str(folder / "builds")}
    shutil.rmtree(folder / "builds", ignore_errors=True)
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    used: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryFile("w+") as errors:
        with counted([*command, *options], cwd=ROOT, env=environment, stderr=errors) as (grader, group):
            for line in grader.stdout or ():
                if row := LINE.match(line):
                    used[row["assignment"]] += group.cpu_seconds() - sum(used.values()) if group else 0.0
        if grader.returncode:
            errors.seek(0)
            raise RuntimeError(*errors.read().strip().splitlines()[-1:])
    shutil.rmtree(ROOT / RUN, ignore_errors=True)
    return used
