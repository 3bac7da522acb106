"""The parts of the book that need no built one: its checks, its front page and map, the reference of the library."""

from __future__ import annotations

import re

import jupytext
import nbformat
import pytest

from autograder.authoring.source import ROOT
from autograder.book import check, lighter, pages, reading, reference


def test_what_is_wrong_with_a_book_is_said(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="gone.html">a</a><a href="there.html#no">b</a><script src="https://elsewhere.org/x.js"></script>'
        '<li><a href="day05_memory.html"><b>Day 5</b></a><img src="data:," alt="">'
        f"<p>{'x' * check.FIRST}"
    )
    (tmp_path / "there.html").write_text('<p id="yes">')
    (tmp_path / "day05_memory.html").write_text("")
    assert check.problems(tmp_path)[:-1] == [
        "index.html has 1 pictures without words: give their axes titles and labels.",
        "index.html leads to gone.html, which is not there.",
        "index.html leads to there.html#no: there is no no on that page.",
        "index.html loads https://elsewhere.org/x.js: a page of the book must not load anything from elsewhere.",
        "index.html has no picture for day05_memory on its map: let that lesson draw a graph.",
    ]
    assert check.problems(tmp_path)[-1].startswith("The first page has 1,000,")


def test_icons_that_are_not_shown_are_left_out(tmp_path):
    (tmp_path / "a.html").write_text('<i class="fa-solid fa-bars">')
    icons = 'x={"42-group":[5,5,[],"e080","M1"],bars:[448,512,["nav"],"f0c9","M0"],"zip-x":[1,2,[],"f1",["a","b"]]}'
    (tmp_path / "fontawesome.js").write_text(icons)
    assert lighter.icons(tmp_path) == 1
    assert (tmp_path / "fontawesome.js").read_text() == 'x={bars:[448,512,["nav"],"f0c9","M0"],}'


def test_the_front_page_begins_as_the_readme_does_without_its_picture():
    title, about, days, *_ = pages._front([], {}).strip().split("\n\n")
    assert (ROOT / "README.md").read_text(encoding="utf-8").startswith(f"{title}\n\n{about}\n\n<img ")
    assert days == "## The days"


def test_every_lesson_of_the_course_is_on_the_map():
    result = pages.days()
    assert [day.lesson for day in result] == sorted(path.stem for path in (ROOT / "course").glob("day*.py"))
    assert all(day.number in pages.MAP and day.exercises for day in result)


def test_without_a_browser_the_check_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(reading.shutil, "which", lambda name: None)
    with pytest.raises(LookupError, match="apt install chromium"):
        reading.violations(tmp_path)


def test_the_reference_has_what_notebooks_import():
    cell = """from passlab.memory.plan import Plan
from passlab import draw, mlir
from passlab.relax import tvm
%matplotlib inline
mlir.parse("")"""
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    message = reference.page([nb])
    headings = re.findall("^##+ (.*)$", message, re.M)
    assert {"passlab", "draw", "models", "passlab.memory.plan", "Plan", "passlab.mlir", "parse"} <= set(headings)
    assert "tvm" not in headings and "passlab.relax" not in headings, "TVM documents itself"
    assert "```python\ndraw(" in message and message.count("```") % 2 == 0


def test_every_name_that_lessons_and_exercises_import_has_an_entry():
    paths = [*(ROOT / "course").glob("day*.py"), *(ROOT / "solutions").glob("day*/*.py")]
    result = reference.uses([jupytext.read(path) for path in paths])
    missing = {f"{at}.{name}" for at, names in result.items() for name in names if not reference._entry(at, name)}
    assert len(result) > 40
    assert {name for name in missing if not name.endswith((".tvm", ".relay", ".relax"))} == set()
    signed = re.compile(r"### .*\n\n(```python\n.*?\n```)?\s*", re.S)
    bare = {
        f"{at}.{name}" for at, names in result.items() for name in names if signed.fullmatch(reference._entry(at, name))
    }
    assert bare == set(), "an entry that says nothing: give a constant a line of `#:`"
