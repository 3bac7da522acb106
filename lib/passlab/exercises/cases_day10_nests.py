"""Day 10, exercises 1 and 2: cases and judges of loop nests: what they run and touch, and what depends on what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import islpy as isl

from passlab.exercises.cases_day10_isl import (
    Reader,
    Unreadable,
    as_text,
    call_with,
    example,
    limited,
    not_a_function,
    not_before,
    said_type,
)
from passlab.judge import Case, Finding

Nest = dict[str, Any]


# ---------------------------------------------------------------------------------------------------- loop nests


def loop(name: str, start: str, stop: str, *body: dict, step: int = 1) -> dict:
    return {"loop": name, "range": (start, stop, step), "body": list(body)}


def when(condition: str, *body: dict) -> dict:
    return {"if": condition, "body": list(body)}


def statement(name: str, writes: str, *reads: str) -> dict:
    return {"statement": name, "writes": [writes], "reads": list(reads)}


def nest(parameters: str, *body: dict) -> Nest:
    return {"parameters": parameters.split(), "body": list(body)}


def as_python(nest: Nest) -> str:
    """A loop nest as Python loops, to look at; statements are calls."""

    def lines(body: list[dict], indent: str) -> Iterator[str]:
        for item in body:
            if "statement" in item:
                writes, reads = (", ".join(item[kind]) for kind in ("writes", "reads"))
                yield f"{indent}{writes} = {item['statement']}({reads})".replace("[]", "[()]")
                continue
            start, stop, step = item.get("range", ("", "", 1))
            head = f"for {item['loop']} in range({start}, {stop}, {step})" if "loop" in item else f"if {item['if']}"
            yield f"{indent}{head}:"
            yield from lines(item["body"], indent + "    ")

    return "\n".join(lines(nest["body"], ""))


# ---------------------------------------------------------------------------------------------------- domains

#: The parts of the answer, and what is said of one that is missing and of one too many.
PARTS = {
    "domain": ("this instance runs", "this instance does not run"),
    "reads": ("the instance reads this cell", "the instance does not read this cell"),
    "writes": ("the instance writes this cell", "the instance does not write this cell"),
}


def domains_case(name: str, nest: Nest, domain: str, reads: str, writes: str, schedule: str, *about: str) -> Case:
    expect = {"domain": domain, "reads": reads, "writes": writes, "schedule": schedule}
    return Case(name, lambda: (nest,), about, expect=expect)


def domains_cases() -> list[Case]:
    matmul = nest(
        "N M K",
        loop(
            "i",
            "0",
            "N",
            loop(
                "j",
                "0",
                "M",
                statement("Zero", "C[i, j]"),
                loop("k", "0", "K", statement("Add", "C[i, j]", "C[i, j]", "A[i, k]", "B[k, j]")),
            ),
        ),
    )
    solve = nest(
        "N",
        loop(
            "i",
            "0",
            "N",
            statement("Copy", "x[i]", "b[i]"),
            loop("j", "0", "i", statement("Minus", "x[i]", "x[i]", "L[i, j]", "x[j]")),
            statement("Divide", "x[i]", "x[i]", "L[i, i]"),
        ),
    )
    strided = nest("N", loop("i", "2", "N", statement("S", "A[i]", "A[i - 2]", "B[2*i + 1]"), step=3))
    guarded = nest(
        "N",
        statement("Start", "s[]"),
        loop("i", "0", "N", loop("j", "0", "N", when("i + j < N and i != j", statement("S", "s[]", "s[]", "A[i, j]")))),
    )
    backwards = nest(
        "N",
        loop("i", "N - 1", "-1", statement("S", "A[i]", "A[i + 1]"), step=-1),
        loop("i", "1", "min(N, 9)", statement("T", "A[i]", "A[i - 1]")),
    )
    return [
        domains_case(
            "a matmul",
            matmul,
            "[N, M, K] -> { Zero[i, j] : 0 <= i < N and 0 <= j < M; "
            "Add[i, j, k] : 0 <= i < N and 0 <= j < M and 0 <= k < K }",
            "{ Add[i, j, k] -> C[i, j]; Add[i, j, k] -> A[i, k]; Add[i, j, k] -> B[k, j] }",
            "{ Zero[i, j] -> C[i, j]; Add[i, j, k] -> C[i, j] }",
            "{ Zero[i, j] -> [0, i, 0, j, 0, 0, 0]; Add[i, j, k] -> [0, i, 0, j, 1, k, 0] }",
        ),
        domains_case(
            "a triangular solve",
            solve,
            "[N] -> { Copy[i] : 0 <= i < N; Minus[i, j] : 0 <= j < i < N; Divide[i] : 0 <= i < N }",
            "{ Copy[i] -> b[i]; Minus[i, j] -> x[i]; Minus[i, j] -> x[j]; Minus[i, j] -> L[i, j]; "
            "Divide[i] -> x[i]; Divide[i] -> L[i, i] }",
            "{ Copy[i] -> x[i]; Minus[i, j] -> x[i]; Divide[i] -> x[i] }",
            "{ Copy[i] -> [i, 0, 0]; Minus[i, j] -> [i, 1, j]; Divide[i] -> [i, 2, 0] }",
        ),
        domains_case(
            "every third",
            strided,
            "[N] -> { S[i] : 2 <= i < N and i mod 3 = 2 }",
            "{ S[i] -> A[i - 2]; S[i] -> B[2i + 1] }",
            "{ S[i] -> A[i] }",
            "{ S[i] -> [i] }",
        ),
        domains_case(
            "a guard",
            guarded,
            "[N] -> { Start[]; S[i, j] : 0 <= i < N and 0 <= j < N - i and i != j }",
            "{ S[i, j] -> s[]; S[i, j] -> A[i, j] }",
            "{ Start[] -> s[]; S[i, j] -> s[] }",
            "{ Start[] -> [0, 0, 0]; S[i, j] -> [1, i, j] }",
        ),
        domains_case(
            "backwards, then forwards",
            backwards,
            "[N] -> { S[i] : 0 <= i < N; T[i] : 1 <= i < N and i < 9 }",
            "{ S[i] -> A[i + 1]; T[i] -> A[i - 1] }",
            "{ S[i] -> A[i]; T[i] -> A[i] }",
            "{ S[i] -> [0, -i]; T[i] -> [1, i] }",
        ),
    ]


def call_domains(answer: Callable, case: Case) -> Any:
    return as_text(answer(*case.build()))


@limited
def judge_domains(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    got = _parts(value, [*PARTS, "schedule"], reader)
    want = {
        part: reader.set(text, part) if part == "domain" else reader.map(text, part)
        for part, text in case.expect.items()
    }
    for part in ("reads", "writes"):
        want[part], got[part] = (all_of[part].intersect_domain(want["domain"]) for all_of in (want, got))
    yield Finding("valid", True)
    for verdict, sign in (("did", 0), ("spared", 1)):
        broken = ""
        for part, why in PARTS.items():
            sides = (want[part], got[part]) if verdict == "did" else (got[part], want[part])
            if not broken and not (off := sides[0].subtract(sides[1])).is_empty():
                broken = f"{part} {('lacks', 'holds')[sign]} {example(off)}: {why[sign]}."
        yield Finding(verdict, not broken, broken)
    broken = not_a_function(got["schedule"].intersect_domain(want["domain"]), want["domain"])
    if not broken:
        # All instances there could be come first: where the two orders are the same for them, isl has no more to do.
        off = want["schedule"].lex_lt_union_map(want["schedule"]).intersect(not_before(got["schedule"]))
        off = off.intersect_domain(want["domain"]).intersect_range(want["domain"])
        if not off.is_empty():
            broken = f"In {example(off)} the first runs before the second; by your schedule it does not."
    yield Finding("same", not broken, broken or "")


def _parts(value: Any, names: list[str], reader: Reader) -> dict[str, Any]:
    """The parts of a dictionary that came back, read. A part that is called domain is a set, the others are maps."""
    if not isinstance(value, dict) or set(value) != set(names):
        keys = ", ".join(map(str, value)) if isinstance(value, dict) else said_type(value)
        raise Unreadable(f"Return a dictionary of {', '.join(names)}; it is {keys or 'empty'}."[:300])
    return {
        name: reader.set(value[name], name) if name == "domain" else reader.map(value[name], name) for name in names
    }


# ---------------------------------------------------------------------------------------------------- dependences

KINDS = ("flow", "anti", "output", "values")

call_dependences = call_with("UnionSet", "UnionMap", "UnionMap", "UnionMap")


def dependences_case(
    name: str, domain: str, reads: str, writes: str, schedule: str, flow: str, anti: str, output: str, values: str
) -> Case:
    """What is executed, and the four kinds of dependence that it has."""
    given = (domain, reads, writes, schedule)
    return Case(name, lambda: given, expect=dict(zip(KINDS, (flow, anti, output, values), strict=True)))


def dependences_cases() -> list[Case]:
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
def judge_dependences(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    got = _parts(value, list(KINDS), reader)
    want = {kind: reader.map(case.expect[kind], kind) for kind in KINDS}
    yield Finding("valid", True)
    broken = ""
    for kind in KINDS:
        if not broken and not (off := want[kind].subtract(got[kind])).is_empty():
            broken = f"{kind} lacks {example(off)}."
    yield Finding("did", not broken, broken)
    broken = ""
    for kind in KINDS:
        if not broken and not (off := got[kind].subtract(want[kind])).is_empty():
            off = isl.UnionMap.from_map(isl.Map.from_basic_map(off.sample()))
            broken = f"{kind} holds {example(off)}: {_why_not(kind, off, case, reader)}."
    yield Finding("spared", not broken, broken)


def _why_not(kind: str, pair: isl.UnionMap, case: Case, reader: Reader) -> str:
    """Why one pair of instances is no dependence of this kind, in words."""
    domain, reads, writes, schedule = (
        read(text, "") for read, text in zip((reader.set, *(reader.map,) * 3), case.build(), strict=True)
    )
    if not pair.domain().union(pair.range()).is_subset(domain):
        return "one of the two does not run"
    if not pair.intersect(not_before(schedule.intersect_domain(domain))).is_empty():
        return "the first does not run before the second"
    first, second = (reads if kind == "anti" else writes), (writes if kind in ("anti", "output") else reads)
    shared = pair.domain().apply(first).intersect(pair.range().apply(second))
    if shared.is_empty():
        verbs = [("reads", "writes")[what is writes] for what in (first, second)]
        return f"the first {verbs[0]} no cell that the second {verbs[1]}"
    return "between the two another instance writes that cell"
