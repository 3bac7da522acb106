"""Six small stages to build pipelines from: each edits a GraphModule in place and returns it.

    for name in ("fold", "simplify", "cse", "dce"):
        gm = STAGES[name](gm)

They are narrow on purpose. Each knows a few laws, on call_function nodes with positional operands, and assumes that the
graph is pure; the exercises ask for passes that are safe on any graph. A stage erases the nodes it replaces and leaves
their unused operands to `dce`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx

#: The operations that `fold` can compute.
FOLDED = (operator.add, operator.mul, operator.neg, torch.add, torch.mul, torch.neg, torch.tanh)


def _calls(gm: fx.GraphModule) -> list[fx.Node]:
    return [n for n in gm.graph.nodes if n.op == "call_function" and not n.kwargs]


def _target(arg: object) -> object:
    return arg.target if isinstance(arg, fx.Node) else None


def _replace(node: fx.Node, by: fx.Node) -> None:
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)


def fold(gm: fx.GraphModule) -> fx.GraphModule:
    """Fold an expression of +, *, neg and tanh over constants into one constant."""
    values = {n: getattr(gm, n.target) for n in gm.graph.nodes if n.op == "get_attr" and "." not in n.target}
    for node in _calls(gm):
        if node.target in FOLDED and node.all_input_nodes and all(n in values for n in node.all_input_nodes):
            args = [values[a] if isinstance(a, fx.Node) else a for a in node.args]
            values[node] = node.target(*args)
    for node in [n for n in reversed(values) if n.op == "call_function"]:
        if any(user not in values for user in node.users):
            gm.register_buffer(f"const_{node.name}", values[node].detach())
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(gm.graph.get_attr(f"const_{node.name}"))
        gm.graph.erase_node(node)
    return gm


def simplify(gm: fx.GraphModule) -> fx.GraphModule:
    """`where(c, y, y) = y` and `-(-x) = x`."""
    for node in _calls(gm):
        if node.target is torch.where and len(node.args) == 3 and node.args[1] is node.args[2]:
            _replace(node, node.args[1])
        elif node.target in (operator.neg, torch.neg) and _target(node.args[0]) is node.target:
            _replace(node, node.args[0].args[0])
    return gm


def cse(gm: fx.GraphModule) -> fx.GraphModule:
    """Merge calls of one function on the same nodes and numbers, and reads of one attribute."""
    first: dict[tuple, fx.Node] = {}
    for node in [*gm.graph.find_nodes(op="get_attr"), *_calls(gm)]:
        if all(isinstance(a, fx.Node | int | float) for a in node.args):
            key = (node.target, *((type(a), a) for a in node.args))
            if first.setdefault(key, node) is not node:
                _replace(node, first[key])
    return gm


def dce(gm: fx.GraphModule) -> fx.GraphModule:
    """Remove dead code: nodes without users, last ones first."""
    for node in reversed(gm.graph.nodes):
        if not node.users and node.op not in ("placeholder", "output"):
            gm.graph.erase_node(node)
    return gm


def scale(gm: fx.GraphModule) -> fx.GraphModule:
    """`(x * a) * b = x * (a * b)` for numbers a and b."""
    for node in _calls(gm):
        if node.target is operator.mul and _target(node.args[0]) is operator.mul:
            inner = node.args[0]
            a, b = inner.args[1], node.args[1]
            if not isinstance(a, fx.Node) and not isinstance(b, fx.Node):
                node.args = (inner.args[0], a * b)
                if not inner.users:
                    gm.graph.erase_node(inner)
    return gm


def double(gm: fx.GraphModule) -> fx.GraphModule:
    """`x * 2 = x + x`: an addition is cheaper than a multiplication."""
    for node in _calls(gm):
        if node.target is operator.mul and node.args[1] == 2:
            node.target, node.args = operator.add, (node.args[0], node.args[0])
    return gm


#: Name → pass. Each edits the graph and returns it.
STAGES: dict[str, Callable[[fx.GraphModule], fx.GraphModule]] = {
    "fold": fold,
    "simplify": simplify,
    "cse": cse,
    "dce": dce,
    "scale": scale,
    "double": double,
}
