"""The proof of one exercise through the wire: all that an answer is given, and all that it gives, travels as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from autograder.authoring import answers
from autograder.authoring.prove import losses, prove
from autograder.engine import wire
from autograder.engine.data import CaseResult
from autograder.engine.outcomes import to_wire
from autograder.engine.verifier.misconceptions import signature
from autograder.engine.verifier.verdicts import of_the_moment
from passlab import exercises
from passlab.judge import Case, Exercise, Finding, Judgement, Outcome, conclude, judge, judge_outcome, run, unfit
from tests.support.amounts import FULL


def through(exercise: Exercise, answer: Callable, about: Sequence[str], arguments: bytes) -> tuple[Outcome, bytes]:
    """What comes of a case where the answer knows its arguments and what it is about, and no more; and its payload."""
    given = wire.decode(arguments)
    outcome = run(exercise, answer, Case("", lambda: given, about))
    head, payload = to_wire(outcome)
    if head["status"] == "refused":
        return replace(outcome, status="raised", value=None, error=head["error"]), b""
    try:
        return (replace(outcome, value=wire.decode(payload)) if payload else outcome), payload
    except wire.Refused as refused:  # as the verifier has it
        return replace(outcome, status="raised", value=None, error=f"The result cannot be judged: {refused}"), payload


class Seen:
    """A judge like `passlab.judge.judge`, over the wire, that notes how each answer did on each case.

    Most answers differ in a few cases only: what another one has returned there, to the byte, is not judged again.
    """

    def __init__(self, exercise: Exercise):
        self.cases: dict[int, list[CaseResult]] = {}  # by the answer's id, in the order of the proof's rows
        self.visible = exercise.cases()
        self.arguments: dict[int, tuple[Case, bytes]] = {}  # by the case's id; a case that is kept keeps its id
        self.found: dict[tuple, list[Finding]] = {}

    def judge(self, exercise: Exercise, answer: Callable, cases: Sequence[Case] | None = None) -> Judgement:
        known = self.cases.setdefault(id(answer), [])
        if why := unfit(exercise, answer):
            return Judgement(exercise, [Finding("did", False, why)])
        payloads: list[bytes] = []
        tried = self.visible if cases is None else cases

        def put():
            for case in tried:
                if id(case) not in self.arguments:
                    self.arguments[id(case)] = case, wire.encode(tuple(case.build()))
                outcome, payload = through(exercise, answer, case.about, self.arguments[id(case)][1])
                payloads.append(payload)
                yield outcome

        def findings(exercise: Exercise, case: Case, outcome: Outcome) -> list[Finding]:
            found = self._judged(exercise, case, outcome, payloads[-1])
            lost = tuple(sorted({finding.verdict for finding in found if not finding.ok}))
            value = wire.fingerprint(payloads[-1]) if payloads[-1] else ""
            known.append(CaseResult(case.name, cases is not None, outcome.status, lost, value))
            return found

        return conclude(exercise, tried, put(), findings)

    def _judged(self, exercise: Exercise, case: Case, outcome: Outcome, payload: bytes) -> list[Finding]:
        key = (id(case), outcome.status, outcome.error, hashlib.sha256(payload).digest())
        if key not in self.found:
            before = of_the_moment()
            found = judge_outcome(exercise, case, outcome)
            if not payload or before != of_the_moment():
                return found
            self.found[key] = found
        return self.found[key]


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
        said += losses(exercise, seed, right, Seen(exercise).judge)
    return said


def report(exercise_id: str, seed: int) -> str:
    """The proof as JSON, with `signatures`: answer → how it did on each case."""
    seen = Seen(exercises.find(exercise_id))
    proof = prove(exercise_id, seed, seen.judge)
    done = zip(proof.rows, seen.cases.values(), strict=proof.ok)  # what cannot be judged has no row
    signatures = {row.name: signature(cases) for row, cases in done}
    return json.dumps(asdict(proof) | {"ok": proof.ok, "signatures": signatures})


def lost(exercise_id: str, answer: Callable, name: str) -> tuple[str, str] | None:
    """What is lost by an answer on one visible case: the first verdict, and the sentence."""
    exercise = exercises.find(exercise_id)
    (case,) = [case for case in exercise.cases() if case.name == name]
    failure = judge(exercise, answer, [case]).failure
    return (failure.verdict, failure.message) if failure else None
