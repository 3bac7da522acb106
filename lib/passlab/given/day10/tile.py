"""Day 10, a schedule that is fast: the programs, and how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab import polyhedral
from passlab.given.day10._isl import as_text, errors_in_words
from passlab.judge import Case

MATMUL = """
for i in range(N):
    for j in range(M):
        C[i, j] = 0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
"""

GRAM = """
for i in range(N):
    for j in range(i + 1):
        C[j, i] = 0
        for k in range(K):
            C[j, i] += A[k, i] * A[k, j]
"""

#: Name → program, as Python loops.
SOURCES = {"matmul": MATMUL, "gram": GRAM}


@errors_in_words
def call(answer: Callable, case: Case) -> Any:
    """Call the answer with the program of the case, and return its schedule as text."""
    name, sizes = case.build()
    return as_text(answer(polyhedral.parse(SOURCES[name], name), sizes))
