"""Plain nbgrader on this course: its own commands and pages, with the settings in autograder/."""

from __future__ import annotations

import csv
import json
import re
import urllib.error
import urllib.request

import nbformat
import pytest
from playwright.sync_api import expect

from autograder.grading.safe_html import FORMGRADER
from autograder.toys import tiny
from tests.support import jupyter

#: A line of a traceback through nbgrader or this project.
TRACED = re.compile(r'^ *File ".*/(?:nbgrader|autograder|passlab)/', re.MULTILINE)
WARNS = "import sys\n\nstream = sys.stderr\n\ndef double(x):\n    print('careful', file=stream)\n    return 2 * x"


def nbgrader(course, *arguments, cwd=None):
    """Run a command of nbgrader's. Its kernels write to the same stream, and may complain while they are stopped."""
    result = tiny.run(course, "-m", "nbgrader", *arguments, cwd=cwd)
    assert not TRACED.search(result.stderr), result.stderr
    return result


def hand_in(course, learner, edit, folder="autograder/run/submitted"):
    path = course / folder / learner / "day00/tiny.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nb = nbformat.read(course / "exercises/day00/tiny.ipynb", as_version=4)
    edit(nb, {cell.id: cell for cell in nb.cells})
    nbformat.write(nb, path)


def solved(nb, cells):
    cells["double"].source = WARNS
    cells["shout"].source = "def shout(word):\n    return word.upper()"
    cells["sort-words"].source = "def sort_words(words):\n    return sorted(words)"


def shortened(nb, cells):
    solved(nb, cells)
    nb.cells = [cell for cell in nb.cells if cell.id not in ("double", "double-check", "shout-check")]


@pytest.fixture(scope="module")
def flow(course):
    """The whole flow by nbgrader's own commands, some from the project's folder, some from autograder/.

    At the end `passlab grade` grades one more learner, and one of the others once more.
    """
    (course / "exercises/day00/tiny.ipynb").unlink()
    assert nbgrader(course, "generate_assignment", "day00", "--force").returncode == 0
    hand_in(course, "ada", solved)
    hand_in(course, "bob", untouched)
    hand_in(course, "cyd", shortened)
    assert nbgrader(course, "autograde", "day00", cwd=course / "autograder").returncode == 0
    assert nbgrader(course, "generate_feedback", "day00").returncode == 0
    assert nbgrader(course, "export", "--to", "exported.csv").returncode == 0
    hand_in(course, "ada", solved, "class")
    hand_in(course, "dan", partly, "class")
    result = tiny.run(course, "-m", "passlab.cli", "grade", "class", "--seed", "8")
    assert result.returncode == 0, result.stdout + result.stderr
    return course


def test_the_release_is_the_same_as_ours(flow):
    assert tiny.run(flow, "-m", "autograder.authoring.notebooks", "--check").returncode == 0


def test_the_release_from_autograder_is_the_same_too(flow):
    before = (flow / "exercises/day00/tiny.ipynb").read_bytes()
    assert nbgrader(flow, "generate_assignment", "day00", "--force", "--no-db", cwd=flow / "autograder").returncode == 0
    assert (flow / "exercises/day00/tiny.ipynb").read_bytes() == before


def test_scores_are_in_the_export(flow):
    with (flow / "exported.csv").open(newline="") as lines:
        actual = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(lines)}
    assert actual == {"ada": (9, 9), "bob": (0, 9), "cyd": (6, 9)}


KEPT = """
import json, sys
from autograder.authoring.source import settings
from autograder.grading.recorder import Recorder

with Recorder(settings()) as recorder:
    for learner in ("ada", "bob", "cyd", "dan"):
        for score in recorder.scores()[learner, "day00"]:
            print(json.dumps([learner, score.question, score.points, score.seed, score.verdict.verdicts["did"]]))
"""


def test_seed_and_verdicts_are_kept_whoever_graded(flow):
    rows = [json.loads(line) for line in tiny.run(flow, "-c", KEPT).stdout.splitlines()]
    seeds = {learner: {row[3] for row in rows if row[0] == learner} for learner in ("ada", "bob", "cyd", "dan")}
    assert seeds["ada"] == seeds["dan"] == {8} and len(seeds["bob"]) == 1 and seeds["bob"] == seeds["cyd"] != {8}
    message = {(learner, question): (points, did) for learner, question, points, _, did in rows}
    assert message["cyd", "double"] == (0, False) and message["cyd", "sort-words"] == (3, True)
    assert message["dan", "shout"] == (0, False) and message["dan", "double"] == (3, True)


def test_feedback_is_written_and_clean(flow):
    page = (flow / "autograder/run/feedback/ada/day00/tiny.html").read_text()
    assert "hidden cases included" in page
    assert "HIDDEN TESTS" not in page and "autograder.authoring.answers" not in page


def untouched(nb, cells):
    pass


