"""Answers that look at nothing: those that find nothing earn nothing, and those that claim everything find nothing.

Where there is nothing to find, no case decides `did`.
"""

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
    "day09.patterns": lambda *_: [],
    "day13.breaks": lambda body, arguments, taken: ([], 1),
    "day16.proof": lambda laws, start, end, most: [],
    "day17.triage": lambda failures: [[number] for number in range(len(failures))],
}


def _operations(program):
    """Return (block, number) of all operations of a program."""
    numbered = ((block.name, i, line) for block in program.blocks for i, line in enumerate(block.instructions))
    return [(name, i) for name, i, line in numbered if line.op not in ("const", "copy", "print")]


#: Exercise → an answer that claims everything, or all but a few.
CLAIMING = {
    "day01.residual-edges": lambda gm: {(used.name, n.name) for n in gm.graph.nodes for used in n.all_input_nodes},
    "day06.gvn": lambda program: [(*place, program.variables[0]) for place in _operations(program)],
    "day06.liveness": lambda program: {b.name: (program.variables, program.variables[1:]) for b in program.blocks},
}


@pytest.mark.parametrize("exercise", IDLE)
def test_an_answer_that_finds_nothing_earns_nothing(exercise):
    result = verdict(exercise, IDLE[exercise], 1)
    assert result.points == 0 and result.verdicts.get("valid", True)


@pytest.mark.parametrize("exercise", CLAIMING)
@pytest.mark.parametrize("seed", (1, 2, 3))
def test_an_answer_that_claims_everything_finds_nothing(exercise, seed):
    result = verdict(exercise, CLAIMING[exercise], seed)
    assert result.verdicts["valid"] and not result.verdicts["did"] and not result.verdicts["spared"]


def test_to_call_every_block_unreached_does_not_tell_its_constants():
    assert verdict("day06.constants", lambda program: dict.fromkeys(b.name for b in program.blocks), 1).points == 0
