"""Day 9, rewrite patterns: visible cases and judge. The laws are judged by what is left, and by running the result."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from passlab.exercises.day09._passes import judge_pass, promised
from passlab.judge import Case, Finding
from passlab.judge.expect import Expect
from passlab.mlir import parse
from passlab.mlir.cases import least, most


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: the patterns end, and the module is well-formed. The rest as of every pass."""
    if isinstance(value, str):  # the driver's sentence
        yield Finding("valid", False, value[:500], before=case.build()[0])
    else:
        yield from judge_pass(case, value)


def scalars(lines: str, parameters: str = "x", kind: str = "i32", results: int = 1) -> str:
    """Return a module with a function of scalars of one type. Constants are written where they stand: `addi x 3`.

        scalars("a = muli x 3; b = muli a 2 <nsw>")

    The last lines are what main returns. Flags stand at the end of a line, in angle brackets.
    """
    body: list[str] = []
    floating = kind.startswith("f")

    def value(word: str) -> str:
        if not (word[0].isdigit() or word[0] == "-"):
            return f"%{word}"
        name = f"%c{len(body)}"
        body.append(f"{name} = arith.constant {float(word) if floating else word} : {kind}")
        return name

    names = []
    for line in lines.split(";"):
        line, _, promised = line.partition("<")
        name, op, one, other = line.replace("=", " ").split()
        one, other = value(one), value(other)
        word = "fastmath" if floating else "overflow"
        body.append(f"%{name} = arith.{op} {one}, {other}{f' {word}<{promised}' if promised else ''} : {kind}")
        names.append(f"%{name}")
    types = ", ".join([kind] * results)
    arguments = ", ".join(f"%{name}: {kind}" for name in parameters.split())
    inside = "\n".join(f"  {line}" for line in body)
    returned = ", ".join(names[-results:])
    return f"func.func @main({arguments}) -> ({types}) {{\n{inside}\n  return {returned} : {types}\n}}\n"


def pattern_case(name: str, text: str, *, did: tuple = (), spared: tuple = (), cost: tuple = ()) -> Case:
    about = [verdict for verdict, expected in (("did", did), ("spared", spared), ("cost", cost)) if expected]
    parsed = cache(lambda: parse(text, verified=False))  # the judge builds a case for each answer to it
    return Case(name, lambda: (parsed().clone(),), ("valid", "same", *about), expect=Expect(did, spared, cost))


def at_most(op: str = "", limit: int = 0, why: str = "A law of the table applies.") -> tuple:
    return (most(op and f"arith.{op}", limit, why),)


def stays(op: str, limit: int, why: str) -> tuple:
    return (least(f"arith.{op}", limit, why),)


def only(*allowed: str, why: str) -> tuple:
    """Expect that the operations of the result have no flags but these."""
    return (promised(allowed, why),)


ZERO = "x + 0.0 is not x for x = −0.0, unless the operation has nsz."
TIMES_ZERO = "x · 0.0 is not 0.0 for x = ∞ and x = −1, unless the operation has nnan and nsz."
REGROUPED = "Sums of floats round: both operations need reassoc to be regrouped."


def cases() -> list[Case]:
    return [
        pattern_case("nothing to add", scalars("a = addi x 0; b = muli a 1"), did=at_most()),
        pattern_case("constants on the left", scalars("a = addi 0 x; b = muli 1 a"), did=at_most()),
        pattern_case("two constants", scalars("a = addi 1 2; b = addi a x"), spared=stays("addi", 2, NO_LAW)),
        pattern_case("the sign of zero", scalars("a = addf x 0.0", kind="f32"), spared=stays("addf", 1, ZERO)),
        pattern_case("minus zero", scalars("a = addf x -0.0", kind="f32"), did=at_most()),
        pattern_case("times zero", scalars("a = mulf x 0.0 <nnan>", kind="f32"), spared=stays("mulf", 1, TIMES_ZERO)),
        pattern_case("times zero, allowed", scalars("a = mulf x 0.0 <nnan,nsz>", kind="f32"), did=at_most()),
        pattern_case("sums of small numbers", scalars("a = addi x 100; b = addi a 100", kind="i8"), did=at_most("", 1)),
        pattern_case(
            "not regrouped", scalars("a = addf x 1e8; b = addf a 1.0", kind="f32"), spared=stays("addf", 2, REGROUPED)
        ),
        pattern_case("doubled", scalars("a = muli x 2"), did=at_most("muli")),
        pattern_case("six times", scalars("a = muli x 3; b = muli a 2"), cost=at_most("", 1, SIX)),
    ]


NO_LAW = "No law of the table computes with constants."
SIX = "Merge before you double: (x · 3) · 2 is x · 6."
