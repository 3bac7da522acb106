"""Day 10, skew a stencil: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import islpy as isl

from passlab.exercises.day10._isl import IN, OUT, Reader, limited, not_a_function, not_before
from passlab.exercises.day10._stencils import JACOBI_1D, Stencil, flow_of, stencil, times_of
from passlab.judge import Case, Finding

JACOBI_2D = stencil("t i j", *flow_of((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)))
#: In place, from left to right: values to the left are from this step, values to the right from the one before.
SEIDEL_1D = stencil("t i", (0, 1), (1, 0), (1, -1))
SEIDEL_2D = stencil(
    "t i j", *((0, x, y) for x, y in ((0, 1), (1, -1), (1, 0), (1, 1))),
    *((1, x, y) for x, y in ((0, 0), (0, -1), (-1, 1), (-1, 0), (-1, -1))),
)  # fmt: skip


def skew_case(name: str, nest: Stencil, reach: int) -> Case:
    """Return a case. `reach`: the smallest possible sum of the reaches of all dimensions.

    Where no dependence goes backwards, the loops can stay as they are, and the case is not about `did`.
    """
    backwards = any(min(vector) < 0 for vector in nest.vectors)
    about = () if backwards else ("valid", "same", "cost")
    return Case(name, lambda: (nest.domain, nest.dependences), about, expect=reach)


#: Name → a stencil, and the smallest possible sum of its reaches.
STENCILS = {
    "jacobi-1d": (JACOBI_1D, 3),
    "jacobi-2d": (JACOBI_2D, 5),
    "heat-1d of radius 2": (stencil("t i", *flow_of((-2,), (-1,), (0,), (1,), (2,))), 5),
    "seidel-1d": (SEIDEL_1D, 2),
    "seidel-2d with nine points": (SEIDEL_2D, 4),
    "wind from the left": (stencil("t i", *flow_of((-1,), (0,))), 2),
    "a drift to the right": (stencil("t i", (1, 1), (1, 2)), 2),
}


def cases() -> list[Case]:
    return [skew_case(name, nest, reach) for name, (nest, reach) in STENCILS.items()]


@limited
def judge(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    read = case.build()
    domain, dependences = reader.set(read[0], ""), reader.map(read[1], "")
    schedule = reader.map(value, "The schedule").intersect_domain(domain)
    depth = isl.Set.from_union_set(domain).dim(isl.dim_type.set)
    broken = _no_band(schedule, domain, depth)
    yield Finding("valid", not broken, broken or "")
    if broken:
        return
    illegal = dependences.intersect(not_before(schedule))
    yield Finding(
        "same", illegal.is_empty(), "" if illegal.is_empty() else f"{times_of(illegal, schedule)}: not legal."
    )
    back = ""
    for k in range(depth):
        if not back and not (off := dependences.intersect(_backwards(schedule, depth, k))).is_empty():
            back = f"{times_of(off, schedule)}: it goes backwards in dimension {k}, so tiles would wait for each other."
    yield Finding("did", not back, back)
    if back or not illegal.is_empty():
        return
    reaches = _reaches(dependences, schedule, depth)
    far = ""
    if any(reach is None for reach in reaches):
        far = f"In dimension {reaches.index(None)} the distance of dependences is unbounded."
    elif sum(reaches) > case.expect:
        far = (
            f"Dependences reach {' + '.join(map(str, reaches))} = {sum(reaches)} steps in the dimensions of your "
            f"schedule; {case.expect} is possible."
        )
    yield Finding("cost", not far, far)


def _no_band(schedule: isl.UnionMap, domain: isl.UnionSet, depth: int) -> str | None:
    """Return why the schedule is not a bijection with as many dimensions as there are loops, or None."""
    if broken := not_a_function(schedule, domain):
        return broken
    numbers = isl.Map.from_union_map(schedule).dim(OUT)
    if numbers != depth:
        return f"A time must have {depth} numbers, one for each loop of the nest; yours has {numbers}."
    if not schedule.is_injective():
        same = schedule.apply_range(schedule.reverse()).subtract(domain.identity())
        return f"{times_of(same, schedule)}: give each instance a different time."
    return None


def _backwards(schedule: isl.UnionMap, depth: int, k: int) -> isl.UnionMap:
    """Return the pairs of instances of which the second has the smaller time in dimension k."""
    space = isl.Map.from_union_map(schedule).get_space().range().map_from_set()
    greater = isl.Map.universe(space).order_gt(IN, k, OUT, k)
    return schedule.apply_range(isl.UnionMap.from_map(greater)).apply_range(schedule.reverse())


def _reaches(dependences: isl.UnionMap, schedule: isl.UnionMap, depth: int) -> list[int | None]:
    """Return the largest distance of a dependence in each dimension of the schedule; None where it is unbounded."""
    times = isl.Set.from_union_set(dependences.apply_domain(schedule).apply_range(schedule).deltas())
    most = [times.project_out_all_params().dim_max_val(k) for k in range(depth)]
    return [int(str(value)) if value.is_int() else None for value in most]
