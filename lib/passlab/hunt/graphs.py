"""Graphs for tests of passes: the patterns that passes look for, each with something that makes it another program.

    gm = drawn_graph(7)                 # the same graph in every process; gm.meta["inputs"] holds example inputs

A pass is seldom wrong on a program that it does not touch, nor on the one that its author had in mind. So three of four
graphs consist of patterns (layers, attention, GELU, twins, identities, constants, ends without a reader). A pattern has
a plain form, and others that differ from it in one place: something is written in between, read once more, or called
again; a neighbour stands in for an operation; a number has another type, a module a misleading name. All forms of all
patterns lie in one deck, and each graph takes the next ones, so that a hundred graphs have them all; one more pattern
of each graph differs in as many places as chance will have it. Every fourth graph is a `passlab.random_graph` with
features that are drawn, too (swarm testing: Groce and others, ISSTA 2012).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import cache, partial
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from passlab.fx.generate import FEATURES, random_graph
from passlab.fx.programs import Program, preserve_state

#: A proxy. Functions of torch take it for a tensor, and their types do not say so.
Value = Any
#: One graph in `LONG` has a chain that is longer than Python's stack.
LONG = 25
#: How many wild forms are tried with the forms of a graph before one of these is replaced.
WILD = 10
#: How often a wild form does not take the plain option.
OFTEN = 0.3
#: A pattern, and the number of its option that is not plain: -1 for none, None for some that are drawn.
Form = tuple[Callable[["Sketch"], None], int | None]


def drawn_graph(
    seed: int, size: int = 14, patterns: int = 6, mutation: bool = True, random: bool = True
) -> fx.GraphModule:
    """Return a graph that is well typed and runs, determined by its arguments: `patterns` forms and a wild one, or
    `size` random nodes.

    Its inputs, in `meta["inputs"]`, are small. mutation: it may write, into them, too, and have layers in training
    mode. random: it may draw random numbers.
    """
    rng = Random(f"hunt {seed}")
    if seed % 4 == 3:
        features: Any = {name: rng.random() < 0.7 for name in FEATURES} | {"pointwise": True}
        training = mutation and random and rng.random() < 0.2
        features |= {"mutation": mutation and features["mutation"], "random": random and features["random"]}
        return random_graph(seed, size, training=training, **features)
    number = seed - (seed + 1) // 4  # of the graphs that have patterns
    forms = deck(mutation, random)
    own: list[Form] = [forms[place % len(forms)] for place in range(patterns * number, patterns * (number + 1))]
    own.append((rng.choice(PATTERNS), None))
    failures = itertools.count()
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.randrange(2**31))
            gm = sketched(Sketch(rng, mutation, random), own, long=patterns > 2 and seed % LONG == 0)
        if gm is not None:
            return gm
        own[-1] = (rng.choice(PATTERNS), None)  # mostly it is the wild one that does not run
        if next(failures) > WILD:
            own[rng.randrange(patterns)] = rng.choice(forms)


@cache
def deck(mutation: bool, random: bool) -> list[Form]:
    """Return all forms of all patterns but the wild ones, in a drawn order."""
    forms: list[Form] = []
    for pattern in PATTERNS:
        with torch.random.fork_rng(devices=[]):
            sketch = Sketch(Random(0), mutation, random)
            pattern(sketch)
        forms += [(pattern, form) for form in range(-1, sketch.options)]
    Random("hunt").shuffle(forms)
    return forms


def sketched(sketch: Sketch, forms: Sequence[Form], long: bool = False) -> fx.GraphModule | None:
    """Return a graph of forms, or None if it does not run."""
    try:
        for pattern, form in forms:
            sketch.options, sketch.form = 0, form
            pattern(sketch)
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
    """A graph under construction. Its inputs: matrices x and heads, an image, integers n, and small ones of 8 bits.

    `form`: which of the pattern's options is not plain, see `Form`. `options`: how many it has had so far.
    """

    def __init__(self, rng: Random, mutation: bool = True, random: bool = True):
        self.rng, self.graph, self.root = rng, fx.Graph(), nn.Module()
        self.mutation, self.random, self.options = mutation, random, 0
        self.form: int | None = -1
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
        """Add a module, and return what calls it. Its path: the last of `layers`."""
        path = name if name and not hasattr(self.root, name) else f"layer{len(self.layers)}"
        self.root.add_module(path, module.requires_grad_(False))
        self.layers.append(path)
        return lambda *args: fx.Proxy(self.graph.call_module(path, tuple(a.node for a in args)), self.tracer)

    def call(self, target: Callable, *args: Any, **kwargs: Any) -> Value:
        """Add a call of a function, whatever its arguments are."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def fresh(self, x: Value) -> Value:
        """Return a value like an input, that nothing has written into; or the input itself, now and then."""
        others = (lambda: x * 2, lambda: x + 1, lambda: x - 1)
        return self.rng.choice((*others, *others, *others, lambda: x))()

    def pick(self, plain: Any, *others: Any) -> Any:
        """Return the plain option, or the other one that is this form's; of a wild form, any."""
        first, self.options = self.options, self.options + len(others)
        if self.form is None:
            return self.rng.choice(others) if others and self.rng.random() < OFTEN else plain
        return others[self.form - first] if first <= self.form < self.options else plain

    def some(self, *ways: Callable[[], Value]) -> Value:
        """Add what one of the functions adds; see `pick`."""
        return self.pick(*ways)()

    def drawing(self, *ways: Callable[[], Value]) -> tuple[Callable[[], Value], ...]:
        """Return ways that draw random numbers, none if the graph may not."""
        return ways if self.random else ()

    def writing(self, *ways: Callable[[], Value]) -> tuple[Callable[[], Value], ...]:
        """Return ways that write, or stop, none if the graph may not."""
        return ways if self.mutation else ()

    def trained(self, module: nn.Module) -> nn.Module:
        """Return a module that may be in training mode: it draws, or writes into its statistics."""
        return module.train(self.mutation and self.random and self.pick(False, True))

    def between(self, *values: Value) -> None:
        """Do nothing; or write into one of the values, or return one."""
        writes = (partial(self.write, x) for x in values)
        self.some(lambda: None, *self.writing(*writes), *(partial(self.outputs.append, x) for x in values))

    def write(self, x: Value) -> None:
        """Write into a value, in one of many ways."""
        ways = (
            lambda: x.add_(1),
            lambda: x.view(-1).add_(1),
            lambda: x.mul_(2),
            lambda: x.detach().zero_(),
            lambda: self.call(operator.setitem, x, 0, 2.0),
            lambda: self.call(operator.iadd, x, 1),
            lambda: self.call(torch.mul, x, 2, out=x),
            lambda: self.call(F.relu, x, inplace=True),
        )
        self.rng.choice(ways)()

    def finish(self) -> fx.GraphModule:
        """Return the graph."""
        self.graph.output(tuple(x.node for x in self.outputs))
        gm = fx.GraphModule(self.root, self.graph)
        gm.training = False
        gm.meta["inputs"] = tuple(self.examples)
        return gm


