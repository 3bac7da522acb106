"""Hidden cases and answers of day02.visitor."""

from __future__ import annotations

import operator
import random
import sys
from collections import deque

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day02.visitor import cases as visible
from passlab.exercises.day02.visitor import chain, ladder
from passlab.fx.generate import random_graph
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _random_dag(rng: random.Random, size: int) -> tuple:
    """Return a graph with fan-out, fan-in, dead ends and keyword operands; some targets have no callback."""
    graph = fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("sin")]
    for _ in range(size):
        picked = rng.choices(values[-12:], k=rng.choice((1, 1, 2, 2, 3)))
        kind = rng.randrange(4)
        if kind == 0:
            values.append(graph.call_method("sin", (picked[0],)))
        elif kind == 1:
            values.append(graph.call_function(torch.clamp, (picked[0],), {"min": picked[-1]}))
        elif kind == 2:
            values.append(graph.call_function(torch.cat, (picked,), {"dim": 0}))
        else:
            values.append(graph.call_function(operator.add, (picked[0], picked[-1])))
    root = graph.output(tuple(values[-3:]))
    keys = ["sin", torch.clamp, "placeholder", *rng.sample([operator.add, "output", "call_function"], 2)]
    return graph, root.name, tuple(keys)


def _inputs_read_late() -> tuple:
    """Return two additions that read an input beside a value computed from it: on the right, and on the left."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    right = graph.call_function(operator.add, (graph.call_function(torch.relu, (x,)), x))
    left = graph.call_function(operator.add, (y, graph.call_function(torch.relu, (y,))))
    root = graph.output(graph.call_function(operator.mul, (right, left)))
    return graph, root.name, ("placeholder", "call_function", "output")


def _at_work() -> tuple:
    """Return a graph that a pass is at work on: an operand stands behind its user."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    root = graph.output(graph.call_function(torch.add, (graph.call_method("tanh", (relu,)), relu)))
    relu.replace_input_with(x, graph.call_function(torch.neg, (x,)))
    return graph, root.name, ("placeholder", "call_function", "call_method", "output")


def _weights_and_modules(seed: int) -> tuple:
    """Return a graph whose leaves are weights, one named like a method, and modules with and without a callback."""
    rng, named = random.Random(seed), ["relu", "tanh"]
    weight = named.pop(rng.randrange(2))
    own, other = rng.sample((*named, "block.act", "norm"), 2)
    graph = fx.Graph()
    a, b = graph.create_node("get_attr", weight), graph.create_node("get_attr", "bias")
    first = graph.call_module(own, (graph.call_module(other, (b,)),))
    root = graph.call_function(operator.add, (graph.call_method(weight, (a,)), first))
    return graph, root.name, (own, weight, "get_attr", "call_module", "call_function", "call_method")


def _without_callbacks() -> tuple:
    """Return a root without a callback, and a node without one whose only operand has a result."""
    graph = fx.Graph()
    neg = graph.call_function(torch.neg, (graph.placeholder("x"),))
    root = graph.output(graph.call_function(operator.add, (graph.call_method("tanh", (neg,)), neg)))
    return graph, root.name, ("placeholder", torch.neg, operator.add)


def _one_name() -> tuple:
    """Return a function and a method of one name; only the method has a callback of its own."""
    graph = fx.Graph()
    relu = graph.call_function(torch.relu, (graph.placeholder("x"),))
    root = graph.output(graph.call_method("relu", (relu,)))
    return graph, root.name, ("placeholder", "relu", "call_function", "output")


