"""A class graded end to end on a tiny course: who gets what, what the table says, and what feedback keeps to itself."""

from __future__ import annotations

import csv
import re
import shutil

import nbformat
import pytest

from autograder.toys import tiny
from autograder.toys.classes import GOOD, submit

#: What must never be seen by a learner: hidden cases, hidden source, the grader's own files, the course's answers.
SECRETS = re.compile(r"hiddenmarker|hiddenword|BEGIN HIDDEN|autograder\.grading|autograder/|solutionmarker|2010|saw 1")

WARNS = """
import os, sys, warnings
stream = sys.stderr

def double(x):
    warnings.warn("careful")
    print("kept stream", file=stream)
    os.write(2, b"raw bytes")
    return 2 * x
"""

TALKS = """
import os
from IPython.display import display

def shout(word):
    display(word)
    os.write(1, word.encode())
    print(word)
    return word.upper()
"""

FLOOD = """
print("spam " * 2_000_000)

def double(x):
    print("x" * 10_000_000)
    return 2 * x
"""

#: Goes wrong on the hidden case alone.
HIDDEN = "import os\n\ndef double(x):\n    if x > 100:\n        {}\n    return 2 * x"

#: learner → (answer cells, points for double, shout, sort-words)
LEARNERS = {
    "perfect": (GOOD, 3, 3, 3),
    "untouched": ({}, 0, 0, 0),
    "partly right": (GOOD | {"double": "def double(x):\n    return x + 2", "shout": ""}, 0, 0, 3),
    "raises": (GOOD | {"double": "def double(x):\n    return x / 0"}, 0, 3, 3),
    "broken cell": (GOOD | {"double": "def double(x:"}, 0, 3, 3),
    "exits": (GOOD | {"shout": "import os\n\ndef shout(word):\n    os._exit(1)"}, 3, 0, 3),
    "exits at once": (GOOD | {"double": "import os\nos._exit(1)"}, 0, 3, 3),
    "sys exit": (GOOD | {"double": "raise SystemExit"}, 0, 3, 3),
    "loops": (GOOD | {"double": "def double(x):\n    while True:\n        pass"}, 0, 3, 3),
    "warns": (GOOD | {"double": WARNS}, 3, 3, 3),
    "talks": (GOOD | {"shout": TALKS}, 3, 3, 3),
    "floods": (GOOD | {"double": FLOOD}, 3, 3, 3),
    "hidden crash": (GOOD | {"double": HIDDEN.format("raise KeyboardInterrupt(f'saw {x}')")}, 0, 3, 3),
    "hidden death": (GOOD | {"double": HIDDEN.format("os._exit(1)")}, 0, 3, 3),
    "returns junk": (GOOD | {"double": "class Odd:\n    __eq__ = None\n\ndef double(x):\n    return Odd()"}, 0, 3, 3),
    "=1+1 <b>ödd [x]": (GOOD, 3, 3, 3),
}


def grade(course, *arguments, **env):
    return tiny.run(course, "-m", "passlab.cli", "grade", *arguments, COLUMNS="200", **env)


@pytest.fixture(scope="module")
def graded(course):
    """The whole class, graded once. Gives the course folder and what the command printed."""
    for learner, (answers, *_) in LEARNERS.items():
        submit(course, learner, answers)
    damaged = submit(course, "damaged", GOOD)
    damaged.write_text(damaged.read_text()[:700])
    submit(course, "nested/unpacked", GOOD)
    misplaced = submit(course, "misplaced", GOOD).parent
    misplaced.rename(misplaced.with_name("day99"))
    (course / "class/empty").mkdir()
    verdicts = submit(course, "lost cells", GOOD)
    nb = nbformat.read(verdicts, as_version=4)
    nb.cells = [cell for cell in nb.cells if cell.id not in ("double-check", "shout", "shout-check")]
    for cell in nb.cells:
        if cell.id == "sort-words-check":
            cell.source = "3.0"
    nbformat.write(nb, verdicts)
    before = {p: p.read_bytes() for p in (course / "class").rglob("*.ipynb")}
    result = grade(course, "class", "--seed", "5")
    assert {p: p.read_bytes() for p in (course / "class").rglob("*.ipynb")} == before
    return course, result


