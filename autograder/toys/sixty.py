"""A class of sixty, handed in as students do: odd names, archives, damaged files, groups, times that are none.

`write(folder, layout, solved, released, …)` writes it as nbgrader collects it, or as Canvas or Moodle give it, beside a
roster as that system exports it. Who has which oddity is the same in every layout: `KINDS`, in the order of the ids.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

LEARNERS = 60
LAYOUTS = ("nbgrader", "canvas", "moodle", "moodle without folders")
DUE, LATE = "2026-11-26 12:00:00 UTC", "2026-11-28 11:00:00 UTC"

#: Name of a file → what is in it.
Files = dict[str, bytes]


@dataclass(frozen=True)
class Notebooks:
    """What the files of a learner are made of: the solved notebook, as released, and what it is called."""

    solved: NotebookNode
    released: NotebookNode
    assignment: str
    name: str


@dataclass(frozen=True)
class Kind:
    """An oddity. `files`: what is handed in, of (notebooks, learner).

    told: a pattern of what the report, and the feedback if there is any, say of it, "" for nothing. points: "all",
    "some", "none", or "" where there is no grade. only: the layout in which it shows; elsewhere it is as plain.
    """

    name: str
    files: Callable[[Notebooks, str], Files]
    told: str = ""
    points: str = "all"
    only: str = ""
    group: str = ""


def _answers(nb: NotebookNode) -> list[NotebookNode]:
    cells = [cell for cell in nb.cells if cell.cell_type == "code"]
    return [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("solution")]


def _text(nb: NotebookNode) -> bytes:
    return json.dumps(nb).encode()


def _solved(notebooks: Notebooks, learner: str, change: Callable[[NotebookNode], None] = lambda nb: None) -> bytes:
    """Return the solved notebook of a learner, which no other one has, with a change."""
    nb = copy.deepcopy(notebooks.solved)
    _answers(nb)[0].source += f"\n\n\nMINE = {learner!r}"
    change(nb)
    return _text(nb)


def _named(pattern: str) -> Callable[[Notebooks, str], Files]:
    """Hand in under another name: `{}` is that of the notebook."""
    return lambda notebooks, learner: {pattern.format(notebooks.name): _solved(notebooks, learner)}


def _changed(change: Callable[[NotebookNode], None]) -> Callable[[Notebooks, str], Files]:
    return lambda notebooks, learner: {f"{notebooks.name}.ipynb": _solved(notebooks, learner, change)}


def _zipped(pattern: str, *inside: str) -> Callable[[Notebooks, str], Files]:
    """Hand in an archive with the notebook under these names."""

    def files(notebooks: Notebooks, learner: str) -> Files:
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for name in inside:
                entry = name.format(notebooks.name)
                archive.writestr(entry, b"litter" if "MACOSX" in name else _solved(notebooks, learner))
        return {pattern: data.getvalue()}

    return files


def _lost_ids(nb: NotebookNode) -> None:
    for number, cell in enumerate(nb.cells):
        cell.metadata.pop("nbgrader", None)
        cell["id"] = f"lost-{number}"


def _half_an_emoji(nb: NotebookNode) -> None:
    nb.cells[0].source += " \ud83d"


def _no_check(nb: NotebookNode) -> None:
    nb.cells.remove(next(cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("points")))


def _no_imports(nb: NotebookNode) -> None:
    cells = [cell for cell in nb.cells if cell.cell_type == "code" and "from passlab import" in cell.source]
    nb.cells.remove(cells[0])


def _answer_last(nb: NotebookNode) -> None:
    cell = _answers(nb)[-1]
    nb.cells.remove(cell)
    nb.cells.append(cell)


def _check_edited(nb: NotebookNode) -> None:
    cell = next(cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("points"))
    cell.source = "print('all points')"


def _ending(text: str) -> Callable[[NotebookNode], None]:
    """Write something below the first answer."""

    def change(nb: NotebookNode) -> None:
        _answers(nb)[0].source += f"\n\n\n{text}"

    return change


def _body(text: str) -> Callable[[NotebookNode], None]:
    """Let the function of the first answer do something else."""

    def change(nb: NotebookNode) -> None:
        cell = _answers(nb)[0]
        name = re.findall(r"^def (\w+)", cell.source, re.M)[0]
        cell.source += f"\n\n\ndef {name}(*given, **more):\n{text}"

    return change


def _two(differ: bool) -> Callable[[Notebooks, str], Files]:
    def files(notebooks: Notebooks, learner: str) -> Files:
        other = _solved(notebooks, learner, _ending("SECOND = True") if differ else lambda nb: None)
        return {f"{notebooks.name}.ipynb": _solved(notebooks, learner), f"{notebooks.name}-Copy1.ipynb": other}

    return files


def _cut(notebooks: Notebooks, learner: str) -> Files:
    data = _solved(notebooks, learner)
    return {f"{notebooks.name}.ipynb": data[: len(data) // 2]}


def _shared(group: str, differ: bool = False) -> Callable[[Notebooks, str], Files]:
    """Hand in the file of a group, or one of one's own in its name."""
    return lambda notebooks, learner: {f"{notebooks.name}.ipynb": _solved(notebooks, learner if differ else group)}


