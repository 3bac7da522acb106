"""Day 6, one solver: visible cases, and a judge that replays the visits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.dataflow import ANALYSES, Program, random_program, solve
from passlab.dataflow.solver import DoesNotEnd, FixpointState, NotMonotone
from passlab.exercises.day06._programs import COUNT, ENTRY_IN_LOOP, FOR_EVER, STRAIGHT, fact_shown, why_not_by_block
from passlab.given._plain import plain
from passlab.judge import Case, Finding, enough, plural
from passlab.judge.forms import why_not_a_list, why_not_names

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
    yield Finding("valid", not broken, broken)
    if broken:
        return
    before, after, log = value
    solution = solve(program, analysis)
    wrong = _difference(program, solution, before, after)
    yield Finding("did", not wrong, f"{analysis.name} of {program.name}: {wrong}")
    if wrong:  # whether the visits lead to wrong facts says nothing
        return
    state = FixpointState(program, analysis)
    try:
        for block in log:
            state.visit(block)
    except (NotMonotone, DoesNotEnd) as error:  # a block was visited hundreds of times
        yield Finding("same", False, str(error))
        return
    wrong = _difference(program, state.solution(), before, after)
    yield Finding("same", not wrong, f"Replayed, your visits lead elsewhere: {wrong}")
    most = allowed(program, name)
    yield Finding(
        "cost",
        len(log) <= most,
        f"{len(log)} visits to {plural(len(program.blocks), 'block')}, {enough(most)}. Of the blocks that wait, visit "
        f"first the one that comes first in reverse post-order, and only if a fact that it reads has changed.",
    )


def _difference(program: Program, solution: Any, before: dict, after: dict) -> str:
    """Return where facts differ from those of a solution, in words, or ""."""
    for block in program.blocks:
        for place, facts, answer in (("start", solution.before, before), ("end", solution.after, after)):
            if (fact := plain(facts[block.name])) != answer[block.name]:
                expected, actual = fact_shown(fact), fact_shown(answer[block.name])
                return f"at the {place} of block {block.name} expected {expected}, got {actual}."
    return ""


def _invalid(program: Program, value: Any) -> str:
    if wrong := why_not_a_list(value, "(before, after, the list of visits)", 3):
        return wrong
    for facts, place in zip(value, ("before", "after"), strict=False):
        form = f"`{place}` as a dict from each block's name to its fact"
        if wrong := why_not_by_block(program, facts, form, f"fact in `{place}`"):
            return wrong
    log = value[2]
    if wrong := why_not_a_list(log, "the visits as a list of names of blocks"):
        return wrong
    if len(log) > MOST:
        return f"{len(log)} visits are too many to replay: at most {MOST}."
    return why_not_names(log, {block.name for block in program.blocks}, "The list of visits", "block", program.name)
