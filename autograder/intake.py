"""Taking in submissions: find notebooks in whatever folders arrived, read them, and put back what they lost.

Nothing here changes a submitted file, and nothing here runs a learner's code.
"""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

#: No honest submission of this course comes near it.
MAX_BYTES = 20 * 2**20

_PATTERN = str.maketrans({"[": "(", "]": ")", "*": "_", "?": "_"})
_LITTER = {"__MACOSX", "__pycache__", "node_modules"}


class Damaged(Exception):
    """A submitted notebook that cannot be read. The message says what is wrong with it."""


@dataclass
class Submission:
    """What a learner handed in for one assignment: its folder, its notebooks by name, and what is to be said."""

    learner: str
    assignment: str
    notebooks: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Class:
    """Everything found in a folder of submissions. `notes`: learner ("" for the whole class) → sentences."""

    submissions: dict[tuple[str, str], Submission] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def note(self, learner: str, sentence: str) -> None:
        said = self.notes.setdefault(learner, [])
        if sentence not in said:
            said.append(sentence)


def _folders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".") and p.name not in _LITTER)


def _notebooks(path: Path) -> Iterator[Path]:
    """All notebooks below a folder, the shallow ones first. Links are not followed."""
    for folder, below, files in os.walk(path):
        below[:] = sorted(b for b in below if not b.startswith(".") and b not in _LITTER)
        yield from (Path(folder) / f for f in sorted(files) if f.endswith(".ipynb") and not f.startswith("."))


def _class_folder(path: Path, known: dict[str, set[str]], found: Class) -> Path:
    """The folder that holds the learners: `path`, or the only folder in it when unpacking made one more."""
    while True:
        inside = _folders(path)
        if len(inside) != 1 or any(p.suffix == ".ipynb" for p in path.iterdir()):
            return path
        below = {p.name for p in _folders(inside[0])}
        holds_learners = any(set(known) & {q.name for q in _folders(p)} for p in _folders(inside[0]))
        if below & set(known) or not holds_learners or below == {inside[0].name}:
            return path
        found.note("", f"The learners' folders are taken from {inside[0].name}/, one level deeper than expected.")
        path = inside[0]


def _learner(folder: str, found: Class, taken: set[str]) -> str:
    """The learner's id: the folder's name, without what nbgrader would read as a pattern or strip."""
    name = "".join(ch if ch.isprintable() else "_" for ch in folder).translate(_PATTERN).strip() or "_"
    number, plain = 1, name
    while name in taken:
        number += 1
        name = f"{plain} ({number})"
    if name != folder:
        found.note(name, f"The folder is called {folder!r}; nbgrader cannot use that name.")
    return name


def collect(path: Path, known: dict[str, set[str]]) -> Class:
    """Find the submissions in a folder laid out as learner/assignment/notebook.ipynb, and name what is elsewhere.

    `known`: assignment → names of its notebooks.
    """
    found = Class()
    home = _class_folder(path, known, found)
    owner = {notebook: assignment for assignment, names in known.items() for notebook in names}
    taken: set[str] = set()
    for folder in _folders(home):
        if folder.name in known:
            found.note("", f"{folder.name}/ is the folder of an assignment; here a learner's folder was expected.")
            continue
        learner, any_notebook = _learner(folder.name, found, taken), False
        taken.add(learner)
        for file in sorted(_notebooks(folder), key=lambda p: (len(p.parts), p)):
            any_notebook = True
            inside = file.relative_to(folder)
            if file.is_symlink() or not file.is_file():
                found.note(learner, f"{inside} is a link and was not followed: hand in the file itself.")
                continue
            assignment = file.parent.name if len(inside.parts) > 1 else None
            if assignment not in known:
                guess = owner.get(file.stem)
                if guess is None or (len(inside.parts) == 2 and (assignment or "").startswith("day")):
                    what = f"assignment {assignment!r}" if assignment else f"notebook {file.name!r}"
                    found.note(learner, f"{inside}: unknown {what}. Known: {', '.join(sorted(known))}.")
                    continue
                assignment = guess
            if file.stem not in known[assignment]:
                expected = ", ".join(sorted(f"{n}.ipynb" for n in known[assignment]))
                found.note(learner, f"{inside}: {assignment} has no notebook of that name. Expected: {expected}.")
                continue
            submission = found.submissions.setdefault((learner, assignment), Submission(learner, assignment))
            if file.stem in submission.notebooks:
                kept = submission.notebooks[file.stem].relative_to(folder)
                submission.notes.append(f"{inside} was not graded: {kept} is there too and lies closer to the top.")
                continue
            if inside.parts != (assignment, file.name):
                submission.notes.append(f"Taken from {inside} (expected: {assignment}/{file.name}).")
            submission.notebooks[file.stem] = file
        if not any_notebook:
            found.note(learner, "No notebook in this folder.")
    for stray in sorted(p.name for p in home.iterdir() if p.suffix == ".ipynb"):
        found.note("", f"{stray} lies outside of any learner's folder and was not graded.")
    return found


