"""The exercises that learner and grader share: titles, points, hints, visible cases and judges.

One module per day; each defines `EXERCISES`, a tuple of `passlab.judge.Exercise`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

from passlab.judge import Exercise


def days() -> list[str]:
    """The days that have exercises: ["day01", …]."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("day"))


@cache
def of_day(day: str) -> tuple[Exercise, ...]:
    """The exercises of one day, in the order in which they are done."""
    return importlib.import_module(f"{__name__}.{day}").EXERCISES


def later(module: str, name: str) -> Callable:
    """The function `name` of `passlab.exercises.<module>`, imported (with torch) when it is first called."""

    def function(*args: Any) -> Any:
        return getattr(importlib.import_module(function.home), name)(*args)

    function.home = f"{__name__}.{module}"
    return function


def find(name: str) -> Exercise:
    """The exercise called "day03.cse" (or just "cse", where no other day has one of that name).

    Raises KeyError with the nearest names if there is none.
    """
    wanted = [name.split(".")[0]] if "." in name else days()
    if "." in name and wanted[0] not in days():
        raise KeyError(f"There is no {wanted[0]}. The days are {', '.join(days())}.")
    pool = [e for day in wanted for e in of_day(day)]
    hits = [e for e in pool if e.id == name or e.id.split(".")[1] == name]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise KeyError(f"{name!r} is the name of several exercises: {', '.join(e.id for e in hits)}. Say which.")
    import difflib

    near = difflib.get_close_matches(name, [e.id for e in pool] + [e.id.split(".")[1] for e in pool], 3, 0.4)
    raise KeyError(f"There is no exercise {name!r}." + (f" Did you mean {', '.join(near)}?" if near else ""))
