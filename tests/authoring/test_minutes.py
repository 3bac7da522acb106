"""A day fits a day: minutes follow from a rule, and the notebooks say what the rule says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autograder.authoring import minutes
from passlab import exercises


def test_minutes_headings_and_heads_follow_the_rule():
    assert list(minutes.wrong()) == []


def test_every_day_has_a_core_and_a_stretch():
    for day in exercises.days():
        assert {one.stretch for one in exercises.of_day(day)} == {False, True}, day


def test_a_wrong_estimate_is_found(monkeypatch):
    monkeypatch.setattr(minutes, "exercise", lambda one: 60 if one.id == "day03.cse" else one.minutes)
    stated = exercises.find("day03.cse").minutes
    assert f"day03.cse: minutes=60 by the rule, not {stated}." in minutes.wrong()


def test_a_core_that_does_not_fit_a_day_is_found(monkeypatch):
    monkeypatch.setattr(minutes, "EXERCISES", 60)
    assert any(message.startswith("day03: its core exercises take") for message in minutes.wrong())


def test_each_term_of_the_rule_counts():
    one = exercises.find("day03.pipeline")
    assert minutes.exercise(replace(one, difficulty=5)) - minutes.exercise(replace(one, difficulty=0)) == 30


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("x = 1\n\n# a comment\ny = f(x)  # and one behind\n", 2),
        ("x = f(\n    1,\n    2,\n)\n", 1),
        (f"x = [{', '.join(['number'] * 20)}]\n", 2),
        ('def f():\n    """What it does.\n\n    And more.\n    """\n    return 1\n', 3),
        ('text = """one\ntwo\nthree"""\n', 3),
        ("%matplotlib inline\nx = 1\n", 2),
    ],
)
def test_lines_are_counted_as_they_are_at_120_columns(text, lines):
    assert minutes._lines(text) == lines
