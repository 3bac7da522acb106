"""`make bench`, part house: how much code there is, how dense it is, and how many files a check and a submission enter.

Each figure is shown beside `BEFORE`: the same figure at the commit `SINCE`, measured by this module in a clone of it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from autograder.authoring.source import ROOT
from autograder.bench import grading
from autograder.bench.figures import Figure, not_measured
from autograder.toys import tiny
from passlab import exercises

SINCE = "2ae326d"
#: Figure → its value at that commit.
BEFORE = {
    "lines of exercises": 18_653,
    "lines of lib": 41_712,
    "lines of answers": 25_625,
    "lines of engine": 6_534,
    "lines of the rest of autograder": 14_618,
    "lines of tests": 41_731,
    "lines of sources of exercise notebooks": 8_090,
    "lines of sources of lessons": 8_233,
    "lines in all": 165_196,
    "lines of an average exercise": 595,
    "lines of the longest function": 89,
    "the same, of exercises and answers": 255,
    "functions over complexity 12": 51,
    "functions over complexity 20": 11,
    "files that a check enters": 34,
    "files that a submission enters again": 8,
    "errors of mypy": 3_171,
}
#: What was aimed at.
GOALS = {"lines in all": 140_000, "functions over complexity 20": 0, "files that a check enters": 24}
#: An exercise should take at most this share of the lines that it took before.
SHARE = 0.6

#: Area → its folders; a file counts for the first area that has it.
AREAS = {
    "exercises": ("lib/passlab/exercises", "lib/passlab/given"),
    "lib": ("lib",),
    "answers": ("autograder/answers",),
    "engine": ("autograder/engine",),
    "the rest of autograder": ("autograder",),
    "tests": ("tests",),
    "sources of exercise notebooks": ("solutions",),
    "sources of lessons": ("course",),
}
#: The areas whose lines are those of exercises.
OF_EXERCISES = ("exercises", "answers", "sources of exercise notebooks")
LEFT_OUT = ("autograder/run/", "autograder/samples/")


def sources() -> dict[str, list[Path]]:
    """Return area → its Python files."""
    files: dict[str, list[Path]] = {area: [] for area in AREAS}
    known: set[Path] = set()
    for area, folders in AREAS.items():
        for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
            if path not in known and not path.relative_to(ROOT).as_posix().startswith(LEFT_OUT):
                known.add(path)
                files[area].append(path)
    return files


def lines(files: dict[str, list[Path]]) -> dict[str, int]:
    """Return the lines of each area, in all, and of an average exercise."""
    of_area = {
        area: sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths) for area, paths in files.items()
    }
    known = sum(len(exercises.of_day(day)) for day in exercises.days())
    figures = {f"lines of {area}": number for area, number in of_area.items()}
    figures["lines in all"] = sum(of_area.values())
    figures["lines of an average exercise"] = round(sum(of_area[area] for area in OF_EXERCISES) / known)
    return figures


def longest(paths: list[Path]) -> tuple[int, str]:
    """Return the lines of the longest function, and where it is."""
    length = (0, "")
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = max(length, (node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}: {node.name}"))
    return length


def complexities() -> list[int]:
    """Return the complexity of each function of lib and autograder that has more than 12 branches, by ruff."""
    rule = ["--isolated", "--ignore-noqa", "--select", "C901", "--config", "lint.mccabe.max-complexity=12"]
    command = [sys.executable, "-m", "ruff", "check", *rule, "--output-format", "json", "lib", "autograder"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode > 1:
        raise RuntimeError(process.stderr.strip())
    rows = [row for row in json.loads(process.stdout) if not _left_out(row["filename"])]
    return [int(re.search(r"\((\d+) > 12\)", row["message"])[1]) for row in rows]


def _left_out(filename: str) -> bool:
    return Path(filename).relative_to(ROOT).as_posix().startswith(LEFT_OUT)


def type_errors() -> int:
    """Return the errors that mypy finds in lib and autograder with its own defaults, whatever the project asks for."""
    options = ["--config-file=", "--ignore-missing-imports", "--explicit-package-bases", "--namespace-packages"]
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={cache}", "-p", "passlab", "-p", "autograder"]
        environment = {"MYPYPATH": f"{ROOT / 'lib'}:{ROOT}", "PATH": "/usr/bin:/bin"}
        process = subprocess.run(command, cwd=cache, env=environment, capture_output=True, text=True)
    last = process.stdout.strip().rpartition("\n")[2]
    if process.returncode > 1 or not (total := re.match(r"Found (\d+) error|Success", last)):
        raise RuntimeError(process.stderr.strip() or last)
    return int(total[1] or 0)


def checked() -> list[str]:
    """Return the files that a check of a wrong answer goes through."""
    command = [sys.executable, "-m", "autograder.bench.walks", "check"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(process.stdout.splitlines()[-1])


def graded() -> list[str]:
    """Return the files that the submission of one learner goes through."""
    with tempfile.TemporaryDirectory(prefix="passlab-bench-") as scratch:
        course = grading.small_course(Path(scratch), 1)
        process = tiny.run(course, "-m", "autograder.bench.walks", "grade", "class", "--seed", "5")
        if process.returncode:
            raise RuntimeError(process.stderr.strip().split("\n")[-1])
    return json.loads(process.stdout.splitlines()[-1])


def measure() -> Iterator[tuple[str, int, str] | Figure | str]:
    """Yield each figure as its name, its value and what there is to say about it."""
    files = sources()
    for name, number in lines(files).items():
        yield name, number, ""
    yield "lines of the longest function", *longest([*files["lib"], *files["engine"], *files["the rest of autograder"]])
    yield "the same, of exercises and answers", *longest([*files["exercises"], *files["answers"]])
    rows = complexities()
    yield "functions over complexity 12", len(rows), f"the largest {max(rows, default=0)}"
    yield "functions over complexity 20", sum(number > 20 for number in rows), ""
    yield "a check, with a profile hook"
    yield "files that a check enters", len(set(walk := checked())), f"{len(walk)} stays"
    yield "a submission, with a profile hook"
    stays = Counter(walk := graded())
    repeats = ", ".join(f"{Path(file).stem} {number}x" for file, number in stays.most_common() if number > 1)
    yield "files that a submission enters again", sum(number > 1 for number in stays.values()), repeats
    if importlib.util.find_spec("mypy"):
        yield "mypy over lib and autograder, with its defaults"
        yield "errors of mypy", type_errors(), "mypy's defaults, lib and autograder"
    else:
        yield not_measured("errors of mypy", "mypy is not installed")


def house(largest: int) -> Iterator[Figure | str]:
    """Measure the code itself, beside what it was at the commit `SINCE`."""
    for row in measure():
        if isinstance(row, Figure | str):
            yield row
            continue
        name, number, about = row
        before = BEFORE.get(name)
        goal = round(SHARE * before) if before and name == "lines of an average exercise" else GOALS.get(name)
        baseline = f"{before:,} at {SINCE}" if before is not None else ""
        yield Figure(
            name,
            f"{number:,}",
            "; ".join(filter(None, (baseline, about))),
            "" if goal is None else f"≤ {goal:,}",
            None if goal is None else number <= goal,
            number,
        )
