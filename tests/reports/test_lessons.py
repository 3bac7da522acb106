"""The sections of lessons that feedback names: they exist, and the page of a failed answer has them."""

from __future__ import annotations

import pytest
from docutils.nodes import make_id

from autograder.authoring.source import ROOT
from autograder.grading.paper import marks
from autograder.reports.feedback import draft
from autograder.reports.lessons import Lessons, _anchor, headings
from passlab import exercises
from tests.reports.test_feedback import make

LESSONS = {path.stem[:5]: path.stem for path in (ROOT / "course").glob("day*.py")}


@pytest.mark.parametrize("exercise", [e for day in exercises.days() for e in exercises.of_day(day)], ids=lambda e: e.id)
def test_each_exercise_names_a_section_that_its_lesson_has(exercise):
    result = headings(ROOT, LESSONS[exercise.day])
    assert exercise.section in result, (
        f"{exercise.id}: section={exercise.section!r}; the lesson has {', '.join(result)}"
    )
    assert exercise.section not in ("Key takeaways", "Further reading", "Tomorrow")


@pytest.mark.parametrize("lesson", LESSONS.values())
def test_sections_of_a_lesson_have_anchors_of_their_own_which_are_the_books(lesson):
    result = headings(ROOT, lesson)
    assert len({make_id(heading) for heading in result.values()}) == len(result) > 5
    assert {_anchor(ROOT, lesson, heading) for heading in result} == {make_id(heading) for heading in result.values()}


def test_a_failed_answer_is_sent_to_its_section_and_a_right_one_is_not():
    nb, result = make()
    page, arguments = draft(nb, result), marks(nb, result)
    message = "<p><b>In the lesson:</b> “Dead code elimination”, in day03_optimizations.ipynb.</p>"
    assert page(arguments).count(message) == 1
    book = draft(nb, result, (), Lessons(book="https://example.edu/passlab/"))(arguments)
    address = "https://example.edu/passlab/day03_optimizations.html#dead-code-elimination"
    assert f'<a href="{address}">Dead code elimination</a>, in day03' in book
    result.verdicts[2].points = 8.0
    assert "In the lesson" not in draft(nb, result)(arguments)


def test_the_anchor_of_a_stretch_section_is_that_of_its_whole_heading():
    section = Lessons(book="b").section("day06.gvn")
    assert (section.heading, section.address) == ("Equal values", "b/day06_dataflow.html#equal-values-stretch")
    core = Lessons().section("day03.cse-core")
    assert core == Lessons().section("day03.cse") and not core.address


def test_a_question_of_another_course_has_no_section():
    assert Lessons().section("day99.mine") is None
