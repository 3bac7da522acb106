"""Questions on day 4: what one kernel saves, and what may be one kernel."""

from __future__ import annotations

import math
import random
from functools import cache

from passlab.fx.dominators import post_dominators
from passlab.reviews.programs import listing, small_graph, straight_line, text_of
from passlab.reviews.questions import Question, choose, kind


@kind("day04", "traffic")
def traffic(rng: random.Random) -> Question:
    """How many bytes fusion saves."""
    elements = 4 ** rng.randint(2, 6)
    lines = straight_line(rng, rng.randint(3, 5), inputs=("x",), ops=("relu", "exp", "add", "mul"))
    chain = [line._replace(operands=(name, *line.operands[1:])) for line, name in zip(lines, "xabcd", strict=False)]
    apart = sum(1 + len({*line.operands}) for line in chain)
    together = 2
    answer = (apart - together) * 4 * elements
    text = (
        f"{text_of(chain, chain[-1].name)}\n\nx and all results have {elements:,} floats of 4 bytes. Each line as a "
        "kernel of its own reads its operands (one that it names twice once) and writes its result. How many bytes "
        "less does one kernel for all lines move?"
    )
    reason = f"Apart {apart} tensors are moved, together {together}: x is read, and the last result written."
    return Question(text, answer, reason)


@kind("day04", "post-dominator")
def post_dominator(rng: random.Random) -> Question:
    """Where all paths from a node meet."""
    while True:
        gm = small_graph(rng, 10, "pointwise", "repeat")
        tree = post_dominators(gm.graph)
        nodes = [node for node in gm.graph.nodes if len(node.users) > 1 and tree.get(node) is not None]
        if nodes:
            break
    node = rng.choice(nodes)
    target = tree[node]
    answer = target.name if target.op != "output" else "the output"  # type: ignore[union-attr]
    names = [each.name for each in gm.graph.nodes if each.op.startswith("call_") and each not in (node, target)]
    others = rng.sample([*names, "the output"], min(3, len(names) + 1))
    text = f"{listing(gm)}\n\nWhich is the first node that lies on all paths from {node.name} to the output?"
    reason = f"{node.name} has {len(node.users)} readers; this is where the paths from them meet first."
    return Question(text, answer, reason, choose(rng, answer, others), gm)


@kind("day04", "convex")
def convex(rng: random.Random) -> Question:
    """Whether nodes can be one kernel."""
    lines = straight_line(rng, 7, inputs=("x",), ops=("add", "mul", "relu"))
    group = set(rng.sample("abcdefg", 3))
    operands = {line.name: line.operands for line in lines}

    @cache
    def leaves(name: str) -> bool:
        """Whether a path leads from the group over a node outside to this node."""
        return any(
            read in operands and (leaves(read) or (read not in group and above(read))) for read in operands[name]
        )

    @cache
    def above(name: str) -> bool:
        """Whether this node depends on one of the group."""
        return any(read in group or (read in operands and above(read)) for read in operands[name])

    bad = any(leaves(name) for name in group)
    answer = "no" if bad else "yes"
    text = (
        f"{text_of(lines, 'g')}\n\nCan {', '.join(sorted(group))} run as one kernel, which reads all inputs at its "
        "start and writes all results at its end?"
    )
    reason = "It cannot if a value leaves the group and comes back through a node outside. " + (
        "Here one does." if bad else "Here none does."
    )
    return Question(text, answer, reason, ("yes", "no"))


@kind("day04", "roofline")
def roofline(rng: random.Random) -> Question:
    """What limits a kernel."""
    bandwidth, peak = rng.choice((10, 20, 50, 100)), rng.choice((100, 500, 1000, 5000))
    flops, nbytes = rng.choice((1, 2, 5, 10, 50, 200)), rng.choice((1, 2, 4, 8))
    while flops * bandwidth == nbytes * peak:
        flops += 1
    answer = "memory" if flops / nbytes < peak / bandwidth else "arithmetic"
    text = (
        f"A machine moves {bandwidth} GB and computes {peak} Gflop in a second. A kernel moves {nbytes} GB for {flops} "
        "Gflop. What limits it?"
    )
    reason = f"Its intensity is {flops / nbytes:g} flop per byte; the ridge is at {peak / bandwidth:g}."
    return Question(text, answer, reason, ("memory", "arithmetic"))


@kind("day04", "recomputing")
def recomputing(rng: random.Random) -> Question:
    """How often a fused operation is computed."""
    rows, inner, columns = (rng.choice((2, 3, 4, 8)) for _ in range(3))
    side = rng.choice(("left", "right"))
    count = (columns if side == "left" else rows) * (rows * inner if side == "left" else inner * columns)
    shape = (rows, inner) if side == "left" else (inner, columns)
    text = (
        f"A product of {rows}×{inner} and {inner}×{columns} is a nest of three loops, over rows, columns and the sum. "
        f"exp of the {side} operand ({shape[0]}×{shape[1]}) is fused into the innermost loop. How often does it run?"
    )
    reason = f"At each of the {rows * inner * columns} turns; by itself it would be {math.prod(shape)} times."
    return Question(text, count, reason)
