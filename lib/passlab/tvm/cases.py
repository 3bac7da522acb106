"""Write cases over modules of Relay and Relax: the expectations of a pass, and the case around a program.

An expectation is a function (before, after) → None, or a message that says what is wrong. `passlab.relay.cases` and
`passlab.relax.cases` export these functions, and build the programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from passlab import judge
from passlab.judge import Case, Expect, Finding, as_decorator, plural
from passlab.judge.expect import Expectation
from passlab.tvm.judge import counts, judge_pass


def calls(n: int, op: str) -> str:
    return f"{plural(n, 'call')} of {op}"


def most(op: str, limit: int, why: str) -> Expectation:
    """Expect at most `limit` calls of `op`."""

    def count(after: Any) -> tuple[int, str]:
        return counts(after)[op], calls(counts(after)[op], op)

    return judge.at_most(limit, why, count)


def least(op: str, limit: int, why: str) -> Expectation:
    """Expect at least `limit` calls of `op`."""
    return judge.at_least(limit, why, calls(limit, op), lambda after: counts(after)[op])


def expecting(**options: Any) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge: valid, same, then the expectations. Keyword arguments go to `same`."""
    return judge.expecting(judge_pass, **options)


@as_decorator
def case(name: str, build: Callable[[], Any], *about: str, run: bool = True, **expect: Sequence[Expectation]) -> Case:
    """Return a case about valid, same (if it is run), the verdicts named, and those with expectations."""
    decides = ("valid", *(["same"] if run else []), *about, *expect)
    return Case(name, lambda: (build(),), decides, expect=Expect(**expect))
