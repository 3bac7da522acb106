"""Find the misconception behind a wrong answer by comparing its behaviour on every case with known wrong answers.

The answer's text does not count. Two answers behave alike if they lose the same verdicts on every case; of several such
known answers, the one that returns the same values on most of the failed cases is chosen.

A wrong note is worse than none, so:
- an answer that returns no value on any case gets no note: it shows only that it breaks;
- one that fails every case is distinguished from other such answers by its values alone: half of them must agree;
- one without an exact match (two mistakes in one answer, say) gets the nearest note only if, of the cases
  that one of the two fails, three quarters (so at least three of four) have the same result, value included, and no
  other note is as near.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from autograder.engine.data import CaseResult


class Behaviour(NamedTuple):
    """What became of an answer on a case. `lost`: verdicts, sorted; `fingerprint`: its value's, or ""."""

    name: str
    status: str
    lost: list[str]
    fingerprint: str


Signature = list[Behaviour]

NEAR = 0.75


def signature(cases: Iterable[CaseResult]) -> Signature:
    """Return an answer's behaviour, case by case."""
    return [Behaviour(case.name, case.status, sorted(case.lost), case.fingerprint) for case in cases]


def _same_loss(one: Behaviour, other: Behaviour) -> bool:
    return (one.status, one.lost) == (other.status, other.lost)


def _same_value(one: Behaviour, other: Behaviour) -> bool:
    return bool(one.fingerprint) and one.fingerprint == other.fingerprint


def match(seen: Signature, known: Iterable[tuple[str, Signature]]) -> str:
    """Return the note of the wrong answer that behaves like this one, or "". `known`: (note, signature), in order."""
    mine = {case.name: case for case in seen}
    failed = [name for name, case in mine.items() if case.lost]
    if not failed or not any(case.fingerprint for case in seen):
        return ""
    exact: list[tuple[int, str]] = []
    near: dict[str, float] = {}
    for note, other in known:
        theirs = {case.name: case for case in other}
        if not any(case.fingerprint for case in other):
            continue
        if mine.keys() == theirs.keys() and all(_same_loss(mine[name], theirs[name]) for name in mine):
            values = sum(_same_value(mine[name], theirs[name]) for name in failed)
            if len(failed) < len(mine) or 2 * values >= len(mine):
                exact.append((values, note))
            continue
        either = set(failed) | {name for name, case in theirs.items() if case.lost}
        both = [(mine[name], theirs[name]) for name in either if name in mine and name in theirs]
        alike = sum(_same_loss(*pair) and _same_value(*pair) for pair in both)
        if alike >= NEAR * len(either):
            near[note] = max(near.get(note, 0.0), alike / len(either))
    if exact:
        values, note = max(exact, key=lambda found: found[0])
        return note if values or len({note for _, note in exact}) == 1 else ""
    best = max(near.values(), default=0.0)
    nearest = [note for note, share in near.items() if share == best]
    return nearest[0] if len(nearest) == 1 else ""
