"""Translate an FX graph into Relay: one call for each operation, and the name of the node that it stands for.

    module, names = to_relay(plain(model, x))        # names[i]: the node of the i-th call

`passlab.tvm.importers.relay_module` uses TVM's frontend, which may make several calls of one operation and does not
record which. FuseOps's groups are groups of calls; to read them as groups of nodes, each node needs a call of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.fx.patterns import canonical
from passlab.fx.reader import trace
from passlab.relay import relay, tvm
from passlab.relay.groups import calls


def in_post_order(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the nodes that the output needs: inputs first, then operands before consumers, the first operand first."""
    [end] = gm.graph.find_nodes(op="output")
    ordered = dict.fromkeys(gm.graph.find_nodes(op="placeholder"))
    todo = [end]
    while todo:
        node = todo[-1]
        waiting = [n for n in node.all_input_nodes if n not in ordered]
        if waiting:
            todo.append(waiting[0])
        else:
            ordered[todo.pop()] = None
    graph, copies = fx.Graph(), {}
    for node in ordered:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    copy = fx.GraphModule(gm, graph)
    copy.meta.update(gm.meta)
    return copy


class _Plain(fx.Transformer):
    """Replace modules by basic operations: a batch norm by a product and a sum, a Linear by a product and a bias."""

    def constant(self, name: str, value: torch.Tensor) -> fx.Proxy:
        name = name.replace(".", "_")
        self.module.register_buffer(name, value.detach().clone())
        return self.tracer.create_proxy("get_attr", name, (), {})

    def call_module(self, target: str, args: tuple, kwargs: dict) -> Any:
        layer, (x, *_) = self.module.get_submodule(target), args
        if isinstance(layer, nn.Linear | nn.Conv2d):
            w = self.constant(f"{target}_w", layer.weight)
            if isinstance(layer, nn.Linear):
                y, shape = F.linear(x, w), (-1,)
            else:
                y = F.conv2d(x, w, None, layer.stride, layer.padding, layer.dilation, layer.groups)
                shape = (-1, 1, 1)
            return y if layer.bias is None else y + self.constant(f"{target}_b", layer.bias.reshape(shape))
        if isinstance(layer, nn.BatchNorm2d):
            factor = layer.weight / torch.sqrt(layer.running_var + layer.eps)
            shift = layer.bias - layer.running_mean * factor
            scaled = x * self.constant(f"{target}_factor", factor.reshape(-1, 1, 1))
            return scaled + self.constant(f"{target}_shift", shift.reshape(-1, 1, 1))
        if isinstance(layer, nn.ReLU | nn.ReLU6):
            return torch.clamp(x, 0, 6) if isinstance(layer, nn.ReLU6) else torch.relu(x)
        if isinstance(layer, nn.MaxPool2d):
            return F.max_pool2d(x, layer.kernel_size, layer.stride, layer.padding)
        if isinstance(layer, nn.AdaptiveAvgPool2d):
            return F.adaptive_avg_pool2d(x, layer.output_size)
        if isinstance(layer, nn.Flatten):
            return x.flatten(layer.start_dim)
        return x if isinstance(layer, nn.Identity | nn.Dropout) else super().call_module(target, args, kwargs)


def plain(model: nn.Module, *inputs: torch.Tensor) -> fx.GraphModule:
    """Return the model as a graph of functions, with shapes, in post-order."""
    return in_post_order(trace(_Plain(fx.symbolic_trace(model.eval())).transform(), *inputs))


#: Operations whose operands, tensors and numbers, are those of the call.
_CALLS = {
    "relu": "nn.relu",
    "neg": "negative",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "pow": "power",
    "gt": "greater",
    **{name: name for name in "tanh sigmoid exp abs sqrt rsqrt erf sin cos add maximum minimum where".split()},  # noqa: SIM905
}


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["tensor_meta"].shape)


def _axis(node: fx.Node, place: int, name: str = "dim", default: Any = 0) -> Any:
    """Return the operand at that position or with that name; tuples become lists, as Relay requires."""
    value = node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
    return list(value) if isinstance(value, tuple | list) else value


def _swapped(node: fx.Node) -> list[int]:
    axes = list(range(len(_shape(node))))
    if canonical(node) == "permute":
        return _axis(node, 1, "dims") if isinstance(node.args[1], tuple | list) else list(node.args[1:])
    a, b = node.args[1:]
    axes[a], axes[b] = axes[b], axes[a]
    return axes


def _reduced(call: Callable) -> Callable:
    def reduce(node: fx.Node, x: relay.Expr) -> relay.Expr:
        return call(x, axis=_axis(node, 1, default=None), keepdims=bool(_axis(node, 2, "keepdim", False)))

    return reduce


