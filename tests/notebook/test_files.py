"""The files that JupyterLab lists for a learner."""

import asyncio

import pytest

from passlab.notebook.files import CourseFiles


@pytest.fixture
def files(tmp_path):
    """Return a function from a folder to the names that are listed for it."""
    names = ["course/day01_a.py", "course/day01_a.ipynb", "course/notes.py", "exercises/day01/a.ipynb", "lib/x.py"]
    names += ["solutions/day01/a.py", "solutions/day01/a.ipynb", "work/day01/a.py", "work/day01/a.ipynb"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    manager = CourseFiles(root_dir=str(tmp_path))

    def listed(path):
        return {entry["name"] for entry in asyncio.run(manager.get(path))["content"]}

    return listed


def test_a_notebook_is_listed_without_the_text_that_it_is_made_from(files):
    assert files("course") == {"day01_a.ipynb", "notes.py"}
    assert files("/solutions/day01/") == {"a.ipynb"}
    assert files("work/day01") == {"a.py", "a.ipynb"}, "what a learner writes is always listed"


def test_folders_with_copies_in_work_are_left_out(files, tmp_path):
    assert files("") == {"course", "exercises", "lib", "solutions", "work"}, "no lesson is copied yet"
    (tmp_path / "work/course").mkdir()
    assert files("/") == {"lib", "solutions", "work"}
    assert files("exercises") == {"day01"}, "a link still leads there"


def test_what_is_not_listed_can_be_read(tmp_path):
    (tmp_path / "course").mkdir()
    (tmp_path / "course/a.py").write_text("1")
    (tmp_path / "course/a.ipynb").write_text("{}")
    manager = CourseFiles(root_dir=str(tmp_path))
    assert asyncio.run(manager.get("course/a.py"))["content"] == "1"
    assert asyncio.run(manager.get("course", content=False))["content"] is None
