"""Hidden cases and answers of day06.shapes."""

from __future__ import annotations

import math
import random
from typing import Any

import sympy
import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab.dataflow import shapes as library
from passlab.exercises.day06.shapes import symbolic
from passlab.fx.cases import graph
from passlab.fx.nodes import attribute, op_name
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def broadcast(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return torch.tanh(x) * y + 1


def vector(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * m.w - m.one


def layers(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.second(torch.relu(m.first(x)).transpose(0, 1))


def batches(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return torch.sigmoid(x @ y)


def linear(rows: int, columns: int) -> Any:
    return lambda: nn.Linear(columns, rows)


def tokens(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.layer(x)


@symbolic("planes without a batch", graph(..., (2, 6, 7)), "did", x=[2, "h", "w"])
def planes(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.max_pool2d(x, 3)


@symbolic("the smaller one first", graph(..., (3, 1), (2, 3, 4)), "did", x=["n", 1], y=["b", "n", "k"])
def minus(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return 1 - (x - y)


@symbolic("a square", graph(..., (3, 3)), "did", x=["n", "k"])
def square(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x @ x


@symbolic("itself, turned", graph(..., (2, 3, 4)), x=["b", "n", "k"])
def gram(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x @ x.transpose(-2, -1)


@symbolic("three parts", graph(..., (2, 3), (2, 4)), "did", x=["n", "k"], y=["m", "j"])
def three(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return torch.cat([x, y, x], -1)


@symbolic("a fixed shape", graph(..., (4, 6)), "did", x=["n", "k"])
def fixed(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x.reshape(4, 6).transpose(0, 1)


@symbolic("turned, from the end", graph(..., (2, 3, 4)), x=["b", "n", "k"])
def from_the_end(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x.transpose(0, -1)


@symbolic("the third part", graph(..., (2, 3), (3, 3), (4, 3)), "did", x=["n", "k"], y=["m", "k"], z=["j", "i"])
def parts(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> fx.Proxy:
    return torch.cat([x, y, z], 0)


@symbolic("a classifier", graph(..., (2, 3, 4, 4), layer=linear(5, 12)), "did", x=["b", 3, "h", "h"])
def head(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.layer(F.max_pool2d(x, 2).flatten(1))


@symbolic("two joined, in halves", graph(..., (2, 3), (2, 5)), "did", x=["n", 3], y=["m", 5])
def doubled(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return torch.cat([x.flatten(0), y.flatten(0)], 0).reshape(2, -1)


@symbolic("joined and pooled", graph(..., (2, 3, 4, 5), (2, 3, 4, 6)), "did", x=[2, 3, 4, "w"], y=[2, 3, 4, "v"])
def pooled_sum(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    z = torch.cat([x, y], -1)
    return F.max_pool2d(z, 2), z.flatten(1), z.reshape(-1, 4)


@symbolic("heads", graph(..., (2, 3, 4, 5), (2, 3, 5, 6)), "did", x=["b", "h", 4, "k"], y=["b", "g", 5, 6])
def heads(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return x @ y


@symbolic("one row", graph(..., (5,), layer=linear(3, 5)), "did", x=["k"])
def one_row(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.layer(torch.tanh(x)) + m.layer(x)


@symbolic("flattened, from the end", graph(..., (2, 3, 4, 5)), x=["b", "n", "k", 5])
def ends(m: Any, x: fx.Proxy) -> tuple:
    return x.flatten(1, -1), x.flatten(-3, -2), torch.flatten(x, -2)


def inner_weight() -> nn.Module:
    part = nn.Module()
    part.weight = nn.Parameter(torch.ones(3, 4))
    return part


@symbolic("the weight of a part", graph(..., (2, 3), inner=inner_weight), "did", x=["n", "k"])
def part_weight(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x @ m.inner.weight


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    wide, fold, window = rng.randint(4, 8), rng.randint(3, 5), rng.randint(2, 4)

    def folds(m: Any, x: fx.Proxy) -> fx.Proxy:
        return m.layer(x.reshape(-1, wide))

    def twice(m: Any, x: fx.Proxy) -> fx.Proxy:
        return F.max_pool2d(F.max_pool2d(x, window), 2)

    def middle(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x.flatten(1, 2).reshape(fold, -1)

    return [
        planes,
        symbolic("a layer of tokens", graph(tokens, (2, 3, wide), layer=linear(3, wide)), "did", x=["b", 3, "k"]),
        symbolic("a row and a column", graph(broadcast, (3, 1), (1, 4)), x=["n", 1], y=[1, "k"]),
        symbolic("fewer dimensions", graph(broadcast, (2, 3, 4), (3, 4)), "did", x=["b", "n", "k"], y=["n", "m"]),
        minus,
        symbolic("a vector", graph(vector, (2, wide), w=(wide,), one=(1,)), "did", x=["n", "k"]),
        symbolic(
            "two layers", graph(layers, (5, wide), first=linear(3, wide), second=linear(2, 5)), "did", x=["n", "k"]
        ),
        square,
        gram,
        symbolic("batches", graph(batches, (2, 3, 4), (2, 4, 5)), "did", x=["b", 3, "k"], y=["c", "m", 5]),
        symbolic("one batch", graph(batches, (1, 3, 4), (2, 4, 5)), "did", x=[1, "n", "k"], y=["c", "m", 5]),
        three,
        symbolic("rows of a layer", graph(folds, (wide, 2), layer=linear(3, wide)), "did", x=["n", "k"]),
        fixed,
        from_the_end,
        parts,
        symbolic("two windows", graph(twice, (1, 2, 8, 9)), "did", x=[1, 2, "h", "w"]),
        head,
        symbolic("the middle", graph(middle, (fold, 3, 2, 2)), "did", x=["n", "k", 2, 2]),
        doubled,
        ends,
        pooled_sum,
        heads,
        one_row,
        part_weight,
    ]


EQUIVALENT = {
    ("if a != b: ...", "if True: ..."): "that a size equals itself rules nothing out",
    ("parts[0][dim + 1 :]", "parts[1][dim + 1 :]"): "these sizes are equal by the constraints",
    ("parts[0][:dim]", "parts[1][:dim]"): "these sizes are equal by the constraints",
    ("len(args[0][0])", "len(args[0][1])"): "what is joined has as many dimensions",
    ("list(shape[:-2])", "shape[:-2]"): "every shape is a list already",
    ("list(y[:-2])", "y[:-2]"): "every shape is a list already",
    ("return list(shape)", "return (shape)"): "every shape is a list already",
    ("list(....shape)", "....shape"): "a shape may be a tuple",
    ('node.op != "output"', "True"): "a shape for the output, too, does no harm",
    ("list(inputs[node.name])", "inputs[node.name]"): "every shape is a list already",
    ("[] if ... else list(a)", "[] if ... else (a)"): "every shape is a list already",
    ("... if names else numbers", "... if True else numbers"): "a number as text is a formula, too",
}

# ---------------------------------------------------------------------------------------------------- answers


ONE = sympy.Integer(1)


def _size(s):
    return sympy.Symbol(s, integer=True, positive=True) if isinstance(s, str) else sympy.Integer(s)


def _written(s):
    s = sympy.sympify(s)
    if isinstance(s, sympy.floor):
        numerator, denominator = s.args[0].as_numer_denom()
        return f"(({_written(numerator)}) // {denominator})"
    if s.is_Pow:
        return " * ".join([_written(s.base)] * int(s.exp))
    if s.is_Add or s.is_Mul:
        return "(" + (" + " if s.is_Add else " * ").join(map(_written, s.args)) + ")"
    return str(s)


class _Laws:
    """The laws met so far, and the shape of each operation's value, which may add some."""

    def __init__(self, gm):
        self.gm, self.laws = gm, []

    def equal(self, a, b):
        if sympy.expand(a - b) != 0:
            self.laws.append(f"{_written(a)} == {_written(b)}")
        return b if b.is_Integer else a

    def broadcast(self, a, b):
        rank = max(len(a), len(b))
        a, b = ([ONE] * (rank - len(shape)) + list(shape) for shape in (a, b))
        return [q if p == 1 else p if q == 1 else self.equal(p, q) for p, q in zip(a, b, strict=True)]

    def elementwise(self, node, *args):
        return self.broadcast(*(a if isinstance(a, list | tuple) else [] for a in args[:2]))

    def linear(self, node, x):
        layer = self.gm.get_submodule(node.target)
        self.equal(x[-1], sympy.Integer(layer.in_features))
        return [*x[:-1], sympy.Integer(layer.out_features)]

    def matmul(self, node, x, y):
        self.equal(x[-1], y[-2])
        return [*self.broadcast(x[:-2], y[:-2]), x[-2], y[-1]]

    def transpose(self, node, x, i, j):
        shape = list(x)
        shape[i], shape[j] = shape[j], shape[i]
        return shape

    def flatten(self, node, x, start, last=-1):
        start, end = start % len(x), last % len(x) + 1
        return [*x[:start], math.prod(x[start:end], start=ONE), *x[end:]]

    def reshape(self, node, x, *sizes):
        numbers, known = math.prod(x, start=ONE), math.prod(s for s in sizes if s != -1)
        if -1 in sizes:
            self.laws.append(f"{_written(numbers)} % {known} == 0")
        else:
            self.equal(numbers, sympy.Integer(known))
        return [sympy.floor(numbers / known) if s == -1 else sympy.Integer(s) for s in sizes]

    def cat(self, node, parts, dim):
        first = parts[0]
        for part in parts[1:]:
            for k, (p, q) in enumerate(zip(first, part, strict=True)):
                if k != dim % len(part):
                    self.equal(p, q)
        shape = list(first)
        shape[dim] = sum(part[dim] for part in parts)
        return shape

    def max_pool2d(self, node, x, window):
        self.laws.extend(f"{_written(s)} >= {window}" for s in x[-2:])
        return [*x[:-2], *(sympy.floor(s / window) for s in x[-2:])]

    def same(self, node, x, *_):
        return list(x)


_SHAPES = {
    "add": _Laws.elementwise, "sub": _Laws.elementwise, "mul": _Laws.elementwise, "Linear": _Laws.linear,
    "matmul": _Laws.matmul, "transpose": _Laws.transpose, "flatten": _Laws.flatten, "reshape": _Laws.reshape,
    "cat": _Laws.cat, "max_pool2d": _Laws.max_pool2d,
}  # fmt: skip


def _with_sympy(gm, inputs):
    """The answer with SymPy's formulas: sizes are expressions, and each law is written when it is met."""
    laws, shapes = _Laws(gm), {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            shapes[node.name] = [_size(s) for s in inputs[node.name]]
        elif node.op == "get_attr":
            shapes[node.name] = [_size(s) for s in attribute(gm, node.target).shape]
        elif node.op != "output":
            args = fx.node.map_arg(node.args, lambda n: shapes[n.name])
            shapes[node.name] = _SHAPES.get(op_name(node, gm), _Laws.same)(laws, node, *args)
    written = {name: [_written(s) for s in shape] for name, shape in shapes.items()}
    return {"shapes": written, "constraints": laws.laws}


@right("computes with SymPy, and writes the formulas at the end")
def with_sympy(gm, inputs):
    return _with_sympy(gm, inputs)


@right("as SymPy has it, each constraint as a difference, and all of them sorted")
def sorted_laws(gm, inputs):
    answer = _with_sympy(gm, inputs)
    laws = sorted(
        {
            law.replace(" == ", " - (", 1) + ") == 0" if " == " in law and "%" not in law else law
            for law in answer["constraints"]
        }
    )
    return {"shapes": {n: tuple(s) for n, s in answer["shapes"].items()}, "constraints": tuple(laws)}


@wrong("same", "takes the shapes of the example that the graph was traced with")
def of_the_example(gm, inputs):
    shapes = {n.name: list(n.meta["tensor_meta"].shape) for n in gm.graph.nodes if n.op != "output"}
    return {"shapes": shapes, "constraints": _with_sympy(gm, inputs)["constraints"]}


@wrong("did", "shapes alone: what they imply is not noted")
def no_laws(gm, inputs):
    return _with_sympy(gm, inputs) | {"constraints": []}


@wrong("spared", "fixes every size to that of the example, as export does without dynamic shapes")
def all_fixed(gm, inputs):
    laws = []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            sizes = zip(inputs[node.name], node.meta["tensor_meta"].shape, strict=True)
            laws += [f"{name} == {size}" for name, size in sizes if isinstance(name, str)]
    return _with_sympy(gm, inputs) | {"constraints": laws}


@wrong("did", "does not ask whether -1 comes out even")
def any_remainder(gm, inputs):
    answer = _with_sympy(gm, inputs)
    return answer | {"constraints": [law for law in answer["constraints"] if "%" not in law]}


@wrong("did", "a window larger than the image gives an empty result, and no error")
def any_window(gm, inputs):
    answer = _with_sympy(gm, inputs)
    return answer | {"constraints": [law for law in answer["constraints"] if ">=" not in law]}


@wrong("spared", "sizes must be multiples of four")
def fours(gm, inputs):
    answer = _with_sympy(gm, inputs)
    symbols = {s for sizes in inputs.values() for s in sizes if isinstance(s, str)}
    return answer | {"constraints": [*answer["constraints"], *(f"{s} % 4 == 0" for s in sorted(symbols))]}


@wrong("spared", "sizes are at most 18, the largest that was tried")
def at_most(gm, inputs):
    answer = _with_sympy(gm, inputs)
    symbols = {s for sizes in inputs.values() for s in sizes if isinstance(s, str)}
    return answer | {"constraints": [*answer["constraints"], *(f"{s} <= 18" for s in sorted(symbols))]}


@wrong("valid", "leaves -1 to torch, and gives Python's own objects")
def objects(gm, inputs):
    answer = _with_sympy(gm, inputs)
    return answer["shapes"]


@wrong("valid", "takes the rules of the library's function")
def by_the_library(gm, inputs):
    rules, values = library._Rules(gm), {}
    for node in gm.graph.nodes:
        rules.call = node
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.get)
        if node.op == "placeholder":
            values[node] = tuple(
                library.symbol(s) if isinstance(s, str) else sympy.Integer(s) for s in inputs[node.name]
            )
        elif node.op == "get_attr":
            values[node] = tuple(map(sympy.Integer, attribute(gm, node.target).shape))
        elif node.op == "call_module":
            layer = gm.get_submodule(node.target)
            values[node] = library.MODULES[type(layer)](rules, layer, *args, **kwargs)
        elif node.op != "output":
            values[node] = getattr(rules, library.RULES[op_name(node, gm)])(*args, **kwargs)
    sizes = {n.name: [int(s) if s.is_Integer else library.spell(s) for s in v] for n, v in values.items()}
    return {"shapes": sizes, "constraints": [library.spell(one.law) for one in rules.constraints]}


no_ones = edited("spared", "does not broadcast a size of 1")(
    ("b if a == 1 else a if b == 1 else equal(a, b)", "equal(a, b)")
)
top_only = edited("valid", "looks for a constant on the graph's module only: it may lie in a part")(
    ("attribute(gm, node.target).shape", "getattr(gm, node.target).shape")
)
not_added = edited("same", "joins parts without adding their sizes")(
    ("plus([part[dim] for part in parts])", "parts[0][dim]")
)

bare_sums = edited("same", "multiplies n + m without parentheses")(
    (
        '[f"({size})" for size in sizes if not isinstance(size, int)]',
        "[str(size) for size in sizes if not isinstance(size, int)]",
    )
)
bare_windows = edited("same", "divides n + m without parentheses")(
    ('f"({size}) // {args[1]}"', 'f"{size} // {args[1]}"')
)
matrices = edited("same", "a product has the dimensions of two matrices, or one more")(
    ("*broadcast(list(shape[:-2]), list(y[:-2]))", "*broadcast(list(shape[:-2]), list(y[:-2]))[:1]")
)
ends_at_its_end = edited("same", "a last dimension of -1 ends a slice before it")(
    ("(i % len(shape) for i in (*args[1:], -1)[:2])", "(*args[1:], len(shape) - 1)[:2]")
)
counts_from_the_front = edited("same", "a dimension from the end counts from the front")(
    ("shape, (_, i, j) = list(shape), args", "shape, (i, j) = list(shape), map(abs, args[1:])")
)
