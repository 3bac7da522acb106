"""Guesses: what a learner expects, noted before a cell computes it, and compared afterwards. Nothing is graded.

    nodes = guess("How many nodes are left?", 9)       # a number; … in its place: no guess
    fastest = guess("Which is the fastest?", "b", among=("a", "b", "c"))
    order = guess("From the smallest?", ["b", "a"], among=("a", "b"))
    nodes.compare(7)                                   # after the computation

They are kept in `guesses.json`, beside the learner's progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from types import EllipsisType
from typing import Any

from passlab.judge.words import is_or_are
from passlab.notebook.project import load, progress_file, save
from passlab.notebook.ui import Card, show


class Guess:
    """A question with the learner's guess, or `...` without one."""

    def __init__(self, question: str, value: Any, names: list[str]):
        self.question, self.value, self.names = question, value, names

    def compare(self, truth: Any) -> None:
        """Show what is true beside the guess, and remember both; without a guess, show what is true.

        Raise ValueError for what could not have been guessed.
        """
        if isinstance(truth, Sequence) and not isinstance(truth, str):
            truth = list(truth)
        elif hasattr(truth, "item"):  # a number of NumPy or torch
            truth = truth.item()
        if not _fits(truth, self.names):
            raise ValueError(f"{truth!r} is not an answer to {self.question!r}. Compare with {_form(self.names)}.")
        if self.value is ...:
            lead, tail = "Without a guess:", ""
        else:
            lead, tail = f"You guessed {_text(self.value)}:", _difference(self.value, truth)
            _note(self.question, guess=self.value, truth=truth)
        text = f"{self.question} {_text(truth)}."
        show(Card(" ".join(filter(None, (lead, text, tail))), "guessed", lead=lead, text=text, tail=tail))


def guess(question: str, value: Any | EllipsisType = ..., among: Iterable[str] = ()) -> Guess:
    """Note the guess for a question and return it, for `compare`.

    value: a number; with `among`, one of these, or a list of all of them in an order; or `...` for no guess. A value of
    another form counts as none, and a card says so.
    """
    names = list(among)
    value = list(value) if isinstance(value, tuple) else value
    if problem := _problem(value, names):
        lead, tail = "No guess yet:", problem
        value = ...
    else:
        lead, tail = f"Your guess is {_text(value)}:", "It is compared below, and not graded."
        _note(question, guess=value)
    show(Card(f"{lead} {question} {tail}", "guessed", lead=lead, text=question, tail=tail))
    return Guess(question, value, names)


def _problem(value: Any, names: list[str]) -> str:
    """Return what to do to make a value a guess; "" for a guess."""
    if value is ...:
        return f"Put {_form(names)} in place of the dots and run the cell again, or go on without."
    return "" if _fits(value, names) else f"{value!r} is not an answer to this. Give {_form(names)}."


def _form(names: list[str]) -> str:
    return f"one of {', '.join(map(repr, names))} (or, for an order, a list of all)" if names else "a number"


def _fits(value: Any, names: list[str]) -> bool:
    if isinstance(value, list):
        return bool(names) and sorted(map(str, value)) == sorted(names)
    return value in names if names else isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _difference(value: Any, truth: Any) -> str:
    """Return in one sentence how far a guess is from what is true."""
    if value == truth:
        return "That is what you expected."
    if isinstance(truth, list) and isinstance(value, list):
        place = {name: i for i, name in enumerate(truth)}
        pairs = [(a, b) for a, b in combinations(value, 2)]
        right = sum(place[a] < place[b] for a, b in pairs)
        if len(pairs) == 1:
            return "You expected the other order."
        return f"Of {len(pairs)} pairs, {right} {is_or_are(right)} in the order that you expected."
    if isinstance(truth, int | float) and isinstance(value, int | float) and truth > 0 and value > 0:
        return f"You expected {value / truth:.2g} times as much."
    return "You expected something else: why?"


def _note(question: str, **fields: Any) -> None:
    """Remember fields of a question in `guesses.json`, beside the learner's progress."""
    path = progress_file().with_name("guesses.json")
    record = load(path)
    record[question] = record.get(question, {}) | fields
    save(path, record)
