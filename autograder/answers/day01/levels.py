"""Hidden cases and answers of day01.levels."""

from __future__ import annotations

import operator
from itertools import combinations

import torch
from torch import fx, nn

from autograder.answers.day01._shared import random_case, tangled, zoo_case
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day01._shared import net, traced
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _nothing_to_do() -> nn.Module:
    return net(lambda self, x: x)


def _constants() -> tuple:
    """Return nodes without operands, operands in slices, and a node that is read twice by one reader."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    ones = graph.call_function(torch.ones, (2, 4))
    rows = graph.call_method("size", (x, 0))
    last = graph.call_function(operator.sub, (rows, 1))
    cut = graph.call_function(operator.getitem, (x, (slice(last, None), slice(None))))
    both = graph.call_function(torch.add, (ones, ones))
    graph.call_function(torch.cos, (x,))
    graph.output({"a": graph.call_function(torch.mul, (), {"input": both, "other": cut}), "b": rows})
    return (fx.GraphModule(nn.Module(), graph),)


def hidden(seed: int) -> list[Case]:
    both = ("valid", "did", "spared")
    return [
        *(Case(f"random graph {i}", random_case(seed * 10 + i, 20, mutation=False), both) for i in range(3)),
        *(Case(f"tangle {i}", tangled(seed * 10 + i), both) for i in range(2)),
        Case("attention", zoo_case("attention"), both),
        Case("a convolution net with a skip", zoo_case("skip"), both),
        Case("an unrolled LSTM", zoo_case("lstm"), both),
        Case("no operands, operands in slices", _constants, both),
        Case("nothing to do", traced(_nothing_to_do, (2,)), ("valid",)),
    ]


# ---------------------------------------------------------------------------------------------------- answers

IDLE = ("placeholder", "get_attr", "output")


def _works(node):
    return node.op not in IDLE


def _reads(node):
    return [a for a in node.all_input_nodes if _works(a)]


def _answer(gm):
    """Return levels in list order, and pairs by sets of ancestors."""
    level, above, pairs = {}, {}, set()
    for node in filter(_works, gm.graph.nodes):
        operands = _reads(node)
        level[node] = 1 + max((level[a] for a in operands), default=-1)
        above[node] = set(operands).union(*(above[a] for a in operands))
        pairs |= {(other.name, node.name) for other in above if other is not node and other not in above[node]}
    return _result(level, pairs)


def _result(level, pairs):
    rows = [[] for _ in range(1 + max(level.values(), default=-1))]
    for node, number in level.items():
        rows[number].append(node.name)
    return {"depth": len(rows), "levels": rows, "parallel": pairs}


@right("takes off, again and again, the nodes that wait for nothing; descendants as bits")
def by_peeling(gm):
    nodes = [node for node in gm.graph.nodes if _works(node)]
    waits = {node: len(_reads(node)) for node in nodes}
    rows, ready = [], [node for node in nodes if not waits[node]]
    while ready:
        rows.append([node.name for node in ready])
        after = []
        for node in ready:
            for user in node.users:
                if user in waits:
                    waits[user] -= 1
                    after += [user] if not waits[user] else []
        ready = after
    below = {}
    for i, node in reversed(list(enumerate(nodes))):
        below[node] = 1 << i
        for user in node.users:
            below[node] |= below.get(user, 0)
    ordered = combinations(enumerate(nodes), 2)
    pairs = [frozenset((a.name, b.name)) for (_, a), (j, b) in ordered if not below[a] >> j & 1]
    return {"depth": len(rows), "levels": rows, "parallel": pairs}


@right("pushes levels forward from producers to users; pairs are what is not ordered")
def by_pushing(gm):
    level = dict.fromkeys(filter(_works, gm.graph.nodes), 0)
    below = {}
    for node in level:
        for user in node.users:
            if user in level:
                level[user] = max(level[user], level[node] + 1)
    for node in reversed(level):
        users = [user for user in node.users if user in level]
        below[node] = set(users).union(*(below[user] for user in users))
    order = list(level)
    pairs = set()
    for i, node in enumerate(order):
        pairs |= {(node.name, other.name) for other in set(order[i + 1 :]) - below[node]}
    return _result(level, pairs)


@wrong("did", "only nodes on one level are taken for parallel")
def same_level_only(gm):
    levels = _answer(gm)
    levels["parallel"] = {pair for row in levels["levels"] for pair in combinations(row, 2)}
    return levels


@wrong("cost", "asks for a node's level again at every reader: 2**60 questions in a row of diamonds")
def asks_again(gm):
    def level(node):
        return 1 + max((level(a) for a in _reads(node)), default=-1)

    return _result({node: level(node) for node in gm.graph.nodes if _works(node)}, _answer(gm)["parallel"])


inputs_are_a_level = edited("did", "the inputs are level 0, and all other nodes come one level too late")(
    ('("placeholder", "get_attr", "output")', '("output",)')
)
args_only = edited("did", "looks at args alone: misses operands in keywords and lists")(
    (
        "[a for a in node.all_input_nodes if a in level]",
        "[a for a in node.args if isinstance(a, fx.Node) and a in level]",
    )
)
shortest_way = edited(
    "did", "takes the shortest way from the inputs: a node would start before its last operand is there"
)(
    (
        "max((level[a] for a in operands), default=-1)",
        "min((level.get(a, -1) for a in node.all_input_nodes), default=-1)",
    )
)
no_dead_nodes = edited("did", "leaves out unused nodes")(("node.op in ...", "node.op in ... or not node.users"))
pairs_twice = edited("valid", "lists each pair in both orders")(("pairs", "pairs | {(b, a) for a, b in pairs}"))
depth_in_edges = edited("did", "counts the arrows of the longest chain, not its nodes")(
    (
        '{"depth": depth, "levels": rows, "parallel": pairs}',
        '{"depth": max(depth - 1, 0), "levels": rows, "parallel": pairs}',
    )
)
no_edge_between = edited(
    "spared", "two nodes without an edge between them count as parallel, even where a path of two steps joins them"
)(("other not in pairs_above", "other not in operands"))
levels_by_name = edited("valid", "returns the levels as a dict from name to number")(
    ("rows", "{node.name: level[node] for node in level}")
)
