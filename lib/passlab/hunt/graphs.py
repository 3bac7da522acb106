"""Graphs for tests of passes: the patterns that passes look for, each with something that makes it another program.

    gm = drawn_graph(7)                 # the same graph in every process; gm.meta["inputs"] holds example inputs

A pass is seldom wrong on a program that it does not touch, nor on the one that its author had in mind. So three of four
graphs consist of patterns (layers, attention, GELU, twins, identities, constants, ends without a reader), and between
their parts something may be written, read once more, or called again; a neighbour may stand in for an operation; a
number may have another type, a module a misleading name. Every fourth graph is a `passlab.random_graph` with features
that are drawn, too (swarm testing: Groce and others, ISSTA 2012).
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from passlab.fx.generate import FEATURES, random_graph
from passlab.fx.programs import Program, preserve_state

#: A proxy. Functions of torch take it for a tensor, and their types do not say so.
Value = Any
#: Every so many graphs have a chain that is longer than Python's stack.
LONG = 25


def drawn_graph(seed: int, size: int = 14) -> fx.GraphModule:
    """Return a graph that is well typed and runs, determined by its arguments: six patterns, or `size` random nodes.

    Its inputs, in `meta["inputs"]`, are small. It may write into them and draw random numbers. It may be in training
    mode.
    """
    rng = random.Random(f"hunt {seed}")
    if seed % 4 == 3:
        features: Any = {name: rng.random() < 0.7 for name in FEATURES} | {"pointwise": True}
        return random_graph(seed, size, training=rng.random() < 0.2, **features)
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.randrange(2**31))
            gm = _sketched(rng, long=seed % LONG == 0)
        if gm is not None:
            return gm


def _sketched(rng: random.Random, long: bool) -> fx.GraphModule | None:
    """Return a graph of six patterns, or None if it does not run."""
    sketch = Sketch(rng)
    try:
        for _ in range(6):
            rng.choice(PATTERNS)(sketch)
    except (TypeError, RuntimeError):  # an operation that Proxies do not have
        return None
    if long:
        _chain(sketch)
    gm = sketch.finish()
    program = Program(gm)
    if program.run(gm.meta["inputs"]).error is not None:
        return None
    with preserve_state(program):
        ShapeProp(gm).propagate(*(x.clone() for x in gm.meta["inputs"]))
    return gm


class Sketch:
    """A graph under construction. Its inputs: matrices x and heads, an image, integers n, and small ones of 8 bits."""

    def __init__(self, rng: random.Random):
        self.rng, self.graph, self.root = rng, fx.Graph(), nn.Module()
        self.tracer = fx.proxy.GraphAppendingTracer(self.graph)
        self.examples: list[Tensor] = []
        self.outputs: list[Value] = []
        self.layers: list[str] = []
        self.x = self._input("x", torch.randn(4, 4))
        self.heads = self._input("heads", torch.randn(2, 4, 4))
        self.image = self._input("image", torch.randn(2, 2, 6, 6))
        self.n = self._input("n", torch.randint(-3, 4, (4,)))
        self.small = self._input("small", torch.randint(0, 9, (4,), dtype=torch.uint8))

    def _input(self, name: str, example: Tensor) -> Value:
        self.examples.append(example)
        return fx.Proxy(self.graph.placeholder(name), self.tracer)

    def read(self, path: str) -> Value:
        """Add a read of an attribute."""
        return fx.Proxy(self.graph.get_attr(path), self.tracer)

    def weight(self, *shape: int) -> str:
        """Add a weight, and return its path."""
        path = f"w{len(dict(self.root.named_parameters()))}"
        self.root.register_parameter(path, nn.Parameter(torch.randn(*shape), requires_grad=False))
        return path

    def buffer(self, value: Tensor) -> Value:
        """Add a constant, and a read of it."""
        path = f"constant{len(dict(self.root.named_buffers()))}"
        self.root.register_buffer(path, value)
        return self.read(path)

    def layer(self, module: nn.Module, name: str = "") -> Callable[..., Value]:
        """Add a module, in training mode now and then, and return what calls it. Its path: the last of `layers`."""
        path = name if name and not hasattr(self.root, name) else f"layer{len(self.layers)}"
        module.train(self.rng.random() < 0.2).requires_grad_(False)
        self.root.add_module(path, module)
        self.layers.append(path)
        return lambda *args: fx.Proxy(self.graph.call_module(path, tuple(a.node for a in args)), self.tracer)

    def call(self, target: Callable, *args: Any, **kwargs: Any) -> Value:
        """Add a call of a function, whatever its arguments are."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def between(self, *values: Value, often: float = 0.25) -> None:
        """Write into one of the values, or return it, or do nothing."""
        x = self.rng.choice(values)
        if self.rng.random() < often:
            self.rng.choice((self._written, self._written, self.outputs.append))(x)

    def _written(self, x: Value) -> None:
        ways = (
            lambda: x.add_(1),
            lambda: x.view(-1).add_(1),
            lambda: x.mul_(2),
            lambda: x.detach().zero_(),
            lambda: self.call(operator.setitem, x, 0, 2.0),
            lambda: self.call(operator.iadd, x, 1),
            lambda: self.call(torch.mul, x, 0.5, out=x),
            lambda: self.call(F.relu, x, inplace=True),
        )
        self.rng.choice(ways)()

    def some(self, *ways: Callable[[], Value]) -> Value:
        """Add what one of the functions adds: the first in half of all cases."""
        return ways[0]() if self.rng.random() < 0.5 else self.rng.choice(ways)()

    def finish(self) -> fx.GraphModule:
        """Return the graph: some of the outputs, at least one."""
        kept = [x.node for x in self.outputs if self.rng.random() < 0.85] or [self.outputs[-1].node]
        self.graph.output(tuple(kept))
        gm = fx.GraphModule(self.root, self.graph)
        gm.training = False
        gm.meta["inputs"] = tuple(self.examples)
        return gm


