"""Day 4: which nodes of an FX graph Relay's FuseOps puts into one kernel. Visible cases, and a judge that runs FuseOps.

The graph is translated, one call of Relay for each operation, and FuseOps is run on what comes out. So that both see
the nodes in one order, the graphs are in post-order: operands before readers, the first operand first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import models
from passlab.fx.cases import graph
from passlab.fx.patterns import canonical
from passlab.fx.reader import trace
from passlab.judge import Case, Finding
from passlab.relay import relay, tvm
from passlab.relay.groups import calls, fused_groups


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
    made, copies = fx.Graph(), {}
    for node in ordered:
        copies[node] = made.node_copy(node, copies.__getitem__)
    found = fx.GraphModule(gm, made)
    found.meta.update(gm.meta)
    return found


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


def zoo(name: str) -> Callable[[], fx.GraphModule]:
    return lambda: plain(models.ZOO[name].build(), *models.ZOO[name].inputs())


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


def _taken(node: fx.Node, x: relay.Expr) -> relay.Expr:
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
_MADE = {
    "clamp": lambda node, x: relay.clip(x, _axis(node, 1, "min", -math.inf), _axis(node, 2, "max", math.inf)),
    "reshape": lambda node, x: relay.reshape(x, _shape(node)),
    "transpose": lambda node, x: relay.transpose(x, _swapped(node)),
    "unsqueeze": lambda node, x: relay.expand_dims(x, _axis(node, 1)),
    "cat": lambda node, *xs: relay.concatenate(xs, _axis(node, 1)),
    "chunk": lambda node, x: relay.split(x, _axis(node, 1), _axis(node, 2)).astuple(),
    "getitem": _taken,
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
_MADE |= {name: _MADE["reshape"] for name in ("view", "flatten", "unflatten")} | {"permute": _MADE["transpose"]}


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
            given = [operand(node, value) for value in node.args]
            values[node] = relay.Call(relay.op.get(_CALLS[name]), given)
        elif name in _MADE:
            values[node] = _MADE[name](node, *(values[n] for n in node.all_input_nodes))
        else:
            raise ValueError(f"{node.name}: there is no translation of {name} to Relay.")
    returned = node.args[0]
    body = relay.Tuple([values[n] for n in returned]) if isinstance(returned, tuple) else values[returned]
    module = tvm.IRModule.from_expr(relay.Function(params, body))
    node_of = {call: node.name for node, call in values.items()}
    names = [node_of[call] for call in calls(module)]
    return relay.transform.InferType()(module), names


def is_projection(node: fx.Node) -> bool:
    """Return whether the node is a field of a tuple. That is not an operation: nothing is computed."""
    return canonical(node) == "getitem" and isinstance(node.args[1], int)


def operations(gm: fx.GraphModule) -> list[str]:
    """Return the names of the nodes that are computed, in graph order."""
    return [n.name for n in gm.graph.nodes if n.op.startswith("call_") and not is_projection(n)]


def right_groups(gm: fx.GraphModule) -> list[list[str]]:
    """Return the groups of FuseOps, as names of nodes."""
    module, names = to_relay(gm)
    return [[names[at] for at in group] for group in fused_groups(module)]


def _invalid(value: Any, gm: fx.GraphModule) -> str | None:
    if not isinstance(value, list | tuple):
        return f"The answer is a list of groups; it is of type {type(value).__name__}."
    there = {n.name for n in gm.graph.nodes}
    wanted = operations(gm)
    may_be = {n.name for n in gm.graph.nodes if n.op.startswith("call_")}
    seen: set[str] = set()
    for group in value:
        if not isinstance(group, list | tuple | set | frozenset):
            return f"A group is a list of names of nodes; one here is {str(group)[:60]!r}."
        for name in group:
            if not isinstance(name, str):
                return f"A group holds {str(name)[:60]!r}, of type {type(name).__name__}; a node is called by its name."
            if name not in may_be:
                why = "which is not an operation" if name in there else "and the graph has no node of that name"
                return f"A group holds {name[:60]!r}, {why}."
            if name in seen:
                return f"Node {name} is in two groups, or twice in one."
            seen.add(name)
    missing = [name for name in wanted if name not in seen]
    return f"Node {missing[0]} is missing: a node that is not fused forms a group of one." if missing else None


def _first_split(groups: Any, others: Any, place: dict[str, int]) -> tuple[str, str] | None:
    """Return two neighbours in one of `groups` that are in different groups of `others`, or None."""
    where = {name: number for number, group in enumerate(others) for name in group}
    for group in groups:
        for one, next_ in pairwise(sorted(group, key=place.__getitem__)):
            if where[one] != where[next_]:
                return one, next_
    return None


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: each operation is in one group. `did`: the groups are those of FuseOps. `spared`: no large one."""
    [gm] = case.build()
    wrong = _invalid(value, gm)
    yield Finding("valid", wrong is None, wrong or "", before=gm)
    if wrong:
        return
    place = {name: at for at, name in enumerate(operations(gm))}
    mine = [[name for name in group if name in place] for group in value]
    right = right_groups(gm)
    apart, joined = _first_split(right, mine, place), _first_split(mine, right, place)
    split = f"FuseOps puts {apart[0]} and {apart[1]} into one kernel, but you keep them apart." if apart else ""
    merged = f"You put {joined[0]} and {joined[1]} into one kernel, but FuseOps keeps them apart." if joined else ""
    yield Finding("did", not apart and not joined, split or merged, before=gm, mark=apart or joined or ())
    yield Finding("spared", not joined, merged, before=gm, mark=joined or ())


