"""Exercises are built, not kept under version control: where they are needed, and without loss of a learner's work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.toys import tiny
from autograder.toys.classes import GOOD, submit

EXERCISE, SOLUTION, COPY = "exercises/day00/tiny.ipynb", "solutions/day00/tiny.ipynb", "work/day00/tiny.ipynb"
AUTHORED, IGNORED = "solutions/day00/tiny.py", ["/exercises/*", "!/exercises/README.md", "/solutions/*/*.ipynb"]


def build(course: Path, *words: str) -> str:
    done = tiny.run(course, "-m", "autograder.authoring.fresh", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(path: Path, text: str) -> bytes:
    """Write an answer into a notebook and save it; return its bytes."""
    nb = json.loads(path.read_text())
    cell = next(cell for cell in nb["cells"] if cell["id"] == "double")
    cell["source"] = [text]
    path.write_text(json.dumps(nb, indent=2))
    return path.read_bytes()


def revise(course: Path, title: str) -> None:
    """Change the title of the exercise in its source."""
    text = (course / AUTHORED).read_text()
    (course / AUTHORED).write_text(re.sub("# # Day 0 · .*", f"# # Day 0 · {title}", text))


# ── building ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def course(course, tmp_path) -> Path:
    return shutil.copytree(course, tmp_path / "ein Kürs", symlinks=True)


def test_what_is_fresh_is_left_alone_and_nothing_is_loaded_for_it(course):
    before = {path: path.stat().st_mtime_ns for path in course.rglob("*.ipynb")}
    assert len(before) == 2
    loads = "from autograder.authoring import fresh; fresh.build(); import sys; print('nbgrader' in sys.modules)"
    assert tiny.run(course, "-c", loads).stdout == "False\n"
    assert {path: path.stat().st_mtime_ns for path in course.rglob("*.ipynb")} == before


@pytest.mark.parametrize("name", [EXERCISE, SOLUTION])
def test_what_is_missing_is_built(course, name):
    before = (course / name).read_bytes()
    (course / name).unlink()
    assert build(course) == "Built 1 notebook from the sources.\n"
    assert (course / name).read_bytes() == before and build(course) == ""


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (AUTHORED, "Day 0 · Tiny", "Day 0 · New"),
        ("lib/passlab/exercises/day00/__init__.py", '"did": 2.0', '"did": 5.0'),
        ("autograder/nbgrader_config.py", "raise NotImplementedError()", "raise NotImplementedError"),
    ],
)
def test_what_has_changed_is_built(course, path, old, new):
    before = (course / EXERCISE).read_bytes(), (course / SOLUTION).read_bytes()
    text = (course / path).read_text()
    assert old in text
    (course / path).write_text(text.replace(old, new))
    assert "notebook" in build(course) and build(course) == ""
    assert ((course / EXERCISE).read_bytes(), (course / SOLUTION).read_bytes()) != before
    assert not (course / "work").exists()


def test_what_was_saved_where_it_is_built_moves_into_work(course):
    saved = []
    for title in ("Second", "Third"):
        saved.append(answer(course / EXERCISE, f"answer before {title}"))
        revise(course, title)
        assert "saved-in-exercises" in build(course)
    items = [course / f"work/day00/tiny.saved-in-exercises{number}.ipynb" for number in ("", "-2")]
    assert [path.read_bytes() for path in items] == saved
    assert "Third" in (course / EXERCISE).read_text() and "answer before" not in (course / EXERCISE).read_text()


def test_a_release_moves_what_does_not_belong_to_it(course):
    (course / "exercises/day00/notes.txt").write_text("mine")
    (course / "exercises/day00/data").mkdir()
    (course / "exercises/day00/data/numbers.csv").write_text("1")
    answer(course / SOLUTION, "a draft")
    release = tiny.run(course, "-m", "passlab.cli", "release", COLUMNS="300")
    assert release.returncode == 0 and "work/day00/notes.saved-in-exercises.txt" in release.stdout
    work = course / "work/day00"
    assert (work / "notes.saved-in-exercises.txt").read_text() == "mine"
    assert (work / "data.saved-in-exercises/numbers.csv").read_text() == "1"
    assert "a draft" in (work / "tiny.saved-in-solutions.ipynb").read_text()
    assert [path.name for path in (course / "exercises/day00").iterdir()] == ["tiny.ipynb"]


def test_a_notebook_that_was_only_run_gives_way(course):
    nb = json.loads((course / EXERCISE).read_text())
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"execution_count": 1, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["4\n"]}]}
    (course / EXERCISE).write_text(json.dumps(nb))
    (course / "exercises/.built.json").unlink()
    build(course)
    assert 'execution_count": 1' not in (course / EXERCISE).read_text() and not (course / "work").exists()


@pytest.mark.parametrize("missing", ["solutions", "autograder"])
def test_learners_without_the_instructors_part_keep_the_exercises_they_were_given(course, missing):
    before = (course / EXERCISE).read_bytes()
    shutil.rmtree(course / missing)
    (course / "exercises/.built.json").unlink()
    command = [sys.executable, "-c", "from passlab.notebook.workspace import build; print(build())"]
    # Without the project's own folder on the path, where the whole course is installed.
    hidden = "import sys; sys.path[:] = [p for p in sys.path if p and p != {0!r}]; sys.meta_path[:] = [f for f in "
    hidden += "sys.meta_path if 'editable' not in f'{{f}}'.lower()]; "
    command[2] = hidden.format(str(tiny.ROOT)) + command[2]
    done = subprocess.run(command, cwd=course, env=tiny.environment(course), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert (course / EXERCISE).read_bytes() == before


def test_a_source_that_cannot_be_built_is_named_and_the_exercises_stay(course):
    before = (course / EXERCISE).read_bytes()
    (course / AUTHORED).write_text((course / AUTHORED).read_text().replace('check("day00.shout"', 'check("day00.none"'))
    output = build(course)
    assert output.startswith("The exercises cannot be built: ") and "day00.none" in output and output.count("\n") == 1
    assert (course / EXERCISE).read_bytes() == before


# ── a clone from the time when they were under version control ────────────────────────────────────────────────────────


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "A release")


@pytest.fixture
def clone(course, tmp_path, monkeypatch) -> Path:
    """A learner's clone, made when version control had all notebooks; upstream has them no longer, and new texts."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.org")
    (course / "exercises/.built.json").unlink()
    (course / ".gitignore").write_text("/work/\n__pycache__/\n")
    (course / "course/index.md").write_text("# The course\n")
    git(course, "init", "--quiet", "--initial-branch=main")
    commit(course)
    learner = tmp_path / "die Lernende"
    git(tmp_path, "clone", "--quiet", str(course), str(learner))
    assert len(git(learner, "ls-files", "*.ipynb").split()) == 2
    revise(course, "New")
    git(course, "rm", "--quiet", "--cached", EXERCISE, SOLUTION)
    (course / ".gitignore").write_text("\n".join(["/work/", "__pycache__/", *IGNORED, ""]))
    (course / "exercises/README.md").write_text("Built here.\n")
    commit(course)
    return learner


