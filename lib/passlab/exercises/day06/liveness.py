"""Day 6, liveness: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.dataflow import LIVENESS, Program, random_program, solve
from passlab.exercises.day06._programs import COUNT, FOR_EVER, STRAIGHT, TWO_ENTRIES, program_case, why_not_by_block
from passlab.judge import Case, Finding, shown
from passlab.judge.expect import why_not_selective
from passlab.judge.forms import why_not_names


def cases() -> list[Case]:
    return [
        program_case("straight on", STRAIGHT),
        program_case("a loop", COUNT),
        program_case("a loop without an end", FOR_EVER),
        program_case("a jump into a loop", TWO_ENTRIES),
        program_case("drawn", random_program(3, 9)),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: two sets of variables for each block. Did: what is live is there. Spared: nothing else is."""
    (program,) = case.build()
    broken = _invalid(program, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    solution = solve(program, LIVENESS)
    missed, claimed, wrong, possible = "", "", 0, 0
    for block in program.blocks:
        facts = solution.before[block.name], solution.after[block.name]
        for place, live, answer in zip(("start", "end"), facts, value[block.name], strict=True):
            missing, extra = sorted(live - set(answer)), sorted(set(answer) - live)
            wrong, possible = wrong + len(extra), possible + len(program.variables) - len(live)
            if missing and not missed:
                missed = f"{missing[0]} is live at the {place} of block {block.name}: its value may still be read."
            if extra and not claimed:
                claimed = (
                    f"{extra[0]} is not live at the {place} of block {block.name}: on every path from there it is "
                    f"assigned before it is read, or not read at all."
                )
    missed = missed or why_not_selective(wrong, possible, "entries that are not live")
    yield Finding("did", not missed, missed)
    yield Finding("spared", not claimed, claimed)


def _invalid(program: Program, value: Any) -> str:
    def each(block: str, pair: Any) -> str:
        if not isinstance(pair, list | tuple) or [isinstance(part, list | tuple) for part in pair] != [True, True]:
            return f"Block {block} needs two sets, (live at its start, live at its end); it has {shown(pair)}."
        return why_not_names([*pair[0], *pair[1]], program.variables, f"Block {block}", "variable", program.name)

    form = "a dict from each block's name to two sets, of the variables live at its start and at its end"
    return why_not_by_block(program, value, form, each=each)
