"""Day 6, liveness: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.dataflow import LIVENESS, Program, random_program, solve
from passlab.exercises.day06._programs import COUNT, FOR_EVER, STRAIGHT, TWO_ENTRIES, not_by_block
from passlab.judge import Case, Finding


def live_case(name: str, program: Program) -> Case:
    return Case(name, lambda: (program,))


def cases() -> list[Case]:
    return [
        live_case("straight on", STRAIGHT),
        live_case("a loop", COUNT),
        live_case("a loop without an end", FOR_EVER),
        live_case("a jump into a loop", TWO_ENTRIES),
        live_case("drawn", random_program(3, 9)),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: two sets of variables for each block. Did: what is live is there. Spared: nothing else is."""
    (program,) = case.build()
    broken = _invalid(program, value)
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    solution = solve(program, LIVENESS)
    missing, extra = "", ""
    for block in program.blocks:
        for where, right, mine in zip(
            ("start", "end"), (solution.before, solution.after), value[block.name], strict=True
        ):
            lack, more = sorted(right[block.name] - set(mine)), sorted(set(mine) - right[block.name])
            if lack and not missing:
                missing = f"{lack[0]} is live at the {where} of block {block.name}: its value may still be read."
            if more and not extra:
                extra = (
                    f"{more[0]} is not live at the {where} of block {block.name}: on every way from there it is "
                    f"assigned before it is read, or not read at all."
                )
    yield Finding("did", not missing, missing)
    yield Finding("spared", not extra, extra)


def _invalid(program: Program, value: Any) -> str | None:
    if broken := not_by_block(program, value, "The result"):
        return broken
    known = set(program.variables)
    for name, pair in value.items():
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(part, tuple) for part in pair):
            return f"Block {name} needs two sets, (live at its start, live at its end); it has {str(pair)[:60]}."
        if odd := [it for part in pair for it in part if not isinstance(it, str) or it not in known]:
            return f"Block {name}: {str(odd[0])[:60]!r} is not a variable of {program.name}."
    return None
