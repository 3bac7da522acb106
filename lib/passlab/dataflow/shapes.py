"""Symbolic shapes: the shape of every value as a formula in the sizes of the inputs, and constraints on these sizes.

    result = shapes(gm, {"x": ("b", 3, "h", "w")})
    result["conv"]                # (b, 8, h, w)
    result.constraints            # [Constraint(h % 2 == 0, node cat), …]
    result.accepts({"b": 2, "h": 16, "w": 16})

Every operation has a rule that returns the shape of its result and refuses invalid sizes. For a symbol it adds a
constraint instead, with the node that requires it. A symbol stands for a size of 2 or more, as in torch.export, so that
it is never broadcast. Formulas are SymPy's (A. Meurer et al., PeerJ CS, 2017).

Reading order: the result, arithmetic on sizes, the rules from simple to hard, the table, the pass, the same with
torch.export.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx, nn

from passlab.fx.nodes import attribute, op_name

Size = Any  # an int, or a sympy expression
Shape = tuple[Size, ...]


@dataclass(frozen=True)
class Constraint:
    """A condition on the inputs' sizes, and the node that requires it."""

    law: sympy.Basic
    node: str

    def __repr__(self) -> str:
        return f"{spell(self.law)}  ({self.node})"


class Mismatch(ValueError):
    """Raised for a graph that cannot run for any sizes of its inputs."""


class Unsupported(ValueError):
    """Raised for an operation without a rule."""