def read(path: Path) -> NotebookNode:
    """Read a submitted notebook as nbformat 4. Raises Damaged with a sentence for whatever cannot be a notebook."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise Damaged(f"{path.name} has {size / 2**20:.0f} MiB; more than {MAX_BYTES // 2**20} MiB is not read.")
        if size == 0:
            raise Damaged(f"{path.name} is empty.")
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise Damaged(f"{path.name} is not text in UTF-8, so it is not a notebook.") from None
    except json.JSONDecodeError as error:
        raise Damaged(f"{path.name} is damaged: at line {error.lineno} it stops being JSON ({error.msg}).") from None
    except RecursionError:
        raise Damaged(f"{path.name} is nested too deeply to be a notebook.") from None
    if not isinstance(data, dict) or not isinstance(data.get("nbformat"), int):
        raise Damaged(f"{path.name} is JSON, but no notebook: it has no `nbformat`.")
    if data["nbformat"] > 4:
        raise Damaged(f"{path.name} has notebook format {data['nbformat']}; 4 is the newest that is known.")
    try:
        nb = nbformat.convert(nbformat.from_dict(data), 4)
        _normalise(nb)
        nbformat.validate(nb)
        # Lone surrogates pass as JSON and cannot be written again.
        nbformat.writes(nb).encode("utf-8")
    except UnicodeEncodeError:
        raise Damaged(f"{path.name} holds characters that are no valid text (lone surrogates).") from None
    except RecursionError:
        raise Damaged(f"{path.name} is nested too deeply to be a notebook.") from None
    except Exception as error:
        what = str(error).strip().split("\n")[0][:160]
        raise Damaged(f"{path.name} is not a valid notebook ({type(error).__name__}: {what}).") from None
    return nb


def _normalise(nb: NotebookNode) -> None:
    """Small repairs that lose nothing: outputs go (they are made anew), cell ids become unique, sources one string."""
    nb.nbformat_minor = max(nb.get("nbformat_minor", 0), 5)
    seen: set[str] = set()
    for number, cell in enumerate(nb.cells):
        cell.setdefault("metadata", NotebookNode())
        if isinstance(cell.get("source"), list):
            cell.source = "".join(cell.source)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if not isinstance(cell.get("id"), str) or cell.id in seen:
            cell["id"] = f"submitted-{number}"
        seen.add(cell.id)


def _grade_id(cell: NotebookNode) -> str | None:
    meta = cell.metadata.get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def repair(nb: NotebookNode, source: NotebookNode) -> list[str]:
    """Give a submission the cells and ids of the authored notebook back, in place. What was done, in sentences.

    Cells are known by their nbgrader id, else by their cell id, which some editors keep when they drop the rest.
    An answer cell that is gone is added as the untouched stub would be: empty, so that its question scores nothing.
    """
    known = {_grade_id(cell): cell for cell in source.cells if _grade_id(cell)}
    by_cell_id = {cell.id: name for name, cell in known.items()}
    notes = []
    holders: dict[str, list[NotebookNode]] = {}
    strangers = []
    for cell in nb.cells:
        name = _grade_id(cell)
        if name in known:
            holders.setdefault(name, []).append(cell)
        else:
            strangers.append((name, cell))
    for name, cell in strangers:
        guess = by_cell_id.get(cell.id)
        if guess and guess not in holders:
            holders[guess] = [cell]
            notes.append(f"Cell {guess!r} had lost its nbgrader id; it was recognised by its cell id.")
        elif name is not None:
            notes.append(f"A cell has the id {name!r}, which this notebook does not know; it was not graded.")
            cell.metadata.pop("nbgrader", None)
        else:
            cell.metadata.pop("nbgrader", None)
    for name, cells in holders.items():
        for extra in cells[:-1]:
            extra.metadata.pop("nbgrader", None)
        if len(cells) > 1:
            notes.append(f"Cell {name!r} is there {len(cells)} times; the last one was graded.")
        cell, original = cells[-1], known[name]
        cell.metadata["nbgrader"] = copy.deepcopy(original.metadata["nbgrader"])
        if cell.cell_type != original.cell_type:
            notes.append(f"Cell {name!r} had become a {cell.cell_type} cell; it was turned back.")
            fresh = copy.deepcopy(original)
            fresh.source = cell.source
            nb.cells[_index(nb, cell)] = holders[name][-1] = fresh
    _add_missing(nb, source, holders, notes)
    return notes


def _index(nb: NotebookNode, cell: NotebookNode) -> int:
    return next(i for i, c in enumerate(nb.cells) if c is cell)


def _add_missing(nb: NotebookNode, source: NotebookNode, holders: dict, notes: list[str]) -> None:
    """Put every missing cell right after the one that stands before it in the authored notebook."""
    before = -1
    for original in source.cells:
        name = _grade_id(original)
        if name is None:
            continue
        if name not in holders:
            fresh = copy.deepcopy(original)
            meta = fresh.metadata["nbgrader"]
            if meta.get("solution"):
                fresh.source = ""
                notes.append(f"Answer cell {name!r} is missing; it was put back empty.")
            elif meta.get("grade"):
                notes.append(f"Check cell {name!r} was missing; it was put back.")
            nb.cells.insert(before + 1, fresh)
            before += 1
        else:
            before = _index(nb, holders[name][-1])
    used = Counter(cell.id for cell in nb.cells)
    for number, cell in enumerate(nb.cells):
        if used[cell.id] > 1 and not _grade_id(cell):
            cell["id"] = f"submitted-{number}"
