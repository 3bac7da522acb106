"""Day 10, from a schedule to a loop nest: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab import polyhedral
from passlab.exercises.day10._loops import Nest, kernel, other_order, same
from passlab.judge import Case, Finding

TRIANGLE = """
for i in range(N):
    for j in range(i + 1):
        C[i, j] = A[i, j] * 2
"""
RECTANGLE = """
for i in range(N):
    for j in range(M):
        C[i, j] = A[j, i] + i
"""
EVERY_FIFTH = """
for i in range(N):
    for j in range(M):
        if (i + 2 * j) % 5 == 0:
            C[i, j] = A[j, i] - 1
"""
TWO_LOOPS = """
for i in range(N):
    B[i] = A[i] * 3
for i in range(N):
    for j in range(i):
        C[i, j] = B[j] + A[i]
"""
STENCIL = """
for t in range(T):
    for i in range(1, N - 1):
        A[t + 1, i] = (A[t, i - 1] + A[t, i] + A[t, i + 1]) / 3
"""
EITHER = """
for i in range(N):
    if i % 3 == 0:
        A[i] = B[i] * 2
    else:
        A[i] = B[i] + 1
"""
SIEVE = """
for i in range(N):
    for j in range(M):
        if i % 3 == 0 or j % 4 == 1:
            C[i, j] = A[j, i] + i
"""
LINE = """
for i in range(N):
    A[i] = B[i] * 2
"""
#: Guards with a nested branch: a number that is not a multiple of 5 may be 1 more than a multiple of 7.
FIFTHS = """
for i in range(N):
    if i % 5 == 0 or i % 7 == 1:
        A[i] = B[i] * 2
for i in range(N):
    if i % 5 != 0:
        C[i] = B[i] + 1
"""
SOLVE = """
for i in range(N):
    x[i] = b[i]
    for j in range(i):
        x[i] -= L[i, j] * x[j]
    x[i] = x[i] / L[i, i]
"""


def generate_case(name: str, source: str, schedule: str, run: bool = True, **sizes: int) -> Case:
    about = ("valid", "same", "did") if run else ("valid", "did")
    return Case(name, lambda: (source, schedule, dict(sizes)), about, expect=Nest(source, schedule, sizes))


def cases() -> list[Case]:
    tiles = "{ S[i, j] -> [floor(i/4), floor(j/3), i, j] }"
    skewed = "{ S[t, i] -> [floor(t/3), floor((t + i)/4), t, t + i] }"
    both = "{ S[i, j] -> [floor((i - 3j)/4), floor((i + j)/3), i - 3j, j] }"
    corner = "{ S[i, j] -> [floor(i/4), floor(j/3), j, i] }"
    stretched = "{ S[i] -> [3i, 0]; T[i, j] -> [2i + 3, j + 1] }"
    odd_back = "{ S[i] -> [i] : i % 2 = 0; S[i] -> [10 - i] : i % 2 = 1 }"
    return [
        generate_case("a triangle by columns", TRIANGLE, "{ S[i, j] -> [j, i] }", N=7),
        generate_case("tiles that do not divide", RECTANGLE, tiles, N=10, M=8),
        generate_case("two statements in one loop", TWO_LOOPS, "{ S[i] -> [i, 0, 0]; T[i, j] -> [j, 1, i] }", N=6),
        generate_case("by diagonals, from the last", RECTANGLE, "{ S[i, j] -> [-i - j, j] }", run=False, N=5, M=7),
        generate_case("tiles of a triangle", TRIANGLE, corner, run=False, N=7),
        generate_case("even sums first", TRIANGLE, "{ S[i, j] -> [(i + j) mod 2, i, j] }", run=False, N=7),
        generate_case("one statement stretched", TWO_LOOPS, stretched, run=False, N=7),
        generate_case("skewed tiles", STENCIL, skewed, T=7, N=10),
        generate_case("tiles skewed both ways", RECTANGLE, both, run=False, N=7, M=9),
        generate_case("one branch or the other", EITHER, "{ S[i] -> [i]; T[i] -> [i] }", run=False, N=20),
        generate_case("one guard or the other", SIEVE, "{ S[i, j] -> [i - j, i] }", run=False, N=6, M=7),
        generate_case("odd ones from the end", LINE, odd_back, run=False, N=11),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    nest: Nest = case.expect
    program = nest.program
    function, broken = kernel(value, program, nest.sizes)
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    wrong = other_order(function, polyhedral.order(program, nest.schedule, nest.sizes))
    yield Finding("did", not wrong, wrong or "")
    if case.asks("same"):
        yield same(function, nest)
