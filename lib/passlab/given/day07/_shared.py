"""Shared parts of how an answer runs on the cases of day 7."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    """Return TVM's own string type as str."""
    return str(value) if isinstance(value, str) else value
