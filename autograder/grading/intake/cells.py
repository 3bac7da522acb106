"""What nbgrader's metadata say about a cell."""

from __future__ import annotations

from nbformat.notebooknode import NotebookNode


def grade_id(cell: NotebookNode) -> str | None:
    meta = cell.metadata.get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def is_shown(cell: NotebookNode) -> bool:
    """Return whether this is a code cell that is neither an answer cell nor a check cell."""
    meta = nbgrader_meta(cell)
    return cell.cell_type == "code" and not meta.get("solution") and not meta.get("grade")


def is_run(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.source.strip())


def nbgrader_meta(cell: NotebookNode) -> dict:
    meta = cell.metadata.get("nbgrader")
    return meta if isinstance(meta, dict) else {}


def is_locked(cell: NotebookNode) -> bool:
    """Return whether learners may not edit this cell, by nbgrader's rules."""
    meta = nbgrader_meta(cell)
    return not meta.get("solution") and bool(meta.get("grade") or meta.get("locked"))


def is_autograded(cell: NotebookNode) -> bool:
    """Return whether nbgrader reads the points of this cell from its outputs."""
    meta = nbgrader_meta(cell)
    return cell.cell_type == "code" and bool(meta.get("grade")) and not meta.get("solution")
