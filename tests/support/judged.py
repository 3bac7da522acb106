"""What exercises say of answers: the first thing lost on a visible case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autograder.proofs.wire import first_failure
from passlab import exercises
from passlab.judge import judge


class Rude:
    """A value that cannot be printed."""

    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


def given(value: Any) -> Callable:
    """Return an answer that returns `value` for every case."""
    return lambda *_, **__: value


def lost(exercise_id: str, answer: Callable, name: str | None = None) -> tuple[str, str] | None:
    """Return what an answer loses on one visible case (None: the first): the verdict and the sentence, or None."""
    return first_failure(exercise_id, answer, name or exercises.find(exercise_id).cases()[0].name)


def lost_with(exercise_id: str, value: Any, name: str | None = None) -> tuple[str, str] | None:
    """Return what an answer loses that returns `value`, as `lost` does."""
    return lost(exercise_id, given(value), name)


def sentence_of(verdict: str, exercise_id: str, answer: Callable, name: str) -> str:
    """Return the sentence with which an answer loses `verdict` on one visible case, whatever else it loses there."""
    exercise = exercises.find(exercise_id)
    findings = judge(exercise, answer, [case for case in exercise.cases() if case.name == name]).findings
    sentences = [finding.message for finding in findings if finding.verdict == verdict and not finding.ok]
    assert sentences, findings
    return sentences[0]
