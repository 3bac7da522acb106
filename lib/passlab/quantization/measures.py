"""Figures of a quantized graph: bytes of weights, share of the arithmetic in int8, floats between integer layers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor, fx

from passlab.fx.nodes import attribute, shape
from passlab.quantization import ops
from passlab.quantization.graphs import Node, argument, calls, kind, moves, nodes, region
from passlab.quantization.ops import dequantize, quantize


class Arithmetic(NamedTuple):
    """Multiply-adds of products and convolutions."""

    integer: int
    floating: int

    @property
    def share(self) -> float:
        """Return the share of the integers, 1 without any multiply-add."""
        return self.integer / (self.integer + self.floating) if self.integer + self.floating else 1.0


def arithmetic(gm: fx.GraphModule) -> Arithmetic:
    """Return how many multiply-adds a graph does in integers and in floats. It needs shapes (`passlab.trace`)."""
    integer = floating = 0
    for node in nodes(gm):
        if calls(node, ops.integer_linear, ops.integer_linear_int4, ops.integer_conv2d, ops.integer_matmul):
            integer += _multiply_adds(gm, node)
        elif kind(node) in ("linear", "conv2d", "matmul"):
            floating += _multiply_adds(gm, node)
    return Arithmetic(integer, floating)


def _multiply_adds(gm: fx.GraphModule, node: Node) -> int:
    out, first = shape(node), shape(node.args[0])
    if out is None:
        raise ValueError(f"{node.name} has no shape: trace the model with inputs, passlab.trace(model, x).")
    weight = node.args[1]
    if calls(node, ops.integer_conv2d) or kind(node) == "conv2d":
        return math.prod(out) * math.prod((shape(weight) or ())[1:])
    return math.prod(out) * (first or (0,))[-1]


class Bytes(NamedTuple):
    """Bytes of the weights of layers: as floats, and as they are stored, with scales or multipliers and shifts."""

    floating: int
    stored: int

    @property
    def ratio(self) -> float:
        return self.stored / self.floating if self.floating else 1.0


def weight_bytes(gm: fx.GraphModule) -> Bytes:
    """Return the bytes of the weights of linear layers and convolutions, each tensor once: biases do not count.

    In a graph with pairs a scale has 4 bytes, in a folded one a multiplier 4 and a shift 1.
    """
    names: set[str] = set()
    floating = stored = 0
    for node in nodes(gm):
        parts = _weight_parts(node)
        if not parts or parts[0].target in names:
            continue
        names.add(parts[0].target)
        values: list[Tensor] = [attribute(gm, part.target) for part in parts]
        packed, bits = calls(node, ops.integer_linear_int4), _bits(node)
        floating += 4 * values[0].numel() * (2 if packed else 1)
        stored += values[0].numel() * bits // 8
        stored += sum(value.numel() * value.element_size() for value in values[1:])
    return Bytes(floating, stored)


def _weight_parts(node: Node) -> list[Node]:
    """Return the constants that hold a layer's weights: integers or floats, then its scales."""
    if calls(node, ops.integer_linear, ops.integer_conv2d, ops.integer_linear_int4):
        constants = [part for part in node.args[3:] if isinstance(part, fx.Node)]
        return [node.args[1], *constants]
    if kind(node) in ("linear", "conv2d"):
        weight = node.args[1]
        return [weight.args[0].args[0], weight.args[1]] if calls(weight, dequantize) else [weight]
    return []


def _bits(node: Node) -> int:
    """Return the bits of an element of the tensor that holds a layer's weights."""
    if kind(node) in ("linear", "conv2d"):
        return argument(node.args[1], 3, "bits", 8) if calls(node.args[1], dequantize) else 32
    return 8


def float_copies(gm: fx.GraphModule) -> list[str]:
    """Return the dequantize nodes whose values reach a quantize through nothing that needs floats.

    Between two integer layers such a value is a float copy: it moves four bytes in place of one, for nothing.
    """
    copies: dict[str, None] = {}
    for node in nodes(gm):
        if calls(node, quantize) and argument(node, 4, "axis") is None and argument(node, 5, "group") is None:
            leaf: Any = region(node.args[0]).leaf
            while leaf is not None and moves(leaf):
                leaf = region(leaf.args[0]).leaf
            if calls(leaf, dequantize):
                copies[leaf.name] = None
    return list(copies)
