"""Groups that are one call of a library: a convolution or linear layer, then a sum, then an activation.

    matched(gm, nodes)       # Epilogue, or None

On the CPU, oneDNN computes large ones in one loop nest, with weights that are laid out once, when the program is built.
Small ones, and all on a GPU, are calls of torch's own libraries, each of which writes into the memory of the first
where it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.fx.nodes import attribute
from passlab.fx.ops import ConvReLU2d, conv2d_relu, linear_act
from passlab.fx.patterns import canonical

_CONV_ARGS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_LINEAR_ARGS = ("input", "weight", "bias", "activation")
#: An activation's canonical name → oneDNN's (attribute, scalars, algorithm).
ACTIVATIONS = {
    "": ("none", [], ""),
    "relu": ("relu", [], ""),
    "relu6": ("hardtanh", [0.0, 6.0], ""),
    "silu": ("swish", [], ""),
    "gelu": ("gelu", [], "none"),
    "gelu_tanh": ("gelu", [], "tanh"),
    "sigmoid": ("sigmoid", [], ""),
    "tanh": ("tanh", [], ""),
}
#: Multiplications of a linear layer below which oneDNN's own preparations take longer than what it saves.
WORTH_PACKING = 2**22
#: The same for a convolution that torch computes as a product of matrices: oneDNN takes 30 µs for the smallest.
WORTH_ONEDNN = 2**21
#: Channels of an image below which that product is slow where they are the last dimension.
WORTH_VECTORS = 8
_IN_PLACE: dict[str, Callable] = {
    "relu": torch.relu_,
    "relu6": lambda x: F.hardtanh_(x, 0.0, 6.0),
    "silu": lambda x: F.silu(x, inplace=True),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}


@dataclass(frozen=True)
class Head:
    """A convolution or linear layer. `weight`, `bias`: tensors. `how`: padding, stride, dilation, groups."""

    kind: str
    input: fx.Node
    weight: torch.Tensor
    bias: torch.Tensor | None
    how: tuple = ()
    activation: str = ""


@dataclass(frozen=True)
class Epilogue:
    """A head, the value added to its result (or None), and the name of the final activation."""

    head: Head
    addend: fx.Node | None
    activation: str


def match(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> Epilogue | None:
    """Return the single call that computes a group, or None. `nodes`: in graph order, with `meta["val"]`."""
    first, *others = nodes
    head = _head(gm, first)
    if head is None or _float32(first) is None:
        return None
    members, last, addend, activation = set(nodes), first, None, head.activation
    for node in others:
        if activation or list(last.users) != [node]:
            return None
        if canonical(node, gm) == "add" and addend is None and set(node.kwargs) <= set():
            addends = [a for a in node.args if a is not last]
            if len(node.args) != 2 or len(addends) != 1 or not isinstance(addends[0], fx.Node) or addends[0] in members:
                return None
            if addends[0].op == "get_attr" or _float32(addends[0]) != _float32(first):
                return None
            addend = addends[0]
        else:
            activation = _activation(gm, node, last)
            if activation is None:
                return None
        last = node
    if addend is not None and ((head.kind == "linear" and activation) or activation not in ("", "relu")):
        return None  # oneDNN has no such epilogue here
    return Epilogue(head, addend, activation)


def _float32(node: fx.Node) -> tuple[int, ...] | None:
    """Return the shape of a node's value if it is a float32 tensor on the CPU or a GPU with elements."""
    value = node.meta.get("val")
    fits = isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.device.type in ("cpu", "cuda")
    return tuple(value.shape) if fits and value.numel() else None


def _activation(gm: fx.GraphModule, node: fx.Node, operand: fx.Node) -> str | None:
    name = canonical(node, gm)
    if [a for a in node.args if isinstance(a, fx.Node)] != [operand] or len(node.args) != 1:
        return None
    options = {k: v for k, v in node.kwargs.items() if (k, v) not in (("inplace", False), ("approximate", "none"))}
    part = attribute(gm, node.target) if node.op == "call_module" else None
    if getattr(part, "inplace", False):
        return None
    if name == "gelu" and (options == {"approximate": "tanh"} or getattr(part, "approximate", "") == "tanh"):
        return "gelu_tanh"
    return name if name in ACTIVATIONS and name and not options else None


