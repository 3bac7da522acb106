"""Day 7, what a pipeline leaves: how an answer runs on a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.judge import Case, call_answer
from passlab.relay.folding import Libraries, build_once

#: The kernels of constants, of all cases: those of a block occur in several.
LIBRARIES: Libraries = {}


def call(answer: Callable, case: Case) -> Any:
    """Return the answer's result. Constants of all cases share their kernels, each of which takes 30 ms to build."""
    with build_once(LIBRARIES):
        return call_answer(answer, case)
