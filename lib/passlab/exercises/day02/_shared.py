"""Shared parts of the day 2 exercises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from passlab.fx.cases import seeded
from passlab.fx.nodes import op_name
from passlab.fx.ops import ConvReLU2d, conv2d_relu
from passlab.judge import Case, enough, plural


class _Tracer(fx.Tracer):
    """Trace a ConvReLU2d, or a subclass of ReLU or BatchNorm2d, as one node."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, ConvReLU2d | nn.ReLU | nn.BatchNorm2d) or super().is_leaf_module(module, name)


def program(body: Callable, *inputs: Tensor, training: bool = False, **parts: Any) -> fx.GraphModule:
    """Return the traced `body(self, *inputs)`, with `parts` as the modules and parameters of `self`.

    >>> program(lambda m, x: torch.relu(m.conv(x)), torch.randn(1, 3, 8, 8), conv=nn.Conv2d(3, 4, 3))
    """
    root = type("Program", (nn.Module,), {"forward": body})()
    for name, part in parts.items():
        setattr(root, name, part)
    root.train(training)
    tracer = _Tracer()
    gm = fx.GraphModule(root, tracer.trace(root))
    # When a GraphModule fails, torch.fx loads its compiler (seconds) to report where. Here failing is a normal result.
    type(gm).__call__ = nn.Module.__call__
    gm.train(training)
    gm.meta["inputs"] = inputs
    return gm


def rewrite_case(name: str, build: Callable[[], fx.GraphModule], expect: Rewrite, *about: str, seed: int = 0) -> Case:
    """Return a case whose one argument is the graph that `build` makes."""
    return Case(name, seeded(lambda: (build(),), seed), about, expect=expect)


@dataclass(frozen=True)
class Rewrite:
    """The matches that a pass must rewrite in one graph (names to show), why the look-alikes stay, and how many more
    matches it may rewrite or leave."""

    matches: tuple[str, ...] = ()
    why: str = ""
    optional: int = 0


def upstream(*ends: fx.Node) -> set[fx.Node]:
    """Return these nodes and all that they depend on."""
    todo, nodes = [*ends], set()
    while todo:
        node = todo.pop()
        if node not in nodes:
            nodes.add(node)
            todo.extend(node.all_input_nodes)
    return nodes


def live(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes that the output depends on, and the inputs."""
    needed_nodes = upstream(*gm.graph.find_nodes(op="output"))
    return [n for n in gm.graph.nodes if n in needed_nodes or n.op == "placeholder"]


#: The arguments of a convolution besides its channels and its kernel size.
ATTRIBUTES = ("stride", "padding", "dilation", "groups", "padding_mode", "bias")

#: Function or method → the canonical name that the laws use.
_NAMES = {F.conv2d: "conv2d", conv2d_relu: "conv2d_relu", torch.relu: "relu", F.relu: "relu", "relu": "relu"}
_TYPES = {nn.Conv2d: "conv2d", ConvReLU2d: "conv2d_relu", nn.ReLU: "relu", nn.BatchNorm2d: "batch_norm"}


def op_of(gm: fx.GraphModule, node: fx.Node) -> str:
    """Return a node's operation, however it is spelled: "conv2d", "relu", "conv2d_relu", "batch_norm", or its name."""
    name = op_name(node, gm)
    if node.op == "call_module":
        return _TYPES.get(type(gm.get_submodule(node.target)), name)
    return _NAMES.get(node.target, name) if node.op in ("call_function", "call_method") else name


def ops(gm: fx.GraphModule) -> Counter[str]:
    """Count the live nodes of each op; weights read by get_attr are left out."""
    return Counter(op_of(gm, n) for n in live(gm) if n.op not in ("placeholder", "get_attr", "output"))


def others(before: Counter, after: Counter, rewritten: set[str], verb: str) -> str | None:
    """Return a message about an op that the pass must not touch but added or removed, or None."""
    for op in sorted((before.keys() | after.keys()) - rewritten):
        if after[op] < before[op]:
            return f"{plural(before[op] - after[op], op + ' node')} disappeared. The pass may only {verb}."
        if after[op] > before[op]:
            return f"{plural(after[op] - before[op], op + ' node')} appeared. The pass may only {verb}."
    return None


def leftovers(before: fx.GraphModule, after: fx.GraphModule, removed: int, done: str) -> str | None:
    """Return a message about nodes that were left behind, or None: each match must remove one node."""
    alive = set(live(after))
    dead = [n.name for n in after.graph.nodes if n not in alive]
    if len(after.graph.nodes) <= len(before.graph.nodes) - removed:
        return None
    if dead:
        return f"{dead[0]} is still in the graph although it is unused. Erase the nodes that you {done}."
    return (
        f"The graph has {len(after.graph.nodes)} nodes; {enough(len(before.graph.nodes) - removed)}: "
        f"every match should replace two nodes by one."
    )
