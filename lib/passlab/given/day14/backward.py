"""Day 14, the backward pass: what an answer may use, and how a case is put to it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from passlab.autodiff import RULES, fit
from passlab.given.day14.vjp import quietly, record
from passlab.judge import Case

__all__ = ["call", "is_float", "record", "shares", "typed", "values_of"]


def is_float(node: fx.Node) -> bool:
    """Return whether the value of a node is a tensor of floats, by its `node.meta["val"]`."""
    value = node.meta["val"]
    return isinstance(value, Tensor) and value.is_floating_point()


def values_of(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """Return node → value for all nodes of a graph but its output."""
    values = dict(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True))
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            values[node] = getattr(gm, node.target)
        elif node.op == "call_function":
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    return values


def shares(
    node: fx.Node, gradients: Mapping[fx.Node, Tensor], values: Mapping[fx.Node, Any]
) -> list[tuple[fx.Node, Tensor]]:
    """Return (operand, gradient) pairs: what an operation's rule makes of the gradient of its result.

    An operand that occurs twice has two pairs. gradients: node → gradient. An operation with several results takes
    those of its getitem nodes, which have no pairs of their own. Without a gradient there are no pairs.
    """
    out = values[node]
    if node.target is operator.getitem:
        return []
    g: Any = gradients.get(node)
    if isinstance(out, tuple | list):
        parts: list[Any] = [None] * len(out)
        for user in node.users:
            if user.target is operator.getitem and user in gradients:
                place: Any = user.args[1]
                old, new = parts[place], gradients[user]
                parts[place] = new if old is None else old + new
        g = tuple(parts) if any(part is not None for part in parts) else None
    if g is None:
        return []
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    pairs: list[tuple[Any, Any]] = []
    operands: Any = node.args
    for argument, gradient in zip(operands, RULES[node.target].apply(g, out, *args, **kwargs), strict=False):
        several = isinstance(argument, list | tuple) and gradient is not None
        pairs += zip(argument, gradient, strict=True) if several else [(argument, gradient)]
    return [
        (operand, fit(gradient, values[operand]))
        for operand, gradient in pairs
        if isinstance(operand, fx.Node) and gradient is not None
    ]


def typed(gm: fx.GraphModule) -> fx.GraphModule:
    """Write into `node.meta["val"]` of each node a tensor of its shape and type, without numbers."""
    with quietly(), torch.no_grad():
        FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*gm.meta["inputs"])
    for node in gm.graph.nodes:
        if isinstance(node.meta["val"], list):  # torch makes a list of its own type of it
            node.meta["val"] = list(node.meta["val"])
    return gm


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Return the graph that the answer makes, or why it refuses a case that is about that."""
    gm, lines = case.build()
    typed(gm)
    for node in gm.graph.nodes:
        if node.name in lines:
            node.meta["stack_trace"] = lines[node.name]
    try:
        return {"graph": answer(gm), "refused": ""}
    except ValueError as error:
        if "spared" not in case.about:
            raise
        return {"graph": None, "refused": str(error) or "(no message)"}