def rows(course, run="autograder/run"):
    with (course / run / "grades.csv").open(newline="") as lines:
        # an apostrophe in front keeps spreadsheets from running a name
        return {(row["learner"].removeprefix("'"), row["question"]): row for row in csv.DictReader(lines)}


def visible_name(learner):
    return learner.translate(str.maketrans("[]*?<>", "()____"))


def test_everything_gradable_is_graded(graded):
    _, result = graded
    assert result.returncode == 0, result.stderr
    assert f"Graded {len(LEARNERS) + 3} of {len(LEARNERS) + 4} submissions (1 could not be read)" in result.stdout


@pytest.mark.parametrize("learner", LEARNERS)
def test_points(graded, learner):
    _, *expected = LEARNERS[learner]
    actual = rows(graded[0])
    assert [float(actual[visible_name(learner), question]["points"]) for question in GOOD] == expected


def test_lost_cells_cost_their_question_only_and_changed_checks_are_restored(graded):
    actual = rows(graded[0])
    assert [float(actual["lost cells", question]["points"]) for question in GOOD] == [3, 0, 3]


def test_the_csv_tells_seed_and_lost_verdicts(graded):
    actual = rows(graded[0])
    row = actual["partly right", "double"]
    assert (row["assignment"], row["max_points"], row["seed"], row["lost"]) == ("day00", "3", "5", "did")
    assert row["message"] == "It did not do everything that it must."


@pytest.mark.parametrize(
    ("learner", "sentence"),
    [
        ("damaged", "tiny.ipynb is damaged"),
        ("nested", "Taken from unpacked/day00/tiny.ipynb"),
        ("lost cells", "(and 4 more in the report)"),
        ("exits", "The Python process ended in this cell"),
        ("broken cell", "SyntaxError"),
        ("=1+1 _b_ödd (x)", "a name that nbgrader cannot use"),
        ("misplaced", "Taken from day99/tiny.ipynb (expected: day00/tiny.ipynb)."),
        ("empty", "There is no notebook in this folder."),
    ],
)
def test_the_table_names_what_went_wrong(graded, learner, sentence):
    stdout = graded[1].stdout  # a line for each submission, then the table
    text = re.sub(r"\s+", " ", re.sub("[│┃]", "", stdout[stdout.index("┏") :]))
    text = text[: text.index(" Graded ")]
    at = text.index(f" {learner} " if f" {learner} " in text else f"{learner}:")
    assert sentence in text[at : at + 700]


def test_the_report_has_every_note_on_a_learner(graded):
    course, _ = graded
    page = (course / "autograder/run/report.html").read_text()
    assert "Answer cell &#39;shout&#39; was missing" in page and "Check cell &#39;double-check&#39; was missing" in page


def test_the_table_says_where_things_lie(graded):
    course, result = graded
    for place in ("autograder/run/grades.csv", "autograder/run/feedback"):
        assert place in result.stdout and (course / place).exists()


def test_the_report_says_why_a_notebook_was_not_read(graded):
    page = (graded[0] / "autograder/run/report.html").read_text()
    notes = re.search(r"<h2>Not read, and notes</h2>.*?</ul>", page, re.S)[0]
    assert "<b>damaged</b>: day00: tiny.ipynb is damaged" in notes and "<li></li>" not in notes


def feedback(course, learner):
    return (course / "autograder/run/feedback" / visible_name(learner) / "day00/tiny.html").read_text()


@pytest.mark.parametrize("learner", [*LEARNERS, "lost cells"])
def test_feedback_keeps_hidden_tests_to_itself(graded, learner):
    match = SECRETS.search(feedback(graded[0], learner))
    assert match is None, match


