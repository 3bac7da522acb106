"""Day 9, reuse: a program travels as its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.judge import Case
from passlab.mlir import parse


def call(answer: Callable, case: Case) -> Any:
    """Return what the answer makes of the module with the case's text."""
    (text,) = case.build()
    return answer(parse(text))
