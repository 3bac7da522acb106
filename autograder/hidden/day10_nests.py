"""Day 10, exercises 1 and 2: hidden cases, drawn from a seed. What a nest runs is asked of the reference answer."""

from __future__ import annotations

import random

import islpy as isl

from autograder.bank import reference
from passlab.exercises.cases_day10_isl import as_text
from passlab.exercises.cases_day10_nests import (
    Nest,
    dependences_case,
    domains_case,
    loop,
    nest,
    statement,
    when,
)
from passlab.judge import Case


def domains(seed: int) -> list[Case]:
    rng = random.Random(seed)
    cut, stride = rng.choice((2, 3, 5)), rng.choice((4, 5, 7))
    made = {
        "two loops over the same name": nest(
            "N",
            loop("i", "0", "N", statement("S", "A[i]", "B[i]")),
            loop("i", "0", "N - 1", statement("T", "C[i]", "A[i + 1]")),
        ),
        "strides inside strides": nest(
            "N M",
            loop(
                "i", "1", "N", loop("j", "i", "M", statement("S", "A[i, j]", f"A[i, j - {cut}]"), step=stride), step=cut
            ),
        ),
        "down by more than one": nest(
            "N", loop("i", "N - 1", "-1", loop("j", "i", "0", statement("S", "A[j]", "A[i]"), step=-cut), step=-1)
        ),
        "guards in each other": nest(
            "N",
            loop(
                "i",
                "0",
                "N",
                when(
                    f"i % {cut} == 0 or i > {stride}",
                    statement("S", "A[i]"),
                    when("i != 0", loop("j", "0", "i", statement("T", "A[i]", "A[j]"))),
                ),
                statement("U", "B[i]", "A[i]"),
            ),
        ),
        "deep and shallow": nest(
            "N",
            statement("First", "s[]"),
            loop(
                "i",
                "0",
                "N",
                loop(
                    "j",
                    "i + 1",
                    "N",
                    loop(
                        "k", "max(i, j - 3)", f"min(N, j + {cut})", statement("Deep", "s[]", "s[]", "A[i + j, k - i]")
                    ),
                ),
                statement("Between", "B[i]", "s[]"),
            ),
            statement("Last", "r[]", "s[]", "B[0]"),
        ),
    }
    made |= {f"drawn, number {i + 1}": drawn(rng) for i in range(4)}
    answer = reference("day10.domains")
    return [domains_case(name, one, **as_text(answer(one))) for name, one in made.items()]


def drawn(rng: random.Random) -> Nest:
    """A nest at random of which every statement runs."""
    answer = reference("day10.domains")
    while True:
        one = _drawn(rng)
        running = answer(one)["domain"].get_set_list().n_set()
        if running == len(_names(one["body"])):
            return one


def _names(body: list[dict]) -> list[str]:
    return [name for item in body for name in ([item["statement"]] if "statement" in item else _names(item["body"]))]


def _drawn(rng: random.Random) -> Nest:
    """Two or three statements in loops up to three deep, with bounds, steps and guards at random."""
    left = list("STU"[: rng.randint(2, 3)])

    def subscript(iterators: list[str]) -> str:
        terms = [
            f"{rng.choice(('', '2*', '-'))}{name}"
            for name in rng.sample(iterators, min(len(iterators), rng.randint(1, 2)))
        ]
        return " + ".join([*terms, str(rng.randint(0, 3))])

    def cell(iterators: list[str]) -> str:
        return f"{rng.choice('ABC')}[{subscript(iterators)}, {subscript(iterators)}]"

    def block(iterators: list[str]) -> list[dict]:
        body: list[dict] = []
        while left and (not body or rng.random() < 0.6):
            kind = rng.choice(("loop", "loop", "if", "statement")) if iterators else "loop"
            if kind == "statement" or (kind == "loop" and len(iterators) == 3):
                body.append(statement(left.pop(0), cell(iterators), cell(iterators), cell(iterators)))
            elif kind == "if":
                name = rng.choice(iterators)
                test = rng.choice(
                    (f"{name} % 3 != 1", f"{name} > 2", f"{' + '.join(iterators)} < N", f"{name} == 1 or N > 7")
                )
                body.append(when(test, *block(iterators)))
            else:
                name = "ijk"[len(iterators)]
                inner = [f"{iterators[-1]} + 1", f"max(0, {iterators[-1]} - 2)"] if iterators else []
                start, stop = rng.choice(["0", "1", *inner]), rng.choice(["N", "M", f"min(N, {rng.randint(4, 9)})"])
                step = rng.choice((1, 1, 2, 3, -1, -2))
                if step < 0:
                    start, stop = f"{stop} - 1", f"{start} - 1"
                body.append(loop(name, start, stop, *block([*iterators, name]), step=step))
        return body

    body: list[dict] = []
    while left:
        body += block([])
    return nest("N M", *body)


