"""Which worker runs which tests, and when: what fails fast comes first, long files fill the gaps.

`tests/seconds.json` says how long each file of tests took, in seconds of its worker; `--keep-seconds` writes it.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

SECONDS = Path(__file__).parents[1] / "seconds.json"
#: Whether Relay's TVM, which is built for Linux on x86-64 alone, can be held here.
RELAY = (sys.platform, platform.machine()) == ("linux", "x86_64")
#: Seconds of a test that is not in the table.
UNKNOWN = 0.2
#: Files whose tests share nothing that takes time to make, so that each may run on another core.
SCATTERED = {"exercises/test_prove.py", "exercises/test_notebooks_run.py", "exercises/test_any_exercise.py"}
SCATTERED |= {"exercises/test_closed.py", "exercises/test_day03.py", "relax/test_kernels.py", "relax/test_pipelines.py"}
SCATTERED |= {"tvm/test_importers.py", "tvm/test_generate.py", "engine/test_wire.py"}


def unit(nodeid: str) -> str:
    """Return what a worker runs at a time: a file, or of the files in SCATTERED one test."""
    file = file_of(nodeid)
    return nodeid if file.removeprefix("tests/") in SCATTERED else file


def file_of(name: str) -> str:
    """Return the file of a unit, as a path from the project's folder."""
    return name.split("::")[0]


def table() -> dict[str, float]:
    """Return file, or test, → seconds."""
    return json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {}


def expected(nodeids: Iterable[str]) -> dict[str, float]:
    """Return unit → the seconds that these tests will take together."""
    known, tests = table(), Counter(map(unit, nodeids))
    return {name: known.get(name, UNKNOWN * count) for name, count in tests.items()}


class TwoEnds(LoadScopeScheduling):
    """Units in order of their length: one worker begins with the longest, the others with the shortest.

    A broken thing shows in the first minutes, and no worker is left with a long unit at the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _assign_work_unit(self, node) -> None:
        if node.gateway.id == "gw0":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


class Progress:
    """Says once a minute how much is left, and notes how long each unit takes."""

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = time.monotonic):
        self.config, self.clock, self.start = config, clock, clock()
        self.share: dict[str, float] = {}
        self.finished, self.spoken = 0.0, self.start
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl
    def pytest_xdist_node_collection_finished(self, node, ids: list[str]) -> None:
        if not self.share:
            tests, units = Counter(map(unit, ids)), expected(ids)
            self.share = {nodeid: units[unit(nodeid)] / tests[unit(nodeid)] for nodeid in ids}
            self.start = self.spoken = self.clock()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[unit(report.nodeid)] += report.duration
        if report.when == "teardown":
            self.finished += self.share.get(report.nodeid, 0.0)
        now = self.clock()
        if now - self.spoken >= 60 and self.finished:
            self.spoken, whole = now, sum(self.share.values())
            left = (now - self.start) * (whole - self.finished) / self.finished
            line = f" {self.finished / whole:.0%} of the work is done; about {max(left, 0) / 60:.0f} min left"
            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            terminal.ensure_newline()
            terminal.write_line(line)

    def pytest_sessionfinish(self) -> None:
        if self.config.getoption("keep_seconds"):
            rows = table() | {name: round(seconds, 1) for name, seconds in self.seconds.items()}
            there = {name: s for name, s in rows.items() if Path(name.split("::")[0]).exists()}
            kept = sorted((name, s) for name, s in there.items() if "::" not in name or s >= 1)
            SECONDS.write_text(json.dumps(dict(kept), indent=0) + "\n", encoding="utf-8")
