"""Ranges: bounds on every value of a network, for bounds on its inputs.

    bounds = ranges(gm, {"x": (-1.0, 1.0)})
    bounds["relu"]                      # Range(0.0 … 3.71): no input between -1 and 1 leaves it
    bounds["linear"].partial            # the largest magnitude of a partial sum

Interval arithmetic (R. E. Moore, Interval Analysis, 1966) over tensors: each element has its own interval, as in
interval bound propagation (S. Gowal et al., arXiv 1810.12715). The graph is straight-line, so the analysis is one pass;
each operation's transfer function is a row of `TRANSFER`. Intervals are computed in float64 and then widened, so that
they also hold for rounded values (`unit`).

Reading order: an interval of a tensor, transfer functions from simple to hard, the table, the pass.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves, tree_map

from passlab.fx.nodes import attribute, op_name, shape

INF = math.inf
#: The largest relative error of rounding a number once.
UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True)
class Range:
    """The bounds of all elements of a value. partial: the largest magnitude of a partial sum."""

    low: float
    high: float
    partial: float = 0.0

    @property
    def largest(self) -> float:
        """Return the largest magnitude in the range."""
        return max(abs(self.low), abs(self.high))

    def __repr__(self) -> str:
        return f"Range({self.low:.4g} … {self.high:.4g})"


class Unsupported(ValueError):
    """Raised for an operation without a transfer function; `node` is its name."""

    def __init__(self, node: str, call: str):
        super().__init__(
            f"Node {node} calls {call}, which has no transfer function: add one to passlab.dataflow.ranges.TRANSFER."
        )
        self.node = node


@dataclass
class Interval:
    """The intervals of a tensor's elements, in float64. partial: the largest magnitude of a partial sum."""

    low: Tensor
    high: Tensor
    partial: float = 0.0

    def __post_init__(self):
        # A bound that is NaN (∞ - ∞, 0 · ∞) is unknown.
        self.low = torch.where(self.low.isnan(), -INF, self.low)
        self.high = torch.where(self.high.isnan(), INF, self.high)

    def widened(self, by: float | Tensor) -> Interval:
        """Return the interval with both ends moved outwards by `by`."""
        return Interval(self.low - by, self.high + by, self.partial)

    def rounded(self, unit: float) -> Interval:
        """Return the interval of the numbers in it after one rounding, with a relative error of at most `unit`."""
        tiny = 2.0**-24  # float16 rounds smaller numbers to zero
        low = self.low - self.low.abs() * 2 * unit - tiny * unit
        high = self.high + self.high.abs() * 2 * unit + tiny * unit
        low = torch.where(self.low >= 0, low.clamp(min=0), low)  # 0 is rounded to 0, so that no number changes its sign
        high = torch.where(self.high <= 0, high.clamp(max=0), high)
        return Interval(low, high, self.partial)

    @property
    def largest(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())


def constant(value: Any) -> Any:
    """Return the interval of a constant, or an interval as it is."""
    if isinstance(value, Interval):
        return value
    tensor = torch.as_tensor(value, dtype=torch.float64)
    return Interval(tensor, tensor)


# --------------------------------------------------------------------------------------------------- transfer functions


def moving(op: Callable) -> Callable:
    """Return the rule of an operation that moves or selects elements: it applies to both ends."""

    def transfer(x: Any, *args: Any, **kwargs: Any) -> Any:
        parts = x if isinstance(x, list | tuple) else [x]
        parts = [constant(part) for part in parts]
        ends = [[getattr(part, end) for part in parts] for end in ("low", "high")]
        low, high = (op(end if isinstance(x, list | tuple) else end[0], *args, **kwargs) for end in ends)
        if isinstance(low, Tensor):
            return Interval(low, high)
        return [Interval(a, b) for a, b in zip(low, high, strict=True)]

    return transfer


def rising(op: Callable, least: float = -INF, most: float = INF) -> Callable:
    """Return the rule of an increasing function: the ends are the images of the ends, within least … most."""

    def transfer(x: Interval, *args: Any, **kwargs: Any) -> Interval:
        low, high = op(x.low), op(x.high)
        # the last digits of a library function may be wrong
        least_low = low - low.abs() * 1e-6 - 1e-30 * (low != 0)
        most_high = high + high.abs() * 1e-6 + 1e-30 * (high != 0)
        return Interval(least_low.clamp(least, most), most_high.clamp(least, most))

    return transfer


