"""Delta debugging (Zeller and Hildebrandt, IEEE Trans. Software Eng. 28(2), 2002): the search that every IR shares.

A state is a program that fails, with its `size` (a tuple; a smaller one is better). An IR says how an edit makes
another state of it, and which edits to try, in large pieces first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class State(Protocol):
    program: Any

    @property
    def size(self) -> tuple[int, ...]: ...


class Shrinker:
    """Keeps an edit when the program still fails and has become smaller, so the search ends.

    fails: called with `state.program`; where it raises, the program counts as not failing. budget: most calls of it.
    """

    def __init__(self, state: State, fails: Callable[[Any], bool], budget: int):
        self.state, self.fails, self.budget = state, fails, budget

    def steps(self) -> Sequence[Callable[[], None]]:
        """Return the steps of one round; each step makes attempts."""
        raise NotImplementedError

    def edited(self, edit: Any) -> State | None:
        """Return the state after an edit, or None where the edit is not possible."""
        raise NotImplementedError

    def run(self) -> Any:
        """Return the smallest failing program found."""
        progress = True
        while progress and self.budget > 0:
            before = self.state.size
            for step in self.steps():
                step()
            progress = self.state.size < before
        return self.state.program

    def attempt(self, edit: Any) -> bool:
        """Make the edit; keep the result if it is smaller and still fails. Return whether it was kept."""
        if self.budget <= 0:
            return False
        candidate = self.edited(edit)
        if candidate is None or candidate.size >= self.state.size:
            return False
        self.budget -= 1
        try:
            failed = bool(self.fails(candidate.program))
        except Exception:
            return False
        if failed:
            self.state = candidate
        return failed


def sample(items: Sequence, most: int = 16) -> Sequence:
    """Return about `most` of the items, evenly spaced, including the first: enough for one round."""
    return items[:: max(1, len(items) // most)]
