"""The instructor's page on late days and extensions, followed: what a learner loses, and gets back."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from autograder.toys import classes, tiny

#: When ada handed in: 1 day and 2 hours after the page's due date.
HANDED_IN = "2027-03-03 01:59:00.0 UTC"


@pytest.fixture(scope="module")
def page():
    """The commands and settings of docs/teaching.md, for the tiny course."""
    text = (tiny.ROOT / "docs/teaching.md").read_text().replace("day03", "day00")
    due = re.search(r"`(passlab due [^`]*)`", text)[1]
    setting = re.search(r"`(c\.LateDays\.per_day = [\d.]+)`", text)[1]
    extension = re.search(r"`(passlab extend [^`]*)`", text)[1]
    return due, setting, extension


def shell(course, script: str) -> None:
    env = tiny.environment(course)
    env["PATH"] = f"{tiny.Path(sys.executable).parent}:{env['PATH']}"
    ran = subprocess.run(["sh", "-c", script], cwd=course, env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def graded(course) -> tuple[str, float]:
    """What the feedback says of lateness, and the penalty in the gradebook."""
    ran = tiny.run(course, "-m", "passlab.cli", "grade", "class")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    [page] = (course / "autograder/run/feedback/ada").rglob("*.html")
    match = re.search(r"Handed in late</td><td class=n>−([\d.]+)", page.read_text())
    script = """
from autograder.authoring.source import settings
from nbgrader.api import Gradebook
with Gradebook(settings().CourseDirectory.db_url) as book:
    print(book.find_submission("day00", "ada").late_submission_penalty)
"""
    return match[1] if match else "", float(tiny.run(course, "-c", script).stdout.splitlines()[-1])


def test_late_days_cost_points_and_an_extension_gives_them_back(page, tmp_path):
    due, setting, extension = page
    course = tiny.make(tmp_path / "course")
    assert tiny.run(course, "-m", "autograder.authoring.notebooks").returncode == 0
    paper = classes.submit(course, "ada", classes.GOOD)
    (paper.parent / "timestamp.txt").write_text(HANDED_IN)
    with (course / "autograder/nbgrader_config.py").open("a") as out:
        out.write(f"\n{setting}\n")
    assert graded(course) == ("", 0.0), "there is no due date yet"
    shell(course, due)
    assert graded(course) == ("1.8", pytest.approx(1.8)), "two days begun, a tenth of 9 points each"
    shell(course, extension)
    assert graded(course) == ("", 0.0), "the extension's two days cover it"
    shell(course, extension.replace(" 2", " 0"))
    assert graded(course) == ("1.8", pytest.approx(1.8)), "it is taken back"
    shell(course, "passlab extend day00 bob 2")
    (classes.submit(course, "bob", classes.GOOD).parent / "timestamp.txt").write_text(HANDED_IN)
    graded(course)
    [page] = (course / "autograder/run/feedback/bob").rglob("*.html")
    assert "9 of 9 points" in page.read_text() and "Handed in late" not in page.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("due", "day00", "tomorrow-ish"), "'tomorrow-ish' is not a time such as '2027-03-01 23:59 UTC'."),
        (("due", "day77", "2027-03-01"), "There is no assignment day77. Expected one of day00."),
        (("extend", "day00", "ada", "9999"), "An extension is 0 days or more, and at most ten years; got 9999."),
        (("extend", "day77", "ada", "1"), "There is no assignment day77."),
    ],
)
def test_a_wrong_word_is_said_in_a_sentence(course_of_one, words, sentence):
    ran = tiny.run(course_of_one, "-m", "passlab.cli", *words)
    assert ran.returncode == 1 and sentence in " ".join(ran.stderr.split()) and "Traceback" not in ran.stderr


@pytest.fixture(scope="module")
def course_of_one(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("late") / "course")
