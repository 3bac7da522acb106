"""Random torch.fx graphs that are well-typed by construction.

    gm = random_graph(7, size=30)                  # the same graph in every process
    gm(*gm.meta["inputs"])
    random_graph(7, mutation=True, conv=False)     # switch features on and off

Every node is run on small tensors while the graph grows, so its shape and dtype are known, and numbers that grow too
large are squashed at once. The features are a table of small functions, chosen for what a careless pass gets wrong.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import _extract_tensor_metadata

#: feature → (on by default, what it adds to a graph)
FEATURES = {
    "pointwise": (True, "element-wise operations as function, operator, method and module; arguments by place or name"),
    "identity": (True, "x+0, x*1, x*0, x/x, x-x, -(-x), exp(log(x)) and others that look free to remove"),
    "repeat": (True, "the same expression twice: as it was, with operands swapped, with one keyword changed"),
    "constant": (True, "parameters, buffers and expressions over them"),
    "views": (True, "reshape, transpose, slices, split, cat, sizes read from tensors"),
    "reduce": (True, "softmax, sums, means, matrix products, layer norm"),
    "modules": (True, "Linear, LayerNorm and activations, some of them called twice"),
    "conv": (True, "convolution chains with odd attributes, batch norm, pooling"),
    "gelu": (True, "GELU written out, in both forms, and near misses"),
    "integers": (True, "integer and boolean tensors: comparisons, argmax, where, embedding"),
    "random": (True, "dropout, rand_like, bernoulli; also where nothing uses the result"),
    "mutation": (False, "in-place operations on inputs, intermediates, views and buffers"),
    "dead": (True, "dead nodes"),
    "names": (True, "nodes, inputs and attributes named like Python builtins and keywords"),
    "outputs": (True, "several outputs, in tuples and dicts"),
}

_OPS: list[tuple[str, float, Callable]] = []
_LARGEST = 400


def random_graph(
    seed: int, size: int = 20, *, only: Sequence[str] | None = None, training: bool = False, **features: bool
) -> fx.GraphModule:
    """Return a random graph of about `size` nodes, determined by its arguments alone.

    `features` switches rows of `FEATURES` on or off; `only` switches on just those it names. Every node carries
    `meta["tensor_meta"]`; `gm.meta["inputs"]` holds example inputs. On these every value is finite and small. The
    module is in eval mode unless `training`. Time is linear in `size`. Raises TypeError for an unknown feature.
    """
    unknown = [f for f in (*features, *(only or ())) if f not in FEATURES]
    if unknown:
        raise TypeError(f"random_graph has no feature {unknown[0]!r}. It has: {', '.join(FEATURES)}.")
    on = {f: default if only is None else f in only for f, (default, _) in FEATURES.items()} | features
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed % 2**64)  # torch takes no wider ones
        build = _Builder(random.Random(seed), on, training)
        build.grow(size)
        return build.finish()


class _Builder:
    """A graph under construction. `value` holds what each node computes on the example inputs."""

    def __init__(self, rng: random.Random, on: dict[str, bool], training: bool):
        self.rng, self.on, self.training = rng, on, training
        self.graph, self.root = fx.Graph(), nn.Module()
        self.value: dict[fx.Node, Any] = {}
        self.pool: dict[Any, list[fx.Node]] = {}
        self.pure: list[fx.Node] = []
        self.waiting: deque[fx.Node] = deque()
        self.shared: list[nn.Module] = []
        self.targets: dict[int, str] = {}
        self.attributes: list[str] = []
        self.name_count = 0
        self.metas: dict[tuple, Any] = {}
        self.examples: list[Tensor] = []
        self.ops = [(op, weight) for feature, weight, op in _OPS if on[feature]]
        if not self.ops:
            raise ValueError("random_graph needs a feature that makes nodes, such as pointwise.")
        self._inputs()

    def _inputs(self) -> None:
        rng = self.rng
        batch, width = rng.choice((2, 3)), rng.choice((4, 5, 6))
        names = ["x", "y", "z", "t"]
        if self.on["names"] and rng.random() < 0.5:
            names = ["input", "len", "id", "x"]
        for name in names[: rng.choice((1, 2, 2, 3))]:
            self.placeholder(name, torch.randn(batch, width))
        if self.on["conv"] and rng.random() < 0.6:
            self.placeholder("image", torch.randn(batch, rng.choice((2, 3, 4)), rng.choice((6, 7)), rng.choice((5, 8))))
        if self.on["integers"] and rng.random() < 0.5:
            self.placeholder("tokens", torch.randint(0, 5, (batch, width)))

    # ---- making nodes

    def placeholder(self, name: str, example: Tensor) -> None:
        node = self.graph.placeholder(name)
        self.examples.append(example)
        self._keep(node, example.clone())  # an in-place operation must not change the example

    def constant(self, value: Tensor, buffer: bool | None = None) -> fx.Node:
        """Add a parameter or buffer and a node that reads it, or a second node for an existing one."""
        name = self._fresh_name("max" if self.on["names"] and self.rng.random() < 0.1 else "w")
        if self.rng.random() < 0.5 if buffer is None else buffer:
            self.root.register_buffer(name, value)
        else:
            self.root.register_parameter(name, nn.Parameter(value, requires_grad=False))
        self.attributes.append(name)
        return self.read(name)

    def read(self, name: str) -> fx.Node:
        node = self.graph.get_attr(name)
        value = getattr(self.root, name)
        self.value[node] = value.data if isinstance(value, nn.Parameter) else value
        self._note(node, value)
        return node

    def _note(self, node: fx.Node, value: Tensor) -> None:
        key = (value.shape, value.stride(), value.dtype)
        if key not in self.metas:
            self.metas[key] = _extract_tensor_metadata(value.detach())
        node.meta["tensor_meta"] = self.metas[key]
        node.meta["type"] = Tensor

    def call(self, target: Any, *args: Any, keep: bool = True, pure: bool = True, **kwargs: Any) -> fx.Node:
        """Add a node that calls a function, a method (a string) or a module, and run it."""
        real = [self._real(a) for a in args]
        named = {k: self._real(v) for k, v in kwargs.items()}
        if isinstance(target, nn.Module):
            node = self.graph.create_node("call_module", self._home(target), tuple(args), kwargs)
            value = target(*real, **named)
        elif isinstance(target, str):
            node = self.graph.create_node("call_method", target, tuple(args), kwargs)
            value = getattr(real[0], target)(*real[1:], **named)
        else:
            name = None
            if self.on["names"] and self.rng.random() < 0.03:
                name = self.rng.choice(("lambda", "sum", "in", "print", "class", "torch"))
            node = self.graph.create_node("call_function", target, tuple(args), kwargs, name=name)
            value = target(*real, **named)
        if pure and len(self.pure) < 1000:
            self.pure.append(node)
        elif pure:
            self.pure[self.rng.randrange(1000)] = node
        return self._keep(node, value, keep)

    def _real(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return self.value[arg]
        if isinstance(arg, (tuple, list)):
            return type(arg)(self._real(a) for a in arg)
        return arg

    def _keep(self, node: fx.Node, value: Any, pool: bool = True) -> fx.Node:
        self.value[node] = value
        if isinstance(value, Tensor):
            self._note(node, value)
            if pool and 0 < value.numel() <= _LARGEST:
                if value.is_floating_point():
                    node = self._squash(node, value)
                    value = self.value[node]
                self.offer(node, value)
        return node

    def _squash(self, node: fx.Node, value: Tensor) -> fx.Node:
        top = float(value.abs().max())
        if not math.isfinite(top):
            return self.call(torch.nan_to_num, node, keep=True, nan=0.5, posinf=2.0, neginf=-2.0)
        return self.call(operator.mul, node, 2.0 ** -math.ceil(math.log2(top / 4))) if top > 10 else node

    def offer(self, node: fx.Node, value: Tensor) -> None:
        """Let later nodes use this one."""
        kind = "float" if value.dtype == torch.float32 else "bool" if value.dtype == torch.bool else "other"
        kind = "int" if value.dtype == torch.int64 else kind
        if kind == "float":
            self.waiting.append(node)
        for key in (kind, (kind, value.dim()), (kind, tuple(value.shape))):
            self.pool.setdefault(key, []).append(node)

    def _fresh_name(self, stem: str) -> str:
        self.name_count += 1
        return f"{stem}{self.name_count}"

    def _home(self, module: nn.Module) -> str:
        if id(module) not in self.targets:
            name = self._fresh_name("print" if self.on["names"] and self.rng.random() < 0.1 else "block")
            self.targets[id(module)] = name
            self.root.add_module(name, module)
        return self.targets[id(module)]

    # ---- choosing operands

    def pick(self, kind: str = "float", dim: int | None = None, shape: tuple | None = None) -> fx.Node | None:
        """Pick a node of that sort: mostly a recent unused one, sometimes any (which makes fan-out)."""
        candidates = self.pool.get(kind if dim is None and shape is None else (kind, dim if shape is None else shape))
        if not candidates:
            return None
        if self.rng.random() < 0.2:
            return self.rng.choice(candidates)
        for _ in range(4):
            node = candidates[max(0, len(candidates) - 1 - int(self.rng.expovariate(0.2)))]
            if not node.users:
                break
        return node

    def shape(self, node: fx.Node) -> tuple:
        return tuple(self.value[node].shape)

    def module(self, make: Callable[[], nn.Module], fits: Callable[[nn.Module], bool]) -> nn.Module:
        """Return a new module, or one that is already called elsewhere."""
        if self.rng.random() < 0.5:
            for m in self.shared[-12:]:
                if fits(m):
                    return m
        m = make().train(self.training)
        self.shared.append(m)
        return m

    # ---- whole graphs

    def grow(self, size: int) -> None:
        ops, weights = zip(*self.ops, strict=True)
        cumulative = list(itertools.accumulate(weights))
        while len(self.value) < size:
            op = self.rng.choices(ops, cum_weights=cumulative)[0]
            op = _join if len(self.waiting) > 5 and self.on["pointwise"] and self.rng.random() < 0.6 else op
            op(self)

    def finish(self) -> fx.GraphModule:
        rng = self.rng
        offered = list(dict.fromkeys(n for kind in ("float", "int", "bool", "other") for n in self.pool.get(kind, ())))
        place = {n: i for i, n in enumerate(self.value)}
        offered.sort(key=place.__getitem__)
        if self.on["dead"]:
            ends = [n for n in offered[-30:] if not n.users and n.op != "placeholder"] or offered[-1:]
            chosen = [n for n in ends if rng.random() < 0.75][-8:] if self.on["outputs"] else []
            chosen = chosen or ends[-1:]
            if len(chosen) > 1 and rng.random() < 0.2:
                chosen.append(rng.choice((chosen[0], rng.choice(offered))))  # the same value twice, or an inner one
        else:
            chosen = [n for n in offered if not n.users] or [offered[-1]]
        self.graph.output(self._arrange(chosen))
        gm = fx.GraphModule(self.root, self.graph)
        gm.train(self.training)
        gm.meta["inputs"] = tuple(self.examples)
        gm.graph.lint()
        return gm

    def _arrange(self, chosen: list[fx.Node]) -> Any:
        style = self.rng.choice(("tuple", "tuple", "dict", "nested")) if self.on["outputs"] else "tuple"
        if len(chosen) == 1 and style != "dict":
            return chosen[0]
        if style == "dict":
            return {f"out{i}": n for i, n in enumerate(chosen)}
        return (chosen[0], tuple(chosen[1:])) if style == "nested" else tuple(chosen)


def _op(feature: str, weight: float = 1.0):
    def enter(fn: Callable) -> Callable:
        _OPS.append((feature, weight, fn))
        return fn

    return enter


# ---------------------------------------------------------------------------------------------------- element-wise

#: the forms of one operation: function, operator, method (a string), module
UNARY = (
    (F.relu, torch.relu, "relu", nn.ReLU),
    (torch.tanh, F.tanh, "tanh", nn.Tanh),
    (torch.sigmoid, "sigmoid", nn.Sigmoid),
    (torch.neg, operator.neg, "neg"),
    (torch.abs, "abs", abs),
    (torch.sin, "sin"),
    (torch.cos, "cos"),
    (torch.erf, "erf"),
    (F.gelu, nn.GELU),
    (F.silu, nn.SiLU),
    (F.leaky_relu, nn.LeakyReLU),
    (F.softplus, nn.Softplus),
    (F.hardtanh, nn.Hardtanh, F.relu6),
)
BINARY = (
    (torch.add, operator.add, "add"),
    (torch.sub, operator.sub, "sub"),
    (torch.mul, operator.mul, "mul"),
    (torch.maximum, "maximum"),
    (torch.minimum, "minimum"),
)
ADD, SUB, MUL = BINARY[:3]
COMMUTE = (torch.add, operator.add, "add", torch.mul, operator.mul, "mul", torch.maximum, torch.minimum)


def _form(b: _Builder, forms: Sequence[Any]) -> Any:
    usable = [f for f in forms if not isinstance(f, type) or b.on["modules"]]
    form = b.rng.choice(usable)
    return b.module(form, lambda m: type(m) is form) if isinstance(form, type) else form


@_op("pointwise", 3)
def _unary(b: _Builder) -> None:
    x = b.pick()
    form = _form(b, b.rng.choice(UNARY))
    if form in (F.relu, F.gelu, F.silu, torch.tanh, torch.sin, torch.neg) and b.rng.random() < 0.2:
        b.call(form, input=x)
    else:
        b.call(form, x)


@_op("pointwise", 3)
def _binary(b: _Builder) -> None:
    x = b.pick()
    y = b.pick(shape=b.shape(x))
    form = b.rng.choice(b.rng.choice(BINARY))
    if form in (torch.add, torch.sub) and b.rng.random() < 0.3:
        b.call(form, x, y, alpha=b.rng.choice((1, 2, -1)))
    elif form in (torch.add, torch.mul, torch.sub) and b.rng.random() < 0.2:
        b.call(form, x, other=y)
    else:
        b.call(form, x, y)


def _broadcasts(*shapes: tuple) -> bool:
    try:
        return math.prod(torch.broadcast_shapes(*shapes)) <= _LARGEST
    except RuntimeError:
        return False


@_op("pointwise", 1)
def _join(b: _Builder) -> None:
    """Use the nodes that have been unused longest; a few of them stay dead ends."""
    while b.waiting and (b.waiting[0].users or (b.on["dead"] and b.rng.random() < 0.15)):
        b.waiting.popleft()
    if len(b.waiting) < 2:
        return
    old = b.waiting.popleft()
    recent = [b.waiting[-1 - i] for i in range(min(5, len(b.waiting)))]
    x = next((n for n in recent if _broadcasts(b.shape(n), b.shape(old))), recent[0])
    if not _broadcasts(b.shape(x), b.shape(old)):
        if not b.on["reduce"]:
            return
        old = b.call("mean", old)
    b.call(_form(b, ADD), x, old)


@_op("pointwise", 1)
def _scalar(b: _Builder) -> None:
    x, c = b.pick(), b.rng.choice((2, 0.5, 1.5, -1, 3.0))
    form = b.rng.choice((operator.add, operator.mul, operator.sub, operator.truediv, torch.add, torch.mul))
    if form in (operator.add, operator.mul, operator.sub) and b.rng.random() < 0.4:
        b.call(form, c, x)
    else:
        b.call(form, x, c)


@_op("pointwise", 0.7)
def _power(b: _Builder) -> None:
    x, k = b.pick(), b.rng.choice((1, 2, 3, 2.0))
    b.call(*b.rng.choice(((torch.pow, x, k), (operator.pow, x, k), ("pow", x, k), (torch.square, x))))


@_op("pointwise", 0.5)
def _divide(b: _Builder) -> None:
    x = b.pick()
    below = b.call(operator.add, b.call(torch.sigmoid, b.pick(shape=b.shape(x))), 1.0)
    b.call(b.rng.choice((operator.truediv, torch.div)), x, below)


@_op("pointwise", 0.5)
def _clamp(b: _Builder) -> None:
    low, high = b.rng.choice(((-1, 1), (0.0, 6.0), (-0.5, None), (None, 0.5)))
    b.call(b.rng.choice((torch.clamp, "clamp")), b.pick(), min=low, max=high)


# ---------------------------------------------------------------------------------------------------- looks free

IDENTITIES: tuple[Callable, ...] = (
    lambda b, x: b.call(_form(b, ADD), x, 0),
    lambda b, x: b.call(operator.add, 0.0, x),
    lambda b, x: b.call(_form(b, SUB), x, 0),
    lambda b, x: b.call(operator.sub, 0, x),
    lambda b, x: b.call(_form(b, MUL), x, 1),
    lambda b, x: b.call(operator.mul, 1.0, x),
    lambda b, x: b.call(operator.truediv, x, 1),
    lambda b, x: b.call(torch.pow, x, 1),
    lambda b, x: b.call(operator.add, x, b.call(_form(b, MUL), x, 0, keep=False)),  # x must not be dropped
    lambda b, x: b.call(operator.add, b.call(operator.mul, 0.0, x, keep=False), x),
    lambda b, x: b.call(torch.sub, x, b.call(_form(b, SUB), x, x, keep=False)),
    lambda b, x: b.call(torch.mul, x, b.call(operator.truediv, x, x, keep=False)),
    lambda b, x: b.call(torch.neg, b.call(operator.neg, x)),
    lambda b, x: b.call(F.relu, b.call(torch.relu, x)),
    lambda b, x: b.call("abs", b.call(torch.abs, x)),
    lambda b, x: b.call(torch.exp, b.call(torch.log, x, keep=False)),
    lambda b, x: b.call(torch.exp, b.call(torch.log, b.call(torch.sigmoid, x))),
    lambda b, x: b.call(torch.log, b.call(torch.exp, x)),
    lambda b, x: b.call(torch.sqrt, b.call(torch.square, x)),
    lambda b, x: b.call(F.dropout, x, 0.5, False),
    lambda b, x: b.call("contiguous", x),
    lambda b, x: b.call("to", x, torch.float32),
)


@_op("identity", 3)
def _identity(b: _Builder) -> None:
    b.rng.choice(IDENTITIES)(b, b.pick())


@_op("identity", 0.5)
def _broadcast_identity(b: _Builder) -> None:
    """Add x + zeros and x * ones, where the constant may determine the shape of the result."""
    x = b.pick()
    shape = b.shape(x)
    larger = b.rng.choice((shape, shape[-1:], (2, *shape), (1,) * len(shape)))
    if math.prod(larger) > _LARGEST or len(larger) > 4:
        return
    one = b.rng.random() < 0.5
    constant = b.constant(torch.ones(larger) if one else torch.zeros(larger), buffer=True)
    b.call(b.rng.choice(MUL[:2] if one else ADD[:2]), *b.rng.sample((x, constant), 2))


# ---------------------------------------------------------------------------------------------------- repeats


@_op("repeat", 2.5)
def _again(b: _Builder) -> None:
    """Repeat an earlier call, sometimes with commuting operands swapped, or an argument given by name."""
    if not b.pure:
        return
    node = b.pure[max(0, len(b.pure) - 1 - int(b.rng.expovariate(0.15)))]
    target = b.root.get_submodule(node.target) if node.op == "call_module" else node.target
    args, kwargs = node.args, dict(node.kwargs)
    if target in COMMUTE and len(args) == 2 and all(isinstance(a, fx.Node) for a in args) and not kwargs:
        args = args if b.rng.random() < 0.5 else args[::-1]
    if target in (torch.add, torch.mul) and len(args) == 2 and b.rng.random() < 0.3:
        args, kwargs = args[:1], {**kwargs, "other": args[1]}
    b.call(target, *args, **kwargs)


#: a call and two sets of keywords: merging the two calls is wrong
TWINS = (
    (torch.add, 2, {"alpha": 1}, {"alpha": 2}),
    (torch.sub, 2, {}, {"alpha": 3}),
    (F.softmax, 1, {"dim": -1}, {"dim": 0}),
    (F.gelu, 1, {}, {"approximate": "tanh"}),
    (F.leaky_relu, 1, {"negative_slope": 0.1}, {"negative_slope": 0.3}),
    (torch.clamp, 1, {"min": 0.0}, {"max": 0.0}),
    (torch.sum, 1, {"dim": -1, "keepdim": True}, {"dim": -1, "keepdim": False}),
    (torch.mul, 2, {}, {}),
)


@_op("repeat", 1)
def _twins(b: _Builder) -> None:
    target, count, first, second = b.rng.choice(TWINS)
    x = b.pick()
    if not b.shape(x):
        return
    args = (x, b.pick(shape=b.shape(x)))[:count]
    b.call(target, *args, **first)
    b.call(target, *args, **second)


# ---------------------------------------------------------------------------------------------------- constants


@_op("constant", 1)
def _parameter(b: _Builder) -> None:
    x = b.pick()
    if b.attributes and b.rng.random() < 0.4:
        w = b.read(b.rng.choice(b.attributes[-8:]))
    else:
        w = b.constant(torch.randn(b.shape(x)[-1:]))
    if _broadcasts(b.shape(w), b.shape(x)):
        b.call(b.rng.choice((*ADD[:2], *MUL[:2])), *b.rng.sample((x, w), 2))


@_op("constant", 1)
def _constant_expression(b: _Builder) -> None:
    """Add an expression that can be computed ahead of time, and one operation that uses it."""
    x = b.pick()
    w = b.constant(torch.rand(b.shape(x)[-1:]) + 0.5)
    for _ in range(b.rng.choice((1, 2, 3))):
        other = b.read(w.target) if w.op == "get_attr" else w
        w = b.rng.choice(
            (
                lambda w=w: b.call(operator.mul, w, 2.0, keep=False),
                lambda w=w: b.call(torch.sqrt, b.call(torch.abs, w, keep=False), keep=False),
                lambda w=w, o=other: b.call(torch.add, w, o, keep=False),
                lambda w=w: b.call(torch.tanh, w, keep=False),
                lambda w=w: b.call("flip", w, 0, keep=False) if b.shape(w) else w,
                lambda w=w: b.call(
                    torch.rsqrt, b.call(operator.add, b.call(torch.square, w, keep=False), 1.0, keep=False)
                ),
            )
        )()
    b.call(b.rng.choice((operator.add, torch.mul)), x, w)


@_op("constant", 0.5)
def _weight_product(b: _Builder) -> None:
    """Add a matrix product with a transposed weight, and one that draws random numbers on a constant."""
    x = b.pick(dim=2)
    if x is None:
        return
    rows = b.rng.choice((4, 5))
    w = b.constant(torch.randn(rows, b.shape(x)[1]) / 2)
    w = b.call(b.rng.choice(("t", torch.t)), w, keep=False)
    if b.on["random"] and b.rng.random() < 0.2:
        w = b.call(F.dropout, w, p=0.3, training=True, keep=False, pure=False)
    b.call(b.rng.choice((torch.matmul, operator.matmul, torch.mm)), x, w)


# ---------------------------------------------------------------------------------------------------- views and shapes


@_op("views", 2)
def _view(b: _Builder) -> None:
    x = b.pick()
    shape, rng = b.shape(x), b.rng
    n, last = math.prod(shape), len(shape) - 1
    moves = [
        lambda: b.call("reshape", x, -1, shape[-1] if shape else 1),
        lambda: b.call("unsqueeze", x, rng.choice((0, -1))) if len(shape) < 4 else None,
        lambda: b.call(torch.reshape, x, (n,)),
        lambda: b.call("flatten", x),
    ]
    if len(shape) >= 2:
        moves += [
            lambda: b.call(torch.transpose, x, 0, last),
            lambda: b.call("transpose", x, dim0=-1, dim1=-2),
            lambda: b.call("permute", x, *rng.sample(range(len(shape)), len(shape))),
            lambda: b.call("contiguous", b.call(torch.transpose, x, 0, 1)),
            lambda: b.call("view", b.call("contiguous", x), b.call("size", x, 0, keep=False), -1),
            lambda: b.call(operator.getitem, x, (slice(None), slice(1, None))) if shape[1] > 1 else None,
            lambda: b.call(operator.getitem, x, 0),
            lambda: b.call(torch.flip, x, (0,)),
        ]
    if shape and shape[0] == 1:
        moves.append(lambda: b.call("expand", x, rng.choice((2, 3)), *[-1] * last))
        moves.append(lambda: b.call("squeeze", x, 0))
    rng.choice(moves)()


@_op("views", 0.7)
def _split_cat(b: _Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    if not shape or shape[-1] < 2:
        return
    if b.rng.random() < 0.6:
        parts = b.call(torch.chunk, x, 2, dim=-1) if b.rng.random() < 0.5 else b.call("split", x, 1, -1)
        for i in range(b.rng.choice((1, 2))):
            b.call(operator.getitem, parts, i)
    else:
        y = b.pick(shape=shape)
        b.call(b.rng.choice((torch.cat, torch.stack)), b.rng.choice(([x, y], (x, y))), dim=b.rng.choice((0, -1)))


@_op("views", 0.3)
def _size_arithmetic(b: _Builder) -> None:
    """Add a number read from a shape: not a constant, since it varies with the batch."""
    x = b.pick()
    if b.shape(x):
        n = b.call("size", x, 0, keep=False)
        b.call(operator.truediv, x, b.call(operator.add, n, 1, keep=False) if b.rng.random() < 0.5 else n)


# ---------------------------------------------------------------------------------------------------- reductions


@_op("reduce", 1.2)
def _reduce(b: _Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    if not shape:
        return
    keep = b.rng.choice((True, True, False))
    if shape[-1] == 1:  # softmax and layer norm of one number do not depend on it
        b.call(torch.sum, x, dim=-1, keepdim=keep)
        return
    b.rng.choice(
        (
            lambda: b.call(F.softmax, x, dim=-1),
            lambda: b.call(F.softmax, x, -1),
            lambda: b.call("softmax", x, dim=0),
            lambda: b.call(torch.sum, x, dim=-1, keepdim=keep),
            lambda: b.call("mean", x, -1, keepdim=keep),
            lambda: b.call("mean", x, dim=0, keepdim=True),
            lambda: b.call(torch.amax, x, dim=-1, keepdim=True),
            lambda: b.call(operator.getitem, b.call(torch.max, x, dim=-1, keepdim=True), 0),
            lambda: b.call(torch.cumsum, x, dim=-1),
            lambda: b.call(F.layer_norm, x, (shape[-1],)),
            lambda: b.call(torch.sum, x),
        )
    )()


@_op("reduce", 0.7)
def _matmul(b: _Builder) -> None:
    x = b.pick(dim=2)
    if x is None:
        return
    y = b.pick(shape=b.shape(x))
    t = b.call(b.rng.choice(("t", torch.t)), y)
    b.call(b.rng.choice((torch.matmul, operator.matmul, torch.mm)), x, t)


# ---------------------------------------------------------------------------------------------------- modules


@_op("modules", 1.5)
def _linear(b: _Builder) -> None:
    x = b.pick()
    if not b.shape(x):
        return
    width = b.shape(x)[-1]
    m = b.module(
        lambda: nn.Linear(width, b.rng.choice((width, 4, 5)), bias=b.rng.random() < 0.7),
        lambda m: isinstance(m, nn.Linear) and m.in_features == width,
    )
    y = b.call(m, x)
    if b.rng.random() < 0.4:
        b.call(F.relu, y)


@_op("modules", 0.5)
def _norm(b: _Builder) -> None:
    x = b.pick()
    if not b.shape(x) or b.shape(x)[-1] == 1:
        return
    width = b.shape(x)[-1]
    b.call(
        b.module(lambda: nn.LayerNorm(width), lambda m: isinstance(m, nn.LayerNorm) and m.normalized_shape == (width,)),
        x,
    )


# ---------------------------------------------------------------------------------------------------- convolutions


def _convolution(rng: random.Random, channels: int, kind: str) -> nn.Module:
    groups = rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = groups * rng.choice((1, 2))
    kernel = rng.choice((1, 3, 3, (3, 1), 2))
    common = {"stride": rng.choice((1, 1, 2, (2, 1))), "groups": groups, "bias": rng.random() < 0.6}
    if kind == "transposed":
        return nn.ConvTranspose2d(channels, out, kernel, padding=rng.choice((0, 1)) if kernel == 3 else 0, **common)
    return nn.Conv2d(
        channels,
        out,
        kernel,
        padding=rng.choice((0, 1, (1, 0))),
        dilation=rng.choice((1, 1, 2)),
        padding_mode=rng.choice(("zeros", "zeros", "reflect", "circular", "replicate")),
        **common,
    )


def _batch_norm(rng: random.Random, channels: int) -> nn.BatchNorm2d:
    bn = nn.BatchNorm2d(channels, eps=rng.choice((1e-5, 1e-3)), affine=rng.random() < 0.7)
    bn.running_mean.uniform_(-0.5, 0.5)
    bn.running_var.uniform_(0.5, 1.5)
    if bn.affine:
        bn.weight.data.uniform_(0.5, 1.5)
        bn.bias.data.uniform_(-0.5, 0.5)
    return bn


@_op("conv", 2)
def _conv_chain(b: _Builder) -> None:
    """Add conv -> batch norm -> activation, some parts left out, some with a second consumer."""
    rng, x = b.rng, b.pick(dim=4)
    if x is None or min(b.shape(x)[2:]) < 3:
        return
    channels, kind = b.shape(x)[1], "transposed" if rng.random() < 0.1 else "plain"
    conv = b.module(
        lambda: _convolution(rng, channels, kind),
        lambda m: isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)) and m.in_channels == channels,
    )
    try:
        conv(b.value[x])
    except RuntimeError:  # the kernel is larger than the image
        return
    y = b.call(conv, x)
    if rng.random() < 0.7:
        y = b.call(b.module(lambda: _batch_norm(rng, b.shape(y)[1]), lambda m: False), y)
    if rng.random() < 0.7:
        b.call(_form(b, rng.choice(UNARY[:3])), y)


@_op("conv", 0.5)
def _conv_function(b: _Builder) -> None:
    x = b.pick(dim=4)
    if x is None or min(b.shape(x)[2:]) < 3:
        return
    channels = b.shape(x)[1]
    w = b.constant(torch.randn(channels, channels, 3, 3) / 4)
    y = b.call(F.conv2d, x, w, padding=b.rng.choice((0, 1, "same")))
    if b.rng.random() < 0.6:
        b.call(F.relu, y)


@_op("conv", 0.6)
def _pool(b: _Builder) -> None:
    x = b.pick(dim=4)
    if x is None or min(b.shape(x)[2:]) < 3:
        return
    b.rng.choice(
        (
            lambda: b.call(F.max_pool2d, x, 2),
            lambda: b.call(F.avg_pool2d, x, kernel_size=3, stride=1, padding=1, count_include_pad=False),
            lambda: b.call(b.module(lambda: nn.AdaptiveAvgPool2d(1), lambda m: isinstance(m, nn.AdaptiveAvgPool2d)), x),
            lambda: b.call("mean", x, (2, 3)),
            lambda: b.call(torch.flatten, x, 1),
        )
    )()


# ---------------------------------------------------------------------------------------------------- GELU


@_op("gelu", 0.7)
def _gelu(b: _Builder) -> None:
    """Add x/2 (1 + erf(x/sqrt 2)) or its tanh form, operands in any order; one in three has a wrong constant."""
    rng, x = b.rng, b.pick()
    half, root, cube, inner = 0.5, math.sqrt(0.5), 0.044715, math.sqrt(2 / math.pi)
    if rng.random() < 0.35:
        half, root, cube = rng.choice(
            ((0.6, root, cube), (half, 0.7, cube), (half, root, 0.0447), (half, root, 0.144715))
        )

    def commuted(op: Any, *operands: Any) -> fx.Node:
        return b.call(op, *rng.sample(operands, 2), keep=False)

    if rng.random() < 0.5:
        divide = rng.random() < 0.5
        scaled = b.call(operator.truediv, x, 1 / root, keep=False) if divide else commuted(operator.mul, x, root)
        gate = b.call(torch.erf, scaled, keep=False)
    else:
        cubed = commuted(operator.mul, b.call(torch.pow, x, 3, keep=False), cube)
        gate = b.call(torch.tanh, commuted(operator.mul, commuted(operator.add, x, cubed), inner), keep=False)
    plus = commuted(operator.add, gate, 1.0)
    if rng.random() < 0.5:
        b.call(operator.mul, *rng.sample((commuted(operator.mul, x, half), plus), 2))
    else:
        b.call(operator.mul, *rng.sample((commuted(operator.mul, x, plus), half), 2))


# ---------------------------------------------------------------------------------------------------- integers


@_op("integers", 1)
def _to_integers(b: _Builder) -> None:
    x = b.pick()
    if not b.shape(x):
        return
    b.rng.choice(
        (
            lambda: b.call(operator.gt, x, 0),
            lambda: b.call(torch.le, x, b.pick(shape=b.shape(x))),
            lambda: b.call(torch.argmax, x, dim=-1),
            lambda: b.call("argmax", x, -1, keepdim=True),
            lambda: b.call("long", b.call(operator.mul, x, 3)),
        )
    )()


@_op("integers", 1)
def _on_integers(b: _Builder) -> None:
    """Add arithmetic that keeps integers, and arithmetic that silently turns them into floats."""
    i = b.pick("int")
    if i is None:
        return
    small = b.call(torch.remainder, i, 7)
    b.rng.choice(
        (
            lambda: b.call(operator.add, small, 0.0),
            lambda: b.call(operator.mul, small, 1.0),
            lambda: b.call(operator.truediv, small, 1),
            lambda: b.call(operator.add, small, 0),
            lambda: b.call(operator.mul, small, 1),
            lambda: b.call(operator.mul, small, 0),
            lambda: b.call(operator.sub, small, small),
            lambda: b.call(operator.mul, small, 2),
            lambda: b.call(operator.floordiv, small, 2),
            lambda: b.call("float", small),
            lambda: b.call(b.module(lambda: nn.Embedding(7, 4), lambda m: isinstance(m, nn.Embedding)), small),
        )
    )()


@_op("integers", 0.6)
def _where(b: _Builder) -> None:
    mask = b.pick("bool")
    if mask is None:
        return
    x = b.pick(shape=b.shape(mask))
    if x is not None:
        y = b.pick(shape=b.shape(mask))
        b.rng.choice(
            (
                lambda: b.call(torch.where, mask, x, y),
                lambda: b.call("masked_fill", x, mask, 0.5),
                lambda: b.call(operator.mul, x, mask),
                lambda: b.call(operator.and_, mask, b.pick("bool", shape=b.shape(mask))),
            )
        )()


# ---------------------------------------------------------------------------------------------------- random


@_op("random", 1.3)
def _draw(b: _Builder) -> None:
    """Add random draws: no two are the same expression, and dropping one changes those that follow."""
    x, rng = b.pick(), b.rng
    draws = (
        lambda: b.call(F.dropout, x, p=0.3, training=True, pure=False),
        lambda: b.call(torch.rand_like, x, pure=False),
        lambda: b.call(torch.randn_like, x, pure=False),
        lambda: b.call(torch.bernoulli, b.call(torch.sigmoid, b.call(torch.nan_to_num, x)), pure=False),
    )
    draw = rng.choice(draws)
    if b.on["modules"] and rng.random() < 0.2:
        dropout = b.module(lambda: nn.Dropout(0.4), lambda m: isinstance(m, nn.Dropout))
        b.call(dropout, x, pure=False)
        if rng.random() < 0.5:
            b.call(dropout, x, pure=False)
    else:
        first = draw()
        if rng.random() < 0.4:
            b.call(operator.add, first, draw())


@_op("random", 0.4)
def _dead_draw(b: _Builder) -> None:
    """Add an unused random draw: the draws that follow still depend on it."""
    b.call(b.rng.choice((torch.rand_like, torch.randn_like)), b.pick(), keep=False, pure=False)


# ---------------------------------------------------------------------------------------------------- mutation


def _writable(b: _Builder) -> fx.Node | None:
    x = b.pick()
    t = b.value[x]
    return x if t.dim() and 0 not in t.stride() and x.op != "get_attr" else None


@_op("mutation", 2.5)
def _in_place(b: _Builder) -> None:
    """Add a read, a write and a second read: the reads look alike but differ."""
    x = _writable(b)
    if x is None:
        return
    rng, y = b.rng, b.pick(shape=b.shape(x))
    read = rng.choice((torch.tanh, torch.sin, torch.cos))
    if rng.random() < 0.6:
        b.call(read, x, pure=False)
    rng.choice(
        (
            lambda: b.call("mul_", x, 0.5, pure=False),
            lambda: b.call("add_", x, b.call(torch.tanh, y, pure=False), pure=False),
            lambda: b.call(F.relu, x, inplace=True, pure=False),
            lambda: b.call(torch.relu_, x, pure=False),
            lambda: b.call("clamp_", x, -1, 1, pure=False),
            lambda: b.call(operator.setitem, x, 0, 0.25, keep=False, pure=False),
            lambda: b.call(operator.imul, x, 0.5, pure=False),
            lambda: b.call("zero_", b.call(operator.getitem, x, 0, pure=False), keep=False, pure=False),
            lambda: b.call("copy_", x, b.call(torch.sigmoid, y, pure=False), keep=False, pure=False),
        )
    )()
    if rng.random() < 0.6:
        b.call(read, x, pure=False)


@_op("mutation", 0.3)
def _count_calls(b: _Builder) -> None:
    """Add a buffer that the program updates at every run."""
    counter = b.constant(torch.zeros(1), buffer=True)
    b.attributes.remove(counter.target)
    b.call("add_", counter, 1.0, keep=False, pure=False)
