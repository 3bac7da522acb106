"""Saturation beside the best order of day 3's passes: programs on which an order must fail, and both searches."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from passlab.egraph import Analysis, EGraph, Law, cheapest, cheapest_shared, saturate
from passlab.egraph.programs import Folded, launch, number, terms_of, typed
from passlab.fx.stages import STAGES

#: The laws of the passes, and those of numbers that a pass cannot use both ways.
LAWS = [
    Law("where(c, y, y) = y", ("where", "?c", "?y", "?y"), "?y"),
    Law("−(−x) = x", ("neg", ("neg", "?x")), "?x"),
    Law("(x · y) · z = x · (y · z)", ("mul", ("mul", "?x", "?y"), "?z"), ("mul", "?x", ("mul", "?y", "?z")), both=True),
    Law("x · 2 = x + x", ("mul", "?x", number(2)), ("add", "?x", "?x"), both=True),
    Law("x · y = y · x", ("mul", "?x", "?y"), ("mul", "?y", "?x")),
    Law(
        "x · z + y · z = (x + y) · z",
        ("add", ("mul", "?x", "?z"), ("mul", "?y", "?z")),
        ("mul", ("add", "?x", "?y"), "?z"),
        both=True,
    ),
    Law("x + y = y + x", ("add", "?x", "?y"), ("add", "?y", "?x")),
]


def orders(op: str) -> list[Law]:
    """Return the laws that give all orders and groupings of a sum or product."""
    return [
        Law("commute", (op, "?x", "?y"), (op, "?y", "?x")),
        Law("associate", (op, (op, "?x", "?y"), "?z"), (op, "?x", (op, "?y", "?z")), both=True),
    ]


class Called(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, y):
        return self.body(x, y)


_INPUTS = (torch.ones(2, 3), torch.ones(2, 3))
#: Name → module and inputs, on which every order of passes leaves more launches than there have to be.
EXAMPLES = {
    "a factor that two products share": (Called(lambda x, y: x * 3 + y * 3), _INPUTS),
    "a doubling that is in the way": (Called(lambda x, y: (x * 2) * 3 + (x * 3) * 2), _INPUTS),
    "factors of a sum": (Called(lambda x, y: x * y * 2 + y * (x + x)), _INPUTS),
}


class Saturated(NamedTuple):
    """Launches of the cheapest terms, counted with shared parts once. `greedy`: chosen by trees."""

    optimum: int
    greedy: int
    stop: str


def calls(gm: fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


def best_order(gm: fx.GraphModule, names=("simplify", "cse", "dce", "scale", "double")) -> int:
    """Return the fewest launches that an order of passes reaches, each order repeated until nothing changes."""
    after: dict[tuple[str, str], fx.GraphModule] = {}

    def run(program: fx.GraphModule, name: str) -> fx.GraphModule:
        key = str(program.graph), name
        if key not in after:  # many orders come by the same graph
            after[key] = STAGES[name](fx.GraphModule(program, copy.deepcopy(program.graph)))
        return after[key]

    least = calls(gm)
    for order in itertools.permutations(names):
        program, before = gm, ""
        while (text := str(program.graph)) != before:
            before, program = text, functools.reduce(run, order, program)
        least = min(least, calls(program))
    return least


def saturated(gm: fx.GraphModule, laws=LAWS, nodes=5_000, rounds=6) -> Saturated:
    """Return the launches of the cheapest terms that laws make of a program."""
    graph = EGraph(Folded(gm))
    roots = terms_of(gm, graph)
    report = saturate(graph, typed(laws), nodes=nodes, rounds=rounds)
    _, optimum, _ = cheapest_shared(graph, roots, launch)
    parts: dict[int, tuple] = {}
    todo = [cheapest(graph, root, launch)[0] for root in roots]
    while todo:
        term = todo.pop()
        if id(term) not in parts:
            parts[id(term)] = term
            todo += term[1:]
    greedy = sum(launch(term[0]) for term in parts.values())  # a class is one object in all of a term
    return Saturated(optimum, greedy, report.stop)


class Numbers(Analysis):
    """The number that a class is; a class that is one has no other e-node."""

    def make(self, graph, node):
        values = [graph.facts[graph.find(operand)] for operand in node[1:]]
        if not values:
            return node[0] if isinstance(node[0], int) else None
        return None if None in values else math.prod(values)

    def join(self, a, b):
        return b if a is None else a

    def modify(self, graph, number):
        if (value := graph.facts[graph.find(number)]) is not None:
            leaf = graph.add(value)
            graph.union(number, leaf, "folded")
            graph.nodes[graph.find(number)] = {(value,): None}


def scaled(analysis: Analysis | None) -> int:
    """Return how many e-nodes x · (2 · 3 · 5 · 7 · 11 · 13 · 17) has in all orders and groupings."""
    graph = EGraph(analysis)
    scale: tuple[Any, ...] = (2,)
    for prime in (3, 5, 7, 11, 13, 17):
        scale = ("mul", scale, (prime,))
    graph.add_term(("mul", ("x",), scale))
    saturate(graph, orders("mul"), nodes=200_000, matches_each=10**7)
    return len(graph)


def sum_of(count: int) -> tuple[Any, ...]:
    """Return the term v0 + v1 + … of `count` variables."""
    term: tuple[Any, ...] = ("v0",)
    for at in range(1, count):
        term = ("add", term, (f"v{at}",))
    return term


def sums(count: int) -> int:
    """Return how many e-nodes a sum of `count` variables has in all orders and groupings."""
    graph = EGraph()
    graph.add_term(sum_of(count))
    saturate(graph, orders("add"), nodes=400_000, matches_each=10**7)
    return len(graph)
