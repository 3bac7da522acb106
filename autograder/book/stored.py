"""Lessons with their outputs, run once and kept."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.authoring import notebooks, source
from autograder.book import charts

#: Seconds for one cell of a lesson.
CELL = 600
#: What a kernel does before the first cell.
BEGIN = (
    "import autograder.book.charts, os; autograder.book.charts.describe(); "
    "os.environ['PASSLAB_RECORDED'] = '1'; del autograder, os"  # explorers as pages: the book has no kernel
)


def key(nb: NotebookNode) -> str:
    """Return a digest of a notebook's code cells, the pinned versions and `charts`: what its outputs depend on."""
    pins = re.findall(
        r'^    "([\w.\[\]-]+==[^";]+)', (source.ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M
    )
    sha = hashlib.sha256("\n".join(sorted(pins)).encode() + Path(charts.__file__).read_bytes())
    for cell in nb.cells:
        if cell.cell_type == "code":
            sha.update(b"\0" + cell.source.encode())
    return sha.hexdigest()[:16]


def execute(path: Path, folder: Path, say: Callable[[str], None] = lambda line: None) -> NotebookNode:
    """Return the notebook of a lesson's `.py` with outputs, from the folder of stored ones or by running it.

    Raises nbclient's CellExecutionError if a cell fails: a book with an error in it is not built.
    """
    from nbclient import NotebookClient

    nb = notebooks.notebook(path)
    stored = folder / f"{path.stem}-{key(nb)}.ipynb"
    if stored.exists():
        outputs = {cell.id: cell for cell in nbformat.read(stored, as_version=4).cells if cell.cell_type == "code"}
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = outputs[cell.id].outputs, outputs[cell.id].execution_count
        return nb
    say(f"running {path.name}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    client = NotebookClient(
        nb,
        timeout=CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=[f"--IPKernelApp.exec_lines={BEGIN}"],
    )
    client.execute()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    fresh = stored.with_suffix(".part")
    nbformat.write(nb, fresh)
    fresh.replace(stored)
    return nb
