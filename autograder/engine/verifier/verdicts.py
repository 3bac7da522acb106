"""From the outcomes of one question to its verdict: the judge, what of it a learner may see, and the misconception.

Judging is a function of the data: the same bytes on the same case give the same findings. They can be kept (`Seen`), so
that what many learners return in common is judged once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from torch.fx import GraphModule

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from autograder.engine import wire
from autograder.engine.data import CaseResult, Verdict
from autograder.engine.outcomes import told
from autograder.engine.verifier.misconceptions import match, signature
from passlab import exercises
from passlab.judge import Case, Exercise, Finding, Judgement, Outcome, conclude, judge_outcome, run
from passlab.notebook.ui import picture, report

#: What a learner is told of a hidden case. The judge's own sentence would name parts of the case, or quote what came
#: back, into which an answer may have copied it.
ON_HIDDEN = {
    "valid": "What came back is not a well-formed result.",
    "same": "The result does not compute the same function.",
    "did": "It did not do all that it must.",
    "spared": "It touched something that it must leave alone.",
    "cost": "It did not save what it promised.",
}

Key = tuple[str, int, int, str]


def for_learner(result: Judgement, visible: Iterable[Case]) -> Judgement:
    """The same judgement as a learner may see it: hidden cases go unnamed, and the title says that they are in it."""
    exercise, known = result.exercise, {case.name for case in visible}
    findings = [f if f.case in known else replace(f, case="one of the hidden ones") for f in result.findings]
    return replace(
        result, exercise=replace(exercise, title=f"{exercise.title}, hidden cases included"), findings=findings
    )


@cache
def cases_of(exercise_id: str, seed: int) -> tuple[list[Case], int]:
    """The visible and the hidden cases of an exercise, and how many of them are visible."""
    visible = list(exercises.find(exercise_id).cases())
    return [*visible, *hidden_cases(exercise_id, seed)], len(visible)


@cache
def payloads(exercise_id: str, seed: int) -> list[bytes]:
    """The arguments of every case as they travel."""
    return [wire.encode(tuple(case.build())) for case in cases_of(exercise_id, seed)[0]]


@dataclass
class Seen:
    """Findings on one value for one case, without graphs; a picture (text, svg) if one was drawn."""

    findings: list[Finding]
    fingerprint: str = ""
    drawn: tuple[str, str] | None = None

    def to_json(self) -> dict:
        rows = [(f.verdict, f.ok, f.message, f.case) for f in self.findings]
        return {"findings": rows, "fingerprint": self.fingerprint, "drawn": self.drawn}

    @classmethod
    def from_json(cls, data: dict) -> Seen:
        drawn = tuple(data["drawn"]) if data["drawn"] else None
        return cls([Finding(*row) for row in data["findings"]], data["fingerprint"], drawn)


class Question:
    """One question of a submission: what came back (`heads` and `values`, one each for every case that was put).

    `kept`: findings known from earlier questions; what is found anew is added to `fresh`.
    """

    def __init__(self, exercise: str, seed: int, heads: list[dict], values: list[bytes], kept: dict[Key, Seen]):
        self.exercise, self.seed = exercises.find(exercise), seed
        self.cases, self.visible = cases_of(exercise, seed)
        self.heads, self.values = heads, values
        self.kept, self.fresh = kept, {}
        self.seen: list[Seen] = []

    def verdict(self, misconceptions: Misconceptions) -> Verdict:
        """Judge every case and make the verdict, as its learner may see it."""
        put = zip(self.cases, map(self._outcome, range(len(self.heads))), strict=False)
        result = conclude(self.exercise, put, self._findings)
        cases = [self._case_result(at, seen) for at, seen in enumerate(self.seen)]
        drawn = self._drawn(result)
        card = report(for_learner(result, self.cases[: self.visible]), draw=lambda _: drawn)
        ended = (at for at, head in enumerate(self.heads) if head["status"] in ("died", "timeout", "missing"))
        crash = next((self._outcome(at).error for at in ended), "")
        return Verdict(
            exercise=self.exercise.id,
            points=min(round(result.points, 4), result.total),
            total=result.total,
            seed=self.seed,
            verdicts=result.verdicts,
            message=result.failure.message if result.failure else "",
            attempted=result.attempted,
            html=card.html,
            text=card.text,
            misconception="" if result.ok or crash else misconceptions.name(self.exercise.id, self.seed, cases),
            crash=crash,
            cases=cases,
        )

    def _outcome(self, at: int) -> Outcome:
        """An outcome without its value. Of an exception in a hidden case only the class is told."""
        head, status = self.heads[at], self.heads[at]["status"]
        error = head["error"]
        if at >= self.visible:
            error = {
                "raised": f"It raised {head['error_kind'] or 'an exception'}.",
                "refused": "What came back holds something that cannot leave the notebook.",
                "timeout": f"It was still running after {self.exercise.seconds:g} s.",
                "missing": "There was no answer to put it to.",
            }.get(status, error)
        if status in ("died", "refused", "missing"):
            status = "raised"
        return Outcome(status, None, error, int(head["printed"]), head["seconds"], head["in_place"])

    def _key(self, at: int) -> Key:
        said = f"{self.heads[at]['status']}\0{self.heads[at]['error']}\0".encode()
        return (self.exercise.id, self.seed, at, hashlib.sha256(said + self.values[at]).hexdigest())

    def _findings(self, exercise: Exercise, case: Case, outcome: Outcome) -> list[Finding]:
        at = len(self.seen)
        key = self._key(at)
        seen = self.kept.get(key)
        if seen is None:
            seen = self.fresh[key] = Seen(self.judged(at), self.fingerprint(at))
        self.seen.append(seen)
        return seen.findings

    def judged(self, at: int) -> list[Finding]:
        """The judge's findings on one case, graphs included."""
        case, outcome = self.cases[at], self._outcome(at)
        if outcome.status == "ok":
            try:
                outcome = replace(outcome, value=wire.decode(self.values[at]))
            except wire.Refused as refused:
                outcome = replace(outcome, status="raised", error=f"What came back cannot be judged: {refused}")
        findings = judge_outcome(self.exercise, case, outcome)
        if at < self.visible:
            return findings
        told = "" if self.heads[at]["status"] == "ok" else outcome.error
        return [_discreet(finding, case, told) for finding in findings]

    def fingerprint(self, at: int) -> str:
        try:
            return wire.fingerprint(self.values[at]) if self.values[at] else ""
        except wire.Refused:
            return ""

    def _case_result(self, at: int, seen: Seen) -> CaseResult:
        lost = tuple(sorted({f.verdict for f in seen.findings if not f.ok}))
        return CaseResult(self.cases[at].name, at >= self.visible, self.heads[at]["status"], lost, seen.fingerprint)

    def _drawn(self, result: Judgement) -> Any:
        """The picture of the finding that is shown first, drawn once for all who return the same."""
        failure = result.failure
        at = next((at for at, seen in enumerate(self.seen) if any(f is failure for f in seen.findings)), None)
        if failure is None or at is None or not result.attempted:
            return None
        seen = self.seen[at]
        if seen.drawn is None:
            place = next(i for i, f in enumerate(seen.findings) if f is failure)
            if failure.before is None and self._key(at) not in self.fresh:  # kept without its graphs
                failure = self.judged(at)[place]
            drawn = picture(Judgement(self.exercise, [failure]))
            seen = self.seen[at] = Seen(seen.findings, seen.fingerprint, (drawn.text, drawn.svg) if drawn else ("", ""))
            self.fresh[self._key(at)] = seen
        text, svg = seen.drawn
        return SimpleNamespace(text=text, svg=svg) if text or svg else None


