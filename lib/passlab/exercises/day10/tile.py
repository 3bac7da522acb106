"""Day 10, exercise 6: cases and judge of a schedule that has to be fast.

The judge makes its loops, looks at the innermost one and at what is parallel and a vector, and times them: no clock
decides whether an answer is a schedule at all.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from secrets import randbits
from typing import Any

import islpy as isl

from passlab import polyhedral
from passlab.building.requests import Built
from passlab.equivalence.seeds import own_seed
from passlab.exercises._speed import RUNS, pace
from passlab.exercises.day10._isl import Reader, Unreadable
from passlab.exercises.day10._loops import Sizes, difference, run
from passlab.given.day10.tile import SOURCES
from passlab.judge import Case, Finding
from passlab.judge.forms import why_not_a_list, why_not_of_type
from passlab.measure import seconds
from passlab.polyhedral.program import at_sizes, first_pair, instance

#: How many turns a vector may have.
LANES = range(4, 65)
MARKS = ("parallel", "vectorize", "unroll")
#: Limits on the steps of isl and on the digits of a number: with huge numbers, each step takes long.
OPERATIONS, DIGITS = 2_000_000, 6

#: Program → the required speedup over its loops as written. Good schedules reach five times that, and keep it on a busy
#: machine; what the loops look like is asked exactly.
ENOUGH = {"matmul": 6.0, "gram": 1.5}


@dataclass(frozen=True)
class Task:
    """A program by its name, and sizes. `timed`: the case asks how fast it is."""

    name: str
    sizes: Sizes
    timed: bool

    @property
    def program(self) -> polyhedral.Program:
        return polyhedral.parse(SOURCES[self.name], self.name)


def tile_case(name: str, timed: bool = False, **sizes: int) -> Case:
    about = ("valid", "same", "did", "cost") if timed else ("valid", "same")
    sizes_text = " × ".join(map(str, sizes.values()))
    return Case(f"{name}, {sizes_text}", lambda: (name, dict(sizes)), about, expect=Task(name, sizes, timed))


def cases() -> list[Case]:
    return [
        tile_case("matmul", timed=True, N=192, M=192, K=192),
        tile_case("gram", timed=True, N=192, K=192),
        tile_case("matmul", N=13, M=37, K=7),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    task: Task = case.expect
    program = task.program
    try:
        with _limit():
            schedule, marks = _read(value, program)
            wrong = _illegal(program, schedule, task.sizes) or _race(program, schedule, marks, task.sizes)
            function = None if wrong else polyhedral.prim_func(program, schedule, task.sizes, **marks)
    except (Unreadable, ValueError) as error:
        yield Finding("valid", False, str(error))
        return
    except isl.Error:
        yield Finding("valid", False, f"isl gave up on the schedule after {OPERATIONS:,} steps. Make it simpler.")
        return
    yield Finding("valid", True)
    if wrong:
        yield Finding("same", False, wrong)
        return
    if not task.timed:
        arrays = polyhedral.random_arrays(program, task.sizes, own_seed(0))
        wrong = difference(run(function, [arrays]), [polyhedral.reference(program, task.sizes, arrays)])
        yield Finding("same", not wrong, wrong)
        return
    inputs = [polyhedral.random_arrays(program, task.sizes, randbits(64)) for _ in range(RUNS)]
    written, target = polyhedral.prim_func(program, program.schedule, task.sizes), ENOUGH[task.name]

    def look() -> tuple[Built, str]:
        built = run(function, inputs, timed=True, beside=[written])
        results = built.beside[0].outputs if built.ok else ()
        return built, difference(built, [dict(zip(program.arrays, outputs, strict=True)) for outputs in results])

    _, wrong, took, ratios = pace(look, [target])
    yield Finding("same", not wrong, wrong)
    if wrong:
        return
    (ratio,) = ratios
    times = f"Your loops for {task.name} take {seconds(took)}, the loops as they are written {seconds(took * ratio)}"
    slow = "" if ratio >= target else f"{times}: {ratio:.1f} times as fast; at least {target:g} times is required."
    jumping = _lacking(function, _jump)
    yield Finding("did", not jumping, jumping)
    short = _lacking(function, _unmarked) or slow
    yield Finding("cost", not short, short)


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    """Make isl's default context give up after OPERATIONS steps."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(OPERATIONS)
    try:
        yield
    finally:
        context.set_max_operations(0)
        context.reset_operations()


