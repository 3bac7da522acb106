"""Day 17: faulty passes that learners may see, each with what is wrong about it. Those of hidden cases are others."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from passlab.fx.effects import effects, written
from passlab.fx.nodes import name_of

Pass = Callable[[fx.GraphModule], fx.GraphModule]
Key = Callable[[fx.Node], Any]
Test = Callable[[fx.Node], bool]


def _merging(key: Key, stays: Test = lambda node: bool(effects(node)), writes: bool = True) -> Pass:
    """Return a CSE with a key for each node. writes: it leaves alone what is written."""

    def cse(gm: fx.GraphModule) -> fx.GraphModule:
        first: dict[Any, fx.Node] = {}
        memory = written(gm.graph) if writes else set()
        for node in list(gm.graph.nodes):
            if node.op in ("placeholder", "output") or stays(node) or memory & {node, *node.all_input_nodes}:
                continue
            if first.setdefault(key(node), node) is not node:
                node.replace_all_uses_with(first[key(node)])
                gm.graph.erase_node(node)
        return gm

    return cse


def _key(node: fx.Node) -> tuple:
    return node.op, str(node.target), repr(node.args), repr(node.kwargs)


def _in_any_order(node: fx.Node) -> tuple:
    return node.op, str(node.target), str(sorted(map(repr, node.args))), repr(node.kwargs)


def _rounded(node: fx.Node) -> tuple:
    args = fx.node.map_aggregate(node.args, lambda a: int(a) if isinstance(a, float) else a)
    return node.op, str(node.target), repr(args), repr(node.kwargs)


def _any_dtype(node: fx.Node) -> tuple:
    def kept(value: Any) -> Any:
        return None if isinstance(value, torch.dtype) else value

    return node.op, str(node.target), repr(fx.node.map_aggregate(node.args, kept)), str(sorted(set(node.kwargs)))


def _any_index(node: fx.Node) -> tuple:
    return _key(node)[:2] + ((node.args[0],) if node.target is operator.getitem else _key(node)[2:])


def _sweeping(stays: Test) -> Pass:
    """Return a DCE that leaves what stays."""

    def dce(gm: fx.GraphModule) -> fx.GraphModule:
        for node in reversed(gm.graph.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not stays(node):
                gm.graph.erase_node(node)
        return gm

    return dce


def _unless(*names: str) -> Test:
    return lambda node: bool(effects(node)) and name_of(node.target) not in names


def _replacing(law: Callable[[fx.Node], Any]) -> Pass:
    """Return a pass that applies a law to each call: law(node) → a node, (target, *operands), or None."""

    def simplify(gm: fx.GraphModule) -> fx.GraphModule:
        for node in list(gm.graph.nodes):
            result = law(node) if node.op.startswith("call_") and node.args else None
            if isinstance(result, tuple):
                with gm.graph.inserting_before(node):
                    result = gm.graph.call_function(result[0], result[1:])
            if result is not None:
                node.replace_all_uses_with(result)
        return gm

    return simplify


def _is(node: Any, *names: str) -> bool:
    call = isinstance(node, fx.Node) and node.op in ("call_function", "call_method")
    return call and name_of(node.target) in names and not any(v is not False for v in node.kwargs.values())


def _times_zero(node: fx.Node) -> Any:
    return (torch.zeros_like, node.args[0]) if _is(node, "mul") and node.args[1] in (0, 0.0) else None


def _quotient(node: fx.Node) -> Any:
    same = _is(node, "div", "truediv") and node.args[0] is node.args[1]
    return (torch.ones_like, node.args[0]) if same else None


def _back(node: fx.Node) -> Any:
    inner: Any = node.args[0]
    return inner.args[0] if _is(node, "sub") and _is(inner, "add") and inner.args[1] == node.args[1] else None


def _plus_zero(node: fx.Node) -> Any:
    return node.args[0] if _is(node, "add") and node.args[1] in (0, 0.0) else None


def _relu_of_minus(node: fx.Node) -> Any:
    inner: Any = node.args[0]
    return inner.args[0] if _is(node, "relu") and _is(inner, "neg") else None


def _root(node: fx.Node) -> Any:
    inner: Any = node.args[0]
    return inner.args[0] if _is(node, "sqrt") and _is(inner, "mul") and inner.args[0] is inner.args[1] else None


#: Name of a pass → what is wrong → a faulty pass.
FAULTY: dict[str, dict[str, Pass]] = {
    "cse": {
        "operands count in any order": _merging(_in_any_order),
        "numbers are rounded": _merging(_rounded),
        "dtypes are not looked at": _merging(_any_dtype),
        "two parts of one value are the same": _merging(_any_index),
        "two draws are the same": _merging(_key, lambda node: "writes" in effects(node)),
        "writes are not looked at": _merging(_key, writes=False),
    },
    "dce": {
        "copy_ is dead if its result is not used": _sweeping(_unless("copy_")),
        "setitem is dead": _sweeping(_unless("setitem")),
        "dropout is dead if its result is not used": _sweeping(_unless("dropout")),
        "add_ and mul_ are dead if their results are not used": _sweeping(_unless("add_", "mul_")),
        "rand_like is dead if its result is not used": _sweeping(_unless("rand_like")),
        "layers are dead if their results are not used": _sweeping(
            lambda node: bool(effects(node)) and node.op != "call_module"
        ),
    },
    "simplify": {
        "x * 0 = 0": _replacing(_times_zero),
        "x / x = 1": _replacing(_quotient),
        "(x + y) - y = x": _replacing(_back),
        "x + 0 = x": _replacing(_plus_zero),
        "relu(-x) = x": _replacing(_relu_of_minus),
        "sqrt(x * x) = x": _replacing(_root),
    },
}

#: Name of a pass → a right one, that does little.
RIGHT: dict[str, Pass] = {
    "cse": _merging(_key),
    "dce": _sweeping(lambda node: bool(effects(node))),
    "simplify": _replacing(lambda node: None),
}