def hidden(seed: int) -> list[Case]:
    """Return random DAGs, a generated program, inputs read late, a very deep and a very repetitive graph."""

    def generated() -> tuple:
        gm = random_graph(seed, 40)
        keys = ["placeholder", "get_attr", "call_function", "call_method", "call_module", "output", torch.add]
        return gm.graph, next(n.name for n in gm.graph.nodes if n.op == "output"), tuple(keys)

    dags = [
        Case(f"random graph {i}", lambda i=i: _random_dag(random.Random(f"{seed}/{i}"), 10 + 25 * i)) for i in range(4)
    ]
    rungs = 60 + seed % 7
    deep = [("5,000 nodes deep", lambda: chain(5_000)), (f"{rungs} rungs", lambda: ladder(rungs))]
    return [
        *visible(),
        *dags,
        Case("a generated program", generated),
        Case("weights and modules", lambda: _weights_and_modules(seed)),
        Case("a graph that a pass is at work on", _at_work),
        Case("a root and an operand without a callback", _without_callbacks),
        Case("a function and a method of one name", _one_name),
        Case("inputs read beside what is computed from them", _inputs_read_late),
        *(Case(name, build, ("cost",)) for name, build in deep),
        Case("25,000 nodes deep", lambda: chain(25_000), ("cost",)),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _callback(node, callbacks):
    callback = callbacks.get(node.target) if node.op.startswith("call_") else None
    return callback or callbacks.get(node.op)


def _apply(node, callbacks, results):
    callback = _callback(node, callbacks)
    return callback(node, *map(results.get, node.all_input_nodes)) if callback else None


def _live(root):
    """Return the nodes that the root depends on, breadth first from the root."""
    nodes, visited = [root], {root}
    for node in nodes:
        for operand in node.all_input_nodes:
            if operand not in visited:
                visited.add(operand)
                nodes.append(operand)
    return nodes


@right("marks each stack entry as 'operands first' or 'now call back', as two-colour depth-first search does")
def two_colours(root, callbacks):
    results, stack = {}, [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in results:
            continue
        if ready:
            results[node] = _apply(node, callbacks, results)
        else:
            stack.append((node, True))
            stack += [(o, False) for o in node.all_input_nodes]
    return results[root]


@wrong("did", "goes along the node list, which a pass that is at work may have left out of order")
def along_the_list(root, callbacks):
    live, results = set(_live(root)), {}
    for node in root.graph.nodes:
        if node in live:
            results[node] = _apply(node, callbacks, results)
    return results[root]


@right("counts operands that are not done and frees users, as Kahn's topological sort does")
def by_counting(root, callbacks):
    missing = {node: len(node.all_input_nodes) for node in _live(root)}
    ready, results = deque(node for node in missing if not missing[node]), {}
    while ready:
        node = ready.popleft()
        results[node] = _apply(node, callbacks, results)
        for user in node.users:
            if user in missing:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
    return results[root]


@wrong("cost", "walks the graph as if it were a tree: a node with two users is visited twice")
def as_a_tree(root, callbacks):
    results = [as_a_tree(o, callbacks) for o in root.all_input_nodes]
    callback = _callback(root, callbacks)
    return callback(root, *results) if callback else None


@wrong("cost", "remembers what is done, but recurses: a deep network hits Python's limit")
def recursive(root, callbacks):
    results = {}

    def walk(node):
        if node not in results:
            for operand in node.all_input_nodes:
                walk(operand)
            results[node] = _apply(node, callbacks, results)

    walk(root)
    return results[root]


@wrong("cost", "treats the symptom: raises the recursion limit")
def limit_raised(root, callbacks):
    sys.setrecursionlimit(1_000_000)
    return recursive(root, callbacks)


@wrong("cost", "keeps the nodes that are done in a list, and looks through all of it for each operand")
def done_in_a_list(root, callbacks):
    done, results, stack = [], [], [root]
    while stack:
        node = stack[-1]
        waiting = [operand for operand in node.all_input_nodes if operand not in done]
        stack += waiting[::-1]
        if not waiting:
            stack.pop()
        if not waiting and node not in done:
            table = {operand: results[done.index(operand)] for operand in node.all_input_nodes}
            results.append(_apply(node, callbacks, table))
            done.append(node)
    return results[-1]


@wrong("spared", "goes over the whole node list: nodes that the root does not need are visited too")
def whole_list(root, callbacks):
    results = {}
    for node in root.graph.nodes:
        results[node] = _apply(node, callbacks, results)
        if node is root:
            return results[root]


@wrong("did", "pre-order: a node is called back on the way down, before its operands")
def pre_order(root, callbacks):
    results, stack = {}, [root]
    while stack:
        node = stack.pop()
        if node not in results:
            results[node] = _apply(node, callbacks, results)
            stack += node.all_input_nodes
    return results[root]


args_only = edited("did", "takes operands from node.args: misses those in keywords and in lists")(
    (
        "[operand for operand in node.all_input_nodes if ...]",
        "[operand for operand in dict.fromkeys(a for a in node.args if isinstance(a, fx.Node)) if ...]",
    ),
    ("node.all_input_nodes", "dict.fromkeys(a for a in node.args if isinstance(a, fx.Node))"),
)
target_for_all = edited(
    "spared", "looks callbacks up by target for every node: an input called like a method gets the method's"
)(('... if node.op.startswith("call_") else None', "..."))
falsy_is_none = edited("did", "takes a result of 0 for none")(("results[o]", "results[o] or None"))
none_is_not_done = edited("cost", "a callback that returned None has not run yet, so its node is not done")(
    ("node in results", "results.get(node) is not None")
)
none_is_passed_on = edited("did", "hands the only result on at a node without a callback, instead of None")(
    ("... if callback else None", "... if callback else next(iter([results[o] for o in node.all_input_nodes]), None)")
)
by_name_too = edited("spared", "looks a function up by its name, too: it gets the callback of the method")(
    ("callbacks.get(node.target)", 'callbacks.get(node.target, callbacks.get(getattr(node.target, "__name__", "")))')
)
