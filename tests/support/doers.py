"""Find functions of the library that do an exercise, or make it one line, by what they return.

    python -m tests.support.doers day05.liveness           # prints a line for each that is not closed
    python -m tests.support.doers day05.liveness memory    # in one package, with the closed ones

Each function of a package that teaches compilers is called with the arguments of a visible case, and then with what
the first calls returned. What has the type of the reference's answer is judged as an answer of a learner, for whom the
closed functions of the exercise raise; what has the same entries in another form is one line from it.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import math
import pkgutil
import sys
import time
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice, product
from multiprocessing import get_context
from types import FunctionType, UnionType
from typing import Any

from torch import fx

from autograder.authoring.answers import reference
from passlab import exercises
from passlab.judge import Case, Exercise, judge
from passlab.judge.guards import Closed, TimeLimit, reopen

#: Packages whose functions an answer would call.
PACKAGES = (
    *("graph", "fx", "equivalence", "measure", "kernels", "polyhedral", "memory", "dataflow", "wafer", "autodiff"),
    *("capture", "capstone"),
)
#: It builds programs with compilers, to be timed, which takes minutes and no limit of time ends.
BUILDERS = "passlab.capstone.baselines"
#: Seconds for one call, for all calls of an exercise, and for each judged answer.
CALL, ALL, ANSWER = 3.0, 10.0, 10.0
#: The most parameters, and the most values tried for them.
PARAMETERS, COMBINATIONS = 3, 12


@dataclass(frozen=True)
class Value:
    """A value and how an answer gets it: `build(arguments)`. `text`: the same as one line."""

    value: Any
    text: str
    build: Callable[[tuple], Any]


def library(exercise_id: str, packages: Iterable[str]) -> list[FunctionType]:
    """Return the functions of some packages and of the exercise's day, public and private."""
    day = exercise_id.split(".")[0]
    found: dict[FunctionType, None] = {}
    for name in (*(f"passlab.{package}" for package in packages), f"passlab.exercises.{day}"):
        for module in _modules(name):
            for value in list(vars(module).values()):
                value = inspect.unwrap(value) if isinstance(value, FunctionType) else value
                if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                    found[value] = None
    return [f for f in found if f.__name__ not in ("cases", "judge", "hidden", "smaller_cases", "call")]


def _modules(name: str) -> Iterator[Any]:
    module = importlib.import_module(name)
    yield module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if f"{name}.{info.name}" == BUILDERS:
            continue
        with contextlib.suppress(Exception):  # it needs a compiler that this process does not have
            yield from _modules(f"{name}.{info.name}")


def arguments(exercise: Exercise, case: Case) -> tuple:
    """Return what an answer is called with first."""
    calls: list[tuple] = []

    def probe(*given: Any, **_: Any) -> None:
        calls.append(given)
        raise LookupError

    with contextlib.suppress(Exception):
        exercise.call(probe, case)
    return calls[0]


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value may be meant by an annotation; its parts are looked at one deep."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, UnionType):
        return any(fits(value, part) for part in parts)
    kind = origin or hint
    if kind is float:
        return isinstance(value, int | float)
    if hint is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if not isinstance(value, kind):
        return False
    if parts and isinstance(value, dict) and value:
        return all(fits(part, hint) for part, hint in zip(next(iter(value.items())), parts, strict=False))
    if parts and isinstance(value, list | tuple | set | frozenset) and value and callable(parts[0]):
        return fits(next(iter(value)), parts[0])
    return True


def _hints(function: FunctionType) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:
        return {}


def calls(function: FunctionType, pool: list[Value], use: Iterable[Value] = ()) -> Iterator[tuple[Value, ...]]:
    """Yield operands for a function. `use`: values of which one is among them."""
    parameters = list(inspect.signature(function).parameters.values())
    hints = _hints(function)
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(needed) > PARAMETERS or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return
    choices = [[v for v in pool if fits(v.value, hints.get(p.name, Any))] for p in needed]
    new = set(map(id, use))
    rows = (row for row in product(*choices) if row and (not new or any(id(v) in new for v in row)))
    yield from islice(rows, COMBINATIONS)
    spare = len(parameters) - len(needed)
    given = [v for v in pool if v.text in _NAMES]
    if not new and spare and len(given) > len(needed):
        yield tuple(given)
        if len(given) == 2 and isinstance(given[1].value, list | tuple):
            yield (given[0], Value(given[1].value, f"*{given[1].text}", given[1].build))


_NAMES = tuple(f"a{i}" for i in range(10))


def applied(function: FunctionType, operands: tuple[Value, ...]) -> Value:
    """Return the value of a call as an answer would write it, yet without its value."""

    def build(given: tuple) -> Any:
        values: list[Any] = []
        for operand in operands:
            value = operand.build(given)
            values += value if operand.text.startswith("*") else [value]
        return function(*values)

    return Value(None, f"{function.__module__}.{function.__name__}({', '.join(v.text for v in operands)})", build)


