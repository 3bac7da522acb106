"""Cases as decorated functions: a case stands above the program that it is about.

    @case("written through a view", graph(..., (2, 3)), spared=[least("mul", 2, TIME)])
    def views(m, x):
        …

`...` stands for the function below: `graph(..., (2, 3))` is a graph that lacks its program, and a case that lacks
something is a decorator. What it makes of the function, the `Case`, takes the function's name; `cases_in` finds it.
Cases that are drawn come from a function of a random generator, at its place among the others:

    @drawn
    def chains(rng):
        length = rng.randrange(4, 9)

        @case(f"a chain of {length}", graph(..., (2, 3)), did=[most("neg", length % 2, LAW)])
        def chain(m, x):
            …

        return [chain]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from passlab.judge.verdicts import Case


class Unfinished:
    """A call that lacks a function: called with the function, it returns what the whole call returns."""

    def __init__(self, finish: Callable[[Callable], Any]):
        self._finish = finish

    def __call__(self, function: Callable) -> Any:
        return self._finish(function)


def as_decorator(make: Callable) -> Callable:
    """Let a call of `make` decorate a function, for which `...` stands among the arguments, or in one of them."""

    @wraps(make)
    def call(*args: Any, **options: Any) -> Any:
        if not any(value is ... or isinstance(value, Unfinished) for value in (*args, *options.values())):
            return make(*args, **options)

        def finish(function: Callable) -> Any:
            def filled(value: Any) -> Any:
                return function if value is ... else value(function) if isinstance(value, Unfinished) else value

            return make(*map(filled, args), **{name: filled(value) for name, value in options.items()})

        return Unfinished(finish)

    return call


@dataclass(frozen=True)
class Drawn:
    """A function that draws cases, among the cases of a module."""

    draw: Callable[[random.Random], Iterable[Case]]


def drawn(draw: Callable[[random.Random], Iterable[Case]]) -> Drawn:
    """Mark a function of a random generator that returns cases: `cases_in` puts them where the function stands."""
    return Drawn(draw)


def cases_in(module: str, seed: int | None = None) -> list[Case]:
    """Return the cases that a module defines outside its functions, in the order in which they are written.

    module: its name, which is `__name__` in the module itself. seed: of the one generator from which all functions
    marked `drawn` take their numbers, one after the other. Raises ValueError where they would need one and it is None.
    """
    rng = random.Random(seed)
    cases: list[Case] = []
    for value in vars(sys.modules[module]).values():
        if isinstance(value, Drawn):
            if seed is None:
                raise ValueError(f"{module} draws cases, and no seed is given. Write visible cases one by one.")
            cases += value.draw(rng)
        elif isinstance(value, Case):
            cases.append(value)
    return cases
