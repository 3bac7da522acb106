"""Value numbering over a whole program: facts are equations between variables, and merging keeps what both know.

This is the first global value numbering (G. A. Kildall, POPL 1973), which classed expressions by their value. A fact is
a set of equations `x = y` and `x = op y z`, and it holds *all* that follow from one another, so that merging is plain
intersection. It finds that x and y are equal behind a branch that sets both to 1 on one side and both to 2 on the
other, though neither is a constant.
"""

from __future__ import annotations

from passlab.dataflow.analyses import expression
from passlab.dataflow.cfg import Block, Instruction, Program
from passlab.dataflow.interpret import COMMUTATIVE, meaning
from passlab.dataflow.solver import Analysis, solve

#: (variable, its value): ("copy", y), ("const", 3), or (op, y, z) in terms of variables that hold the operands.
Equation = tuple[str, tuple]
Equations = frozenset[Equation]


def merged(one: Equations | None, other: Equations | None) -> Equations | None:
    """Return the equations of both. A place that is not reached has no say."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def assigned(known: Equations, line: Instruction) -> Equations:
    """Return the equations after an instruction."""
    value = right_side(line)
    if value is None:
        return frozenset(it for it in known if line.dest not in _names(it)) if line.dest else known
    # The new value is called "" until the old one is forgotten: x = add x y is told in terms of the old x.
    kept = [it for it in _complete(known | {("", value)}) if line.dest not in _names(it)]
    return frozenset((name or line.dest, _put(it, "", line.dest)) for name, it in kept)


def right_side(line: Instruction) -> tuple | None:
    """Return what an instruction computes: ("const", 3), ("copy", "y") or (op, operands); None for an effect."""
    if line.op == "const":
        return ("const", line.value)
    return ("copy", *line.args) if meaning(line.op) == "copy" else expression(line)


def _names(equation: Equation) -> tuple:
    name, value = equation
    return (name,) if value[0] == "const" else (name, *value[1:])


def _put(value: tuple, old: str, new: str) -> tuple:
    """Return a right side with one variable in place of another; operands that may change places are sorted."""
    op, *args = value
    if op == "const":
        return value
    args = [new if arg == old else arg for arg in args]
    return (op, *(sorted(args) if op in COMMUTATIVE else args))


def _complete(equations: Equations) -> Equations:
    """Return the equations with all that follow: equals stand for equals, and equal right sides make equals."""
    while True:
        equal = {(name, value[1]) for name, value in equations if value[0] == "copy"}
        more = {(b, ("copy", a)) for a, b in equal}
        more |= {(a, value) for a, b in equal for name, value in equations if name == b}
        more |= {(name, _put(value, b, a)) for a, b in equal for name, value in equations if b in value[1:]}
        by_value: dict[tuple, list[str]] = {}
        for name, value in equations:
            by_value.setdefault(value, []).append(name)
        more |= {(a, ("copy", b)) for names in by_value.values() for a in names for b in names}
        more = {(name, value) for name, value in more if value != ("copy", name)}
        if more <= equations:
            return equations
        equations = equations | more


def equations_after(block: Block, before: Equations | None) -> Equations | None:
    """Return the equations that hold at the end of a block."""
    if before is None:
        return None
    for line in block.instructions:
        before = assigned(before, line)
    return before


VALUES = Analysis(
    "value numbering",
    "forward",
    boundary=lambda program: frozenset(),
    initial=lambda program: None,
    merge=merged,
    transfer=equations_after,
)


def redundant(program: Program) -> dict[str, dict[int, list[str]]]:
    """Return, by block and number of the instruction, the variables that already hold what it computes."""
    facts, found = solve(program, VALUES).before, {}
    for block in program.blocks:
        known, found[block.name] = facts[block.name], {}
        for i, line in enumerate(block.instructions if known is not None else ()):
            if (value := expression(line)) and (holding := sorted(n for n, it in known if it == value)):
                found[block.name][i] = holding
            known = assigned(known, line)
    return found
