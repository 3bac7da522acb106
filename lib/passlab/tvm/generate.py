"""Random Relay and Relax modules that are well-typed by construction.

    module = random_relay(7)                          # the same module in every process
    random_relax(7, size=30, features=("conv", "tuples"))

Shapes are small, and values stay finite and of moderate size on moderate inputs. The constructs are a table of small
functions by feature, each chosen because a careless pass gets it wrong. Both flavours use the same table: differences
in spelling are in `passlab.relay.generate` and `passlab.relax.generate`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

#: feature → what it adds to a module
FEATURES = {
    "pointwise": "element-wise operations, scalars and broadcasting operands on either side",
    "diamond": "one value with two or three consumers that join again, or do not",
    "repeat": "the same expression twice, and once more with one attribute changed",
    "identity": "x+0, x*1, x-x, casts and transposes that undo each other",
    "constant": "constants that several nodes share, and expressions over constants alone",
    "conv": "convolutions with odd attributes, batch norm, ReLU, pooling; several consumers of one",
    "dense": "dense, bias and GELU in both forms",
    "reduce": "reductions before and after element-wise operations, softmax; odd axes and keepdims",
    "views": "reshape, transpose, squeeze, slice, concatenate, take, reverse",
    "tuples": "split, tuples made and taken apart",
    "integers": "integer arithmetic, comparisons, where, casts",
    "blocks": "a second dataflow block (Relax only)",
    "dead": "values that nothing uses: unused lets in Relay, unused bindings in Relax",
    "outputs": "several outputs, one of them twice",
}

_TABLE: list[tuple[str, float, Callable]] = []
_LARGEST = 600  # elements of a value that others may use
_TOO_FAR = 50.0  # a value with a larger bound is squashed


@dataclass(eq=False)
class Value:
    """An expression, its type, an approximate bound on the magnitude of its elements, and its number of users."""

    expr: Any
    shape: tuple[int, ...]
    dtype: str
    bound: float
    uses: int = 0
    constant: bool = False
    computed: bool = True  # by at least one call


class Builder:
    """A module under construction."""

    def __init__(self, seed: int, features: Sequence[str] | None):
        unknown = [f for f in features or () if f not in FEATURES]
        if unknown:
            raise TypeError(f"No feature {unknown[0]!r}. The features are {', '.join(FEATURES)}.")
        self.on = set(FEATURES if features is None else features)
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.rows = [(weight, make) for feature, weight, make in _TABLE if feature in self.on]
        if not self.rows:
            raise ValueError("A random module needs a feature that makes calls, such as pointwise.")
        self.values: list[Value] = []  # what later calls may use
        self.constants: list[Value] = []
        self.calls = 0
        self.params: list[Any] = []

    def grow(self, size: int) -> Any:
        rng = self.rng
        width = rng.choice((4, 5, 6))
        self.start([("x", (rng.choice((2, 3)), width), "float32")])
        self.input("y", rng.choice([(width,), self.values[0].shape, ()]), "float32")
        if self.on & {"conv"}:
            self.input("image", (rng.choice((1, 2)), rng.choice((4, 8)), rng.choice((6, 7)), 7), "float32")
        if self.on & {"integers"}:
            self.input("tokens", (2, width), "int32")
        weights = [weight for weight, _ in self.rows]
        tries = 0
        with self.body():
            half = False
            while self.calls < size and tries < 50 * size:
                tries += 1
                rng.choices(self.rows, weights)[0][1](self)
                if self.calls > size // 2 and not half:
                    half = True
                    self.halfway()
            chosen = self.chosen()
            if not any(v.computed for v in chosen):
                chosen.append(self.op("nn.relu", self.values[0]))
            self.finish(chosen)
        return self.module()

    def chosen(self) -> list[Value]:
        results = [v for v in self.values[len(self.params) :] if not v.constant] or self.values[-1:]
        ends = [v for v in results if not v.uses] or results[-1:]
        if "outputs" not in self.on:
            return ends[-1:]
        out = [v for v in ends if "dead" not in self.on or self.rng.random() < 0.8][-4:] or ends[-1:]
        return [*out, self.rng.choice(out)] if self.rng.random() < 0.15 else out

    def keep(self, expr: Any, bound: float, constant: bool = False) -> Value:
        value = Value(expr, *self.type(expr), bound, constant=constant)
        self.calls += 1
        if bound > _TOO_FAR and value.dtype.startswith("float"):
            return self.op("tanh", value)
        if value.dtype != "tuple" and math.prod(value.shape) <= _LARGEST:
            self.values.append(value)
        return value

    def op(self, name: str, *args: Value, bound: float | None = None, **attributes: Any) -> Value:
        """Call an operator by name with these attributes."""
        for arg in args:
            arg.uses += 1
        far = _BOUNDS.get(name, lambda *b: max(b))(*[a.bound for a in args]) if bound is None else bound
        expr = self.emit(self.operator(name)(*[a.expr for a in args], **attributes))
        return self.keep(expr, far, all(a.constant for a in args))

    def operator(self, name: str) -> Callable:
        """Return an operator by Relay's name."""
        return attrgetter(name)(self.operators)

    def join(self, parts: list[Value], axis: int) -> Value:
        for part in parts:
            part.uses += 1
        call = self.operator("concatenate")([p.expr for p in parts], axis)
        return self.keep(self.emit(call), max(p.bound for p in parts))

    def take(self, x: Value, indices: Value, axis: int) -> Value:
        return self.op("take", x, indices, axis=axis, mode="clip", bound=x.bound)

    def const(self, array: Any, dtype: str = "float32") -> Value:
        array = np.asarray(array, dtype)
        value = Value(self.constant(array), array.shape, dtype, float(np.abs(array).max(initial=0)), constant=True)
        self.constants.append(value)
        return value

    def weight(self, *shape: int, fan: int = 1, positive: bool = False) -> Value:
        """Return random numbers: mostly new ones, sometimes a constant that is used elsewhere."""
        constants = [c for c in self.constants if c.shape == shape and c.dtype == "float32"]
        if constants and not positive and self.rng.random() < 0.4:
            return self.rng.choice(constants)
        drawn = self.numbers.normal(0, 1 / math.sqrt(fan), shape)
        return self.const(np.abs(drawn) + 0.5 if positive else drawn)

    def pick(self, dtype: str = "float32", dim: int | None = None, shape: tuple | None = None) -> Value | None:
        """Return a value of this dtype, rank or shape: mostly a recent unused one, sometimes any (for fan-out)."""
        fit = [
            v
            for v in self.values
            if v.dtype == dtype and (dim is None or len(v.shape) == dim) and (shape is None or v.shape == shape)
        ]
        fresh = [v for v in fit[-6:] if not v.uses]
        return self.rng.choice(fresh if fresh and self.rng.random() < 0.7 else fit) if fit else None

    def partner(self, x: Value) -> Value:
        """Return a value that x can be added to: of its shape, or one that broadcasts."""
        same = self.pick(x.dtype, shape=x.shape)
        kind = self.rng.random()
        if same is not None and same is not x and kind < 0.5:
            return same
        if kind < 0.65:
            return self.const(self.rng.choice((0.5, 2.0, -1.5)))
        row = x.shape[-1:] if kind < 0.85 else tuple(1 if i % 2 else n for i, n in enumerate(x.shape))
        return self.weight(*row)