@dataclass
class Shapes:
    """The shape of every value, by the name of its node, and the constraints that the graph implies."""

    of: dict[str, Any] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.of[name]

    def accepts(self, sizes: Mapping[str, int]) -> bool:
        """Return whether all constraints hold for these sizes."""
        return self.refusing(sizes) is None

    def refusing(self, sizes: Mapping[str, int]) -> Constraint | None:
        """Return the first constraint that these sizes violate, or None."""
        values = {symbol(name): size for name, size in sizes.items()}
        return next((c for c in self.constraints if not bool(c.law.subs(values))), None)

    def at(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of a node for these sizes."""
        values = {symbol(key): size for key, size in sizes.items()}
        return tuple(int(sympy.sympify(size).subs(values)) for size in self.of[name])


# ---------------------------------------------------------------------------------------------------- sizes


def symbol(name: str) -> sympy.Symbol:
    """Return the symbol for a size: a positive integer."""
    return sympy.Symbol(name, integer=True, positive=True)


def spell(law: sympy.Basic) -> str:
    """Return a constraint in Python's syntax."""
    if isinstance(law, sympy.Eq):
        return f"{_text(law.lhs)} == {_text(law.rhs)}"
    if isinstance(law, sympy.GreaterThan):
        return f"{_text(law.lhs)} >= {_text(law.rhs)}"
    return str(law)


def _text(size: Size) -> str:
    if isinstance(size, sympy.Mod):
        return f"{_text(size.args[0])} % {size.args[1]}"
    if isinstance(size, sympy.floor):
        numerator, denominator = size.args[0].as_numer_denom()
        return f"({numerator}) // {denominator}" if numerator.is_Add else f"{numerator} // {denominator}"
    return str(size)


def quotient(size: Size, divisor: int) -> Size:
    """Return size // divisor. Two divisions become one: (n // 2 + 1) // 2 is (n + 2) // 4."""
    constant, rest = sympy.sympify(size).as_coeff_Add()
    if isinstance(rest, sympy.floor):
        rest = rest.args[0]
    return sympy.floor(sympy.expand((rest + constant) / divisor))


def _unpacked(values: tuple) -> tuple:
    """Return arguments that may have been given one by one, or as one list, one by one."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], list | tuple) else values


def _each(value: Any, count: int = 2) -> tuple:
    """Return one number for each of `count` dimensions, or those that were given."""
    return tuple(value) if isinstance(value, list | tuple) else (value,) * count


def _dims(x: Shape, dim: Any) -> Sequence[int]:
    """Return dimensions counted from 0, for one number, a list of numbers, or None for all."""
    return range(len(x)) if dim is None else [d % len(x) for d in (dim if isinstance(dim, list | tuple) else [dim])]


def product(sizes: Sequence[Size]) -> Size:
    return math.prod(sizes, start=sympy.Integer(1))


class _Rules:
    """The rules and the state that they share: the current node and the constraints so far."""

    def __init__(self, gm: fx.GraphModule):
        self.gm, self.call = gm, next(iter(gm.graph.nodes))
        self.constraints: list[Constraint] = []
        self.fixed: dict[sympy.Symbol, sympy.Integer] = {}
        self.least: dict[sympy.Symbol, int] = {}

    @property
    def node(self) -> str:
        return self.call.name

    def need(self, law: Any) -> None:
        """Add a constraint. Raise Mismatch if it is false for all sizes."""
        law = self._simpler(sympy.sympify(law).subs(self.fixed))
        if law == sympy.true:
            return
        if law == sympy.false:
            raise Mismatch(f"Node {self.node} cannot run: the sizes of its operands do not fit for any inputs.")
        if isinstance(law, sympy.Eq) and law.lhs.is_Symbol and law.rhs.is_Integer:
            self.fixed[law.lhs] = law.rhs
        if isinstance(law, sympy.GreaterThan) and law.lhs.is_Symbol:
            if self.least.get(law.lhs, 2) >= law.rhs:
                return
            self.least[law.lhs] = law.rhs
            self.constraints = [c for c in self.constraints if not (c.law.lhs == law.lhs and c.law.func is law.func)]
        if all(law != c.law for c in self.constraints):
            self.constraints.append(Constraint(law, self.node))

    def _simpler(self, law: sympy.Basic) -> sympy.Basic:
        """Turn a bound on a size that increases in one symbol into a bound on it: (s - 1) // 2 >= 1 is s >= 3."""
        if isinstance(law, sympy.Eq) and law.lhs.is_Integer:
            return sympy.Eq(law.rhs, law.lhs)
        if isinstance(law, sympy.GreaterThan) and len(law.free_symbols) == 1:
            (name,) = law.free_symbols
            least = next((n for n in range(1, 1025) if law.subs(name, n) == sympy.true), None)
            return law if least is None else sympy.GreaterThan(name, least)
        return law

    def equal(self, a: Size, b: Size) -> Size:
        """Require two sizes to be equal, and return the simpler one."""
        a, b = sympy.sympify(a), sympy.sympify(b)
        law = _divisibility(a, b) or _divisibility(b, a)
        self.need(law if law is not None else sympy.Eq(a, b))
        return min(a, b, key=lambda size: (not size.is_Integer, sympy.count_ops(size)))

    def multiple(self, size: Size, of: Size) -> Size:
        """Require a size to be a multiple of another, and return the ratio."""
        size, of = sympy.sympify(size), sympy.sympify(of)
        ratio = sympy.cancel(size / of)
        if ratio.is_integer:
            return ratio
        self.need(sympy.Eq(sympy.Mod(size, of), 0))
        return sympy.floor(ratio) if of.is_Integer else ratio

    # --------------------------------------------------------------------------------------------- element by element

    def broadcast(self, x: Any, y: Any, **kwargs: Any) -> Shape:
        shapes = [v if isinstance(v, tuple) else () for v in (x, y)]
        rank = max(map(len, shapes))
        pairs = zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True)
        return tuple(b if a == 1 else a if b == 1 else self.equal(a, b) for a, b in pairs)

    def same(self, x: Shape, *args: Any, **kwargs: Any) -> Shape:
        return x

    def addcmul(self, x: Any, a: Any, b: Any, **kwargs: Any) -> Shape:
        return self.broadcast(x, self.broadcast(a, b))

    def batch_norm(self, x: Shape, mean: Shape, *args: Any, **kwargs: Any) -> Shape:
        self.equal(x[1], mean[0])
        return x

    def layer_norm(self, x: Shape, normalized_shape: Sequence[Size], *args: Any, **kwargs: Any) -> Shape:
        for a, b in zip(x[-len(normalized_shape) :], normalized_shape, strict=True):
            self.equal(a, b)
        return x

    def group_norm(self, x: Shape, num_groups: int, *args: Any, **kwargs: Any) -> Shape:
        self.multiple(x[1], num_groups)
        return x

    # --------------------------------------------------------------------------------------------- products, windows

    def linear(self, x: Shape, weight: Shape, bias: Any = None) -> Shape:
        self.equal(x[-1], weight[1])
        return (*x[:-1], sympy.sympify(weight[0]))

    def attention(self, q: Shape, k: Shape, v: Shape, *args: Any, enable_gqa: bool = False, **kwargs: Any) -> Shape:
        if enable_gqa:
            raise Unsupported(f"Node {self.node}: attention with groups of heads has no rule.")
        self.equal(q[-1], k[-1])
        self.equal(k[-2], v[-2])
        return (*self.broadcast(self.broadcast(q[:-2], k[:-2]), v[:-2]), q[-2], v[-1])

    def matmul(self, x: Shape, y: Shape) -> Shape:
        if len(x) < 2 or len(y) < 2:
            raise Unsupported(f"Node {self.node}: matmul of vectors has no rule; give both operands two dimensions.")
        self.equal(x[-1], y[-2])
        return (*self.broadcast(x[:-2], y[:-2]), x[-2], y[-1])

    def window(self, size: Size, kernel: int, stride: int, padding: int, dilation: int = 1, up: bool = False) -> Size:
        """Return the number of places for a window. up: the last one may extend beyond the end, but starts inside."""
        extent, extra = dilation * (kernel - 1) + 1, stride - 1 if up else 0
        self.need(sympy.sympify(size) >= extent - 2 * padding - extra)
        count = quotient(size + 2 * padding - extent + extra, stride) + 1
        outside = up and padding + stride > extent
        return sympy.Min(count, quotient(size + padding - 1, stride) + 1) if outside else count

    def convolve(self, x: Shape, weight: Shape, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1) -> Shape:  # fmt: skip
        kernel = [int(size) for size in weight[2:]]
        self.equal(x[1], weight[1] * groups)
        if padding == "same":
            return (x[0], weight[0], *x[2:])
        paddings = _each(0 if padding == "valid" else padding, len(kernel))
        dims = zip(x[2:], kernel, _each(stride, len(kernel)), paddings, _each(dilation, len(kernel)), strict=True)
        return (x[0], weight[0], *(self.window(*dim) for dim in dims))

    def convolution(self, module: nn.Conv2d, x: Shape) -> Shape:
        m = module
        paddings = (0,) * len(m.kernel_size) if m.padding == "valid" else m.padding
        if m.padding == "same":
            extents = [d * (k - 1) for d, k in zip(m.dilation, m.kernel_size, strict=True)]
            paddings = [extent - extent // 2 for extent in extents]
        border = {"reflect": 1, "circular": 0}.get(m.padding_mode)
        for size, padding in zip(x[2:], paddings, strict=True):
            if border is not None and padding:  # the padding is a copy of the image
                self.need(sympy.sympify(size) >= padding + border)
        return self.convolve(x, m.weight.shape, None, m.stride, m.padding, m.dilation, m.groups)

    def transposed(self, module: nn.ConvTranspose2d, x: Shape) -> Shape:
        self.equal(x[1], module.in_channels)
        m = module
        dims = zip(x[2:], m.kernel_size, m.dilation, m.stride, m.padding, m.output_padding, strict=True)
        sizes = [(size - 1) * s - 2 * p + d * (k - 1) + 1 + extra for size, k, d, s, p, extra in dims]
        for size in sizes:
            self.need(sympy.sympify(size) >= 1)
        return (x[0], module.out_channels, *sizes)

    def pool(self, x: Shape, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False, return_indices: bool = False) -> Shape:  # fmt: skip
        if return_indices:
            raise Unsupported(f"Node {self.node} returns indices, which has no rule.")
        kernels, paddings = _each(kernel_size), _each(padding)
        for kernel, p in zip(kernels, paddings, strict=True):
            self.need(kernel >= 2 * p)
        dims = zip(x[-2:], kernels, _each(stride or kernel_size), paddings, _each(dilation), strict=True)
        return (*x[:-2], *(self.window(*dim, up=ceil_mode) for dim in dims))

    def average_pool(self, x: Shape, kernel_size: Any, stride: Any = None, padding: Any = 0,
                     ceil_mode: bool = False, *_: Any, **__: Any) -> Shape:  # fmt: skip
        return self.pool(x, kernel_size, stride, padding, 1, ceil_mode)

    # --------------------------------------------------------------------------------------------- moving elements

    def reshape(self, x: Shape, *sizes: Any) -> Shape:
        sizes = _unpacked(sizes)
        known = product([size for size in sizes if size != -1])
        if -1 not in sizes:
            self.equal(product(x), known)
            return tuple(map(sympy.sympify, sizes))
        rest = self.multiple(product(x), known)
        return tuple(rest if size == -1 else sympy.sympify(size) for size in sizes)

    def flatten(self, x: Shape, start_dim: int = 0, end_dim: int = -1) -> Shape:
        start, end = start_dim % len(x), end_dim % len(x)
        return (*x[:start], product(x[start : end + 1]), *x[end + 1 :])

    def unflatten(self, x: Shape, dim: int, sizes: Sequence[Size]) -> Shape:
        dim %= len(x)
        return (*x[:dim], *self.reshape((x[dim],), *sizes), *x[dim + 1 :])

    def transpose(self, x: Shape, dim0: int, dim1: int) -> Shape:
        order = list(x)
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return tuple(order)

    def permute(self, x: Shape, *dims: Any) -> Shape:
        dims = _unpacked(dims)
        return tuple(x[d] for d in dims)

    def reverse(self, x: Shape) -> Shape:
        return x[::-1]

    def repeat(self, x: Shape, *counts: Any) -> Shape:
        counts = _unpacked(counts)
        x = (sympy.Integer(1),) * (len(counts) - len(x)) + x
        return tuple(size * count for size, count in zip(x, counts, strict=True))

    def pad(self, x: Shape, pad: Sequence[Size], mode: str = "constant", value: Any = None) -> Shape:
        border = {"constant": None, "replicate": None, "reflect": 1, "circular": 0}[mode]
        sizes = list(x)
        for k, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
            for amount in (before, after):
                if border is not None and amount != 0:  # the padding is a copy of the tensor
                    self.need(sympy.sympify(sizes[-k]) >= amount + border)
            sizes[-k] = sympy.sympify(sizes[-k] + before + after)
            self.need(sizes[-k] >= 0)
        return tuple(sizes)

    def expand(self, x: Shape, *sizes: Any) -> Shape:
        sizes = _unpacked(sizes)
        x = (1,) * (len(sizes) - len(x)) + x
        pairs = zip(x, sizes, strict=True)
        return tuple(old if new == -1 else new if old == 1 else self.equal(old, new) for old, new in pairs)

    def cat(self, parts: Sequence[Shape], dim: int = 0) -> Shape:
        first, *others = parts
        dim %= len(first)
        for other in others:
            for k, (a, b) in enumerate(zip(first, other, strict=True)):
                if k != dim:
                    first = (*first[:k], self.equal(a, b), *first[k + 1 :])
        return (*first[:dim], sum(part[dim] for part in parts), *first[dim + 1 :])

    def stack(self, parts: Sequence[Shape], dim: int = 0) -> Shape:
        first = parts[0]
        for other in parts[1:]:
            first = tuple(self.equal(a, b) for a, b in zip(first, other, strict=True))
        dim %= len(first) + 1
        return (*first[:dim], sympy.Integer(len(parts)), *first[dim:])

    def unsqueeze(self, x: Shape, dim: int) -> Shape:
        dim %= len(x) + 1
        return (*x[:dim], sympy.Integer(1), *x[dim:])

    def squeeze(self, x: Shape, dim: Any = None) -> Shape:
        dims = _dims(x, dim)
        for d in dims:  # a symbol is never 1, but a formula may be
            if not (sympy.sympify(x[d]).is_Integer or sympy.sympify(x[d]).is_Symbol):
                raise Unsupported(f"Node {self.node}: squeeze of the symbolic size {x[d]} has no rule.")
        return tuple(size for d, size in enumerate(x) if d not in dims or size != 1)

    def fixed_size(self, name: str, size: Size) -> int:
        """Return a size as a number. Raise Unsupported if it depends on the inputs."""
        if not sympy.sympify(size).is_Integer:
            raise Unsupported(f"Node {self.node}: {name} of the symbolic size {size} has no rule.")
        return int(size)

    def split(self, x: Shape, sizes: Any, dim: int = 0) -> list[Shape]:
        dim %= len(x)
        if isinstance(sizes, int):
            total = self.fixed_size("split", x[dim])
            sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
        self.equal(x[dim], sum(sizes))
        return [(*x[:dim], sympy.Integer(size), *x[dim + 1 :]) for size in sizes]

    def unbind(self, x: Shape, dim: int = 0) -> list[Shape]:
        dim %= len(x)
        return [(*x[:dim], *x[dim + 1 :])] * self.fixed_size("unbind", x[dim])

    def chunk(self, x: Shape, chunks: int, dim: int = 0) -> list[Shape]:
        return self.split(x, -(-self.fixed_size("chunk", x[dim]) // chunks), dim)

    def item(self, x: Any, index: Any) -> Any:
        if not isinstance(index, tuple) or isinstance(self.call.args[1], fx.Node):
            index = (index,)
        if Ellipsis in index:
            k, used = index.index(Ellipsis), sum(i is not None and i is not Ellipsis for i in index)
            index = (*index[:k], *[slice(None)] * (len(x) - used), *index[k + 1 :])
        result, rest = [], list(x)
        for i in index:
            if i is None:
                result.append(sympy.Integer(1))
                continue
            if isinstance(i, tuple) and sum(isinstance(other, tuple) for other in index) == 1:  # a tensor of indices
                rest.pop(0)
                result.extend(i)
                continue
            size = sympy.sympify(rest.pop(0))
            if isinstance(i, sympy.Integer):
                i = int(i)
            if isinstance(i, int):
                self.need(size >= (i + 1 if i >= 0 else -i))
            elif i == slice(None):
                result.append(size)
            elif isinstance(i, slice) and size.is_Integer and _is_fixed(i):
                result.append(sympy.Integer(len(range(*i.indices(int(size))))))
            elif isinstance(i, slice) and i.step in (None, 1):
                result.append(self.stretch(size, i))
            else:
                raise Unsupported(f"Node {self.node}: the index {i} has no rule.")
        return (*result, *rest)

    def stretch(self, size: sympy.Basic, part: slice) -> sympy.Basic:
        """Return the length of a slice of which the size, or an end, is a formula."""

        def clipped(end: Any) -> sympy.Basic:
            end = sympy.sympify(end)
            if end.is_negative:
                return sympy.Max(size + end, 0)
            if not end.is_nonnegative:
                raise Unsupported(f"Node {self.node}: the end {end} of a slice, which may be negative, has no rule.")
            return sympy.Min(end, size)

        start, stop = clipped(part.start or 0), clipped(size if part.stop is None else part.stop)
        return sympy.Max(stop - start, 0)

    def norm(self, x: Shape, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Shape:
        return self.reduce(x, dim, keepdim)

    def reduce(self, x: Shape, dim: Any = None, keepdim: bool = False) -> Shape:
        dims = _dims(x, dim)
        return tuple(1 if k in dims else size for k, size in enumerate(x) if keepdim or k not in dims)

    def pooled(self, x: Shape, size: Any) -> Shape:
        pairs = zip(x[-2:], _each(size), strict=True)
        return (*x[:-2], *(old if new is None else sympy.Integer(new) for old, new in pairs))

    def interpolate(self, x: Shape, size: Any = None, scale_factor: Any = None, *args: Any, **kwargs: Any) -> Shape:
        if size is not None:
            return (*x[:2], *map(sympy.Integer, _each(size)))
        scales = [sympy.Rational(str(scale)) for scale in _each(scale_factor)]
        sizes = [quotient(old * scale.p, scale.q) for old, scale in zip(x[2:], scales, strict=True)]
        for new in sizes:
            self.need(new >= 1)
        return (*x[:2], *sizes)

    def getattr(self, x: Shape, name: str) -> Any:
        if name in ("device", "dtype", "is_cuda"):  # shapes do not depend on it
            return None
        if name not in ("shape", "ndim"):
            raise Unsupported(f"Node {self.node} reads {name}, which has no rule.")
        return [*x] if name == "shape" else len(x)

    def rank(self, x: Shape) -> int:
        return len(x)

    def size(self, x: Shape, dim: int | None = None) -> Any:
        return [*x] if dim is None else x[dim]

    def new_zeros(self, x: Shape, *sizes: Any) -> Shape:
        return self.zeros(*sizes)

    # --------------------------------------------------------------------------------------------- sizes, new tensors

    def zeros(self, *sizes: Any, **kwargs: Any) -> Shape:
        return tuple(map(sympy.sympify, _unpacked(sizes)))

    def arange(self, start: Size, end: Size | None = None, step: int = 1, **kwargs: Any) -> Shape:
        start, end = (0, start) if end is None else (start, end)
        return (-quotient(sympy.sympify(start - end), step),)

    def check(self, law: Any, message: str = "") -> None:
        """Require the condition of an assertion."""
        self.need(law)


def _is_fixed(part: slice) -> bool:
    """Return whether the ends of a slice are numbers."""
    return all(end is None or sympy.sympify(end).is_Integer for end in (part.start, part.stop, part.step))


def _divisibility(a: sympy.Expr, b: sympy.Expr) -> sympy.Basic | None:
    """Return the law k · (n // m) == n // (m / k) as (n // (m / k)) % k == 0; None for another law."""
    factor, part = a.as_coeff_Mul()
    if not isinstance(part, sympy.floor) or not factor.is_Integer or factor <= 1:
        return None
    multiple = sympy.floor(sympy.expand(part.args[0] * factor))
    return sympy.Eq(sympy.Mod(b, factor), 0) if sympy.expand(multiple - b) == 0 else None


_BROADCAST = "add sub mul truediv div pow maximum minimum iadd isub imul"
_EACH = """abs clamp clone contiguous cos cumsum detach double dropout elu erf exp flip float gelu half hardsigmoid
    hardswish invert leaky_relu log log_softmax neg normalize relu relu6 roll rsqrt sigmoid silu sin softmax softplus
    sqrt square tanh to"""
#: Operation on sizes alone → what it computes.
ARITHMETIC: dict[str, Callable] = {
    "add": lambda a, b: [*a, *b] if isinstance(a, list) else a + b,
    "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "truediv": operator.truediv,
    "floordiv": lambda a, b: quotient(a, b) if isinstance(b, int) else operator.floordiv(a, b), "mod": sympy.Mod,
    "eq": sympy.Eq, "ne": sympy.Ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "getitem": operator.getitem,
}  # fmt: skip
#: Operation → name of its rule. Rules of modules take the module first.
RULES = dict.fromkeys(_BROADCAST.split(), "broadcast") | dict.fromkeys(_EACH.split(), "same") | {
    "matmul": "matmul", "max_pool2d": "pool", "avg_pool2d": "average_pool", "adaptive_avg_pool2d": "pooled",
    "interpolate": "interpolate",
    "reshape": "reshape", "view": "reshape", "flatten": "flatten", "unflatten": "unflatten", "transpose": "transpose",
    "permute": "permute", "t": "reverse", "expand": "expand", "expand_as": "expand",
    "cat": "cat", "stack": "stack", "chunk": "chunk", "split": "split",
    "squeeze": "squeeze", "unsqueeze": "unsqueeze", "getitem": "item",
    "mean": "reduce", "sum": "reduce", "amax": "reduce", "amin": "reduce",
    "getattr": "getattr", "size": "size", "dim": "rank", "new_zeros": "new_zeros",
    "zeros": "zeros", "ones": "zeros", "arange": "arange", "_assert": "check",
    "addcmul": "addcmul", "batch_norm": "batch_norm", "layer_norm": "layer_norm", "group_norm": "group_norm",
    "linear": "linear", "scaled_dot_product_attention": "attention", "norm": "norm",
    "conv1d": "convolve", "conv2d": "convolve", "conv3d": "convolve",
    "pad": "pad", "repeat": "repeat", "unbind": "unbind", "view_as": "reshape", "reshape_as": "reshape",
}  # fmt: skip
MODULES: dict[type, Callable] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _Rules.convolution), nn.ConvTranspose2d: _Rules.transposed,
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
                    lambda rules, m, x: rules.batch_norm(x, (m.num_features,))),
    nn.Linear: lambda rules, m, x: rules.linear(x, (m.out_features, m.in_features)),
    nn.LayerNorm: lambda rules, m, x: rules.layer_norm(x, m.normalized_shape),
    nn.GroupNorm: lambda rules, m, x: rules.group_norm(x, m.num_groups),
    nn.MaxPool2d: lambda rules, m, x: rules.pool(
        x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices),
    nn.AvgPool2d: lambda rules, m, x: rules.average_pool(x, m.kernel_size, m.stride, m.padding, m.ceil_mode),
    nn.AdaptiveAvgPool2d: lambda rules, m, x: rules.pooled(x, m.output_size),
    nn.Upsample: lambda rules, m, x: rules.interpolate(x, m.size, m.scale_factor),
    nn.Flatten: lambda rules, m, x: rules.flatten(x, m.start_dim, m.end_dim),
}  # fmt: skip
_SAME = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout, nn.Softmax, nn.Identity)
_SAME += (nn.Hardswish, nn.Hardsigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.LogSoftmax)
MODULES |= dict.fromkeys(_SAME, lambda rules, module, x: x)


