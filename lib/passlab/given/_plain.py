"""What an answer returned as plain data, which travels and can be compared."""

from __future__ import annotations

from typing import Any

from passlab.judge import scalar


def plain(value: Any, *, lists: bool = True) -> Any:
    """Return a value as plain data: a set as a sorted tuple, an object as the first 60 characters of its repr.

    lists: keep lists; otherwise they become tuples, for a judge that accepts either.
    """
    value = scalar(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, set | frozenset):
        return tuple(sorted((plain(part, lists=lists) for part in value), key=repr))
    if isinstance(value, tuple | list):
        parts = [plain(part, lists=lists) for part in value]
        return parts if lists and isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else f"{scalar(key)!r:.60}": plain(part, lists=lists)
            for key, part in value.items()
        }
    return f"{value!r:.60}"
