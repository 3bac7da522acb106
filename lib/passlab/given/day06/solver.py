"""Day 6, one solver: an analysis travels by its name, and is made in the process that runs the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.dataflow import ANALYSES
from passlab.given._plain import plain
from passlab.judge import Case


def call(answer: Callable, case: Case) -> Any:
    """Solve the case's program for the analysis of its name; return the facts and the visits as plain data."""
    program, name = case.build()
    return plain(answer(program, ANALYSES[name]))
