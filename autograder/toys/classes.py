"""Classes of the tiny course, of any size: every learner has other answers, and nobody's points are the default."""

from __future__ import annotations

import csv
from pathlib import Path

import nbformat

TINY = "day00/tiny.ipynb"
GOOD = {
    "double": "def double(x):\n    return x + x",
    "shout": "def shout(word):\n    return word.upper()",
    "sort-words": "def sort_words(words):\n    return sorted(words)",
}
BAD = {
    "double": "def double(x):\n    return 4",
    "shout": "def shout(word):\n    raise ValueError(word)",
    "sort-words": "def sort_words(words):\n    return words[:1]",
}


def submit(course: Path, learner: str, answers: dict[str, str], folder: Path | str = "class", notebook=TINY) -> Path:
    """Hand in the released notebook with these answer cells (question → source)."""
    nb = nbformat.read(course / "exercises" / notebook, as_version=4)
    for cell in nb.cells:
        cell.source = answers.get(cell.id, cell.source)
    path = course / folder / learner / notebook
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, path)
    return path


def hand_in(course: Path, learners: int, folder: str = "class", first: str = "") -> dict[str, set[str]]:
    """Write a class: learner n answers question k well unless n has bit k. `first`: a cell above the others.

    Learner → the questions answered well.
    """
    files = {}
    for n in range(learners):
        name = f"learner-{n:04}"
        answers = {q: (BAD if n >> k & 1 else GOOD)[q] + f"  # {n}" for k, q in enumerate(GOOD)}
        path = submit(course, name, answers, folder)
        if first:
            nb = nbformat.read(path, as_version=4)
            nb.cells.insert(0, nbformat.v4.new_code_cell(first, id="first"))
            nbformat.write(nb, path)
        files[name] = {q for k, q in enumerate(GOOD) if not n >> k & 1}
    return files


def grades(course: Path, run: str) -> list[tuple[str, str, str]]:
    """(learner, question, points) as grades.csv has them."""
    with (course / run / "grades.csv").open(newline="") as lines:
        return sorted((row["learner"], row["question"], row["points"]) for row in csv.DictReader(lines))
