"""Hidden cases and answers of day01.propagate."""

from __future__ import annotations

import copy
import functools
import math
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from autograder.authoring.answers import edited, right, wrong
from passlab import models
from passlab.exercises.day01 import propagate as shapes
from passlab.exercises.day01._shared import net
from passlab.exercises.day01.propagate import FUNCTIONS, METHODS, MODULES
from passlab.judge import Case, cases_in

# ---------------------------------------------------------------------------------------------------- hidden cases


def _pipeline(rng: random.Random) -> tuple[Callable[[], nn.Module], tuple]:
    """Return a convolution with odd attributes, pooling, a view by size, and products with transposes."""
    channels, stride, dilation, ceil = rng.choice((2, 4)), rng.choice((1, 2)), rng.choice((1, 2)), rng.random() < 0.5
    batch, side = rng.choice((1, 3)), rng.choice((11, 14))

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.conv(x))))
        y = x.flatten(2).transpose(1, -1)
        z = torch.matmul(y, y.transpose(-2, -1)) @ y
        return z.mean(dim=1, keepdim=True).to(torch.float64), (z * 2).sum(), y.reshape(y.size(0), -1)

    def make() -> nn.Module:
        conv = nn.Conv2d(channels, 6, (3, 2), stride, (1, 0), dilation, groups=2)
        return net(forward, conv=conv, norm=nn.BatchNorm2d(6), pool=nn.MaxPool2d(3, 2, 1, ceil_mode=ceil))

    return make, ((batch, channels, side, side), torch.float32)


def _promotions() -> nn.Module:
    def forward(self, a, b, flags):
        c = a * 1.5 + b
        d = (b - 3) / 2
        e = flags + flags
        f = self.wide + a
        g = b * self.scalar
        return c, d, e + b, f > 0, g, a.sum(), b.sum(dim=0), b.float().mean(-1), flags.sum(), c.argmax(dim=0)

    return net(forward, wide=nn.Parameter(torch.ones(3, dtype=torch.float64)), scalar=torch.tensor(2.0))


def _pieces() -> nn.Module:
    def forward(self, x):
        parts = x.chunk(3, dim=1)
        y = torch.cat(tensors=(parts[-1], parts[0]), dim=-1)
        z = y[:, None, ..., ::2] + x[0, 0] * self.view.weight
        return self.view(input=torch.flatten(z, start_dim=1, end_dim=-2)), z.view(x.size(0), -1).relu()

    return net(forward, view=nn.LayerNorm(2))


def _doubles() -> nn.Module:
    table, linear = nn.Embedding(9, 4).double(), nn.Linear(4, 3).double()
    return net(lambda self, tokens: self.linear(self.table(tokens)), table=table, linear=linear)


def _outside(then: Callable) -> Callable[[], nn.Module]:
    parts = dict(softmax=nn.ReLU(), quiet=nn.modules.linear.NonDynamicallyQuantizableLinear(4, 4), act=nn.ReLU6())
    return lambda: net(lambda self, x: then(self, x, torch.relu(x)), **parts)


def _unfit(then: Callable) -> Callable[[], nn.Module]:
    return lambda: net(lambda self, x, y: then(x + x, x, y))


F32, F16, I64 = torch.float32, torch.float16, torch.int64
MIXED = ((2, 3), F16), ((2, 3), I64), ((2, 3), torch.bool)


def zoo(name: str) -> Case:
    inputs = models.ZOO[name].inputs()
    return shapes.case(name, models.ZOO[name].build, *((tuple(t.shape), t.dtype) for t in inputs))


def outside(name: str, then: Callable, at: str) -> Case:
    return shapes.case(name, _outside(then), ((4, 4), F32), stop=at)


