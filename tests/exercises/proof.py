"""The proof of one exercise through the wire: all that an answer is given, and all that it gives, travels as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from autograder.authoring import answers
from autograder.authoring.prove import prove, refused
from autograder.engine import wire
from autograder.engine.data import CaseResult
from autograder.engine.outcomes import to_wire
from autograder.engine.verifier.misconceptions import signature
from passlab import exercises
from passlab.judge import Case, Exercise, Finding, Judgement, Outcome, conclude, judge_outcome, run, unfit
from tests.support.amounts import FULL


def through(exercise: Exercise, answer: Callable, case: Case) -> tuple[Outcome, bytes]:
    """What comes of a case where the answer knows its arguments and what it is about, and no more; and its payload."""
    given = wire.decode(wire.encode(tuple(case.build())))
    outcome = run(exercise, answer, Case("", lambda: given, case.about))
    head, payload = to_wire(outcome)
    if head["status"] == "refused":
        return replace(outcome, status="raised", value=None, error=head["error"]), b""
    try:
        return (replace(outcome, value=wire.decode(payload)) if payload else outcome), payload
    except wire.Refused as refused:  # as the verifier has it
        return replace(outcome, status="raised", value=None, error=f"The result cannot be judged: {refused}"), payload


class Seen:
    """A judge like `passlab.judge.judge`, over the wire, that notes how each answer did on each case."""

    def __init__(self):
        self.cases: dict[int, list[CaseResult]] = {}  # by the answer's id, in the order of the proof's rows

    def judge(self, exercise: Exercise, answer: Callable, cases: Sequence[Case] | None = None) -> Judgement:
        known = self.cases.setdefault(id(answer), [])
        if why := unfit(exercise, answer):
            return Judgement(exercise, [Finding("did", False, why)])
        payloads: list[bytes] = []
        tried = exercise.cases() if cases is None else cases

        def put():
            for case in tried:
                outcome, payload = through(exercise, answer, case)
                payloads.append(payload)
                yield outcome

        def findings(exercise: Exercise, case: Case, outcome: Outcome) -> list[Finding]:
            found = judge_outcome(exercise, case, outcome)
            lost = tuple(sorted({finding.verdict for finding in found if not finding.ok}))
            value = wire.fingerprint(payloads[-1]) if payloads[-1] else ""
            known.append(CaseResult(case.name, cases is not None, outcome.status, lost, value))
            return found

        return conclude(exercise, tried, put(), findings)


def refusals(exercise_id: str, seeds: Sequence[int]) -> list[str]:
    """A sentence for each right answer that loses a point on the hidden cases of one of these seeds.

    The reference is put to every seed, the other right answers, for want of time, to the first only, or to all in
    `make test-full`.
    """
    exercise = exercises.find(exercise_id)
    reference = answers.reference(exercise_id)
    others = [answer for answer in answers.load(exercise_id) if answer.mark.kind == "right"]
    said: list[str] = []
    for at, seed in enumerate(seeds):
        right = [reference, *(others if FULL or not at else ())]
        said += refused(exercise, seed, right)
    return said


def report(exercise_id: str, seed: int) -> str:
    """The proof as JSON, with `signatures`: answer → how it did on each case."""
    seen = Seen()
    proof = prove(exercise_id, seed, seen.judge)
    done = zip(proof.rows, seen.cases.values(), strict=proof.ok)  # what cannot be judged has no row
    signatures = {row.name: signature(cases) for row, cases in done}
    return json.dumps(asdict(proof) | {"ok": proof.ok, "signatures": signatures})
