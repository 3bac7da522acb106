"""Which of the long files of tests run: all, if any code has changed since all of them passed; otherwise a share.

python -m tests.support.long              # run those that have not passed with this code
PYTEST_ADDOPTS=--keep-passed make test    # run all tests

Either writes which files have passed into tests/long.json, with a digest of the code. What is left out is drawn anew in
each run, and printed in its head. Attacks have a draw of their own, and the runs that hold a TVM leave nothing out.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from autograder.authoring.source import ROOT
from autograder.proofs import imports, ledger
from tests.support import schedule
from tests.support.amounts import DRAW, FULL

PASSED = ROOT / "tests/long.json"
#: A file is long that takes so many seconds; of the long ones this part runs in any case.
LONG, SHARE = 10.0, 1 / 5
_ATTACKS, _OF_A_TVM = "tests/attacks/test_attacks.py", ("tests/tvm/", "tests/relay/", "tests/relax/")
#: What the tests start or read besides modules and their data.
_OTHERS = ("Makefile", "nbgrader_config.py", "lib/setup.sh", "course/*.py", "solutions/*/*.py")


def files() -> list[str]:
    """Return the long files of tests, as paths from the project's folder."""
    rows = schedule.table().items()
    long = (name for name, seconds in rows if seconds >= LONG and "::" not in name)
    return sorted(name for name in long if name != _ATTACKS and not name.startswith(_OF_A_TVM))


def digest() -> str:
    """Return the digest of the project's code and of its tests."""
    homes = (ROOT / "lib", "passlab"), (ROOT, "autograder"), (ROOT, "tests")
    paths = {path: home for home, top in homes for path in (home / top).rglob("*.py")}
    modules = [".".join(path.relative_to(home).with_suffix("").parts) for path, home in paths.items()]
    others = {path for pattern in _OTHERS for path in ROOT.glob(pattern)}
    code = imports.closure([name.removesuffix(".__init__") for name in modules])
    return ledger.digest_of((code | others) - {ROOT / "tests/attacks/proved.json"})


def _passed(code: str) -> set[str]:
    """Return the long files that have passed with the code of a digest."""
    known = ledger.read(PASSED)
    return set(known["files"]) if known.get("digest") == code else set()


def left_out() -> list[str]:
    """Return the long files that do not run this time."""
    if FULL or os.environ.get("PYTEST_LONG") == "all" or not (passed := _passed(digest())):
        return []
    known = sorted(passed & {*files()})
    return sorted(random.Random(f"long {DRAW}").sample(known, len(known) - round(SHARE * len(known))))


class Passed:
    """Writes down which long files pass."""

    def __init__(self):
        self.code, self.ran, self.failed = digest(), set(), set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        (self.failed if report.failed else self.ran).add(report.nodeid.split("::")[0])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        whole = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if whole and (names := (self.ran - self.failed) & {*files()}):
            lines = {"digest": self.code, "files": sorted(names | _passed(self.code))}
            PASSED.write_text(json.dumps(lines, indent=0) + "\n", encoding="utf-8")


def main() -> int:
    names = sorted({*files()} - _passed(digest()))
    command = [sys.executable, "-m", "pytest", "-n", "3", "--keep-passed", *names]
    return subprocess.call(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}) if names else 0


if __name__ == "__main__":
    sys.exit(main())
