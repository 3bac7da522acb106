"""Day 11, near: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable

from passlab.judge import Case


def call(answer: Callable, case: Case) -> list:
    """Call the answer once for each network of the case."""
    return [answer(list(words), *rest) for words, *rest in case.build()[0]]
