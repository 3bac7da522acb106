"""Which of the long tests run: those that a change since they passed can reach, and a share of the others.

python -m tests.support.long              # run those that have not passed with this code
PYTEST_ADDOPTS=--keep-passed make test    # run all tests

They are units, as workers take them: files, and of the files in `schedule.SCATTERED` tests. Either command writes which
have passed into tests/long.json, each with a digest of what it reaches. What is left out is drawn anew in each run, and
printed in its head. Attacks, proofs and notebooks have draws of their own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from autograder.authoring.source import ROOT
from autograder.proofs import ledger
from tests.support import schedule
from tests.support.amounts import DRAW, FULL
from tests.support.reach import ALWAYS, reached
from tests.support.schedule import file_of

PASSED = ROOT / "tests/long.json"
#: A file is long that takes so many seconds; of all seconds of the long ones, this part runs in any case.
LONG, SHARE = 10.0, 1 / 20
#: Files of which a draw of their own takes a share, and a folder of which two runs have a part each.
_OTHERS = ("tests/attacks/test_attacks.py", "tests/tvm/")


def lengths() -> dict[str, float]:
    """Return long unit → its seconds, in order: a file of tests as its path from the project's folder, or a test in a
    long file, "tests/a/test_b.py::test_c"."""
    rows = schedule.table()
    seconds: Counter[str] = Counter()
    for name, taken in rows.items():
        seconds[file_of(name)] += taken
    others = (*_OTHERS, *ALWAYS)
    return {name: rows[name] for name in sorted(rows) if seconds[file_of(name)] >= LONG and not name.startswith(others)}


def digest(name: str) -> str:
    """Return the digest of what can make a difference to a unit."""
    return ledger.digest_of(ROOT / path for path in reached(name))


def held(name: str) -> str:
    """Return the TVM that pytest holds in the run of a unit."""
    folder = name.split("/")[1]
    return folder if folder in ("relay", "relax") else "none"


def passed(names: Iterable[str]) -> set[str]:
    """Return those of these units that have passed with what they reach as it is."""
    known = ledger.read(PASSED)
    return {name for name in names if name in known and known[name] == digest(name)}


def left_out(tvm: str = "none") -> list[str]:
    """Return the long units of a run that do not run this time."""
    if FULL or os.environ.get("PYTEST_LONG") == "all":
        return []
    seconds = lengths()
    most, drawn, total = SHARE * sum(seconds.values()), set(), 0.0
    for name in random.Random(f"long {DRAW}").sample([*seconds], len(seconds)):
        if not drawn or total + seconds[name] <= most:  # the first whatever it takes, so that each file has its turn
            drawn.add(name)
            total += seconds[name]
    return sorted(passed(name for name in seconds.keys() - drawn if held(name) == tvm))


class Passed:
    """Writes down which long units pass, each as it ends: a run that is killed loses only those that it was at."""

    def __init__(self):
        self.digests, self.left, self.failed = {name: digest(name) for name in lengths()}, Counter(), set()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if parts := [name for name in session.config.args if schedule.unit(name) != name]:
            raise pytest.UsageError(f"--keep-passed is about whole files, and {parts[0]} is a part of one.")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expect(item.nodeid for item in session.items)

    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._expect(ids)

    def _expect(self, nodeids: Iterable[str]) -> None:
        self.left = self.left or Counter(map(schedule.unit, nodeids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = schedule.unit(report.nodeid)
        if report.failed:
            self.failed.add(name)
        if report.when == "teardown":
            self.left[name] -= 1
            if not self.left[name] and name in self.digests:
                self._write(name)

    def _write(self, name: str) -> None:
        lines = {known: code for known, code in ledger.read(PASSED).items() if known in self.digests and known != name}
        lines |= {} if name in self.failed else {name: self.digests[name]}
        fresh = PASSED.with_suffix(".tmp")
        fresh.write_text(json.dumps(lines, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        fresh.replace(PASSED)


def main() -> int:
    names, status = lengths(), 0
    due = sorted({*names} - passed(names))
    for tvm in ("none", "relay", "relax"):
        if own := [name for name in due if held(name) == tvm]:
            command = [sys.executable, "-m", "pytest", "-n", "3", "--keep-passed", "--tvm", tvm, *own]
            status |= subprocess.call(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return status


if __name__ == "__main__":
    sys.exit(main())