def partly(nb, cells):
    solved(nb, cells)
    cells["shout"].source = "def shout(word):\n    return word"


@pytest.mark.parametrize(("edit", "passes"), [(solved, True), (untouched, False), (partly, False)])
def test_validate(flow, tmp_path, edit, passes):
    nb = nbformat.read(flow / "exercises/day00/tiny.ipynb", as_version=4)
    edit(nb, {cell.id: cell for cell in nb.cells})
    nbformat.write(nb, tmp_path / "mine.ipynb")
    output = nbgrader(flow, "validate", str(tmp_path / "mine.ipynb")).stdout
    assert ("Success! Your notebook passes all the tests." in output) == passes, output


def test_validate_accepts_the_authored_notebook(flow):
    assert "Success!" in nbgrader(flow, "validate", "solutions/day00/tiny.ipynb").stdout


@pytest.fixture(scope="module")
def server(flow):
    with jupyter.serving(flow) as page:
        yield page


def test_formgrader_lists_the_course(server):
    assert "formgrader" in server("formgrader/manage_assignments").lower()
    assignments = json.loads(server("formgrader/api/assignments"))
    assert [(a["name"], a["num_submissions"], a["max_score"]) for a in assignments] == [("day00", 4, 9.0)]


def test_formgrader_shows_the_submissions(server):
    submissions = json.loads(server("formgrader/api/submissions/day00"))
    assert {s["student"]: s["score"] for s in submissions} == {"ada": 9.0, "bob": 0.0, "cyd": 6.0, "dan": 6.0}
    notebooks = json.loads(server("formgrader/api/notebooks/day00"))
    assert [n["name"] for n in notebooks] == ["tiny"]


def test_formgrader_opens_a_submission(server):
    notebook = json.loads(server("formgrader/api/submitted_notebooks/day00/tiny"))[0]
    page = server(f"formgrader/submissions/{notebook['id']}/")
    assert "double-check" in page and "MathJax" in page
    assert "cdnjs" not in page, "nbconvert would load MathJax from the internet"


def test_every_page_of_formgrader_comes_with_a_policy(server):
    notebook = json.loads(server("formgrader/api/submitted_notebooks/day00/tiny"))[0]
    for path in ("formgrader/manage_assignments", f"formgrader/submissions/{notebook['id']}/"):
        with urllib.request.urlopen(server.address(path)) as page:
            assert page.headers["Content-Security-Policy"] == FORMGRADER


def test_what_lies_beside_a_notebook_runs_nothing_in_formgraders_origin(server, flow):
    for folder in (flow / "autograder/run/autograded").glob("*/day00"):
        (folder / "page.html").write_text("<script>alert(1)</script>")
    notebook = json.loads(server("formgrader/api/submitted_notebooks/day00/tiny"))[0]
    with urllib.request.urlopen(server.address(f"formgrader/submissions/{notebook['id']}/page.html")) as page:
        assert b"alert" in page.read() and page.headers["Content-Security-Policy"].startswith("sandbox; default-src")


def test_a_server_that_knows_formgrader_leaves_the_learners_progress_alone(server, flow):
    """Settings are read inside the Jupyter server, whose environment the learners' kernels inherit."""
    assert server("formgrader/api/assignments")
    output = tiny.run(
        flow, "-c", "from autograder.authoring.source import settings; settings(); import os; print(*os.environ)"
    ).stdout
    assert "PASSLAB_" not in output


def submission(server, learner: str) -> dict:
    return next(s for s in json.loads(server("formgrader/api/submissions/day00")) if s["student"] == learner)


def test_a_grade_given_by_hand_in_formgrader_outlives_the_next_grading(server, flow):
    """In a real browser: the score that `passlab grade` wrote stands in its box, and a person writes another."""
    pages = json.loads(server("formgrader/api/submitted_notebooks/day00/tiny"))
    dan = next(page for page in pages if page["student"] == "dan")
    with jupyter.browsing(server.address(f"formgrader/submissions/{dan['id']}/")) as page:
        expect(page.locator("#shout-check")).to_have_attribute("placeholder", "0", timeout=120_000)
        for box, text in (("shout-check", "2.5"), ("shout-check_extra_credit", "0.25"), ("shout-comment", "Nearly.")):
            page.locator(f"#{box}").fill(text)
            with page.expect_response(lambda answer: answer.request.method == "PUT"):
                page.locator(f"#{box}").blur()
    assert submission(server, "dan")["score"] == 8.75 and not submission(server, "dan")["needs_manual_grade"]
    result = tiny.run(flow, "-m", "passlab.cli", "grade", "class", "--seed", "9")
    assert result.returncode == 0, result.stdout + result.stderr
    assert submission(server, "dan")["score"] == 8.75 and submission(server, "dan")["needs_manual_grade"]
    assert "Nearly." in (flow / "autograder/run/feedback/dan/day00/tiny.html").read_text()