def groups_case(name: str, build: Callable[[], fx.GraphModule]) -> Case:
    return Case(name, lambda: (in_post_order(build()),))


IMAGE = (1, 4, 6, 6)
KERNEL = {"w": (4, 4, 3, 3)}


def conv(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.conv2d(x, m.w, None, 1, 1)


def reductions(m: Any, x: fx.Proxy) -> tuple:
    return torch.relu(x).sum(1), torch.relu(x.sum(1)), torch.softmax(torch.exp(x), 1) * 2


def fork(m: Any, x: fx.Proxy) -> tuple:
    c = conv(m, x)
    return torch.relu(c), torch.sigmoid(c)


def diamond(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = conv(m, x)
    return torch.relu(c) + torch.sigmoid(c)


def shapes(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = (conv(m, x) * 2).permute(0, 2, 3, 1)
    return torch.relu((c + m.b).reshape(1, -1).transpose(0, 1))


def pieces(m: Any, x: fx.Proxy) -> fx.Proxy:
    left, right = torch.exp(x).chunk(2, 1)
    return torch.relu(torch.cat([torch.tanh(right), left], 1))


def pooling(m: Any, x: fx.Proxy) -> fx.Proxy:
    small = F.max_pool2d(torch.relu(conv(m, x)), 2)
    return torch.sigmoid(small) * small.mean((2, 3), keepdim=True)


def gelu(x: fx.Proxy) -> fx.Proxy:
    return x * (torch.erf(x * 0.5**0.5) + 1) * 0.5


def norm(m: Any, x: fx.Proxy) -> fx.Proxy:
    centred = x - x.mean(-1, True)
    return centred * torch.rsqrt((centred * centred).mean(-1, True) + 1e-5) * m.gamma + m.beta


def dense(x: fx.Proxy, w: Any, b: Any) -> fx.Proxy:
    return F.linear(x, w) + b


def block(m: Any, x: fx.Proxy) -> fx.Proxy:
    """Return a block of GPT-2 on one sequence of six tokens of width eight, two heads."""
    y = norm(m, x)

    def heads(w: Any) -> fx.Proxy:
        return F.linear(y, w).reshape(6, 2, 4).transpose(0, 1)

    scores = heads(m.q) @ heads(m.k).transpose(1, 2) * 0.5 + m.mask
    mixed = (torch.softmax(scores, -1) @ heads(m.v)).transpose(0, 1).reshape(6, 8)
    x = x + dense(mixed, m.o, m.beta)
    return x + dense(gelu(dense(norm(m, x), m.up, m.b)), m.down, m.beta)


WEIGHTS = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8), "up": (32, 8), "b": (32,), "down": (8, 32)}
BLOCK = {**WEIGHTS, "gamma": (8,), "beta": (8,), "mask": (6, 6)}


def cases() -> list[Case]:
    return [
        groups_case("reductions", graph(reductions, (2, 6))),
        groups_case("a residual block", zoo("residual")),
        groups_case("a fork", graph(fork, IMAGE, **KERNEL)),
        groups_case("a fork that joins again", graph(diamond, IMAGE, **KERNEL)),
        groups_case("shapes behind a convolution", graph(shapes, IMAGE, **KERNEL, b=(4,))),
        groups_case("pieces", graph(pieces, IMAGE)),
        groups_case("pooling", graph(pooling, IMAGE, **KERNEL)),
        groups_case("dense, bias, GELU", graph(lambda m, x: gelu(dense(x, m.w, m.b)), (2, 4), w=(6, 4), b=(6,))),
        groups_case("a block of GPT-2", graph(block, (6, 8), **BLOCK)),
    ]