def test_the_search_for_secrets_finds_them_where_they_are(graded):
    notebook = graded[0] / "autograder/run/autograded/hidden crash/day00/tiny.ipynb"
    assert SECRETS.search(notebook.read_text())


def test_feedback_still_says_what_matters(graded):
    course, _ = graded
    assert "It raised an exception." in feedback(course, "hidden crash")
    assert "ended while your answer ran" in feedback(course, "hidden death")
    assert "hidden cases included" in feedback(course, "perfect")
    assert "not written yet" in feedback(course, "untouched")
    assert "SyntaxError" in feedback(course, "broken cell")
    assert "one of the hidden ones" in feedback(course, "partly right")


def test_floods_are_cut(graded):
    assert "more characters were printed" in feedback(graded[0], "floods")
    assert len(feedback(graded[0], "floods")) < 2_000_000


def test_the_same_seed_gives_the_same_scores(graded):
    course, _ = graded
    first = rows(course)
    shutil.copytree(course / "class/partly right", course / "again/partly right")
    assert grade(course, "again", "--seed", "5", PASSLAB_RUN="autograder/run-again").returncode == 0
    second = rows(course, "autograder/run-again")
    assert all(second[key] == first[key] for key in second) and second


def test_a_second_run_of_the_same_class_updates_the_same_gradebook(graded):
    course, _ = graded
    submit(course, "partly right", GOOD, "resubmitted")
    run = "autograder/run-resubmitted"
    shutil.copytree(course / "autograder/run", course / run)
    assert grade(course, "resubmitted", PASSLAB_RUN=run).returncode == 0
    export = tiny.run(course, "-m", "nbgrader", "export", "--to", "all.csv", PASSLAB_RUN=run)
    assert export.returncode == 0, export.stderr
    with (course / "all.csv").open(newline="") as lines:
        totals = {row["student_id"]: float(row["score"]) for row in csv.DictReader(lines)}
    assert totals["partly right"] == 9 and totals["raises"] == 6


def test_changed_questions_after_grading_began_are_explained(graded, tmp_path):
    course = shutil.copytree(graded[0], tmp_path / "changed")
    for home in ("lib/passlab/exercises/day00", "autograder/answers/day00"):
        (course / home / "shout.py").rename(course / home / "yell.py")
    for file in ("lib/passlab/exercises/day00/__init__.py", "solutions/day00/tiny.py"):
        text = (course / file).read_text()
        (course / file).write_text(text.replace("day00.shout", "day00.yell").replace('"shout"', '"yell"'))
    assert tiny.run(course, "-m", "autograder.authoring.notebooks").returncode == 0
    result = grade(course, "class")
    assert result.returncode == 1 and "gradebook.db away and grade again" in result.stderr


ENTER = """
from autograder.authoring import source
from autograder.grading import gradebook
from nbgrader.api import Gradebook
from sqlalchemy import create_engine

config = source.settings()
gradebook.prepare(config)
for learners in (["ada", "bob", "ada"], ["bob", "cyd"]):
    with create_engine(config.CourseDirectory.db_url).begin() as connection:
        gradebook.add_learners(connection, learners)
with Gradebook(config.CourseDirectory.db_url, "passlab") as entered:
    print(*[student.id for student in entered.students])
"""


def test_learners_are_entered_once_before_processes_could_race(course):
    result = tiny.run(course, "-c", ENTER, PASSLAB_RUN="autograder/run-learners")
    assert result.stdout.split() == ["ada", "bob", "cyd"], result.stderr


def test_stale_notebooks_are_not_graded_with(graded, tmp_path):
    course = shutil.copytree(graded[0], tmp_path / "stale")
    authored = course / "solutions/day00/tiny.py"
    authored.write_text(authored.read_text().replace("solutionmarker", "another"))
    result = grade(course, "class")
    assert (
        result.returncode == 1 and "solutions/day00/tiny.ipynb" in result.stderr and "passlab release" in result.stderr
    )


