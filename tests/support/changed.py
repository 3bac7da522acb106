"""Which tests a change can reach: those whose imports lead to a changed file, those that run the project as a program,
and those that name a changed file of another kind. Answered from the files as they are; git says what changed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from autograder.authoring.source import ROOT
from autograder.proofs import imports

#: A test that imports one of these, or has the fixture `course`, runs the project as a program: all of it may matter.
PROGRAMS = {"autograder/toys/tiny.py", "autograder/toys/hubs.py", "lib/passlab/cli.py"}
#: What grades a submission: the command, and what its processes start with.
GRADER = (
    "autograder.commands",
    "autograder.engine.runner.warm",
    "autograder.engine.sandbox.__main__",
    "autograder.engine.verifier.builder",
    "autograder.engine.verifier.process",
)
_FIXTURE = re.compile(r"^def \w+\([^)]*\bcourse\b", re.M)
PROJECT = ("lib/passlab/", "autograder/", "pyproject.toml")
#: Any change may matter to them: they read the ledger of proofs, or look up what pages and notebooks name.
ALWAYS = {
    *("tests/exercises/test_prove.py", "tests/exercises/test_notebooks_run.py"),
    *("tests/test_docs.py", "tests/test_api.py"),
}


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


def reaches(test: Path, changed: set[str]) -> bool:
    """Return whether these changes can make a difference to a file of tests."""
    name = test.relative_to(ROOT).as_posix()
    if name in ALWAYS or needs(test) & changed or "tests/conftest.py" in changed:
        return True
    if any(path.startswith(PROJECT) for path in changed) and runs_programs(test):
        return True
    return bool(names(test, changed))
