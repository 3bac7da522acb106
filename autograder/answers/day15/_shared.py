"""What the answers of several exercises of day 15 do."""

from __future__ import annotations

from torch import fx


def merge(gm: fx.GraphModule) -> fx.GraphModule:
    """Have all readers of a call read the first one that is written the same."""
    first: dict[tuple, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            same = first.setdefault((node.target, str(node.args), str(node.kwargs)), node)
            node.replace_all_uses_with(same, lambda user, same=same: user is not same)
    return gm


def alone_in_a_tuple(gm: fx.GraphModule) -> fx.GraphModule:
    """Have a graph that returns one value return a tuple of it."""
    end = gm.graph.output_node()
    if isinstance(end.args[0], fx.Node):
        end.args = ((end.args[0],),)
        gm.recompile()
    return gm
