"""Answers that are told as an edit of the reference."""

from __future__ import annotations

import json

import pytest
import torch

from autograder.authoring.answers import DRAWS, something_to_do
from autograder.toys import tiny
from passlab.fx.cases import case, graph, most


def tanhs(number):
    """A case of day03.cse: the program has this many equal calls, of which one should be left."""
    program = graph(lambda m, x: sum(torch.tanh(x) for _ in range(number)), (2, 3))
    return case(f"{number} calls", program, did=[most("tanh", 1, "Once is enough.")])


def test_a_case_is_drawn_until_there_is_something_to_do_in_it():
    numbers = iter([1, 1, 3, 2])
    assert something_to_do("day03.cse", lambda: tanhs(next(numbers))).name == "3 calls"
    assert next(numbers) == 2


def test_where_there_is_never_anything_to_do_nothing_is_asked():
    drawn = []

    def draw():
        drawn.append(tanhs(1))
        return drawn[-1]

    result = something_to_do("day03.cse", draw)
    assert len(drawn) == DRAWS and result.about == ("valid", "same")
    assert (result.build, result.expect) == (drawn[-1].build, drawn[-1].expect)


SHOUT = "autograder/answers/day00/shout.py"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("edited") / "course")


def proof(course, line):
    """The proof of day00.shout with one more answer in its bank."""
    text = (course / SHOUT).read_text()
    try:
        (course / SHOUT).write_text(f"from autograder.authoring.answers import edited\n{text}\n\n{line}\n")
        process = tiny.run(course, "-m", "passlab.cli", "prove", "--json", "--exercise", "day00.shout")
    finally:
        (course / SHOUT).write_text(text)
    return json.loads(process.stdout)[0]


def test_a_wrong_answer_can_be_a_change_of_the_reference(course):
    value = proof(course, 'whispers = edited("did", "the wrong way round")(("word.upper()", "word.lower()"))')
    [row] = [row for row in value["rows"] if row["name"] == "whispers"]
    assert (row["kind"], row["should"], row["lost"], row["points"]) == ("wrong", "did", ["did"], 0)
    assert row["note"] == "the wrong way round" and not row["problem"]


@pytest.mark.parametrize(
    ("old", "remedy"),
    [
        ("capitals", "does not occur. Copy an expression, statements, or a header such as 'if a: ...'."),
        ("word.", "is not an expression, statements, or a header such as 'if a: ...' (invalid syntax)."),
    ],
)
def test_an_edit_that_does_not_fit_is_named_with_its_place(course, old, remedy):
    [problem] = proof(course, f'odd = edited("did", "some")(({old!r}, "lower"))')["problems"]
    place = "in the answer to day00.shout, solutions/day00/tiny.py:"
    assert f"answers.day00.shout.odd: {place}" in problem and problem.endswith(f", {old!r} {remedy}")
