"""The classic analyses, each as data for the solver.

| analysis | direction | at the boundary | initial | merge | question |
|---|---|---|---|---|---|
| LIVENESS | backward | nothing | nothing | union | may this value still be read? |
| REACHING | forward | the parameters | nothing | union | which assignments may have made this value? |
| AVAILABLE | forward | nothing | everything | intersection | has this been computed on every way here? |
| ANTICIPATED | backward | nothing | everything | intersection | will this be computed on every way from here? |
| DOMINATORS | forward | nothing | all blocks | intersection | which blocks does every way here run through? |
| CONSTANTS | forward | nothing known | unreached | what both know | which value does it have on every way here? |
| INTERVALS | forward | nothing known | unreached | the hull | between which numbers does it stay? |

Facts are sets, or dictionaries from variables to what is known; None stands for "no run gets here".
"""

from __future__ import annotations

from typing import Any

from passlab.dataflow.cfg import Block, Instruction, Program
from passlab.dataflow.interpret import COMMUTATIVE, HIGH, LOW, OPS, evaluate, meaning
from passlab.dataflow.solver import Analysis

# ---------------------------------------------------------------------------------------------------- sets


def live_before(block: Block, after: frozenset[str]) -> frozenset[str]:
    """Return what is live at the start of a block: from its end upwards, an assignment ends a life, a read begins one.

    x = add x 1 does both, in this order: x is live before it.
    """
    live = set(after) | set(block.terminator.args)
    for line in reversed(block.instructions):
        live.discard(line.dest)
        live.update(line.args)
    return frozenset(live)


#: Which variables are read after here, before they are assigned again.
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
    last = {line.dest: f"{line.dest}@{block.name}:{i}" for i, line in enumerate(block.instructions) if line.dest}
    return frozenset(d for d in before if d.split("@")[0] not in last) | frozenset(last.values())


REACHING = Analysis(
    "reaching definitions",
    "forward",
    boundary=lambda program: frozenset(f"{name}@" for name in program.parameters),
    initial=lambda program: frozenset(),
    merge=frozenset.union,
    transfer=reaching_after,
)


def expression(line: Instruction) -> tuple[str, ...] | None:
    """Return what an instruction computes, (op, operands), or None for a constant, a copy or an effect."""
    op = meaning(line.op)
    if not line.dest or op in ("const", "copy", "print"):
        return None
    return (op, *(sorted(line.args) if op in COMMUTATIVE else line.args))


def available_after(block: Block, before: frozenset[tuple]) -> frozenset[tuple]:
    """Return the expressions whose value is up to date: computed, and no operand assigned since."""
    there = set(before)
    for line in block.instructions:
        if made := expression(line):
            there.add(made)
        there = {it for it in there if line.dest not in it[1:]}
    return frozenset(there)


def _every_expression(program: Program) -> frozenset[tuple]:
    return frozenset(made for block in program.blocks for line in block.instructions if (made := expression(line)))


#: Which expressions have been computed on every path to here, with operands that have not changed since.
AVAILABLE = Analysis(
    "available expressions",
    "forward",
    boundary=lambda program: frozenset(),
    initial=_every_expression,
    merge=frozenset.intersection,
    transfer=available_after,
)


def anticipated_before(block: Block, after: frozenset[tuple]) -> frozenset[tuple]:
    """Return the expressions that are computed from here on, whatever happens, with the operands of now."""
    there = set(after)
    for line in reversed(block.instructions):
        there = {it for it in there if line.dest not in it[1:]}
        if made := expression(line):
            there.add(made)
    return frozenset(there)


ANTICIPATED = Analysis(
    "anticipated expressions",
    "backward",
    boundary=lambda program: frozenset(),
    initial=_every_expression,
    merge=frozenset.intersection,
    transfer=anticipated_before,
)

DOMINATORS = Analysis(
    "dominators",
    "forward",
    boundary=lambda program: frozenset(),
    initial=lambda program: frozenset(block.name for block in program.blocks),
    merge=frozenset.intersection,
    transfer=lambda block, before: before | {block.name},
)

# ---------------------------------------------------------------------------------------------------- constants

Known = dict[str, Any]


def same_constants(one: Known | None, other: Known | None) -> Known | None:
    """Return what both know. A place that is not reached has no say."""
    if one is None or other is None:
        return other if one is None else one
    return {name: value for name, value in one.items() if name in other and other[name] == value}


