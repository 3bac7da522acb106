"""Export grades: grades.csv, and files for import into Canvas and Moodle.

Everything starts from `Row`s, one for each learner and question. Learners' ids come from folder names, which are not
trusted, and a spreadsheet executes a field that begins with =, +, - or @. Such a field gets a leading apostrophe
(OWASP, "CSV Injection"), so that spreadsheets show it as plain text. A spreadsheet may split a line at semicolons or
tabs instead, whatever is quoted, so inside a field every separator is treated like its beginning.

Canvas: instructure/canvas-lms, lib/gradebook_importer.rb. The header has Student, ID, SIS User ID, SIS Login ID,
Section, and then the assignments; a row "Points Possible" follows. Canvas finds a learner by ID (a number that it
assigned), else by SIS User ID, else by SIS Login ID, else by name; an empty field means no grade.

Moodle: https://docs.moodle.org/en/Grade_import and moodle/moodle, grade/import/csv. Columns are mapped by hand in the
browser: "Map from" the column identifier "Map to" the email address (or the ID number), and every assignment to its
grade item; "-" means no grade. Moodle rejects the whole file if it does not know one of the identifiers.
"""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autograder.engine.data import Verdict
from autograder.grading.extra import ExtraCredit
from autograder.grading.gradebook import writing
from autograder.grading.roster import Learner
from autograder.grading.scores import NOT_HANDED_IN, UNANSWERED
from passlab.judge import VERDICTS

if TYPE_CHECKING:
    from autograder.grading.recorder import Score

COLUMNS = (
    "learner", "assignment", "question", "points", "max_points", "seed", "lost", "message", "misconception",
    "status", "credit",
)  # fmt: skip

#: Where a spreadsheet may begin to read a formula: at the start of a field or after any separator, blanks, quotes and
#: characters without a width skipped (after a comma only quotes: `, -1` is in many messages, and quoting holds there).
#: The signs in their full-width and small forms included.
_SIGN = "[=+\\-@＝＋－＠﹦﹢﹣﹫]"
_ENDS = "\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029"
_NO_WIDTH = "\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
_SKIPPED = rf'(?:[^\S{_ENDS}]|["{_NO_WIDTH}])*'
_RUN = re.compile(rf"""^(?=[\t\r\n])|(?:^|(?<=[;{_ENDS}]))(?={_SKIPPED}{_SIGN})|(?<=,)(?="*{_SIGN})""")


@dataclass(frozen=True)
class Row:
    """One question of one learner. `points`: None until a person has graded it.

    `stretch`: its points are extra credit, which an assignment's maximum does not contain (the column `credit` says
    core or extra). `status`: right, partly right, wrong, not attempted, crashed, or to be graded.
    """

    learner: str
    assignment: str
    question: str
    points: float | None
    max_points: float
    seed: int | str = ""
    lost: tuple[str, ...] = ()
    message: str = ""
    misconception: str = ""
    status: str = ""
    stretch: bool = False


def status(verdict: Verdict | None, points: float | None, total: float, error: str = "") -> str:
    """Return the status of a question; see `Row`."""
    if points is None:
        return "to be graded"
    if verdict and verdict.crash:
        return "crashed"
    if (verdict and not verdict.attempted) or (error in (NOT_HANDED_IN, UNANSWERED) and not points):
        return "not attempted"
    if points >= total:
        return "right"
    return "partly right" if points > 0 else "wrong"


def rows(scores: Mapping[tuple[str, str], Iterable[Score]]) -> list[Row]:
    """Return the rows of a class. scores: (learner, assignment) → scores, as `Recorder.scores` returns them."""
    table = []
    for (learner, assignment), of_learner in sorted(scores.items()):
        for score in of_learner:
            verdict = score.verdict
            row = Row(
                learner=learner,
                assignment=assignment,
                question=score.question,
                points=score.points,
                max_points=score.total,
                seed="" if score.seed is None else score.seed,
                lost=tuple(v for v in VERDICTS if verdict and not verdict.verdicts.get(v, True)),
                message=(verdict.crash or verdict.message if verdict else "") or score.error,
                misconception=verdict.misconception if verdict else "",
                status=status(verdict, score.points, score.total, score.error),
                stretch=score.stretch,
            )
            table.append(row)
    return table


def harmless(text: str) -> str:
    """Return `text` as a field that no spreadsheet executes, without characters that cannot be written."""
    text = str(text).replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return _RUN.sub("'", text)


def _number(value: float) -> str:
    return f"{round(value, 4):.10g}"


