"""Shared parts of how the cases of day 2 are put to an answer."""

from __future__ import annotations

from typing import Any

from passlab.judge import scalar


def plain(value: Any) -> Any:
    """Return `value` as plain data (numbers, text, lists); anything else as the first 60 characters of its repr."""
    value = scalar(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return f"{value!r:.60}"