def _timed(time: str) -> Callable[[Notebooks, str], Files]:
    return lambda notebooks, learner: {
        f"{notebooks.name}.ipynb": _solved(notebooks, learner),
        "timestamp.txt": time.encode(),
    }


_PLAIN = Kind("plain", _named("{}.ipynb"))
_TAKEN = r"Taken from .*expected: "
_DECIDE = r"Decide which one counts"
#: The oddities; the rest of the class is plain.
ODD = (
    Kind("a second download", _named("{} (1).ipynb"), _TAKEN),
    Kind("a copy by Jupyter", _named("{}-Copy1.ipynb"), _TAKEN),
    Kind("a copy by Drive", _named("Copy of {}.ipynb"), _TAKEN),
    Kind(
        "capitals", lambda notebooks, learner: {f"{notebooks.name.upper()}.IPYNB": _solved(notebooks, learner)}, _TAKEN
    ),
    Kind("an ending too many", _named("{}.ipynb.txt"), _TAKEN),
    Kind("another ending", _named("{}.ipynb.json"), _TAKEN),
    Kind("a name of one's own", _named("final version, really.ipynb"), _TAKEN),
    Kind("an archive", _zipped("homework.ZIP", "{}.ipynb"), _TAKEN),
    Kind("an archive of a Mac", _zipped("work.zip", "work/{}.ipynb", "__MACOSX/work/._{}.ipynb"), _TAKEN),
    Kind("an archive of nothing", lambda notebooks, learner: {"work.zip": b"PK no archive"}, "work.zip", ""),
    Kind("metadata lost", _changed(_lost_ids), "had lost its ids"),
    Kind("half an emoji", _changed(_half_an_emoji), "replaced by a question mark in cell 1"),
    Kind("a check deleted", _changed(_no_check), "Check cell .* was missing"),
    Kind("imports deleted", _changed(_no_imports), "imports was missing"),
    Kind("an answer below its check", _changed(_answer_last), "stood below its check"),
    Kind("a check edited", _changed(_check_edited), "is read-only but had been changed"),
    Kind(
        "a mark of byte order",
        lambda notebooks, learner: {f"{notebooks.name}.ipynb": b"\xef\xbb\xbf" + _solved(notebooks, learner)},
    ),
    Kind("two claims", _two(differ=True), _DECIDE, ""),
    Kind("the same twice", _two(differ=False), "it is the same as"),
    Kind("damaged", _cut, "is damaged", ""),
    Kind("empty", lambda notebooks, learner: {f"{notebooks.name}.ipynb": b""}, "is empty", ""),
    Kind("not a notebook", lambda notebooks, learner: {f"{notebooks.name}.ipynb": b"[1, 2]"}, "not a notebook", ""),
    Kind("an essay", lambda notebooks, learner: {"essay.ipynb": _text(nbformat.v4.new_notebook())}, "essay", ""),
    Kind("another kind of file", lambda notebooks, learner: {"answers.docx": b"PK"}, "no notebook", ""),
    Kind("nothing", lambda notebooks, learner: {}, "no notebook", ""),
    Kind("untouched", lambda notebooks, learner: {f"{notebooks.name}.ipynb": _text(notebooks.released)}, "", "none"),
    Kind("a crash", _changed(_body("    import os\n\n    os._exit(3)")), "", "some"),
    Kind("an endless loop", _changed(_body("    while True:\n        pass")), "", "some"),
    Kind("late", _timed(LATE), only="nbgrader"),
    Kind("on time", _timed("2026-11-26 11:00:00 UTC"), only="nbgrader"),
    Kind("no time", _timed("yesterday"), "which is not a time such as", only="nbgrader"),
    Kind("an epoch", _timed("1700000000"), "which is not a time such as", only="nbgrader"),
    Kind("hands in for a group", _shared("A"), group="A"),
    Kind("has a group that did", lambda notebooks, learner: {}, "for the group A", group="A"),
    Kind("the same as the group", _shared("B"), group="B"),
    Kind("as the group has it", _shared("B"), group="B"),
    Kind("one of a group", _shared("C", differ=True), _DECIDE, "", group="C"),
    Kind("another of a group", _shared("C", differ=True), _DECIDE, "", group="C"),
)
KINDS = {f"s{number:02}": kind for number, kind in enumerate((*ODD, *[_PLAIN] * (LEARNERS - len(ODD))), 1)}
_FIRST = ("Ada", "József", "María José", "Nguyễn", "Siobhán", "李", "O'Neil", "Bjørn", "Zoë", "Jean-Luc")
_LAST = ("Lovelace", "de la Cruz", "Kim", "Ó Briain", "Smith-Jones", "van Dyk")


