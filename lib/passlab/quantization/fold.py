"""Fold quantize and dequantize into the operations between them: what is left computes with integers.

dequantize → linear → relu → quantize     becomes   integer_linear, whose requantize saturates at the zero point

A pattern is found once, by `match`, and read twice: by `fold`, and by `stated`, which runs the unfolded graph by the
definition of each pattern, in plain int64 arithmetic. Both must agree in every bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.fx.nodes import attribute
from passlab.quantization import ops
from passlab.quantization.graphs import (
    Node,
    argument,
    calls,
    clipped,
    constant,
    copied,
    dequantized,
    factor,
    follows,
    integers,
    kind,
    nodes,
    operands,
    prune,
    reduced,
    region,
    single_scale,
    typed,
)
from passlab.quantization.ops import dequantize, quantize
from passlab.quantization.pack import pack_int4
from passlab.quantization.semantics import (
    MAX_SHIFT,
    SUM_BITS,
    QuantizationError,
    common_shift,
    fixed_point,
    fixed_points,
    requantize,
    round_shift,
    wrapped,
)


class Match(NamedTuple):
    """What a quantize node and the nodes before it compute.

    `kind`: that of `node`, or "rescale" or "table". `scale`: the product of the factors between node and quantize;
    `low` and `high`: the ends at which the activations between them clip, as integers of the result's grid.
    """

    kind: str
    node: Node
    scale: float
    low: int
    high: int


def match(q: Node) -> Match | None:
    """Return what of integers a quantize node and those before it compute, None if it is not all a layer."""
    if not calls(q, quantize) or not single_scale(q) or not isinstance(q.args[0], fx.Node):
        return None
    node, scale, low, high = q.args[0], 1.0, -math.inf, math.inf
    if dequantized(node):
        return Match("rescale", node, 1.0, *_ends(q, low, high))
    while not kind(node) and follows(node):
        bounds = clipped(node)
        if bounds is not None:
            low, high = max(low, bounds[0] * scale), min(high, bounds[1] * scale)
        scale *= factor(node) or 1.0
        node = node.all_input_nodes[0]
    if kind(node) and _folds(node):
        return Match(kind(node), node, scale, *_ends(q, low, high))
    leaf: Any = region(q.args[0]).leaf if argument(q, 3, "bits", 8) == 8 else None
    table = dequantized(leaf) and argument(leaf, 3, "bits", 8) == 8 and not _stored(leaf.args[0])
    return Match("table", leaf, 1.0, *_ends(q)) if table else None


def _ends(q: Node, low: float = -math.inf, high: float = math.inf) -> tuple[int, int]:
    """Return real ends as integers of a grid: quantize is increasing, so that it keeps the order."""
    both = quantize(torch.tensor([low, high]), *q.args[1:], **q.kwargs)
    return int(both[0]), int(both[1])


def _folds(node: Node) -> bool:
    """Return whether all operands of a layer are integers on grids."""
    if not all(dequantized(part) for part in operands(node)):
        return False
    if kind(node) == "mean":
        return reduced(node)[2] > 0
    if kind(node) not in ("linear", "conv2d"):
        return True
    weight, bias = argument(node, 1, "weight"), argument(node, 2, "bias")
    constant_bias = bias is None or bias.op == "get_attr"
    return calls(weight, dequantize) and _stored(weight.args[0]) and constant_bias


def _stored(q: Any) -> bool:
    """Return whether the integers of a weight are constants, or will be."""
    return q.op == "get_attr" or (calls(q, quantize) and q.args[0].op == "get_attr")


# ------------------------------------------------------------------------------------------- the integers of a layer


class Layer(NamedTuple):
    """The integers of a linear or convolution: multiplier and shift are tensors, one for each output."""

    weight: Tensor
    bias: Tensor | None
    multiplier: Any
    shift: Any


def layer_of(gm: fx.GraphModule, m: Match, q: Node) -> Layer:
    """Return the integers of a linear or convolution that `match` found at `q`.

    The bias is rounded to the grid of scale_x · scale_w, where accumulators are. Raises QuantizationError for one that
    does not fit in int32.
    """
    node = m.node
    weight_scale = scale_of(gm, node.args[1]).double()
    input_scale, scale = operands(node)[0].args[1], q.args[1]
    factors = input_scale * weight_scale * m.scale / scale
    if weight_scale.dim() == 2:
        return _grouped(gm, m, q, factors)
    weight = _integers(gm, node.args[1])
    factors = factors.expand(len(weight))
    bias = _bias(gm, node)
    if bias is not None:
        grid = (input_scale * weight_scale).expand(len(bias))
        bias = torch.round(bias / grid)
        worst = int(bias.abs().argmax())
        if bias[worst].abs() >= 2**31:
            raise QuantizationError(
                f"The bias of {node.name} does not fit in int32: output {worst} has {bias[worst] * grid[worst]:.4g} on "
                f"a grid of scale {grid[worst]:.3g}. Its weights are too small beside it: keep the layer in float, "
                f"bits={{{node.name!r}: 32}}."
            )
        bias = bias.to(torch.int32)
    return Layer(weight, bias, *fixed_points(factors))


def _grouped(gm: fx.GraphModule, m: Match, q: Node, factors: Tensor) -> Layer:
    pairs = [common_shift(row, 31) for row in factors.tolist()]
    multiplier = torch.tensor([multipliers for multipliers, _ in pairs], dtype=torch.int32)
    shift = torch.tensor([shift for _, shift in pairs], dtype=torch.int32)
    bias = _bias(gm, m.node)
    if bias is not None:
        bias = torch.round(torch.ldexp(bias * m.scale / q.args[1], shift))
        if bias.abs().max() >= 2.0**MAX_SHIFT:
            raise QuantizationError(
                f"The bias of {m.node.name} does not fit in the int64 of its sum: keep the layer in float, "
                f"bits={{{m.node.name!r}: 32}}."
            )
        bias = bias.to(torch.int64)
    return Layer(_integers(gm, m.node.args[1]), bias, multiplier, shift)


def _bias(gm: fx.GraphModule, node: Node) -> Tensor | None:
    bias = argument(node, 2, "bias")
    return None if bias is None else attribute(gm, bias.target).detach().double()


def scale_of(gm: Any, dq: Node) -> Tensor:
    """Return the scale of a dequantize as a tensor."""
    scale = dq.args[1]
    return attribute(gm, str(scale.target)) if isinstance(scale, fx.Node) else torch.tensor(scale)


def _integers(gm: fx.GraphModule, dq: Node) -> Tensor:
    """Return the integers of a weight, computed if the graph still has floats."""
    q = dq.args[0]
    if q.op == "get_attr":
        return attribute(gm, q.target)
    value = attribute(gm, q.args[0].target).detach()
    return quantize(value, scale_of(gm, dq), *q.args[2:], **q.kwargs)


def table_of(gm: fx.GraphModule, m: Match, q: Node) -> Tensor:
    """Return what a region of element-wise nodes makes of each of the 256 integers, as int8."""
    integer = torch.arange(-128, 128).to(torch.int8)
    values: dict[Node, Any] = {m.node: dequantize(integer, *m.node.args[1:])}
    for node in region(q.args[0]).nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "call_module":
            values[node] = gm.get_submodule(node.target)(*args, **kwargs)
        else:
            target = getattr(Tensor, node.target) if isinstance(node.target, str) else node.target
            values[node] = target(*args, **kwargs)
    return quantize(values[q.args[0]], *q.args[1:], **q.kwargs)


def factor_of(m: Match, q: Node) -> float:
    """Return the real factor of the requantize of a matmul, mean or rescale."""
    scale = m.scale / q.args[1]
    for part in [m.node] if m.kind == "rescale" else operands(m.node):
        scale *= part.args[1]
    return scale / reduced(m.node)[2] if m.kind == "mean" else scale


def sum_factors(m: Match, q: Node) -> tuple[list[int], int]:
    """Return the two multipliers of a sum and their shift."""
    factors = [part.args[1] * m.scale / q.args[1] for part in operands(m.node)]
    return common_shift(factors, SUM_BITS)


def window(node: Node) -> tuple[list[int], list[int], list[int], int]:
    """Return stride, padding, dilation and groups of a convolution, both numbers of each."""
    names = (("stride", 1), ("padding", 0), ("dilation", 1))
    values = [argument(node, place, name, default) for place, (name, default) in enumerate(names, 3)]
    stride, padding, dilation = ([v, v] if isinstance(v, int) else [*v, *v][:2] for v in values)
    return stride, padding, dilation, argument(node, 6, "groups", 1)


# ------------------------------------------------------------------------------------------------------------ the pass


def fold(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph whose layers compute with integers: each pattern of `match` becomes one node.

    Weights and biases become constants of integers, functions of one value tables of 256. What has no integer form
    (softmax, layer_norm) stays between a dequantize and a quantize. Raises QuantizationError for a bias that does not
    fit.
    """
    gm = copied(gm)
    writer = _Writer(gm)
    for q in nodes(gm):
        m = match(q)
        if m is not None:
            with gm.graph.inserting_before(q):
                target, args = writer.call(m, q)
                new = gm.graph.call_function(target, args)
            new.meta = integers(q)
            q.replace_all_uses_with(new)
    prune(gm)
    return gm


