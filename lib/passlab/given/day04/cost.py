"""Day 4, a cost model: the machine, and how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable

from passlab.judge import Case

#: The machine that an answer receives, with the numbers of an ordinary laptop. The question explains them.
MACHINE = {"bandwidth": 2e10, "launch": 1e-6, "step": 1e-10, "dear": 30, "registers": 16}


def call(answer: Callable, case: Case) -> list:
    return [answer(*choice) for choice in case.build()[0]]
