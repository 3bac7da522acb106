"""What `passlab prove` says of each answer of a small course: its points, and what is wrong with it."""

from __future__ import annotations

import json

import pytest

from autograder.toys import tiny

ANSWERS = """
from autograder.authoring.answers import right, wrong


@wrong("did", "adds two")
def adds_two(x):
    return x + 2


@wrong("spared", "gives nothing")
def nothing(x):
    return None


@wrong("spared", "blamed on the wrong verdict")
def blamed(x):
    return 0


@wrong("did", "is right after all")
def survives(x):
    return 2 * x


@right("is wrong after all")
def off(x):
    return 2 * x + 1


@right("shifts")
def shifts(x):
    return x << 1
"""


@pytest.fixture(scope="module")
def proof(course):
    path = "autograder/answers/day00/double.py"
    (course / path).write_text(tiny.FILES[path] + ANSWERS)
    result = tiny.run(course, "-m", "passlab.cli", "prove", "--json", "--exercise", "double")
    assert result.returncode == 1, result.stderr
    [proof] = json.loads(result.stdout)
    return proof


@pytest.mark.parametrize(
    ("answer", "points", "problem"),
    [
        ("reference", 3, ""),
        ("stub", 0, ""),
        ("unchanged", 0, ""),
        ("adds_two", 0, ""),  # right in the visible case alone
        ("nothing", 0, ""),
        ("blamed", 0, "must lose 'spared', but it loses did"),
        ("survives", 3, "survives: it has all points"),
        ("off", 0, "must have all points"),
        ("shifts", 3, ""),
    ],
)
def test_each_answer_gets_what_it_deserves(proof, answer, points, problem):
    [row] = [row for row in proof["rows"] if row["name"] == answer]
    assert (row["points"], row["problem"]) == (points, problem)


def test_too_few_wrong_answers_are_a_problem(proof):
    assert proof["problems"] == ["it has 4 wrong answers; 6 are needed"] and not proof["ok"]


def test_the_hidden_cases_are_what_tells_them_apart(proof):
    [row] = [row for row in proof["rows"] if row["name"] == "adds_two"]
    assert row["visible"] == 3 and row["lost"] == ["did"]


def test_a_reference_that_is_wrong_breaks_the_proof(course):
    authored = course / "solutions/day00/tiny.py"
    text = authored.read_text()
    authored.write_text(text.replace("return word.upper()", "return word.title()"))
    result = tiny.run(course, "-m", "passlab.cli", "prove", "--exercise", "shout")
    authored.write_text(text)
    assert result.returncode == 1 and "must have all points" in " ".join(result.stdout.split())


def test_an_unknown_exercise_is_named(course):
    result = tiny.run(course, "-m", "passlab.cli", "prove", "--exercise", "duoble")
    assert result.returncode == 1 and "Did you mean" in result.stderr and "day00.double" in result.stderr
