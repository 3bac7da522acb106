"""Paths: the course's folder, and the file with a learner's progress."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from passlab import course_paths

#: The longest pause between two checks that counts as time on the second one's exercise, in seconds.
PAUSE = 900


def root() -> Path | None:
    """Return the course's folder: the one that PASSLAB_COURSE names, else the nearest above the working directory, else
    the one this library belongs to."""
    if folder := course_paths.external_course():
        return folder
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "course").is_dir() and (folder / "exercises").is_dir():
                return folder
    return None


def progress_file() -> Path:
    """Return `work/progress.json` of the course, or a file in the home folder; PASSLAB_PROGRESS overrides both."""
    if named := os.environ.get("PASSLAB_PROGRESS"):
        return Path(named)
    home = root()
    return home / "work" / "progress.json" if home else Path.home() / ".passlab" / "progress.json"


def load_progress() -> dict:
    """Return exercise id → {"points", "total", "attempts", "hints"}, and of a check its time, "checked", and "seconds".

    A damaged file is set aside, not overwritten.
    """
    return load(progress_file())


def load(path: Path) -> dict[str, dict]:
    """Return the records in a file of the learner's, by name; {} without the file. One that is damaged is set aside."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or not all(isinstance(v, dict) for v in record.values()):
            raise ValueError
        return record
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, UnicodeDecodeError):
        aside = path.with_suffix(".damaged.json")
        number = 1
        while aside.exists():
            number += 1
            aside = path.with_suffix(f".damaged{number}.json")
        path.rename(aside)
        print(f"{path.name} could not be read; it is kept as {aside.name}, and counting starts anew.")
        return {}


def save_progress(record: dict) -> None:
    """Write the whole record atomically: a crash leaves the old file or the new one."""
    save(progress_file(), record)


def save(path: Path, record: dict[str, dict]) -> None:
    """Write the records of a file of the learner's atomically. Say so where they cannot be saved."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        print(f"Progress could not be saved in {path}: {error.strerror or error}. Your work itself is not touched.")


def review_file() -> Path:
    """Return the file beside the progress with what `review` and `fast_track` remember."""
    return progress_file().with_name("review.json")


def skipped_days() -> list[str]:
    """Return the days whose fast track the learner has passed: ["day03"]."""
    return [day for day, entry in load(review_file()).items() if entry.get("passed")]


def count_check(exercise_id: str, points: float, total: float) -> int:
    """Remember a check of an exercise, and the time since the check before it, of any exercise, unless that was a
    pause; return how many checks of this one there were."""
    record, clock = load_progress(), time.time()
    entry = record.get(exercise_id, {})
    since = clock - max((other.get("checked", 0.0) for other in record.values()), default=0.0)
    spent = entry.get("seconds", 0.0) + (since if 0 <= since <= PAUSE else 0.0)
    attempts = entry.get("attempts", 0) + 1
    remember(exercise_id, points=points, total=total, attempts=attempts, checked=round(clock), seconds=round(spent))
    return attempts


def remember(exercise_id: str, **fields) -> dict:
    """Update one exercise's entry, save, and return it; `points` never decreases."""
    record = load_progress()
    entry = {"points": 0.0, "total": 0.0, "attempts": 0, "hints": 0} | record.get(exercise_id, {})
    if "points" in fields:
        fields["points"] = max(float(fields["points"]), float(entry["points"]))
    entry |= fields
    record[exercise_id] = entry
    save_progress(record)
    return entry
