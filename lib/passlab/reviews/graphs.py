"""Questions on days 1 and 2: graphs, and passes that walk them."""

from __future__ import annotations

import math
import random
from functools import cache

from passlab.graph import view
from passlab.reviews.programs import ARITY, Line, listing, needed, small_graph, straight_line, text_of
from passlab.reviews.questions import Question, choose, kind

#: dtype → bytes of an element.
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int8": 1, "bool": 1}


@kind("day01", "readers")
def readers(rng: random.Random) -> Question:
    """How many nodes read a value."""
    gm = small_graph(rng, 9, "pointwise", "repeat", "dead")
    node = rng.choice([node for node in gm.graph.nodes if node.op != "output" and node.users])
    names = ", ".join(user.name for user in node.users)
    text = f"{listing(gm)}\n\nHow many nodes, the output included, read {node.name}?"
    reason = f"Readers: {names}. A node that reads a value twice is one reader."
    return Question(text, len(node.users), reason, picture=gm)


@kind("day01", "kinds-of-node")
def kinds_of_node(rng: random.Random) -> Question:
    """How many nodes only rearrange."""
    gm = small_graph(rng, 9, "pointwise", "views", "reduce")
    shapes = [node.id for node in view(gm).nodes if node.kind == "shape"]
    text = (
        f"{listing(gm)}\n\nHow many nodes are of the kind `shape`: views, slices, flips, joins, and sizes that are "
        "read, but no copies as contiguous makes?"
    )
    return Question(text, len(shapes), f"They are: {', '.join(shapes) or 'none'}.", picture=gm)


@kind("day01", "bytes")
def nbytes(rng: random.Random) -> Question:
    """How many bytes a tensor has."""
    shape = [rng.choice((1, 2, 3, 4, 7, 8, 16, 32)) for _ in range(rng.randint(1, 4))]
    dtype = rng.choice(list(BYTES))
    elements = math.prod(shape)
    text = (
        f"A contiguous tensor has the shape {'×'.join(map(str, shape))} and the dtype {dtype}. How many bytes has it?"
    )
    reason = f"It has {elements} elements of {BYTES[dtype]} bytes."
    return Question(text, elements * BYTES[dtype], reason)


@kind("day01", "orders")
def orders(rng: random.Random) -> Question:
    """In how many orders a graph can run."""
    lines = straight_line(rng, 5, inputs=("x",))
    own = [line.name for line in lines]
    reads = [sum(1 << own.index(name) for name in {*line.operands} & {*own}) for line in lines]

    @cache
    def ways(state: int) -> int:
        ready = [i for i in range(5) if not state >> i & 1 and reads[i] & state == reads[i]]
        return sum(ways(state | 1 << i) for i in ready) if ready else 1

    text = f"{text_of(lines, 'e')}\n\nIn how many orders can the five lines from a to e run?"
    return Question(text, ways(0), "A line can run when those that it reads have run. Count the choices, step by step.")


@kind("day02", "silu")
def silu(rng: random.Random) -> Question:
    """Which nodes a pattern matches."""
    lines = [Line("s", "sigmoid", ("x",)), Line("t", "sigmoid", ("y",))]
    for name in "abcdef":
        names = ["x", "y", "s", "t", *(line.name for line in lines[2:])]
        lines.append(Line(name, rng.choice(("mul", "mul", "add")), (rng.choice(names[:4]), rng.choice(names))))
    gates = {"s": "x", "t": "y"}
    answer = frozenset(
        line.name
        for line in lines
        if line.op == "mul" and any(gates.get(a) == b for a, b in (line.operands, line.operands[::-1]))
    )
    text = f"{text_of(lines, 'f')}\n\nWhich lines does the pattern z · sigmoid(z), in either order, match?"
    return Question(text, answer, "A match needs a product of a sigmoid and of the same value that the sigmoid reads.")


@kind("day02", "visits")
def visits(rng: random.Random) -> Question:
    """How many nodes a recursion without a memo visits."""
    lines = straight_line(rng, 6, inputs=("x",), ops=("add", "mul", "relu"))
    count = {"x": 1}
    for line in lines:
        count[line.name] = 1 + sum(count[name] for name in line.operands)
    text = (
        f"{text_of(lines, 'f')}\n\nA recursion visits f, and from each node all its operands, one that is read twice "
        "two times. It remembers nothing. How many visits does it make, those of x included?"
    )
    reason = "A node costs one visit more than its operands together: " + ", ".join(
        f"{a}: {n}" for a, n in count.items()
    )
    return Question(text, count["f"], f"{reason}. With a memo there are as many as nodes.")


@kind("day02", "one-reader")
def one_reader(rng: random.Random) -> Question:
    """Which convolutions a fusion may remove."""
    convs = [Line(name, "conv", ("x",)) for name in "abc"]
    lines = list(convs)
    for name in "pqrst":
        op = rng.choice(("relu", "relu", "relu", "add"))
        lines.append(Line(name, op, tuple(rng.choice("abc") for _ in range(ARITY[op]))))
    results = sorted({"p", "q", "r", "s", "t", *([rng.choice("abc")] if rng.random() < 0.3 else [])})
    readers = {line.name: [other.op for other in lines if line.name in other.operands] for line in convs}
    answer = frozenset(name for name in "abc" if readers[name] == ["relu"] and name not in results)
    text = (
        f"{text_of(lines, *results)}\n\nA pass makes one node of a convolution and the relu that reads it. "
        "Which convolutions does it remove, if it never computes one twice?"
    )
    return Question(text, answer, "A convolution goes only if its relu is its one reader; the output reads, too.")


@kind("day02", "post-order")
def post_order(rng: random.Random) -> Question:
    """Which order of nodes has operands first."""
    lines = straight_line(rng, 5, inputs=("x",), ops=("add", "mul"))
    used = needed(lines, "e") - {"x"}
    lines = [line for line in lines if line.name in used]
    names = [line.name for line in lines]
    reads = {line.name: {*line.operands} - {"x"} for line in lines}
    shuffled: set[str] = set()
    while len(shuffled) < min(3, math.factorial(len(names)) - 1):
        order = rng.sample(names, len(names))
        if any(not reads[name] <= {*order[:i]} for i, name in enumerate(order)):
            shuffled.add(" ".join(order))
        elif len(names) < 2:
            break
    answer = " ".join(names)
    text = f"{text_of(rng.sample(lines, len(lines)), 'e')}\n\nThe lines are out of order. Which is a post-order?"
    reason = "In a post-order each node comes after all its operands."
    return Question(text, answer, reason, choose(rng, answer, sorted(shuffled)))
