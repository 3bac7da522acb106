"""Day 10, exercises 3 and 4: cases and judges of schedules: is this one legal, and one that makes a stencil tilable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import islpy as isl

from passlab.exercises.cases_day10_isl import (
    IN,
    OUT,
    PARAMETER,
    Reader,
    Unreadable,
    call_with,
    example,
    limited,
    not_a_function,
    not_before,
)
from passlab.judge import Case, Finding

Vector = tuple[int, ...]


@dataclass(frozen=True)
class Stencil:
    """A nest of one statement S whose iterations depend on others at fixed distances.

    `bounds`: iterator → first and one past the last, as text; `vectors`: the distances, source to target.
    """

    bounds: dict[str, tuple[str, str]]
    vectors: tuple[Vector, ...]
    parameters: str = "T, N"

    def _inside(self, names: Sequence[str]) -> str:
        return " and ".join(f"{a} <= {n} < {b}" for n, (a, b) in zip(names, self.bounds.values(), strict=True))

    @property
    def domain(self) -> str:
        return f"[{self.parameters}] -> {{ S[{', '.join(self.bounds)}] : {self._inside(list(self.bounds))} }}"

    @property
    def dependences(self) -> str:
        here = list(self.bounds)
        pieces = []
        for vector in self.vectors:
            there = [f"{name} + {step}" for name, step in zip(here, vector, strict=True)]
            inside = f"{self._inside(here)} and {self._inside(there)}"
            pieces.append(f"S[{', '.join(here)}] -> S[{', '.join(there)}] : {inside}")
        return f"[{self.parameters}] -> {{ {'; '.join(pieces)} }}"


def stencil(names: str, *vectors: Vector) -> Stencil:
    """A stencil on a grid of N (and M, K) points, T times: the first name is the time."""
    time, *space = names.split()
    sizes = ("N", "M", "K")[: len(space)]
    bounds = {time: ("0", "T")} | {name: ("1", f"{size} - 1") for name, size in zip(space, sizes, strict=True)}
    return Stencil(bounds, vectors, ", ".join(("T", *sizes)))


def flow_of(*offsets: Vector, lag: int = 1) -> tuple[Vector, ...]:
    """The distances of a stencil with two arrays: a point needs these neighbours of the step before (or of `lag`)."""
    return tuple((lag, *(-x for x in offset)) for offset in offsets)


JACOBI_1D = stencil("t i", *flow_of((-1,), (0,), (1,)))
JACOBI_2D = stencil("t i j", *flow_of((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)))
#: In place, from left to right: what lies to the left is of this step, what lies to the right of the one before.
SEIDEL_1D = stencil("t i", (0, 1), (1, 0), (1, -1))
SEIDEL_2D = stencil(
    "t i j", *((0, x, y) for x, y in ((0, 1), (1, -1), (1, 0), (1, 1))),
    *((1, x, y) for x, y in ((0, 0), (0, -1), (-1, 1), (-1, 0), (-1, -1))),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- legality

call_legality = call_with("UnionMap", "UnionMap")


def legality_case(name: str, dependences: str, schedule: str, legal: bool) -> Case:
    """`legal`: the answer. Illegal ones ask for a pair, legal ones for None."""
    return Case(name, lambda: (dependences, schedule), ("valid", "spared" if legal else "did"), expect=legal)


SUM = "[N] -> { S[i, j, k] -> S[i, j, k + 1] : 0 <= i < N and 0 <= j < N and 0 <= k < N - 1 }"
#: S writes A[i], T reads A[i] and A[i + 1].
NEIGHBOURS = "[N] -> { S[i] -> T[i] : 0 <= i < N; S[i] -> T[i - 1] : 1 <= i < N }"


def legality_cases() -> list[Case]:
    jacobi = JACOBI_1D.dependences
    return [
        legality_case("matmul: k outermost", SUM, "{ S[i, j, k] -> [k, i, j] }", True),
        legality_case("matmul: k backwards", SUM, "{ S[i, j, k] -> [i, j, -k] }", False),
        legality_case("matmul: all k at once", SUM, "{ S[i, j, k] -> [i, j] }", False),
        legality_case("jacobi-1d: i backwards", jacobi, "{ S[t, i] -> [t, -i] }", True),
        legality_case("jacobi-1d: interchange", jacobi, "{ S[t, i] -> [i, t] }", False),
        legality_case(
            "jacobi-1d: tiles of 32 by 32",
            jacobi,
            "{ S[t, i] -> [floor(t/32), floor(i/32), t, i] }",
            False,
        ),
        legality_case(
            "jacobi-1d: skewed, then tiles of 32 by 32",
            jacobi,
            "{ S[t, i] -> [floor(t/32), floor((t + i)/32), t, t + i] }",
            True,
        ),
        legality_case("two loops fused", NEIGHBOURS, "{ S[i] -> [i, 0]; T[i] -> [i, 1] }", False),
        legality_case("two loops fused, one shifted", NEIGHBOURS, "{ S[i] -> [i, 0]; T[i] -> [i + 1, 1] }", True),
    ]


@limited
def judge_legality(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    dependences, schedule = (reader.map(text, "") for text in case.build())
    if value is None:
        yield Finding("valid", True)
        violated = dependences.intersect(not_before(schedule))
        wrong = ""
        if not violated.is_empty():
            wrong = f"{_times(violated, schedule)}, and the second needs the first: not legal."
        yield Finding("did", not wrong, wrong)
        yield Finding("spared", True)
        return
    pair = reader.map(value, "The pair")
    if pair.is_empty():
        raise Unreadable("A map with no pair in it came back. Return None if the schedule is legal.")
    one = isl.UnionMap.from_map(isl.Map.from_basic_map(pair.sample()))
    if not one.is_equal(pair):
        raise Unreadable(
            "The map holds more than one pair. Return one, with numbers: `.sample()` of a relation is one."
        )
    yield Finding("valid", True)
    wrong = ""
    if not pair.is_subset(dependences):
        wrong = _not_there(pair, dependences)
    elif pair.intersect(not_before(schedule)).is_empty():
        wrong = f"{_times(pair, schedule)}: as it must be. This pair is no reason against the schedule."
    # A pair against a legal schedule is one too many; a wrong pair against an illegal one is a violation not found.
    yield Finding("spared" if case.expect else "did", not wrong, wrong)


def _not_there(pair: isl.UnionMap, dependences: isl.UnionMap) -> str:
    """Why a pair is none of the dependences: a sentence."""
    wanted, given = (
        {relation.space.get_dim_name(PARAMETER, k) for k in range(relation.dim(PARAMETER))}
        for relation in (dependences, pair)
    )
    missing = sorted(wanted - given)
    if not missing or pair.intersect(dependences).is_empty():
        return f"{example(pair)} is no dependence."
    names = " and ".join(missing)
    return f"{example(pair)} is a dependence for some {names} only: the pair must come with numbers for the parameters."


def _times(pairs: isl.UnionMap, schedule: isl.UnionMap) -> str:
    """When the two instances of one of the pairs run: a clause."""
    one = isl.UnionMap.from_map(isl.Map.from_basic_map(pairs.sample()))
    times = isl.Map.from_union_map(one.apply_domain(schedule).apply_range(schedule))
    first, second = example(isl.UnionMap.from_map(times)).split(" (")[0].split(" → ")
    ends = example(one)
    if first == second:
        return f"In {ends} both run at the same time, {first}"
    return f"In {ends} the first runs at {first}, the second at {second}"


# ---------------------------------------------------------------------------------------------------- skewing

call_skew = call_with("UnionSet", "UnionMap")


def skew_case(name: str, nest: Stencil, reach: int) -> Case:
    """`reach`: the least that the reaches of all dimensions can add up to."""
    return Case(name, lambda: (nest.domain, nest.dependences), expect=reach)


#: Name → a stencil, and the least that its reaches add up to.
STENCILS = {
    "jacobi-1d": (JACOBI_1D, 3),
    "jacobi-2d": (JACOBI_2D, 5),
    "heat-1d of radius 2": (stencil("t i", *flow_of((-2,), (-1,), (0,), (1,), (2,))), 5),
    "seidel-1d": (SEIDEL_1D, 2),
    "seidel-2d with nine points": (SEIDEL_2D, 4),
    "wind from the left": (stencil("t i", *flow_of((-1,), (0,))), 2),
    "a drift to the right": (stencil("t i", (1, 1), (1, 2)), 2),
}


def skew_cases() -> list[Case]:
    return [skew_case(name, nest, reach) for name, (nest, reach) in STENCILS.items()]


@limited
def judge_skew(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    read = case.build()
    domain, dependences = reader.set(read[0], ""), reader.map(read[1], "")
    schedule = reader.map(value, "The schedule").intersect_domain(domain)
    depth = isl.Set.from_union_set(domain).dim(isl.dim_type.set)
    broken = _no_band(schedule, domain, depth)
    yield Finding("valid", not broken, broken or "")
    if broken:
        return
    illegal = dependences.intersect(not_before(schedule))
    yield Finding("same", illegal.is_empty(), "" if illegal.is_empty() else f"{_times(illegal, schedule)}: not legal.")
    back = ""
    for k in range(depth):
        if not back and not (off := dependences.intersect(_backwards(schedule, depth, k))).is_empty():
            back = f"{_times(off, schedule)}: it goes back in dimension {k}, so tiles would wait for each other."
    yield Finding("did", not back, back)
    if back or not illegal.is_empty():
        return
    reaches = _reaches(dependences, schedule, depth)
    far = ""
    if any(reach is None for reach in reaches):
        far = f"In dimension {reaches.index(None)} there is no limit to how far dependences reach."
    elif sum(reaches) > case.expect:
        far = (
            f"Dependences reach {' + '.join(map(str, reaches))} = {sum(reaches)} steps in the dimensions of your "
            f"schedule, and {case.expect} is possible."
        )
    yield Finding("cost", not far, far)


def _no_band(schedule: isl.UnionMap, domain: isl.UnionSet, depth: int) -> str | None:
    """Why the schedule is no bijection with as many dimensions as there are loops, in a sentence."""
    if broken := not_a_function(schedule, domain):
        return broken
    numbers = isl.Map.from_union_map(schedule).dim(OUT)
    if numbers != depth:
        return f"A time of the band has {depth} numbers, one for each loop of the nest; yours has {numbers}."
    if not schedule.is_injective():
        same = schedule.apply_range(schedule.reverse()).subtract(domain.identity())
        return f"{_times(same, schedule)}: give each instance a time of its own."
    return None


def _backwards(schedule: isl.UnionMap, depth: int, k: int) -> isl.UnionMap:
    """The pairs of instances of which the second has the smaller time in dimension k."""
    space = isl.Map.from_union_map(schedule).get_space().range().map_from_set()
    less = isl.Map.universe(space).order_gt(IN, k, OUT, k)
    return schedule.apply_range(isl.UnionMap.from_map(less)).apply_range(schedule.reverse())


def _reaches(dependences: isl.UnionMap, schedule: isl.UnionMap, depth: int) -> list[int | None]:
    """The largest distance of a dependence in each dimension of the schedule; None where there is none."""
    times = isl.Set.from_union_set(dependences.apply_domain(schedule).apply_range(schedule).deltas())
    most = [times.project_out_all_params().dim_max_val(k) for k in range(depth)]
    return [int(str(value)) if value.is_int() else None for value in most]