def passlab(folder: Path, *words: str) -> str:
    done = tiny.run(folder, "-m", *words, COLUMNS="300")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_new(folder: Path) -> bool:
    """Return whether the new exercise is built, and git has nothing to say about it."""
    return "Day 0 · New" in (folder / EXERCISE).read_text() and git(folder, "status", "--porcelain") == ""


def test_an_update_keeps_what_was_saved_in_the_exercises_and_in_work(clone):
    passlab(clone, "passlab.notebook.workspace")
    copy = answer(clone / COPY, "my answer in work")
    saved = answer(clone / EXERCISE, "my answer in exercises")
    message = passlab(clone, "passlab.cli", "update")
    assert "work/day00/tiny.saved-in-exercises.ipynb" in message and "Built 2 notebooks" in message
    assert (clone / COPY).read_bytes() == copy
    assert (clone / "work/day00/tiny.saved-in-exercises.ipynb").read_bytes() == saved
    [neighbour] = clone.glob("work/day00/tiny.release-*.ipynb")
    assert "Day 0 · New" in neighbour.read_text() and is_new(clone)


def test_an_update_replaces_a_copy_in_which_nothing_was_written(clone):
    passlab(clone, "passlab.notebook.workspace")
    message = passlab(clone, "passlab.cli", "update")
    assert "have replaced copies" in message and "Day 0 · New" in (clone / COPY).read_text() and is_new(clone)


def test_git_alone_takes_nothing_either(clone):
    saved = answer(clone / EXERCISE, "my answer")
    pull = subprocess.run(["git", "pull"], cwd=clone, capture_output=True, text=True)
    assert "would be overwritten" in pull.stderr and (clone / EXERCISE).read_bytes() == saved
    git(clone, "checkout", "--", EXERCISE)
    git(clone, "pull", "--quiet")
    assert not (clone / EXERCISE).exists() and (clone / "exercises").is_dir()
    passlab(clone, "passlab.notebook.workspace")
    assert is_new(clone) and "Day 0 · New" in (clone / COPY).read_text()


def test_later_updates_keep_what_is_saved_where_it_is_built(clone, course):
    passlab(clone, "passlab.cli", "update")
    saved = answer(clone / EXERCISE, "my answer")
    noted = answer(clone / SOLUTION, "my note")
    (clone / AUTHORED).write_text((clone / AUTHORED).read_text() + "\n# my note\n")  # JupyterLab saves it with its pair
    revise(course, "Newer")
    commit(course)
    passlab(clone, "passlab.cli", "update")
    work = clone / "work/day00"
    assert (work / "tiny.saved-in-exercises.ipynb").read_bytes() == saved
    assert (work / "tiny.saved-in-solutions.ipynb").read_bytes() == noted
    assert (work / "tiny.saved-in-solutions.py").read_text().endswith("# my note\n")
    assert "Day 0 · Newer" in (clone / EXERCISE).read_text() and git(clone, "status", "--porcelain") == ""


def test_a_clone_can_be_graded_with_at_once(clone):
    submit(clone, "ada", GOOD)
    git(clone, "pull", "--quiet")
    assert not (clone / SOLUTION).exists()
    passlab(clone, "passlab.cli", "grade", "class")
    assert (clone / SOLUTION).exists() and (clone / "autograder/run/report.html").exists()
