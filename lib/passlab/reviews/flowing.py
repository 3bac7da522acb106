"""Questions on day 6: facts along the edges of programs."""

from __future__ import annotations

import itertools
import math
import random

from passlab.dataflow import DOMINATORS, LIVENESS, Program, random_program, solve
from passlab.reviews.questions import Question, choose, kind


def _program(rng: random.Random, size: int, jumps: bool = False) -> Program:
    """Return a random program in which no block is unreached."""
    while True:
        program = random_program(rng.randrange(2**32), size, 3, jumps)
        if all(fact is not None for fact in solve(program, DOMINATORS).before.values()):
            return program


@kind("day06", "live")
def live(rng: random.Random) -> Question:
    """Which variables are live."""
    program = _program(rng, 5)
    block = rng.choice(program.blocks[1:]).name
    answer = solve(program, LIVENESS).before[block]
    text = f"{program}\n\nWhich variables are live at the start of {block}?"
    reason = "A variable is live if some path from there reads it before it is assigned."
    return Question(text, frozenset(answer), reason)


@kind("day06", "dominators")
def dominators(rng: random.Random) -> Question:
    """Which blocks dominate a block."""
    program = _program(rng, 6, jumps=True)
    block = rng.choice(program.blocks[1:]).name
    edges = "\n".join(f"{b.name} → {', '.join(b.terminator.targets) or 'end'}" for b in program.blocks)
    answer = frozenset(solve(program, DOMINATORS).before[block]) - {block}
    text = f"{edges}\n\nThe first block is the entry. Which blocks, {block} itself left out, dominate {block}?"
    return Question(text, answer, f"Those that are on every path from the entry to {block}.")


@kind("day06", "interval")
def interval(rng: random.Random) -> Question:
    """How far an interval reaches."""
    lows = {name: rng.randint(-3, 2) for name in "xy"}
    bounds = {name: (low, low + rng.randint(0, 4)) for name, low in lows.items()}
    lines = []
    for name in "abc":
        op = rng.choice("+-*")
        left, right = (rng.choice(list(bounds)) for _ in range(2))
        (a, b), (c, d) = bounds[left], bounds[right]
        ends = {
            "+": (a + c, b + d),
            "-": (a - d, b - c),
            "*": (min(a * c, a * d, b * c, b * d), max(a * c, a * d, b * c, b * d)),
        }
        bounds[name] = ends[op]
        lines.append(f"{name} = {left} {op} {right}")
    ranges = ", ".join(f"{name} is in {bounds[name][0]}..{bounds[name][1]}" for name in "xy")
    text = (
        ranges + "\n" + "\n".join(lines) + "\n\nIntervals keep the bounds of each variable, and nothing of how two "
        "variables belong together. What is their upper bound of c?"
    )
    reason = "The intervals are " + ", ".join(f"{name} {bounds[name][0]}..{bounds[name][1]}" for name in "abc") + "."
    return Question(text, bounds["c"][1], reason)


@kind("day06", "join")
def join(rng: random.Random) -> Question:
    """Which variables are known after a join."""
    arms = [{name: rng.randint(1, 2) for name in "ab" if rng.random() < 0.8} for _ in range(2)]
    start = {name: rng.randint(1, 2) for name in "abc"}
    after = [("d", rng.choice("abc"), rng.choice("abc")), ("e", rng.choice("abcd"), rng.choice("abcd"))]
    ends = [start | arm for arm in arms]
    known = {name for name in "abc" if ends[0][name] == ends[1][name]}
    for name, one, other in after:
        if {one, other} <= known:
            known.add(name)
    block = "\n".join
    consts = [block(f"  {name} = const {value}" for name, value in each.items()) for each in (start, *arms)]
    adds = block(f"  {name} = add {one} {other}" for name, one, other in after)
    program = (
        f"program p(q)\nentry:\n{consts[0]}\n  branch q left right\nleft:\n{consts[1]}\n  jump join\n"
        f"right:\n{consts[2]}\n  jump join\njoin:\n{adds}\n  jump done\ndone:\n  return d e"
    ).replace("\n\n", "\n")
    text = f"{program}\n\nConstant propagation merges facts at the join. Of a to e, which have a known value in done?"
    return Question(text, frozenset(known), "Known after the join is what both sides leave equal, and sums of that.")


@kind("day06", "broadcast")
def broadcast(rng: random.Random) -> Question:
    """How many elements a broadcast has."""
    full = [rng.choice((1, 2, 3, 4, 5)) for _ in range(rng.randint(2, 4))]
    shapes = [[size if rng.random() < 0.6 else 1 for size in full][rng.choice((0, 0, 1)) :] for _ in range(2)]
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    result = [max(sizes) for sizes in zip(*padded, strict=True)]
    text = f"Tensors of the shapes {shapes[0]} and {shapes[1]} are added. How many elements has the sum?"
    return Question(
        text, math.prod(result), f"Its shape is {result}: sizes are aligned at the right, and a 1 stretches."
    )


@kind("day06", "visiting")
def reverse_postorder(rng: random.Random) -> Question:
    """In which order a forward analysis visits."""
    names = "bcde"
    edges = [("a", "b"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e")]
    if rng.random() < 0.5:
        edges.append(("e", "b"))
    rename = dict(zip(names, rng.sample(names, 4), strict=True)) | {"a": "a"}
    renamed = [(rename[a], rename[b]) for a, b in edges]
    rng.shuffle(renamed)
    forward = [(rename[a], rename[b]) for a, b in edges if (a, b) != ("e", "b")]
    orders = [("a", *order) for order in itertools.permutations(names)]
    good = [o for o in orders if all(o.index(a) < o.index(b) for a, b in forward)]
    answer = " ".join(rng.choice(good))
    others = [" ".join(order) for order in rng.sample([o for o in orders if o not in good], 3)]
    text = ", ".join(f"{a} → {b}" for a, b in renamed) + "\n\na is the entry. Which order is a reverse post-order?"
    reason = "A block comes before its successors, except along an edge back to the head of a loop."
    return Question(text, answer, reason, choose(rng, answer, others))