def _head(gm: fx.GraphModule, node: fx.Node) -> Head | None:
    if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
        part = attribute(gm, node.target)
        if type(part) in (nn.Conv2d, ConvReLU2d) and part.padding_mode == "zeros" and part.padding not in ("same",):
            pad = (0, 0) if part.padding == "valid" else part.padding
            settings = (list(pad), list(part.stride), list(part.dilation), part.groups)
            return _of("conv", node.args[0], part.weight, part.bias, settings, "relu" * (type(part) is ConvReLU2d))
        if type(part) is nn.Linear:
            return _of("linear", node.args[0], part.weight, part.bias)
    if node.op != "call_function":
        return None
    if node.target in (F.conv2d, torch.conv2d, conv2d_relu):
        arguments = dict(zip(_CONV_ARGS, node.args, strict=False)) | dict(node.kwargs)
        pairs = [_pair(arguments.get(k, d)) for k, d in (("padding", 0), ("stride", 1), ("dilation", 1))]
        if None in pairs or len(arguments) > len(_CONV_ARGS):
            return None
        settings = (*pairs, arguments.get("groups", 1))
        weight, bias = (_constant(gm, arguments.get(k)) for k in ("weight", "bias"))
        if weight is None or (arguments.get("bias") is not None and bias is None):
            return None
        return _of("conv", arguments["input"], weight, bias, settings, "relu" * (node.target is conv2d_relu))
    if node.target in (F.linear, linear_act):
        arguments = dict(zip(_LINEAR_ARGS, node.args, strict=False)) | dict(node.kwargs)
        weight, bias = (_constant(gm, arguments.get(k)) for k in ("weight", "bias"))
        if weight is None or (arguments.get("bias") is not None and bias is None):
            return None
        fused = arguments.get("activation", "relu") if node.target is linear_act else ""
        return _of("linear", arguments["input"], weight, bias, (), fused) if fused in ACTIVATIONS else None
    return None


def _of(kind: str, operand: Any, weight: Any, bias: Any, settings: tuple = (), activation: str = "") -> Head | None:
    value = operand.meta.get("val") if isinstance(operand, fx.Node) else None
    fits = isinstance(value, torch.Tensor) and value.dtype == weight.dtype == torch.float32
    fits = fits and value.ndim == (4 if kind == "conv" else value.ndim) and value.ndim >= 2 and value.numel()
    return Head(kind, operand, weight, bias, settings, activation) if fits else None


def _constant(gm: fx.GraphModule, value: Any) -> torch.Tensor | None:
    tensor = attribute(gm, value.target) if isinstance(value, fx.Node) and value.op == "get_attr" else None
    return tensor if isinstance(tensor, torch.Tensor) else None


def _pair(value: Any) -> list[int] | None:
    if type(value) is int:
        return [value, value]
    fits = isinstance(value, tuple | list) and len(value) in (1, 2) and all(type(n) is int for n in value)
    return (list(value) * 2)[:2] if fits else None


def call(epilogue: Epilogue, last: bool = True) -> tuple[Callable, bool] | None:
    """Return a function (input[, addend]) → result that computes a group, and whether it prefers channels-last images,
    or None on a CPU without oneDNN. last: whether the program's images have channels last (see `channels_last`)."""
    head = epilogue.head
    on_cpu, images = head.weight.device.type == "cpu", last and head.kind == "conv"
    if on_cpu and not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")):
        return None
    if not on_cpu:
        run, images = plain(epilogue), False
    elif images and (_is_for_onednn(head) or head.weight.shape[1] < WORTH_VECTORS):
        run = _by_onednn(epilogue)
    elif images:
        weight = head.weight.contiguous(memory_format=torch.channels_last)
        run = plain(replace(epilogue, head=replace(head, weight=weight)))
    else:
        worth = head.kind == "linear" and _multiplications(head) >= WORTH_PACKING
        run = _by_onednn(epilogue) if worth else plain(epilogue)
    if epilogue.addend is head.input:  # conv(x) + x: the group reads one value
        return (lambda x: run(x, x)), images
    return run, images


