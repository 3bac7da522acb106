"""Build notebooks from their source: `python -m autograder.authoring.notebooks`; `--check` lists outdated ones.

course/*.py, solutions/day*/*.py   written by hand, percent format
  → the .ipynb beside each         the same cells, no outputs, ids that do not change from build to build
    → exercises/day*/*.ipynb       what nbgrader releases of the solutions

Version control has the notebooks in course/ only. A notebook that was saved with changes is moved into work/ before the
build replaces it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection
from functools import cache
from itertools import zip_longest
from pathlib import Path

import jupytext
import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.authoring import fresh, source
from passlab import exercises
from passlab.notebook import built, clone
from passlab.notebook.cells import check_call

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
#: Cell metadata stays out of the `.py`, even when an editor saves the pair.
PAIRING = {"formats": "ipynb,py:percent", "cell_metadata_filter": "-all"}
#: The first line of a rubric, in the text of a question that a person grades; learners do not get it.
_RUBRIC = re.compile(rf"^{source.RUBRIC.begin} (\S+)$", re.M)
AUTHORED = ("course/*.py", "solutions/day*/*.py")


def authored_paths(root: Path | None = None) -> list[Path]:
    """Return the `.py` of every notebook that is written by hand."""
    root = root or source.COURSE
    return sorted(path for pattern in AUTHORED for path in root.glob(pattern))


def cell_id(name: str) -> str:
    """Return a name as a cell id: letters, digits, hyphen and underscore, 64 at most."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64]


def _mark(nb: NotebookNode, path: Path) -> None:
    """Add nbgrader's metadata to the cells of every question: ids, and the points of the exercise."""
    _mark_written(nb, path)
    answer, question = None, ""
    for cell in nb.cells:
        if cell.cell_type != "code" or "nbgrader" in cell.metadata:
            continue
        if source.SOLUTION.begin in cell.source:
            answer, question = cell, ""
        elif (check := check_call(cell.source)) and answer is not None:
            try:
                exercise = exercises.find(check.exercise)
            except KeyError as error:
                raise ValueError(f"{path.name} checks {check.exercise!r}. {error.args[0]}") from None
            if question not in ("", exercises.whole(exercise.id)):
                continue
            name, question = check.exercise.split(".")[1], exercises.whole(exercise.id)
            common = {"schema_version": 3, "task": False}
            answer.metadata["nbgrader"] = common | {"grade_id": question.split(".")[1], "solution": True}
            answer.metadata["nbgrader"] |= {"grade": False, "locked": False}
            cell.metadata["nbgrader"] = common | {"grade_id": f"{name}-check", "solution": False, "grade": True}
            points = 0 if exercise.stretch else exercise.total  # extra credit is not part of an assignment's maximum
            cell.metadata["nbgrader"] |= {"locked": True, "points": _points(points)}
    if answer is not None and not question:
        raise ValueError(f"{path.name} has an answer without a check(…) below it: {answer.source.splitlines()[0]}")


def _mark_written(nb: NotebookNode, path: Path) -> None:
    """Add nbgrader's metadata to the questions that a person grades: a text with its rubric, then the answer."""
    day = path.parent.name
    known = {question.id: question for question in exercises.written(day)} if day in exercises.days() else {}
    texts = [cell for cell in nb.cells if cell.cell_type == "markdown"]
    for cell, following in zip_longest(texts, texts[1:]):
        if not (rubric := _RUBRIC.search(cell.source)):
            continue
        if rubric[1] not in known:
            raise ValueError(f"{path.name} has a rubric of {rubric[1]!r}, which its day does not list in WRITTEN.")
        if following is None or source.SOLUTION.begin not in following.source:
            raise ValueError(f"{path.name}: the next text below the rubric of {rubric[1]} has to be its answer.")
        name, common = rubric[1].split(".")[1], {"schema_version": 3, "task": False}
        cell.metadata["nbgrader"] = common | {"grade_id": f"{name}-rubric", "solution": False, "grade": False}
        cell.metadata["nbgrader"]["locked"] = True
        following.metadata["nbgrader"] = common | {"grade_id": name, "solution": True, "grade": True, "locked": False}
        following.metadata["nbgrader"]["points"] = _points(known[rubric[1]].points)


def _points(points: float) -> float:
    return int(points) if points == int(points) else points


def notebook(path: Path) -> NotebookNode:
    """Return the notebook of a `.py`: without outputs, with ids from grade ids or positions. Raises ValueError."""
    nb = jupytext.read(path, fmt="py:percent")
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata = nbformat.from_dict({"jupytext": PAIRING, "kernelspec": KERNEL, "language_info": {"name": "python"}})
    _mark(nb, path)
    for number, cell in enumerate(nb.cells):
        cell["id"] = cell_id(cell.metadata.get("nbgrader", {}).get("grade_id", f"cell-{number:02d}"))
        for layout in ("lines_to_next_cell", "lines_to_end_of_cell_marker"):  # of the .py, not of the notebook
            cell.metadata.pop(layout, None)
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        raise ValueError(f"{path.name} does not make a valid notebook: {error.message}") from None
    return nb


def _text(nb: NotebookNode) -> str:
    return nbformat.writes(nb, version=nbformat.NO_CONVERT) + "\n"


@cache
def _notebook_of(path: Path, changed: int) -> NotebookNode:
    return notebook(path)


def _cached_notebook(path: Path) -> NotebookNode:
    """Return `notebook(path)`, read once for each time that the file is saved. It is not to be changed."""
    return _notebook_of(path, path.stat().st_mtime_ns)


def source_notebook(assignment: str, name: str) -> NotebookNode:
    """Return the authored notebook of an exercise, answers and hidden tests included."""
    return _cached_notebook(source.COURSE / "solutions" / assignment / f"{name}.py")


