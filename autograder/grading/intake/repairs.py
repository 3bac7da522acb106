"""Restore the cells of the authored notebook that a submission lost or changed."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping

from nbformat.notebooknode import NotebookNode

from autograder.authoring.source import HIDDEN_TESTS, RUBRIC
from autograder.grading import files
from autograder.grading.intake.cells import grade_id, is_locked, is_shown


def repair(nb: NotebookNode, authored: NotebookNode) -> list[str]:
    """Restore the cells and ids of the authored notebook in a submission, in place. Return a sentence per repair.

    Everything except the text of answer cells comes from the authored notebook: locked cells, hidden tests, points,
    ids, and the kernel. Cells are identified by their nbgrader id, otherwise by their cell id, which some editors keep
    when they drop the metadata. A missing answer cell is added empty, so that its question scores nothing.
    """
    known = {name: cell for cell in authored.cells if (name := grade_id(cell))}
    notes: list[str] = []
    holders = _holders(nb, known, notes)
    for name, cells in holders.items():
        if len(cells) > 1:
            notes.append(f"There are {len(cells)} cells {name!r}; the last one was graded.")
        for cell in cells[:-1]:
            cell.metadata.pop("nbgrader", None)
        cells[-1] = _restored(nb, name, cells[-1], known[name], notes)
    _add_missing(nb, authored, holders, notes)
    for cell in nb.cells:
        if cell.cell_type == "code" and not is_shown(cell):  # points are read from outputs: only grading makes these
            cell.outputs = []
    for key in ("kernelspec", "language_info"):
        nb.metadata.pop(key, None)
        if key in authored.metadata:
            nb.metadata[key] = copy.deepcopy(authored.metadata[key])
    return notes


def _holders(nb: NotebookNode, known: Mapping[str, NotebookNode], notes: list[str]) -> dict[str, list[NotebookNode]]:
    """Return nbgrader id → the cells that have it, or that lost it and have its cell id. Other cells lose theirs."""
    by_cell_id = {cell.id: name for name, cell in known.items()}
    holders: dict[str, list[NotebookNode]] = {}
    strangers = []
    for cell in nb.cells:
        name = grade_id(cell)
        if name is not None and name in known:
            holders.setdefault(name, []).append(cell)
        else:
            strangers.append((name, cell))
    for name, cell in strangers:
        guess = by_cell_id.get(cell.id)
        if guess and guess not in holders:
            holders[guess] = [cell]
            notes.append(f"Cell {guess!r} had lost its nbgrader id; it was recognised by its cell id.")
            continue
        if name is not None:
            notes.append(
                f"A cell has the id {files.printable(name)!r}, which this notebook does not have; it was not graded."
            )
        cell.metadata.pop("nbgrader", None)
    return holders


def _restored(
    nb: NotebookNode, name: str, cell: NotebookNode, original: NotebookNode, notes: list[str]
) -> NotebookNode:
    """Give a cell the original's metadata and, where learners may not edit, its text. Return the cell now in `nb`."""
    cell.metadata["nbgrader"] = copy.deepcopy(original.metadata["nbgrader"])
    same_type, locked = cell.cell_type == original.cell_type, is_locked(original)
    if not same_type:
        notes.append(f"Cell {name!r} had become a {cell.cell_type} cell; it was changed back.")
    elif locked and _visible_lines(cell.source) != _visible_lines(original.source):
        notes.append(f"Cell {name!r} is read-only but had been changed; it was restored.")
    if same_type and not locked:
        return cell
    fresh = copy.deepcopy(original)
    if not locked:
        fresh.source = cell.source
    nb.cells[_index(nb, cell)] = fresh
    return fresh


def _visible_lines(text: str) -> list[str]:
    """Return the lines of a cell as learners get them: no hidden tests or rubric, and no space that editors change."""
    lines: list[str] = []
    begin = None
    for line in filter(str.strip, text.splitlines()):
        if begin is None and line.lstrip().startswith((HIDDEN_TESTS.begin, RUBRIC.begin)):
            begin = len(lines)
        lines.append(line.rstrip())
        if begin is not None and line.lstrip().startswith((HIDDEN_TESTS.end, RUBRIC.end)):
            del lines[begin:]
            begin = None
    return [line.lstrip() if not at else line for at, line in enumerate(lines)]  # as `strip` on the whole text


def _index(nb: NotebookNode, cell: NotebookNode) -> int:
    return next(i for i, c in enumerate(nb.cells) if c is cell)


def _add_missing(nb: NotebookNode, authored: NotebookNode, holders: dict, notes: list[str]) -> None:
    """Insert every missing cell right after its predecessor in the authored notebook."""
    before = -1
    for original in authored.cells:
        name = grade_id(original)
        if name is None:
            continue
        if name not in holders:
            fresh = copy.deepcopy(original)
            meta = fresh.metadata["nbgrader"]
            if meta.get("solution"):
                fresh.source = ""
                notes.append(f"Answer cell {name!r} was missing; an empty one was added.")
            elif meta.get("grade"):
                notes.append(f"Check cell {name!r} was missing; it was restored.")
            nb.cells.insert(before + 1, fresh)
            before += 1
        else:
            before = _index(nb, holders[name][-1])
    used = Counter(cell.id for cell in nb.cells)
    for number, cell in enumerate(nb.cells):
        if used[cell.id] > 1 and not grade_id(cell):
            cell["id"] = f"submitted-{number}"
