"""Day 3, algebraic simplification: visible cases and judge."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passlab.fx.cases import case, expecting, graph, most
from passlab.fx.nodes import op_name
from passlab.judge import Case, core, listed, plural, too_many
from passlab.judge.expect import Expectation

#: `x * 1 = x` makes an output of the program an input. The laws do not apply where memory is written, so no caller can
#: observe this.
judge = expecting(aliasing=False)


@dataclass(frozen=True)
class Row:
    """One result of a program, and the law that it is about. `why`: the reason why the law does not hold, if so.

    `counts`: op → how many of it may stay in what computes this result or, where the law does not hold, have to.
    """

    law: str
    body: Callable
    counts: dict[str, int]
    why: str = ""


def holds(law: str, body: Callable, **counts: int) -> Row:
    return Row(law, body, counts)


def fails(law: str, why: str, body: Callable, **counts: int) -> Row:
    return Row(law, body, counts, why)


def table(name: str, rows: list[Row], *shapes: Any, erased: tuple[str, ...] = (), **parts: Any) -> Case:
    """Return the case of a program with one result for each row; `shapes` and `parts` as for `graph`.

    `erased`: ops of which not even an unused node may be left.
    """
    expect: dict[str, list[Expectation]] = {}
    for place, row in enumerate(rows):
        for op, number in row.counts.items():
            expect.setdefault("spared" if row.why else "did", []).append(_expected(place, row, op, number))
    if erased:
        expect["did"] += [most(op, 0, "What was replaced should be gone.", dead=True) for op in erased]

    def results(m: Any, *inputs: Any) -> tuple:
        return tuple(row.body(m, *inputs) for row in rows)

    bodies = (  # torch.fx takes *inputs for one input
        lambda m, x: results(m, x),
        lambda m, x, y: results(m, x, y),
        lambda m, x, y, z: results(m, x, y, z),
    )
    return case(name, graph(bodies[len(shapes) - 1], *shapes, **parts), **expect)


def _expected(place: int, row: Row, op: str, number: int) -> Expectation:
    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        nodes = [n for n in _computing(after, place) if op_name(n, after) == op]
        if row.why:
            old = [n for n in _computing(before, place) if op_name(n, before) == op]
            message = f"{row.law} does not hold here: {row.why}. {listed(old)} should have stayed."
            return message if len(nodes) < number else None
        message = too_many(f"{row.law} holds here.", f"{plural(len(nodes), f'{op} node')} ({listed(nodes)})", number)
        return message if len(nodes) > number else None

    return law


def _computing(gm: fx.GraphModule, place: int) -> list[fx.Node]:
    """Return the nodes that compute the result at this place of the output."""
    results = next(iter(reversed(gm.graph.nodes))).args[0]
    nodes: dict[fx.Node, None] = {}
    todo = [results[place]] if isinstance(results, tuple | list) and place < len(results) else []
    while todo:
        node = todo.pop()
        if isinstance(node, fx.Node) and node not in nodes:
            nodes[node] = None
            todo += node.all_input_nodes
    return [node for node in gm.graph.nodes if node in nodes]


NAN = "it is NaN for x = inf and for x = NaN"
OVERFLOW = "{} overflows long before x does"

#: The laws of the core: law → the body of a program to which it applies, and the op that goes.
PLAIN: dict[str, tuple[Callable, str]] = {
    "x * 1 = x": (lambda x: x * 1, "mul"),
    "x / 1 = x": (lambda x: x / 1.0, "truediv"),
    "x - 0 = x": (lambda x: x - 0, "sub"),
    "-(-x) = x": (lambda x: operator.neg(-x), "neg"),
    "relu(relu(x)) = relu(x)": (lambda x: F.relu(F.relu(x)), "relu"),
}

plain = core(
    table(
        "plain: each law once",
        [
            holds(law, lambda m, x, apply=apply: apply(x), **{op: int(op == "relu")})
            for law, (apply, op) in PLAIN.items()
        ],
        (2, 3),
    )
)

plain_twice = core(
    table(
        "plain: one after another",
        [
            holds("x * 1 = x, x / 1 = x and x - 0 = x", lambda m, x: x * 1 / 1 - 0, mul=0, truediv=0, sub=0),
            holds(
                "-(-x) = x below relu(relu(x)) = relu(x)", lambda m, x: operator.neg(-F.relu(F.relu(x))), neg=0, relu=1
            ),
            holds("relu(relu(x)) = relu(x), below x * 1 = x,", lambda m, x: F.relu(F.relu(F.relu(x) * 1)), relu=1),
        ],
        (2, 3),
    )
)

plain_never = core(
    table(
        "plain: what stays",
        [
            fails("x + 0 = x", "for x = -0 the sum is +0", lambda m, x: x + 0, add=1),
            fails("x * 0 = 0", NAN, lambda m, x: x * 0, mul=1),
            fails("x - x = 0", "inf - inf is NaN", lambda m, x: x - x, sub=1),
            fails("x * 1 = x", "this is x * 2", lambda m, x: x * 2, mul=1),
            fails("-(-x) = x", "this is -(relu(-x))", lambda m, x: -F.relu(-x), neg=2),
        ],
        (2, 3),
    )
)

idle = table(
    "numbers that do nothing",
    [
        holds("x * 1 = x", lambda m, x: 1 * (x * 1.0), mul=0),
        holds("x / 1 = x", lambda m, x: x / 1, truediv=0),
        holds("x - 0 = x", lambda m, x: x - 0, sub=0),
        holds("x ** 1 = x", lambda m, x: x**1, pow=0),
        holds("x * 1 = x, below x / 1 = x,", lambda m, x: (x * 1 / 1).relu(), mul=0, truediv=0),
        holds("x * 1 = x, where 1 is a parameter full of ones,", lambda m, x: x * m.ones, mul=0),
    ],
    (2, 3),
    erased=("mul", "truediv", "sub", "pow"),
    ones=torch.ones(2, 3),
)

integers = table(
    "integers",
    [
        holds("x + 0 = x (x is an integer: no -0)", lambda m, n: 0 + n, add=0),
        holds("x * 0 = zeros (x is an integer: no NaN, no inf)", lambda m, n: n * 0, mul=0),
        holds("x - x = zeros (x is an integer)", lambda m, n: n - n, sub=0),
        fails("x + 0.0 = x", "the sum is a float, x is an integer", lambda m, n: n + 0.0, add=1),
        fails("x / 1 = x", "the quotient is a float, x is an integer", lambda m, n: n / 1, truediv=1),
    ],
    torch.arange(4),
)

special = table(
    "NaN, inf, -0",
    [
        fails("exp(log(x)) = x", "log of a negative number is NaN", lambda m, x: x.log().exp(), exp=1),
        fails("sqrt(x * x) = abs(x)", OVERFLOW.format("x * x"), lambda m, x: (x * x).sqrt(), sqrt=1),
        fails(
            "x + 0.0 = x",
            "for x = -0 the sum is +0, and 1 / (x + 0.0) tells them apart",
            lambda m, x: 1 / (x + 0.0),
            add=1,
        ),
        fails("x * 0 = 0", NAN, lambda m, x: x * 0, mul=1),
        fails("x - x = 0", "inf - inf is NaN", lambda m, x: x - x, sub=1),
        fails("x / x = 1", "0 / 0 is NaN", lambda m, x: x / x, truediv=1),
        fails("log(exp(x)) = x", OVERFLOW.format("exp(x)"), lambda m, x: torch.log(torch.exp(x)), log=1),
    ],
    (2, 3),
)

twice = table(
    "twice is once",
    [
        holds("relu(relu(x)) = relu(x)", lambda m, x: F.relu(torch.relu(x.relu())), relu=1),
        holds("abs(abs(x)) = abs(x)", lambda m, x: abs(x).abs(), abs=1),
        holds("abs(-x) = abs(x)", lambda m, x: torch.abs(-x), neg=0),
        holds("-(-x) = x", lambda m, x: -torch.neg(x), neg=0),
        holds("x + (-y) = x - y", lambda m, x: x + (-m.y), neg=0, add=0),
        holds("x ** 2 = x * x", lambda m, x: x**2, pow=0),
    ],
    (2, 3),
    y=(3,),
)

shapes = table(
    "shapes",
    [
        holds(
            "x.transpose(a, b).transpose(b, a) = x",
            lambda m, x: x.transpose(0, 1).transpose(-1, -2),
            transpose=0,
        ),
        holds("reshape(reshape(x, s), t) = reshape(x, t)", lambda m, x: x.reshape(6).reshape(3, 2), reshape=1),
        fails(
            "x.transpose(a, b).transpose(c, d) = x",
            "(0, 1) and then (1, 2) is a rotation of three dimensions, and no way back",
            lambda m, x: x.unsqueeze(0).transpose(0, 1).transpose(1, 2),
            transpose=2,
        ),
        fails(
            "x * 1 = x",
            "the ones are wider than x, and the product is as wide as they are",
            lambda m, x: x * m.wide,
            mul=1,
        ),
    ],
    (2, 3),
    wide=torch.ones(4, 2, 3),
)

options = table(
    "options",
    [
        fails("x / 1 = x", "this division rounds down", lambda m, x: x.div(1, rounding_mode="floor"), div=1),
        fails(
            "x + (-y) = x - y",
            "alpha=2 doubles the second operand first",
            lambda m, x: torch.add(x, -x, alpha=2),
            add=1,
        ),
    ],
    (2, 3),
)