# ---------------------------------------------------------------------------------------------------- neural networks


class _OtherNorm(nn.BatchNorm2d):
    """A batch norm that doubles what it normalises: a subclass may compute something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def _activation(s: Sketch, y: Value) -> Value:
    ways = (
        *(lambda f=f: f(y) for f in (F.relu, torch.relu, F.gelu, F.silu, F.relu6, F.leaky_relu, torch.tanh)),
        *(lambda m=m: s.layer(m)(y) for m in (nn.ReLU(), nn.ReLU(), nn.ReLU6(), nn.SiLU(), nn.GELU("tanh"))),
        lambda: y.relu(),
        lambda: F.gelu(y, approximate="tanh"),
        lambda: s.layer(nn.Tanh(), s.rng.choice(("relu", "silu", "gelu")))(y),
    )
    return s.some(*ways)


def _norm(rng: random.Random, channels: int) -> nn.BatchNorm2d:
    norm = rng.choice((nn.BatchNorm2d, nn.BatchNorm2d, _OtherNorm))(
        channels, eps=rng.choice((1e-5, 1e-2)), affine=rng.random() < 0.7
    )
    norm.running_mean.uniform_(-0.5, 0.5)  # type: ignore[union-attr]
    norm.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    if norm.affine:
        norm.weight.data.uniform_(0.5, 1.5)
        norm.bias.data.uniform_(-0.5, 0.5)
    return norm


def _convolution(s: Sketch) -> None:
    """Add convolution, batch norm, activation: some left out, in another order, with another reader, called again."""
    rng, y = s.rng, s.image
    if rng.random() < 0.2:
        y = s.layer(_norm(rng, 2))(y)
    mode: Any = rng.choice(("zeros", "zeros", "reflect", "circular"))
    conv = s.layer(
        nn.Conv2d(2, 2, 3, rng.choice((1, 2)), 1, rng.choice((1, 2)), bias=rng.random() < 0.6, padding_mode=mode)
    )
    weight = f"{s.layers[-1]}.weight"
    z = conv(y)
    s.between(s.image, z)
    if rng.random() < 0.2:
        s.outputs.append(conv(y * 0.5))
    if rng.random() < 0.7:
        z = s.layer(_norm(rng, 2))(z)
        s.between(z, often=0.2)
    if rng.random() < 0.8:
        act = _activation(s, z)
        s.outputs.append(act)
    if rng.random() < 0.2:
        s.outputs.append(s.read(weight).sum())
    if rng.random() < 0.3:
        s.outputs.append(z * 2)


def _linear(s: Sketch) -> None:
    """Add a product with a weight, a bias, an activation: written out or as a layer, with options and near misses."""
    rng, x, path, bias = s.rng, s.x, s.weight(4, 4), s.weight(4)
    w, b = s.read(path), s.read(bias)
    if rng.random() < 0.1:
        b = b.double()
    y = s.some(
        lambda: x @ w.t(),
        lambda: x @ w,
        lambda: F.linear(x, w),
        lambda: F.linear(x, w, b),
        lambda: s.layer(nn.Linear(4, 4))(x),
        lambda: torch.addmm(b, x, w.T),
        lambda: torch.addmm(b, x, w.T, beta=2),
        lambda: s.layer(nn.Linear(4, 4), "linear")(x),
    )
    s.between(x, y, b)
    y = s.some(
        lambda: y + b,
        lambda: y,
        lambda: b + y,
        lambda: torch.add(y, b, alpha=2),
        lambda: torch.add(b, y, alpha=2),
        lambda: y + s.read(s.weight(4, 1)),
        lambda: y,
    )
    s.between(x, y, b, often=0.15)
    z = _activation(s, y)
    s.outputs.append(z)


def _attention(s: Sketch) -> None:
    """Add attention written out: scaled, masked, with dropout, along another axis, or not quite attention."""
    rng = s.rng
    q, k, v = s.heads, s.heads * 2, s.heads.sin()
    scores = s.some(
        lambda: q @ k.mT,
        lambda: q @ k,
        lambda: q @ k.transpose(-1, -2),
        lambda: torch.matmul(q * 0.3, k.mT),
        lambda: q @ k.permute(0, 1, 2),
    )
    s.between(q, k, v, scores, often=0.2)
    scores = s.some(
        lambda: scores,
        lambda: scores * 0.5,
        lambda: scores / math.sqrt(2),
        lambda: scores * s.read(s.weight(4, 1)),
    )
    hidden = torch.ones(4, 4, dtype=torch.bool).triu(1)
    scores = s.some(
        lambda: scores,
        lambda: scores.masked_fill(s.buffer(hidden), -math.inf),
        lambda: scores.masked_fill(s.buffer(hidden), -1e9),
        lambda: torch.where(s.buffer(hidden), -math.inf, scores),
        lambda: torch.where(s.buffer(~hidden), scores, -math.inf),
        lambda: scores + s.read(s.weight(4, 4)),
        lambda: scores + s.buffer(hidden),
        lambda: torch.where(s.buffer(hidden), scores, -1e9),
        lambda: scores.masked_fill(s.buffer(torch.rand(2, 4, 4) < 0.3), -math.inf),
    )
    p = torch.softmax(scores, rng.choice((-1, -1, -1, 1, 0)))
    p = s.some(lambda: p, lambda: F.dropout(p, 0.5, True), lambda: F.dropout(p, 0.5, False), lambda: p * 0.5)
    s.between(q, v, p, often=0.2)
    s.outputs.append(s.some(lambda: p @ v, lambda: p @ v, lambda: v @ p))


def _gelu(s: Sketch) -> None:
    """Add GELU written out, in either form: constants nearly right, another x, options, writes, misleading names."""
    rng, x = s.rng, s.x
    other = rng.choice((x, x, x, x.cos()))
    root = rng.choice((math.sqrt(2), math.sqrt(2), math.sqrt(2), 1.4))
    slope = rng.choice((math.sqrt(2 / math.pi), math.sqrt(2 / math.pi), 0.8))
    inner = s.some(lambda: x / root, lambda: x * (1 / root), lambda: slope * (x + 0.044715 * x**3))
    gate = s.some(
        lambda: torch.erf(inner),
        lambda: torch.erf(inner),
        lambda: torch.tanh(inner),
        lambda: s.layer(nn.Tanh(), "erf")(inner),
        lambda: s.layer(nn.Sigmoid(), "tanh")(inner),
    )
    s.between(x, gate, often=0.15)
    gate = s.some(
        lambda: 1 + gate, lambda: gate + 1, lambda: torch.add(1, gate, alpha=2), lambda: torch.sub(gate, -1, alpha=1)
    )
    if rng.random() < 0.15:
        s.outputs.append(gate)
    s.between(x, gate, often=0.15)
    s.outputs.append(
        s.some(
            lambda: 0.5 * other * gate,
            lambda: other * (0.5 * gate),
            lambda: other * gate / 2,
            lambda: other * gate,
            lambda: torch.div(other * gate, 2, rounding_mode="floor"),
        )
    )


# ---------------------------------------------------------------------------------------------------- values


def _twins(s: Sketch) -> None:
    """Add two calls that are the same, or look so; between them something may be written."""
    x, n = s.x, s.n
    linear, other = s.layer(nn.Linear(4, 4)), s.layer(nn.Linear(4, 4))
    weight = s.layers[-2] + ".weight"
    noise, tanh = s.layer(nn.Dropout(0.5)), s.layer(nn.Hardtanh(), "tanh")
    y = s.some(lambda: torch.relu(x), lambda: x, lambda: s.read(weight))
    tables: Sequence[tuple[Callable[[], Any], ...]] = (
        (lambda: n + 1, lambda: n + 1.0, lambda: n + True),
        (lambda: torch.clamp(n, min=1), lambda: torch.clamp(n, min=1.0)),
        (lambda: torch.sum(n, dim=0, keepdim=True), lambda: torch.sum(n, dim=0, keepdim=False)),
        (lambda: 1 / (x * 0.0), lambda: 1 / (x * -0.0)),
        (lambda: x[0:1], lambda: x[0, 1], lambda: x[[0, 1]], lambda: x[1:], lambda: x[0, 1, None]),
        (lambda: torch.softmax(x, 0), lambda: torch.softmax(x, 1), lambda: torch.softmax(x, dim=1)),
        (lambda: torch.sub(x, y, alpha=1), lambda: torch.sub(x, y, alpha=2), lambda: torch.sub(y, x)),
        (lambda: tanh(x), lambda: x.tanh(), lambda: torch.tanh(x)),
        (lambda: torch.stack([x, y]), lambda: torch.stack([y, x])),
        (
            lambda: F.dropout(x, 0.5, True),
            lambda: torch.rand_like(x),
            lambda: noise(x),
            lambda: torch.bernoulli(x.abs()),
        ),
        (lambda: linear(x), lambda: linear(x), lambda: other(x)),
        (lambda: y.t().reshape(-1), lambda: y.t().reshape(-1)),
        (lambda: y.sum(1), lambda: y.sum(1)),
        (lambda: y * 2, lambda: y * 2),
        (lambda: torch.relu(y), lambda: torch.relu(y)),
    )
    table = s.rng.choice(tables)
    first = s.some(*table)
    s.between(x, y, s.read(weight), first, often=0.5)
    s.outputs += [first, s.some(*table)]


def _identity(s: Sketch) -> None:
    """Add what looks free to remove: on floats, on integers, with options, of another shape, written afterwards."""
    rng = s.rng
    x = rng.choice((s.x, s.x, s.n, s.small, s.small > 4))
    zero, one = rng.choice((0, 0.0, -0.0, False)), rng.choice((1, 1.0, True))
    names = ("neg", "abs", "relu", "exp", "log")
    odd = s.layer(nn.Tanh(), rng.choice(names))
    image = s.image[0]
    y = s.some(
        *(lambda f=f: f(x, zero) for f in (torch.add, torch.sub, torch.mul, operator.add, operator.mul)),
        *(lambda f=f: f(x, one) for f in (torch.mul, torch.div, operator.mul, operator.truediv, torch.pow)),
        lambda: torch.div(x, one, rounding_mode="floor"),
        lambda: torch.add(x, zero + 1, alpha=0),
        lambda: torch.sub(x, x, alpha=2),
        lambda: x - x,
        lambda: x / x,
        lambda: torch.exp(torch.log(x)),
        lambda: torch.log(torch.exp(x)),
        lambda: torch.sqrt(x * x),
        lambda: torch.abs(-x),
        lambda: torch.abs(torch.neg(x)),
        lambda: x + (-x.cos()),
        lambda: s.small + (-s.small.flip(0)),
        lambda: (-x) + 2,
        lambda: torch.neg(-x),
        lambda: odd(odd(s.x)),
        lambda: torch.relu(torch.relu(x)),
        lambda: x * s.buffer(torch.ones(rng.choice(((4,), (1, 4), (3, 1, 4))))),
        lambda: x * s.buffer(torch.ones(4, dtype=torch.float64)),
        lambda: image.transpose(0, 1).transpose(1, 2),
        lambda: image.transpose(0, 1).transpose(0, 1),
        lambda: image.permute(1, 2, 0).permute(1, 2, 0),
        lambda: image.reshape(4, 18).reshape(2, 36),
    )
    z = y.exp() if rng.random() < 0.1 else y
    s.between(x, z, often=0.4)
    s.outputs += [z, x]


def _constant(s: Sketch) -> None:
    """Add an expression of weights: written before or after, drawn at random, of a layer's weight, of numbers alone."""
    rng = s.rng
    inner = nn.Sequential(nn.Linear(4, 4))
    layer = s.layer(inner)
    path = rng.choice((f"{s.layers[-1]}.0.weight", s.weight(4, 4)))
    w = s.read(path)
    if rng.random() < 0.5:
        s.between(w, often=0.5)
    c = s.some(
        lambda: torch.exp(w),
        lambda: w * 2 + 1,
        lambda: w @ w.t(),
        lambda: F.dropout(w, 0.5, True),
        lambda: torch.rand_like(w) * w,
        lambda: w.sum(0) / w.size(0),
        lambda: s.call(torch.ones, 4, 4) * 2 + w,
        lambda: torch.bernoulli(torch.sigmoid(w)),
    )
    s.between(w, s.read(path), c, often=0.5)
    s.outputs.append(s.x * c)
    if rng.random() < 0.4:
        s.outputs.append(layer(s.x) + s.read(path))


