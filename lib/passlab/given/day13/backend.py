"""Day 13, a backend: which operations a kernel may hold, and how nodes become one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from passlab.fx.effects import effects
from passlab.fx.patterns import canonical

_NAMES = """abs add clamp cos div eq exp ge gelu gt le log lt maximum minimum mul ne neg pow relu rsqrt sigmoid silu sin
    sqrt square sub tanh truediv where"""
#: Operations that compute each element of their result from one element of each operand.
ELEMENTWISE = frozenset(_NAMES.split())


def is_number(value: object) -> bool:
    """Return whether an operand is a number: a Python one, a symbolic size, or arithmetic of such."""
    if not isinstance(value, fx.Node):
        return True
    if value.op == "placeholder":
        return value.type is torch.SymInt
    if canonical(value) in ("size", "sym_size", "dim", "numel"):
        return True
    return value.op == "call_function" and all(map(is_number, (*value.args, *value.kwargs.values())))


def elementwise(node: fx.Node) -> bool:
    """Return whether a node computes a tensor element by element, and does nothing else."""
    called = node.op in ("call_function", "call_method")
    return called and canonical(node) in ELEMENTWISE and not effects(node) and not is_number(node)


def kernel(gm: fx.GraphModule, nodes: Iterable[fx.Node]) -> fx.Node:
    """Make some nodes of a graph one kernel: a module `kernel_0`, called where the last of them was. Return the call.

    The result of the kernel is that of its last node. Raises ValueError if a node outside reads another of them.
    """
    chosen = set(nodes)
    inside = [node for node in gm.graph.nodes if node in chosen]
    last, graph, copies = inside[-1], fx.Graph(), {}
    for node in inside[:-1]:
        if outside := [user for user in node.users if user not in chosen]:
            raise ValueError(
                f"{node.name} cannot be inside a kernel: {outside[0].name} reads it, and a kernel has one result."
            )
    operands = dict.fromkeys(operand for node in inside for operand in node.all_input_nodes if operand not in chosen)
    for operand in operands:
        copies[operand] = graph.placeholder(operand.name)
        copies[operand].type = operand.type
    for node in inside:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[last])
    number = next(at for at in range(len(gm.graph.nodes)) if not hasattr(gm, f"kernel_{at}"))
    gm.add_submodule(f"kernel_{number}", fx.GraphModule({}, graph))
    with gm.graph.inserting_before(last):
        call = gm.graph.call_module(f"kernel_{number}", tuple(operands))
    last.replace_all_uses_with(call)
    for node in reversed(inside):
        gm.graph.erase_node(node)
    return call