def assignments() -> dict[str, set[str]]:
    """Return assignment → names of its notebooks."""
    known: dict[str, set[str]] = {}
    for path in source.notebooks():
        known.setdefault(path.parent.name, set()).add(path.stem)
    return known


def release(notebooks: dict[str, str]) -> dict[str, str]:
    """Return nbgrader's releases of authored notebooks. Keys "day03/optimizations.ipynb", values texts, in both.

    Runs nbgrader's own converter with this course's settings in a temporary folder, without a gradebook.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    from autograder.authoring.source import settings

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in notebooks.items():
            path = root / "solutions" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        config = settings()
        config.CourseDirectory.root = str(root)
        config.CourseDirectory.db_url = f"sqlite:///{root / 'none.db'}"
        config.SaveCells.enabled = False
        log = logging.getLogger("traitlets")
        level = log.level
        log.setLevel(logging.ERROR)
        try:
            for day in sorted({name.split("/")[0] for name in notebooks}):
                course = CourseDirectory(config=config, assignment_id=day)
                GenerateAssignment(coursedir=course, config=config, no_database=True).start()
        finally:
            log.setLevel(level)
        return {
            str(path.relative_to(root / "exercises")): path.read_text(encoding="utf-8")
            for path in sorted((root / "exercises").glob("*/*"))
        }


def expected_files(lessons: bool = True) -> dict[Path, str]:
    """Return the generated files and their expected texts. lessons: those in course/, too."""
    root = source.COURSE
    paths = authored_paths() if lessons else source.notebooks()
    pairs = {path.with_suffix(".ipynb"): _text(_cached_notebook(path)) for path in paths}
    solutions = root / "solutions"
    to_release = {str(p.relative_to(solutions)): text for p, text in pairs.items() if p.is_relative_to(solutions)}
    released = release(to_release) if to_release else {}
    return pairs | {root / "exercises" / name: text for name, text in released.items()}


def out_of_step(files: dict[Path, str]) -> list[str]:
    """Return one sentence for each file that is missing, differs, or should not be there."""
    root, problems = source.COURSE, []
    for path, text in files.items():
        if not path.exists():
            problems.append(f"{path.relative_to(root)} is missing")
        elif path.read_bytes() != text.encode("utf-8"):
            problems.append(f"{path.relative_to(root)} differs from the build of its .py")
    built = [*root.glob("course/*.ipynb"), *root.glob("solutions/*/*.ipynb"), *_release_files(root)]
    problems += [f"{path.relative_to(root)} comes from no .py" for path in sorted(built) if path not in files]
    return problems


def stale_solutions(assignments: Collection[str]) -> list[str]:
    """Return the notebooks of these assignments in `solutions/` that differ from the build of their `.py`."""
    pairs = {path.with_suffix(".ipynb"): path for path in source.notebooks() if path.parent.name in assignments}
    return [
        str(pair.relative_to(source.COURSE))
        for pair, path in pairs.items()
        if not pair.exists() or pair.read_bytes() != _text(_cached_notebook(path)).encode("utf-8")
    ]


def _release_files(root: Path) -> list[Path]:
    return [p for p in root.glob("exercises/*/*") if p.name != ".ipynb_checkpoints"]


def _cells(text: str) -> list[tuple[str, str]] | None:
    """Return the cells of a notebook without outputs; None if the text is not a notebook."""
    try:
        return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    except (ValueError, KeyError, TypeError):
        return None


def _set_aside(path: Path) -> str:
    """Move what was saved in the place of a generated file into work/. Return where it is now, to be shown."""
    root = source.COURSE
    if path.is_dir():
        target = root / "work" / path.parent.name / f"{path.name}.saved-in-exercises"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    else:
        target = root / clone.copy_to_work(root, str(path.relative_to(root)))
        path.unlink()
    return f"{path.relative_to(root)} (what was saved there is now {target.relative_to(root)})"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def build(lessons: bool = True) -> list[str]:
    """Write the outdated files only. Return the names of the files that changed, with what became of changes in them.

    lessons: build everything: the notebooks in course/, which version control has, too; and clear the folders of
    exercises from what does not belong there, instead of only from what an earlier build has left.
    """
    root = source.COURSE
    sources, files = fresh.digest(), expected_files(lessons)
    # A lesson with changes that are not committed is its reader's; so is another file that is not as it was built.
    edited, names = {root / name for name in clone.modified(root)}, []
    for path, text in files.items():
        old, name = path.read_bytes() if path.exists() else None, str(path.relative_to(root))
        if old == text.encode("utf-8"):
            continue
        reader_s = path in edited if path.parent == root / "course" else old is not None
        if reader_s and not built.is_as_built(root, path):
            cells = _cells((old or b"").decode("utf-8", "replace"))
            if cells is None or cells != _cells(text):
                name = _set_aside(path)
        _write(path, text)
        names.append(name)
    for path in _release_files(root):
        if path in files:
            continue
        if built.is_as_built(root, path) and (lessons or path.parent.name in assignments()):
            path.unlink()
            names.append(f"{path.relative_to(root)} (removed)")
        elif lessons:
            names.append(_set_aside(path))
    built.write(root, sources, files)
    return names


def main() -> int:
    if "--check" in sys.argv[1:]:
        problems = out_of_step(expected_files())
        print("\n".join([*problems, "Run `make notebooks`."]) if problems else "All notebooks are in step.")
        return 1 if problems else 0
    changed = build(lessons="--exercises" not in sys.argv[1:])
    print("\n".join(f"wrote {name}" for name in changed) if changed else "All notebooks were in step.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
