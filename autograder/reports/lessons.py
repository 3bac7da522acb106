"""The section of a lesson that an exercise belongs to, for the feedback on answers that failed."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from traitlets import Unicode
from traitlets.config import Configurable

from autograder.authoring import source
from passlab import exercises

_HEADING = re.compile(r"^# #{2,3} (.*?)(?: · stretch)?$", re.M)


class Section(NamedTuple):
    """A section of a lesson: its heading, the lesson's file, and its address, "" if not known."""

    heading: str
    lesson: str
    address: str = ""


class Lessons(Configurable):
    """Where the lessons of a course are read."""

    book = Unicode(
        "", help="The address of the course's book, such as https://example.edu/passlab: feedback then links to it."
    ).tag(config=True)

    def section(self, exercise_id: str) -> Section | None:
        """Return the section that an exercise belongs to, or None if it names none or its day has no lesson."""
        with suppress(KeyError):
            exercise = exercises.find(exercise_id)
            lesson = _lesson(source.COURSE, exercise.day)
            if exercise.section and lesson:
                address = f"{self.book.rstrip('/')}/{lesson}.html#{_anchor(source.COURSE, lesson, exercise.section)}"
                return Section(exercise.section, f"{lesson}.ipynb", address if self.book else "")
        return None


@cache
def _lesson(course: Path, day: str) -> str:
    """Return the name of a day's lesson, "day03_optimizations", or "" if it has none."""
    return next((path.stem for path in sorted((course / "course").glob(f"{day}_*.py"))), "")


@cache
def headings(course: Path, lesson: str) -> dict[str, str]:
    """Return the headings of a lesson's sections, and each as it is written: without and with " · stretch"."""
    text = (course / "course" / f"{lesson}.py").read_text(encoding="utf-8")
    return {match[1]: match[0].lstrip("# ") for match in _HEADING.finditer(text)}


def _anchor(course: Path, lesson: str, heading: str) -> str:
    """Return the anchor that the book gives a heading."""
    return re.sub(r"[^a-z0-9]+", "-", headings(course, lesson).get(heading, heading).lower()).strip("-")