def rising_in_both(op: Callable) -> Callable:
    """Return the rule of a function that increases in each of its two operands."""

    def transfer(x: Any, y: Any) -> Interval:
        x, y = constant(x), constant(y)
        return Interval(op(x.low, y.low), op(x.high, y.high))

    return transfer


def add(x: Any, y: Any, alpha: float = 1) -> Interval:
    x, y = constant(x), scale(constant(y), alpha)
    return Interval(x.low + y.low, x.high + y.high)


def sub(x: Any, y: Any, alpha: float = 1) -> Interval:
    return add(x, y, alpha=-alpha)


def scale(x: Interval, by: float) -> Interval:
    return Interval(x.low * by, x.high * by) if by >= 0 else Interval(x.high * by, x.low * by)


def mul(x: Any, y: Any) -> Interval:
    if x is y:  # a square is not negative
        return power(x, 2)
    x, y = constant(x), constant(y)
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
    corners = torch.stack([torch.where(c.isnan(), 0.0, c) for c in torch.broadcast_tensors(*corners)])  # 0 · ∞ = 0
    return Interval(corners.amin(0), corners.amax(0))


def divide(x: Any, y: Any) -> Interval:
    y = constant(y)
    nonzero = (y.low > 0) | (y.high < 0)
    inverse = Interval(torch.where(nonzero, 1 / y.high, -INF), torch.where(nonzero, 1 / y.low, INF))
    return mul(x, inverse)


def power(x: Any, exponent: float) -> Interval:
    if not isinstance(exponent, int | float):
        raise ValueError("an exponent that is not a constant")
    if exponent != int(exponent) or exponent < 1:
        raise ValueError(f"the exponent {exponent}")
    x = constant(x)
    low, high = x.low**exponent, x.high**exponent
    if exponent % 2:
        return Interval(low, high)
    across = (x.low <= 0) & (x.high >= 0)
    return Interval(torch.where(across, 0.0, torch.minimum(low, high)), torch.maximum(low, high))


def weighted(x: Interval, weight: Tensor, bias: Tensor | None, op: Callable) -> Interval:
    """Bound a sum of operands times known weights.

    Weights are split by sign, so that each bound uses the matching end of the operand. `partial` is the sum of all
    magnitudes, which bounds every partial sum in any order.
    """
    positive, negative = weight.double().clamp(min=0), weight.double().clamp(max=0)
    if not (x.low.isfinite().all() and x.high.isfinite().all()):
        return _unbounded(op(torch.zeros_like(x.low), positive))
    low, high = op(x.low, positive) + op(x.high, negative), op(x.high, positive) + op(x.low, negative)
    magnitude = op(x.largest, positive - negative)
    if bias is not None:
        low, high, magnitude = low + bias.double(), high + bias.double(), magnitude + bias.double().abs()
    return _sum(low, high, magnitude, weight[0].numel())


def _unbounded(like: Tensor) -> Interval:
    return Interval(torch.full_like(like, -INF), torch.full_like(like, INF), INF)


def _sum(low: Tensor, high: Tensor, magnitude: Tensor, terms: int) -> Interval:
    """Return the interval of a float32 sum, with the error bound of N. Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1. magnitude: the sum of the terms' magnitudes."""
    return Interval(low, high, float(magnitude.max())).widened(2 * (terms + 8) * UNIT[torch.float32] * magnitude)


def matmul(x: Any, y: Any) -> Interval:
    """Bound a product of two unknown matrices: centre and radius of each (S. Rump, BIT 39, 1999)."""
    x, y = constant(x), constant(y)
    if not all(end.isfinite().all() for end in (x.low, x.high, y.low, y.high)):
        return _unbounded(torch.zeros_like(x.low) @ torch.zeros_like(y.low))
    (cx, rx), (cy, ry) = (((v.low + v.high) / 2, (v.high - v.low) / 2) for v in (x, y))
    centre, radius = cx @ cy, cx.abs() @ ry + rx @ (cy.abs() + ry)
    return _sum(centre - radius, centre + radius, x.largest @ y.largest, x.low.shape[-1])


