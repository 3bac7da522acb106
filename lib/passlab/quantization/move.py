"""Move dequantize below, and quantize above, what only moves elements, so that it moves one byte in place of four."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from passlab.quantization.graphs import (
    Node,
    calls,
    copied,
    dequantized,
    integers,
    moves,
    nodes,
    prune,
    several,
    single_scale,
)
from passlab.quantization.ops import dequantize, quantize


def move(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph in which reshapes, transposes, slices, max pools and so on take and return int8 where they can.

        t(dequantize(q)) = dequantize(t(q))        quantize(t(x)) = t(quantize(x))        quantize(dequantize(q)) = q

    The laws hold exactly for a grid per tensor: it is increasing, and the same for all elements. The last one needs the
    same grid on both sides. A quantize moves above a node that nothing else reads.
    """
    gm = copied(gm)
    _up(gm)
    _down(gm)
    _cancel(gm)
    prune(gm)
    return gm


def _up(gm: fx.GraphModule) -> None:
    for node in reversed(nodes(gm)):
        if not calls(node, quantize) or not single_scale(node):
            continue
        for movement in _above(node):
            x, grid = movement.args[0], node.args[1:]
            with gm.graph.inserting_before(movement):
                q = gm.graph.call_function(quantize, (x, *grid), node.kwargs)
            q.meta = integers(x)
            movement.update_arg(0, q)
            movement.meta = integers(movement)
            node.replace_all_uses_with(movement)
            gm.graph.erase_node(node)
            node = q


def _above(q: Node) -> Iterator[Node]:
    """Yield the nodes that a quantize can move above, the nearest first."""
    node = q.args[0]
    while isinstance(node, fx.Node) and moves(node) and len(node.users) == 1:
        above = node.args[0]
        if several(above) or several(node):
            return
        yield node
        node = above


def _down(gm: fx.GraphModule) -> None:
    grids: dict[Node, tuple] = {}  # a node that returns several tensors of integers → their grid
    for node in nodes(gm):
        x: Any = node.args[0] if moves(node) else None
        if dequantized(x):
            grid = x.args[1:]
            node.update_arg(0, x.args[0])
        elif x in grids:
            grid = grids[x]
        else:
            continue
        if several(node):
            grids[node] = grid
        else:
            _dequantize_after(gm, node, grid)


def _dequantize_after(gm: fx.GraphModule, node: Node, grid: tuple) -> None:
    with gm.graph.inserting_after(node):
        dq = gm.graph.call_function(dequantize, (node, *grid))
    node.replace_all_uses_with(dq, lambda user: user is not dq)
    dq.meta, node.meta = dict(node.meta), integers(node)


def _cancel(gm: fx.GraphModule) -> None:
    for node in nodes(gm):
        if calls(node, quantize) and dequantized(node.args[0]) and node.args[1:] == node.args[0].args[1:]:
            node.replace_all_uses_with(node.args[0].args[0])