def _tried(value: Value, fresh: Callable[[], tuple]) -> Any:
    try:
        with TimeLimit(CALL):
            return value.build(fresh())
    except BaseException:  # it was not made for these arguments
        return None


def _parts(value: Value) -> Iterator[Value]:
    """Yield a value, and those in a tuple or named tuple."""
    yield value
    if isinstance(value.value, tuple) and len(value.value) <= 4:
        for i, part in enumerate(value.value):
            yield Value(part, f"{value.text}[{i}]", lambda given, i=i: value.build(given)[i])


def doers(exercise_id: str, package: str = "") -> list[str]:
    """Return, each as one line, the calls that earn what the exercise is about.

    package: look at this one only, to the end, and close nothing.
    """
    exercise = exercises.find(exercise_id)
    exercise = replace(exercise, closed=()) if package else exercise
    about = "did" if "did" in exercise.points else next(iter(exercise.points))
    asking = [case for case in exercise.cases() if case.asks(about)]

    def fresh(case: Case = asking[0]) -> tuple:
        with reopen():
            return arguments(exercise, case)

    samples = [exercise.call(reference(exercise_id), case) for case in asking]
    given, sample = fresh(), samples[0]
    telling = sum(len(rows(sample)) > 1 for sample in samples) > 1
    stop = math.inf if package else time.process_time() + ALL
    functions = library(exercise_id, [package] if package else PACKAGES)
    found: list[str] = []

    def earns(value: Value) -> bool:
        def answer(*given: Any) -> Any:
            return value.build(given)

        with contextlib.suppress(BaseException), TimeLimit(ANSWER):
            return bool(judge(exercise, answer).verdicts.get(about))
        return False

    def holds(value: Value) -> bool:
        if not telling or rows(value.value) != rows(sample):
            return False
        others = zip(asking[1:], samples[1:], strict=True)
        return all(rows(_tried(value, lambda case=case: fresh(case))) == rows(other) for case, other in others)

    def tried(function: FunctionType, operands: tuple[Value, ...]) -> Iterator[Value]:
        call = applied(function, operands)
        result = _tried(call, fresh)
        if result is None and isinstance(sample, fx.GraphModule):  # a pass that edits in place
            result = operands[0].value

            def in_place(given: tuple) -> Any:
                call.build(given)
                return given[0]

            call = Value(None, call.text, in_place)
        for part in _parts(Value(result, call.text, call.build)):
            if holds(part) or (_alike(part.value, sample) and earns(part)):
                found.append(part.text)
            elif part.value is not None:
                yield part

    pool = [
        Value(value, name, lambda given, i=i: given[i])
        for i, (value, name) in enumerate(zip(given, _NAMES, strict=False))
    ]
    pool += [
        Value(v.value.graph, f"{v.text}.graph", lambda given, v=v: v.build(given).graph)
        for v in pool
        if isinstance(v.value, fx.GraphModule)
    ]
    with Closed(exercise.closed):
        values: list[Value] = []
        for function in functions:
            for operands in calls(function, pool):
                values += tried(function, operands)
        values = [v for v in values if not isinstance(v.value, bool | int | float | str | type | FunctionType)]
        for function in functions:
            home = function.__module__.split(".")[1]
            near = [v for v in values if v.text.split(".")[1] == home]
            for operands in calls(function, pool + near, near):
                if time.process_time() > stop:
                    return found
                list(tried(function, operands))
    return found


def rows(value: Any) -> list[tuple]:
    """Return the entries of a dict, set or sequence as flat tuples, in one order, whatever holds them."""
    if isinstance(value, dict):
        value = list(value.items())
    if not isinstance(value, list | tuple | set | frozenset):
        return []
    return sorted((tuple(_flat(part)) for part in value), key=repr)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, fx.Node):
        yield value.name
    elif isinstance(value, fx.GraphModule):  # all of them print as "GraphModule()"
        yield str(value.graph)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _flat(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _flat(part)
    elif isinstance(value, set | frozenset):
        yield from sorted(value, key=repr)
    else:
        yield value if isinstance(value, str | int | float | bool | None) else repr(value)


def _alike(value: Any, sample: Any) -> bool:
    kinds = (fx.GraphModule, list, tuple, dict, set, frozenset, bool, int, float, str)
    return any(isinstance(value, kind) and isinstance(sample, kind) for kind in kinds) or type(value) is type(sample)


def apart(*arguments: str) -> list[str]:
    """Do `doers` in a process of its own: what it calls may do anything. It is forked from one that has loaded all."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, *(f"passlab.{name}" for name in PACKAGES)])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_muted, *arguments).result()


def _muted(*arguments: str) -> list[str]:
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        return doers(*arguments)


if __name__ == "__main__":
    lines = _muted(*sys.argv[1:])
    print(*lines, sep="\n", end="\n" * bool(lines))