#: The bound of a result from the bounds of its operands; default, the largest of them.
_BOUNDS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "exp": lambda a: math.exp(min(a, 20)),
    **dict.fromkeys(["tanh", "sigmoid", "sin", "nn.softmax"], lambda a: 1.0),
}


# The constructs: each function adds calls to a builder, and is registered with its feature and weight.

_UNARY = ("nn.relu", "tanh", "sigmoid", "negative", "abs", "exp", "sin", "sqrt", "clip", "nn.leaky_relu")
_BINARY = ("add", "add", "multiply", "multiply", "subtract", "maximum", "minimum", "divide")


def row(feature: str, weight: float = 1.0) -> Callable:
    def enter(make: Callable) -> Callable:
        _TABLE.append((feature, weight, make))
        return make

    return enter


def _unary(b: Builder, x: Value, name: str) -> Value:
    if name == "clip":
        return b.clip(x, *b.rng.choice(((-1.0, 1.0), (0.0, 6.0), (-0.5, 2.0))))
    if name == "sqrt":
        return b.op("sqrt", b.op("abs", x))
    return b.op(name, x, **({"alpha": b.rng.choice((0.1, 0.3))} if name == "nn.leaky_relu" else {}))


def _binary(b: Builder, x: Value, y: Value, name: str) -> Value:
    if name == "divide":  # by something away from 0
        return b.op("divide", x, b.op("add", b.op("abs", y), b.const(0.5)), bound=2 * x.bound)
    return b.op(name, *((y, x) if b.rng.random() < 0.4 else (x, y)))