def _discreet(finding: Finding, case: Case, told: str) -> Finding:
    """A finding on a hidden case as a learner may see it: a sentence that is the same for every case, and no graph but
    a smaller one that the judge shrank the case to."""
    sizes = [len(part.graph.nodes) for part in case.build() if isinstance(part, GraphModule)]
    graph = finding.before.graph if isinstance(finding.before, GraphModule) else None
    shrunk = not finding.ok and graph is not None and sizes and len(graph.nodes) < min(sizes)
    message = finding.message and (told or ON_HIDDEN[finding.verdict])
    return replace(finding, message=message, before=finding.before if shrunk else None, after=None)


#: (exercise, seed, name of a bank answer, place of the case) → how it does there: status, lost verdicts, fingerprint.
Mistakes = dict[tuple[str, int, str, int], tuple[str, list[str], str]]

#: How long a misconception is looked for, and how long an answer of the bank may run on one case, in seconds.
PATIENCE, RUN_SECONDS = 4.0, 1.0


class Misconceptions:
    """Finds the bank's wrong answer that behaves as a learner's does, by putting the same cases to it.

    The cases that the learner's answer lost come first: on one of these most of the bank's part ways with it, and need
    not be run on the others. What was found out is kept: `known` from before, `fresh` from now.
    """

    def __init__(self, known: Mistakes):
        self.known, self.fresh = known, {}

    def name(self, exercise_id: str, seed: int, cases: list[CaseResult]) -> str:
        """The misconception of the answer that did so on the cases, or "" if the bank has none like it in time."""
        until = time.monotonic() + PATIENCE
        seen = signature(cases)
        order = sorted(range(len(seen)), key=lambda at: not seen[at][2])
        lost = {verdict for case in seen for verdict in case[2]}
        alike = []
        for entry in answers.load(exercise_id):
            if entry.mark.kind == "wrong" and entry.mark.verdict in lost:
                theirs: dict[int, list] = {}
                for at in order:
                    if time.monotonic() > until:
                        break
                    theirs[at] = [seen[at][0], *self._does(exercise_id, seed, entry, at)]
                    if theirs[at][1:3] != [seen[at][1], list(seen[at][2])]:
                        break
                else:
                    alike.append((entry.mark.note, [theirs[at] for at in range(len(seen))]))
        return match(seen, alike)

    def _does(self, exercise_id: str, seed: int, entry: Any, at: int) -> tuple[str, list[str], str]:
        key = (exercise_id, seed, entry.__name__, at)
        found = self.known.get(key) or self.fresh.get(key)
        if found is None:
            exercise, (cases, _) = exercises.find(exercise_id), cases_of(exercise_id, seed)
            limited = replace(exercise, seconds=min(exercise.seconds, RUN_SECONDS))
            head, value = told(run(limited, entry, cases[at]))
            question = Question(exercise_id, seed, [head] * (at + 1), [value] * (at + 1), {})
            lost = sorted({f.verdict for f in question.judged(at) if not f.ok})
            found = self.fresh[key] = (question.heads[at]["status"], lost, question.fingerprint(at))
        return found
