"""Restore the cells of the authored notebook that a submission lost or changed."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from nbformat.notebooknode import NotebookNode

from autograder.authoring.source import HIDDEN_TESTS, RUBRIC, blank
from autograder.grading import files
from autograder.grading.intake.cells import grade_id, is_locked, is_shown, nbgrader_meta
from autograder.grading.intake.contents import Content, content, contents
from passlab.process.parsing import parse


def repair(nb: NotebookNode, authored: NotebookNode) -> list[str]:
    """Restore the cells and ids of the authored notebook in a submission, in place. Return a sentence per repair.

    Everything except the text of answer cells comes from the authored notebook: locked cells, hidden tests, points,
    ids, and the kernel. Cells are identified by their nbgrader id, otherwise by their cell id, which some editors keep
    when they drop the metadata, otherwise by what they say: a check by its call, an answer by the function that it
    defines. A missing answer cell is added empty, so that its question scores nothing; a missing cell of imports, at
    the top. A check above its answer is moved below it.
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
    _add_imports(nb, authored, notes)
    _move_checks(nb, authored, notes)
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
            notes.append(f"Cell {guess!r} had lost its nbgrader id; it was recognized by its cell id.")
            continue
        if name is not None:
            notes.append(
                f"A cell has the id {files.printable(name)!r}, which this notebook does not have; it was not graded."
            )
        cell.metadata.pop("nbgrader", None)
    free = [cell for cell in nb.cells if not any(cell is one for cells in holders.values() for one in cells)]
    for name, cells in _by_content(free, {name: cell for name, cell in known.items() if name not in holders}).items():
        holders[name] = cells
        notes.append(f"Cell {name!r} had lost its ids; it was recognized by what it says.")
    return holders


def _by_content(cells: list[NotebookNode], missing: Mapping[str, NotebookNode]) -> dict[str, list[NotebookNode]]:
    """Return the name of a missing cell → the cells without a name that say what it says."""
    if not missing:
        return {}
    code = [cell for cell in cells if cell.cell_type == "code"]
    content_of = dict(zip(map(id, code), contents([cell.source for cell in code]), strict=True))
    candidates: dict[str, list[NotebookNode]] = {}
    for name, original in missing.items():
        alike = _alike(original)
        if found := [cell for cell in cells if cell.cell_type == original.cell_type and alike(cell, content_of)]:
            candidates[name] = found
    names = [name for name, cell in missing.items() if cell.cell_type == "markdown" and not is_locked(cell)]
    order = list(missing)
    for name in names:  # an answer in prose is the text below its question
        question = candidates.get(order[order.index(name) - 1], []) if order.index(name) else []
        texts = [cell for cell in cells if cell.cell_type == "markdown"]
        below = next((i for i, cell in enumerate(texts) if question and cell is question[-1]), len(texts)) + 1
        if below < len(texts):
            candidates[name] = [texts[below]]
    return candidates


def _alike(original: NotebookNode) -> Callable[[NotebookNode, Mapping[int, Content]], bool]:
    """Return a function that tells whether a cell without ids, of its type, is this one of the course: the same check,
    locked text, or function defined."""
    own, lines = content(blank(original.source)), _visible_lines(original.source)
    if not is_locked(original):
        return lambda cell, content_of: cell.cell_type == "code" and bool(content_of[id(cell)].defined & own.defined)
    if original.cell_type == "code" and own.exercise:
        return lambda cell, content_of: content_of[id(cell)].exercise == own.exercise
    return lambda cell, _: bool(cell.source.strip()) and _visible_lines(cell.source) == lines


def _add_imports(nb: NotebookNode, authored: NotebookNode, notes: list[str]) -> None:
    """Insert, at the top, each cell of imports of the authored notebook that is missing."""
    ids, texts = {cell.id for cell in nb.cells}, {"\n".join(_visible_lines(cell.source)) for cell in nb.cells}
    at = 0
    for original in authored.cells:
        if not is_shown(original) or not _imports_only(original.source):
            continue
        if original.id not in ids and "\n".join(_visible_lines(original.source)) not in texts:
            nb.cells.insert(at, copy.deepcopy(original))
            notes.append("A cell of imports was missing; it was restored.")
            at += 1


def _imports_only(source: str) -> bool:
    try:
        body = parse(source).body
    except SyntaxError:
        return False
    return bool(body) and all(isinstance(one, ast.Import | ast.ImportFrom) for one in body)


def _move_checks(nb: NotebookNode, authored: NotebookNode, notes: list[str]) -> None:
    """Move each check cell that is above its answer to right below it."""
    for answer, check in _pairs(authored):
        above, below = (
            next(i for i, cell in enumerate(nb.cells) if grade_id(cell) == name) for name in (check, answer)
        )
        if above < below:
            nb.cells.insert(below, nb.cells.pop(above))
            notes.append(f"The answer {answer!r} stood below its check; it was checked where it stands.")


def _pairs(authored: NotebookNode) -> Iterator[tuple[str, str]]:
    """Yield the ids of each answer cell and of each check cell that follows it."""
    answer = None
    for cell in authored.cells:
        name, meta = grade_id(cell), nbgrader_meta(cell)
        if cell.cell_type != "code" or name is None:
            continue
        if meta.get("solution"):
            answer = name
        elif meta.get("grade") and answer:
            yield answer, name


def _restored(
    nb: NotebookNode, name: str, cell: NotebookNode, original: NotebookNode, notes: list[str]
) -> NotebookNode:
    """Give a cell the original's metadata and, where learners may not edit, its text. Return the cell now in `nb`."""
    cell.metadata["nbgrader"] = copy.deepcopy(original.metadata["nbgrader"])
    cell["id"] = original.id  # another cell may have had it: `_add_missing`
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
            at = len(nb.cells) if before < 0 and not meta.get("solution") else before + 1  # its place is unknown
            nb.cells.insert(at, fresh)
            before = at if before >= 0 or meta.get("solution") else before
        else:
            before = _index(nb, holders[name][-1])
    used = Counter(cell.id for cell in nb.cells)
    for number, cell in enumerate(nb.cells):
        if used[cell.id] > 1 and not grade_id(cell):
            cell["id"] = f"submitted-{number}"