class _Writer:
    """Write the calls of integer operations, and their constants, each weight once."""

    def __init__(self, gm: fx.GraphModule):
        self.gm = gm
        self.weights: dict[Node, str] = {}

    def call(self, m: Match, q: Node) -> tuple[Callable, tuple]:
        node, end = m.node, (q.args[2], m.low, m.high)
        if m.kind == "table":
            return ops.lookup, (node.args[0], constant(self.gm, f"{q.name}_table", table_of(self.gm, m, q)))
        if m.kind == "rescale":
            return ops.rescale, (node.args[0], node.args[2], *fixed_point(factor_of(m, q)), *end)
        parts = [part.args[0] for part in operands(node)]
        zeros = [part.args[2] for part in operands(node)]
        if m.kind == "add":
            multipliers, shift = sum_factors(m, q)
            return ops.integer_add, (*parts, *zeros, *multipliers, shift, *end)
        if m.kind == "matmul":
            return ops.integer_matmul, (*parts, *zeros, *fixed_point(factor_of(m, q)), *end)
        if m.kind == "mean":
            dims, keep, _ = reduced(node)
            return ops.integer_mean, (*parts, dims, keep, *zeros, *fixed_point(factor_of(m, q)), *end)
        return self.layer(m, q, parts[0], zeros[0], end)

    def layer(self, m: Match, q: Node, x: Node, zero: int, end: tuple) -> tuple[Callable, tuple]:
        node = m.node
        layer = layer_of(self.gm, m, q)
        packed = layer.multiplier.dim() == 2
        weight = self.weight(node.args[1], layer.weight, packed)
        bias = None if layer.bias is None else constant(self.gm, f"{node.name}_bias", layer.bias)
        factors = [
            constant(self.gm, f"{node.name}_{name}", part)
            for name, part in (("multiplier", layer.multiplier), ("shift", layer.shift.to(torch.int8)))
        ]
        if packed:
            group = argument(node.args[1], 5, "group")
            return ops.integer_linear_int4, (x, weight, bias, group, zero, *factors, *end)
        if m.kind == "linear":
            return ops.integer_linear, (x, weight, bias, zero, *factors, *end)
        return ops.integer_conv2d, (x, weight, bias, *window(node), zero, *factors, *end)

    def weight(self, dq: Node, value: Tensor, packed: bool) -> Node:
        value = pack_int4(value) if packed else value
        if dq in self.weights:
            node = self.gm.graph.get_attr(self.weights[dq])
            node.meta["tensor_meta"] = typed(value)
            return node
        node = constant(self.gm, f"{dq.name.removesuffix('_dq')}_int", value)
        self.weights[dq] = node.target
        return node


