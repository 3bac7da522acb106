"""Day 6, value numbering: visible cases, and a judge that tries every claim on runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from passlab.dataflow import Program, evaluate, parse, random_program, redundant, run
from passlab.exercises.day06._programs import COUNT, ENTRY_IN_LOOP, TWO_ENTRIES
from passlab.judge import Case, Finding

#: Runs on which a claim is tried.
RUNS = 60

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
    return Case(name, lambda: (program,))


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
    yield Finding("valid", broken is None, broken or "")
    if broken:
        return
    said = {(block, i) for block, i, _ in value}
    missed, found = "", redundant(program)
    for block in program.blocks:
        for i, names in found[block.name].items():
            if (block.name, i) not in said and not missed:
                missed = f"`{block.instructions[i]}` in block {block.name}: {names[0]} already holds that value."
    yield Finding("did", not missed, missed)
    wrong = _against(program, value)
    yield Finding("spared", not wrong, wrong)


def _against(program: Program, claims: Any) -> str:
    """Return a run in which a claimed variable does not hold the value, in words, or ""."""
    lines = {(block.name, i): line for block in program.blocks for i, line in enumerate(block.instructions)}
    rng = random.Random(0)
    by_block: dict[str, list[tuple[int, str]]] = {}
    for block, i, name in claims:
        by_block.setdefault(block, []).append((i, name))
    for _ in range(RUNS):
        arguments = [rng.choice((0, 1, rng.randint(-99, 99))) for _ in program.parameters]
        for at, start in run(program, *arguments, fuel=60).trace:
            if at not in by_block:
                continue
            state = dict(start)
            for i, line in enumerate(program[at].instructions):
                made = line.value if line.op == "const" else None
                if line.op not in ("const", "print"):
                    made = evaluate(line.op, [state[arg] for arg in line.args])
                for j, name in by_block[at]:
                    if j == i and (name not in state or state[name] != made):
                        given = ", ".join(f"{p} = {v}" for p, v in zip(program.parameters, arguments, strict=True))
                        holds = state.get(name, "nothing")
                        return (
                            f"With {given}, `{lines[at, i]}` in block {at} computes {made}, "
                            f"and {name} holds {holds} before it."
                        )
                if line.dest:
                    state[line.dest] = made
    return ""


def _invalid(program: Program, value: Any) -> str | None:
    if not isinstance(value, tuple):
        return f"Return a list of (block, number of the instruction, variable); the result is {str(value)[:60]!r}."
    blocks, known = {block.name: block for block in program.blocks}, set(program.variables)
    for it in value:
        if not isinstance(it, tuple) or len(it) != 3:
            return f"The list holds {str(it)[:60]!r}, not (block, number of the instruction, variable)."
        name, i, variable = it
        if not isinstance(name, str) or name not in blocks:
            return f"The list names {str(name)[:60]!r}, and {program.name} has no block of that name."
        if type(i) is not int or not 0 <= i < len(blocks[name].instructions):
            return f"Block {name} has no instruction number {str(i)[:60]}; they count from 0."
        if not isinstance(variable, str) or variable not in known:
            return f"{str(variable)[:60]!r} is not a variable of {program.name}."
        line = blocks[name].instructions[i]
        if line.op in ("const", "copy", "print"):
            return f"`{line}` in block {name} computes nothing: name only operations, not constants, copies or prints."
    if len(set(value)) < len(value):
        twice = next(entry for at, entry in enumerate(value) if entry in value[:at])
        return f"The list names {str(twice)[:80]} twice; name each redundant operation once."
    if len(value) > 4 * sum(len(block.instructions) for block in program.blocks):
        return f"The list has {len(value)} entries; name one variable for each instruction."
    return None
