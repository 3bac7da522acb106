"""The exercises that learner and grader share: titles, points, hints, visible cases and judges.

One package per day. Its `__init__` holds what can be listed without torch or a TVM: `NOTEBOOKS`, a dict from each
notebook to its flavour, and `EXERCISES`, in the order in which they are done; `WRITTEN`, where there is one, lists the
questions that a person grades. Beside it stands one module for each exercise, "day03.channels-last" in
`day03/channels_last.py`, imported when the exercise is first judged:

    @case("two reads of one tensor", graph(..., (2, 3)), did=[…])
    def reads(m, x): ...                  # a visible case above its program (see `passlab.judge.verdicts`)
    def cases() -> list[Case]: ...        # or all of them, where a function makes them
    def judge(case, value): ...           # yields findings on a returned value
    def smaller_cases() -> list[Case]: ...  # only where the exercise has a text `smaller`

Where an answer is graded, its process has none of these modules: what it needs of an exercise is in `passlab.given`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import Any

from passlab import course_paths, given
from passlab.judge import Case, Core, Exercise, Written, call_answer, cases_in

#: How the id of an exercise's core ends (see `Core`).
CORE = "-core"
_OWN = course_paths.package_dirs("lib/passlab/exercises")
__path__ += _OWN

#: Of a case, the answer's arguments, and a function that comes after them, which it may call and not look into.
Service = Callable[[Case], tuple[tuple, Callable]]


@cache
def days() -> tuple[str, ...]:
    """Return the days that have exercises: ("day01", …); of a course of one's own, only its days.

    Kept, since a confined process cannot list the folder.
    """
    return tuple(sorted(m.name for m in pkgutil.iter_modules(_OWN or __path__) if m.name.startswith("day")))


def title(day: str) -> str:
    """Return what begins the docstring of a day's exercises: "Day 4, fusion". The name of a day without one."""
    text = importlib.import_module(f"{__name__}.{day}").__doc__
    return text.strip().partition(":")[0] if text else day


def whole(exercise_id: str) -> str:
    """Return the exercise that a core belongs to (see `Core`): "day03.cse-core" → "day03.cse"; another id as it is."""
    return exercise_id.removesuffix(CORE)


def is_core(exercise_id: str) -> bool:
    """Return whether an id is that of a core (see `Core`)."""
    return exercise_id.endswith(CORE)


def module_name(exercise_id: str) -> str:
    """Return the name of an exercise's module: "day03.channels-last" → "passlab.exercises.day03.channels_last"."""
    return f"{__name__}.{whole(exercise_id).replace('-', '_')}"


class Withheld(ImportError):
    """The module of an exercise is not in this process: it runs answers for a grade."""


def module(exercise_id: str) -> ModuleType:
    """Import and return the module of an exercise, and with it torch or the compiler that the exercise needs.

    Raise Withheld where answers run for a grade.
    """
    name = module_name(exercise_id)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        message = f"The cases and the judge of {exercise_id} are not in this process, which runs answers for a grade."
        raise Withheld(message) from None


def given_module(exercise_id: str) -> ModuleType | None:
    """Import and return what an exercise gives (see `passlab.given`), or None if there is no such module."""
    name = module_name(exercise_id).replace(__name__, given.__name__, 1)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return None


def _later(exercise_id: str, name: str) -> Callable:
    """Return the function `name` of the exercise's module, which is imported at the first call."""
    return lambda *args: getattr(module(exercise_id), name)(*args)


def _visible(exercise_id: str) -> list[Case]:
    """Return what the exercise's module has: `cases()`, or cases above their programs."""
    home = module(exercise_id)
    return home.cases() if hasattr(home, "cases") else cases_in(home.__name__)


def _call(exercise_id: str) -> Callable:
    """Return the function that runs an answer on a case; the module of the exercise is imported at the first call."""

    def call(answer: Callable, case: Case) -> Any:
        if provide := service(exercise_id):
            return call_with_service(provide, answer, case)
        return getattr(given_module(exercise_id), "call", call_answer)(answer, case)

    return call


@cache
def service(exercise_id: str) -> Service | None:
    """Return what gives an answer a function that it may call and not look into, or None."""
    return getattr(given_module(exercise_id), "service", None)


def call_with_service(service: Service, answer: Callable, case: Case) -> Any:
    """Return the answer's result on its arguments and, after them, the function."""
    arguments, function = service(case)
    return answer(*arguments, function)


@cache
def of_day(day: str) -> tuple[Exercise, ...]:
    """Return the exercises of one day, in the order in which they are done."""
    home = importlib.import_module(f"{__name__}.{day}")
    exercises = []
    for exercise in home.EXERCISES:
        notebook = exercise.notebook or next(iter(home.NOTEBOOKS))
        complete = replace(
            exercise,
            notebook=notebook,
            flavour=home.NOTEBOOKS[notebook],
            cases=exercise.cases or partial(_visible, exercise.id),
            judge=exercise.judge or _later(exercise.id, "judge"),
            call=_call(exercise.id),
            smaller_cases=exercise.smaller_cases or _later(exercise.id, "smaller_cases"),
        )
        exercises += [_core_of(complete, complete.core)] if complete.core else []
        exercises.append(complete)
    return tuple(exercises)


def flavours(names: Iterable[str]) -> list[str]:
    """Return the flavours of the exercises of these days, in the order in which they come; none of an unknown day."""
    return list(dict.fromkeys(exercise.flavour for day in names if day in days() for exercise in of_day(day)))


def _core_of(exercise: Exercise, core: Core) -> Exercise:
    """Return the core of a stretch exercise as an exercise of its own."""
    return replace(
        exercise,
        id=exercise.id + CORE,
        title=f"{exercise.title}: the plain cases",
        points=core.points,
        difficulty=core.difficulty,
        minutes=core.minutes,
        cases=lambda: [case for case in exercise.cases() if case.core],
        stretch=False,
        core=None,
        meaning={verdict: text for verdict, text in exercise.meaning.items() if verdict in core.points},
        helps={verdict: number for verdict, number in exercise.helps.items() if verdict in core.points},
        smaller="",
    )


@cache
def written(day: str) -> tuple[Written, ...]:
    """Return the questions of one day that are answered in prose and graded by a person."""
    home = importlib.import_module(f"{__name__}.{day}")
    return tuple(replace(w, notebook=w.notebook or next(iter(home.NOTEBOOKS))) for w in getattr(home, "WRITTEN", ()))


def extra_credit(exercise_id: str) -> float:
    """Return the most extra credit of an exercise: 0 for one of the core, and for a question of another course."""
    with suppress(KeyError):
        exercise = find(exercise_id)
        return exercise.total if exercise.stretch else 0.0
    return 0.0


def find(name: str) -> Exercise:
    """Return the exercise "day03.cse" (or just "cse", if the name is unique among the days).

    Raise KeyError with the nearest names if there is no such exercise.
    """
    names = [name.split(".")[0]] if "." in name else days()
    if "." in name and names[0] not in days():
        raise KeyError(f"There is no {names[0]}. The days are {', '.join(days())}.")
    pool = [e for day in names for e in of_day(day)]
    hits = [e for e in pool if e.id == name or e.id.split(".")[1] == name]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise KeyError(f"{name!r} is the name of several exercises: {', '.join(e.id for e in hits)}. Use the full id.")
    import difflib

    near = difflib.get_close_matches(name, [e.id for e in pool] + [e.id.split(".")[1] for e in pool], 3, 0.4)
    raise KeyError(f"There is no exercise {name!r}." + (f" Did you mean {', '.join(near)}?" if near else ""))
