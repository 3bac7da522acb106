"""Watch how much an answer of day 1 does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from passlab.judge import Case, record

#: An answer whose work is limited may make this many calls (Python functions and built-ins) on one graph. Comparing
#: all pairs of nodes fits; walking all paths of `LADDER` does not.
MOST_CALLS = 1_000_000


@record
@dataclass(frozen=True)
class TooMuch:
    """In place of a value: the answer did more work than promised. `what`: a key of `TOO_MUCH`."""

    what: str


class _Stop(BaseException):
    """Raised inside an answer that makes too many calls; no `except Exception` catches it."""


def frugally(answer: Callable, case: Case) -> Any:
    """Put a case to an answer; in a case about cost, stop after MOST_CALLS calls.

    An answer could switch the counting off. It gains nothing: 2 ** LADDER paths take longer than any time limit.
    """
    arguments = case.build()
    if "cost" not in case.about:
        return answer(*arguments)
    calls = 0
    before, deepest = sys.getprofile(), sys.getrecursionlimit()

    def count(frame, event, arg):
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls > MOST_CALLS:
            raise _Stop

    sys.setprofile(count)
    try:
        return answer(*arguments)
    except _Stop:
        return TooMuch("calls")
    except RecursionError:
        return TooMuch("depth")
    finally:
        sys.setprofile(before)
        sys.setrecursionlimit(deepest)
