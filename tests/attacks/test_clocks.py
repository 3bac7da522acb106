"""Every attack on a clock loses the verdicts that it was after, and its honest twin has all points."""

from __future__ import annotations

import json
import os

import pytest

from autograder.engine import wire
from autograder.engine.outcomes import to_wire
from passlab import exercises
from passlab.judge import Case, Outcome, conclude, judge_outcome, run
from passlab.tvm.reach import reach
from tests.attacks.clocks import ATTACKS, Race


@pytest.mark.parametrize("race", ATTACKS, ids=lambda race: race.name)
def test_who_skips_work_loses_and_who_does_it_wins(race, in_own_process):
    verdicts, message = in_own_process(race.exercise, put, race.name, "answer")
    assert verdicts >= race.lost, f"{race.tries}: lost {sorted(verdicts)} {message}"
    assert in_own_process(race.exercise, put, race.name, "twin") == (set(), [])


# ---------------------------------------------------------------------------------------------------- There


def put(name: str, which: str) -> tuple[set[str], list[str]]:
    """The verdicts that an attack or its twin loses on the first case, with what was said."""
    race: Race = next(race for race in ATTACKS if race.name == name)
    exercise = exercises.find(race.exercise)
    reach(exercise.flavour)  # what comes back is read with it
    case = exercise.cases()[0]
    outcome = elsewhere(exercise, race.answer if which == "answer" else race.twin(), case)
    result = conclude(exercise, [case], [outcome], judge_outcome)
    items = {finding.verdict for finding in result.findings if finding.ok}
    items -= {finding.verdict for finding in result.findings if not finding.ok}
    return set(exercise.points) - items, [finding.message for finding in result.findings if not finding.ok]


def elsewhere(exercise, answer, case: Case) -> Outcome:
    """What comes of a case in a child process: whatever the answer patches there is gone with it."""
    arguments = wire.decode(wire.encode(tuple(case.build())))
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        head, payload = to_wire(run(exercise, answer, Case("", lambda: arguments, case.about)))
        with open(writes, "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + payload)
        os._exit(0)
    os.close(writes)
    with open(reads, "rb") as file:
        head, payload = json.loads(file.readline()), file.read()
    os.waitpid(child, 0)
    assert payload, f"the answer has no value: {head}"
    try:
        return Outcome("ok", wire.decode(payload))
    except wire.Refused as refused:  # as the verifier has it
        return Outcome("raised", error=f"The result cannot be judged: {refused}")
