"""Small programs as text for questions: graphs of `random_graph`, and straight lines of one's own."""

from __future__ import annotations

import random
from typing import NamedTuple

from torch import fx

from passlab.fx.generate import random_graph
from passlab.fx.nodes import op_name


def small_graph(rng: random.Random, size: int, *features: str, least: int = 4) -> fx.GraphModule:
    """Return a random graph with at least `least` calls, and with these features only."""
    while True:
        gm = random_graph(rng.randrange(2**32), size, only=features)
        if sum(node.op.startswith("call_") for node in gm.graph.nodes) >= least:
            return gm


def listing(gm: fx.GraphModule) -> str:
    """Return a graph as text, a node on each line: "mul = mul(x, 2)"."""
    lines = []
    for node in gm.graph.nodes:
        operands = [*map(repr, node.args), *(f"{key}={value!r}" for key, value in node.kwargs.items())]
        if node.op == "output":
            lines.append(f"return {', '.join(value.name for value in node.all_input_nodes)}")
        elif node.op in ("placeholder", "get_attr"):
            lines.append(f"{node.name} = {'input' if node.op == 'placeholder' else 'weight'}()")
        else:
            lines.append(f"{node.name} = {op_name(node, gm).rpartition('.')[2]}({', '.join(operands)})")
    return "\n".join(lines)


class Line(NamedTuple):
    """An assignment, `name = op(operands)`."""

    name: str
    op: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} = {self.op}({', '.join(self.operands)})"


def text_of(lines: list[Line], *results: str) -> str:
    """Return a program as text, with the names that it returns."""
    return "\n".join([*map(str, lines), f"return {', '.join(results)}"])


#: Operation → its number of operands.
ARITY = {"relu": 1, "exp": 1, "neg": 1, "add": 2, "mul": 2, "sub": 2}


def straight_line(
    rng: random.Random, count: int, inputs: tuple[str, ...] = ("x", "y"), ops: tuple[str, ...] = tuple(ARITY)
) -> list[Line]:
    """Return `count` assignments to a, b, c, …, each of one operation on inputs or on earlier lines, often the last."""
    lines: list[Line] = []
    for name in "abcdefghijklmnop"[:count]:
        op = rng.choice(ops)
        names = [*inputs, *(line.name for line in lines)]
        operands = [rng.choice(names[-4:] + list(inputs)) for _ in range(ARITY[op])]
        if rng.random() < 0.5:
            operands[0] = names[-1]
        lines.append(Line(name, op, tuple(operands)))
    return lines


def needed(lines: list[Line], *results: str) -> set[str]:
    """Return the names that the results depend on, themselves included."""
    marked = set(results)
    for line in reversed(lines):
        if line.name in marked:
            marked.update(line.operands)
    return marked