def unfit(name: str, then: Callable, at: str) -> Case:
    return shapes.case(name, _unfit(then), ((4, 4), F32), ((5, 3), F32), stop=at)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    make, image = _pipeline(rng)
    width = rng.choice((3, 6))
    return [
        *cases_in(__name__),
        shapes.case("a pipeline", make, image),
        shapes.case("promotions", _promotions, *MIXED),
        shapes.case("pieces", _pieces, ((2, width, 2), F32)),
        shapes.case("weights of double precision", _doubles, ((2, 5), I64)),
        shapes.case("values that nothing reads", lambda: net(lambda self, x: (x.sum(0), x * 2)[1]), ((2, 3), F32)),
        zoo("mlp"),
        zoo("residual"),
        shapes.case("no data: promotions", _promotions, *MIXED, about=("cost",)),
        shapes.case("no data: a pipeline", make, image, about=("cost",)),
        outside("a function", lambda m, x, y: (F.gelu(y) + x).relu(), "gelu"),
        outside("a method", lambda m, x, y: y.softmax(-1) @ x, "softmax"),
        outside("a method named like a module", lambda m, x, y: m.softmax(y).softmax(), "softmax_1"),
        outside("a subclass", lambda m, x, y: m.quiet(y), "quiet"),
        outside("a module", lambda m, x, y: m.act(y), "act"),
        outside("an unused node", lambda m, x, y: (y.cumsum(0), y)[1], "cumsum"),
        outside("torch's namesake of an operator", lambda m, x, y: torch.mul(y, x), "mul"),
        unfit("shapes before an operation that is not stated", lambda a, x, y: (a + y).softmax(-1), "add_1"),
        unfit("additions", lambda a, x, y: a + (a + y), "add_1"),
        unfit("concatenations", lambda a, x, y: torch.cat([a, torch.cat([a, y], 1)], 0), "cat"),
        unfit("views", lambda a, x, y: a.view(x.size(1), -1).view(3, -1) * 2, "view_1"),
        unfit("products", lambda a, x, y: torch.matmul(a, y).relu(), "matmul"),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _stated(node, gm):
    if node.op == "call_function":
        return node.target in FUNCTIONS
    if node.op == "call_method":
        return node.target in METHODS
    return node.op != "call_module" or type(gm.get_submodule(node.target)) in MODULES


def _entries(values):
    tensors = {node: value for node, value in values.items() if isinstance(value, torch.Tensor)}
    return {node.name: (tuple(value.shape), value.dtype) for node, value in tensors.items() if node.op != "output"}


class _Run(fx.Interpreter):
    """Run a graph node by node and keep the values."""

    def __init__(self, gm):
        super().__init__(gm, garbage_collect_values=False)
        self.extra_traceback, self.values = False, {}

    def run_node(self, node):
        try:
            if not _stated(node, self.module):
                raise TypeError("this operation is not stated")
            self.values[node] = super().run_node(node)
        except Exception as error:
            raise RuntimeError(f"{node.name}: {error}") from error
        return self.values[node]


def _propagate(gm, inputs):
    run = _Run(copy.deepcopy(gm).to("meta"))
    run.run(*inputs)
    return _entries(run.values)


@right("an Interpreter over a copy of the module whose weights are on meta")
def by_interpreter(gm, *inputs):
    return _propagate(gm, inputs)


@right("rules by hand, on shapes and dtypes alone, for each stated operation")
def by_rules(gm, *inputs):
    values, waiting = {}, iter(inputs)
    for node in gm.graph.nodes:
        if node.op == "output":
            break
        if node.op == "placeholder":
            value = next(waiting)
            values[node] = _Type(tuple(value.shape), value.dtype)
        elif node.op == "get_attr":
            weight = operator.attrgetter(node.target)(gm)
            values[node] = _Type(tuple(weight.shape), weight.dtype)
        else:
            try:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                if node.op == "call_module":
                    module = gm.get_submodule(node.target)
                    values[node] = _MODULE_RULES[type(module)](module, *args, *kwargs.values())
                else:
                    values[node] = _RULES[node.target](*args, **kwargs)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"no rule fits node {node.name}") from error
    return {node.name: (value.shape, value.dtype) for node, value in values.items() if isinstance(value, _Type)}


@dataclass(frozen=True)
class _Type:
    shape: tuple[int, ...]
    dtype: torch.dtype

    def reshaped(self, shape):
        return _Type(tuple(shape), self.dtype)

    def of(self, dtype):
        return _Type(self.shape, dtype)


def _broadcast(*shapes):
    width = max(map(len, shapes))
    columns = zip(*((1,) * (width - len(s)) + tuple(s) for s in shapes), strict=True)
    result = []
    for column in columns:
        wide = {n for n in column if n != 1}
        if len(wide) > 1:
            raise ValueError(f"{shapes} do not go together")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _promoted(*operands):
    """Return the strongest kind (bool, int, float); in one kind tensors with dimensions, those without, numbers."""

    def kind(dtype):
        return 2 if dtype.is_floating_point else 1 if dtype != torch.bool else 0

    ranked = []
    for x in operands:
        number = {bool: torch.bool, int: torch.int64, float: torch.float32}.get(type(x))
        dtype = number or x.dtype
        ranked.append((kind(dtype), 0 if number else 1 if not x.shape else 2, dtype))
    top = max(k for k, _, _ in ranked)
    rank = max(r for k, r, _ in ranked if k == top)
    dtypes = [dtype for k, r, dtype in ranked if k == top and r == rank]
    return functools.reduce(torch.promote_types, dtypes)


