"""Day 6, conditional constants: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from passlab.dataflow import CONSTANTS, Program, parse, random_program, run, solve
from passlab.exercises.day06._programs import COUNT, STRAIGHT, TWO_ENTRIES, program_case, why_not_by_block
from passlab.judge import Case, Finding, shown

#: Arguments with which claims are tried.
TRIED = ((0, 0, 0), (1, 0, 2), (0, 1, 1), (2, 3, -1), (-4, 7, 5), (12, -5, 0))

#: Only an optimistic analysis sees that debug stays 0: what the loop does to it is never reached.
OPTIMIST = parse("""
program optimist(x, n)
entry:
  debug = const 0
  jump loop
loop:
  branch debug strange usual
strange:
  debug = const 1
  x = add x debug
  jump next
usual:
  x = neg x
  jump next
next:
  n = lt n x
  branch n loop done
done:
  return x
""")

BOTH_SIDES = parse("""
program both(x, n)
entry:
  two = const 2
  branch n left right
left:
  a = const 3
  b = add a two
  c = const 1
  jump join
right:
  a = copy two
  b = const 5
  c = copy n
  jump join
join:
  d = mul b two
  e = add a c
  return d e
""")


def constants_case(name: str, program: Program) -> Case:
    """Return a case of a program. One without constants and unreached blocks does not decide `did`: it has none."""
    something = any(fact is None or fact for fact in solve(program, CONSTANTS).before.values())
    return program_case(name, program, () if something else ("valid", "spared"))


def cases() -> list[Case]:
    return [
        constants_case("straight on", STRAIGHT),
        constants_case("equal on both sides", BOTH_SIDES),
        constants_case("a loop", COUNT),
        constants_case("a switch that stays off", OPTIMIST),
        constants_case("a jump into a loop", TWO_ENTRIES),
        constants_case("drawn", random_program(11, 9)),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: None or numbers by variable. Did: all constants, all unreached blocks. Spared: nothing else."""
    (program,) = case.build()
    broken = _invalid(program, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    facts = solve(program, CONSTANTS).before
    missed, claimed = "", ""
    for block in program.blocks:
        fact, answer = facts[block.name], value[block.name]
        if fact is None and answer is not None:
            missed = missed or f"No run gets to block {block.name}: the branches before it always go the other way."
        elif fact is not None and answer is None:
            claimed = claimed or f"Block {block.name} can be reached, or at least nothing here proves the contrary."
            if fact:  # not to be found by calling every block unreached
                name = next(iter(fact))
                missed = missed or f"Block {block.name} can be reached, and at its start {name} is always {fact[name]}."
        elif fact is not None:
            missing = [name for name in fact if name not in answer]
            if missing and not missed:
                missed = f"At the start of block {block.name}, {missing[0]} is always {fact[missing[0]]}."
            extra = [name for name in answer if name not in fact or answer[name] != fact[name]]
            if extra and not claimed:
                claimed = f"At the start of block {block.name}, you say, {extra[0]} is always {answer[extra[0]]}. "
                claimed += _against(program, block.name, extra[0], answer[extra[0]]) or (
                    f"By the rules it is {fact[extra[0]]}." if extra[0] in fact else "The rules do not say so."
                )
    yield Finding("did", not missed, missed)
    yield Finding("spared", not claimed, claimed)


def _against(program: Program, block: str, name: str, value: Any) -> str:
    """Return a run that contradicts a claim, in words, or ""."""
    for arguments in TRIED:
        for visited, state in run(program, *arguments[: len(program.parameters)], fuel=100).trace:
            if visited == block and name in state and state[name] != value:
                inputs = ", ".join(f"{p} = {v}" for p, v in zip(program.parameters, arguments, strict=False))
                return f"With {inputs} it is {state[name]} there."
    return ""


def _invalid(program: Program, value: Any) -> str:
    def each(block: str, fact: Any) -> str:
        if fact is not None and not isinstance(fact, dict):
            return f"Block {block} needs None or a dict from variables to numbers; it has {shown(fact)}."
        for variable, number in (fact or {}).items():
            if variable not in program.variables:
                return f"Block {block}: {shown(variable)} is not a variable of {program.name}."
            if type(number) is not int:
                return f"Block {block}: the constant {variable} must be a whole number (an int); it is {shown(number)}."
        return ""

    return why_not_by_block(program, value, "a dict from each block's name to its constants, or None", each=each)
