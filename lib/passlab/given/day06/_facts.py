"""Facts as plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Programs are records that travel: this import declares them.
from passlab.dataflow import Program  # noqa: F401
from passlab.given._plain import plain
from passlab.judge import Case


def call(answer: Callable, case: Case) -> Any:
    """Return what the answer finds in the case's program, as plain data."""
    return plain(answer(*case.build()))