def _read(value: Any, program: polyhedral.Program) -> tuple[isl.UnionMap, dict[str, list[int]]]:
    """Return the schedule and its marks. Raise Unreadable or ValueError with a message if they are invalid."""
    form = "a pair: the schedule, and a dictionary of marks such as {'parallel': [0]}"
    if reason := why_not_a_list(value, form, 2) or why_not_of_type(
        value[1], "the marks as a dictionary, such as {'parallel': [0]}", dict
    ):
        raise Unreadable(reason)
    text, lists = value
    Reader(OPERATIONS).map(text, "The schedule")
    if long := re.search(rf"\d{{{DIGITS + 1},}}", text):
        raise Unreadable(f"The schedule contains a number of {len(long[0])} digits; the limit is {DIGITS}.")
    if unknown := sorted(set(map(str, lists)) - set(MARKS)):
        raise Unreadable(f"There is no mark {unknown[0]!r}; use {', '.join(MARKS)}.")
    marks = {kind: lists[kind] for kind in MARKS if kind in lists}
    for kind, dims in marks.items():
        if not isinstance(dims, list | tuple) or not all(type(dim) is int for dim in dims):
            raise Unreadable(f"{kind} must be a list of dimensions, counted from 0; it is {str(dims)[:60]}.")
    if reason := polyhedral.why_not_a_schedule(program, text):
        raise Unreadable(reason)
    schedule = polyhedral.schedule_of(text)
    count = polyhedral.depth(schedule)
    for kind, dims in marks.items():
        if outside := [dim for dim in dims if not 0 <= dim < count]:
            raise Unreadable(f"{kind} marks dimension {outside[0]}; the times have {count}, counted from 0.")
    return schedule, marks


def _illegal(program: polyhedral.Program, schedule: isl.UnionMap, sizes: Sizes) -> str | None:
    """Return a message about a pair of iterations that runs in the wrong order, or None."""
    pair = polyhedral.violated(polyhedral.dependences(program), schedule, sizes)
    return f"The order is not legal: {pair[0]} must run before {pair[1]}, but does not." if pair else None


def _race(program: polyhedral.Program, schedule: isl.UnionMap, marks: dict, sizes: Sizes) -> str | None:
    """Return a message about a pair of iterations that would run at once although one needs the other, or None."""
    timed = schedule.intersect_domain(program.domain)
    count = polyhedral.depth(schedule)
    for kind in ("parallel", "vectorize"):
        for dim in marks.get(kind, ()):
            one, other = ([f"{letter}{at}" for at in range(count)] for letter in "ab")
            same = [f"{a} = {b}" for a, b in zip(one[:dim], other[:dim], strict=True)]
            turns = " and ".join([*same, f"{one[dim]} != {other[dim]}"])
            at_once = isl.UnionMap(f"{{ [{', '.join(one)}] -> [{', '.join(other)}] : {turns} }}")
            pairs = timed.apply_range(at_once).apply_range(timed.reverse())
            racing = at_sizes(program, polyhedral.dependences(program).intersect(pairs), sizes)
            if not racing.is_empty():
                first, second = (instance(*names) for names in first_pair(racing))
                return (
                    f"The loop of dimension {dim} must not be marked {kind}: {first} must run before {second}, but "
                    "they are in different iterations of it."
                )
    return None


def _lacking(function: Any, why_not: Callable[[list, Any], str]) -> str:
    """Return what the loops around the sums lack, or "". Where tiles are cut off at a border, they may lack it.

    why_not(loops, block): what the loops of more than one turn around a block lack, or "".
    """
    from passlab.tvm.tensorir import blocks

    reasons = [
        why_not([loop for loop in loops if getattr(loop.extent, "value", None) != 1], block)
        for loops, block in blocks(function.body)
        if block.block.name_hint == "T"
    ]
    return reasons[0] if all(reasons) else ""


def _unmarked(loops: list, block: Any) -> str:
    """Return which mark the loops around a block lack, or ""."""
    from passlab.relax import tvm

    kinds = tvm.tirx.ForKind
    if not loops or loops[0].kind != kinds.PARALLEL:
        return "The outermost loop around the sums, of those with more than one turn, is not marked parallel."
    if loops[-1].kind != kinds.VECTORIZED:
        return "The innermost loop around the sums, of those with more than one turn, is not a vector."
    if (lanes := int(loops[-1].extent)) not in LANES:
        return f"The vector of the sums has {lanes} turns; {LANES[0]} to {LANES[-1]} are allowed."
    return _jump(loops, block)


def _jump(loops: list, block: Any) -> str:
    """Return where the innermost loop jumps in memory, marked as a vector or not, or ""."""
    from passlab.relax import tvm

    inner = "The innermost loop around the sums, of those with more than one turn,"
    if not loops:
        return f"{inner} is missing."
    bounds = tvm.sym.Analyzer()
    for loop in loops:
        turns = bounds.const_int_bound(loop.extent).max_value
        bounds.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
    if turns < LANES[0]:
        return f"{inner} has {turns} turns; along memory, {LANES[0]} or more are required."
    steps = {}
    for variable, value in zip(block.block.iter_vars, block.iter_values, strict=True):
        linear = tvm.sym.detect_linear_equation(value, [loops[-1].loop_var])
        steps[variable.var] = getattr(linear[0], "value", None) if linear else None
    for region in (*block.block.writes, *block.block.reads):
        *others, last = (steps[one.min] for one in region.region)
        if any(step != 0 for step in others) or last not in (0, 1):
            where = f"{region.source.name}[{', '.join(one.min.name for one in region.region)}]"
            return f"{inner} jumps through {where}: neighbours in it must be neighbours in memory."
    return ""
