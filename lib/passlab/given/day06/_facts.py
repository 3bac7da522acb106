"""Facts as plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Programs are records that travel: this import declares them.
from passlab.dataflow import Program  # noqa: F401
from passlab.judge import Case, scalar


def plain(value: Any) -> Any:
    """Return a fact as plain data: a set becomes a sorted tuple; what is no data, the first characters of its repr."""
    value = scalar(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(plain, value), key=repr))
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {key if isinstance(key, str) else f"{scalar(key)!r:.60}": plain(item) for key, item in value.items()}
    return f"{value!r:.60}"


def call(answer: Callable, case: Case) -> Any:
    """Return what the answer finds in the case's program, as plain data."""
    return plain(answer(*case.build()))
