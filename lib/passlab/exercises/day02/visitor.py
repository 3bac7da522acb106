"""Day 2, a post-order visitor: visible cases and judge."""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from passlab.exercises.day02._shared import upstream
from passlab.given.day02.visitor import spelled
from passlab.judge import Case, Finding


def key_of(node: fx.Node, keys: Any) -> Any:
    """Return the key of a node's callback: what it calls if there is one for that, else its opcode, else None."""
    if node.op.startswith("call_") and node.target in keys:
        return node.target
    return node.op if node.op in keys else None


def judge(case: Case, value: dict[str, Any]) -> Iterator[Finding]:
    """Judge the calls: each node the root depends on once, after its operands and with their results; no other node."""
    graph, root, keys = case.build()
    nodes = {n.name: n for n in graph.nodes}
    small = graph if len(nodes) <= 40 else None
    reached = upstream(nodes[root])

    def wrong(verdict: str, message: str, *mark: str) -> Finding:
        return Finding(verdict, False, message, before=small, mark=mark)

    if value["too_deep"]:
        limit = f"Python stops at about {sys.getrecursionlimit():,} nested calls"
        message = f"The graph is {len(nodes):,} nodes deep, but {limit}. Use an explicit stack instead of recursion."
        yield wrong("cost", message)
        return
    if value["raised_limit"]:
        yield wrong(
            "cost",
            "Your code raised the recursion limit, but a deeper graph would need a higher one. Use an explicit stack.",
        )
    visits = Counter(name for name, *_ in value["log"])
    if name := next((name for name, times in visits.items() if times > 1), None):
        users = ", ".join(user.name for user in nodes[name].users)
        message = f"{name} was visited twice, because it is used by {users}. Remember which nodes are done."
        yield wrong("cost", message, name)
        return
    number: dict[str, int | None] = {}
    foreign = [name for name, *_ in value["log"] if nodes[name] not in reached]
    if foreign:
        message = (
            f"{foreign[0]} was visited, but {root} does not depend on it. Start at the root and follow the operands."
        )
        yield wrong("spared", message, foreign[0])
    for name, key, results in value["log"]:
        node = nodes[name]
        number[name] = None if key == "placeholder" else len(number)
        should = key_of(node, keys)
        if key != spelled(should):
            message = f"{name} was passed to the callback for {key!r}; expected the one for {spelled(should)!r}."
            yield wrong("spared", message, name)
        expected = tuple(number.get(o.name) for o in node.all_input_nodes)
        late = [o.name for o in node.all_input_nodes if o.name not in number and key_of(o, keys) is not None]
        if late:
            yield wrong("did", f"{name} was visited before its operand {late[0]}. Visit operands first.", name, late[0])
            return
        if results != expected:
            operands = ", ".join(o.name for o in node.all_input_nodes)
            yield wrong(
                "did",
                f"The callback of {name} got {results}; the results of its operands ({operands}) are {expected}. "
                f"An operand without a callback gives None, and so do the callbacks of placeholders here.",
                name,
            )
            return
    missing = [n.name for n in nodes.values() if n in reached and key_of(n, keys) is not None and n.name not in number]
    if missing:
        yield wrong("did", f"{missing[0]} was never visited, but {root} depends on it.", missing[0])
        return
    if value["result"] != number.get(root):
        message = f"Expected the result of the callback of {root}, {number.get(root)}; your function returned "
        yield wrong("did", f"{message}{value['result']!r}.", root)
        return
    yield Finding("did", True)
    yield Finding("spared", True)
    yield Finding("cost", True)


def _diamond() -> tuple:
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_method("sigmoid", (a,))
    c = graph.call_function(operator.add, (a, b))
    return graph, graph.output(c).name, ("placeholder", "call_function", "call_method", "output")


def _lookups() -> tuple:
    """Return a placeholder named like a method, an unused node, one without a callback, an operand used twice."""
    graph = fx.Graph()
    x, neg = graph.placeholder("x"), graph.placeholder("neg")
    a = graph.call_method("neg", (x,))
    graph.call_function(torch.exp, (a,))
    b = graph.call_function(torch.tanh, (neg,))
    c = graph.call_function(operator.mul, (b, b))
    d = graph.call_function(torch.cat, ([a, c],), {"dim": 0})
    graph.output(d)
    return graph, d.name, (operator.mul, "neg", "placeholder", torch.cat, torch.exp)


def chain(length: int) -> tuple:
    """Return one long line of nodes."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(length):
        x = graph.call_function(torch.relu, (x,))
    return graph, x.name, ("call_function", "placeholder")


def ladder(rungs: int) -> tuple:
    """Return a ladder: each rung uses the one below twice: 2^rungs paths."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(rungs):
        x = graph.call_function(torch.mul, (graph.call_function(torch.sin, (x,)), graph.call_function(torch.cos, (x,))))
    return graph, x.name, ("call_function", "placeholder")


def cases() -> list[Case]:
    """Return the visible cases of the visitor."""
    return [
        Case("a diamond", _diamond),
        Case("which callback is whose", _lookups),
        Case("a line of 2,000 nodes", lambda: chain(2000), ("cost",)),
        Case("40 rungs of a ladder", lambda: ladder(40), ("cost",)),
    ]
