"""Insert quantize and dequantize: a pair for each value that an integer layer reads or writes, and each weight."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from torch import Tensor, fx

from passlab.fx.nodes import attribute, op_name
from passlab.quantization.graphs import (
    Node,
    argument,
    calls,
    constant,
    copied,
    integers,
    kind,
    last_of_layer,
    layers_of,
    moves,
    nodes,
    operands,
    region,
    source,
)
from passlab.quantization.grids import Ranges, grid, weight_scales
from passlab.quantization.ops import INTEGER, dequantize, quantize
from passlab.quantization.semantics import Grid, QuantizationError

#: Bits of a layer that stays in float, and those that weights may have.
FLOAT, BITS = 32, (4, 8)

#: One number for all layers, or name of a layer → its number; 8 for layers without an entry.
Bits = int | Mapping[str, int]


def insert(gm: fx.GraphModule, ranges: Ranges, bits: Bits = 8, group: int = 32) -> fx.GraphModule:
    """Return a graph with quantize and dequantize around linear, conv2d, matmul, add, mean: its `layers_of`.

        qdq = insert(net, observe(net, batches))
        qdq = insert(net, observe(net, batches), bits={"mlp_0": 4, "head": 32})     # 32: stays in float

    `gm`: a graph of `functional`. Each value that a layer reads gets one pair, however many read it; it lies behind
    what only moves elements, so that all of them share a grid. So does what a layer returns, behind the relu or factor
    that a requantize can do. Values are on a grid per tensor, weights per channel with 8 bits, and per `group` inputs
    with 4 bits (linear only). A tensor that several layers use as weight is quantized once.

    Raises QuantizationError for a graph that is quantized already, a name in `bits` that is not a layer, a value
    without a range, and ranges and weights of which there is no grid.
    """
    check_float(gm)
    gm = copied(gm)
    layers = _layers(gm, bits)
    roots: dict[Node, None] = {}
    for node in layers:
        roots |= dict.fromkeys(source(part) for part in operands(node))
    roots |= dict.fromkeys(last_of_layer(node) for node in layers)
    for root in list(roots):
        roots |= dict.fromkeys(_between(root, roots))
    _weights(gm, layers, group)
    for root in roots:
        _pair(gm, root, _grid(root, ranges))
    gm.recompile()
    return gm


def check_float(gm: fx.GraphModule) -> None:
    """Raise QuantizationError for a graph that is quantized already."""
    for node in nodes(gm):
        if calls(node, quantize, dequantize, *INTEGER):
            raise QuantizationError(
                f"The graph is quantized already: {node.name} calls {op_name(node)}. Start from the float graph."
            )


def _layers(gm: fx.GraphModule, bits: Bits) -> dict[Node, int]:
    """Return layer → bits of its weights, without those that stay in float."""
    layers = layers_of(gm)
    table = {} if isinstance(bits, int) else dict(bits)
    unknown = sorted(table.keys() - {node.name for node in layers})
    if unknown:
        raise QuantizationError(f"bits names {unknown[0]!r}, which is not a layer. Layers: {_names(layers)}.")
    result = {node: table.get(node.name, bits if isinstance(bits, int) else 8) for node in layers}
    for node, number in result.items():
        if number not in (*BITS, FLOAT):
            raise QuantizationError(f"The weights of {node.name} cannot have {number} bits: give 4, 8, or 32 (float).")
    return {node: number for node, number in result.items() if number != FLOAT}


def _between(root: Node, roots: Container[Node]) -> list[Node]:
    """Return the values between `root` and a root before it that element-wise functions read through a move.

    With a pair there, each of these functions is a table, and what moves elements moves integers.
    """
    values: list[Node] = []
    leaf = region(root, roots).leaf
    while leaf is not None and leaf not in roots and moves(leaf):
        value = source(leaf)
        if value in roots:
            return values
        values.append(value)
        leaf = region(value, roots).leaf
    return values if leaf in roots else []


def _names(nodes: list[Node]) -> str:
    names = [node.name for node in nodes]
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _grid(node: Node, ranges: Ranges) -> Grid:
    if node.name not in ranges:
        raise QuantizationError(f"There is no range of {node.name}: observe this graph, of `functional`, not another.")
    return grid(*ranges[node.name], where=node.name)


def _pair(gm: fx.GraphModule, root: Node, on: Grid) -> None:
    """Put quantize and dequantize behind a value; all of its users read the latter."""
    after = root.next
    while after.op == "placeholder":
        after = after.next
    with gm.graph.inserting_before(after):
        q = gm.graph.create_node("call_function", quantize, (root, *on), name=f"{root.name}_q")
        dq = gm.graph.create_node("call_function", dequantize, (q, *on), name=f"{root.name}_dq")
    root.replace_all_uses_with(dq, lambda user: user is not q)
    q.meta, dq.meta = integers(root), dict(root.meta)


def _weights(gm: fx.GraphModule, layers: Mapping[Node, int], group: int) -> None:
    pairs: dict[tuple[int, int], Node] = {}
    for node, bits in layers.items():
        if kind(node) not in ("linear", "conv2d"):
            continue
        weight = argument(node, 1, "weight")
        value = attribute(gm, weight.target).detach()
        bits = 8 if kind(node) == "conv2d" else bits
        key = id(attribute(gm, weight.target)), bits
        if key not in pairs:
            with gm.graph.inserting_after(weight):
                pairs[key] = _weight_pair(gm, weight, value, bits, group)
        node.replace_input_with(weight, pairs[key])


def _weight_pair(gm: fx.GraphModule, weight: Node, value: Tensor, bits: int, group: int) -> Node:
    axes: dict[str, Any] = {"axis": 0} if bits == 8 else {"axis": None, "group": group}
    try:
        scales = weight_scales(value, bits, **axes)
    except QuantizationError as error:
        raise QuantizationError(f"{weight.target}: {error}") from None
    scale = constant(gm, f"{weight.name}_scale", scales)
    with gm.graph.inserting_after(scale):
        q = gm.graph.create_node("call_function", quantize, (weight, scale, 0, bits), axes, name=f"{weight.name}_q")
    with gm.graph.inserting_after(q):
        dq = gm.graph.create_node("call_function", dequantize, (q, scale, 0, bits), axes, name=f"{weight.name}_dq")
    q.meta, dq.meta = integers(weight), dict(weight.meta)
    return dq