def channels_last(groups: Iterable[fx.GraphModule]) -> bool:
    """Return whether a program's images should have channels last: if one of its convolutions is for oneDNN.

    That one decides for all: a change of layout between two steps costs as much as a small convolution. groups: graphs
    with shapes.
    """
    heads = (_head(gm, node) for gm in groups for node in gm.graph.nodes)
    return any(_is_for_onednn(head) for head in heads if head is not None and head.kind == "conv")


def _is_for_onednn(head: Head) -> bool:
    """Return whether a convolution is large, or one for which torch itself calls oneDNN."""
    padding, stride, dilation, groups = head.how
    x = torch.empty(head.input.meta["val"].shape)
    backend = torch._C._select_conv_backend(x, head.weight, head.bias, stride, padding, dilation, False, [0, 0], groups)
    return backend.name != "Slow2d" or _multiplications(head) >= WORTH_ONEDNN


def _multiplications(head: Head) -> int:
    """Return how many numbers a convolution or linear layer multiplies."""
    shape = head.input.meta["val"].shape
    if head.kind == "linear":
        return shape[:-1].numel() * head.weight.numel()
    sizes = zip(shape[2:], head.weight.shape[2:], *head.how[:3], strict=True)
    results = [(size + 2 * pad - gap * (side - 1) - 1) // step + 1 for size, side, pad, step, gap in sizes]
    return shape[0] * math.prod(results) * head.weight.numel()


def plain(epilogue: Epilogue) -> Callable:
    """Return a function (input[, addend]) → result of torch's own operators; all but the first are in place."""
    head, activation = epilogue.head, _IN_PLACE.get(epilogue.activation)
    weight, bias = head.weight.detach(), None if head.bias is None else head.bias.detach()
    if head.kind == "conv":
        padding, stride, dilation, groups = head.how

        def first(x: torch.Tensor) -> torch.Tensor:
            return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    else:
        linear = torch._C._nn.linear

        def first(x: torch.Tensor) -> torch.Tensor:
            return linear(x, weight, bias)

    if epilogue.addend is None:
        return first if activation is None else lambda x: activation(first(x))
    return (lambda x, y: first(x).add_(y)) if activation is None else lambda x, y: activation(first(x).add_(y))


def _by_onednn(epilogue: Epilogue) -> Callable:
    head, onednn = epilogue.head, torch.ops.mkldnn
    weight, bias = head.weight.detach(), None if head.bias is None else head.bias.detach()
    name, scalars, algorithm = ACTIVATIONS[epilogue.activation]
    shape = list(head.input.meta["val"].shape)
    if head.kind == "conv":
        packed = onednn._reorder_convolution_weight(weight, *head.how, shape)
        if epilogue.addend is None:
            convolution = onednn._convolution_pointwise.default
            return lambda x: convolution(x, packed, bias, *head.how, name, scalars, algorithm)
        binary = onednn._convolution_pointwise.binary
        unary = None if name == "none" else name
        return lambda x, addend: binary(x, addend, packed, bias, *head.how, "add", 1.0, unary, [], "")
    rows = torch.Size(shape[:-1]).numel()
    if epilogue.addend is None:
        packed = onednn._reorder_linear_weight(weight, rows)
        linear = onednn._linear_pointwise.default
        return lambda x: linear(x, packed, bias, name, scalars, algorithm)
    packed = onednn._reorder_linear_weight(weight, rows)
    binary = onednn._linear_pointwise.binary
    return lambda x, addend: binary(x, addend, packed, bias, "add")
