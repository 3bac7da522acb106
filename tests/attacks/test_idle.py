"""Answers that look at nothing and find nothing earn nothing: where there is nothing to find, no case decides `did`."""

from __future__ import annotations

import pytest

from autograder.authoring.answers import verdict

#: Exercise → an answer with the form of a right one that does no work.
IDLE = {
    "day05.coalescing": lambda addresses, size: (0, 0),
    "day05.remat": lambda tasks, budget: [task.name for task in tasks],
    "day06.constants": lambda program: {block.name: {} for block in program.blocks},
    "day06.gvn": lambda program: [],
    "day06.liveness": lambda program: {block.name: (set(), set()) for block in program.blocks},
    "day13.breaks": lambda body, arguments, taken: ([], 1),
    "day16.proof": lambda laws, start, end, most: [],
    "day17.triage": lambda failures: [[number] for number in range(len(failures))],
}


@pytest.mark.parametrize("exercise", IDLE)
def test_an_answer_that_finds_nothing_earns_nothing(exercise):
    result = verdict(exercise, IDLE[exercise], 1)
    assert result.points == 0 and result.verdicts.get("valid", True)


def test_to_call_every_block_unreached_does_not_tell_its_constants():
    assert verdict("day06.constants", lambda program: dict.fromkeys(b.name for b in program.blocks), 1).points == 0
