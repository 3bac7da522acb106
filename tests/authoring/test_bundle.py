"""`passlab bundle`: what learners of a class get, and what must not be in it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import nbformat
import pytest

from autograder.authoring import bundle, source
from autograder.toys import tiny
from passlab import exercises
from passlab.notebook.clone import UpdateError, pull


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The tiny course with one lesson."""
    course = tiny.make(tmp_path_factory.mktemp("bundle") / "course")
    tiny.write(course, {"course/day00_tiny.py": tiny.HEADER + "# %% [markdown]\n# # Day 0\n"})
    with (course / "autograder/answers/day00/double.py").open("a") as bank:
        bank.write("from autograder.authoring.answers import right\n\n\n")
        bank.write('@right("adds")\ndef added(x):\n    return x + x  # solutionmarker\n')
    for name in ("LICENSE", "lib/setup.sh"):
        tiny.shutil.copy(tiny.ROOT / name, course / name)
    ended = tiny.run(course, "-m", "passlab.cli", "bundle", str(course.parent / "early"))
    assert "course/day00_tiny.ipynb is missing. Run `passlab release`" in ended.stderr
    assert tiny.run(course, "-m", "passlab.cli", "release").returncode == 0
    return course


def make(course, target, *options):
    ended = tiny.run(course, "-m", "passlab.cli", "bundle", str(target), *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return target


def contents(folder) -> dict[str, bytes]:
    """Name → bytes of all files of a bundle, those in its wheel included."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in folder.glob("lib/*.whl"):
        with zipfile.ZipFile(path) as wheel:
            files |= {f"{path.name}/{name}": wheel.read(name) for name in wheel.namelist()}
    return files


@pytest.fixture(scope="module")
def bundled(course, tmp_path_factory):
    return make(course, tmp_path_factory.mktemp("made") / "class")


def test_it_has_lessons_exercises_and_library_and_nothing_of_the_instructors(bundled):
    files = contents(bundled)
    wheel = next(name for name in files if name.endswith(".whl"))
    names = ["Makefile", "README.md", "LICENSE", "pyproject.toml", "lib/setup.sh", "course/day00_tiny.ipynb"]
    assert {*names, "exercises/day00/tiny.ipynb"} <= set(files)
    assert {f"{wheel[4:]}/passlab/exercises/day00/double.py", f"{wheel[4:]}/passlab/judge/verdicts.py"} <= set(files)
    for name, data in files.items():
        assert "autograder/" not in name and "answers" not in name, name
        assert b"solutionmarker" not in data and b"hiddenmarker" not in data and b"hiddenword" not in data, name
    (points,) = (data.decode() for name, data in files.items() if name.endswith("entry_points.txt"))
    assert points.split() == ["[console_scripts]", "passlab", "=", "passlab.cli:main"]


def test_the_bundle_of_this_course_has_no_answers(tmp_path):
    bundle.make(tmp_path / "class", sorted(exercises.days()))
    files = contents(tmp_path / "class")
    text = b"\n".join(files.values())
    notebooks = b"\n".join(data for name, data in files.items() if name.endswith(".ipynb"))
    assert source.SOLUTION.begin.encode() not in notebooks and source.RUBRIC.begin.encode() not in notebooks
    for exercise_id in ("day03.cse", "day09.reuse", "day11.cost"):
        cell = source.find(exercise_id).answer.text
        answer = cell[cell.index(source.SOLUTION.begin) :].split("\n")
        plain = [line for line in answer if '"' not in line and "#" not in line]
        assert max(plain, key=len).strip().encode() not in text, exercise_id
    assert len([name for name in files if name.startswith("exercises/")]) == len(source.notebooks())


def learner(bundled, tmp_path, *command) -> subprocess.CompletedProcess:
    """Run Python as a learner does, whose library is the one in the wheel."""
    (path,) = bundled.glob("lib/*.whl")
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(tmp_path / "installed")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PASSLAB")}
    environment |= {"PYTHONPATH": str(tmp_path / "installed"), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *command], cwd=bundled, env=environment, capture_output=True, text=True)


def test_a_learner_works_in_it(bundled, tmp_path):
    copied = learner(bundled, tmp_path, "-m", "passlab.notebook.workspace")
    assert "work/day00/tiny.ipynb" in copied.stdout, copied.stderr
    nb = nbformat.read(bundled / "work/day00/tiny.ipynb", as_version=4)
    cells = [c.source.replace("raise NotImplementedError()", "return x + x") for c in nb.cells if c.cell_type == "code"]
    (checked,) = (i for i, source in enumerate(cells) if 'check("day00.double"' in source)
    asks = 'from passlab import progress, solution\nsolution("day00.double")\nprogress()'
    ended = learner(bundled, tmp_path, "-c", "\n".join([*cells[: checked + 1], asks]))
    assert "Twice as much: 3 of 3 points" in ended.stdout, ended.stderr
    assert "This copy of the course has no solution for day00.double." in ended.stdout
    assert "3 of 9 core points" in ended.stdout and (bundled / "work/progress.json").is_file()
    commands = learner(bundled, tmp_path, "-m", "passlab.cli", "--help").stdout
    assert "lab" in commands and "grade" not in commands and "release" not in commands


def test_solutions_of_a_day_are_released_later_and_what_learners_have_stays(course, tmp_path):
    folder = make(course, tmp_path / "class")
    (folder / "work").mkdir()
    (folder / "work/mine.txt").write_text("mine")
    (folder / "notes.txt").write_text("of the class")
    assert not (folder / "solutions").exists()
    make(course, folder, "--solutions", "day00")
    assert "solutionmarker" in (folder / "solutions/day00/tiny.py").read_text()
    asks = "from passlab import solution\n{}\nsolution('day00.double', anyway=True)".format
    assert "Try it once before" in learner(folder, tmp_path, "-c", asks("solution('day00.double')")).stdout
    shown = learner(folder, tmp_path, "-c", asks("solution('day00.double', other=1, anyway=True)")).stdout
    assert "solutionmarker" in shown and "1 of 1 other right answers" in shown
    assert not any(b"hiddenword" in data for data in contents(folder).values()), "hidden cases are not released"
    make(course, folder)
    assert not (folder / "solutions/day00/tiny.py").exists()
    assert (folder / "work/mine.txt").read_text() == "mine" and (folder / "notes.txt").exists()


def test_the_same_course_makes_the_same_bundle_and_a_change_of_the_library_a_new_version(course, bundled, tmp_path):
    first, second = (make(course, tmp_path / f"{name}.zip") for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        archive.extractall(tmp_path)
    old = contents(tmp_path / "passlab-course")
    assert {n: d for n, d in contents(bundled).items() if not n.startswith("work/")} == old
    path = course / "lib/passlab/exercises/day00/_shared.py"
    text = path.read_text()
    try:
        path.write_text(text.replace("It gave nothing back.", "It returned nothing."))
        new = contents(make(course, tmp_path / "class"))
    finally:
        path.write_text(text)
    assert len({name for files in (old, new) for name in files if name.endswith(".whl")}) == 2


def test_what_cannot_be_bundled_is_refused(course, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for target, options, sentence in (
        (tmp_path / "full", (), "has files (thesis.txt) and is not a bundle. Name another folder."),
        (tmp_path / "file", (), "is a file. Name a folder, or a file that ends in .zip."),
        (tmp_path / "no" / "a.zip", (), "cannot be written: No such file or directory."),
        (tmp_path / "new", ("--day", "day09"), "There is no assignment day09. Expected one of day00."),
        (tmp_path / "new", ("--solutions", "day09"), "There is no day09 in the bundle"),
    ):
        ended = tiny.run(course, "-m", "passlab.cli", "bundle", str(target), *options)
        assert ended.returncode == 1 and sentence in " ".join(ended.stderr.split()), ended.stderr
    assert (tmp_path / "full/thesis.txt").read_text() == "mine" and not (tmp_path / "new").exists()


def test_what_a_bundle_lists_outside_itself_is_not_removed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / bundle.CONTENTS).write_text("../precious\n/etc/precious\nown\n")
    assert list(bundle._earlier(tmp_path / "a")) == ["own"]


def test_a_bundle_from_a_zip_file_says_how_it_is_updated(bundled):
    with pytest.raises(UpdateError, match="If you were given a zip file, unpack the newest one into the same place"):
        list(pull(bundled))