def _end(s: Sketch) -> None:
    """Add operations that nothing reads, some of which do more than compute a value; and what sees that."""
    x, n = s.x, s.n
    y = torch.relu(x)
    batch = s.layer(nn.BatchNorm2d(2).train())
    s.some(
        lambda: y.add_(1),
        lambda: y.view(-1).mul_(2),
        lambda: s.call(operator.setitem, y, 0, 3.0),
        lambda: s.call(operator.iadd, y, 1),
        lambda: s.call(torch.add, x, 1, out=y),
        lambda: s.call(F.relu, x, inplace=True),
        lambda: s.layer(nn.ReLU(inplace=True))(x),
        lambda: s.layer(nn.Dropout(0.5).train())(x),
        lambda: torch.rand_like(x),
        lambda: F.dropout(x, 0.3, True),
        lambda: batch(s.image),
        lambda: s.call(torch._assert, n.dim() == 1, "one dimension"),
        lambda: torch.tanh(x),
        lambda: x.exp_(),
    )
    s.outputs += [y * 2, torch.rand_like(x)]


def _chain(s: Sketch) -> None:
    """Add a chain that nothing reads, longer than Python's stack is deep."""
    y = s.x
    for _ in range(1_200):
        y = torch.tanh(y)


PATTERNS = (
    *(_convolution, _convolution, _linear, _linear, _attention, _attention, _gelu, _gelu),
    *(_twins, _twins, _identity, _identity, _constant, _end),
)
