"""Read a roster: who is in the class, and what other programs call them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from autograder.grading.files import UnreadableError, read_bytes
from passlab.judge import listed


@dataclass(frozen=True)
class Learner:
    """One line of the roster: a learner's names and ids in other programs; "" where unknown.

    `group`: learners with the same one hand in together.
    """

    id: str
    name: str = ""
    email: str = ""
    section: str = ""
    canvas_id: str = ""
    sis_id: str = ""
    moodle_id: str = ""
    group: str = ""


_COLUMNS = tuple(field.name for field in fields(Learner))
#: What a gradebook exported from Canvas calls the columns; its other columns are assignments.
_CANVAS = {
    "student": "name",
    "id": "canvas_id",
    "sis user id": "sis_id",
    "sis login id": "id",
    "section": "section",
    "group": "group",
    "group name": "group",
}
#: Moodle's list of participants.
_MOODLE = {
    "first name": "first",
    "last name": "last",
    "surname": "last",
    "username": "id",
    "id number": "sis_id",
    "email address": "email",
    "groups": "group",
}


def read_roster(path: Path) -> dict[str, Learner]:
    """Read a roster; return id → learner.

    Its first line names the columns, which are those of `Learner`, or those of Canvas's exported gradebook or of
    Moodle's list of participants. A file with one column and without that line is a list of ids. Commas, semicolons or
    tabs separate the fields, and the text is UTF-8, UTF-16 or what Excel writes. Raises UnreadableError, with what was
    found, for anything else.
    """
    table = _table(path)
    if not table:
        return {}
    header = [name.strip().lower() for name in table[0]]
    rows = [dict(zip(header, line, strict=False)) for line in table[1:]]
    if {"student", "id"} <= set(header):
        rows = [{_CANVAS[name]: text for name, text in row.items() if name in _CANVAS} for row in rows]
        rows = [row | {"id": row.get("id") or row.get("sis_id", "")} for row in rows if _is_learner(row)]
    elif {"username", "email address"} & set(header) and "id" not in header:
        rows = [{_MOODLE[name]: text for name, text in row.items() if name in _MOODLE} for row in rows]
        rows = [_of_moodle(row) for row in rows]
    elif len(header) == 1 and header[0] not in ("id", *_COLUMNS):
        rows = [{"id": line[0]} for line in table]
    else:
        rows = _own(path, table[0], rows)
    return _learners(path, rows)


def _table(path: Path) -> list[list[str]]:
    """Return the lines of a table that are not empty. Raises UnreadableError if it is not a table."""
    text = _text(path)
    head = text.lstrip("\r\n").split("\n", 1)[0]
    separator = max(",;\t", key=head.count)
    try:
        lines = csv.reader(text.splitlines(keepends=True), delimiter=separator)
        table = [[field.strip() for field in line] for line in lines]
    except csv.Error as error:
        raise UnreadableError(f"{path.name} is not a CSV file: {error}.") from None
    return [line for line in table if any(line)]


def _text(path: Path) -> str:
    """Return the text of a file in UTF-8, UTF-16, or the Windows code page of western Europe."""
    data = read_bytes(path)
    utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    for encoding in ("utf-16",) if utf_16 else ("utf-8-sig", "cp1252"):  # Excel's "CSV" is not Unicode
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise UnreadableError(f"{path.name} is not text in UTF-8, UTF-16 or Windows-1252. Save it as CSV UTF-8.")


def _own(path: Path, names: Sequence[str], rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of a roster in this project's own form. Raises UnreadableError for other columns."""
    known = {name.strip().lower(): name.strip().lower().replace(" ", "_") for name in names}
    expected = f"The columns are {listed(list(_COLUMNS))}; only id is needed"
    if "id" not in known.values():
        raise UnreadableError(
            f"{path.name} has no column id. Its first line is: {', '.join(names)}. {expected}, and Canvas's exported "
            "gradebook or Moodle's list of participants do as they are."
        )
    if unknown := [name.strip() for name in names if known[name.strip().lower()] not in (*_COLUMNS, "")]:
        raise UnreadableError(f"{path.name} has columns that mean nothing here: {listed(unknown)}. {expected}.")
    return [{known[name]: text for name, text in row.items() if known[name]} for row in rows]


def _is_learner(row: dict[str, str]) -> bool:
    """Return whether a line of Canvas's gradebook is a learner, and not points possible or the test student."""
    return row.get("name", "") not in ("Points Possible", "Student, Test") and bool(row.get("canvas_id"))


def _of_moodle(row: dict[str, str]) -> dict[str, str]:
    first, last = row.pop("first", ""), row.pop("last", "")
    return row | {"name": f"{first} {last}".strip(), "id": row.get("id") or row.get("email", "")}


def _learners(path: Path, rows: list[dict[str, str]]) -> dict[str, Learner]:
    """Return id → learner. Raises UnreadableError for an id that two lines have."""
    rows = [row for row in rows if row.get("id")]
    often = [name for name, count in Counter(row["id"] for row in rows).items() if count > 1]
    if often:
        raise UnreadableError(f"{path.name} has several lines for {listed(often[:5])}. Every id stands in one line.")
    return {row["id"]: Learner(**row) for row in rows}
