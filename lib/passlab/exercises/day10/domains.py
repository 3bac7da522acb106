"""Day 10, domains and accesses: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.exercises.day10._isl import (
    Reader,
    Unreadable,
    example,
    limited,
    not_a_function,
    not_before,
)
from passlab.given.day10.domains import Nest
from passlab.judge import Case, Finding
from passlab.judge.forms import why_not_a_dict


def loop(name: str, start: str, stop: str, *body: dict, step: int = 1) -> dict:
    return {"loop": name, "range": (start, stop, step), "body": list(body)}


def when(condition: str, *body: dict) -> dict:
    return {"if": condition, "body": list(body)}


def statement(name: str, writes: str, *reads: str) -> dict:
    return {"statement": name, "writes": [writes], "reads": list(reads)}


def nest(parameters: str, *body: dict) -> Nest:
    return {"parameters": parameters.split(), "body": list(body)}


#: Part of the answer → the messages about a missing element and about an extra one.
PARTS = {
    "domain": ("this instance runs", "this instance does not run"),
    "reads": ("the instance reads this cell", "the instance does not read this cell"),
    "writes": ("the instance writes this cell", "the instance does not write this cell"),
}


def domains_case(name: str, nest: Nest, domain: str, reads: str, writes: str, schedule: str, *about: str) -> Case:
    expect = {"domain": domain, "reads": reads, "writes": writes, "schedule": schedule}
    return Case(name, lambda: (nest,), about, expect=expect)


def cases() -> list[Case]:
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


@limited
def judge(case: Case, value: Any, reader: Reader) -> Iterator[Finding]:
    actual = read_parts(value, [*PARTS, "schedule"], reader)
    want = {
        part: reader.set(text, part) if part == "domain" else reader.map(text, part)
        for part, text in case.expect.items()
    }
    for part in ("reads", "writes"):
        want[part], actual[part] = (all_of[part].intersect_domain(want["domain"]) for all_of in (want, actual))
    yield Finding("valid", True)
    for verdict, sign in (("did", 0), ("spared", 1)):
        broken = ""
        for part, reason in PARTS.items():
            sides = (want[part], actual[part]) if verdict == "did" else (actual[part], want[part])
            if not broken and not (off := sides[0].subtract(sides[1])).is_empty():
                broken = f"{part} {('lacks', 'contains')[sign]} {example(off)}, but {reason[sign]}."
        yield Finding(verdict, not broken, broken)
    broken = not_a_function(actual["schedule"].intersect_domain(want["domain"]), want["domain"])
    if not broken:
        # Compare the unrestricted orders first: where they agree, isl has nothing more to do.
        off = want["schedule"].lex_lt_union_map(want["schedule"]).intersect(not_before(actual["schedule"]))
        off = off.intersect_domain(want["domain"]).intersect_range(want["domain"])
        if not off.is_empty():
            broken = f"In {example(off)} the first runs before the second, but not in your schedule."
    yield Finding("same", not broken, broken or "")


def read_parts(value: Any, names: list[str], reader: Reader) -> dict[str, Any]:
    """Return the parsed parts of a returned dictionary. The part "domain" is a set, the others are maps."""
    keys = f"the keys {', '.join(names)}"
    if reason := why_not_a_dict(
        value, f"a dictionary with {keys}", names, "entry", f"one of {keys}", label="The key {!r}"
    ):
        raise Unreadable(reason)
    return {
        name: reader.set(value[name], name) if name == "domain" else reader.map(value[name], name) for name in names
    }
