"""The hub's README on late days and extensions, followed on a gradebook: what a learner loses, and gets back."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from autograder.toys import classes, tiny

#: When ada handed in: 1 day and 2 hours after the README's due date.
HANDED_IN = "2027-03-03 01:59:00.0 UTC"


@pytest.fixture(scope="module")
def readme():
    text = (tiny.ROOT / "autograder/hub/README.md").read_text().replace("day03", "day00")
    due = re.search(r"`(nbgrader db assignment add [^`]*)`", text)[1]
    setting = re.search(r"`(c\.LateDays\.per_day = [\d.]+)`", text)[1]
    extension = re.search(r"```sh\n(.*?)```", text, re.S)[1].replace("\n  ", "\n")
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
    found = re.search(r"Handed in late</td><td class=n>−([\d.]+)", page.read_text())
    script = """
from autograder.authoring.source import settings
from nbgrader.api import Gradebook
with Gradebook(settings().CourseDirectory.db_url) as book:
    print(book.find_submission("day00", "ada").late_submission_penalty)
"""
    return found[1] if found else "", float(tiny.run(course, "-c", script).stdout.splitlines()[-1])


def test_late_days_cost_points_and_an_extension_gives_them_back(readme, tmp_path):
    due, setting, extension = readme
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
