"""Names that are not there: which ones they may have been meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], count: int = 2, cutoff: float = 0.5) -> str:
    """Return a question with the names nearest to `name`, to follow a sentence that rejects it, or ""."""
    near = get_close_matches(name, list(known), count, cutoff)
    return f" Did you mean {' or '.join(near)}?" if near else ""