def full_name(learner: str) -> str:
    """Return a learner's name; the last two have the same one."""
    number = min(int(learner[1:]), LEARNERS - 1) - 1
    return f"{_FIRST[number % 10]} {_LAST[number // 10]}"


def section(learner: str) -> str:
    """Return a learner's section; those of a group are in one."""
    return "evening" if (int(learner[1:]) - 1) // 2 % 2 else ""


def _number(learner: str) -> int:
    """Return the number that Canvas and Moodle have given a learner."""
    return 4000 + 7 * int(learner[1:])


def write(folder: Path, layout: str, notebooks: Notebooks, kinds: dict[str, Kind] = KINDS) -> Path:
    """Write the class and `roster.csv` into a folder; return the folder or archive to grade, without the roster."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_roster(folder / "roster.csv", layout, kinds)
    entries = dict(_entries(layout, notebooks, kinds))
    if layout == "nbgrader":
        for name, data in entries.items():
            path = folder / "class" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder / "class"
    with zipfile.ZipFile(folder / "class.zip", "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return folder / "class.zip"


def _entries(layout: str, notebooks: Notebooks, kinds: dict[str, Kind]) -> Iterator[tuple[str, bytes]]:
    """Yield the path of each file in the class, as the layout has it, and its content."""
    for learner, kind in kinds.items():
        number, name = _number(learner), full_name(learner)
        for attempt, (file, data) in enumerate(kind.files(notebooks, learner).items()):
            if layout == "nbgrader":
                yield f"{learner}/{notebooks.assignment}/{file}", data
            elif file == "timestamp.txt":
                continue
            elif layout == "canvas":
                folder = re.sub(r"[^a-z]", "", "".join(reversed(name.lower().split()))) or "x"
                yield f"{folder}_{number}_{90_000 + 10 * number + attempt}_{file}", data
            else:
                between = "/" if layout == "moodle" else "_"
                yield f"{name}_{number}_assignsubmission_file{between}{file}", data


def _write_roster(path: Path, layout: str, kinds: dict[str, Kind]) -> None:
    """Write a roster as Excel saves it, as Canvas exports its gradebook, or as this project has it."""
    rows: list[tuple] = []
    if layout == "canvas":
        rows.append(("Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Group", "Essay (12)"))
        rows.append(("    Points Possible", "", "", "", "", "", "10"))
        rows += [
            (full_name(learner), _number(learner), "", learner, section(learner), kind.group, "")
            for learner, kind in kinds.items()
        ]
        rows.append(("Student, Test", "1", "", "test", "", "", ""))
    else:
        rows.append(("ID", "Name", "Section", "Group", "Moodle_ID"))
        rows += [
            (learner, full_name(learner), section(learner), kind.group, _number(learner))
            for learner, kind in kinds.items()
        ]
    with path.open("w", newline="", encoding="utf-16" if layout == "moodle" else "utf-8-sig") as lines:
        csv.writer(lines, delimiter=";" if layout == "nbgrader" else ",").writerows(rows)
