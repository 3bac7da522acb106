"""From an answer to its points: what the hidden part of a check cell calls.

`verdict` judges an answer, whoever runs it; `grade` is what a notebook needs around it.
"""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from passlab import exercises
from passlab.judge import Case, Judgement, judge
from passlab.notebook.ui import in_notebook, report

#: Mark, in a check cell's outputs, where the hidden cases begin, and what they gave.
HIDDEN_BEGINS = "application/vnd.passlab.hidden+json"
VERDICT = "application/vnd.passlab.verdict+json"


@cache
def run_seed() -> int:
    """The seed of this run: PASSLAB_SEED, or a fresh one that stays the same as long as the process lives."""
    return int(os.environ.get("PASSLAB_SEED") or secrets.randbelow(2**31))


def hidden_cases(exercise_id: str, seed: int) -> list[Case]:
    """The hidden cases of an exercise, drawn from `seed`. Raises KeyError for an exercise that has none."""
    exercise = exercises.find(exercise_id)
    hidden = importlib.import_module(f"autograder.hidden.{exercise.day}").HIDDEN
    if exercise.id not in hidden:
        raise KeyError(f"autograder/hidden/{exercise.day}.py holds no hidden cases for {exercise.id}.")
    return list(hidden[exercise.id](seed))


def verdict(exercise_id: str, answer: Callable, seed: int) -> Judgement:
    """Judge an answer on the visible and on the hidden cases."""
    exercise = exercises.find(exercise_id)
    return judge(exercise, answer, [*exercise.cases(), *hidden_cases(exercise_id, seed)])


def _publish(data: dict[str, Any]) -> None:
    """Show in a notebook, under several types at once; print elsewhere."""
    if in_notebook():
        from IPython.display import display

        display(data, raw=True)
    else:
        print(data["text/plain"])


def grade(exercise_id: str, answer: Callable) -> float:
    """Judge an answer, show the verdicts (no case is drawn), and give its points: the last value of its check cell."""
    _publish({HIDDEN_BEGINS: {}, "text/plain": "With the hidden cases:"})
    seed = run_seed()
    result = verdict(exercise_id, answer, seed)
    points = min(round(result.points, 4), result.total)
    card = report(for_learner(result, result.exercise.cases()), draw=lambda _: None)
    _publish({VERDICT: result.to_json() | {"seed": seed}, "text/plain": card.text, "text/html": card.html})
    return points


def for_learner(result: Judgement, visible: Iterable[Case]) -> Judgement:
    """The same judgement as a learner may see it: hidden cases go unnamed, and the title says that they are in it."""
    exercise, known = result.exercise, {case.name for case in visible}
    findings = [f if f.case in known else replace(f, case="one of the hidden ones") for f in result.findings]
    return replace(
        result, exercise=replace(exercise, title=f"{exercise.title}, hidden cases included"), findings=findings
    )
