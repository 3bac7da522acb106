"""What benchmarks run in other processes, where another course or other accounts are: `drive` starts it.

    python -m autograder.bench.drivers notebooks '["solutions/day01/graphs.ipynb"]'

A function's result is printed as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def command(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """Return the words after `python` that run a function of this module."""
    return ["-m", "autograder.bench.drivers", function.__name__, json.dumps(arguments)]


def answer(process: subprocess.CompletedProcess) -> Any:
    """Return the JSON in the last line that a process printed. Raise RuntimeError with its last words if it failed."""
    if process.returncode:
        raise RuntimeError(process.stderr.strip().rpartition("\n")[2])
    return json.loads(process.stdout.strip().rpartition("\n")[2])


def grade(paths: list[str], n: int, jobs: int, unsafe: bool) -> dict[str, Any]:
    """Grade notebooks of the small course, in turns, until `n` are graded; return what that took."""
    import psutil

    from autograder.authoring.notebooks import source_notebook
    from autograder.engine import engine as module
    from autograder.grading import intake

    def job(path: Path) -> Any:
        nb, authored = intake.read(path), source_notebook("day00", "fx")
        intake.repair(nb, authored)
        return intake.job(nb, authored, path.parts[-3], "day00", "fx", 5)

    if unsafe:
        module.sandbox.missing = lambda: ["measured without the sandbox"]
    work = [job(Path(path)) for path in paths]
    start = time.perf_counter()
    with module.Engine(jobs, unsafe) as engine:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(engine.grade, work[:jobs]))
            begun = time.perf_counter()
            results = list(pool.map(engine.grade, itertools.islice(itertools.cycle(work), n)))
            took = time.perf_counter() - begun
        # Results include the workers' CPU time; of the other processes only the verifier has children besides workers.
        used = sum(result.cpu_seconds for result in results)
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            times = process.cpu_times()
            used += times.user + times.system
            if "autograder.engine.verifier.process" in process.cmdline():
                used += times.children_user + times.children_system
    return {
        "start": begun - start,
        "took": took,
        "cpu": used,
        "peak": sorted(result.peak_mib for result in results)[len(results) // 2],
        "seconds": min(result.seconds for result in results),
        "points": {r.learner: [v.points for v in r.verdicts.values()] for r in results},
    }


def stock_points(database: str) -> dict[str, dict[str, float]]:
    """Return learner → question → points of stock nbgrader's gradebook."""
    from nbgrader.api import Gradebook

    with Gradebook(database, "stock") as book:
        return {
            submission.student_id: {grade.name: grade.score for nb in submission.notebooks for grade in nb.grades}
            for submission in book.assignment_submissions("day00")
        }


def submissions(learners: int) -> dict[str, Any]:
    """Hand in day 1 for a class through a hub's exchange, where accounts may be made, and release feedback."""
    from datetime import UTC, datetime

    from autograder.authoring import samples, source
    from autograder.hub import accounts

    names = [f"learner{n:02}" for n in range(learners)]
    accounts.enter([(name, "") for name in names])
    samples.build()
    perfect = source.COURSE / samples.FOLDER / "perfect/day01"
    inbound = accounts.folder() / "exchange/passlab/inbound"
    for name in names:
        stamp = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
        at = shutil.copytree(perfect, inbound / f"{name}+day01+{stamp}+x")
        (at / "timestamp.txt").write_text(stamp)
        (at / "submission_secret.txt").write_text(name)
        for path in (at, *at.iterdir()):
            shutil.chown(path, name, name)

    def run(*words: str) -> float:
        begin = time.perf_counter()
        process = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
        assert process.returncode == 0, process.stderr[-2000:] + process.stdout[-2000:]
        return time.perf_counter() - begin

    took = {
        "collect": run("nbgrader", "collect", "day01"),
        "grade": run("passlab.cli", "grade", f"{os.environ['PASSLAB_RUN']}/submitted", "--assignment", "day01"),
        "release": run("nbgrader", "release_feedback", "day01"),
    }
    released = len(list((accounts.folder() / "exchange/passlab/feedback").iterdir()))
    return {"took": took, "missing": len(names) * len(list(perfect.glob("*.ipynb"))) - released}


def notebooks(paths: list[str]) -> dict[str, float]:
    """Run notebooks as a learner who has solved them would; return GB of the largest process, and seconds of CPU."""
    import nbformat
    from nbclient import NotebookClient

    for path in paths:
        NotebookClient(nbformat.read(path, 4), timeout=1200, allow_errors=True).execute()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"memory": used.ru_maxrss / 2**20, "seconds": used.ru_utime + used.ru_stime}


if __name__ == "__main__":
    function, arguments = sys.argv[1:]
    print("\n" + json.dumps(globals()[function](*json.loads(arguments))))
