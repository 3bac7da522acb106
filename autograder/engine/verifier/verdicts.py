"""Turn the outcomes of one question into its verdict: the judge, the learner's view of it, and the misconception.

Where judging depends on the data alone, the same bytes on the same case give the same findings. They are cached
(`CaseFindings`), so that a value which many learners return is judged once. Where it depends on a clock, too, only full
points are cached: whoever falls short is timed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases, trials_of
from autograder.engine import graphs, wire
from autograder.engine.data import CaseResult, Verdict
from autograder.engine.messages import Kept
from autograder.engine.outcomes import to_wire
from autograder.engine.verifier.misconceptions import Behaviour, match, signature
from passlab import exercises
from passlab.building import requests
from passlab.equivalence.comparison import unlocated
from passlab.fx import isolation
from passlab.fx.programs import RUNS
from passlab.judge import (
    Case,
    Exercise,
    Finding,
    Judgement,
    Outcome,
    OutOfTime,
    conclude,
    judge_outcome,
    out_of_time,
    run,
)
from passlab.notebook.ui import picture, report
from passlab.process.clock import Limit, cpu_time

#: The learner's messages for hidden cases. The judge's own message could name parts of the case, or quote the returned
#: value, into which an answer may have copied it.
ON_HIDDEN = {
    "valid": "The result is not well-formed.",
    "same": "The result does not compute the same function.",
    "did": "It did not do everything that it must.",
    "spared": "It changed something that it must leave alone.",
    "cost": "It did not save what it promised.",
}

#: How an answer may end on a hidden case without a value, besides using up its time. Which exception it raised, its
#: text, exit codes and amounts are the answer's to choose, so they could tell of the case.
ENDED_ON_HIDDEN = {
    "stub": "It raised an exception.",
    "raised": "It raised an exception.",
    "refused": "The result contains something that cannot leave the notebook.",
    "died": "The Python process ended while your answer ran, or had to be ended.",
    "missing": "There was no answer to run.",
}

#: The most characters of a finding's message. A judge may quote a returned value of any length, and a message is kept
#: for other learners, sent, and shown several times.
MOST_WORDS = 4_000

Key = tuple[str, int, int, str]


def for_learner(result: Judgement, visible: Iterable[Case]) -> Judgement:
    """Return the judgement as a learner may see it: hidden cases are not named, but the title mentions them."""
    exercise, known = result.exercise, {case.name for case in visible}
    findings = [f if f.case in known else replace(f, case="one of the hidden ones") for f in result.findings]
    return replace(
        result, exercise=replace(exercise, title=f"{exercise.title}, hidden cases included"), findings=findings
    )


class Prepared(NamedTuple):
    """The cases of an exercise, the visible ones first, each with its packed arguments.

    `unbuilt`: the cases that cannot be built or packed. No answer has run yet, so that is never an answer's doing.
    """

    cases: list[Case]
    visible: int
    payloads: list[bytes]
    unbuilt: list[Case]


@cache
def prepared(exercise_id: str, seed: int) -> Prepared:
    """Return the cases of an exercise."""
    found = Prepared([], 0, [], [])
    with warnings.catch_warnings():  # they concern the author of a case, not whoever grades with it
        warnings.simplefilter("ignore")
        for hidden, some in enumerate((exercises.find(exercise_id).cases(), hidden_cases(exercise_id, seed))):
            for case in some:
                build = Prebuilt(case.build)
                try:
                    found.payloads.append(wire.encode(tuple(build.ahead())))
                except Exception:
                    traceback.print_exc()
                    found.unbuilt.append(case)
                else:
                    found.cases.append(replace(case, build=build))
            found = found if hidden else found._replace(visible=len(found.cases))
    return found


def cases_of(exercise_id: str, seed: int) -> tuple[list[Case], int]:
    """Return the visible and then the hidden cases of an exercise, and the number of visible ones."""
    data = prepared(exercise_id, seed)
    return data.cases, data.visible


def payloads(exercise_id: str, seed: int) -> list[bytes]:
    """Return the packed arguments of every case."""
    return prepared(exercise_id, seed).payloads


@cache
def wrong_answers(exercise_id: str) -> list[Any]:
    """Return the known wrong answers to an exercise."""
    return [entry for entry in answers.load(exercise_id) if entry.mark.kind == "wrong"]


class Prebuilt:
    """A case's `build`, called ahead of time: the next call returns those arguments, and later ones build anew.

    The verifier builds them once, to send them; each child that it forks has a copy to judge with.
    """

    def __init__(self, build: Callable[[], tuple]):
        self._build = build
        self._ready: tuple | None = None

    def ahead(self) -> tuple:
        self._ready = ready = self._build()
        return ready

    def __call__(self) -> tuple:
        ready, self._ready = self._ready, None
        return self._build() if ready is None else ready


@dataclass
class CaseFindings:
    """Findings on one value for one case, without graphs; a picture (text, svg) if one was drawn. `devices`: where its
    graphs ran."""

    findings: list[Finding]
    fingerprint: str = ""
    drawn: tuple[str, str] | None = None
    devices: tuple[str, ...] = ()

    def to_json(self) -> dict:
        rows = [(f.verdict, f.ok, f.message, f.case) for f in self.findings]
        return {"findings": rows, "fingerprint": self.fingerprint, "drawn": self.drawn, "devices": self.devices}

    @classmethod
    def of(cls, kept: Kept) -> CaseFindings:
        return cls([Finding(*row) for row in kept.findings], kept.fingerprint, kept.drawn, tuple(kept.devices))


class Question:
    """One question of a submission: its outcomes (`heads` and `values`, one of each per case).

    `kept`: findings from earlier questions; new ones are added to `fresh`.
    """

    def __init__(self, exercise: str, seed: int, heads: list[dict], values: list[bytes], kept: dict[Key, CaseFindings]):
        self.exercise, self.seed = exercises.find(exercise), seed
        self.cases, self.visible, _, self.unbuilt = prepared(exercise, seed)
        self.heads, self.values = heads, values
        self.kept = kept
        self.fresh: dict[Key, CaseFindings] = {}
        self.by_case: list[CaseFindings] = []
        self.process = graphs.Disposable()

    def verdict(self, misconceptions: Misconceptions) -> Verdict:
        """Judge every case and return the verdict as its learner may see it."""
        with contextlib.closing(self.process):
            return self._verdict(misconceptions)

    def _verdict(self, misconceptions: Misconceptions) -> Verdict:
        result = conclude(
            self.exercise,
            self.cases,
            map(self._outcome, range(len(self.heads))),
            self._findings,
            self.unbuilt,
            self.visible,
        )
        cases = [self._case_result(at, seen) for at, seen in enumerate(self.by_case)]
        drawn = self._picture(result)
        card = report(for_learner(result, self.cases[: self.visible]), draw=lambda _: drawn)
        ended = (at for at, head in enumerate(self.heads) if head["status"] in ("died", "timeout", "missing"))
        crash = next((self._outcome(at).error for at in ended), "")
        mistaken = result.attempted and not result.ok and not crash
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
            misconception=misconceptions.name(self.exercise.id, self.seed, cases) if mistaken else "",
            crash=crash,
            cases=cases,
            devices=self._devices(),
            unbuilt=result.unbuilt,
        )

    def _devices(self) -> list[str]:
        """Return where the programs ran that `same` compares; modules of compilers are built for the CPU."""
        if "same" not in self.exercise.points:
            return []
        ran = {device for seen in self.by_case for device in seen.devices}
        return sorted(ran if self.exercise.flavour == "torch" else ran | {"cpu"})

    def _outcome(self, at: int) -> Outcome:
        """Return an outcome without its value. Of one in a hidden case, only the way in which it ended."""
        head, status = self.heads[at], self.heads[at]["status"]
        kind = status if status in ("ok", "timeout", "stub") else "raised"
        if at < self.visible:
            return Outcome(kind, None, head["error"], head["printed"], head["seconds"], head["in_place"])
        error = out_of_time(self.exercise) if status == "timeout" else ENDED_ON_HIDDEN.get(status, "")
        return Outcome("raised" if kind == "stub" else kind, None, error)

    def _key(self, at: int) -> Key:
        text = f"{self.heads[at]['status']}\0{self._outcome(at).error}\0".encode()
        return (self.exercise.id, self.seed, at, hashlib.sha256(text + self.values[at]).hexdigest())

    def _findings(self, exercise: Exercise, case: Case, outcome: Outcome) -> list[Finding]:
        at = len(self.by_case)
        key = self._key(at)
        seen = self.kept.get(key)
        if seen is None:
            before, runs = of_the_moment(), RUNS.copy()
            findings = self.judge_case(at)
            seen = CaseFindings(findings, self.fingerprint(at), devices=tuple(RUNS - runs) if case.asks("same") else ())
            shown = before == of_the_moment() or all(finding.ok for finding in findings)
            if self.heads[at]["status"] == "ok" and shown:
                self.fresh[key] = seen
        self.by_case.append(seen)
        return seen.findings

    def judge_case(self, at: int) -> list[Finding]:
        """Return the judge's findings on one case, graphs included.

        A returned graph may spoil the process that runs it for those of later cases, or keep what it saw there. So what
        is lost in a process that has run others is judged again in a fresh one: no message, and no lost verdict that is
        kept for all learners with the same value, depends on other cases.
        """
        fresh = not self.process.running
        with self.process:
            findings = self._judge_once(at)
        if fresh or all(finding.ok for finding in findings):
            return findings
        with contextlib.closing(graphs.Disposable()) as process, process:
            return self._judge_once(at)

    def _judge_once(self, at: int) -> list[Finding]:
        case, outcome = self.cases[at], self._outcome(at)
        if outcome.status == "ok":
            try:
                outcome = replace(outcome, value=wire.decode(self.values[at]))
            except wire.Refused as refused:
                outcome = replace(outcome, status="raised", error=f"The result cannot be judged: {refused}")
        with trials_of(self.seed):
            if at < self.visible:
                return [_brief(finding) for finding in judge_outcome(self.exercise, case, outcome)]
            with unlocated():
                findings = judge_outcome(self.exercise, case, outcome)
        told = "" if self.heads[at]["status"] == "ok" else outcome.error
        return [_discreet(finding, told) for finding in findings]

    def fingerprint(self, at: int) -> str:
        try:
            return wire.fingerprint(self.values[at]) if self.values[at] else ""
        except wire.Refused:
            return ""

    def _case_result(self, at: int, seen: CaseFindings) -> CaseResult:
        lost = tuple(sorted({f.verdict for f in seen.findings if not f.ok}))
        return CaseResult(self.cases[at].name, at >= self.visible, self.heads[at]["status"], lost, seen.fingerprint)

    def _picture(self, result: Judgement) -> Any:
        """Return the picture of the finding shown first, drawn once for all learners who return the same value."""
        failure = result.failure
        at = next((at for at, seen in enumerate(self.by_case) if any(f is failure for f in seen.findings)), None)
        if failure is None or at is None or not result.attempted:
            return None
        seen = self.by_case[at]
        if seen.drawn is None:
            place = next(i for i, f in enumerate(seen.findings) if f is failure)
            key = self._key(at)
            if failure.before is None and key in self.kept:  # without its graphs
                failure = self.judge_case(at)[place]
            drawn = picture(Judgement(self.exercise, [failure]))
            seen = self.by_case[at] = replace(seen, drawn=(drawn.text, drawn.svg) if drawn else ("", ""))
            if key in self.kept or key in self.fresh:
                self.fresh[key] = seen
        text, svg = seen.drawn or ("", "")
        return SimpleNamespace(text=text, svg=svg) if text or svg else None


def _brief(finding: Finding) -> Finding:
    """Return a finding whose message is cut to `MOST_WORDS`."""
    words = finding.message
    return finding if len(words) <= MOST_WORDS else replace(finding, message=f"{words[: MOST_WORDS - 1]}…")


def _discreet(finding: Finding, told: str) -> Finding:
    """Return a finding on a hidden case as a learner may see it: the same message for every case, and no graph."""
    return replace(finding, message=finding.message and (told or ON_HIDDEN[finding.verdict]), before=None, after=None)


def of_the_moment() -> tuple[int, ...]:
    """Return how much so far depended on the time or the memory there was. What was lost so is not kept: it may be
    otherwise for the next learner with the same value. What was fast enough once is fast enough."""
    return requests.unsteady, graphs.unsteady, OutOfTime.times


class KnownCase(NamedTuple):
    """A case, by its position, of a known wrong answer to an exercise, by its name."""

    exercise: str
    seed: int
    answer: str
    at: int


class Result(NamedTuple):
    """What became of a known wrong answer on a case; see `Behaviour`."""

    status: str
    lost: list[str]
    fingerprint: str


Mistakes = dict[KnownCase, Result]

#: Seconds of CPU time to search for a misconception, and seconds for a known wrong answer to run on one case.
SEARCH_SECONDS, RUN_SECONDS = 2.0, 1.0


class Misconceptions:
    """Finds the known wrong answer that behaves like a learner's, by running them on the same cases.

    The cases that the learner's answer lost come first: one of these rules out most of the known answers, which need
    not run on the others. Results are cached: `known` from before, `fresh` from now. Unless `searching`, it finds none.
    """

    def __init__(self, known: Mistakes, searching: bool = True):
        self.known, self.searching = known, searching
        self.fresh: Mistakes = {}

    def name(self, exercise_id: str, seed: int, cases: list[CaseResult]) -> str:
        """Return the misconception of an answer with these results, or "" if no known answer is found in time."""
        if not self.searching:
            return ""
        limit, start = Limit(SEARCH_SECONDS), cpu_time()

        def late() -> bool:
            return limit.over(cpu_time() - start)

        seen = signature(cases)
        order = sorted(range(len(seen)), key=lambda at: not seen[at].lost)
        lost = {verdict for case in seen for verdict in case.lost}
        known = [
            _WrongAnswer(exercise_id, seed, entry) for entry in wrong_answers(exercise_id) if entry.mark.verdict in lost
        ]
        for one in known:  # nothing has to be judged if one returns the same values
            if not late() and all(self._signature(one, at) == (seen[at].status, seen[at].fingerprint) for at in order):
                return match(seen, [(one.entry.mark.note, seen)])
        alike = []
        for one in known:
            theirs: dict[int, Behaviour] = {}
            for at in order:
                if late():
                    break
                theirs[at] = Behaviour(seen[at].name, *self._behave(one, at))
                if (theirs[at].status, theirs[at].lost) != (seen[at].status, seen[at].lost):
                    break
            else:
                alike.append((one.entry.mark.note, [theirs[at] for at in range(len(seen))]))
        return match(seen, alike)

    def _signature(self, one: _WrongAnswer, at: int) -> tuple[str, str]:
        """Return the status of its run on a case, and the fingerprint of its value."""
        found = self._cached(one, at)
        return (found.status, found.fingerprint) if found else one.signature(at)

    def _cached(self, one: _WrongAnswer, at: int) -> Result | None:
        return self.known.get(one.key(at)) or self.fresh.get(one.key(at))

    def _behave(self, one: _WrongAnswer, at: int) -> Result:
        found = self._cached(one, at)
        if found is None:
            before = of_the_moment()
            status, fingerprint = one.signature(at)
            found = Result(status, one.lost_verdicts(at), fingerprint)
            if before == of_the_moment() and at not in one.unsteady:
                self.fresh[one.key(at)] = found
        return found


class _WrongAnswer:
    """A known wrong answer to an exercise, run once on each case that is asked for."""

    def __init__(self, exercise: str, seed: int, entry: Any):
        self.exercise, self.seed, self.entry = exercise, seed, entry
        self.questions: dict[int, Question] = {}
        self.unsteady: set[int] = set()

    def key(self, at: int) -> KnownCase:
        return KnownCase(self.exercise, self.seed, self.entry.__name__, at)

    def _question(self, at: int) -> Question:
        if at not in self.questions:
            exercise, before = exercises.find(self.exercise), of_the_moment()
            limited = replace(exercise, seconds=min(exercise.seconds, RUN_SECONDS))
            # Read from the same bytes as in the runner: a module of TVM then has the same text on the way back.
            arguments = cache(partial(wire.decode, payloads(self.exercise, self.seed)[at]))
            about = cases_of(self.exercise, self.seed)[0][at].about
            with isolation.trusting():
                head, value = to_wire(run(limited, self.entry, Case("", arguments, about)))
            if before != of_the_moment():
                self.unsteady.add(at)
            self.questions[at] = Question(self.exercise, self.seed, [head] * (at + 1), [value] * (at + 1), {})
        return self.questions[at]

    def signature(self, at: int) -> tuple[str, str]:
        """Return the status of its run on a case, and the fingerprint of its value."""
        question = self._question(at)
        return question.heads[at]["status"], question.fingerprint(at)

    def lost_verdicts(self, at: int) -> list[str]:
        """Return the verdicts that its value loses on a case."""
        with isolation.trusting(), unlocated():
            return sorted({f.verdict for f in self._question(at).judge_case(at) if not f.ok})