def write(path: Path, lines: Iterable[Iterable[str]]) -> None:
    """Write a table atomically."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: write a new file next to it, then rename that. An OSError names the file itself."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with open(handle, "w", newline="", encoding="utf-8") as out:
                out.write(text)
            os.chmod(fresh, 0o666 & ~_umask())
            os.replace(fresh, path)
        except BaseException:
            os.unlink(fresh)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_grades(path: Path, rows: Iterable[Row], without: Iterable[tuple[str, str, str]] = ()) -> None:
    """Write grades.csv: a line for each learner and question.

    without: learner, assignment and reason where there is no grade: a line without a question.
    """
    lines: list[Sequence[str]] = [COLUMNS]
    for row in rows:
        points = "" if row.points is None else f"{row.points:g}"
        fields = (row.learner, row.assignment, row.question, points, f"{row.max_points:g}", str(row.seed))
        words = (" ".join(row.lost), row.message, row.misconception, row.status, "extra" if row.stretch else "core")
        lines.append([harmless(field) for field in (*fields, *words)])
    for learner, assignment, reason in without:
        line = (learner, assignment, "", "", "", "", "", reason, "", "not graded", "")
        lines.append([harmless(field) for field in line])
    write(path, lines)


@dataclass(frozen=True)
class _Sums:
    """Sums for an export. `worth`: assignment → maximum. `points`: (learner, assignment) → points; None: no grade.

    Extra credit with a column of its own is one more assignment, which is worth nothing.
    """

    learners: list[str]
    worth: dict[str, float]
    points: dict[tuple[str, str], float | None]
    notes: list[str]


def _sums(
    rows: Iterable[Row],
    roster: Mapping[str, Learner],
    penalties: Mapping[tuple[str, str], float],
    credit: ExtraCredit,
) -> _Sums:
    points: dict[tuple[str, str], float | None] = {}
    extra: dict[tuple[str, str], float] = {}
    most: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row.learner, row.assignment)
        most[key] = most.get(key, 0.0) + (0.0 if row.stretch else row.max_points)
        if row.stretch and row.points is not None:
            extra[key] = extra.get(key, 0.0) + row.points
            points.setdefault(key, 0.0)
        else:
            so_far = points.get(key, 0.0)
            points[key] = None if row.points is None or so_far is None else so_far + row.points
    worth: dict[str, float] = {}
    for (_, assignment), total in sorted(most.items(), key=lambda item: item[0][1]):
        worth[assignment] = max(worth.get(assignment, 0.0), total)
    counted = {key: credit.counted(number, worth[key[1]]) for key, number in extra.items()}
    if not credit.own_column:
        points = {key: v if v is None else v + counted.get(key, 0.0) for key, v in points.items()}
    points = {k: v if v is None else max(v - penalties.get(k, 0.0), 0.0) for k, v in points.items()}
    if credit.own_column:
        points |= {(learner, f"{assignment} extra"): number for (learner, assignment), number in counted.items()}
        worth |= {f"{assignment} extra": 0.0 for _, assignment in counted}
        worth = dict(sorted(worth.items()))
    waiting = sorted(key for key, value in points.items() if value is None)
    notes = [
        f"{learner}, {assignment}: no grade, because an answer still has to be graded."
        for learner, assignment in waiting
    ]
    return _Sums(sorted(set(roster) | {learner for learner, _ in points}), worth, points, notes)


def write_canvas(
    path: Path,
    rows: Iterable[Row],
    roster: Mapping[str, Learner] | None = None,
    penalties: Mapping[tuple[str, str], float] | None = None,
    credit: ExtraCredit | None = None,
) -> list[str]:
    """Write a file for Canvas's gradebook import. Return a sentence for each learner or grade that will not import.

    penalties: (learner, assignment) → points deducted for a late submission. credit: what extra credit counts.
    """
    roster, sums = roster or {}, _sums(rows, roster or {}, penalties or {}, credit or ExtraCredit())
    notes = sums.notes
    fixed = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    lines = [[*fixed, *(harmless(name) for name in sums.worth)]]
    lines.append(["    Points Possible", "", "", "", "", *(_number(total) for total in sums.worth.values())])
    for learner in sums.learners:
        person = roster.get(learner, Learner(learner))
        grades = (sums.points.get((learner, assignment)) for assignment in sums.worth)
        fields = [person.name or person.id, person.canvas_id, person.sis_id, person.id, person.section]
        if not (person.canvas_id or person.sis_id) and harmless(person.id) != person.id:
            notes.append(
                f"{learner}: Canvas will not find this learner, whose id had to be changed because a spreadsheet would "
                "execute it. Add canvas_id or sis_id to the roster."
            )
        lines.append([*map(harmless, fields), *("" if g is None else _number(g) for g in grades)])
    write(path, lines)
    return notes


def write_moodle(
    path: Path,
    rows: Iterable[Row],
    roster: Mapping[str, Learner] | None = None,
    penalties: Mapping[tuple[str, str], float] | None = None,
    credit: ExtraCredit | None = None,
) -> list[str]:
    """Write a file for Moodle's grade import. Return a sentence for each learner or grade that will not import.

    The identifier is the email address if the roster has one for every learner, otherwise the learner's id, which must
    then be the ID number in Moodle. A learner whose identifier a spreadsheet would execute is left out.
    """
    roster, sums = roster or {}, _sums(rows, roster or {}, penalties or {}, credit or ExtraCredit())
    notes = sums.notes
    by_email = bool(roster) and all(learner in roster and roster[learner].email for learner in sums.learners)
    lines = [["identifier", "full name", *(harmless(name) for name in sums.worth)]]
    for learner in sums.learners:
        person = roster.get(learner, Learner(learner))
        identifier = person.email if by_email else person.id
        if harmless(identifier) != identifier:
            notes.append(
                f"{learner}: left out of the file for Moodle, because a spreadsheet would execute the identifier. "
                "Add an email address for every learner to the roster."
            )
            continue
        grades = (sums.points.get((learner, assignment)) for assignment in sums.worth)
        lines.append([identifier, harmless(person.name), *("-" if g is None else _number(g) for g in grades)])
    for assignment, total in sums.worth.items():
        best = max((points or 0.0 for (_, name), points in sums.points.items() if name == assignment), default=0.0)
        if best > total > 0:
            notes.append(
                f"{assignment} is worth {total:g} points, and with extra credit there are up to {best:g}: Moodle "
                "accepts more than the maximum only with unlimitedgrades on."
            )
        elif total > 100:
            notes.append(
                f"{assignment} is worth {total:g} points: Moodle accepts more than 100 only with unlimitedgrades on."
            )
    write(path, lines)
    return notes
