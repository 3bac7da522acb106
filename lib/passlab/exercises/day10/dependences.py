"""Day 10, dependences: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import islpy as isl

from passlab.exercises.day10._isl import Reader, example, limited, not_before
from passlab.exercises.day10.domains import read_parts
from passlab.judge import Case, Finding

KINDS = ("flow", "anti", "output", "values")


def dependences_case(
    name: str, domain: str, reads: str, writes: str, schedule: str, flow: str, anti: str, output: str, values: str
) -> Case:
    """Return a case from a program and its four kinds of dependences."""
    inputs = (domain, reads, writes, schedule)
    return Case(name, lambda: inputs, expect=dict(zip(KINDS, (flow, anti, output, values), strict=True)))


def cases() -> list[Case]:
    return [
        dependences_case(
            "a running sum",
            "[N] -> { S[i] : 1 <= i < N }",
            "{ S[i] -> A[i]; S[i] -> A[i - 1] }",
            "{ S[i] -> A[i] }",
            "{ S[i] -> [i] }",
            flow="[N] -> { S[i] -> S[i + 1] : 1 <= i < N - 1 }",
            anti="{ }",
            output="{ }",
            values="[N] -> { S[i] -> S[i + 1] : 1 <= i < N - 1 }",
        ),
        dependences_case(
            "seidel-1d: one array, from left to right",
            "[T, N] -> { S[t, i] : 0 <= t < T and 1 <= i < N - 1 }",
            "{ S[t, i] -> A[i - 1]; S[t, i] -> A[i]; S[t, i] -> A[i + 1] }",
            "{ S[t, i] -> A[i] }",
            "{ S[t, i] -> [t, i] }",
            flow="[T, N] -> { S[t, i] -> S[u, j] : 0 <= t < T and 1 <= i < N - 1 and 0 <= u < T and 1 <= j < N - 1 "
            "and i - 1 <= j <= i + 1 and (t < u or (t = u and i < j)) }",
            anti="[T, N] -> { S[t, i] -> S[u, j] : 0 <= t < T and 1 <= i < N - 1 and 0 <= u < T and 1 <= j < N - 1 "
            "and i - 1 <= j <= i + 1 and (t < u or (t = u and i < j)) }",
            output="[T, N] -> { S[t, i] -> S[u, i] : 0 <= t < u < T and 1 <= i < N - 1 }",
            values="[T, N] -> { S[t, i] -> S[t, i + 1] : 0 <= t < T and 1 <= i < N - 2; "
            "S[t, i] -> S[t + 1, i] : 0 <= t < T - 1 and 1 <= i < N - 1; "
            "S[t, i] -> S[t + 1, i - 1] : 0 <= t < T - 1 and 2 <= i < N - 1 }",
        ),
        dependences_case(
            "a scalar that is used again",
            "[N] -> { S[i] : 0 <= i < N; T[i] : 0 <= i < N }",
            "{ S[i] -> A[i]; T[i] -> s[] }",
            "{ S[i] -> s[]; T[i] -> B[i] }",
            "{ S[i] -> [i, 0]; T[i] -> [i, 1] }",
            flow="[N] -> { S[i] -> T[j] : 0 <= i <= j < N }",
            anti="[N] -> { T[i] -> S[j] : 0 <= i < j < N }",
            output="[N] -> { S[i] -> S[j] : 0 <= i < j < N }",
            values="[N] -> { S[i] -> T[i] : 0 <= i < N }",
        ),
        dependences_case(
            "two cells, of which one is overwritten",
            "[N] -> { S[i] : 0 <= i < N; P[i] : 0 <= i < N; T[i] : 0 <= i < N }",
            "{ T[i] -> A[i]; T[i] -> B[i] }",
            "{ S[i] -> A[i]; S[i] -> B[i]; P[i] -> A[i] }",
            "{ S[i] -> [i, 0]; P[i] -> [i, 1]; T[i] -> [i, 2] }",
            flow="[N] -> { S[i] -> T[i] : 0 <= i < N; P[i] -> T[i] : 0 <= i < N }",
            anti="{ }",
            output="[N] -> { S[i] -> P[i] : 0 <= i < N }",
            values="[N] -> { S[i] -> T[i] : 0 <= i < N; P[i] -> T[i] : 0 <= i < N }",
        ),
        dependences_case(
            "a matmul",
            "[N] -> { Zero[i, j] : 0 <= i < N and 0 <= j < N; "
            "Add[i, j, k] : 0 <= i < N and 0 <= j < N and 0 <= k < N }",
            "{ Add[i, j, k] -> C[i, j]; Add[i, j, k] -> A[i, k]; Add[i, j, k] -> B[k, j] }",
            "{ Zero[i, j] -> C[i, j]; Add[i, j, k] -> C[i, j] }",
            "{ Zero[i, j] -> [i, j, 0, 0]; Add[i, j, k] -> [i, j, 1, k] }",
            flow="[N] -> { Zero[i, j] -> Add[i, j, k] : 0 <= i < N and 0 <= j < N and 0 <= k < N; "
            "Add[i, j, k] -> Add[i, j, l] : 0 <= i < N and 0 <= j < N and 0 <= k < l < N }",
            anti="[N] -> { Add[i, j, k] -> Add[i, j, l] : 0 <= i < N and 0 <= j < N and 0 <= k < l < N }",
            output="[N] -> { Zero[i, j] -> Add[i, j, k] : 0 <= i < N and 0 <= j < N and 0 <= k < N; "
            "Add[i, j, k] -> Add[i, j, l] : 0 <= i < N and 0 <= j < N and 0 <= k < l < N }",
            values="[N] -> { Zero[i, j] -> Add[i, j, 0] : 0 <= i < N and 0 <= j < N; "
            "Add[i, j, k] -> Add[i, j, k + 1] : 0 <= i < N and 0 <= j < N and 0 <= k < N - 1 }",
        ),
    ]


@limited
def judge(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    actual = read_parts(value, list(KINDS), reader)
    want = {kind: reader.map(case.expect[kind], kind) for kind in KINDS}
    yield Finding("valid", True)
    broken = ""
    for kind in KINDS:
        if not broken and not (off := want[kind].subtract(actual[kind])).is_empty():
            broken = f"{kind} lacks {example(off)}."
    broken = broken or _too_much(want, actual, case, reader)
    yield Finding("did", not broken, broken)
    broken = ""
    for kind in KINDS:
        if not broken and not (off := actual[kind].subtract(want[kind])).is_empty():
            off = isl.UnionMap.from_map(isl.Map.from_basic_map(off.sample()))
            broken = f"{kind} contains {example(off)}, but {_why_not(kind, off, case, reader)}."
    yield Finding("spared", not broken, broken)


def _too_much(want: dict, actual: dict, case: Case, reader: Reader) -> str:
    """Return why an answer that misses nothing has found nothing, or "": it claims all pairs that come in order."""
    domain, _, _, schedule = case.build()
    instances = reader.set(domain, "")
    backwards = not_before(reader.map(schedule, "").intersect_domain(instances))
    forwards = isl.UnionMap.from_domain_and_range(instances, instances).subtract(backwards)
    some = ("flow", "anti", "output")
    if all(forwards.is_subset(want[kind]) for kind in some):
        return ""
    if all(forwards.is_subset(actual[kind]) for kind in some):
        return "Each kind has every pair in its order of execution, whether or not the two share a cell."
    return ""


def _why_not(kind: str, pair: isl.UnionMap, case: Case, reader: Reader) -> str:
    """Return a clause that says why one pair of instances is not a dependence of this kind."""
    domain, reads, writes, schedule = (
        read(text, "") for read, text in zip((reader.set, *(reader.map,) * 3), case.build(), strict=True)
    )
    if not pair.domain().union(pair.range()).is_subset(domain):
        return "one of the two instances does not run"
    if not pair.intersect(not_before(schedule.intersect_domain(domain))).is_empty():
        return "the first does not run before the second"
    first, second = (reads if kind == "anti" else writes), (writes if kind in ("anti", "output") else reads)
    shared = pair.domain().apply(first).intersect(pair.range().apply(second))
    if shared.is_empty():
        verbs = [("reads", "writes")[access is writes] for access in (first, second)]
        return f"the first {verbs[0]} no cell that the second {verbs[1]}"
    return "another instance writes that cell in between"
