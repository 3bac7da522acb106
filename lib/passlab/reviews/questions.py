"""What a question is, and the list of all kinds."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

#: The modules with kinds of question, in the order of the days.
AREAS = (
    "graphs",
    "optimizing",
    "fusing",
    "storing",
    "flowing",
    "compilers",
    "loops",
    "wafers",
    "training",
    "numbers",
    "breaking",
)


@dataclass(frozen=True)
class Question:
    """A question and its answer: a number, a choice, a set of names, or a list of names in an order.

    why: how the answer comes about. picture: a graph that `draw` takes, or None; the text says all without it.
    """

    text: str
    answer: int | str | frozenset[str] | tuple[str, ...]
    why: str
    choices: tuple[str, ...] = ()
    picture: Any = None

    @property
    def form(self) -> str:
        """How to answer: a call, as the learner writes it."""
        if self.choices:
            return f"answer(1) to answer({len(self.choices)})"
        if isinstance(self.answer, frozenset):
            return "answer('a b') with the names, in any order; answer('') for none"
        return "answer('a b') with the names in their order" if isinstance(self.answer, tuple) else "answer(number)"

    def right(self, answer: Any) -> bool:
        """Return whether an answer is right. Raise ValueError, with what to write, for one of another form."""
        if self.choices:
            if isinstance(answer, int) and 1 <= answer <= len(self.choices):
                answer = self.choices[answer - 1]
            if answer not in self.choices:
                raise ValueError(f"{answer!r} is none of the {len(self.choices)} choices. Call {self.form}.")
            return answer == self.answer
        if isinstance(self.answer, int):
            if isinstance(answer, bool) or not isinstance(answer, int | float):
                raise ValueError(f"{answer!r} is not a number. Call {self.form}.")
            return answer == self.answer
        if isinstance(answer, str):
            answer = answer.replace(",", " ").split()
        if not isinstance(answer, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in answer):
            raise ValueError(f"{answer!r} is not a list of names. Call {self.form}.")
        return type(self.answer)(answer) == self.answer

    @property
    def told(self) -> str:
        """The answer as text."""
        if isinstance(self.answer, frozenset):
            return ", ".join(sorted(self.answer)) or "none"
        return ", ".join(self.answer) if isinstance(self.answer, tuple) else str(self.answer)


class Kind(NamedTuple):
    """A kind of question. make: draws one with a random generator."""

    name: str
    day: str
    title: str
    make: Callable[[random.Random], Question]


#: name → kind, once `kinds_of` has loaded them.
KINDS: dict[str, Kind] = {}


def kind(day: str, name: str) -> Callable:
    """Register a function as a kind of question of a day. The first line of its docstring is the kind's title."""

    def register(make: Callable[[random.Random], Question]) -> Callable[[random.Random], Question]:
        if name in KINDS:
            raise ValueError(f"Two kinds of question are called {name!r}: rename one of them in passlab/reviews.")
        KINDS[name] = Kind(name, day, (make.__doc__ or name).strip().split("\n")[0].rstrip("."), make)
        return make

    return register


@cache
def _loaded() -> dict[str, Kind]:
    for area in AREAS:
        importlib.import_module(f"passlab.reviews.{area}")
    return KINDS


def kinds_of(*days: str) -> list[Kind]:
    """Return the kinds of question of these days, or of all."""
    return [each for each in _loaded().values() if not days or each.day in days]


def draw(name: str, seed: int) -> Question:
    """Return a question of a kind, determined by its seed. Raise KeyError, with the kinds there are, for no kind."""
    if name not in _loaded():
        raise KeyError(f"No kind of question is called {name!r}. There are {', '.join(KINDS)}.")
    return KINDS[name].make(random.Random(f"{name} {seed}"))


def choose(rng: random.Random, answer: str, others: list[str]) -> tuple[str, ...]:
    """Return the choices of a question in a random order: the answer and the others, each once."""
    choices = list(dict.fromkeys([answer, *others]))
    rng.shuffle(choices)
    return tuple(choices)
