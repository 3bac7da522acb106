"""The bank: for every exercise, plausible wrong answers with their misconception, and right ones unlike the reference.

    @wrong("spared", "merges dropout nodes: every call draws new numbers")
    def merges_random(gm): ...

    @right("sorts the keys instead of numbering values")
    def by_sorting(gm): ...

One module per exercise: `autograder/bank/day03/cse.py` for "day03.cse" (a hyphen becomes an underscore).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autograder.authoring.source import answer_of
from passlab.judge import VERDICTS


@dataclass(frozen=True)
class Entry:
    """What a bank answer is there for. `verdict`: the one that a wrong answer must not hold."""

    kind: str
    verdict: str | None
    note: str


def _mark(entry: Entry) -> Callable[[Any], Any]:
    if not entry.note.strip():
        raise ValueError(
            "A bank answer needs one line: the misconception it shows, or how it differs from the reference."
        )

    def decorate(answer: Any) -> Any:
        answer.bank = entry
        return answer

    return decorate


def wrong(verdict: str, note: str) -> Callable[[Any], Any]:
    """Mark a wrong answer: the verdict it must trip, and its misconception in one line."""
    if verdict not in VERDICTS:
        raise ValueError(f"There is no verdict {verdict!r}; there are {', '.join(VERDICTS)}.")
    return _mark(Entry("wrong", verdict, note))


def right(note: str) -> Callable[[Any], Any]:
    """Mark a right answer, and say in one line how it differs from the reference."""
    return _mark(Entry("right", None, note))


def module_name(exercise_id: str) -> str:
    """The module that holds an exercise's bank: "day03.gelu-match" → "autograder.bank.day03.gelu_match"."""
    return f"{__name__}.{exercise_id.replace('-', '_')}"


def load(exercise_id: str) -> list[Any]:
    """The bank answers of an exercise, in the order written; each carries its `Entry` as `.bank`. [] without a bank."""
    name = module_name(exercise_id)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            return []
        raise
    return [v for v in vars(module).values() if isinstance(getattr(v, "bank", None), Entry) and v.__module__ == name]


def reference(exercise_id: str) -> Any:
    """The course's own answer, taken from the answer cell in `solutions/`."""
    return answer_of(exercise_id)


def stub(exercise_id: str) -> Any:
    """The answer as the learner first meets it: `raise NotImplementedError()`."""
    return answer_of(exercise_id, stub=True)
