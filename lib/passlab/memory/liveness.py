"""Live ranges of an FX graph's storages.

    buffers = liveness(gm, *inputs)       # the input of a planner
    buffers = liveness(gm, *inputs, order=[names])

A storage is live from the node that allocates it to the last node that touches any value in it. Memory of the caller is
not in the list: inputs, parameters, and views of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from passlab.memory.buffers import BadPlan, Buffer
from passlab.memory.storages import Storage, storages


def ranges(known: Sequence[Storage], gm: fx.GraphModule, order: Sequence[str] | None = None) -> list[Buffer]:
    """Return a buffer for each non-empty storage that the graph allocates.

    A step is a position in the order of all nodes, inputs and output included; the output is the last.
    """
    step = list(range(len(gm.graph.nodes)))
    if order is not None:
        place = {name: i for i, name in enumerate(order)}
        step = [place[node.name] for node in gm.graph.nodes]
    allocated = [storage for storage in known if storage.kind == "value" and storage.size]
    times = [[step[i] for i in storage.touched] for storage in allocated]
    return [Buffer(s.name, min(steps), max(steps) + 1, s.size) for s, steps in zip(allocated, times, strict=True)]


def liveness(gm: fx.GraphModule, *inputs: torch.Tensor, order: Sequence[str] | None = None) -> list[Buffer]:
    """Return the live range of each storage that the graph allocates, for an order of its nodes.

    Raises CannotPlan for unknown sizes, BadPlan for an order that violates a dependence.
    """
    if order is not None:
        check_order(gm, order)
    return ranges(storages(gm, *inputs), gm, order)


def check_order(gm: fx.GraphModule, order: Sequence[str]) -> None:
    """Raise BadPlan unless the order has every node once, after its operands and after earlier users of memory that
    either of the two writes."""
    from passlab.fx.effects import memory_order

    if not isinstance(order, Sequence) or isinstance(order, str):
        raise BadPlan(f"An order is a list or tuple of the names of all nodes; this is a {type(order).__name__}.")
    if odd := [i for i, name in enumerate(order) if not isinstance(name, str)]:
        raise BadPlan(f"Entry {odd[0]} of the order is {str(order[odd[0]])[:40]}: it must be the name of a node.")
    nodes = {node.name: node for node in gm.graph.nodes}
    place = {name: i for i, name in enumerate(order)}
    if missing := [name for name in nodes if name not in place]:
        raise BadPlan(f"{missing[0]} is missing in the order.")
    if len(place) != len(order):
        raise BadPlan(f"{next(n for i, n in enumerate(order) if place[n] != i)} is in the order twice.")
    if unknown := [name for name in order if name not in nodes]:
        raise BadPlan(f"The order names {str(unknown[0])[:40]!r}, and the graph has no such node.")
    before = memory_order(gm.graph)
    for node in gm.graph.nodes:
        for operand in node.all_input_nodes:
            if place[operand.name] > place[node.name]:
                raise BadPlan(f"{node.name} runs before its operand {operand.name}.")
        for other in before[node]:
            if place[other.name] > place[node.name]:
                raise BadPlan(f"{node.name} runs before {other.name}, but one writes memory that the other uses.")
    if order and nodes[order[-1]].op != "output":
        raise BadPlan(f"{order[-1]} runs after the output.")
