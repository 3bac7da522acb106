"""The seam between answer and judge: every right answer keeps its points when all it is given and gives is data."""

from __future__ import annotations

from dataclasses import replace

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from autograder.engine import wire
from passlab import exercises
from passlab.judge import Case, conclude, run
from tests.support.each import for_each_exercise


def through(exercise, answer, case: Case):
    """What comes of a case where the answer knows its arguments and what it is about, and no more than that."""
    given = wire.decode(wire.encode(tuple(case.build())))
    outcome = run(exercise, answer, Case("", lambda: given, case.about))
    assert outcome.status == "ok", outcome.error
    return replace(outcome, value=wire.decode(wire.encode(outcome.value)))


def keep_their_points(exercise_id):
    exercise = exercises.find(exercise_id)
    cases = [*exercise.cases(), *hidden_cases(exercise_id, 1)]
    right = [answers.reference(exercise_id), *(a for a in answers.load(exercise_id) if a.mark.kind == "right")]
    for answer in right:
        result = conclude(exercise, [(case, through(exercise, answer, case)) for case in cases])
        # Text alone: an answer in the error would be imported, with its compiler, by the process that is told.
        assert result.ok, f"{getattr(answer, '__name__', answer)}: {result.failure}"


def right_answers_keep_their_points(exercise_id, apart):
    apart(exercise_id, keep_their_points, exercise_id)


globals().update(for_each_exercise(right_answers_keep_their_points))