@row("pointwise", 3)
def unary(b: Builder) -> None:
    _unary(b, b.pick(), b.rng.choice(_UNARY))


@row("pointwise", 3)
def binary(b: Builder) -> None:
    x = b.pick()
    _binary(b, x, b.partner(x), b.rng.choice(_BINARY))


@row("diamond", 2)
def diamond(b: Builder) -> None:
    x = _unary(b, b.pick(), b.rng.choice(_UNARY))
    arms = [_unary(b, x, name) for name in b.rng.sample(_UNARY, b.rng.choice((2, 2, 3)))]
    if b.rng.random() < 0.7:
        joined = arms[0]
        for arm in arms[1:]:
            joined = b.op(b.rng.choice(("add", "multiply", "maximum")), joined, arm)


@row("repeat", 2)
def repeat(b: Builder) -> None:
    """Add f(x) twice and a third call that differs in one attribute; joined, so that wrongly merging them shows."""
    x, rng = b.pick(), b.rng
    same: list[Callable[[int], Value]] = [
        lambda i: b.clip(x, -1.0, (1.0, 2.0)[i]),
        lambda i: b.op("nn.leaky_relu", x, alpha=(0.1, 0.2)[i]),
    ]
    if len(x.shape) > 1:
        same.append(lambda i: b.op("nn.softmax", x, axis=(-1, 0)[i]))
        same.append(lambda i: b.op("sum", x, axis=(-1, 0)[i], keepdims=True, bound=6 * x.bound))
        same.append(lambda i: b.op("reverse", x, axis=(0, 1)[i]))
    if len(x.shape) > 1 and x.shape[-1] > 2:
        some = b.const(np.array([0, 2, 1]), "int32")
        same.append(lambda i: b.take(x, (some, b.const([1, 0, 2], "int32"))[i], len(x.shape) - 1))
    make = rng.choice(same)
    calls = [make(i) for i in rng.choice(((0, 0, 1), (0, 1, 0), (0, 0), (0, 1)))]
    joined = calls[0]
    for call in calls[1:]:
        joined = b.op(rng.choice(("add", "subtract")), joined, call)


@row("identity", 2)
def identity(b: Builder) -> None:
    x, rng = b.pick(), b.rng
    order = [*range(len(x.shape))]
    rng.shuffle(order)
    back = [order.index(i) for i in range(len(order))]
    choices = [
        lambda: b.op("add", x, b.const(0.0)),
        lambda: b.op("multiply", b.const(np.ones((1, *x.shape))), x),  # adds an axis: not an identity
        lambda: b.op("multiply", x, b.const(1.0)),
        lambda: b.op("subtract", x, x),
        lambda: b.op("negative", b.op("negative", x)),
        lambda: b.op("cast", b.op("cast", x, dtype="float64"), dtype="float32"),
        lambda: b.op("nn.relu", b.op("nn.relu", x)),
        lambda: b.op("transpose", b.op("transpose", x, axes=order), axes=back if rng.random() < 0.7 else order),
    ]
    rng.choice(choices if len(order) > 1 else choices[:-1])()


