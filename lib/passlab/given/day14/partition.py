"""Day 14, partition: what a value of a joint graph costs to keep, and how a part of the graph is taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from passlab.autodiff.partition import NUMBER, memory

__all__ = ["NUMBER", "memory", "part"]


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
