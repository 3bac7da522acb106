"""Day 6, one solver: visible cases, and a judge that replays the visits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.dataflow import ANALYSES, Program, random_program, solve
from passlab.dataflow.solver import DoesNotEnd, FixpointState, NotMonotone
from passlab.exercises.day06._programs import COUNT, ENTRY_IN_LOOP, FOR_EVER, STRAIGHT, not_by_block, shown
from passlab.given.day06._facts import plain
from passlab.judge import Case, Finding

#: More visits than this are not replayed.
MOST = 50_000


def solver_case(name: str, program: Program, analysis: str) -> Case:
    """Return a case. The visits that suffice are those of a worklist in reverse post-order, and a quarter."""
    return Case(name, lambda: (program, analysis))


def allowed(program: Program, analysis: str) -> int:
    """Return how many visits are few enough."""
    return solve(program, ANALYSES[analysis]).visits * 5 // 4


def cases() -> list[Case]:
    drawn = random_program(5, 40, shuffle=True)
    return [
        solver_case("straight on", STRAIGHT, "liveness"),
        solver_case("a loop, backward", COUNT, "liveness"),
        solver_case("a loop, forward", COUNT, "reaching definitions"),
        solver_case("what holds on every way", COUNT, "available expressions"),
        solver_case("the entry is in the loop", ENTRY_IN_LOOP, "dominators"),
        solver_case("no way to a return", FOR_EVER, "liveness"),
        solver_case("facts on edges", COUNT, "constants"),
        solver_case("forty blocks in any order, forward", drawn, "reaching definitions"),
        solver_case("forty blocks in any order, backward", drawn, "liveness"),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: facts and names of blocks. Did: the facts are the solution. Same: the visits lead to them. Cost: few."""
    program, name = case.build()
    analysis = ANALYSES[name]
    broken = _invalid(program, value)
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    before, after, log = value
    solution = solve(program, analysis)
    right, told = _compared(program, solution, before, after, f"{analysis.name} of {program.name}")
    yield Finding("did", right, told)
    if not right:  # whether the visits lead to wrong facts says nothing
        return
    state = FixpointState(program, analysis)
    try:
        for block in log:
            state.visit(block)
    except (NotMonotone, DoesNotEnd) as error:  # a block was visited hundreds of times
        yield Finding("same", False, str(error))
        return
    same, told = _compared(program, state.solution(), before, after, "Replayed, your visits lead elsewhere")
    yield Finding("same", same, told)
    most = allowed(program, name)
    yield Finding(
        "cost",
        len(log) <= most,
        f"{len(log)} visits to {len(program.blocks)} blocks, {most} are enough. Of the blocks that wait, visit first "
        f"the one that comes first in reverse post-order, and only if a fact that it reads has changed.",
    )


def _compared(program: Program, solution: Any, before: dict, after: dict, what: str) -> tuple[bool, str]:
    for block in program.blocks:
        for where, mine, theirs in (("start", solution.before, before), ("end", solution.after, after)):
            if (right := plain(mine[block.name])) != theirs[block.name]:
                got = shown(theirs[block.name])
                return False, f"{what}: at the {where} of block {block.name} expected {shown(right)}, got {got}."
    return True, ""


def _invalid(program: Program, value: Any) -> str | None:
    if not isinstance(value, tuple) or len(value) != 3:
        return f"Return before, after and the list of visits; the result is {str(value)[:60]!r}."
    before, after, log = value
    if broken := not_by_block(program, before, "before") or not_by_block(program, after, "after"):
        return broken
    if not isinstance(log, tuple):
        return f"The visits must be a list of names of blocks; they are {str(log)[:60]!r}."
    names = {block.name for block in program.blocks}
    for name in log:
        if not isinstance(name, str) or name not in names:
            return f"The visits name {str(name)[:60]!r}, and {program.name} has no block of that name."
    if len(log) > MOST:
        return f"{len(log)} visits are too many to replay: at most {MOST}."
    return None