def constants_after(block: Block, before: Known | None) -> Known | None:
    """Return the variables whose value is known at the end of a block: a result is, if all operands are."""
    if before is None:
        return None
    known = dict(before)
    for line in block.instructions:
        if line.op == "const":
            known[line.dest] = line.value
        elif line.dest and meaning(line.op) in OPS and all(arg in known for arg in line.args):
            known[line.dest] = evaluate(line.op, [known[arg] for arg in line.args])
            if known[line.dest] != known[line.dest]:  # NaN: nothing is equal to it, so no two paths agree on it
                del known[line.dest]
        else:
            known.pop(line.dest, None)
    return known


def taken(block: Block, target: str, after: Known | None) -> Known | None:
    """Return the fact on an edge: None if the branch is known to go the other way.

    M. N. Wegman, F. K. Zadeck, "Constant Propagation with Conditional Branches", TOPLAS 1991.
    """
    end = block.terminator
    if after is None or end.kind != "branch" or end.args[0] not in after:
        return after
    return after if target == end.targets[0 if after[end.args[0]] else 1] else None


#: Which variables have the same number on every path that can be taken to here.
CONSTANTS = Analysis(
    "constants",
    "forward",
    boundary=lambda program: {},
    initial=lambda program: None,
    merge=same_constants,
    transfer=constants_after,
    edge=taken,
)

# ---------------------------------------------------------------------------------------------------- intervals

Interval = tuple[int, int]
Ranges = dict[str, Interval]


def hull(one: Ranges | None, other: Ranges | None) -> Ranges | None:
    """Return the least intervals around both; a variable without one may be any number."""
    if one is None or other is None:
        return other if one is None else one
    both = {name: (min(one[name][0], other[name][0]), max(one[name][1], other[name][1])) for name in one.keys() & other}
    return both


def intervals_after(block: Block, before: Ranges | None) -> Ranges | None:
    """Return the intervals at the end of a block. What may overflow can be anything."""
    if before is None:
        return None
    known = dict(before)
    for line in block.instructions:
        found = _interval(line, known)
        if found and found[0] >= LOW and found[1] <= HIGH:
            known[line.dest] = found
        else:
            known.pop(line.dest, None)
    return known


def _interval(line: Instruction, known: Ranges) -> Interval | None:
    op = meaning(line.op)
    if op == "const":
        return (line.value, line.value) if isinstance(line.value, int) else None
    if op in ("lt", "le", "gt", "ge", "eq", "ne", "not", "and", "or"):
        return 0, 1
    if not all(arg in known for arg in line.args):
        return None
    args = [known[arg] for arg in line.args]
    if op == "copy":
        return args[0]
    if op in ("add", "sub", "mul", "min", "max"):  # monotone in each operand, up or down: the corners are enough
        corners = [OPS[op](a, b) for a in args[0] for b in args[1]]
        return min(corners), max(corners)
    return None


def narrowed(block: Block, target: str, after: Ranges | None) -> Ranges | None:
    """Return the intervals on an edge: on the way on which i < n holds, i is at most the largest n, less 1."""
    end = block.terminator
    if after is None or end.kind != "branch":
        return after
    where = [i for i, line in enumerate(block.instructions) if line.dest == end.args[0]]
    if not where or meaning(block.instructions[where[-1]].op) != "lt":
        return after
    less, more = block.instructions[where[-1]].args
    if {less, more} & {line.dest for line in block.instructions[where[-1] :]}:
        return after  # assigned after the comparison
    known, yes = dict(after), target == end.targets[0]
    (a, b), (c, d) = known.get(less, (LOW, HIGH)), known.get(more, (LOW, HIGH))
    known[less] = (a, min(b, d - 1)) if yes else (max(a, c), b)
    known[more] = (max(c, a + 1), d) if yes else (c, min(d, b))
    return None if any(low > high for low, high in known.values()) else known


def widened(old: Ranges | None, new: Ranges | None) -> Ranges | None:
    """Return the new intervals, with each bound that still moves put to the end of the numbers.

    P. Cousot, R. Cousot, "Abstract Interpretation", POPL 1977.
    """
    if old is None or new is None:
        return new
    both = hull(old, new) or {}
    return {
        name: (low if low == old[name][0] else LOW, high if high == old[name][1] else HIGH)
        for name, (low, high) in both.items()
    }


#: Between which bounds each variable lies here, on every path that can be taken.
INTERVALS = Analysis(
    "intervals",
    "forward",
    boundary=lambda program: {},
    initial=lambda program: None,
    merge=hull,
    transfer=intervals_after,
    edge=narrowed,
    widen=widened,
)

ANALYSES = {a.name: a for a in (LIVENESS, REACHING, AVAILABLE, ANTICIPATED, DOMINATORS, CONSTANTS, INTERVALS)}