# ---------------------------------------------------------------------------------------------------- neural networks


class _OtherNorm(nn.BatchNorm2d):
    """A batch norm that doubles what it normalizes: a subclass may compute something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def _called_twice(s: Sketch, module: nn.Module, y: Value) -> Value:
    layer = s.layer(module)
    s.outputs.append(layer(y * 0.5))
    return layer(y)


def _activation(s: Sketch, y: Value) -> Value:
    functions = (F.relu, torch.relu, F.gelu, F.silu, F.relu6, F.leaky_relu, torch.tanh)
    modules = (nn.ReLU(), nn.ReLU6(), nn.SiLU(), nn.GELU("tanh"))
    return s.some(
        *(partial(f, y) for f in functions),
        *(lambda m=m: s.layer(m)(y) for m in modules),
        lambda: _called_twice(s, nn.ReLU(), y),
        lambda: y.relu(),
        lambda: F.gelu(y, approximate="tanh"),
        lambda: s.layer(nn.Tanh(), s.rng.choice(("relu", "silu", "gelu")))(y),
    )


def _norm(s: Sketch) -> nn.Module:
    norm = s.pick(nn.BatchNorm2d, _OtherNorm)(2, eps=s.pick(1e-5, 1e-2), affine=s.pick(True, False))
    norm.running_mean.uniform_(-0.5, 0.5)
    norm.running_var.uniform_(0.5, 1.5)
    if norm.affine:
        norm.weight.data.uniform_(0.5, 1.5)
        norm.bias.data.uniform_(-0.5, 0.5)
    return s.trained(norm.eval())


def _convolution(s: Sketch, normed: bool = False) -> None:
    """Add convolution and activation: in another order, with another reader, called again, with options."""
    image = s.fresh(s.image)
    y = s.some(lambda: image, lambda: s.layer(_norm(s))(image))
    mode: Any = s.pick("zeros", "reflect", "circular")
    conv = s.layer(nn.Conv2d(2, 2, 3, s.pick(1, 2), 1, s.pick(1, 2), bias=s.pick(True, False), padding_mode=mode))
    weight = f"{s.layers[-1]}.weight"
    z = conv(y)
    s.between(y, z)
    s.some(lambda: None, lambda: s.outputs.append(conv(y * 0.5)), lambda: s.outputs.append(s.read(weight).sum()))
    if normed:
        z = s.layer(_norm(s))(z)
        s.between(z)
    s.outputs.append(_activation(s, z))
    s.some(lambda: None, lambda: s.outputs.append(z * 2))


def _normed_convolution(s: Sketch) -> None:
    """Add convolution, batch norm and activation."""
    _convolution(s, normed=True)


def _linear(s: Sketch) -> None:
    """Add a product with a weight, a bias, an activation: written out or as a layer, with options and near misses."""
    x, path, bias = s.fresh(s.x), s.weight(4, 4), s.weight(4)
    w = s.read(path)
    b = s.some(lambda: s.read(bias), lambda: s.read(bias).double())
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
    )
    s.between(x, y, b)
    s.outputs.append(_activation(s, y))


def _layer(s: Sketch) -> None:
    """Add a product and an activation, without a bias."""
    x, w = s.fresh(s.x), s.read(s.weight(4, 4))
    y = s.some(lambda: F.linear(x, w), lambda: x @ w, lambda: x @ w.t(), lambda: s.layer(nn.Linear(4, 4))(x))
    s.between(x, y, w)
    s.outputs.append(_activation(s, y))


def _attention(s: Sketch) -> None:
    """Add attention written out: scaled, masked, with dropout, along another axis, or not quite attention."""
    q, k, v = (s.fresh(s.heads) for _ in "qkv")
    scores = s.some(
        lambda: q @ k.transpose(-1, -2),
        lambda: q @ k,
        lambda: q @ k.mT,
        lambda: torch.matmul(q * 0.3, k.mT),
        lambda: q @ k.permute(0, 1, 2),
        lambda: q @ k.transpose(0, 0),
    )
    s.between(q, k, v, scores)
    scores = s.some(
        lambda: scores * 0.5,
        lambda: scores,
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
        lambda: scores + s.read(s.weight(4)),
        lambda: scores + s.read(s.weight(3, 1, 4, 4)),
        lambda: scores + s.buffer(hidden),
        lambda: torch.where(s.buffer(hidden), scores, -1e9),
        lambda: scores.masked_fill(s.buffer(torch.rand(2, 4, 4) < 0.3), -math.inf),
    )
    p = torch.softmax(scores, s.pick(-1, 1, 0))
    noise = s.drawing(lambda: F.dropout(p, 0.5, True))
    p = s.some(lambda: p, *noise, lambda: F.dropout(p, 0.5, False), lambda: p * 0.5)
    s.between(q, v, p)
    s.outputs.append(s.some(lambda: p @ v, lambda: v @ p))


def _two_attentions(s: Sketch) -> None:
    """Add an attention whose result the next one reads; it may be written before that is through."""
    x = s.fresh(s.heads)
    y = torch.softmax(x @ x.transpose(-1, -2), -1) @ x
    p = torch.softmax(y @ x.transpose(-1, -2), -1)
    s.between(y, x, p)
    s.outputs += [p @ x, y]


def _gelu(s: Sketch, exact: bool = True) -> None:
    """Add GELU written out, in either form: constants nearly right, another x, options, writes, misleading names."""
    x = s.fresh(s.x)
    other = s.some(lambda: x, x.cos)
    if exact:
        root = s.pick(math.sqrt(2), 1.4)
        inner = s.some(lambda: x / root, lambda: x * (1 / root))
        gate = s.some(lambda: torch.erf(inner), lambda: torch.tanh(inner), lambda: s.layer(nn.Tanh(), "erf")(inner))
    else:
        inner = s.pick(math.sqrt(2 / math.pi), 0.8) * (x + s.pick(0.044715, 0.05) * x**3)
        gate = s.some(lambda: torch.tanh(inner), lambda: torch.erf(inner), lambda: s.layer(nn.Sigmoid(), "tanh")(inner))
    s.between(x, gate)
    gate = s.some(
        lambda: 1 + gate,
        lambda: gate + 1,
        lambda: torch.add(1, gate, alpha=2),
        lambda: torch.add(gate, 1, alpha=2),
        lambda: torch.sub(gate, -1, alpha=1),
    )
    s.between(x, gate)
    s.outputs.append(
        s.some(
            lambda: 0.5 * other * gate,
            lambda: other * (0.5 * gate),
            lambda: other * gate / 2,
            lambda: other * gate,
            lambda: torch.div(other * gate, 2, rounding_mode="floor"),
        )
    )


def _approximate_gelu(s: Sketch) -> None:
    """Add GELU in its tanh form."""
    _gelu(s, exact=False)


# ---------------------------------------------------------------------------------------------------- values


def _twins(s: Sketch) -> None:
    """Add two or more calls that look the same."""
    x, n = s.fresh(s.x), s.n
    linear, other, tanh = s.layer(nn.Linear(4, 4)), s.layer(nn.Linear(4, 4)), s.layer(nn.Hardtanh(), "tanh")
    noise = s.layer(s.trained(nn.Dropout(0.5).eval()))
    y = torch.relu(x)
    s.outputs += s.pick(
        lambda: [n + 1, n + 1.0, n + True],
        lambda: [torch.clamp(n, min=1), torch.clamp(n, min=1.0)],
        lambda: [torch.sum(n, dim=0, keepdim=True), torch.sum(n, dim=0, keepdim=False)],
        lambda: [1 / (x * 0.0), 1 / (x * -0.0)],
        lambda: [x[0:1], x[1:], x[0, 1, None]],
        lambda: [x[0, 1], x[[0, 1]]],
        lambda: [torch.softmax(x, 0), torch.softmax(x, 1), torch.softmax(x, dim=1)],
        lambda: [torch.sub(x, y, alpha=1), torch.sub(x, y, alpha=2), torch.sub(y, x)],
        lambda: [tanh(x), x.tanh(), torch.tanh(x)],
        lambda: [torch.stack([x, y]), torch.stack([y, x])],
        lambda: [torch.pow(n, 2), torch.pow(n, 2.0)],
        lambda: [linear(x), linear(x), other(x)],
        lambda: [noise(x), noise(x)],
        *s.drawing(lambda: [torch.rand_like(x), torch.rand_like(x)]),
        *s.drawing(lambda: [F.dropout(x, 0.5, True), F.dropout(x, 0.5, True)]),
        *s.drawing(lambda: [torch.bernoulli(torch.sigmoid(x)), torch.bernoulli(torch.sigmoid(x))]),
    )()


def _twice(s: Sketch) -> None:
    """Add two calls that are the same; between them one of their operands is written, or the first result."""
    x, linear = s.fresh(s.x), s.layer(nn.Linear(4, 4))
    path = s.layers[-1] + ".weight"
    y = torch.relu(x)
    reads: tuple[Callable[[], Value], ...] = (
        lambda: y * 2,
        lambda: torch.relu(y),
        lambda: y.sum(1),
        lambda: y.t().reshape(-1),
        lambda: y.view(-1) + 1,
        lambda: s.read(path) * 2,
        lambda: linear(y),
    )
    read, target = s.pick(
        *itertools.product(reads, ("nothing", *(("operand", "weight", "result") if s.mutation else ())))
    )
    first = read()
    if target != "nothing":
        s.write({"operand": y, "weight": s.read(path), "result": first}[target])
    s.outputs += [first, read()]


def _identity(s: Sketch) -> None:
    """Add what looks free to remove: on floats, on integers, with options, of another shape, written afterwards."""
    zero, one = s.rng.choice((0, 0.0, -0.0, False)), s.rng.choice((1, 1.0, True))
    laws: tuple[Callable[[Value], Value], ...] = (
        *(lambda x, f=f: f(x, zero) for f in (torch.add, torch.sub, torch.mul, operator.add, operator.mul)),
        *(lambda x, f=f: f(x, one) for f in (torch.mul, torch.div, operator.mul, operator.truediv, torch.pow)),
        lambda x: torch.div(x, one, rounding_mode="floor"),
        lambda x: torch.add(x, 1, alpha=0),
        lambda x: torch.add(0, x, alpha=2),
        lambda x: torch.sub(x, x, alpha=2),
        lambda x: torch.add(x, -x, alpha=2),
        lambda x: torch.sub(x, 0),
        lambda x: x - x,
        lambda x: x / x,
        lambda x: torch.exp(torch.log(x)),
        lambda x: torch.log(torch.exp(x)),
        lambda x: torch.sqrt(x * x),
        lambda x: torch.abs(-x),
        lambda x: torch.abs(torch.neg(x)),
        lambda x: x + (-x),
        lambda x: x + (-x.flip(0)),
        lambda x: (-x) + 2,
        lambda x: torch.neg(-x),
        lambda x: torch.relu(torch.relu(x)),
        lambda x: x * s.buffer(torch.ones(4)),
        lambda x: x * s.buffer(torch.ones(3, 1, 4)),
        lambda x: x * s.buffer(torch.ones(4, dtype=torch.float64)),
    )
    law = s.pick(*laws)
    x = s.fresh(s.x)
    y = law(x)
    s.between(x, y)
    s.outputs += [y, x, law(s.n), law(s.small)]


def _shape(s: Sketch) -> None:
    """Add two changes of shape that undo each other, or do not; and modules with misleading names."""
    image = s.image[0]
    odd = s.layer(nn.Tanh(), s.rng.choice(("neg", "abs", "relu", "exp", "log")))
    x = s.fresh(s.x)
    y = s.some(
        lambda: image.transpose(0, 1).transpose(0, 1),
        lambda: image.transpose(0, 1).transpose(1, 2),
        lambda: torch.transpose(torch.transpose(image, 1, 2), 0, 2),
        lambda: torch.transpose(torch.transpose(image, 0, 1), 0, 2),
        lambda: image.permute(1, 2, 0).permute(1, 2, 0),
        lambda: image.reshape(4, 18).reshape(2, 36),
        lambda: odd(odd(x)),
        lambda: odd(-x),
        lambda: (s.small > 4) * True,
        lambda: (s.small > 4) + 0,
    )
    s.between(y)
    s.outputs.append(y)


def _constant(s: Sketch) -> None:
    """Add an expression of weights: written before or after, drawn at random, of a layer's weight, of numbers alone."""
    layer = s.layer(nn.Sequential(nn.Linear(4, 4)))
    path = s.pick(f"{s.layers[-1]}.0.weight", s.weight(4, 4))
    w = s.read(path)
    s.between(w)
    c = s.some(
        lambda: w * 2 + 1,
        lambda: torch.exp(w),
        lambda: w @ w.t(),
        lambda: w.sum(0) / w.size(0),
        lambda: s.call(torch.ones, 4, 4) * 2 + w,
        *s.drawing(
            lambda: F.dropout(w, 0.5, True), lambda: torch.rand_like(w) * w, lambda: torch.bernoulli(torch.sigmoid(w))
        ),
    )
    s.between(w, s.read(path), c)
    s.outputs += [s.x * c, layer(s.x) + s.read(path)]


