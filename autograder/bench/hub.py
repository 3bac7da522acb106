"""`make bench`, part hub: what learners need of a machine, and how soon a class has its feedback.

The hub runs on a copy of /etc, as in the tests, so that no account is left; that takes root.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autograder.authoring.source import ROOT
from autograder.bench import drivers
from autograder.bench.drivers import answer, command
from autograder.bench.figures import Figure, at_most, not_measured
from autograder.toys import hubs, tiny

LEARNERS, SERVERS = 30, 6
#: GB for the idle learners, and minutes until all have feedback.
MEMORY, FEEDBACK = 3.0, 5.0


def _run(words: list[str], **options: Any) -> dict:
    return answer(subprocess.run(words, cwd=ROOT, capture_output=True, text=True, **options))


def _own_memory(server: str) -> list[float]:
    """Return MiB, by learner, of the processes started with a command: what others share with them counts by parts."""
    sizes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            if server in words and "bwrap" not in words[0]:
                lines = (folder / "smaps_rollup").read_text().splitlines()
                sizes.append(next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024)
        except OSError:
            continue
    return sizes


def _idle(scratch: Path) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    from autograder.toys.browser import QUIET, chromium

    course = tiny.make(scratch / "course")
    subprocess.run([sys.executable, "-m", "autograder.authoring.notebooks"], cwd=course, env=tiny.environment(course))
    names = [f"learner{n}" for n in range(SERVERS)]
    roster = "id,section\n" + "".join(f"{name},\n" for name in names)
    with hubs.running(course, scratch, roster) as url, sync_playwright() as playwright:
        with (scratch / "hub/accounts.csv").open(newline="") as lines:
            passwords = {row["id"]: row["password"] for row in csv.DictReader(lines)}
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        for name in names:
            yield f"{name} opens JupyterLab"
            person = hubs.Person(browser, url, name, passwords[name])
            person.page.get_by_role("menuitem", name="Nbgrader", exact=True).wait_for()
            person.page.context.close()
        browser.close()
        sizes = _own_memory("/passlab/server.py")
        base = sum(_own_memory("jupyterhub")) + sum(_own_memory("--api-ip"))
    each = sum(sizes) / len(sizes)
    yield at_most(
        f"memory of {LEARNERS} idle learners, from {len(sizes)} who opened JupyterLab",
        LEARNERS * each / 1024,
        MEMORY,
        " GB",
        f"{each:.0f} MiB each; hub and proxy {base:.0f} MiB",
    )


def hub(largest: int) -> Iterator[Any]:
    """Measure idle learners, a class from submission to feedback, and each day's memory and CPU."""
    if hubs.is_root():
        with tempfile.TemporaryDirectory(prefix="passlab-bench-") as scratch:
            yield from _idle(Path(scratch))
        yield f"feedback for {LEARNERS} learners"
        with tempfile.TemporaryDirectory(prefix="passlab-bench-") as scratch:
            env = os.environ | {"PASSLAB_HUB": f"{scratch}/hub", "PASSLAB_EXCHANGE": f"{scratch}/hub/exchange"}
            env |= {"PASSLAB_RUN": f"{scratch}/run"}
            words = [*hubs.sealed(Path(scratch)), sys.executable, *command(drivers.submissions, LEARNERS)]
            output = _run(words, env=env)
        took = output["took"]
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items())
        title = f"day 1, {LEARNERS} learners: from the exchange to released feedback"
        yield at_most(title, sum(took.values()) / 60, FEEDBACK, " min", f"{parts}; {os.cpu_count()} cores")
        yield at_most("notebooks without feedback", output["missing"], 0, "", f"{LEARNERS} learners")
    else:
        yield not_measured("idle learners, and feedback for a class", "it takes root, which makes system users")
    for day in sorted((ROOT / "solutions").glob("day*")):
        yield f"the notebooks of {day.name}"
        used = _run([sys.executable, *command(drivers.notebooks, sorted(map(str, day.glob("*.ipynb"))))])
        details = f"{used['seconds']:.0f} s of CPU"
        yield Figure(f"{day.name}: largest process of its solved notebooks", f"{used['memory']:.2g} GB", details)
