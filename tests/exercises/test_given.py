"""What the process that runs an answer for a grade can import: no judge, and nothing that does an exercise."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import FunctionType

import pytest

import passlab
from autograder.engine import sandbox
from passlab import exercises, given
from passlab.judge import guards, judge, run

LIBRARY = Path(passlab.__file__).parent
EVERY = [exercise for day in exercises.days() for exercise in exercises.of_day(day)]
#: Where the library works on torch.fx graphs as the answers of days 2 to 4 do.
_WORK = ("passlab.fx.stages", "passlab.fx.rewrites", "passlab.fx.layout", "passlab.fx.dominators", "passlab.fx.judge")
_PASSES = ("day02.fold-batchnorm", "day02.fuse-conv-relu", "day03.dce", "day03.cse", "day03.simplify", "day03.gelu")


def seen() -> set[Path]:
    """The modules of the library that a runner can read."""
    paths = [Path(path) for path in sandbox._visible("runner")]
    files = [file for path in paths if path.is_relative_to(LIBRARY) for file in (path.rglob("*.py"), [path])]
    return {file for some in files for file in some if file.suffix == ".py"}


def test_a_runner_sees_the_lists_of_exercises_and_no_judge():
    homes = {file for file in seen() if "exercises" in file.parts[len(LIBRARY.parts) :]}
    assert {file.name for file in homes} == {"__init__.py"} and len(homes) == 1 + len(exercises.days())


def test_it_sees_the_rest_of_the_library():
    rest = {path for path in LIBRARY.rglob("*.py") if "exercises" not in path.parts[len(LIBRARY.parts) :]}
    assert rest <= seen()


def test_what_is_given_belongs_to_an_exercise():
    modules = {m.name for m in pkgutil.walk_packages(given.__path__, "passlab.given.") if not m.ispkg}
    known = {exercises.module_name(e.id).replace(".exercises.", ".given.") for e in EVERY}
    assert {name for name in modules if not name.rpartition(".")[2].startswith("_")} <= known


@pytest.mark.parametrize("exercise", [e for e in EVERY if e.flavour == "torch" and e.closed], ids=lambda e: e.id)
def test_closed_functions_are_there_or_withheld(exercise):
    found = [*guards.closed_functions(exercise.closed).values(), *guards.closed_methods(exercise.closed).values()]
    assert set(found) == set(exercise.closed)


def functions() -> dict[str, FunctionType]:
    """The functions that a pass over a torch.fx graph could be, by name; private ones, too."""
    given_too = (e.id for e in EVERY if e.flavour == "torch" and exercises.given_module(e.id))
    names = [*_WORK, *(exercises.module_name(name).replace(".exercises.", ".given.") for name in given_too)]
    results = {}
    for name in names:
        results |= {f"{name}.{n}": f for n, f in vars(importlib.import_module(name)).items() if type(f) is FunctionType}
    return results


def _takes(function: FunctionType, number: int) -> bool:
    try:
        inspect.signature(function).bind(*range(number))
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("exercise", [e for e in EVERY if e.flavour == "torch" and e.id in _PASSES], ids=lambda e: e.id)
def test_no_function_of_the_library_does_half_of_an_exercise(exercise):
    cases = list(exercise.cases())
    number, does = len(cases[0].build()), {}
    for name, function in functions().items():
        if _takes(function, number) and run(exercise, function, cases[0]).status == "ok":
            points = judge(exercise, function, cases).points
            does |= {name: points} if points >= exercise.total / 2 else {}
    assert does == {}