def total(x: Interval, *args: Any, **kwargs: Any) -> Interval:
    low, high, magnitude = (torch.sum(end, *args, **kwargs) for end in (x.low, x.high, x.largest))
    bounds = _sum(low, high, magnitude, x.low.numel() // max(low.numel(), 1))
    if (x.low >= 0).all():  # a sum of numbers that are not negative is not either, however it is rounded
        bounds.low = bounds.low.clamp(min=0)
    return bounds


def mean(x: Interval, *args: Any, **kwargs: Any) -> Interval:
    interval = total(x, *args, **kwargs)
    count = x.low.numel() // max(interval.low.numel(), 1)
    return replace(scale(interval, 1 / count), partial=interval.partial)


def softmax(x: Interval, dim: int | None, **kwargs: Any) -> Interval:
    """Bound a softmax: an element is smallest if it is at its low end and all others are at their high ends."""
    if dim is None:
        raise ValueError("no dim")
    top = x.high.amax(dim, keepdim=True)
    low, high = (x.low - top).exp(), (x.high - top).exp()

    def share(element: Tensor, others: Tensor) -> Tensor:
        return element / (element + (others.sum(dim, keepdim=True) - others).clamp(min=0))

    least, most = (share(low, high) - 1e-6).clamp(0, 1), (share(high, low) + 1e-6).clamp(0, 1)
    return Interval(least.nan_to_num(0), most.nan_to_num(1))


def known(value: Any) -> Any:
    """Return a parameter as a tensor. Raise ValueError for one that depends on the inputs."""
    if not isinstance(value, Interval):
        return value
    if not torch.equal(value.low, value.high):
        raise ValueError("parameters that depend on the inputs")
    return value.low


def _scaled(x: Interval, terms: int, weight: Any, bias: Any) -> Interval:
    """Bound what a norm returns: n normalized numbers have a magnitude of at most √(n - 1)."""
    most = math.sqrt(max(terms - 1, 0)) * (1 + 1e-5)
    result = Interval(torch.full_like(x.low, -most), torch.full_like(x.high, most))
    result = result if weight is None else mul(result, weight)
    return result if bias is None else add(result, bias)


def layer_norm(x: Interval, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Interval:
    return replace(_scaled(x, math.prod(shape), weight, bias), partial=float(x.largest.sum(-1).max()))


def group_norm(x: Interval, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Interval:
    per_channel = (v if v is None else known(v).reshape(-1, *[1] * (x.low.dim() - 2)) for v in (weight, bias))
    magnitude = x.largest.reshape(x.low.shape[0], groups, -1).sum(-1)
    return replace(_scaled(x, x.low[0].numel() // groups, *per_channel), partial=float(magnitude.max()))


def batch_norm(x: Interval, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Interval:  # fmt: skip
    if training or running_var is None:
        raise ValueError("a batch norm in training mode, whose factors depend on the batch")
    factor = (known(running_var).double() + eps).rsqrt()
    factor = factor if weight is None else factor * known(weight).double()
    offset = (0 if bias is None else known(bias).double()) - known(running_mean).double() * factor
    factor, offset = (v.reshape(1, -1, *[1] * (x.low.dim() - 2)) for v in (factor, offset))
    error = 8 * UNIT[torch.float32] * (x.largest * factor.abs() + offset.abs())
    return add(mul(x, factor), offset).widened(error)


def convolving(slide: Callable) -> Callable:
    """Return the rule of a convolution with known weights, for the function that computes it."""

    def transfer(x: Interval, weight: Any, bias: Any = None, *sizes: Any, **named: Any) -> Interval:
        bias = bias if bias is None else known(bias).reshape(-1, *[1] * (x.low.dim() - 2))
        return weighted(x, known(weight), bias, lambda values, w: slide(values, w, None, *sizes, **named))

    return transfer


def convolution(module: nn.Conv2d | nn.ConvTranspose2d, x: Interval) -> Interval:
    m = module
    if m.padding_mode != "zeros":
        raise ValueError(f"the padding {m.padding_mode}")
    if isinstance(m, nn.ConvTranspose2d):
        sizes = (m.stride, m.padding, m.output_padding, m.groups, m.dilation)
        return convolving(F.conv_transpose2d)(x, m.weight, m.bias, *sizes)
    slide = (F.conv1d, F.conv2d, F.conv3d)[len(m.kernel_size) - 1]
    return convolving(slide)(x, m.weight, m.bias, m.stride, m.padding, m.dilation, m.groups)


def linear(x: Interval, weight: Any, bias: Any = None) -> Interval:
    return weighted(x, known(weight), known(bias), F.linear)


def attention(q: Interval, k: Interval, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
              scale: float | None = None) -> Interval:  # fmt: skip
    """Bound scaled dot-product attention: each result is a weighted mean of the values, whatever the weights are."""
    if dropout_p:
        raise ValueError("dropout")
    v = constant(v)
    rows = (*torch.broadcast_shapes(*(part.low.shape[:-2] for part in (q, k, v))), q.low.shape[-2], v.low.shape[-1])
    low, high, magnitude = v.low.amin(-2, keepdim=True), v.high.amax(-2, keepdim=True), v.largest.sum(-2, keepdim=True)
    if attn_mask is not None:  # a row without a key is 0
        low, high = low.clamp(max=0), high.clamp(min=0)
    return _sum(low.expand(rows), high.expand(rows), magnitude.expand(rows), v.low.shape[-2])


def normalize(x: Interval, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Interval:
    """Bound a division by a norm: no element is larger than the norm, and none changes its sign."""
    if p < 1:
        raise ValueError(f"the norm {p}")
    most = 1 + 1e-5
    return Interval(torch.where(x.low >= 0, 0.0, -most), torch.where(x.high <= 0, 0.0, most))


def norm(x: Interval, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Interval:
    if p not in (2, "fro"):
        raise ValueError(f"the norm {p}")
    squares = power(x, 2)
    return rising(torch.sqrt, 0)(total(squares) if dim is None else total(squares, dim, keepdim))


def convert(x: Interval, *args: Any, **kwargs: Any) -> Interval:
    """Bound a conversion to a type of floating-point numbers, or to a device."""
    for dtype in (*args, *kwargs.values()):
        if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
            raise ValueError(f"the type {dtype}")
    return x


def valley(op: Callable, at: float, least: float) -> Callable:
    """Return the rule of a function that decreases to its minimum `least` at `at`, and increases from there."""

    def transfer(x: Interval, *args: Any, **kwargs: Any) -> Interval:
        low, high = op(x.low), op(x.high)
        across = (x.low <= at) & (x.high >= at)
        # the last digits of a library function may be wrong
        least_end = torch.where(across, least, torch.minimum(low, high)) - 1e-6
        return Interval(least_end, torch.maximum(low, high) + high.abs() * 1e-6 + 1e-7)

    return transfer


def gelu(x: Interval, approximate: str = "none") -> Interval:
    at, least = (-0.7524614, -0.1700410) if approximate == "tanh" else (-0.7517915, -0.1699712)
    return valley(lambda end: F.gelu(end, approximate=approximate), at, least)(x)


def absolute(x: Interval) -> Interval:
    across = (x.low <= 0) & (x.high >= 0)
    return Interval(torch.where(across, 0.0, torch.minimum(x.low.abs(), x.high.abs())), x.largest)


def leaky_relu(x: Interval, negative_slope: float = 0.01, inplace: bool = False) -> Interval:
    if negative_slope < 0:
        raise ValueError(f"the slope {negative_slope}")
    return rising(lambda end: F.leaky_relu(end, negative_slope))(x)


def wave(x: Interval) -> Interval:
    """Bound a sine or cosine, for any operand."""
    return Interval(torch.full_like(x.low, -1.0), torch.full_like(x.high, 1.0))


def averaging(op: Callable) -> Callable:
    """Return the rule of an operation that averages: its elements increase in each operand."""

    def transfer(x: Interval, *args: Any, **kwargs: Any) -> Interval:
        low, high, magnitude = (op(end, *args, **kwargs) for end in (x.low, x.high, x.largest))
        terms = x.low.shape[-1] * x.low.shape[-2]
        return replace(_sum(low, high, magnitude, terms), partial=float(magnitude.max()) * terms)

    return transfer


def interpolate(x: Any, *args: Any, **kwargs: Any) -> Interval:
    """Bound an interpolation. Only cubic curves leave the range of their operands."""
    if "bicubic" in (*args, *kwargs.values()):
        raise ValueError("the mode bicubic")
    return moving(F.interpolate)(x, *args, **kwargs)


def dropout(x: Interval, p: float = 0.5, training: bool = True, inplace: bool = False) -> Interval:
    """Bound a dropout: an element is 0, or divided by 1 - p."""
    if not training or not p:
        return x
    x = scale(x, 1 / (1 - p)) if p < 1 else x
    return Interval(x.low.clamp(max=0), x.high.clamp(min=0))


def like(op: Callable) -> Callable:
    """Return the rule of an operation that gives a tensor the shape of another."""
    return lambda x, other: moving(op)(x, other.low.shape)


def item(x: Any, index: Any) -> Any:
    return x[index] if isinstance(x, list | tuple) else moving(operator.getitem)(x, index)


def of_module(transfer: Callable) -> Callable:
    """Return the rule of a module that calls a function, for the function's rule."""
    return lambda module, x: transfer(x)


# ---------------------------------------------------------------------------------------------------- the table

relu, sigmoid, tanh = rising(torch.relu, 0), rising(torch.sigmoid, 0, 1), rising(torch.tanh, -1, 1)
relu6 = rising(lambda x: x.clamp(0, 6), 0, 6)
silu = valley(F.silu, -1.2784645, -0.2784646)
hardswish, hardsigmoid = valley(F.hardswish, -1.5, -0.375), rising(F.hardsigmoid, 0, 1)
_MOVES = """flatten reshape view transpose permute t chunk unflatten expand squeeze unsqueeze split select flip clamp
    clone contiguous detach unbind roll repeat"""
#: Attributes of a tensor whose values are known without its elements.
_KNOWN = ("shape", "ndim", "device", "dtype", "is_cuda")

#: Operation → its transfer function.
TRANSFER: dict[str, Callable] = {
    "add": add, "iadd": add, "sub": sub, "mul": mul, "truediv": divide, "div": divide, "pow": power,
    "square": lambda x: power(x, 2), "neg": lambda x: scale(x, -1), "abs": absolute,
    "maximum": rising_in_both(torch.maximum), "minimum": rising_in_both(torch.minimum),
    "sqrt": rising(torch.sqrt, 0), "log": rising(torch.log), "erf": rising(torch.erf, -1, 1),
    "silu": silu, "hardswish": hardswish, "hardsigmoid": hardsigmoid, "elu": rising(F.elu), "leaky_relu": leaky_relu,
    "sin": wave, "cos": wave,
    "relu": relu, "relu6": relu6, "sigmoid": sigmoid, "tanh": tanh, "exp": rising(torch.exp, 0), "gelu": gelu,
    "matmul": matmul, "sum": total, "mean": mean, "softmax": softmax, "linear": linear,
    "addcmul": lambda x, a, b, value=1: add(x, mul(a, b), value), "scaled_dot_product_attention": attention,
    **{op.__name__: convolving(op) for op in (F.conv1d, F.conv2d, F.conv3d)},
    "batch_norm": batch_norm, "layer_norm": layer_norm, "group_norm": group_norm, "normalize": normalize, "norm": norm,
    "to": convert, "float": convert, "double": convert, "half": convert,
    "view_as": like(torch.reshape), "reshape_as": like(torch.reshape), "expand_as": like(torch.Tensor.expand),
    "adaptive_avg_pool2d": averaging(F.adaptive_avg_pool2d), "avg_pool2d": averaging(F.avg_pool2d),
    "max_pool2d": moving(F.max_pool2d), "amax": moving(torch.amax), "amin": moving(torch.amin), "pad": moving(F.pad),
    "interpolate": interpolate,
    "cat": moving(torch.cat), "stack": moving(torch.stack), "getitem": item, "dropout": dropout,
} | {name: moving(getattr(torch.Tensor, name)) for name in _MOVES.split()}  # fmt: skip

#: Class of a module → its transfer function.
MODULES: dict[type, Callable] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d), convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), lambda m, x: batch_norm(
        x, m.running_mean, m.running_var, m.weight, m.bias, m.training or m.running_var is None, eps=m.eps)),
    nn.Linear: lambda m, x: linear(x, m.weight, m.bias),
    nn.LayerNorm: lambda m, x: layer_norm(x, m.normalized_shape, m.weight, m.bias),
    nn.GroupNorm: lambda m, x: group_norm(x, m.num_groups, m.weight, m.bias),
    nn.ReLU: of_module(relu), nn.ReLU6: of_module(relu6), nn.Sigmoid: of_module(sigmoid), nn.Tanh: of_module(tanh),
    nn.Hardswish: of_module(hardswish), nn.Hardsigmoid: of_module(hardsigmoid), nn.SiLU: of_module(silu),
    nn.GELU: lambda module, x: gelu(x, module.approximate), nn.Identity: of_module(lambda x: x),
    nn.LeakyReLU: lambda module, x: leaky_relu(x, module.negative_slope),
    nn.Dropout: lambda module, x: dropout(x, module.p, module.training),
    nn.AvgPool2d: lambda module, x: averaging(module)(x), nn.AdaptiveAvgPool2d: lambda module, x: averaging(module)(x),
    nn.Softmax: lambda module, x: softmax(x, module.dim), nn.MaxPool2d: lambda module, x: moving(module)(x),
    nn.Flatten: lambda module, x: moving(module)(x),
    nn.Upsample: lambda m, x: interpolate(x, m.size, m.scale_factor, m.mode, m.align_corners),
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- the pass


def ranges(
    gm: fx.GraphModule, inputs: Mapping[str, tuple[float, float]], unit: float = UNIT[torch.float32]
) -> dict[str, Range]:
    """Return name of a node → range of its value, for ranges of the inputs.

        ranges(gm, {"x": (-1.0, 1.0)})
        ranges(gm, {"x": (-1.0, 1.0)}, unit=UNIT[torch.float16])    # also if each result is rounded to float16

    The nodes of `gm` need shapes (see `passlab.trace(model, x)`). `unit`: the relative rounding error of a result; sums
    are assumed to be in float32. Raise Unsupported for an operation without a transfer function, and ValueError for an
    input without a range or shape, or with a range whose low end exceeds its high end.
    """
    missing = [n.name for n in gm.graph.nodes if n.op == "placeholder" and n.target not in inputs and not n.args]
    if missing:
        raise ValueError(f"Input {missing[0]} has no range: give one, as in {{'{missing[0]}': (-1.0, 1.0)}}.")
    values: dict[fx.Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            continue
        with torch.no_grad():
            value = _transfer(gm, node, values, inputs)
        if node.op.startswith("call_"):
            value = tree_map(lambda v: v.rounded(unit) if isinstance(v, Interval) else v, value)
        values[node] = value
    return {node.name: bounds for node, value in values.items() if (bounds := _range(value))}


def _of_input(node: fx.Node, inputs: Mapping[str, tuple[float, float]]) -> Any:
    """Return the interval of an input, or the default value of one that has no range."""
    if str(node.target) not in inputs:
        return node.args[0]
    low, high = inputs[str(node.target)]
    if not low <= high:
        raise ValueError(f"The range of input {node.name} is {low} … {high}: its low end must not exceed its high end.")
    sizes = shape(node)
    if sizes is None:
        raise ValueError(f"Input {node.name} has no shape: trace the model with an example, passlab.trace(model, x).")
    return Interval(*(torch.full(sizes, float(end), dtype=torch.float64) for end in (low, high)))


def _transfer(gm: fx.GraphModule, node: fx.Node, values: dict, inputs: Mapping[str, tuple[float, float]]) -> Any:
    if node.op == "placeholder":
        return _of_input(node, inputs)
    if node.op == "get_attr":
        value = attribute(gm, node.target).detach()
        return constant(value) if value.is_floating_point() else value
    operands: Any = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: values[n])
    args, kwargs = operands
    name = op_name(node, gm)
    if node.op != "call_module" and (name == "new_zeros" or not _bounded((args, kwargs))):
        return _computed(node, args, kwargs)
    if name == "getattr" and args[1] in _KNOWN:
        return getattr(args[0].low, args[1])
    if name in ("size", "dim"):
        return getattr(args[0].low, name)(*args[1:], **kwargs)
    try:
        if node.op == "call_module":
            module = gm.get_submodule(node.target)
            return MODULES[type(module)](module, *tree_map(lambda v: constant(v) if isinstance(v, Tensor) else v, args))
        return TRANSFER[name](*args, **kwargs)
    except KeyError:
        raise Unsupported(node.name, name) from None
    except ValueError as error:
        raise Unsupported(node.name, f"{name} with {error}") from None
    except (AttributeError, IndexError, RuntimeError, TypeError) as error:
        raise Unsupported(node.name, f"{name} in an unknown form") from error


def _bounded(value: Any) -> bool:
    """Return whether there is an interval in a value."""
    return any(isinstance(part, Interval) for part in tree_leaves(value))


def _computed(node: fx.Node, args: tuple, kwargs: dict) -> Any:
    """Return what a call computes from sizes and other known values."""
    args = tree_map(lambda v: v.low if isinstance(v, Interval) else v, args)
    try:
        target = node.target if callable(node.target) else getattr(type(args[0]), node.target)
        return target(*args, **kwargs)
    except Exception as error:
        raise Unsupported(node.name, f"{node.target} in an unknown form") from error


def _range(value: Any) -> Range | None:
    parts = value if isinstance(value, list | tuple) else [value]
    parts = [constant(v) for v in parts if isinstance(v, Interval | Tensor)]
    parts = [v for v in parts if v.low.numel()]
    if not parts:
        return None
    ends = min(float(v.low.min()) for v in parts), max(float(v.high.max()) for v in parts)
    return Range(*ends, max(v.partial for v in parts))
