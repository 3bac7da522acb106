"""Words for the judges' messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def plural(number: int, one: str, many: str = "") -> str:
    """Return "1 pair", "2 pairs"; `many`: an irregular plural."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def is_or_are(number: int) -> str:
    """Return the form of "to be" for so many."""
    return "is" if number == 1 else "are"


def there_are(number: int, one: str) -> str:
    """Return "There is 1 pair", "There are 2 pairs"."""
    return f"There {is_or_are(number)} {plural(number, one)}"


def enough(number: int) -> str:
    """Return "1 is enough", "2 are enough"."""
    return f"{number} {is_or_are(number)} enough"


def times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def listed(names: Sequence[Any]) -> str:
    """Return "a, b and c", cut when long, of names or of nodes."""
    shown = [getattr(n, "name", str(n)) for n in names[:5]] + ([f"{len(names) - 5} more"] if len(names) > 5 else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def and_more(names: Iterable[str], most: int = 5) -> str:
    """Return "a, b, c", or "a, b, c and 4 more" for more than `most` names."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def shown(value: Any, most: int = 60) -> str:
    """Return the beginning of any value as Python writes it."""
    try:
        return repr(value[:most]) if type(value) is str else repr(value)[:most]
    except Exception:  # Python writes no integers of more than 4300 digits; a repr may be the learner's
        return f"a value of type {type(value).__name__} that cannot be printed"