def _getitem(node: fx.Node, x: relay.Expr) -> relay.Expr:
    """Return a field of a tuple, or a slice of a tensor."""
    [value, index] = node.args
    if isinstance(index, int):
        return relay.TupleGetItem(x, index)
    index = index if isinstance(index, tuple) else (index,)
    bounds = [s.indices(n) for s, n in zip(index, _shape(value), strict=False)]
    begin, end, step = map(list, zip(*bounds, strict=True))
    return relay.strided_slice(x, begin, end, step, axes=list(range(len(index))))


def _pair(value: Any) -> tuple[int, int]:
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def _convolved(node: fx.Node, x: relay.Expr, w: relay.Expr) -> relay.Expr:
    stride, padding, dilation, groups = (*node.args[3:], *(1, 0, 1, 1)[len(node.args[3:]) :])
    channels, _, *kernel = _shape(node.args[1])
    return relay.nn.conv2d(
        x,
        w,
        strides=_pair(stride),
        padding=_pair(padding),
        dilation=_pair(dilation),
        groups=groups,
        channels=channels,
        kernel_size=kernel,
    )


def _multiplied(node: fx.Node, x: relay.Expr, y: relay.Expr) -> relay.Expr:
    if len(_shape(node)) == 2:
        return relay.nn.matmul(x, y)
    return relay.nn.batch_matmul(x, y, transpose_b=False)


def _pooled(node: fx.Node, x: relay.Expr) -> relay.Expr:
    kernel, padding = _axis(node, 1, "kernel_size"), _axis(node, 3, "padding", 0)
    stride = _axis(node, 2, "stride", None) or kernel
    return relay.nn.max_pool2d(x, _pair(kernel), _pair(stride), padding=_pair(padding))


#: Operations that need more than their operands: (node, the operands that are tensors) → call.
_TRANSLATIONS = {
    "clamp": lambda node, x: relay.clip(x, _axis(node, 1, "min", -math.inf), _axis(node, 2, "max", math.inf)),
    "reshape": lambda node, x: relay.reshape(x, _shape(node)),
    "transpose": lambda node, x: relay.transpose(x, _swapped(node)),
    "unsqueeze": lambda node, x: relay.expand_dims(x, _axis(node, 1)),
    "cat": lambda node, *xs: relay.concatenate(xs, _axis(node, 1)),
    "chunk": lambda node, x: relay.split(x, _axis(node, 1), _axis(node, 2)).astuple(),
    "getitem": _getitem,
    "sum": _reduced(relay.sum),
    "mean": _reduced(relay.mean),
    "amax": _reduced(relay.max),
    "conv2d": _convolved,
    "linear": lambda node, x, w: relay.nn.dense(x, w, units=_shape(node.args[1])[0]),
    "matmul": _multiplied,
    "softmax": lambda node, x: relay.nn.softmax(x, _axis(node, 1)),
    "max_pool2d": _pooled,
    "adaptive_avg_pool2d": lambda node, x: relay.nn.adaptive_avg_pool2d(x, _pair(node.args[1])),
    "cumsum": lambda node, x: relay.cumsum(x, _axis(node, 1)),
}
_TRANSLATIONS |= {name: _TRANSLATIONS["reshape"] for name in ("view", "flatten", "unflatten")} | {
    "permute": _TRANSLATIONS["transpose"]
}


def to_relay(gm: fx.GraphModule) -> tuple[tvm.IRModule, list[str]]:
    """Return the graph as a typed module with one call for each operation, and the node of each call.

    Inputs, attributes and numbers become parameters of main: FuseOps treats them alike. Raise ValueError for
    an operation that has no translation.
    """
    values: dict[fx.Node, Any] = {}
    params: list[relay.Var] = []

    def parameter(name: str, shape: tuple[int, ...] = (), dtype: str = "float32") -> relay.Var:
        params.append(relay.var(name, shape=shape, dtype=dtype))
        return params[-1]

    def operand(node: fx.Node, value: Any) -> relay.Expr:
        return values[value] if isinstance(value, fx.Node) else parameter(f"{node.name}_number{len(params)}")

    for node in gm.graph.nodes:
        if node.op == "output":
            break
        if node.op in ("placeholder", "get_attr"):
            dtype = str(node.meta["tensor_meta"].dtype).removeprefix("torch.")
            values[node] = parameter(node.name, _shape(node), dtype)
        elif (name := canonical(node)) in _CALLS:
            operands = [operand(node, value) for value in node.args]
            values[node] = relay.Call(relay.op.get(_CALLS[name]), operands)
        elif name in _TRANSLATIONS:
            values[node] = _TRANSLATIONS[name](node, *(values[n] for n in node.all_input_nodes))
        else:
            raise ValueError(f"{node.name}: there is no translation of {name} to Relay.")
    returned = node.args[0]
    body = relay.Tuple([values[n] for n in returned]) if isinstance(returned, tuple) else values[returned]
    module = tvm.IRModule.from_expr(relay.Function(params, body))
    node_of = {call: node.name for node, call in values.items()}
    names = [node_of[call] for call in calls(module)]
    return relay.transform.InferType()(module), names
