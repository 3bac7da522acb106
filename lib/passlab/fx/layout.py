"""The layout that each op needs for its images: the rules of the layout exercise, as data.

    wants(node)        # "NHWC" for a convolution, "any" for relu, "NCHW" for flatten
    converts(node)     # "NHWC" for x.to(memory_format=torch.channels_last), None for a node that does not convert

An image is a 4-D tensor. Its layout is the order of its elements in memory: NCHW (contiguous) or NHWC (channels_last);
its shape and its values are the same in both. An op that takes any layout passes it on, so all its images must share
one. Parameters can be laid out once, ahead of time: they need no conversion while the program runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from passlab.fx.effects import effects
from passlab.fx.programs import Program, preserve_state

#: The layouts that an op may need: channels before the rows, channels last, or either.
NCHW, NHWC, ANY = "NCHW", "NHWC", "any"

#: Functions, methods and (in lower case) modules. An op in no row needs NCHW.
_WANTS = {
    NHWC: "conv2d convtranspose2d conv_transpose2d",
    ANY: "relu relu6 leaky_relu leakyrelu elu gelu silu hardswish sigmoid tanh neg abs exp sqrt clamp hardtanh "
    "add iadd sub mul div truediv maximum minimum where cat clone identity "
    "batch_norm batchnorm2d dropout dropout2d mean sum interpolate upsample "
    "size dim shape getattr numel "
    "max_pool2d maxpool2d avg_pool2d avgpool2d adaptive_avg_pool2d adaptiveavgpool2d",
}
_WANTED = {name: layout for layout, names in _WANTS.items() for name in names.split()}
_FORMATS = {torch.channels_last: NHWC, torch.contiguous_format: NCHW}


def converts(node: fx.Node) -> str | None:
    """Return the layout that a conversion (`.to(memory_format=…)`, `.contiguous(…)`) yields; None for other nodes."""
    if node.op != "call_method" or node.target not in ("to", "contiguous"):
        return None
    formats = [a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, torch.memory_format)]
    if node.target == "contiguous" and not formats:
        return NCHW
    return _FORMATS.get(formats[0]) if formats else None


def wants(node: fx.Node) -> str:
    """Return the layout in which a node takes its images: "NHWC", "NCHW" or "any".

    A node that draws random numbers (dropout in training) needs NCHW: it draws in memory order.
    """
    if effects(node):
        return NCHW
    if node.op == "call_module":
        leaf = node.graph.owning_module.get_submodule(node.target)
        return _WANTED.get(type(leaf).__name__.lower(), NCHW)
    if node.op in ("call_function", "call_method"):
        return _WANTED.get(getattr(node.target, "__name__", node.target), NCHW)
    return NCHW


def is_image(node: fx.Node) -> bool:
    """Return whether the node's value is a 4-D tensor and not a parameter. Needs shapes on the nodes."""
    meta = node.meta.get("tensor_meta")
    return node.op != "get_attr" and hasattr(meta, "shape") and len(meta.shape) == 4


@dataclass(frozen=True)
class Clash:
    """An operand in another layout than its user needs or, if that takes any, than the user's first image has."""

    reader: fx.Node
    operand: fx.Node
    have: str
    want: str


def clashes(gm: fx.GraphModule, *inputs: Any) -> list[Clash]:
    """Follow the layouts through the graph, and list where a node gets an image in an unwanted layout.

    `inputs`: example inputs, to find the shapes with; the nodes from one that fails on them have no images.
    """
    program = Program(gm)
    with preserve_state(program):
        values = program.run(inputs, traced=True).trace.values
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor) and value.dim() == 4}
    images = {n.name for n in gm.graph.nodes if n.op != "get_attr" and n.name in tensors}
    layout: dict[fx.Node, str] = {}
    conflicts = []
    for node in gm.graph.nodes:
        operands = [n for n in node.all_input_nodes if n.name in images]
        first = layout[operands[0]] if operands else NCHW
        want = first if wants(node) == ANY else wants(node)
        if converts(node) is None:
            conflicts += [Clash(node, n, layout[n], want) for n in operands if layout[n] != want]
        layout[node] = converts(node) or (NCHW if wants(node) == NCHW else first)
    return conflicts
