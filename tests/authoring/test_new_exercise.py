"""The README's words on adding an exercise, followed to the letter in a course of its own."""

from __future__ import annotations

import json
import re

import pytest

from autograder.authoring.source import ROOT
from tests.support import tiny

#: A block of code, and the file that is named last before it.
_BLOCK = re.compile(r"`(?P<path>[\w/]+\.py)`[^`]*(?:`(?!``)[^`]*`[^`]*)*?\n\n```python\n(?P<code>.*?)```", re.S)


def blocks() -> dict[str, str]:
    """File → what the README puts into it, in the names of the tiny course."""
    text = (ROOT / "README.md").read_text().split("## If you write exercises")[1].split("\n## ")[0]
    text = text.replace("day03", "day00").replace("optimizations", "tiny")
    return {found["path"]: found["code"] for found in _BLOCK.finditer(text)}


def prove(course) -> dict:
    made = tiny.run(course, "-m", "passlab.cli", "prove", "--json", "--exercise", "day00.reverse")
    assert made.stdout, made.stderr
    [proof] = json.loads(made.stdout)
    return proof


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("new") / "course")


def test_an_exercise_is_added_by_following_the_readme(course):
    parts = blocks()
    listing = "lib/passlab/exercises/day00/__init__.py"
    files = ["lib/passlab/exercises/day00/reverse.py", "autograder/answers/day00/reverse.py"]
    assert list(parts) == [listing, "solutions/day00/tiny.py", *files]

    text = (course / listing).read_text().rstrip()
    assert text.endswith(")")
    (course / listing).write_text(text[:-1] + parts[listing].partition("# the existing ones\n")[2])
    assert [sentence.split()[0] for sentence in prove(course)["problems"]] == [*files, "solutions/day00/tiny.py"]

    notebook = course / "solutions/day00/tiny.py"
    notebook.write_text(f"{notebook.read_text()}\n{parts['solutions/day00/tiny.py']}")
    tiny.write(course, {file: parts[file] for file in files})
    proof = prove(course)
    assert proof["problems"] == ["it has 1 wrong answers; 6 are needed", "it has 1 right answers; 2 are needed"]
    rows = {row["name"]: (row["points"], row["problem"]) for row in proof["rows"]}
    assert rows == {"stub": (0, ""), "reference": (3, ""), "joined": (3, ""), "sorted_down": (1, "")}

    built = tiny.run(course, "-m", "autograder.authoring.notebooks")
    assert built.returncode == 0, built.stderr
    released = json.loads((course / "exercises/day00/tiny.ipynb").read_text())
    marks = {cell["id"]: cell["metadata"]["nbgrader"] for cell in released["cells"] if "nbgrader" in cell["metadata"]}
    assert marks["reverse-check"]["points"] == 3 and marks["reverse"]["solution"]
