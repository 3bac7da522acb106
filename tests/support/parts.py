"""The parts of a value of JSON: what fuzzers exchange for something else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any


def places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    """Yield the path of every part of a value, itself included."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from places(part, (*at, key))


def put(value: Any, at: tuple, odd: Any) -> Any:
    """Return the value with something else at a place."""
    if not at:
        return odd
    made = copy.copy(value)
    made[at[0]] = put(value[at[0]], at[1:], odd)
    return made
