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


def attribute(root: Any, path: str, missing: Any = None) -> Any:
    """Return the value at a dotted path in a module, `missing` if there is none."""
    for part in path.split("."):
        if not hasattr(root, part):
            return missing
        root = getattr(root, part)
    return root
