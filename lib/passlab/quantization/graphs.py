"""What the passes share: weights as operands, new constants, which operations they know.

net = functional(trace(model, x))      # weights are nodes, batch norms are folded; ready for `insert`
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Container
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights

from passlab.fx.effects import effects
from passlab.fx.nodes import attribute, shape
from passlab.fx.patterns import canonical
from passlab.quantization.ops import dequantize

_MOVES = """flatten reshape view transpose permute t chunk unflatten expand squeeze unsqueeze split select contiguous
    unbind getitem max_pool2d dropout identity flip roll"""
#: A torch.fx.Node. torch types arguments as a union of twenty types; a pass knows which of them it reads.
Node = Any

#: Operations that move elements, or choose among them by order, and so commute with dequantize of one scale.
MOVES = frozenset(_MOVES.split())
_ELEMENTWISE = """relu tanh sigmoid exp expm1 log1p neg abs sqrt rsqrt square reciprocal erf sin cos clamp leaky_relu
    relu6 hardtanh hardswish hardsigmoid elu selu celu gelu silu mish softplus add sub rsub mul div pow maximum
    minimum"""
#: Element-wise functions: of one number, a table of 256 entries can hold them.
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
#: The largest number of nodes that one table stands for.
REGION = 32
#: Operations of MOVES that return several tensors.
PARTS = frozenset({"chunk", "split", "unbind"})


def nodes(gm: fx.GraphModule) -> list[Node]:
    """Return the nodes of a graph as a list, so that it can be edited meanwhile."""
    return list(gm.graph.nodes)


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph that can be edited in place of `gm`; parameters are shared."""
    graph = fx.Graph()
    nodes: dict[Node, Node] = {}
    result = graph.graph_copy(gm.graph, nodes)
    if result is not None:
        end = gm.graph.output_node()
        graph.output(result).meta.update(end.meta)
    copy = fx.GraphModule(gm, graph)
    copy.meta.update(gm.meta)
    copy.training = gm.training
    return copy


def constant(gm: fx.GraphModule, name: str, value: Tensor) -> Node:
    """Return a new node, at the graph's insertion point, for a new buffer."""
    base = name = name.replace(".", "_")
    number = 0
    while hasattr(gm, name):
        number += 1
        name = f"{base}_{number}"
    gm.register_buffer(name, value)
    node = gm.graph.get_attr(name)
    node.meta["tensor_meta"] = typed(value)
    return node


def typed(value: Tensor) -> Any:
    """Return what ShapeProp notes about a tensor."""
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    return _extract_tensor_metadata(value)


def integers(node: Node) -> dict[str, Any]:
    """Return a node's meta for a value of the same shape in int8."""
    meta = dict(node.meta)
    if hasattr(meta.get("tensor_meta"), "_replace"):
        meta["tensor_meta"] = meta["tensor_meta"]._replace(dtype=torch.int8, requires_grad=False)
    meta.pop("val", None)
    return meta


def calls(node: Any, *functions: Callable) -> bool:
    """Return whether a node calls one of these functions."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in functions


def argument(node: Node, place: int, name: str, default: Any = None) -> Any:
    """Return an argument of a call, positional or by keyword."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def moves(node: Node) -> bool:
    """Return whether a node only moves or selects elements of its first operand, its only one."""
    if node.op == "placeholder" or not node.args or node.all_input_nodes != [node.args[0]]:
        return False
    return canonical(node) in MOVES and not effects(node)


def several(node: Node) -> bool:
    """Return whether a node returns several tensors."""
    return node.op != "placeholder" and canonical(node) in PARTS


def single_scale(node: Any) -> bool:
    """Return whether a quantize or dequantize node has one number for a scale."""
    return isinstance(node.args[1], float | int) and argument(node, 4, "axis") is None


def dequantized(node: Any) -> bool:
    """Return whether a node is the dequantize of integers on one scale."""
    return calls(node, dequantize) and single_scale(node)


def prune(gm: fx.GraphModule) -> None:
    """Erase nodes that nothing uses, unless they have an effect, and write the code anew."""
    for node in reversed(nodes(gm)):
        if not node.users and node.op != "output" and node.op != "placeholder" and not effects(node):
            gm.graph.erase_node(node)
    gm.recompile()
    gm.delete_all_unused_submodules()


# ------------------------------------------------------------------------------------------------ weights as operands