def test_a_roster_sets_unknown_learners_aside(course):
    for learner in ("ada", "mallory"):
        submit(course, learner, GOOD, "rostered")
    (course / "rostered/roster.csv").write_text("id,name\nada,Ada L.\n")
    result = grade(course, "rostered", PASSLAB_RUN="autograder/run-roster")
    assert result.returncode == 0 and "mallory: day00: not graded" in result.stdout
    assert {learner for learner, _ in rows(course, "autograder/run-roster")} == {"ada"}


def test_everybody_on_the_roster_is_counted_and_what_was_repaired_is_told(course):
    folder = course / "odd"
    for learner in ("ada", "cyd"):
        submit(course, learner, GOOD, "odd")
    (folder / "ada/day00/tiny.ipynb").rename(folder / "ada/day00/tiny (1).ipynb")
    text = (folder / "cyd/day00/tiny.ipynb").read_text()
    (folder / "cyd/day00/tiny (1).ipynb").write_text(text.replace("shout", "Shout", 1))
    roster = "id;name;group\nada;Ada L.;\nbob;Bob B.;\ncyd;Cyd C.;\ndan;Dan D.;X\neve;Eve E.;X\n"
    submit(course, "eve", GOOD, "odd")
    (folder / "roster.csv").write_text(roster, encoding="utf-16")
    result = grade(course, "odd", PASSLAB_RUN="autograder/run-odd")
    output = " ".join(result.stdout.split())
    assert "3 of 5 learners; not bob (nothing to grade), cyd (not graded)." in output, output + result.stderr
    points = rows(course, "autograder/run-odd")
    assert {learner: row["points"] for (learner, question), row in points.items() if question == "double"} == {
        **dict.fromkeys(("ada", "dan", "eve"), "3")
    }
    assert points["bob", ""]["status"] == points["cyd", ""]["status"] == "not graded"
    assert points["bob", ""]["message"] == "no notebook was handed in" and "and differ" in points["cyd", ""]["message"]
    note = "Taken from day00/tiny (1).ipynb (expected: day00/tiny.ipynb)."
    report = (course / "autograder/run-odd/report.html").read_text()
    [page] = (course / "autograder/run-odd/feedback/ada").rglob("*.html")
    assert note in report and note in page.read_text() and "Handed in by eve for the group X." in report
    assert "Decide which one counts" in report and "Same answers" not in report
    script = "from nbgrader.api import Gradebook\nprint(*[(s.id, s.first_name, s.last_name) for s in Gradebook("
    script += f"'sqlite:///{course}/autograder/run-odd/gradebook.db').students])"
    assert "('ada', 'Ada', 'L.')" in tiny.run(course, "-c", script).stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "nowhere does not exist. Expected a folder"),
        (("solutions/day00/tiny.py",), "is not a folder or an archive"),
        (("class", "--assignment", "day77"), "There is no assignment day77. Expected one of day00."),
        (("exercises",), "is named like an assignment"),
        (("lib/passlab/formats",), "contains no submission"),
        (("class", "--roster", "none.csv"), "The roster none.csv does not exist"),
    ],
)
def test_what_cannot_be_graded_is_said_in_a_sentence(course, arguments, sentence):
    (course / "class").mkdir(exist_ok=True)
    result = grade(course, *arguments)
    assert sentence in result.stderr + result.stdout and "Traceback" not in result.stderr


def test_a_home_that_cannot_be_written_does_not_matter(course):
    submit(course, "ada", GOOD, "homeless")
    result = grade(course, "homeless", HOME="/dev/null/nowhere", PASSLAB_RUN="autograder/run-homeless")
    assert result.returncode == 0, result.stderr
    assert float(rows(course, "autograder/run-homeless")["ada", "double"]["points"]) == 3
