"""`make bench`, part misconceptions: how often an unforeseen wrong answer gets a note, and a right one.

Two kinds of answers are unforeseen: mutants of the references that are not in the bank of known answers, and each
wrong answer of the bank, looked for among the others. Answers that behave alike on every case count once.

A note is *right*, for a mutant, if on cases that are drawn anew the answer loses the same verdicts as the named one, in
three quarters or more of the cases that either of them fails; for an answer of the bank, if the named one must lose the
same verdict. Anything else that is named is *wrong*, and the rest has no note. In grading, a search ends after
`verdicts.SEARCH_SECONDS`; here it has no limit, and answers that use up `RUN_SECONDS` on a case do not count.
"""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from autograder.authoring import answers, mutants, source
from autograder.authoring import prove as proving
from autograder.authoring.edits import edit
from autograder.bench.figures import Figure, at_least, not_measured
from autograder.engine.verifier.misconceptions import NEAR, Signature, match, signature
from autograder.engine.verifier.verdicts import RUN_SECONDS
from autograder.proofs.wire import WireJudge
from passlab import exercises
from passlab.process.parsing import parse

#: Mutants that are drawn for each exercise, the seed of the cases that are matched, and that of the new ones.
MOST, SEED, NEW = 12, 0, 1
#: The share of the notes on mutants that should be right.
RIGHT = 0.9


class Known(NamedTuple):
    """What an answer does on the visible and the hidden cases, and on new ones. `law`: the verdict it must lose."""

    note: str
    law: str
    seen: Signature
    new: Signature


def misconceptions(largest: int) -> Iterator[Figure | str]:
    """Yield the figures of all exercises whose answers need no compiler, which take seconds instead of minutes."""
    chosen = [e.id for day in exercises.days() for e in exercises.of_day(day) if e.flavour == "torch"]
    chosen = [name for name in chosen if not exercises.is_core(name)]
    yield f"the answers of {len(chosen)} exercises, and {MOST} mutants of each"
    totals: Counter[tuple[str, str]] = Counter()
    for counts in proving.for_each(chosen, partial(measure, most=MOST)):
        totals.update(counts)
    for kind, title, target in (("mutants", "unforeseen mutants", RIGHT), ("bank", "known answers among others", None)):
        tried, right, wrong = (totals[kind, outcome] for outcome in ("tried", "right", "wrong"))
        named = right + wrong
        base = f"{right} right, {wrong} wrong, {tried - named} without a note; {len(chosen)} exercises"
        share = 100 * named / max(tried, 1)
        yield Figure(f"{title} that get a note", f"{named} of {tried}, {share:.0f} %", base, value=share)
        if target and named:
            yield at_least(f"{title}: notes that are right", 100 * right / named, 100 * target, " %", base)
    yield from (not_measured(outcome.split(":")[0], outcome) for kind, outcome in totals if kind == "failed")


def measure(exercise_id: str, most: int) -> Counter[tuple[str, str]]:
    """Return (kind of answer, what became of it) → how many, for one exercise."""
    try:
        known = _put(exercise_id)
        wrong = [answer for answer in answers.load(exercise_id) if answer.mark.kind == "wrong"]
        bank = [known(answer, answer.mark.note, answer.mark.verdict) for answer in wrong]
        counts: Counter[tuple[str, str]] = Counter()
        for one in bank:
            counts.update(_counted("bank", one, [other for other in bank if other is not one], _same_law))
        signatures: list[Signature] = []
        for mutant in unforeseen(exercise_id, most):
            one = known(mutant, "", "")
            if one.seen not in signatures:
                signatures.append(one.seen)
                counts.update(_counted("mutants", one, bank, _still_alike))
        return counts
    except Exception as error:  # one exercise must not cost the others their figures
        return Counter({("failed", f"{exercise_id}: {type(error).__name__}: {str(error)[:200]}"): 1})


def unforeseen(exercise_id: str, most: int) -> Iterator[Any]:
    """Yield answers that are mutants of the reference, and not those of which the bank has the very change."""
    own = source.find(exercise_id).answer.text
    bank = vars(importlib.import_module(answers.module_name(exercise_id))).values()
    known = set()
    for entry in bank:
        if isinstance(entry, answers.Edit):
            tree = parse(own)
            for change in entry.changes:
                edit(tree, *change)
            known.add(ast.dump(tree))
    for mutant in mutants.mutants(exercise_id, most):
        if ast.dump(parse(mutant.text)) not in known:
            try:
                yield source.answer_of(exercise_id, mutant.text)
            except Exception:  # it does not even load
                continue


def _put(exercise_id: str) -> Callable[[Any, str, str], Known]:
    """Return what puts an answer to the cases, up to the first for which it takes more time than a known one may."""
    exercise = exercises.find(exercise_id)
    limited = replace(exercise, seconds=min(exercise.seconds, RUN_SECONDS))
    judge = WireJudge(limited)
    hidden, new = (answers.hidden_cases(exercise_id, seed) for seed in (SEED, NEW))
    visible = exercise.cases()

    def put(answer: Any, note: str, law: str) -> Known:
        for case in (*visible, *hidden, *new):
            judge.judge(limited, answer, [case])
            if any(known.status == "timeout" for known in judge.cases.get(id(answer), [])[-1:]):
                break
        losses = signature(judge.cases.pop(id(answer), []))
        total = len(visible) + len(hidden)
        return Known(note, law, losses[:total], losses[total:])

    return put


def _counted(kind: str, one: Known, bank: Sequence[Known], right: Callable[[Known, Known], bool]) -> dict:
    """Return what an answer counts: nothing, if it is right or ends its process or its time."""
    verdicts = {verdict for case in one.seen for verdict in case.lost}
    if not verdicts or any(case.status in ("timeout", "died") for case in one.seen):
        return {}
    note = match(one.seen, [(other.note, other.seen) for other in bank if other.law in verdicts and _alike(one, other)])
    if not note:
        return {(kind, "tried"): 1}
    named = next(other for other in bank if other.note == note)
    return {(kind, "tried"): 1, (kind, "right" if right(one, named) else "wrong"): 1}


def _alike(one: Known, other: Known) -> bool:
    """Return whether two answers lose the same on every case, without which grading names none."""
    pairs = zip(one.seen, other.seen, strict=False)
    return len(one.seen) == len(other.seen) and all((a.status, a.lost) == (b.status, b.lost) for a, b in pairs)


def _same_law(one: Known, other: Known) -> bool:
    return one.law == other.law


def _still_alike(one: Known, other: Known) -> bool:
    """Return whether two answers lose the same on new cases, in most of those that either fails."""
    failed = [(a.lost, b.lost) for a, b in zip(one.new, other.new, strict=False) if a.lost or b.lost]
    return sum(a == b for a, b in failed) >= NEAR * len(failed)