def _end(s: Sketch) -> None:
    """Add operations that nothing reads, some of which do more than compute a value; and what sees that."""
    x, n = s.fresh(s.x), s.n
    y = torch.relu(x)
    s.some(
        lambda: torch.tanh(x),
        *s.writing(
            lambda: s.call(torch._assert, n.dim() == 1, "one dimension"),
            lambda: y.add_(1),
            lambda: y.view(-1).mul_(2),
            lambda: s.call(operator.setitem, y, 0, 3.0),
            lambda: s.call(operator.iadd, y, 1),
            lambda: s.call(torch.add, x, 1, out=y),
            lambda: s.call(F.relu, x, inplace=True),
            lambda: s.layer(nn.ReLU(inplace=True))(x),
            lambda: s.layer(nn.BatchNorm2d(2).train())(s.image),
            lambda: x.exp_(),
        ),
        *s.drawing(
            lambda: s.layer(nn.Dropout(0.5).train())(x),
            lambda: torch.rand_like(x),
            lambda: F.dropout(x, 0.3, True),
        ),
    )
    s.outputs += [y * 2, x + 1]
    if s.random:
        s.outputs.append(torch.rand_like(x))


def _chain(s: Sketch) -> None:
    """Add a chain that nothing reads, longer than Python's stack is deep."""
    y = s.x
    for _ in range(1_200):
        y = torch.tanh(y)


PATTERNS: tuple[Callable[[Sketch], None], ...] = (
    *(_convolution, _normed_convolution, _linear, _layer, _attention, _two_attentions, _gelu, _approximate_gelu),
    *(_twins, _twice, _identity, _shape, _constant, _end),
)
