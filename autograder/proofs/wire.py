"""The proof of an exercise through the wire: all that an answer is given, and all that it returns, travels as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from autograder.authoring import answers
from autograder.authoring.prove import Proof, losses, prove
from autograder.engine import wire
from autograder.engine.data import CaseResult
from autograder.engine.outcomes import to_wire
from autograder.engine.verifier.misconceptions import signature
from autograder.engine.verifier.verdicts import of_the_moment
from passlab import exercises
from passlab.judge import (
    Case,
    Exercise,
    Finding,
    Judgement,
    Outcome,
    conclude,
    judge,
    judge_outcome,
    run,
    why_not_an_answer,
)

#: Hidden cases drawn from this many new seeds belong to a full proof.
NEW_SEEDS = 3


def run_case(exercise: Exercise, answer: Callable, about: Sequence[str], arguments: bytes) -> tuple[Outcome, bytes]:
    """Return the outcome of a case, and its payload, where the answer knows the case's arguments and verdicts only."""
    values = wire.decode(arguments)
    outcome = run(exercise, answer, Case("", lambda: values, about))
    head, payload = to_wire(outcome)
    if head["status"] == "refused":
        return replace(outcome, status="raised", value=None, error=head["error"]), b""
    try:
        return (replace(outcome, value=wire.decode(payload)) if payload else outcome), payload
    except wire.Refused as refused:  # as the verifier has it
        return replace(outcome, status="raised", value=None, error=f"The result cannot be judged: {refused}"), payload


class WireJudge:
    """A judge like `passlab.judge.judge`, over the wire. `cases`: how each answer did on each case.

    Most answers differ in a few cases only: what another one has returned there, to the byte, is not judged again.
    """

    def __init__(self, exercise: Exercise):
        self.cases: dict[int, list[CaseResult]] = {}  # by the answer's id, in the order of the proof's rows
        self.visible = exercise.cases()
        self.arguments: dict[int, tuple[Case, bytes]] = {}  # by the case's id; a case that is kept keeps its id
        self.findings: dict[tuple, list[Finding]] = {}

    def judge(self, exercise: Exercise, answer: Callable, cases: Sequence[Case] | None = None) -> Judgement:
        known = self.cases.setdefault(id(answer), [])
        if reason := why_not_an_answer(exercise, answer):
            return Judgement(exercise, [Finding("did", False, reason)])
        payloads: list[bytes] = []
        tried = self.visible if cases is None else cases

        def put():
            for case in tried:
                if id(case) not in self.arguments:
                    self.arguments[id(case)] = case, wire.encode(tuple(case.build()))
                outcome, payload = run_case(exercise, answer, case.about, self.arguments[id(case)][1])
                payloads.append(payload)
                yield outcome

        def findings(exercise: Exercise, case: Case, outcome: Outcome) -> list[Finding]:
            results = self._judged(exercise, case, outcome, payloads[-1])
            verdicts = tuple(sorted({finding.verdict for finding in results if not finding.ok}))
            value = wire.fingerprint(payloads[-1]) if payloads[-1] else ""
            known.append(CaseResult(case.name, cases is not None, outcome.status, verdicts, value))
            return results

        return conclude(exercise, tried, put(), findings)

    def _judged(self, exercise: Exercise, case: Case, outcome: Outcome, payload: bytes) -> list[Finding]:
        key = (id(case), outcome.status, outcome.error, hashlib.sha256(payload).digest())
        if key not in self.findings:
            before = of_the_moment()
            results = judge_outcome(exercise, case, outcome)
            if not payload or before != of_the_moment():
                return results
            self.findings[key] = results
        return self.findings[key]


def refusals(exercise_id: str, seeds: Sequence[int], all_answers: bool = False) -> list[str]:
    """Return a sentence for each right answer that loses a point on the hidden cases of one of these seeds.

    And one for each seed on which an answer that does nothing has points.

    The reference is put to every seed, the other right answers to the first only, unless `all_answers`.
    """
    exercise = exercises.find(exercise_id)
    reference = answers.reference(exercise_id)
    others = [answer for answer in answers.load(exercise_id) if answers.kind(exercise_id, answer) == "right"]
    sentences: list[str] = []
    for number, seed in enumerate(seeds):
        right = [reference, *(others if all_answers or not number else ())]
        sentences += losses(exercise, seed, right, WireJudge(exercise).judge)
    return sentences


def report(exercise_id: str, seed: int) -> str:
    """Return the proof as JSON, with `signatures`: answer → how it did on each case."""
    judge = WireJudge(exercises.find(exercise_id))
    proof = prove(exercise_id, seed, judge.judge)
    rows = zip(proof.rows, judge.cases.values(), strict=proof.ok)  # what cannot be judged has no row
    signatures = {row.name: signature(cases) for row, cases in rows}
    return json.dumps(asdict(proof) | {"ok": proof.ok, "signatures": signatures})


def full_proof(exercise_id: str, seed: int = 0, seeds: int = 1) -> Proof:
    """Return the kill table of an exercise, over the wire; its problems name right answers that lose a point on hidden
    cases of seeds drawn now. seed, seeds: as for `autograder.authoring.prove.prove`."""
    judge = WireJudge(exercises.find(exercise_id))
    proof = prove(exercise_id, seed, judge.judge, seeds)
    if proof.ok:
        first = answers.run_seed()
        proof.problems += refusals(exercise_id, range(first, first + NEW_SEEDS))
    return proof


def first_failure(exercise_id: str, answer: Callable, name: str) -> tuple[str, str] | None:
    """Return what an answer loses on one visible case: the first verdict, and the sentence."""
    exercise = exercises.find(exercise_id)
    (case,) = [case for case in exercise.cases() if case.name == name]
    failure = judge(exercise, answer, [case]).failure
    return (failure.verdict, failure.message) if failure else None