def functional(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the same function with weights as nodes: linear, conv2d and layer_norm as functions, get_attr for weights.

    A batch norm in eval mode whose convolution has no other user is folded into it. Other modules stay.
    """
    gm = copied(gm)
    for node in nodes(gm):
        if node.op != "call_module" or node.kwargs:
            continue
        module = gm.get_submodule(node.target)
        form = FORMS.get(type(module))
        if form is not None:
            with gm.graph.inserting_before(node):
                form(gm, node, module)
    prune(gm)
    return gm


def _parameter(gm: fx.GraphModule, path: str, value: Tensor | None) -> Node | None:
    if value is None:
        return None
    node = gm.graph.get_attr(path)
    node.meta["tensor_meta"] = typed(value)
    return node


def _call(gm: fx.GraphModule, node: Node, target: Callable, *args: Any) -> None:
    new = gm.graph.call_function(target, args)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    gm.graph.erase_node(node)


def _weights(gm: fx.GraphModule, node: Node, module: nn.Module) -> list[Node | None]:
    return [_parameter(gm, f"{node.target}.{name}", getattr(module, name)) for name in ("weight", "bias")]


def _linear(gm: fx.GraphModule, node: Node, module: nn.Linear) -> None:
    _call(gm, node, F.linear, node.args[0], *_weights(gm, node, module))


def _conv2d(gm: fx.GraphModule, node: Node, m: nn.Conv2d) -> None:
    if m.padding_mode == "zeros" and not isinstance(m.padding, str):
        settings = m.stride, m.padding, m.dilation, m.groups
        _call(gm, node, F.conv2d, node.args[0], *_weights(gm, node, m), *settings)


def _layer_norm(gm: fx.GraphModule, node: Node, m: nn.LayerNorm) -> None:
    _call(gm, node, F.layer_norm, node.args[0], m.normalized_shape, *_weights(gm, node, m), m.eps)


def _batch_norm(gm: fx.GraphModule, node: Node, bn: Any) -> None:
    conv = node.args[0]
    if bn.training or not bn.track_running_stats or not calls(conv, F.conv2d) or len(conv.users) > 1:
        return
    weight, bias = (p and attribute(gm, p.target).detach() for p in conv.args[1:3])
    scale = torch.ones_like(bn.running_mean) if bn.weight is None else bn.weight
    offset = torch.zeros_like(bn.running_mean) if bn.bias is None else bn.bias
    new_weight, new_bias = fuse_conv_bn_weights(weight, bias, bn.running_mean, bn.running_var, bn.eps, scale, offset)
    parameters = [constant(gm, f"{conv.name}_{n}", p.detach()) for n, p in (("weight", new_weight), ("bias", new_bias))]
    _call(gm, node, F.conv2d, conv.args[0], *parameters, *conv.args[3:])


def _relu(gm: fx.GraphModule, node: Node, m: nn.ReLU) -> None:
    if not m.inplace:
        _call(gm, node, torch.relu, node.args[0])


#: Class of a module → how its call becomes one of a function.
FORMS: dict[type, Callable[[fx.GraphModule, Node, Any], None]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.LayerNorm: _layer_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.ReLU: _relu,
}


# ------------------------------------------------------------------------------------------------ operations by kind


def kind(node: Any) -> str:
    """Return "linear", "conv2d", "matmul", "add" or "mean" for a node that has an integer form, "" for others."""
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method"):
        return ""
    name = canonical(node)
    check = _KINDS.get(name)
    return ("mean" if name == "adaptive_avg_pool2d" else name) if check is not None and check(node) else ""


def _weighted(node: Node) -> bool:
    weight, bias = argument(node, 1, ""), argument(node, 2, "bias")
    plain = (bias is None or isinstance(bias, fx.Node)) and not isinstance(argument(node, 4, "padding"), str)
    return isinstance(weight, fx.Node) and plain


def _two(node: Node) -> bool:
    """Return whether a node has two operands, both computed: not constants."""
    parts = node.args
    return len(parts) == 2 and not node.kwargs and all(isinstance(p, fx.Node) and p.op != "get_attr" for p in parts)


def _mean(node: Node) -> bool:
    if canonical(node) == "adaptive_avg_pool2d":
        return argument(node, 1, "output_size") in (1, (1, 1), [1, 1])
    return argument(node, 1, "dim") is not None and set(node.kwargs) <= {"dim", "keepdim"}


_KINDS: dict[str, Callable[[Node], bool]] = {
    "linear": _weighted,
    "conv2d": _weighted,
    "matmul": _two,
    "add": lambda node: _two(node) and node.args[0] is not node.args[1],
    "mean": _mean,
    "adaptive_avg_pool2d": _mean,
}


def operands(node: Node) -> list[Node]:
    """Return the operands of a node with an integer form that are computed: without weights."""
    parts = node.args[:2] if kind(node) in ("matmul", "add") else node.args[:1]
    return [part for part in parts if isinstance(part, fx.Node)]


def reduced(node: Node) -> tuple[tuple[int, ...], bool, int]:
    """Return the dimensions that a mean goes over, whether they stay, and how many elements that is (0: unknown)."""
    if canonical(node) == "adaptive_avg_pool2d":
        dims, keep = (-2, -1), True
    else:
        dim = argument(node, 1, "dim")
        dims, keep = (dim,) if isinstance(dim, int) else tuple(dim), bool(argument(node, 2, "keepdim", False))
    sizes = shape(node.args[0])
    return dims, keep, math.prod(sizes[d] for d in dims) if sizes else 0


# ------------------------------------------------------------------------------------------------ activations


def factor(node: Node) -> float | None:
    """Return c of a node x · c or x / c with a positive number c, None for other nodes."""
    name = canonical(node)
    if name not in ("mul", "div") or len(node.args) != 2 or node.kwargs:
        return None
    numbers = [part for part in node.args if isinstance(part, int | float)]
    if len(numbers) != 1 or not math.isfinite(numbers[0]) or numbers[0] <= 0:
        return None
    if name == "div":
        return 1 / numbers[0] if isinstance(node.args[0], fx.Node) else None
    return float(numbers[0])


def clipped(node: Node) -> tuple[float, float] | None:
    """Return the ends of relu, relu6 and hardtanh, None for other nodes."""
    name = canonical(node)
    if name not in ("relu", "relu6", "hardtanh") or effects(node):
        return None
    if name == "hardtanh":
        if node.op == "call_module":
            module = node.graph.owning_module.get_submodule(node.target)
            return module.min_val, module.max_val
        low, high = argument(node, 1, "min_val", -1.0), argument(node, 2, "max_val", 1.0)
        return (low, high) if low <= 0 <= high else None
    return 0.0, math.inf if name == "relu" else 6.0


def follows(node: Node) -> bool:
    """Return whether a requantize can do what a node does: clip, or multiply by a positive number."""
    return node.op.startswith("call_") and (clipped(node) is not None or factor(node) is not None)


def last_of_layer(node: Node) -> Node:
    """Return the last node of the chain of clips and factors that follows a node with an integer form."""
    while len(node.users) == 1:
        (user,) = node.users
        if not follows(user) or user.all_input_nodes != [node] or operator.countOf(user.args, node) != 1:
            break
        node = user
    return node


def source(node: Node) -> Node:
    """Return the value that `node` is a part or a rearrangement of."""
    while moves(node):
        node = node.args[0]
    return node


def floats(node: Node) -> bool:
    """Return whether a node's value may be a float32 tensor: it is, or its type is not known."""
    meta = node.meta.get("tensor_meta")
    return meta is None or getattr(meta, "dtype", None) == torch.float32


# ------------------------------------------------------------------------------------------------ regions and layers


class Region(NamedTuple):
    """Element-wise nodes, in order, and the one value that all of them are a function of; None if there are others."""

    leaf: Node | None
    nodes: list[Node]


def region(node: Node, ends: Container[Node] = ()) -> Region:
    """Return the element-wise nodes between `node` and the values before them, at most REGION of them.

    `ends`: nodes whose values count as leaves even if they are element-wise.
    """
    leaves: dict[Node, None] = {}
    nodes: dict[Node, None] = {}
    todo = [node]
    while todo and len(leaves) < 2:
        part = todo.pop()
        outside = part in ends and part is not node
        if outside or not part.op.startswith("call_") or canonical(part) not in ELEMENTWISE or effects(part):
            leaves[part] = None
        elif part not in nodes:
            if len(nodes) == REGION:
                return Region(None, [])
            nodes[part] = None
            todo += part.all_input_nodes
    return Region(next(iter(leaves)), sorted(nodes)) if len(leaves) == 1 else Region(None, [])


def layers_of(gm: fx.GraphModule) -> list[Node]:
    """Return the nodes of a float graph that have an integer form and deserve it.

    Not an addition whose result no layer reads, as in the residual stream of a transformer, which only norms read: it
    would gain a rounding and lose none. Nor one that is part of a function of one value, as in a written-out GELU.
    """
    layers: list[Node] = []
    operands_of_layers: set[Node] = set()  # what a layer reads, through moves and activations
    for node in reversed(nodes(gm)):
        name = kind(node) if floats(node) else ""
        if name in ("linear", "conv2d") and argument(node, 1, "weight").op != "get_attr":
            name = ""
        if name == "add" and (node not in operands_of_layers or region(node).leaf is not None):
            name = ""
        if name:
            layers.append(node)
            operands_of_layers.update(operands(node))
        elif node in operands_of_layers and node.op.startswith("call_") and (moves(node) or follows(node)):
            operands_of_layers.update(node.all_input_nodes)
    return layers[::-1]
