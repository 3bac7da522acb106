"""Op patterns, the kinds of loops that Relay's FuseOps distinguishes, for nodes of torch.fx.

    pattern(node)       # Pattern.BROADCAST for x + y, Pattern.COMM_REDUCE for x.sum(1)
    canonical(node)     # "add" for torch.add, operator.add, x.add(…), aten.add.Tensor; "relu" for nn.ReLU, F.relu, …

Names and numbers are those of Relay's operators (`TOpPattern`); an operation has the pattern of the Relay operator that
does the same. An operation that is not in the table is OPAQUE, and so is any that does more than compute.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import fx

from passlab.fx.effects import effects
from passlab.fx.nodes import op_name


class Pattern(IntEnum):
    """How an element of the result comes from elements of the operands; the larger, the harder to fuse."""

    ELEMWISE = 0  # from the element in the same place
    BROADCAST = 1  # the same, where an operand's dimension may be missing or repeated
    INJECTIVE = 2  # from one element in another place: transpose, reshape, cat
    COMM_REDUCE = 3  # from many elements, in any order: sum, mean, amax
    OUT_ELEMWISE_FUSABLE = 4  # by its own loop nest, at whose end an element-wise operation fits: conv2d, matmul
    TUPLE = 7  # several values side by side
    OPAQUE = 8  # never fused


_NAMES = {
    Pattern.ELEMWISE: "relu tanh sigmoid exp expm1 exp2 log log1p log2 log10 neg abs sqrt rsqrt square reciprocal erf "
    "sin cos tan sinh cosh asin acos atan floor ceil round trunc frac sign sgn clamp clamp_min clamp_max leaky_relu "
    "relu6 hardtanh hardswish hardsigmoid elu selu celu gelu silu mish softplus softsign logsigmoid tanhshrink "
    "hardshrink softshrink threshold nan_to_num isnan isinf isfinite logical_not bitwise_not to clone contiguous "
    "detach dropout identity zeros_like ones_like full_like tril triu positive",
    Pattern.BROADCAST: "add sub rsub mul div floor_divide remainder fmod pow maximum minimum fmax fmin where eq ne lt "
    "le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor atan2 hypot lerp addcmul addcdiv "
    "masked_fill prelu unsqueeze expand expand_as broadcast_to tile repeat",
    Pattern.INJECTIVE: "transpose permute t reshape view flatten unflatten squeeze cat stack chunk split getitem "
    "select narrow slice flip roll gather index_select embedding pad movedim view_as reshape_as unbind tensor_split "
    "pixel_shuffle pixel_unshuffle",
    Pattern.COMM_REDUCE: "sum mean amax amin max min prod argmax argmin any all var std norm logsumexp",
    Pattern.OUT_ELEMWISE_FUSABLE: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution "
    "linear matmul bmm mm addmm baddbmm conv2d_relu softmax log_softmax batch_norm max_pool1d max_pool2d max_pool3d "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "adaptive_max_pool1d adaptive_max_pool2d one_hot linear_act",
}
_PATTERNS = {name: kind for kind, names in _NAMES.items() for name in names.split()}

#: Other spellings of names above.
_ALIASES = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "subtract": "sub",
    "multiply": "mul",
    "negative": "neg",
    "pos": "positive",
    "absolute": "abs",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "invert": "bitwise_not",
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "greater": "gt",
    "less": "lt",
    "not_equal": "ne",
    "greater_equal": "ge",
    "less_equal": "le",
    "special_erf": "erf",
    "special_expit": "sigmoid",
    "expit": "sigmoid",
    "_to_copy": "to",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_unsafe_view": "view",
    "split_with_sizes": "split",
    "convrelu2d": "conv2d_relu",
    **{f"batchnorm{n}d": "batch_norm" for n in (1, 2, 3)},
    **{f"dropout{n}d": "dropout" for n in (1, 2, 3)},
    **{name: "to" for name in "float double half bfloat16 long int short bool type type_as".split()},  # noqa: SIM905
}
#: nn.LeakyReLU is F.leaky_relu without underscores and with capitals.
_MODULES = {name.replace("_", ""): name for name in _PATTERNS}

#: Operations that a kernel may compute element by element, with operands broadcast.
POINTWISE = (Pattern.ELEMWISE, Pattern.BROADCAST)


def canonical(node: fx.Node, gm: fx.GraphModule | None = None) -> str:
    """Return one name for all forms of an operation: "relu" for nn.ReLU, F.relu, x.relu() and aten.relu.

    In-place forms keep their own name ("add_"). The name of other nodes is their op: "placeholder", "get_attr". `gm`:
    the module that holds the node's modules, if not the graph's owning module.
    """
    name = op_name(node, gm)
    if node.op == "call_module":
        name = name.lower()
        return _ALIASES.get(name) or _MODULES.get(name, name)
    if node.op not in ("call_function", "call_method"):
        return name
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
    return _ALIASES.get(name, name)


def pattern(node: fx.Node, gm: fx.GraphModule | None = None) -> Pattern:
    """Return the op pattern that Relay would give a node.

    OPAQUE are inputs, attributes and the output; nodes that draw, write or may stop the program; nodes whose value is
    not a tensor (`x.size(0)`); and operations that are not in the table.
    """
    if node.op not in ("call_function", "call_method", "call_module") or effects(node):
        return Pattern.OPAQUE
    value = node.meta.get("type")
    if isinstance(value, type) and not issubclass(value, torch.Tensor | tuple | list):
        return Pattern.OPAQUE
    name = canonical(node, gm)
    if name in ("max", "min") and any(isinstance(a, fx.Node) for a in [*node.args[1:], node.kwargs.get("other")]):
        return Pattern.BROADCAST
    kind = _PATTERNS.get(name, Pattern.OPAQUE)
    has_shapes = "tensor_meta" in next(iter(node.graph.nodes)).meta
    # x.size(0) * 2 in a graph with shapes: a product of numbers has none.
    return Pattern.OPAQUE if kind in POINTWISE and has_shapes and "tensor_meta" not in node.meta else kind
