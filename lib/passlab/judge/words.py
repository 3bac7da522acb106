"""Words of the judges' sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def plural(number: int, one: str, many: str = "") -> str:
    """ "1 pair", "2 pairs"; `many` where an s is not enough."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[Any]) -> str:
    """ "a, b and c", cut when long, of names or of nodes."""
    shown = [getattr(n, "name", str(n)) for n in names[:5]] + ([f"{len(names) - 5} more"] if len(names) > 5 else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def and_more(names: Iterable[str], most: int = 5) -> str:
    """ "a, b, c", and "a, b, c and 4 more" where there are more than `most`."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
