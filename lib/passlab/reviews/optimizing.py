"""Questions on day 3: dead code, common subexpressions, constants, laws, layouts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import torch
from torch import Tensor

from passlab.reviews.programs import Line, listing, needed, small_graph, straight_line, text_of
from passlab.reviews.questions import Question, choose, kind

#: Law → its two sides.
LAWS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "x + 0 = x": (lambda x: x + 0.0, lambda x: x),
    "x * 1 = x": (lambda x: x * 1.0, lambda x: x),
    "x - 0 = x": (lambda x: x - 0.0, lambda x: x),
    "-(-x) = x": (lambda x: x.neg().neg(), lambda x: x),
    "x * 2 = x + x": (lambda x: x * 2.0, lambda x: x + x),
    "x / 4 = x * 0.25": (lambda x: x / 4.0, lambda x: x * 0.25),
    "x - x = 0": (lambda x: x - x, torch.zeros_like),
    "x * 0 = 0": (lambda x: x * 0.0, torch.zeros_like),
    "x / x = 1": (lambda x: x / x, torch.ones_like),
    "1 / (1 / x) = x": (lambda x: 1.0 / (1.0 / x), lambda x: x),
    "0 - x = -x": (lambda x: 0.0 - x, lambda x: -x),
}
#: Name → the number that a law is tried on.
NUMBERS = {"3": 3.0, "-2": -2.0, "0": 0.0, "-0": -0.0, "infinity": float("inf"), "NaN": float("nan")}


def holds(law: str, x: float) -> bool:
    """Return whether both sides of a law are one number, to the sign of zero; one NaN is as good as another."""
    a, b = (side(torch.tensor(x, dtype=torch.float64)) for side in LAWS[law])
    return bool(a.isnan() and b.isnan()) or bool(a == b and a.signbit() == b.signbit())


@kind("day03", "dead-code")
def dead_code(rng: random.Random) -> Question:
    """Which nodes are dead."""
    gm = small_graph(rng, 9, "pointwise", "repeat", "dead")
    live = {node for node in gm.graph.nodes if node.op == "output"}
    for node in reversed(gm.graph.nodes):
        if node in live:
            live.update(node.all_input_nodes)
    dead = frozenset(node.name for node in gm.graph.nodes if node not in live and node.op.startswith("call_"))
    text = f"{listing(gm)}\n\nAll nodes are pure. Which does dead code elimination remove (not inputs or weights)?"
    reason = "What the output does not depend on is dead, and so is what only dead nodes read."
    return Question(text, dead, reason)


@kind("day03", "effects")
def effects(rng: random.Random) -> Question:
    """Which lines are dead where some write."""
    lines = [Line("a", "mul", ("x", "2")), Line("b", "mul", ("x", "3"))]
    for name in "cdef":
        source = rng.choice([line.name for line in lines if not line.op.endswith("_")])
        op = rng.choice(("add", "mul", "add_", "add_"))
        lines.append(Line(name, op, (source, str(rng.randint(4, 9)))))
    values = [line.name for line in lines if not line.op.endswith("_")]
    result = rng.choice(values[-2:])
    live, keep = {result}, set()
    for line in reversed(lines):
        if line.operands[0] in live if line.op.endswith("_") else line.name in live:
            keep.add(line.name)
            live.add(line.operands[0])
    answer = frozenset(line.name for line in lines) - keep
    text = (
        f"{text_of(lines, result)}\n\n`add_` adds in place, into its first operand; no later line reads its own name. "
        "Which lines can all be removed, and the result stays the same?"
    )
    reason = "A write is needed if what it writes into is read later, on the way to the result."
    return Question(text, frozenset(answer), reason)


@kind("day03", "cse")
def cse(rng: random.Random) -> Question:
    """How many operations are left after CSE."""
    lines = [
        Line(name, rng.choice(("add", "add", "sub")), (rng.choice("xya"), rng.choice("xyab")))
        for name in ("c", "d", "e", "f", "g")
    ]
    lines = [Line("a", "mul", ("x", "y")), Line("b", "mul", tuple(rng.sample("xyx", 2))), *lines]
    numbers: dict[tuple, str] = {}
    leader = {"x": "x", "y": "y"}
    for line in lines:
        operands = [leader[name] for name in line.operands]
        key = (line.op, *(sorted(operands) if line.op in ("add", "mul") else operands))
        leader[line.name] = numbers.setdefault(key, line.name)
    text = (
        f"{text_of(lines, *(line.name for line in lines))}\n\nCSE knows that add and mul commute, and no other law. "
        "How many operations are left?"
    )
    merged = ", ".join(f"{a} = {b}" for a, b in leader.items() if a != b)
    return Question(text, len(numbers), f"Equal: {merged or 'none'}. Operands are merged before their users.")


@kind("day03", "folding")
def folding(rng: random.Random) -> Question:
    """Which nodes can be folded."""
    lines = [Line("v", "weight", ()), Line("w", "weight", ())]
    for name in "abcdefg":
        op = rng.choice(("add", "mul", "relu", "relu", "rand_like"))
        names = ["v", "w", "x", *(line.name for line in lines[2:])]
        lines.append(Line(name, op, tuple(rng.choice(names) for _ in range(2 if op in ("add", "mul") else 1))))
    moving = {"x"}
    for line in lines:
        if line.op == "rand_like" or moving.intersection(line.operands):
            moving.add(line.name)
    answer = frozenset(line.name for line in lines[2:] if line.name not in moving)
    text = (
        f"{text_of(lines, 'g')}\n\nx is the input, rand_like draws at random. Which of the lines a to g can be folded?"
    )
    return Question(text, answer, "Constant is what depends neither on the input nor on a draw, through all operands.")


@kind("day03", "laws")
def laws(rng: random.Random) -> Question:
    """Which law is false for a special number."""
    name = rng.choice([n for n, x in NUMBERS.items() if any(not holds(law, x) for law in LAWS)])
    x = NUMBERS[name]
    wrong = rng.choice([law for law in LAWS if not holds(law, x)])
    right = rng.sample([law for law in LAWS if holds(law, x)], 3)
    text = f"x is the float {name}. Which law is false for it? (The sign of a zero counts; one NaN equals another.)"
    left, other = (side(torch.tensor(x, dtype=torch.float64)).item() for side in LAWS[wrong])
    reason = f"The left side is {left}, the right side {other}."
    return Question(text, wrong, reason, choose(rng, wrong, right))


@kind("day03", "layouts")
def layouts(rng: random.Random) -> Question:
    """How many conversions of layout are needed."""
    ops = [rng.choice(("conv", "relu", "relu", "softmax")) for _ in range(rng.randint(4, 7))]
    wants = {"conv": "NHWC", "softmax": "NCHW", "relu": "either"}
    fixed = ["NCHW", *(wants[op] for op in ops if op != "relu"), "NCHW"]
    answer = sum(a != b for a, b in itertools.pairwise(fixed))
    text = (
        f"input (NCHW) → {' → '.join(ops)} → output (NCHW)\n\nconv wants NHWC, softmax NCHW, and relu takes either. "
        "How many conversions does the chain need at least?"
    )
    reason = "Where relu passes the layout on, only changes between neighbours with a wish count."
    return Question(text, answer, reason)


@kind("day03", "fixpoint")
def fixpoint(rng: random.Random) -> Question:
    """How many nodes dead code elimination leaves after folding."""
    lines = straight_line(rng, 7, inputs=("x", "w"), ops=("add", "mul", "relu"))
    moving = {"x"}
    for line in lines:
        if moving.intersection(line.operands):
            moving.add(line.name)
    live = needed([line for line in lines if line.name in moving], "g")
    answer = sum(line.name in live and line.name in moving for line in lines)
    text = (
        f"{text_of(lines, 'g')}\n\nw is a weight. Constants are folded, then dead code is removed. "
        "How many of the operations a to g are left in the graph?"
    )
    return Question(text, answer, "An operation is left if it depends on x and g depends on it.")