# ---------------------------------------------------------------------------------------------------- dependences


def dependences(seed: int) -> list[Case]:
    rng = random.Random(seed)
    far, size = rng.randint(2, 4), rng.randint(5, 9)
    line = "[N] -> { S[i] : 0 <= i < N }"
    made = {
        "backwards": (line, f"{{ S[i] -> A[i - {far}] }}", "{ S[i] -> A[i] }", "{ S[i] -> [-i] }"),
        "every second cell": (line, f"{{ S[i] -> A[2i + {far}] }}", "{ S[i] -> A[i] }", "{ S[i] -> [i] }"),
        "a ring of cells": (
            line,
            f"{{ S[i] -> A[(i - 1) mod {size}] }}",
            f"{{ S[i] -> A[i mod {size}] }}",
            "{ S[i] -> [i] }",
        ),
        "what is not in the domain": (
            f"[N] -> {{ S[i] : 0 <= i < N and i % {far} = 0; T[i] : {far} <= i < N }}",
            "{ T[i] -> A[i]; T[i] -> A[i - 1]; U[i] -> A[i] }",
            "{ S[i] -> A[i]; T[i] -> B[i]; U[i] -> A[i] }",
            "{ S[i] -> [0, i]; T[i] -> [1, i]; U[i] -> [0, i] }",
        ),
        "written twice, read twice": (
            "[N] -> { S[i] : 0 <= i < N; T[i] : 0 <= i < N; U[i] : 0 <= i < N }",
            "{ T[i] -> A[i]; U[i] -> A[i]; U[i] -> A[0] }",
            "{ S[i] -> A[i]; T[i] -> A[i]; T[i] -> B[i]; U[i] -> C[i] }",
            "{ S[i] -> [0, i, 0]; T[i] -> [1, i, 0]; U[i] -> [1, i, 1] }",
        ),
        "lu": (
            "[N] -> { D[k, i] : 0 <= k < i < N; M[k, i, j] : 0 <= k < N and k < i < N and k < j < N }",
            "{ D[k, i] -> A[i, k]; D[k, i] -> A[k, k]; "
            "M[k, i, j] -> A[i, j]; M[k, i, j] -> A[i, k]; M[k, i, j] -> A[k, j] }",
            "{ D[k, i] -> A[i, k]; M[k, i, j] -> A[i, j] }",
            "{ D[k, i] -> [k, i, 0, 0]; M[k, i, j] -> [k, i, 1, j] }",
        ),
    }
    made |= {f"drawn, number {i + 1}": sweeps(rng) for i in range(3)}
    answer = reference("day10.dependences")
    cases = []
    for name, given in made.items():
        domain, *maps = given
        found = as_text(answer(isl.UnionSet(domain), *map(isl.UnionMap, maps)))
        cases.append(dependences_case(name, *given, **found))
    return cases


def sweeps(rng: random.Random) -> tuple[str, ...]:
    """Two statements on two arrays, in one nest or one after the other, forwards or backwards, with cells near by."""

    def cell() -> str:
        return f"{rng.choice('AB')}[i + {rng.randint(-1, 1)}, j + {rng.randint(-1, 1)}]"

    times = [f"{rng.choice(('', '-'))}i", f"{rng.choice(('', '-'))}j"]
    orders = (["{}", *times], [times[0], "{}", times[1]], [*times, "{}"])
    order = f"[{', '.join(rng.choice(orders))}]"
    return (
        "[N] -> { S[i, j] : 0 <= i < N and 0 <= j <= i; T[i, j] : 0 <= i < N and 0 <= j < N }",
        f"{{ S[i, j] -> {cell()}; S[i, j] -> {cell()}; T[i, j] -> {cell()} }}",
        f"{{ S[i, j] -> {cell()}; T[i, j] -> {cell()} }}",
        f"{{ S[i, j] -> {order.format(0)}; T[i, j] -> {order.format(1)} }}",
    )
