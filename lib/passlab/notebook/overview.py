"""`progress()`: the points so far, the days first, and each day's questions folded below it."""

from __future__ import annotations

from typing import NamedTuple

from passlab import exercises
from passlab.judge import Exercise, Written
from passlab.notebook.milestones import reached
from passlab.notebook.project import load_progress, skipped_days
from passlab.notebook.ui import Card, say, show


class Row(NamedTuple):
    """A question in the overview. `points`: None where a person grades it, and they are not known."""

    question: Exercise | Written
    points: float | None
    status: str

    @property
    def stretch(self) -> bool:
        return isinstance(self.question, Exercise) and self.question.stretch

    @property
    def total(self) -> float:
        return self.question.total if isinstance(self.question, Exercise) else self.question.points

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def score(self) -> str:
        return f"{'–' if self.points is None else f'{self.points:g}'} / {self.total:g}"

    @property
    def level(self) -> str:
        return "●" * self.question.difficulty + "○" * (5 - self.question.difficulty)


class Day(NamedTuple):
    """A day in the overview: its title, and its questions in the order in which they are done."""

    name: str
    title: str
    rows: list[Row]

    def part(self, stretch: bool) -> tuple[float, float]:
        """Return the points so far and the most points, of the core or of the stretch questions."""
        rows = [row for row in self.rows if row.stretch == stretch]
        return sum(row.points or 0.0 for row in rows), sum(row.total for row in rows)

    @property
    def done(self) -> int:
        return sum(row.done for row in self.rows)

    @property
    def minutes(self) -> int:
        """How long the core questions take that the judge grades and that are not done."""
        return sum(
            row.question.minutes for row in self.rows if row.points is not None and not (row.done or row.stretch)
        )

    @property
    def sign(self) -> str:
        """✓ if all of the core is done, ◐ if something was tried, else ·."""
        if self.minutes == 0:
            return "✓"
        return "◐" if any(row.status in SIGNS and row.status != "not attempted" for row in self.rows) else "·"


#: The sign before each status of a question that the judge grades.
SIGNS = {"not attempted": "·", "not right yet": "✗", "partly right": "◐", "done": "✓"}


def _status(entry: dict | None, total: float) -> str:
    """Return a status of `SIGNS`."""
    if not entry or not entry.get("attempts"):
        return "not attempted"
    if entry["points"] >= total:
        return "done"
    return "partly right" if entry["points"] else "not right yet"


def overview(day: str) -> Day:
    """Return a day ("day03") with the points so far in each of its questions."""
    record = load_progress()
    rows = []
    for exercise in exercises.of_day(day):
        entry = record.get(exercise.id)
        rows.append(Row(exercise, float(entry["points"]) if entry else 0.0, _status(entry, exercise.total)))
    rows += [Row(question, None, "graded by a person") for question in exercises.written(day)]
    return Day(day, exercises.title(day), rows)


def _sums(days: list[Day]) -> str:
    parts = []
    for word, stretch in (("core", False), ("stretch", True)):
        points, total = (sum(day.part(stretch)[i] for day in days) for i in (0, 1))
        parts += [f"{points:g} of {total:g} {word} points"] if total else []
    return ", ".join(parts)


def _question_line(row: Row) -> str:
    part = "stretch" if row.stretch else "core"
    name, minutes = row.question.id, f"{row.question.minutes} min"
    begin = f"{SIGNS.get(row.status, '·')} {name:<28}{row.question.title:<48}{part:<9}{row.level}"
    return f"{begin}  {minutes:>7}  {row.score:>8}  {row.status}"


def _day_line(day: Day) -> str:
    core, stretch = (f"{points:g} / {total:g}" for points, total in (day.part(False), day.part(True)))
    left = f"{day.minutes} min left" if day.minutes else "core done"
    count = f"{day.done} of {len(day.rows)}"
    return f"{day.sign} {day.name}  {day.title:<50}{count:>8} done  {core:>10} core  {stretch:>10} stretch  {left:>12}"


def progress(day: str | None = None) -> None:
    """Show the points so far by day, and those in each question folded below; with a day ("day03"), its questions."""
    if day is not None and day not in exercises.days():
        return show(say(f"No day {day!r}. The days are {', '.join(exercises.days())}."))
    days = [each for name in ([day] if day else exercises.days()) if (each := overview(name)).rows]
    parts = [_sums(days) or "No question has points."]
    if skipped := [name for name in skipped_days() if day in (None, name)]:
        parts.append(f"fast track passed: {', '.join(skipped)}")
    tail = ", ".join(parts)
    if day:
        lines = [_question_line(row) for each in days for row in each.rows]
    else:
        lines = [_day_line(each) for each in days]
        lines += [f"The questions of a day: progress({each.name!r})." for each in days[:1]]
    note = "" if day else reached()
    text = "\n".join(filter(None, [*lines, tail, note]))
    show(Card(text, "progress", days=days, tail=tail, open=bool(day), note=note))
