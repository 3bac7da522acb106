"""Day 10, is this order legal?: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import islpy as isl

from passlab.exercises.day10._isl import PARAMETER, Reader, Unreadable, example, limited, not_before
from passlab.exercises.day10._stencils import JACOBI_1D, times_of
from passlab.judge import Case, Finding


def legality_case(name: str, dependences: str, schedule: str, legal: bool) -> Case:
    """Return a case. `legal`: the right answer is None; otherwise it is a violated pair."""
    return Case(name, lambda: (dependences, schedule), ("valid", "spared" if legal else "did"), expect=legal)


SUM = "[N] -> { S[i, j, k] -> S[i, j, k + 1] : 0 <= i < N and 0 <= j < N and 0 <= k < N - 1 }"
#: S writes A[i], T reads A[i] and A[i + 1].
NEIGHBOURS = "[N] -> { S[i] -> T[i] : 0 <= i < N; S[i] -> T[i - 1] : 1 <= i < N }"


def cases() -> list[Case]:
    jacobi = JACOBI_1D.dependences
    return [
        legality_case("matmul: k outermost", SUM, "{ S[i, j, k] -> [k, i, j] }", True),
        legality_case("matmul: k backwards", SUM, "{ S[i, j, k] -> [i, j, -k] }", False),
        legality_case("matmul: all k at once", SUM, "{ S[i, j, k] -> [i, j] }", False),
        legality_case("jacobi-1d: i backwards", jacobi, "{ S[t, i] -> [t, -i] }", True),
        legality_case("jacobi-1d: interchange", jacobi, "{ S[t, i] -> [i, t] }", False),
        legality_case("jacobi-1d: tiles of 32 by 32", jacobi, "{ S[t, i] -> [floor(t/32), floor(i/32), t, i] }", False),
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
def judge(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    dependences, schedule = (reader.map(text, "") for text in case.build())
    if value is None:
        yield Finding("valid", True)
        violated = dependences.intersect(not_before(schedule))
        wrong = ""
        if not violated.is_empty():
            wrong = f"{times_of(violated, schedule)}, but the second depends on the first: not legal."
        yield Finding("did", not wrong, wrong)
        yield Finding("spared", True)
        return
    pair = reader.map(value, "The pair")
    if pair.is_empty():
        raise Unreadable("Your function returned an empty map. Return None if the schedule is legal.")
    one = isl.UnionMap.from_map(isl.Map.from_basic_map(pair.sample()))
    if not one.is_equal(pair):
        raise Unreadable(
            "The map contains more than one pair. Return a single pair with numbers, such as `.sample()` of a relation."
        )
    yield Finding("valid", True)
    wrong = ""
    if not pair.is_subset(dependences):
        wrong = _not_there(pair, dependences)
    elif pair.intersect(not_before(schedule)).is_empty():
        wrong = f"{times_of(pair, schedule)}: the right order. This pair does not make the schedule illegal."
    # A pair against a legal schedule is one too many; a wrong pair against an illegal one is a violation not found.
    yield Finding("spared" if case.expect else "did", not wrong, wrong)


def _not_there(pair: isl.UnionMap, dependences: isl.UnionMap) -> str:
    """Return a message that says why a pair is not one of the dependences."""
    free, bound = (
        {relation.space.get_dim_name(PARAMETER, k) for k in range(relation.dim(PARAMETER))}
        for relation in (dependences, pair)
    )
    missing = sorted(free - bound)
    if not missing or pair.intersect(dependences).is_empty():
        return f"{example(pair)} is not a dependence."
    names = " and ".join(missing)
    return f"{example(pair)} is a dependence only for some {names}: return the pair with numbers for the parameters."
