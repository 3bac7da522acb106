"""Which of the long files of tests run: those that a change since they passed can reach, and a share of the others.

python -m tests.support.long              # run those that have not passed with this code
PYTEST_ADDOPTS=--keep-passed make test    # run all tests

Either writes which files have passed into tests/long.json, each with a digest of what it reaches. What is left
out is drawn anew in each run, and printed in its head. Attacks, proofs and notebooks have draws of their own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest

from autograder.authoring.source import ROOT
from autograder.proofs import imports, ledger
from tests.support import changed, schedule
from tests.support.amounts import DRAW, FULL

PASSED = ROOT / "tests/long.json"
#: A file is long that takes so many seconds; of all seconds of the long ones, this part runs in any case.
LONG, SHARE = 10.0, 1 / 20
#: Files that draw their own share, and a folder of which two runs have a part each.
_OTHER_DRAWS = ("attacks/test_attacks.py", "exercises/test_prove.py", "exercises/test_notebooks_run.py", "tvm/")
#: What the tests start or read besides modules and their data.
_OTHERS = ("Makefile", "nbgrader_config.py", "lib/setup.sh", "course/*.py", "solutions/*/*.py")
#: Modules through which a test reaches others by names that its text does not have.
_LISTS = frozenset({"passlab.exercises", "passlab.given", "autograder.answers", "autograder.proofs.ledger"})
#: What tests write, and proofs.
_RESULTS = {"tests/long.json", "tests/seconds.json", "tests/attacks/proved.json", "autograder/ledger.json"}


def lengths() -> dict[str, float]:
    """Return long file of tests, as a path from the project's folder → its seconds, in order."""
    seconds: Counter[str] = Counter()
    for name, taken in schedule.table().items():  # of some files, a row for each test
        seconds[name.split("::")[0]] += taken
    others = tuple(f"tests/{name}" for name in _OTHER_DRAWS)
    return {name: seconds[name] for name in sorted(seconds) if seconds[name] >= LONG and not name.startswith(others)}


def files() -> list[str]:
    """Return the long files of tests, as paths from the project's folder."""
    return list(lengths())


@cache
def _code(*folders: str) -> set[str]:
    """Return the modules of some folders with what they import, as paths from the project's folder."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    homes = {path: ROOT / "lib" if path.is_relative_to(ROOT / "lib") else ROOT for path in paths}
    modules = [".".join(path.relative_to(home).with_suffix("").parts) for path, home in homes.items()]
    closure = imports.closure([name.removesuffix(".__init__") for name in modules])
    return {path.relative_to(ROOT).as_posix() for path in closure}


@cache
def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [path for path in listed if (ROOT / path).is_file()]


def reached(name: str) -> set[str]:
    """Return the files that can make a difference to a file of tests, as paths from the project's folder.

    They are what it imports, what its text names, the fixtures of its folders; the library and the answers, where it
    takes exercises from their list; and the whole project, where it runs that as a program.
    """
    test = ROOT / name
    fixtures = [folder / "conftest.py" for folder in test.parents if folder.is_relative_to(ROOT / "tests")]
    paths = {path.relative_to(ROOT).as_posix() for path in fixtures if path.is_file()}
    paths |= changed.needs(test) | changed.names(test, _tracked())
    if imports.read(test).imports & _LISTS:
        paths |= _code("lib/passlab", "autograder/answers")
    if changed.runs_programs(test):
        paths |= _code("lib/passlab", "autograder")
        paths |= {path.relative_to(ROOT).as_posix() for pattern in _OTHERS for path in ROOT.glob(pattern)}
    return paths - _RESULTS


def digest(name: str) -> str:
    """Return the digest of what can make a difference to a file of tests."""
    return ledger.digest_of(ROOT / path for path in reached(name))


def held(name: str) -> str:
    """Return the TVM that pytest holds in the run of a long file."""
    folder = name.split("/")[1]
    return folder if folder in ("relay", "relax") else "none"


def passed(names: Iterable[str]) -> set[str]:
    """Return those of these files that have passed with what they reach as it is."""
    known = ledger.read(PASSED)
    return {name for name in names if name in known and known[name] == digest(name)}


def left_out(tvm: str = "none") -> list[str]:
    """Return the long files of a run that do not run this time."""
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
    """Writes down which long files pass."""

    def __init__(self):
        self.digests, self.ran, self.failed = {name: digest(name) for name in files()}, set(), set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        (self.failed if report.failed else self.ran).add(report.nodeid.split("::")[0])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        whole = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if whole and (names := (self.ran - self.failed) & self.digests.keys()):
            lines = {
                name: code for name, code in ledger.read(PASSED).items() if name in files() and name not in self.failed
            }
            lines |= {name: self.digests[name] for name in names}
            PASSED.write_text(json.dumps(lines, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def main() -> int:
    names, status = files(), 0
    due = sorted({*names} - passed(names))
    for tvm in ("none", "relay", "relax"):
        if own := [name for name in due if held(name) == tvm]:
            command = [sys.executable, "-m", "pytest", "-n", "3", "--keep-passed", "--tvm", tvm, *own]
            status |= subprocess.call(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return status


if __name__ == "__main__":
    sys.exit(main())
