"""A stretch exercise with a core of its own: one answer, two questions, points of the core and extra credit."""

from __future__ import annotations

import json
from dataclasses import replace

import nbformat
import pytest

from autograder.authoring import minutes
from autograder.toys import tiny
from passlab import exercises
from passlab.judge import Case, Core, Exercise, core

EXERCISE = """
    Exercise(
        "day00.shout", "Louder", {"did": 2.0, "spared": 1.0}, 3, 15, ("one", "two", "three"), seconds=1, stretch=True,
        core=Core({"did": 4.0}, 1, 5),
    ),
"""
VISIBLE = """
from passlab.exercises.day00._shared import judge
from passlab.judge import Case, core


def cases():
    return [core(Case("a word", lambda: ("ab",), expect="AB")), Case("a sharp s", lambda: ("ß",), expect="SS")]
"""
ANSWERS = """
from autograder.authoring.answers import plain, right, wrong
from passlab.judge import Case, core


def hidden(seed):
    plain_word = Case("hidden plain", lambda: ("hiddenword",), expect="HIDDENWORD")
    return [core(plain_word), Case("odd", lambda: ("ŉ",), expect="ʼN")]


@right("letter by letter")
def letters(word):
    return "".join(letter.upper() for letter in word)


@plain("knows 26 letters")
def of_26(word):
    return "".join(chr(ord(letter) - 32) if "a" <= letter <= "z" else letter for letter in word)


@wrong("did", "only the first letter", core=True)
def first(word):
    return word[:1].upper() + word[1:]


@wrong("did", "only the last letter", core=True)
def last(word):
    return word[:-1] + word[-1:].upper()


@wrong("did", "no letter that has no capital of one letter")
def of_one(word):
    return "".join(letter.upper() if len(letter.upper()) == 1 else letter for letter in word)
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The tiny course, whose second question has a core."""
    course = tiny.make(tmp_path_factory.mktemp("core") / "course")
    day = tiny.FILES["lib/passlab/exercises/day00/__init__.py"]
    day = day.replace("import Exercise", "import Core, Exercise")
    notebook, check = tiny.notebook(), '# %%\ncheck("day00.shout", shout)'
    files = {
        "lib/passlab/exercises/day00/__init__.py": day.replace('    _exercise("shout", "Louder"),\n', EXERCISE),
        "lib/passlab/exercises/day00/shout.py": VISIBLE,
        "autograder/answers/day00/shout.py": ANSWERS,
        "solutions/day00/tiny.py": notebook.replace(check, f'# %%\ncheck("day00.shout-core", shout)\n\n{check}'),
    }
    tiny.write(course, files)
    assert tiny.run(course, "-m", "autograder.authoring.notebooks").returncode == 0
    return course


def prove(course, name):
    ended = tiny.run(course, "-m", "passlab.cli", "prove", "--json", "--exercise", name)
    (proof,) = json.loads(ended.stdout)
    return {row["name"]: row for row in proof["rows"]}, proof["problems"]


def test_the_notebook_has_one_answer_and_two_checks_with_points_of_their_own(course):
    nb = nbformat.read(course / "exercises/day00/tiny.ipynb", as_version=4)
    marks = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader for c in nb.cells if "nbgrader" in c.metadata}
    assert [name for name in marks if name.startswith("shout")] == ["shout", "shout-core-check", "shout-check"]
    assert (marks["shout-core-check"].points, marks["shout-check"].points) == (4, 0)


def test_a_plain_answer_is_right_in_the_core_and_not_beyond(course):
    rows, _ = prove(course, "shout-core")
    assert rows["of_26"]["kind"] == "right" and rows["of_26"]["points"] == 4 and not rows["of_26"]["problem"]
    assert {name for name, row in rows.items() if row["kind"] == "wrong"} == {"first", "last"}
    rows, _ = prove(course, "shout")
    assert rows["of_26"]["kind"] == "plain" and rows["of_26"]["lost"] == ["did"] and not rows["of_26"]["problem"]
    assert rows["reference"]["points"] == 3 and rows["of_one"]["lost"] == ["did"]


def test_the_proof_names_a_core_without_answers_and_a_plain_answer_that_is_right(course):
    path = course / "autograder/answers/day00/shout.py"
    bare = ANSWERS.replace(", core=True)\ndef last", ")\ndef last").replace(
        '@right("letter by letter")', '@plain("all")'
    )
    try:
        path.write_text(bare)
        assert "it has 1 wrong answer; 2 are needed" in prove(course, "shout-core")[1]
        rows, _ = prove(course, "shout")
        assert "then it is not plain, but right" in rows["letters"]["problem"]
    finally:
        path.write_text(ANSWERS)


def test_grading_gives_points_of_the_core_and_extra_credit_apart(course):
    nb = nbformat.read(course / "exercises/day00/tiny.ipynb", as_version=4)
    (answer,) = [c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "shout"]
    answer.source = "def shout(word):\n    return ''.join(chr(ord(c) - 32) if 'a' <= c <= 'z' else c for c in word)"
    for name in ("ada", "bob"):
        (course / "class" / name / "day00").mkdir(parents=True)
        nbformat.write(nb, course / "class" / name / "day00" / "tiny.ipynb")
        answer.source = "def shout(word):\n    return word.upper()"
    ended = tiny.run(course, "-m", "passlab.cli", "grade", "class")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (book,) = course.glob("**/gradebook.db")
    script = f"""
from nbgrader.api import Gradebook
for student in ("ada", "bob"):
    notebook = Gradebook("sqlite:///{book}").find_submission("day00", student).notebooks[0]
    grades = [grade for grade in notebook.grades if grade.name.startswith("shout")]
    print({{grade.name: (grade.max_score, grade.auto_score, grade.extra_credit) for grade in grades}})
"""
    ada, bob = map(eval, tiny.run(course, "-c", script).stdout.splitlines())
    assert ada == {"shout-core-check": (4, 4, None), "shout-check": (0, 0, 1)}  # spared counts, did does not
    assert bob == {"shout-core-check": (4, 4, None), "shout-check": (0, 0, 3)}


def test_a_core_has_no_more_verdicts_than_points_and_belongs_to_a_stretch_exercise():
    parts = {"points": {"did": 1, "cost": 1}, "difficulty": 1, "minutes": 5, "hints": ("one",), "helps": {"cost": 1}}
    whole = Exercise("day00.x", "X", **parts, stretch=True, core=Core({"did": 2}, 1, 5))
    whole = replace(whole, cases=lambda: [core(Case("plain", tuple)), Case("odd", tuple)])
    part = exercises._core_of(whole, whole.core)
    assert (part.id, part.total, part.stretch, dict(part.helps)) == ("day00.x-core", 2, False, {})
    assert [case.name for case in part.cases()] == ["plain"]
    with pytest.raises(ValueError, match=r"day00\.x: only a stretch exercise has a core"):
        Exercise("day00.x", "X", **parts, core=Core({"did": 2}, 1, 5))


def test_the_minutes_of_a_core_are_those_of_its_plain_answer(monkeypatch, tmp_path):
    path = tmp_path / "autograder/answers/day00/shout.py"
    path.parent.mkdir(parents=True)
    path.write_text(ANSWERS)
    monkeypatch.setattr(minutes.source, "COURSE", tmp_path)
    part = Exercise("day00.shout-core", "Louder", {"did": 1}, 1, 5, ("one",))
    assert minutes._plain_lines(part) == 1
    assert minutes._plain_lines(replace(part, id="day00.shout")) == 0
