"""Which files can make a difference to a test: what it imports, what its text names, and, where it runs the project as
a program or takes exercises from their list, these. Answered from the files as they are; git says what changed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from autograder.authoring.source import ROOT
from autograder.proofs import imports, ledger
from passlab import exercises
from passlab.graph.registry import COMPILERS
from tests.support.schedule import file_of

#: A test that imports one of these, or has the fixture `course`, runs the project as a program: all of it may matter.
PROGRAMS = {"autograder/toys/tiny.py", "autograder/toys/hubs.py", "lib/passlab/cli.py"}
_FIXTURE = re.compile(r"^def \w+\([^)]*\bcourse\b", re.M)
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
#: Any change may matter to them: they read the project's files as such, or the ledger of proofs.
ALWAYS = ("tests/test_api.py", "tests/test_types.py", "tests/test_docs.py", "tests/authoring/test_project.py")
ALWAYS += ("tests/exercises/test_prove.py", "tests/exercises/test_notebooks_run.py")


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def changed_files(base: str) -> set[str]:
    """Return the paths that differ from a commit, untracked ones included. Raises ValueError without such a commit."""
    try:
        _git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    except (subprocess.CalledProcessError, FileNotFoundError):
        raise ValueError(f"{base} is not a commit of this repository, or git is missing.") from None
    return {*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")}


@cache
def needs(test: Path) -> frozenset[str]:
    """Return the files that a file of tests imports, and theirs, as paths from the project's folder."""
    closure = imports.closure([], [test])
    return frozenset(path.relative_to(ROOT).as_posix() for path in closure if path.is_relative_to(ROOT))


def runs_programs(test: Path) -> bool:
    """Return whether a file of tests runs the project as a program."""
    return bool(needs(test) & PROGRAMS or _FIXTURE.search(test.read_text(encoding="utf-8")))


def names(test: Path, paths: Iterable[str]) -> set[str]:
    """Return those of these paths that are not Python and that the text of a file of tests names."""
    text = test.read_text(encoding="utf-8")
    data = (path for path in paths if not path.endswith(".py"))
    return {path for path in data if path in text or f'"{Path(path).name}"' in text}


@cache
def _tracked() -> list[str]:
    return [path for path in _git("ls-files") if (ROOT / path).is_file()]


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
    paths = (ROOT / path for path in needs(ROOT / file) if path.startswith(_TESTS) and path.endswith(".py"))
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
    paths |= needs(test) | names(test, _tracked())
    program, texts = runs_programs(test), _texts(file_of(name))
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


def reaches(test: Path, paths: set[str]) -> bool:
    """Return whether changes of these files can make a difference to a file of tests."""
    name = test.relative_to(ROOT).as_posix()
    return name in ALWAYS or bool(paths & (reached(name) | names(test, paths)))  # one of them may be new to git
