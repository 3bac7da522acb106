"""Symbolic shapes: the shape of every value as a formula in the sizes of the inputs, and what these sizes must obey.

    found = shapes(gm, {"x": ("b", 3, "h", "w")})
    found["conv"]                 # (b, 8, h, w)
    found.constraints             # [Constraint(h % 2 == 0, node cat), …]
    found.accepts({"b": 2, "h": 16, "w": 16})

Every operation has a rule: what its result's shape is, and which sizes it refuses. A rule that meets a symbol cannot
refuse; it notes a constraint, with the node that it comes from. A symbol stands for a size of 2 or more, as in
torch.export, so that it is never broadcast. Formulas are SymPy's (A. Meurer et al., PeerJ CS, 2017).

Reading order: what is found, arithmetic on sizes, the rules from simple to hard, the table, the pass, torch.export's
answer to the same question.
"""

from __future__ import annotations

import math
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
    """Something that the inputs' sizes must obey, and the node that asks for it."""

    law: sympy.Basic
    node: str

    def __repr__(self) -> str:
        return f"{told(self.law)}  ({self.node})"


class Mismatch(ValueError):
    """Raised where a graph cannot run, whatever its inputs' sizes are."""


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
        """Return the first constraint that these sizes break, or None."""
        given = {symbol(name): size for name, size in sizes.items()}
        return next((c for c in self.constraints if not bool(c.law.subs(given))), None)

    def at(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of a node for given sizes."""
        given = {symbol(key): size for key, size in sizes.items()}
        return tuple(int(sympy.sympify(size).subs(given)) for size in self.of[name])


# ---------------------------------------------------------------------------------------------------- sizes


def symbol(name: str) -> sympy.Symbol:
    """Return the symbol for a size: a positive integer."""
    return sympy.Symbol(name, integer=True, positive=True)


def told(law: sympy.Basic) -> str:
    """Return a constraint as Python would write it."""
    if isinstance(law, sympy.Eq):
        return f"{_text(law.lhs)} == {_text(law.rhs)}"
    if isinstance(law, sympy.GreaterThan):
        return f"{_text(law.lhs)} >= {_text(law.rhs)}"
    return str(law)


def _text(size: Size) -> str:
    if isinstance(size, sympy.Mod):
        return f"{_text(size.args[0])} % {size.args[1]}"
    if isinstance(size, sympy.floor):
        above, below = size.args[0].as_numer_denom()
        return f"({above}) // {below}" if above.is_Add else f"{above} // {below}"
    return str(size)


def divided(size: Size, by: int) -> Size:
    """Return size // by. Two divisions become one: (n // 2 + 1) // 2 is (n + 2) // 4."""
    more, rest = sympy.sympify(size).as_coeff_Add()
    if isinstance(rest, sympy.floor):
        rest = rest.args[0]
    return sympy.floor(sympy.expand((rest + more) / by))


def _pair(value: Any) -> tuple:
    """Return a number, or a pair of them, as a pair."""
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def _dims(x: Shape, dim: Any) -> Sequence[int]:
    """Return dimensions, given as a number, some numbers, or None for all, counted from 0."""
    return range(len(x)) if dim is None else [d % len(x) for d in (dim if isinstance(dim, list | tuple) else [dim])]


def product(sizes: Sequence[Size]) -> Size:
    return math.prod(sizes, start=sympy.Integer(1))


class _Rules:
    """What the rules of one run share: where they are, and the constraints so far."""

    def __init__(self, gm: fx.GraphModule):
        self.gm, self.node = gm, ""
        self.constraints: list[Constraint] = []
        self.fixed: dict[sympy.Symbol, sympy.Integer] = {}
        self.least: dict[sympy.Symbol, int] = {}

    def need(self, law: Any) -> None:
        """Note a constraint. Raise Mismatch if it holds for no sizes at all."""
        law = self._simpler(sympy.sympify(law).subs(self.fixed))
        if law == sympy.true:
            return
        if law == sympy.false:
            raise Mismatch(f"Node {self.node} cannot run: its operands' sizes do not fit, whatever the inputs' are.")
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
        """Write a bound on a size that grows with one symbol as a bound on the symbol: (s - 1) // 2 >= 1 is s >= 3."""
        if isinstance(law, sympy.Eq) and law.lhs.is_Integer:
            return sympy.Eq(law.rhs, law.lhs)
        if isinstance(law, sympy.GreaterThan) and len(law.free_symbols) == 1:
            (only,) = law.free_symbols
            least = next((n for n in range(1, 1025) if law.subs(only, n) == sympy.true), None)
            return law if least is None else sympy.GreaterThan(only, least)
        return law

    def equal(self, one: Size, other: Size) -> Size:
        """Note that two sizes are equal, and return the simpler one."""
        one, other = sympy.sympify(one), sympy.sympify(other)
        whole = _whole(one, other) or _whole(other, one)
        self.need(whole if whole is not None else sympy.Eq(one, other))
        return min(one, other, key=lambda size: (not size.is_Integer, sympy.count_ops(size)))

    def multiple(self, size: Size, of: Size) -> Size:
        """Note that a size is a multiple of another, and return the quotient."""
        size, of = sympy.sympify(size), sympy.sympify(of)
        quotient = sympy.cancel(size / of)
        if quotient.is_integer:
            return quotient
        self.need(sympy.Eq(sympy.Mod(size, of), 0))
        return sympy.floor(quotient) if of.is_Integer else quotient

    # --------------------------------------------------------------------------------------------- element by element

    def broadcast(self, x: Any, y: Any, **kwargs: Any) -> Shape:
        one, other = (v if isinstance(v, tuple) else () for v in (x, y))
        long = max(len(one), len(other))
        pairs = zip((1,) * (long - len(one)) + one, (1,) * (long - len(other)) + other, strict=True)
        return tuple(b if a == 1 else a if b == 1 else self.equal(a, b) for a, b in pairs)

    def same(self, x: Shape, *args: Any, **kwargs: Any) -> Shape:
        return x

    def batch_norm(self, module: nn.BatchNorm2d, x: Shape) -> Shape:
        self.equal(x[1], module.num_features)
        return x

    def layer_norm(self, module: nn.LayerNorm, x: Shape) -> Shape:
        for mine, wanted in zip(x[-len(module.normalized_shape) :], module.normalized_shape, strict=True):
            self.equal(mine, wanted)
        return x

    # --------------------------------------------------------------------------------------------- products, windows

    def linear(self, module: nn.Linear, x: Shape) -> Shape:
        self.equal(x[-1], module.in_features)
        return (*x[:-1], module.out_features)

    def matmul(self, x: Shape, y: Shape) -> Shape:
        if len(x) < 2 or len(y) < 2:
            raise Unsupported(f"Node {self.node}: matmul of vectors has no rule; give both operands two dimensions.")
        self.equal(x[-1], y[-2])
        return (*self.broadcast(x[:-2], y[:-2]), x[-2], y[-1])

    def window(self, size: Size, kernel: int, stride: int, padding: int, dilation: int = 1, up: bool = False) -> Size:
        """Return in how many places a window fits. up: the last one may reach over the end, if it begins inside."""
        reach, more = dilation * (kernel - 1) + 1, stride - 1 if up else 0
        self.need(sympy.sympify(size) >= reach - 2 * padding - more)
        found = divided(size + 2 * padding - reach + more, stride) + 1
        over = up and padding + stride > reach
        return sympy.Min(found, divided(size + padding - 1, stride) + 1) if over else found

    def convolution(self, module: nn.Conv2d, x: Shape) -> Shape:
        self.equal(x[1], module.in_channels)
        around = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        if module.padding == "same":
            sizes, most = x[2:], [reach - reach // 2 for reach in around]
        else:
            most = [0] * len(around) if module.padding == "valid" else module.padding
            each = zip(x[2:], module.kernel_size, module.stride, most, module.dilation, strict=True)
            sizes = [self.window(*one) for one in each]
        border = {"reflect": 1, "circular": 0}.get(module.padding_mode)
        for size, padding in zip(x[2:], most, strict=True):
            if border is not None and padding:  # what is padded is taken from the image
                self.need(sympy.sympify(size) >= padding + border)
        return (x[0], module.out_channels, *sizes)

    def transposed(self, module: nn.ConvTranspose2d, x: Shape) -> Shape:
        self.equal(x[1], module.in_channels)
        reaches = [d * (k - 1) + 1 for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        each = zip(x[2:], reaches, module.stride, module.padding, module.output_padding, strict=True)
        sizes = [(d - 1) * s - 2 * p + reach + more for d, reach, s, p, more in each]
        for size in sizes:
            self.need(sympy.sympify(size) >= 1)
        return (x[0], module.out_channels, *sizes)

    def pool(
        self,
        x: Shape,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Shape:
        if return_indices:
            raise Unsupported(f"Node {self.node} returns indices, which has no rule.")
        kernels, paddings = _pair(kernel_size), _pair(padding)
        for kernel, around in zip(kernels, paddings, strict=True):
            self.need(kernel >= 2 * around)
        each = zip(x[-2:], kernels, _pair(stride or kernel_size), paddings, _pair(dilation), strict=True)
        return (*x[:-2], *(self.window(*one, up=ceil_mode) for one in each))

    def average_pool(
        self,
        x: Shape,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        *_: Any,
        **__: Any,
    ) -> Shape:
        return self.pool(x, kernel_size, stride, padding, 1, ceil_mode)

    # --------------------------------------------------------------------------------------------- moving elements

    def reshape(self, x: Shape, *wanted: Any) -> Shape:
        wanted = tuple(wanted[0]) if len(wanted) == 1 and isinstance(wanted[0], list | tuple) else wanted
        known = product([size for size in wanted if size != -1])
        if -1 not in wanted:
            self.equal(product(x), known)
            return tuple(map(sympy.sympify, wanted))
        rest = self.multiple(product(x), known)
        return tuple(rest if size == -1 else sympy.sympify(size) for size in wanted)

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
        dims = dims[0] if len(dims) == 1 and isinstance(dims[0], list | tuple) else dims
        return tuple(x[d] for d in dims)

    def turned(self, x: Shape) -> Shape:
        return x[::-1]

    def expand(self, x: Shape, *sizes: Size) -> Shape:
        x = (1,) * (len(sizes) - len(x)) + x
        pairs = zip(x, sizes, strict=True)
        return tuple(old if new == -1 else new if old == 1 else self.equal(old, new) for old, new in pairs)

    def cat(self, parts: Sequence[Shape], dim: int = 0) -> Shape:
        first, *others = parts
        dim %= len(first)
        for other in others:
            for k, (one, two) in enumerate(zip(first, other, strict=True)):
                if k != dim:
                    first = (*first[:k], self.equal(one, two), *first[k + 1 :])
        return (*first[:dim], sum(part[dim] for part in parts), *first[dim + 1 :])

    def stack(self, parts: Sequence[Shape], dim: int = 0) -> Shape:
        first = parts[0]
        for other in parts[1:]:
            first = tuple(self.equal(one, two) for one, two in zip(first, other, strict=True))
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

    def fixed_size(self, what: str, size: Size) -> int:
        """Return a size as a number. Raise Unsupported if it depends on the inputs."""
        if not sympy.sympify(size).is_Integer:
            raise Unsupported(f"Node {self.node}: {what} of the symbolic size {size} has no rule.")
        return int(size)

    def split(self, x: Shape, sizes: Any, dim: int = 0) -> list[Shape]:
        dim %= len(x)
        if isinstance(sizes, int):
            whole = self.fixed_size("split", x[dim])
            sizes = [min(sizes, whole - start) for start in range(0, whole, sizes)]
        self.equal(x[dim], sum(sizes))
        return [(*x[:dim], sympy.Integer(size), *x[dim + 1 :]) for size in sizes]

    def chunk(self, x: Shape, chunks: int, dim: int = 0) -> list[Shape]:
        return self.split(x, -(-self.fixed_size("chunk", x[dim]) // chunks), dim)

    def item(self, x: Any, index: Any) -> Any:
        if isinstance(x, list):  # parts, or the sizes that x.shape is
            return x[index]
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            at, used = index.index(Ellipsis), sum(one is not None and one is not Ellipsis for one in index)
            index = (*index[:at], *[slice(None)] * (len(x) - used), *index[at + 1 :])
        rest, left = [], list(x)
        for at in index:
            if at is None:
                rest.append(sympy.Integer(1))
                continue
            size = sympy.sympify(left.pop(0))
            if isinstance(at, int):
                self.need(size >= (at + 1 if at >= 0 else -at))
            elif at == slice(None):
                rest.append(size)
            elif isinstance(at, slice) and size.is_Integer:
                rest.append(sympy.Integer(len(range(*at.indices(int(size))))))
            else:
                raise Unsupported(f"Node {self.node}: the index {at} has no rule.")
        return (*rest, *left)

    def reduce(self, x: Shape, dim: Any = None, keepdim: bool = False) -> Shape:
        over = _dims(x, dim)
        return tuple(1 if k in over else size for k, size in enumerate(x) if keepdim or k not in over)

    def pooled(self, x: Shape, size: Any) -> Shape:
        each = zip(x[-2:], _pair(size), strict=True)
        return (*x[:-2], *(old if new is None else sympy.Integer(new) for old, new in each))

    def interpolate(self, x: Shape, size: Any = None, scale_factor: Any = None, *args: Any, **kwargs: Any) -> Shape:
        if size is not None:
            return (*x[:2], *map(sympy.Integer, _pair(size)))
        scales = [sympy.Rational(str(scale)) for scale in _pair(scale_factor)]
        sizes = [divided(old * scale.p, scale.q) for old, scale in zip(x[2:], scales, strict=True)]
        for new in sizes:
            self.need(new >= 1)
        return (*x[:2], *sizes)

    def getattr(self, x: Shape, name: str) -> Shape:
        if name != "shape":
            raise Unsupported(f"Node {self.node} reads {name}, which has no rule.")
        return [*x]

    def size(self, x: Shape, dim: int | None = None) -> Any:
        return [*x] if dim is None else x[dim]

    def new_zeros(self, x: Shape, *sizes: Size) -> Shape:
        return tuple(map(sympy.sympify, sizes))


def _whole(one: sympy.Expr, other: sympy.Expr) -> sympy.Basic | None:
    """Return the law k · (n // m) == n // (m / k) as (n // (m / k)) % k == 0; None if it is another."""
    factor, part = one.as_coeff_Mul()
    if not isinstance(part, sympy.floor) or not factor.is_Integer or factor <= 1:
        return None
    wider = sympy.floor(sympy.expand(part.args[0] * factor))
    return sympy.Eq(sympy.Mod(other, factor), 0) if sympy.expand(wider - other) == 0 else None


_BROADCAST = "add sub mul truediv div pow maximum minimum iadd isub imul"
_EACH = """abs clamp clone contiguous cos detach dropout elu erf exp gelu hardswish leaky_relu log log_softmax neg relu
    relu6 rsqrt sigmoid silu sin softmax softplus sqrt square tanh"""
#: What a node does, in one word → the rule for it. Rules of modules take the module first.
RULES = dict.fromkeys(_BROADCAST.split(), "broadcast") | dict.fromkeys(_EACH.split(), "same") | {
    "matmul": "matmul", "max_pool2d": "pool", "avg_pool2d": "average_pool", "adaptive_avg_pool2d": "pooled",
    "interpolate": "interpolate",
    "reshape": "reshape", "view": "reshape", "flatten": "flatten", "unflatten": "unflatten", "transpose": "transpose",
    "permute": "permute", "t": "turned", "expand": "expand", "cat": "cat", "stack": "stack", "chunk": "chunk",
    "split": "split", "squeeze": "squeeze", "unsqueeze": "unsqueeze", "getitem": "item",
    "mean": "reduce", "sum": "reduce", "amax": "reduce", "amin": "reduce",
    "getattr": "getattr", "size": "size", "new_zeros": "new_zeros",
}  # fmt: skip
MODULES: dict[type, Callable] = {
    nn.Linear: _Rules.linear, nn.Conv2d: _Rules.convolution, nn.ConvTranspose2d: _Rules.transposed,
    nn.BatchNorm2d: _Rules.batch_norm, nn.LayerNorm: _Rules.layer_norm,
    nn.MaxPool2d: lambda rules, m, x: rules.pool(
        x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices),
    nn.AvgPool2d: lambda rules, m, x: rules.average_pool(x, m.kernel_size, m.stride, m.padding, m.ceil_mode),
    nn.AdaptiveAvgPool2d: lambda rules, m, x: rules.pooled(x, m.output_size),
    nn.Upsample: lambda rules, m, x: rules.interpolate(x, m.size, m.scale_factor),
    nn.Flatten: lambda rules, m, x: rules.flatten(x, m.start_dim, m.end_dim),
}  # fmt: skip
_SAME = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout, nn.Softmax, nn.Identity)
MODULES |= dict.fromkeys(_SAME, lambda rules, module, x: x)


def shapes(gm: fx.GraphModule, inputs: Mapping[str, Sequence[int | str]]) -> Shapes:
    """Return the shape of every value and the constraints that the graph implies.

        shapes(gm, {"x": ("b", 3, "h", "w")})

    inputs: for each input its sizes, a number or the name of a symbol each. Sizes of one name are equal. Raise
    Unsupported for an operation without a rule, Mismatch where no sizes fit, ValueError for an input without sizes.
    """
    rules, values, found = _Rules(gm), {}, Shapes()
    for node in gm.graph.nodes:
        rules.node = node.name
        if node.op == "output":
            continue
        if node.op == "placeholder":
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
        values[node] = found.of[node.name] = value
    found.constraints = rules.constraints
    return found


# ---------------------------------------------------------------------------------------------------- torch.export


def exported(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    """Return what torch.export makes of a model if every size of its inputs may vary (`Dim.AUTO`).

    A size that it finds it must fix is a number in the program that results.
    """
    dims = tuple({k: torch.export.Dim.AUTO for k in range(x.dim())} for x in inputs)
    return torch.export.export(model, inputs, dynamic_shapes=dims)


def runs(program: Callable, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a program runs on inputs of these shapes."""
    try:
        with torch.no_grad():
            program(*(torch.zeros(shape) for shape in shapes))
    except Exception:
        return False
    return True
