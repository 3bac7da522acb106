"""How often learners on a hub check an answer, and for how long they work on it: figures of a class, without names.

Each learner's `work/progress.json` counts the checks of each exercise. The time on an exercise is the time between a
check of it and the check before, of any exercise, where that is at most `project.PAUSE`: reading, trying and pausing
look the same, and work that ends without a check is not seen. Kept are medians over `items.LEAST` learners or more.
"""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from autograder.grading.files import UnreadableError, read_text
from autograder.reports.exports import write
from autograder.reports.items import LEAST
from passlab import course_paths, exercises

#: The file in a folder of results.
ACTIVITY = "activity.csv"
#: The most bytes of a file with progress, and the largest number in it that is believed.
MOST_BYTES, MOST = 2**20, 10**6


class Activity(NamedTuple):
    """Of an exercise: how many learners checked an answer, and the medians of their checks and of their minutes."""

    learners: int
    checks: float
    minutes: float


def gather(files: Iterable[Path]) -> dict[str, Activity]:
    """Return exercise → its figures, of those that enough learners have checked. Learners may write what they like into
    these files: links are not followed, and values that are not numbers do not count."""
    of: dict[str, list[tuple[float, float]]] = defaultdict(list)
    known = {exercise.id for day in exercises.days() for exercise in exercises.of_day(day)}
    for path in files:
        for name, entry in _progress(path).items():
            checks = _number(entry, "attempts")
            if name in known and checks:
                of[name].append((checks, _number(entry, "seconds")))
    return {
        name: Activity(len(rows), median(checks for checks, _ in rows), median(s for _, s in rows) / 60)
        for name, rows in sorted(of.items())
        if len(rows) >= LEAST
    }


def _progress(path: Path) -> dict[str, dict]:
    """Return what a file with progress has; {} for one that is missing or that is none."""
    try:
        record = json.loads(read_text(path, MOST_BYTES))
    except (UnreadableError, OSError, ValueError, RecursionError):
        return {}
    record = record if isinstance(record, dict) else {}
    return {name: entry for name, entry in record.items() if isinstance(entry, dict)}


def _number(entry: dict, name: str) -> float:
    value = entry.get(name, 0)
    return float(value) if isinstance(value, int | float) and 0 <= value <= MOST else 0.0


def save(path: Path, figures: dict[str, Activity]) -> None:
    """Write the figures, readable for the owner of the project only, to whom new folders belong as well."""
    folders = [folder for folder in path.parents if not folder.exists()]
    rows = [(name, str(one.learners), f"{one.checks:g}", f"{one.minutes:.1f}") for name, one in figures.items()]
    write(path, [("question", *Activity._fields), *rows])
    path.chmod(0o600)
    owner = course_paths.PROJECT.stat()
    if os.geteuid() == 0:
        for place in (path, *folders):
            os.chown(place, owner.st_uid, owner.st_gid)


def load(path: Path) -> dict[str, Activity]:
    """Return what `save` has written; {} where there is no such file, or one that was changed."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        return {r["question"]: Activity(int(r["learners"]), float(r["checks"]), float(r["minutes"])) for r in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
