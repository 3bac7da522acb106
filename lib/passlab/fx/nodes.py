"""Small questions about torch.fx nodes that passes, judges and readers share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx


def name_of(target: Any) -> str:
    """Return the bare name of what a node calls: "relu" for torch.relu, F.relu, "relu" and aten.relu.default."""
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.split("::")[1]
    return target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)


def op_name(node: fx.Node, gm: torch.nn.Module | None = None) -> str:
    """Return what a node does, in one word: "add", "Linear", "get_attr", "placeholder".

    gm: the module that holds the node's modules, if not the graph's owning module.
    """
    if node.op == "call_module":
        home = gm if gm is not None else node.graph.owning_module
        return type(home.get_submodule(node.target)).__name__
    return name_of(node.target) if node.op in ("call_function", "call_method") else node.op


def calls(node: Any, targets: Collection[Any]) -> bool:
    """Return whether `node` is a node that calls one of these functions or methods."""
    return isinstance(node, fx.Node) and node.op in ("call_function", "call_method") and node.target in targets


def shape(node: Any) -> tuple[int, ...] | None:
    """Return the shape noted on a node, None if there is none."""
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    return tuple(meta.shape) if hasattr(meta, "shape") else None


def size_hint(size: int | torch.SymInt) -> int:
    """Return a size as a number: for a symbol, the one that it had when the graph was captured."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def attribute(root: Any, path: str, missing: Any = None) -> Any:
    """Return the value at a dotted path in a module, `missing` if there is none."""
    for part in path.split("."):
        if not hasattr(root, part):
            return missing
        root = getattr(root, part)
    return root


def why_not_ordered(graph: fx.Graph) -> str:
    """Return why the nodes are not a list in which each reads only nodes before it."""
    order: dict[fx.Node, int] = {}
    for place, node in enumerate(graph.nodes):
        if node in order:
            return f"The node list is circular at {node.name}: it was linked into the graph twice."
        order[node] = place
    for node in order:
        if not isinstance(node, fx.Node):
            return f"The graph holds a {type(node).__name__} where a torch.fx.Node belongs."
        if node.graph is not graph:
            return f"Node {node.name} belongs to another graph. Copy it with `graph.node_copy(node, …)`."
        if reason := _why_not_before(node, order):
            return reason
    return ""


def _why_not_before(node: fx.Node, order: dict[fx.Node, int]) -> str:
    """Return why the operands of a node are not all before it in its graph."""
    for operand in node.all_input_nodes:
        if operand not in order and operand.graph is not node.graph:
            return (
                f"Node {node.name} uses {operand.name}, which belongs to another graph. "
                f"Map operands to their copies while you copy nodes."
            )
        if operand not in order:
            return (
                f"Node {node.name} still uses {operand.name}, which is no longer in the graph. "
                f"Call {operand.name}.replace_all_uses_with(…) before you erase it."
            )
    for operand in node.all_input_nodes:
        if order[operand] >= order[node]:
            if _on_cycle(node, order):
                return f"Node {node.name} depends on itself through {operand.name}: the graph has a cycle."
            return (
                f"Node {node.name} uses {operand.name} before it is defined. "
                f"Insert new nodes with `graph.inserting_before({node.name})` or later than their operands."
            )
    return ""


def _on_cycle(node: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Return whether `node` can be reached from its own operands."""
    visited, todo = set(), list(node.all_input_nodes)
    while todo:
        at = todo.pop()
        if at is node:
            return True
        if at not in visited and at in order:
            visited.add(at)
            todo.extend(at.all_input_nodes)
    return False
