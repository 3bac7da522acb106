"""A question that a person grades: its rubric, its points, and the grade given in formgrader."""

from __future__ import annotations

import csv
import json

import nbformat
import pytest
from playwright.sync_api import expect

from autograder.toys import classes, tiny
from tests.support import jupyter

LISTING = "lib/passlab/exercises/day00/__init__.py"
LISTED = """

from passlab.judge import Written

WRITTEN = (Written("day00.essay", "In words", 4, 1, 10),)
"""
CELLS = """
# %% [markdown]
# ## In words
#
# Why is doubling a shift?
#
# ### BEGIN MARK SCHEME day00.essay
# - 2 points: rubricmarker, names binary digits
# - 2 points: says when it is not
# ### END MARK SCHEME

# %% [markdown]
# ### BEGIN SOLUTION
# Digits move; solutionmarker.
# ### END SOLUTION
"""


@pytest.fixture(scope="module")
def written(course):
    """The tiny course with a fourth question, graded: ada wrote a text, bob did not, cyd removed the question."""
    for path, more in ((LISTING, LISTED), ("solutions/day00/tiny.py", CELLS)):
        (course / path).write_text((course / path).read_text() + more)
    built = tiny.run(course, "-m", "autograder.authoring.notebooks")
    assert built.returncode == 0, built.stderr
    classes.submit(course, "ada", classes.GOOD | {"essay": "Because of **bits**."})
    classes.submit(course, "bob", classes.GOOD)
    path = classes.submit(course, "cyd", classes.GOOD)
    nb = nbformat.read(path, as_version=4)
    nb.cells = [cell for cell in nb.cells if cell.id not in ("essay", "essay-rubric")]
    nbformat.write(nb, path)
    grade(course)
    return course


def grade(course) -> None:
    result = tiny.run(course, "-m", "passlab.cli", "grade", "class", "--seed", "4")
    assert result.returncode == 0, result.stdout + result.stderr


def essays(course) -> dict[str, tuple[str, str]]:
    """learner → (points, status) of the written question."""
    with (course / "autograder/run/grades.csv").open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["question"] == "essay"]
    assert {row["max_points"] for row in rows} == {"4"} and {row["credit"] for row in rows} == {"core"}
    return {row["learner"]: (row["points"], row["status"]) for row in rows}


def test_the_release_has_neither_rubric_nor_answer(written):
    text = (written / "exercises/day00/tiny.ipynb").read_text()
    assert "Why is doubling" in text and "rubricmarker" not in text and "solutionmarker" not in text
    assert "MARK SCHEME" not in text and "SOLUTION" not in text


def test_a_text_waits_for_a_person_and_an_empty_one_does_not(written):
    assert essays(written) == {
        "ada": ("", "to be graded"),
        "bob": ("0", "not attempted"),
        "cyd": ("0", "not attempted"),
    }


def test_feedback_shows_the_text_and_not_the_rubric(written):
    page = (written / "autograder/run/feedback/ada/day00/tiny.html").read_text()
    assert "<strong>bits</strong>" in page and "1 answer has yet to be graded by a person" in page
    assert "rubricmarker" not in page and "MARK SCHEME" not in page


def test_progress_lists_it(written):
    output = tiny.run(written, "-c", "from passlab import progress; progress(); progress('day00')").stdout
    days, questions = output.split("progress('day00').")
    assert "0 of 4 done" in days and "0 of 13 core points" in questions
    assert "day00.essay" in questions and "graded by a person" in questions


def test_a_grade_by_the_rubric_counts_and_outlives_the_next_grading(written):
    """In a real browser: formgrader shows the rubric above the text, a person fills in the box, and it counts."""
    with jupyter.serving(written) as server:
        pages = json.loads(server("formgrader/api/submitted_notebooks/day00/tiny"))
        ada = next(page for page in pages if page["student"] == "ada")
        with jupyter.browsing(server.address(f"formgrader/submissions/{ada['id']}/")) as page:
            expect(page.get_by_text("rubricmarker, names binary digits")).to_be_visible(timeout=120_000)
            expect(page.get_by_text("bits", exact=True)).to_be_visible()
            page.locator("#essay").fill("3")
            with page.expect_response(lambda answer: answer.request.method == "PUT"):
                page.locator("#essay").blur()
    grade(written)
    assert essays(written)["ada"] == ("3", "partly right")
    report = (written / "autograder/run/report.html").read_text()
    assert "1 partly right" in report and ">12<" in report
    assert "12 of 13 points" in (written / "autograder/run/feedback/ada/day00/tiny.html").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("SCHEME day00.essay", "SCHEME day00.poem", "does not list in WRITTEN"),
        ("# ### BEGIN SOLUTION\n# Digits", "# Digits", "has to be its answer"),
    ],
)
def test_a_rubric_without_its_question_or_answer_is_named(written, old, new, said):
    path = written / "solutions/day00/tiny.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    try:
        built = tiny.run(written, "-m", "autograder.authoring.notebooks")
    finally:
        path.write_text(text)
    assert built.returncode != 0 and said in built.stderr
