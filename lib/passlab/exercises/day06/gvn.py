"""Day 6, value numbering: visible cases, and a judge that tries every claim on runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from passlab.dataflow import Block, Instruction, Program, evaluate, parse, random_program, redundant, run
from passlab.equivalence.seeds import own_seed
from passlab.exercises.day06._programs import COUNT, ENTRY_IN_LOOP, TWO_ENTRIES, program_case
from passlab.judge import Case, Finding, shown
from passlab.judge.expect import why_not_selective
from passlab.judge.forms import why_not_a_list, why_not_names

#: Runs on which a claim is tried.
RUNS = 60
#: What computes nothing, so that it is not redundant.
NO_OPERATION = ("const", "copy", "print")
ENTRY = "(block, number of the instruction, variable)"

COPIES = parse("""
program copies(x, y)
entry:
  a = add x y
  b = copy x
  c = add y b
  x = neg x
  d = add x y
  e = add b y
  return c d e
""")

#: Neither p nor q is a constant behind the branch, but they are equal.
EQUAL = parse("""
program equal(x, y)
entry:
  branch x left right
left:
  p = const 1
  q = const 1
  jump join
right:
  p = const 2
  q = const 2
  jump join
join:
  r = mul p y
  s = mul q y
  t = sub r s
  return r s t
""")

#: On one of the two ways x + y is out of date.
PARTLY = parse("""
program partly(x, y)
entry:
  a = add x y
  b = mul x y
  branch a left right
left:
  x = neg x
  jump join
right:
  c = add x y
  jump join
join:
  d = add x y
  e = copy b
  return d e
""")


def gvn_case(name: str, program: Program) -> Case:
    """Return a case of a program. One in which nothing is redundant does not decide `did`: an empty list is right."""
    return program_case(name, program, () if any(redundant(program).values()) else ("valid", "spared"))


def cases() -> list[Case]:
    return [
        gvn_case("copies", COPIES),
        gvn_case("equal on both sides", EQUAL),
        gvn_case("on one side only", PARTLY),
        gvn_case("a loop", COUNT),
        gvn_case("the entry is in the loop", ENTRY_IN_LOOP),
        gvn_case("a jump into a loop", TWO_ENTRIES),
        gvn_case("drawn", random_program(8, 9)),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Valid: (block, line, variable). Did: all that value numbering finds. Spared: no claim that a run contradicts."""
    (program,) = case.build()
    broken = _invalid(program, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    claims, wrong = {(block, i) for block, i, _ in value}, _contradicted(program, value)
    missed, holders, possible = "", redundant(program), 0
    for block in program.blocks:
        operations = {i for i, line in enumerate(block.instructions) if line.op not in NO_OPERATION}
        possible += len(operations - holders[block.name].keys())
        for i, names in holders[block.name].items():
            if (block.name, i) not in claims and not missed:
                missed = f"`{block.instructions[i]}` in block {block.name}: {names[0]} already holds that value."
    elsewhere = [(block, i) for block, i in wrong if i not in holders[block]]
    missed = missed or why_not_selective(len(elsewhere), possible, "operations that are not redundant")
    yield Finding("did", not missed, missed)
    yield Finding("spared", not wrong, next(iter(wrong.values()), ""))


def _contradicted(program: Program, claims: Any) -> dict[tuple[str, int], str]:
    """Return (block, number) → a run in which the claimed variable does not hold the value, in words."""
    rng = random.Random(own_seed(0))
    against: dict[tuple[str, int], str] = {}
    holders = {(block, i): name for block, i, name in claims}
    blocks = {block for block, _ in holders}
    for _ in range(RUNS):
        arguments = [rng.choice((0, 1, rng.randint(-99, 99))) for _ in program.parameters]
        for block, state in run(program, *arguments, fuel=60).trace:
            for i, line, before, result in _steps(program[block], state) if block in blocks else ():
                name = holders.get((block, i))
                if name and before.get(name) != result and (block, i) not in against:
                    inputs = ", ".join(f"{p} = {v}" for p, v in zip(program.parameters, arguments, strict=True))
                    against[block, i] = (
                        f"With {inputs}, `{line}` in block {block} computes {result}, "
                        f"and {name} holds {before.get(name, 'nothing')} before it."
                    )
    return against


def _steps(block: Block, state: dict[str, Any]) -> Iterator[tuple[int, Instruction, dict[str, Any], Any]]:
    """Yield the number of each instruction with a result, the instruction, the values before it, and the result."""
    for i, line in enumerate(block.instructions):
        if line.dest:
            result = line.value if line.op == "const" else evaluate(line.op, [state[arg] for arg in line.args])
            yield i, line, state, result
            state = state | {line.dest: result}


def _invalid(program: Program, value: Any) -> str:
    if wrong := why_not_a_list(value, f"a list of {ENTRY}"):
        return wrong
    blocks, lines = {block.name: block for block in program.blocks}, set()
    for entry in value:
        if not isinstance(entry, list | tuple) or len(entry) != 3:
            return f"The list holds {shown(entry)}; each entry is {ENTRY}."
        name, i, variable = entry
        if wrong := why_not_names([name], blocks, "The list", "block", program.name):
            return wrong
        if type(i) is not int or not 0 <= i < len(blocks[name].instructions):
            return f"Block {name} has no instruction number {shown(i)}; they count from 0."
        if wrong := why_not_names([variable], program.variables, "The list", "variable", program.name):
            return wrong
        line = blocks[name].instructions[i]
        if line.op in NO_OPERATION:
            return f"`{line}` in block {name} computes nothing: name only operations, not constants, copies or prints."
        if (name, i) in lines:
            return f"The list names `{line}` in block {name} twice; name each redundant operation once."
        lines.add((name, i))
    return ""
