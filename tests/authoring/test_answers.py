"""Answers that are told as a change of the reference's text."""

from __future__ import annotations

import json

import pytest

from tests.support import tiny

SHOUT = "autograder/answers/day00/shout.py"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("edited") / "course")


def proof(course, line):
    """The proof of day00.shout with one more answer in its bank."""
    text = (course / SHOUT).read_text()
    try:
        (course / SHOUT).write_text(f"from autograder.authoring.answers import edited\n{text}\n\n{line}\n")
        made = tiny.run(course, "-m", "passlab.cli", "prove", "--json", "--exercise", "day00.shout")
    finally:
        (course / SHOUT).write_text(text)
    return json.loads(made.stdout)[0]


def test_a_wrong_answer_can_be_a_change_of_the_reference(course):
    made = proof(course, 'whispers = edited("did", "the wrong way round", ("upper", "lower"))')
    [row] = [row for row in made["rows"] if row["name"] == "whispers"]
    assert (row["kind"], row["should"], row["lost"], row["points"]) == ("wrong", "did", ["did"], 0)
    assert row["note"] == "the wrong way round" and not row["problem"]


@pytest.mark.parametrize(("old", "times"), [("capitals", 0), ("w", 2)])
def test_the_text_to_exchange_stands_there_once(course, old, times):
    [said] = proof(course, f'odd = edited("did", "some", ({old!r}, "lower"))')["problems"]
    assert f"answers.day00.shout.odd: {old!r} stands {times} times in the answer of day00.shout, not once." in said
