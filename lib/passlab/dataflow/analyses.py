"""The classic analyses, each as data for the solver.

| analysis | direction | at the boundary | initial | merge | question |
|---|---|---|---|---|---|
| LIVENESS | backward | nothing | nothing | union | may this value still be read? |
| REACHING | forward | the parameters | nothing | union | which assignments may this value come from? |
| AVAILABLE | forward | nothing | everything | intersection | is this computed on every path to here? |
| ANTICIPATED | backward | nothing | everything | intersection | is this computed on every path from here? |
| DOMINATORS | forward | nothing | all blocks | intersection | which blocks are on every path to here? |
| CONSTANTS | forward | nothing known | unreached | common constants | which value does it have on every path to here? |
| INTERVALS | forward | nothing known | unreached | the hull | within which bounds is it on every path to here? |

Facts are sets, or dictionaries from variables to values or intervals; None means unreached.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

from passlab.dataflow.cfg import Block, Instruction, Program
from passlab.dataflow.interpret import COMMUTATIVE, HIGH, LOW, OPS, evaluate, meaning
from passlab.dataflow.solver import Analysis

# ---------------------------------------------------------------------------------------------------- sets


def live_before(block: Block, after: frozenset[str]) -> frozenset[str]:
    """Return the variables that are live at the start of a block.

    Upwards from its end, an assignment removes a variable and a read adds one. x = add x 1 does both, in this order: x
    is live before it.
    """
    live = set(after) | set(block.terminator.args)
    for instr in reversed(block.instructions):
        live.discard(instr.dest)
        live.update(instr.args)
    return frozenset(live)


#: Variables that may be read from here on before they are assigned again.
LIVENESS = Analysis(
    "liveness",
    "backward",
    boundary=lambda program: frozenset(),
    initial=lambda program: frozenset(),
    merge=frozenset.union,
    transfer=live_before,
)


def reaching_after(block: Block, before: frozenset[str]) -> frozenset[str]:
    """Return the definitions that reach the end of a block, as "variable@block:line"; parameters are "x@"."""
    last = {instr.dest: f"{instr.dest}@{block.name}:{i}" for i, instr in enumerate(block.instructions) if instr.dest}
    return frozenset(d for d in before if d.split("@")[0] not in last) | frozenset(last.values())


REACHING = Analysis(
    "reaching definitions",
    "forward",
    boundary=lambda program: frozenset(f"{name}@" for name in program.parameters),
    initial=lambda program: frozenset(),
    merge=frozenset.union,
    transfer=reaching_after,
)


def expression(instr: Instruction) -> tuple[str, ...] | None:
    """Return the expression (op, operands) of an instruction, or None for a constant, a copy or an effect."""
    op = meaning(instr.op)
    if not instr.dest or op in ("const", "copy", "print"):
        return None
    return (op, *(sorted(instr.args) if op in COMMUTATIVE else instr.args))


def available_after(block: Block, before: frozenset[tuple]) -> frozenset[tuple]:
    """Return the expressions that are computed in or before a block, with no operand assigned since."""
    available = set(before)
    for instr in block.instructions:
        if expr := expression(instr):
            available.add(expr)
        available = {e for e in available if instr.dest not in e[1:]}
    return frozenset(available)


def _every_expression(program: Program) -> frozenset[tuple]:
    return frozenset(expr for block in program.blocks for instr in block.instructions if (expr := expression(instr)))


#: Expressions that are computed on every path to here, with operands that have not changed since.
AVAILABLE = Analysis(
    "available expressions",
    "forward",
    boundary=lambda program: frozenset(),
    initial=_every_expression,
    merge=frozenset.intersection,
    transfer=available_after,
)


def anticipated_before(block: Block, after: frozenset[tuple]) -> frozenset[tuple]:
    """Return the expressions that are computed on every path from here before an operand is assigned ("very busy")."""
    anticipated = set(after)
    for instr in reversed(block.instructions):
        anticipated = {e for e in anticipated if instr.dest not in e[1:]}
        if expr := expression(instr):
            anticipated.add(expr)
    return frozenset(anticipated)


ANTICIPATED = Analysis(
    "anticipated expressions",
    "backward",
    boundary=lambda program: frozenset(),
    initial=_every_expression,
    merge=frozenset.intersection,
    transfer=anticipated_before,
)

#: Dominators of each block: the blocks on every path to it.
DOMINATORS = Analysis(
    "dominators",
    "forward",
    boundary=lambda program: frozenset(),
    initial=lambda program: frozenset(block.name for block in program.blocks),
    merge=frozenset.intersection,
    transfer=lambda block, before: before | {block.name},
)

# ---------------------------------------------------------------------------------------------------- constants

Constants = dict[str, Any]


def common_constants(a: Constants | None, b: Constants | None) -> Constants | None:
    """Return the constants of both facts. An unreached fact changes nothing."""
    if a is None or b is None:
        return b if a is None else a
    return {name: value for name, value in a.items() if name in b and b[name] == value}


def constants_after(block: Block, before: Constants | None) -> Constants | None:
    """Return the constants at the end of a block: the result of an operation is known if all operands are."""
    if before is None:
        return None
    known = dict(before)
    for instr in block.instructions:
        if instr.op == "const":
            known[instr.dest] = instr.value
        elif instr.dest and meaning(instr.op) in OPS and all(isinstance(known.get(arg), Real) for arg in instr.args):
            known[instr.dest] = evaluate(instr.op, [known[arg] for arg in instr.args])
            if known[instr.dest] != known[instr.dest]:  # NaN is not equal to itself, so facts would never be equal
                del known[instr.dest]
        else:
            known.pop(instr.dest, None)
    return known


def constants_on_edge(block: Block, target: str, after: Constants | None) -> Constants | None:
    """Return the fact on an edge: None if the branch condition is known and selects the other target.

    M. N. Wegman, F. K. Zadeck, "Constant Propagation with Conditional Branches", TOPLAS 1991.
    """
    end = block.terminator
    if after is None or end.kind != "branch" or end.args[0] not in after:
        return after
    return after if target == end.targets[0 if after[end.args[0]] else 1] else None


#: Variables with the same value on every executable path to here.
CONSTANTS = Analysis(
    "constants",
    "forward",
    boundary=lambda program: {},
    initial=lambda program: None,
    merge=common_constants,
    transfer=constants_after,
    edge=constants_on_edge,
)

# ---------------------------------------------------------------------------------------------------- intervals

Interval = tuple[int, int]
Ranges = dict[str, Interval]


def hull(a: Ranges | None, b: Ranges | None) -> Ranges | None:
    """Return the smallest intervals around both; a variable without one may be any number."""
    if a is None or b is None:
        return b if a is None else a
    return {name: (min(a[name][0], b[name][0]), max(a[name][1], b[name][1])) for name in a.keys() & b}


def intervals_after(block: Block, before: Ranges | None) -> Ranges | None:
    """Return the intervals at the end of a block. A result that may overflow has none."""
    if before is None:
        return None
    known = dict(before)
    for instr in block.instructions:
        interval = _interval(instr, known)
        if interval and interval[0] >= LOW and interval[1] <= HIGH:
            known[instr.dest] = interval
        else:
            known.pop(instr.dest, None)
    return known


def _interval(instr: Instruction, known: Ranges) -> Interval | None:
    op = meaning(instr.op)
    if op == "const":
        return (instr.value, instr.value) if isinstance(instr.value, int) else None
    if op in ("lt", "le", "gt", "ge", "eq", "ne", "not", "and", "or"):
        return 0, 1
    if not all(arg in known for arg in instr.args):
        return None
    args = [known[arg] for arg in instr.args]
    if op == "copy":
        return args[0]
    if op in ("add", "sub", "mul", "min", "max"):  # monotone in each operand, so the extremes are at the corners
        corners = [OPS[op](a, b) for a in args[0] for b in args[1]]
        return min(corners), max(corners)
    return None


def intervals_on_edge(block: Block, target: str, after: Ranges | None) -> Ranges | None:
    """Return the intervals on an edge. If i < n holds on it, i is below the upper bound of n."""
    end = block.terminator
    if after is None or end.kind != "branch":
        return after
    definitions = [i for i, instr in enumerate(block.instructions) if instr.dest == end.args[0]]
    if not definitions or meaning(block.instructions[definitions[-1]].op) != "lt":
        return after
    left, right = block.instructions[definitions[-1]].args
    if {left, right} & {instr.dest for instr in block.instructions[definitions[-1] :]}:
        return after  # an operand is assigned after the comparison
    known, holds = dict(after), target == end.targets[0]
    (a, b), (c, d) = known.get(left, (LOW, HIGH)), known.get(right, (LOW, HIGH))
    known[left] = (a, min(b, d - 1)) if holds else (max(a, c), b)
    known[right] = (max(c, a + 1), d) if holds else (c, min(d, b))
    return None if any(low > high for low, high in known.values()) else known


def widen_intervals(old: Ranges | None, new: Ranges | None) -> Ranges | None:
    """Return the new intervals, with each bound that moved set to the least or greatest number.

    P. Cousot, R. Cousot, "Abstract Interpretation", POPL 1977.
    """
    if old is None or new is None:
        return new
    return {
        name: (low if low == old[name][0] else LOW, high if high == old[name][1] else HIGH)
        for name, (low, high) in (hull(old, new) or {}).items()
    }


#: Bounds of each variable on every executable path to here.
INTERVALS = Analysis(
    "intervals",
    "forward",
    boundary=lambda program: {},
    initial=lambda program: None,
    merge=hull,
    transfer=intervals_after,
    edge=intervals_on_edge,
    widen=widen_intervals,
)

ANALYSES = {a.name: a for a in (LIVENESS, REACHING, AVAILABLE, ANTICIPATED, DOMINATORS, CONSTANTS, INTERVALS)}