@row("constant")
def constant(b: Builder) -> None:
    """Add an expression over constants, combined with x at its end; others may use the constants too."""
    x = b.pick()
    c = b.weight(*x.shape[-1:])
    folded = b.op(b.rng.choice(("add", "multiply")), c, b.weight(*x.shape[-1:]))
    folded = b.op(b.rng.choice(("exp", "tanh", "abs")), folded) if b.rng.random() < 0.6 else folded
    b.op("multiply", b.op("add", x, folded), c)


@row("conv", 2)
def conv(b: Builder) -> None:
    x, rng = b.pick(dim=4), b.rng
    if x is None or min(x.shape[2:]) < 3 or x.shape[1] > 16:
        return
    channels, nhwc = x.shape[1], rng.random() < 0.25
    groups = 1 if nhwc else rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    out, kernel = groups * rng.choice((1, 2)) if groups > 1 else rng.choice((4, 8)), rng.choice((1, 3))
    shape = (kernel, kernel, channels, out) if nhwc else (out, channels // groups, kernel, kernel)
    w = b.weight(*shape, fan=channels // groups * kernel * kernel)
    odd = {
        "strides": rng.choice(((1, 1), (1, 1), (2, 2), (2, 1))),
        "padding": rng.choice(((1, 1), (0, 0), (1, 1, 1, 1), (0, 1, 2, 1))),
        "dilation": rng.choice(((1, 1), (1, 1), (2, 2))) if min(x.shape[2:]) > 4 else (1, 1),
        "groups": groups,
    }
    image = b.op("transpose", x, axes=[0, 2, 3, 1]) if nhwc else x
    y = b.conv(image, w, "NHWC" if nhwc else "NCHW", kernel, out, 3 * x.bound, **odd)
    y = b.op("transpose", y, axes=[0, 3, 1, 2]) if nhwc else y
    if y.shape[1:2] != (out,):
        return
    if rng.random() < 0.3:
        y = b.op("add", y, b.weight(out, 1, 1))
    if rng.random() < 0.6:
        of = b.weight(out), b.weight(out), b.weight(out), b.weight(out, positive=True)
        y = b.norm(y, *of, axis=1, epsilon=rng.choice((1e-5, 1e-3)))
    ends = rng.sample(("nn.relu", "sigmoid", "tanh"), rng.choice((0, 1, 1, 2)))
    arms = [b.op(name, y) for name in ends]
    if len(arms) == 2 and rng.random() < 0.5:
        b.op("add", *arms)
    if arms and arms[0].shape == x.shape and rng.random() < 0.6:
        b.op("nn.relu", b.op("add", arms[0], x))


@row("conv")
def pool(b: Builder) -> None:
    x = b.pick(dim=4)
    if x is not None and min(x.shape[2:]) >= 3:
        name = b.rng.choice(("nn.max_pool2d", "nn.avg_pool2d"))
        b.op(name, x, pool_size=(2, 2), strides=b.rng.choice(((1, 1), (2, 2))), padding=b.rng.choice(((0, 0), (1, 1))))


@row("dense", 2)
def dense(b: Builder) -> None:
    x = b.pick(dim=2)
    if x is None:
        return
    wide = b.rng.choice((4, 5, 6))
    y = b.dense(x, b.weight(wide, x.shape[1], fan=x.shape[1]), b.weight(wide))
    kind = b.rng.random()
    if kind < 0.5:
        b.gelu(y)
    elif kind < 0.8:
        b.op("nn.relu", y)


@row("reduce", 2)
def reduce(b: Builder) -> None:
    x, rng = b.pick(), b.rng
    if not x.shape:
        return
    before, after = rng.choice((False, True)), rng.choice((False, True))
    x = _unary(b, x, rng.choice(_UNARY)) if before else x
    name = rng.choice(("sum", "mean", "max", "min"))
    axis = rng.choice((-1, 0, len(x.shape) - 1, None))
    y = b.op(name, x, axis=axis, keepdims=rng.random() < 0.5, bound=8 * x.bound if name == "sum" else x.bound)
    if after:
        _unary(b, y, rng.choice(_UNARY))


@row("reduce")
def softmax(b: Builder) -> None:
    x = b.pick()
    if x.shape:
        b.op("nn.softmax", x, axis=b.rng.choice((-1, 0)))


@row("views", 2)
def view(b: Builder) -> None:
    x, rng = b.pick(), b.rng
    if len(x.shape) < 2:
        b.op("expand_dims", x, axis=0)
        return
    last = len(x.shape) - 1
    order = [*range(len(x.shape))]
    rng.shuffle(order)
    choices = [
        lambda: b.op("reshape", x, **{b.new_shape: (math.prod(x.shape[:-1]), x.shape[-1])}),
        lambda: b.op("reshape", x, **{b.new_shape: (x.shape[0], -1)}),
        lambda: b.op("transpose", x, axes=order),
        lambda: b.op("transpose", x, axes=None),
        lambda: b.op("squeeze", b.op("expand_dims", x, axis=rng.choice((0, 1, -1)))),
        lambda: b.op("reverse", x, axis=rng.choice((0, last))),
        lambda: b.slice(x, last, min(rng.choice((0, 1)), x.shape[-1] - 1), x.shape[-1], rng.choice((1, 2))),
        lambda: b.take(x, b.const(b.numbers.integers(0, x.shape[0], 3), "int32"), 0),
        lambda: b.take(x, b.const(b.numbers.integers(0, x.shape[-1], 3), "int32"), last),
        lambda: b.join([x, rng.choice([x, b.pick(shape=x.shape) or x]), x][: rng.choice((2, 3))], rng.choice((0, -1))),
    ]
    rng.choice(choices)()


@row("tuples", 1.5)
def split(b: Builder) -> None:
    x = b.pick()
    if not x.shape or x.shape[-1] < 2:
        return
    wide, rng = x.shape[-1], b.rng
    parts = rng.choice([n for n in (2, 3, wide) if wide % n == 0] or [1])
    cut = parts if rng.random() < 0.6 or wide < 3 else [1, wide - 1]
    whole = b.op("split", x, indices_or_sections=cut, axis=rng.choice((-1, len(x.shape) - 1)))
    fields = range(parts if cut is parts else len(cut) + 1)
    values = [b.keep(b.field(whole.expr, i), x.bound) for i in rng.sample(fields, rng.choice((1, len(fields))))]
    if len(values) > 1 and values[0].shape == values[1].shape:
        b.op("add", values[0], values[1])


@row("tuples")
def pair(b: Builder) -> None:
    """Add a tuple and take its fields."""
    parts = [b.pick(), b.pick()]
    whole = b.tuple([p.expr for p in parts])
    for i in b.rng.sample((0, 1), b.rng.choice((1, 2))):
        parts[i].uses += 1
        b.keep(b.field(whole, i), parts[i].bound).computed = parts[i].computed


@row("integers", 2)
def integers(b: Builder) -> None:
    n, rng = b.pick("int32"), b.rng
    if n is None:
        return
    if n.bound > 1e4:
        b.op(rng.choice(("minimum", "maximum")), n, b.const(7, "int32"), bound=7.0)
        return
    kind = rng.randrange(6)
    if kind == 0:
        b.op(rng.choice(("add", "subtract", "multiply")), n, b.const(rng.choice((2, 3, -1)), "int32"))
    elif kind == 1:
        b.op("floor_divide", n, b.const(rng.choice((2, 3)), "int32"))
    elif kind == 2:
        b.op("cast", b.op("minimum", n, b.const(5, "int32"), bound=5.0), dtype="float32", bound=8.0)
    elif kind == 3:
        b.op("cast", n, dtype=rng.choice(("int64", "float64")))
    elif kind == 4 and n.shape:
        b.op("sum", n, axis=-1, keepdims=True, bound=8 * n.bound)
    else:
        test = b.op(rng.choice(("less", "greater_equal")), n, b.const(rng.choice((0, 2)), "int32"))
        b.op("where", test, n, b.op("negative", n), bound=n.bound)


@row("integers")
def choose(b: Builder) -> None:
    x = b.pick()
    test = b.op("greater", x, b.const(0.1))
    b.op("where", test, x, b.op("multiply", x, b.const(0.1)), bound=x.bound)


@row("dead")
def dead(b: Builder) -> None:
    b.unused()