# ------------------------------------------------------------------------------------------------------ the definition


def stated(gm: fx.GraphModule, *inputs: Any) -> Any:
    """Return what a graph with quantize and dequantize, not folded, returns by the stated semantics of integers.

    Each pattern of `match` is computed by its definition: sums of products of int64, modulo 2^32, and one requantize.
    """
    with torch.no_grad():
        return Stated(gm).run(*inputs)


class Stated(fx.Interpreter):
    """Run a graph with pairs by the definition of each pattern, see `stated`."""

    def __init__(self, gm: fx.GraphModule):
        super().__init__(gm, garbage_collect_values=False)
        self.extra_traceback = False  # an error is told as by `fold`

    def run_node(self, n: Node) -> Any:
        m = match(n)
        return super().run_node(n) if m is None else definition(self.module, m, n, self.env)


def definition(gm: Any, m: Match, q: Node, env: dict[Node, Any]) -> Tensor:
    """Return the integers of quantize node `q`, which matches `m`, from those before it: node → value."""
    node, end = m.node, (q.args[2], m.low, m.high)
    if m.kind == "table":
        return table_of(gm, m, q)[env[node.args[0]].long() + 128]
    parts = [node] if m.kind == "rescale" else operands(node)
    values = [env[part.args[0]].long() - part.args[2] for part in parts]
    if m.kind == "add":
        (first, second), shift = sum_factors(m, q)
        total = wrapped(values[0] * first + values[1] * second)
        return (round_shift(total, shift) + end[0]).clamp(*end[1:]).to(torch.int8)
    if m.kind in ("linear", "conv2d"):
        return _layer_definition(gm, m, q, values[0])
    if m.kind == "matmul":
        acc = values[0] @ values[1]
    elif m.kind == "mean":
        acc = values[0].sum(reduced(node)[0], keepdim=reduced(node)[1])
    else:
        acc = values[0]
    return requantize(wrapped(acc), *fixed_point(factor_of(m, q)), *end)


def _layer_definition(gm: Any, m: Match, q: Node, x: Tensor) -> Tensor:
    layer, end = layer_of(gm, m, q), (q.args[2], m.low, m.high)
    weight = layer.weight.long()
    bias = None if layer.bias is None else layer.bias.long()
    if layer.multiplier.dim() == 2:
        groups = weight.shape[1] // layer.multiplier.shape[1]
        pieces = zip(x.split(groups, -1), weight.split(groups, 1), layer.multiplier.long().unbind(1), strict=True)
        total = sum(wrapped(F.linear(a, w)) * factor for a, w, factor in pieces)
        total = total if bias is None else total + bias
        return (round_shift(total, layer.shift.long()) + end[0]).clamp(*end[1:]).to(torch.int8)
    if m.kind == "linear":
        return requantize(wrapped(F.linear(x, weight, bias)), layer.multiplier, layer.shift, *end, axis=x.dim() - 1)
    acc = F.conv2d(x, weight, bias, *window(m.node))
    return requantize(wrapped(acc), layer.multiplier, layer.shift, *end, axis=1)


def layers(gm: fx.GraphModule) -> Iterator[tuple[Node, Match]]:
    """Yield quantize node and match of each layer of a graph that is not folded: not tables, and not rescales."""
    for q in nodes(gm):
        m = match(q)
        if m is not None and m.kind not in ("table", "rescale"):
            yield q, m
