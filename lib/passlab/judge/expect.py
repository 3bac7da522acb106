"""Judge a pass over any IR: the five verdicts in order, and expectations as data.

    Case("two equal products", build, expect=Expect(did=[most("matmul", 1, "…")]))

An expectation is a function (before, after) → None, or a message. `passlab.fx.cases` and `passlab.relay.cases` offer
expectations for their IR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from passlab.judge.verdicts import Case, Finding
from passlab.judge.words import is_or_are

#: With fewer possible wrong claims, an answer may make all of them by one mistake.
FEW_CLAIMS = 8
#: (before, after) → None when it is met, else a message that says what is wrong
Expectation = Callable[[Any, Any], str | None]
#: (before, after, case) → None when the law is kept, else a message that says where it was broken
Law = Callable[[Any, Any, Case], str | None]


@dataclass(frozen=True)
class Expect:
    """The expectations of the program after the pass, by verdict."""

    did: Sequence[Expectation] = ()
    spared: Sequence[Expectation] = ()
    cost: Sequence[Expectation] = ()


def law_of(verdict: str) -> Law:
    """Return the law made of a case's expectations for a verdict: its message is that of the first one not met."""

    def law(before: Any, after: Any, case: Case) -> str | None:
        return next((s for e in getattr(case.expect, verdict) if (s := e(before, after))), None)

    return law


def too_many(why: str, rest: str, limit: int) -> str:
    """Return the message for a program with more than `limit` left; `rest` says what is left."""
    return f"{why} The result has {rest}; {'none' if limit == 0 else f'at most {limit}'} should be left."


def why_not_selective(wrong: int, possible: int, what: str) -> str:
    """Return why an answer that misses nothing has still found nothing, or "": it claims nearly everything.

    wrong: the number of its wrong claims; possible: how many there can be; `what`: to what they amount. One mistake may
    make most of them, and all where few are possible.
    """
    if possible < FEW_CLAIMS or 10 * wrong <= 9 * possible:
        return ""
    return f"It claims {wrong:,} of the {possible:,} {what}. An answer that claims nearly everything finds nothing."


def at_most(limit: int, why: str, count: Callable[[Any], tuple[int, str]]) -> Expectation:
    """Expect at most `limit` of something. count(after): how many there are, and how to say it ("2 calls of add")."""

    def law(before: Any, after: Any) -> str | None:
        number, text = count(after)
        return too_many(why, text, limit) if number > limit else None

    return law


def at_least(limit: int, why: str, amount: str, count: Callable[[Any], int]) -> Expectation:
    """Expect at least `limit` of something. amount: how to say that many ("2 calls of add"); count(after): how many."""

    def law(before: Any, after: Any) -> str | None:
        number = count(after)
        return None if number >= limit else f"{why} Of {amount}, {number} {is_or_are(number)} left."

    return law


def pass_judge(
    valid: Callable[[Any, Any], Finding],
    opened: Callable[[Any, Any], tuple[Any, Any]],
    same: Callable[[Any, Any, Case], Finding],
    did: Law,
    spared: Law | None = None,
    cost: Law | None = None,
) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge of a pass: valid, then same, then the exercise's own laws.

    A case's first built argument is the program before the pass. `opened` converts both programs to the form that
    `same` and the laws read. A case that does not ask about `same` does not run its programs.
    """

    def judge(case: Case, value: object) -> Iterator[Finding]:
        before = case.build()[0]
        finding = valid(before, value)
        yield finding
        if not finding.ok:
            return
        before, after = opened(before, value)
        if case.asks("same"):
            yield same(before, after, case)
        for verdict, law in (("did", did), ("spared", spared), ("cost", cost)):
            if law is not None:
                sentence = law(before, after, case)
                yield Finding(verdict, sentence is None, sentence or "", before=before, after=after)

    return judge


def expecting(judge_pass: Callable, **options: Any) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge for cases with an `Expect`. `judge_pass` makes the judge of an IR's passes from three laws.

    Where breaking `spared` changed the meaning, the finding on `same` states that cause first.
    """
    findings_on = judge_pass(law_of("did"), law_of("spared"), law_of("cost"), **options)

    def judge(case: Case, value: object) -> Iterator[Finding]:
        findings = list(findings_on(case, value))
        broken = next((f for f in findings if f.verdict == "spared" and not f.ok), None)
        for finding in findings:
            if finding.verdict == "same" and not finding.ok and broken:
                message = f"{broken.message} {finding.message}"
                finding = replace(finding, message=message, before=broken.before, after=broken.after)
            yield finding

    return judge