def shapes(gm: fx.GraphModule, inputs: Mapping[str, Sequence[int | str]]) -> Shapes:
    """Return the shape of every value and the constraints that the graph implies.

        shapes(gm, {"x": ("b", 3, "h", "w")})

    inputs: for each input its sizes, each a number or the name of a symbol. Sizes with the same name are equal. Raise
    Unsupported for an operation without a rule, Mismatch if no sizes fit, ValueError for an input without sizes.
    """
    rules, values, result = _Rules(gm), {}, Shapes()
    for node in gm.graph.nodes:
        rules.call = node
        if node.op == "output":
            continue
        if node.op == "placeholder":
            if node.target not in inputs and node.args:
                values[node] = node.args[0]  # its default value
                continue
            if node.target not in inputs:
                raise ValueError(f"Input {node.target} has no sizes: give them, as in {{'{node.target}': ('b', 3)}}.")
            value = tuple(symbol(s) if isinstance(s, str) else sympy.Integer(s) for s in inputs[node.target])
        elif node.op == "get_attr":
            value = tuple(map(sympy.Integer, attribute(gm, node.target).shape))
        else:
            args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: values[n])
            name = op_name(node, gm)
            module = gm.get_submodule(node.target) if node.op == "call_module" else None
            rule = MODULES.get(type(module)) if module is not None else getattr(_Rules, RULES.get(name, ""), None)
            if name in ARITHMETIC and (isinstance(args[0], list) or not any(isinstance(arg, tuple) for arg in args)):
                values[node] = result.of[node.name] = _computed(node.name, name, args)
                continue
            if rule is None:
                raise Unsupported(
                    f"Node {node.name} calls {name}, which has no rule: add one to passlab.dataflow.shapes."
                )
            try:
                value = rule(rules, *([module] if module is not None else []), *args, **kwargs)
            except (Mismatch, Unsupported):
                raise
            except (AttributeError, IndexError, TypeError, ValueError) as error:
                raise Unsupported(f"Node {node.name} calls {name} in a form that has no rule.") from error
        values[node] = result.of[node.name] = value
    result.constraints = rules.constraints
    return result


def _computed(node: str, name: str, args: Sequence[Any]) -> Any:
    """Return what an operation computes from sizes. Raise Unsupported if one is not known."""
    try:
        return ARITHMETIC[name](*args)
    except (IndexError, TypeError, ZeroDivisionError) as error:
        raise Unsupported(f"Node {node} computes {name} of {args}, which has no rule.") from error


# ---------------------------------------------------------------------------------------------------- torch.export


def exported(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    """Return torch.export's program for a model, with every size of its inputs dynamic (`Dim.AUTO`).

    A size that torch.export has to fix is a number in the program: it fixes 0 and 1, and would warn of it.
    """
    dim = torch.export.Dim
    dims = tuple({k: dim.STATIC if size < 2 else dim.AUTO for k, size in enumerate(x.shape)} for x in inputs)
    return torch.export.export(model, inputs, dynamic_shapes=dims)


def runs(program: Callable, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a program runs on inputs of these shapes."""
    try:
        with torch.no_grad():
            program(*(torch.zeros(shape) for shape in shapes))
    except Exception:
        return False
    return True