def _pointwise(a, b):
    return _Type(_broadcast(*(x.shape for x in (a, b) if isinstance(x, _Type))), _promoted(a, b))


def _divided(a, b):
    result = _pointwise(a, b)
    return result if result.dtype.is_floating_point else result.of(torch.float32)


def _product(a, b):
    if a.shape[-1] != b.shape[-2] or a.dtype != b.dtype:
        raise ValueError("the inner sizes or the dtypes differ")
    return a.reshaped((*_broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


def _cat(tensors, dim=0):
    first = tensors[0]
    at = dim % len(first.shape)
    rest = {t.shape[:at] + t.shape[at + 1 :] for t in tensors}
    if len(rest) > 1:
        raise ValueError("all sizes but one must agree")
    return _Type(_with(first.shape, at, sum(t.shape[at] for t in tensors)), _promoted(*tensors))


def _with(shape, at, size):
    return (*shape[:at], size, *shape[at + 1 :])


def _view(x, *shape):
    shape, total = shape[0] if isinstance(shape[0], tuple) else shape, math.prod(x.shape)
    known = math.prod(n for n in shape if n != -1)
    if known != total if -1 not in shape else total % known:
        raise ValueError(f"{x.shape} is not {shape}")
    return x.reshaped(total // known if n == -1 else n for n in shape)


def _flatten(x, start_dim=0, end_dim=-1):
    first, last = start_dim % len(x.shape), end_dim % len(x.shape)
    return x.reshaped((*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def _transpose(x, a, b):
    shape = list(x.shape)
    shape[a], shape[b] = shape[b], shape[a]
    return x.reshaped(shape)


def _chunk(x, chunks, dim=0):
    at = dim % len(x.shape)
    step = -(-x.shape[at] // chunks)
    sizes = [min(step, x.shape[at] - start) for start in range(0, x.shape[at], step)]
    return tuple(x.reshaped(_with(x.shape, at, size)) for size in sizes)


def _getitem(x, index):
    if isinstance(x, tuple):
        return x[index]
    return x.reshaped(np.broadcast_to(np.zeros(()), x.shape)[index].shape)


def _reduced(x, dim=None, keepdim=False):
    if dim is None:
        return x.reshaped(())
    at = dim % len(x.shape)
    return x.reshaped(_with(x.shape, at, 1) if keepdim else x.shape[:at] + x.shape[at + 1 :])


def _sum(x, dim=None, keepdim=False):
    result = _reduced(x, dim, keepdim)
    return result if x.dtype.is_floating_point else result.of(torch.int64)


def _same(x, *_):
    return x


_RULES = {
    operator.add: _pointwise, operator.sub: _pointwise, operator.mul: _pointwise, operator.truediv: _divided,
    operator.gt: lambda a, b: _pointwise(a, b).of(torch.bool), operator.matmul: _product, torch.matmul: _product,
    operator.getitem: _getitem, torch.cat: _cat, torch.flatten: _flatten, "flatten": _flatten, "view": _view,
    torch.relu: _same, F.relu: lambda x, inplace=False: x, "relu": _same, "reshape": _view, "transpose": _transpose,
    "chunk": _chunk, "sum": _sum, "mean": _reduced, "argmax": lambda x, dim=None: _reduced(x, dim).of(torch.int64),
    "size": lambda x, dim: x.shape[dim], "to": _Type.of, "float": lambda x: x.of(torch.float32),
}  # fmt: skip


def _linear(module, x):
    if x.shape[-1] != module.in_features:
        raise ValueError("the width differs")
    return x.reshaped((*x.shape[:-1], module.out_features))


def _windows(module, x, channels, rounded=math.floor):
    def both(value):
        return value if isinstance(value, tuple) else (value, value)

    kernel, stride, pad, dilation = map(both, (module.kernel_size, module.stride, module.padding, module.dilation))
    sizes = []
    for i, n in enumerate(x.shape[2:]):
        size = rounded((n + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i]) + 1
        sizes.append(size - ((size - 1) * stride[i] >= n + pad[i]))
    return x.reshaped((x.shape[0], channels, *sizes))


_MODULE_RULES = {
    nn.Linear: _linear, nn.BatchNorm2d: lambda m, x: x, nn.ReLU: lambda m, x: x, nn.LayerNorm: lambda m, x: x,
    nn.Conv2d: lambda m, x: _windows(m, x, m.out_channels),
    nn.MaxPool2d: lambda m, x: _windows(m, x, x.shape[1], math.ceil if m.ceil_mode else math.floor),
    nn.Embedding: lambda m, x: _Type((*x.shape, m.embedding_dim), m.weight.dtype),
}  # fmt: skip


@wrong("cost", "makes zeros of the right shape and runs the model on them")
def runs_zeros(gm, *inputs):
    run = _Run(gm)
    run.run(*(torch.zeros(t.shape, dtype=t.dtype) for t in inputs))
    return _entries(run.values)


@wrong("did", "the dtype is that of the first operand")
def first_dtype(gm, *inputs):
    types = _propagate(gm, inputs)
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node) and node.name in types:
            first = node.args[0].name
            types[node.name] = (types[node.name][0], types.get(first, types[node.name])[1])
    return types


@wrong("did", "the shape of a sum or product is that of its left operand: broadcasting is not thought of")
def left_shape(gm, *inputs):
    types = _propagate(gm, inputs)
    for node in gm.graph.nodes:
        if node.target in (operator.add, operator.mul) and node.args[0].name in types:
            types[node.name] = (types[node.args[0].name][0], types[node.name][1])
    return types


@wrong("valid", "leaves the weights where they are: real weights and meta inputs do not mix")
def weights_stay(gm, *inputs):
    ShapeProp(gm).propagate(*inputs)
    metas = {node.name: node.meta.get("tensor_meta") for node in gm.graph.nodes}
    return {name: (tuple(meta.shape), meta.dtype) for name, meta in metas.items() if hasattr(meta, "dtype")}


@wrong("spared", "looks for unknown operations first, and at shapes only after that")
def unstated_first(gm, *inputs):
    for node in gm.graph.nodes:
        if not _stated(node, gm):
            raise ValueError(f"no rule for {node.name}")
    return _propagate(gm, inputs)


@wrong("did", "has entries only for values that some node reads")
def read_values_only(gm, *inputs):
    types, readers = _propagate(gm, inputs), {node.name: node.users for node in gm.graph.nodes}
    return {name: entry for name, entry in types.items() if readers[name]}


own_attributes = edited(
    "did", "knows the parameters of the model itself, and none of its parts; or a module's operands in positions only"
)(("operator.attrgetter(node.target)(gm)", "getattr(gm, node.target)"))
anything_goes = edited("spared", "knows no limits: asks torch for every operation, in the lists or not")(
    ("node.target in FUNCTIONS", 'node.op == "call_function"'),
    ("... and node.target in METHODS", "..."),
    ("node.op == ... and ...", "node.op == ..."),
    ("weights = ...", "module = gm.get_submodule(node.target)\nweights = ..."),
)
no_name = edited("spared", "stops at the right place and does not say where that is")(
    ('f"there is no rule for {node.format_node()}"', 'f"there is no rule"'),
    ('raise ValueError(f"At node {node.name}: {error}") from error', "raise"),
)
names_half = edited("spared", "names unknown operations, but leaves it to torch to say where shapes do not fit")(
    ('raise ValueError(f"At node {node.name}: {error}") from error', "raise")
)
by_function_name = edited("spared", "knows functions by their names: torch.mul passes for operator.mul")(
    ("node.target in FUNCTIONS", 'getattr(node.target, "__name__", "") in {f.__name__ for f in FUNCTIONS}')
)
float_weights = edited("did", "takes all weights for float32")(('tensor.to("meta")', 'tensor.to("meta").float()'))
output_too = edited("did", "has an entry for the output node, which makes no tensor")(
    (
        "            break",
        "            values[node] = [v for v in values.values() if isinstance(v, torch.Tensor)][-1]\n            break",
    )
)
tensors = edited("valid", "returns the meta tensors themselves")(("(tuple(value.shape), value.dtype)", "value"))

EQUIVALENT = {
    ("if ...:\n    break", "if ...:\n    continue"): "nothing stands behind the output",
    ("tuple(value.shape)", "value.shape"): "a torch.Size is a tuple",
}
