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
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from autograder.authoring.source import ROOT
from autograder.proofs import imports, ledger
from passlab import exercises
from passlab.graph.registry import COMPILERS
from tests.support import changed, schedule
from tests.support.amounts import DRAW, FULL

PASSED = ROOT / "tests/long.json"
#: A file is long that takes so many seconds; of all seconds of the long ones, this part runs in any case.
LONG, SHARE = 10.0, 1 / 20
#: Files that draw their own share, and a folder of which two runs have a part each.
_OTHER_DRAWS = ("attacks/test_attacks.py", "exercises/test_prove.py", "exercises/test_notebooks_run.py", "tvm/")
#: Files that read the project's files as such: any change may matter to them.
_ALWAYS = ("test_api.py", "test_types.py", "authoring/test_project.py")
#: What the tests start or read besides modules and their data.
_OTHERS = ("Makefile", "nbgrader_config.py", "lib/setup.sh")
#: The parts of `autograder` that every program may start, and how a text names another one; answers go by exercises.
_GRADING = ("authoring", "engine", "grading", "proofs", "reports")
_PART = re.compile(r"\bautograder[./](?!answers)(\w+)")
#: Modules through which a test reaches others by names that its text does not have.
_LISTS = frozenset({"passlab.exercises", "passlab.given", "autograder.answers", "autograder.proofs.ledger"})
_TESTS = ("tests/", "autograder/toys/")
#: How a text names an exercise or a day, and how it asks for all of them.
_EXERCISE, _DAY = re.compile(r"\bday\d\d\.[a-z0-9-]+"), re.compile(r"\bday\d\d(?!\d)")
_EVERY = re.compile(r"\bdays\(|\bof_day\((?!\")|\bauthored_paths\(")
#: How it goes through the library's modules, and the modules that belong to one day.
_WALK, _OF_A_DAY = "pkgutil", re.compile(r"lib/passlab/\w+/(day\d\d)/")
#: What tests write, and proofs.
_RESULTS = {"tests/long.json", "tests/seconds.json", "tests/attacks/proved.json", "autograder/ledger.json"}


def lengths() -> dict[str, float]:
    """Return long unit → its seconds, in order: a file of tests as its path from the project's folder, or a test in a
    long file, "tests/a/test_b.py::test_c"."""
    rows = schedule.table()
    seconds: Counter[str] = Counter()
    for name, taken in rows.items():
        seconds[file_of(name)] += taken
    others = tuple(f"tests/{name}" for name in (*_OTHER_DRAWS, *_ALWAYS))
    return {name: rows[name] for name in sorted(rows) if seconds[file_of(name)] >= LONG and not name.startswith(others)}


def file_of(name: str) -> str:
    """Return the file of a unit, as a path from the project's folder."""
    return name.split("::")[0]


@cache
def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [path for path in listed if (ROOT / path).is_file()]


def _relative(paths: Iterable[Path]) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in paths}


@cache
def _program(*parts: str) -> set[str]:
    """Return the files of the project as a program, with these parts of `autograder`: its commands, what they import
    or start, and every compiler."""
    folders = [ROOT / "autograder" / part for part in (*_GRADING, *parts)]
    files = [*(ROOT / "autograder").glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]
    compilers = [f"passlab.{package}{part}" for package in COMPILERS for part in ("", ".compiler")]
    others = (path for pattern in _OTHERS for path in ROOT.glob(pattern))
    return _relative({*imports.closure(["passlab.cli", *modules, *compilers]), *others})


@cache
def _library() -> set[str]:
    return _relative(path for path in (ROOT / "lib/passlab").rglob("*") if path.suffix not in (".pyc", ".md", ""))


@cache
def _exercise(exercise_id: str) -> set[str]:
    return _relative(ledger.files(exercise_id))


@cache
def _texts(file: str) -> tuple[str, ...]:
    """Return the text of a file of tests, and of the modules of tests and the toys that it imports."""
    paths = (ROOT / path for path in changed.needs(ROOT / file) if path.startswith(_TESTS) and path.endswith(".py"))
    return tuple(path.read_text(encoding="utf-8") for path in sorted(paths))


def _exercises(name: str) -> set[str]:
    """Return the ids of the exercises that a unit may take from their list: the one that its name has; else those of
    the days that its file, or a module of tests that it imports, names; all, if none is named or all are asked for."""
    known = [exercise.id for day in exercises.days() for exercise in exercises.of_day(day)]
    if own := {*known} & {*_EXERCISE.findall(name)}:
        return own
    texts = _texts(file_of(name))
    days = {day for text in texts for day in _DAY.findall(text)}
    every = not days or any(_EVERY.search(text) for text in texts)
    return {i for i in known if every or i.split(".")[0] in days}


def reached(name: str) -> set[str]:
    """Return the files that can make a difference to a unit, as paths from the project's folder.

    They are what its file imports, what its text names, and the fixtures of its folders; where it takes exercises from
    their list, those with their answers; where it runs the project as a program, that and their lessons; and where it
    goes through the library's modules, these.
    """
    test = ROOT / file_of(name)
    fixtures = [folder / "conftest.py" for folder in test.parents if folder.is_relative_to(ROOT / "tests")]
    paths = _relative(path for path in fixtures if path.is_file())
    paths |= changed.needs(test) | changed.names(test, _tracked())
    program, texts = changed.runs_programs(test), _texts(file_of(name))
    ids = _exercises(name) if program or imports.read(test).imports & _LISTS else set()
    days = {i.split(".")[0] for i in ids}
    paths |= {path for i in ids for path in _exercise(i)}
    if program:
        parts = {part for text in texts for part in _PART.findall(text)}
        paths |= _program(*sorted(parts)) | _relative(path for day in days for path in ROOT.glob(f"course/{day}_*.py"))
    if any(_WALK in text for text in texts):
        own = {path: _OF_A_DAY.match(path) for path in _library()}
        paths |= {path for path, day in own.items() if not day or day[1] in days}
    return paths - _RESULTS


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
