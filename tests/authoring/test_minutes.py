"""A day fits a day: minutes follow from a rule, and the notebooks say what the rule says."""

from __future__ import annotations

from dataclasses import replace

from autograder.authoring import minutes, source
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
    assert any(said.startswith("day03: its core exercises take") for said in minutes.wrong())


def test_each_term_of_the_rule_counts():
    cse = exercises.find("day03.cse")
    assert minutes.exercise(replace(cse, difficulty=5)) - minutes.exercise(replace(cse, difficulty=0)) == 30
    place = source.find(cse.id)
    lines = minutes._lines(place.answer.text) - minutes._lines(source.blank(place.answer.text)) + 1
    inside = place.answer.text.split("### BEGIN SOLUTION\n")[1].split("### END")[0]
    assert lines == sum(bool(line.strip()) and line.strip()[0] != "#" for line in inside.split("\n"))
