"""Value numbering over a whole program: a fact is a set of equations between variables, and merging is intersection.

This is the first global value numbering (G. A. Kildall, POPL 1973), which classed expressions by their value. A fact is
a set of equations `x = y` and `x = op y z` that contains *all* their consequences, so that plain intersection loses
none. It finds that x and y are equal after a branch that sets both to 1 on one side and both to 2 on the other, though
neither is a constant.
"""

from __future__ import annotations

from passlab.dataflow.analyses import expression
from passlab.dataflow.cfg import Block, Instruction, Program
from passlab.dataflow.interpret import COMMUTATIVE, meaning
from passlab.dataflow.solver import Analysis, solve

#: (variable, its value): ("copy", y), ("const", 3), or (op, y, z) with variables as operands.
Equation = tuple[str, tuple]
Equations = frozenset[Equation]


def common_equations(a: Equations | None, b: Equations | None) -> Equations | None:
    """Return the equations of both facts. An unreached fact changes nothing."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


def equations_after_instruction(known: Equations, instr: Instruction) -> Equations:
    """Return the equations after an instruction."""
    value = right_side(instr)
    if value is None:
        return frozenset(e for e in known if instr.dest not in _names(e)) if instr.dest else known
    # "" stands for the new value until the old one is removed: x = add x y refers to the old x.
    rest = [e for e in _closure(known | {("", value)}) if instr.dest not in _names(e)]
    return frozenset((name or instr.dest, _substitute(value, "", instr.dest)) for name, value in rest)


def right_side(instr: Instruction) -> tuple | None:
    """Return the value of an instruction: ("const", 3), ("copy", "y") or (op, operands); None for an effect."""
    if instr.op == "const":
        return ("const", instr.value)
    return ("copy", *instr.args) if meaning(instr.op) == "copy" else expression(instr)


def _names(equation: Equation) -> tuple:
    name, value = equation
    return (name,) if value[0] == "const" else (name, *value[1:])


def _substitute(value: tuple, old: str, new: str) -> tuple:
    """Return a right side with `new` in place of the variable `old`; commutative operands are sorted."""
    op, *args = value
    if op == "const":
        return value
    args = [new if arg == old else arg for arg in args]
    return (op, *(sorted(args) if op in COMMUTATIVE else args))


def _closure(equations: Equations) -> Equations:
    """Return the equations with all their consequences: equals replace equals, and equal right sides are equal."""
    while True:
        equal = {(name, value[1]) for name, value in equations if value[0] == "copy"}
        new = {(b, ("copy", a)) for a, b in equal}
        new |= {(a, value) for a, b in equal for name, value in equations if name == b}
        new |= {(name, _substitute(value, b, a)) for a, b in equal for name, value in equations if b in value[1:]}
        by_value: dict[tuple, list[str]] = {}
        for name, value in equations:
            by_value.setdefault(value, []).append(name)
        new |= {(a, ("copy", b)) for names in by_value.values() for a in names for b in names}
        new = {(name, value) for name, value in new if value != ("copy", name)}
        if new <= equations:
            return equations
        equations = equations | new


def equations_after(block: Block, before: Equations | None) -> Equations | None:
    """Return the equations at the end of a block."""
    if before is None:
        return None
    for instr in block.instructions:
        before = equations_after_instruction(before, instr)
    return before


VALUES = Analysis(
    "value numbering",
    "forward",
    boundary=lambda program: frozenset(),
    initial=lambda program: None,
    merge=common_equations,
    transfer=equations_after,
)


def redundant(program: Program) -> dict[str, dict[int, list[str]]]:
    """Return block → number of an instruction → variables that already hold its value."""
    facts = solve(program, VALUES).before
    holders: dict[str, dict[int, list[str]]] = {block.name: {} for block in program.blocks}
    for block in program.blocks:
        if (known := facts[block.name]) is None:
            continue
        for i, instr in enumerate(block.instructions):
            value = expression(instr)
            if value and (names := sorted(name for name, right in known if right == value)):
                holders[block.name][i] = names
            known = equations_after_instruction(known, instr)
    return holders
