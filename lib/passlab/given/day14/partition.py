"""Day 14, partition: what a value of a joint graph costs to keep, and how a part of the graph is taken out."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

#: The bytes of a number that is saved.
NUMBER = 8


def memory(node: fx.Node) -> tuple[str, int] | None:
    """Return the name of the node whose memory holds a node's value, and the bytes of that memory; None for a tuple.

    For a view it is the node that it looks into, in the end; for any other node the node itself. A number is like a
    value of `NUMBER` bytes.
    """
    while (base := _viewed(node)) is not None:
        node = base
    value = node.meta.get("val")
    if isinstance(value, Tensor):
        return node.name, math.prod(map(int, value.shape)) * value.element_size()
    return (node.name, NUMBER) if isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) else None


def _viewed(node: fx.Node) -> fx.Node | None:
    """Return the operand into whose memory the value of a node looks, or None."""
    operand: Any = node.args[0] if node.args else None
    if node.target is operator.getitem:
        return _viewed(operand)
    schema = getattr(node.target, "_schema", None)
    if schema is None or not (schema.arguments and schema.arguments[0].alias_info) or not schema.returns[0].alias_info:
        return operand if node.target is torch.ops.aten._unsafe_view.default else None
    return operand


def part(
    joint: fx.GraphModule, inputs: Sequence[fx.Node], results: Sequence[Any], also: Iterable[fx.Node] = ()
) -> fx.GraphModule:
    """Return the graph that computes `results` from `inputs`: nodes of the joint graph, in the order given.

    The nodes of `inputs` become its placeholders. It holds what the results need, and the nodes of `also`, in the order
    of the joint graph. A result may be None.
    """
    graph, copies = fx.Graph(), {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    needed = {*results, *also}
    for node in reversed(joint.graph.nodes):
        if node in needed and node not in copies:
            needed.update(node.all_input_nodes)
    for node in joint.graph.nodes:
        if node in needed and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies.get(node) for node in results])
    return fx.GraphModule({}, graph)
