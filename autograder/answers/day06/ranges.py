"""Hidden cases and answers of day06.ranges."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import fx, nn

from autograder.authoring.answers import edited, right, wrong
from passlab.dataflow import ranges as library
from passlab.exercises.day06.ranges import ranged
from passlab.fx.cases import graph
from passlab.fx.nodes import attribute, op_name, shape
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def both_ways(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return (3 - x) * -2 - y


def negative(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
    return x * y - torch.neg(y)


def squares(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return x * x, y * y, x * y


def one_layer(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.only(x)


def summed(m: Any, x: fx.Proxy) -> tuple:
    return x.sum(1), x.mean(0), x.sum((0, 1)), x.flatten(0)


def functions(m: Any, x: fx.Proxy) -> tuple:
    return torch.exp(x), torch.sigmoid(x), torch.tanh(x), torch.relu(x), torch.relu(torch.neg(x))


def weighted(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.exp((x * m.w).reshape(-1, 2)) - m.w.sum()


def deep(m: Any, x: fx.Proxy) -> fx.Proxy:
    h = torch.tanh(m.first(x))
    return m.last(torch.relu(m.second(h)) + h * h)


def shares(m: Any, x: fx.Proxy) -> fx.Proxy:
    s = torch.softmax(x * 40, dim=1)
    return s * x, torch.neg(s) + 1


def strange(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    a = torch.cos(x)
    b = torch.relu(a)
    return torch.neg(b), a - y, torch.sigmoid(a * b), m.only(b), torch.exp(a), a * 0 + 1, b.sum(1), a * a


def column(m: Any, x: fx.Proxy) -> tuple:
    a = torch.relu(torch.cos(x))
    return m.only(a), m.only(torch.neg(a)), 0 * torch.cos(x)


@ranged("away from zero, and huge", graph(..., (2, 3), w=torch.tensor([1.5, 2.0, 3.0])), x=(-2.0, 2.0))
def away(m: Any, x: fx.Proxy) -> tuple:
    w = m.w + 0
    return x + w, x * torch.exp(w), torch.exp(x * 500), torch.sigmoid(x * 500)


@ranged("like a relu, and without a row", graph(..., (2, 3)), True, x=(-2.0, 1.0))
def cousins(m: Any, x: fx.Proxy) -> tuple:
    return torch.nn.functional.gelu(x), torch.nn.functional.leaky_relu(x)


@ranged("below zero and above", graph(..., (2, 3)), x=(-3.0, -1.0))
def one_sided(m: Any, x: fx.Proxy) -> tuple:
    return torch.relu(x), torch.relu(torch.neg(x))


@ranged("sums below zero", graph(..., (2, 3)), x=(-3.0, -1.0))
def sums_below(m: Any, x: fx.Proxy) -> tuple:
    return x.sum(1), torch.neg(x).sum(0), x.sum(1, keepdim=True).mean(0)


@ranged("operands with equal ranges", graph(..., (2, 3), (2, 3)), x=(-1.0, 2.0), y=(-1.0, 2.0))
def equals(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return x - y, x + y, torch.neg(x) + y


@ranged("a dimension by its name, or none", graph(..., (2, 3, 5)), x=(-1.0, 2.0))
def dimensions(m: Any, x: fx.Proxy) -> tuple:
    return x.sum(dim=1), x.sum(-1), x.sum(), x.sum(dim=(0, 2)), x.mean(dim=0)


@ranged("a number inside a layer", graph(..., (2, 3), inner=lambda: weights_of(1.5, -2.0, 3.0)), x=(-1.0, 2.0))
def nested(m: Any, x: fx.Proxy) -> fx.Proxy:
    return x * m.inner.weight + m.inner.weight


@ranged("numbers that are not whole", graph(..., (2, 3)), x=(-1.0, 2.0))
def fractions(m: Any, x: fx.Proxy) -> fx.Proxy:
    return (0.75 - x * -0.5) * 0.125 + 0.375


@ranged("shares of numbers within a narrow range", graph(..., (2, 5)), x=(0.25, 0.75))
def narrow_shares(m: Any, x: fx.Proxy) -> tuple:
    return torch.softmax(x, 1), torch.softmax(torch.neg(x), 1)


@ranged("known at one end only", graph(..., (2, 3)), True, x=(-1.0, 2.0))
def half_open(m: Any, x: fx.Proxy) -> tuple:
    above = torch.relu(torch.cos(x))
    below = torch.neg(above)
    return torch.neg(below), below * -2, above + 1, 1 - above, below.sum(1), above.mean(1), torch.exp(below)


def weights_of(*numbers: float) -> nn.Module:
    layer = nn.Module()
    layer.weight = nn.Parameter(torch.tensor(numbers), requires_grad=False)
    return layer


def rows_of(*numbers: float) -> nn.Linear:
    """Return a layer that reads one number and has these weights, no bias."""
    layer = nn.Linear(1, len(numbers), bias=False)
    layer.weight = nn.Parameter(torch.tensor(numbers).reshape(-1, 1), requires_grad=False)
    return layer


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def span(least: float = -4, most: float = 4) -> tuple[float, float]:
        low = rng.uniform(least, most)
        return low, low + rng.uniform(0.5, 4)

    wide, weights = rng.randint(3, 7), rng.randrange(2**31)
    end = random.Random(seed).uniform(2, 3)

    def linear(rows: int, columns: int, bias: bool = True) -> Any:
        def make() -> nn.Linear:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(weights + rows)
                return nn.Linear(columns, rows, bias=bias)

        return make

    return [
        ranged(
            "a column of which nothing is known", graph(column, (3, 1), only=lambda: rows_of(0.5, 2.0)), True, x=span()
        ),
        ranged("number and value", graph(both_ways, (2, 3), (2, 3)), x=span(), y=span()),
        ranged("both negative", graph(negative, (2, 3), (2, 3)), x=span(-9, -5), y=span(-9, -5)),
        ranged("signs that differ", graph(negative, (2, 3), (2, 3)), x=span(-9, -5), y=span(1, 3)),
        ranged(
            "around zero", graph(negative, (2, 3), (2, 3)), x=(-1.0, rng.uniform(1, 3)), y=(-2.0, rng.uniform(1, 3))
        ),
        ranged(
            "squares",
            graph(squares, (2, 3), (2, 3)),
            x=(-rng.uniform(1, 3), rng.uniform(0.5, 2)),
            y=(-3.0, -rng.uniform(1, 2)),
        ),
        ranged("positive squares", graph(squares, (2, 3), (2, 3)), x=(1.0, 2.0), y=(-2.0, 0.0)),
        ranged("equal ranges", graph(squares, (2, 3), (2, 3)), x=(-1.5, end), y=(-1.5, end)),
        one_sided,
        sums_below,
        fractions,
        equals,
        dimensions,
        nested,
        half_open,
        ranged("one layer", graph(one_layer, (2, wide), only=linear(6, wide)), x=span()),
        ranged("one layer, no bias", graph(one_layer, (2, 1, wide), only=linear(5, wide, False)), x=span()),
        ranged("sums", graph(summed, (3, 5)), x=span()),
        ranged("functions", graph(functions, (2, 3)), x=(-rng.uniform(1, 3), rng.uniform(1, 3))),
        ranged("a constant", graph(weighted, (2, 4), w=(4,)), x=span(-1, 0)),
        away,
        cousins,
        ranged(
            "a deep one",
            graph(deep, (2, wide), first=linear(4, wide), second=linear(4, 4), last=linear(3, 4)),
            x=span(),
        ),
        ranged("shares", graph(shares, (2, 3)), x=span(-2, 1)),
        ranged("nothing is known", graph(strange, (2, 3), (2, 3), only=linear(4, 3)), True, x=span(), y=span()),
        narrow_shares,
    ]


EQUIVALENT = {
    ("not isinstance(a, tuple)", "True"): "what sums over dimensions has one operand",
    (
        "def transfer(gm, node, first, second=(0, 0)): ...",
        "def transfer(gm, node, first, second=(0, 1)): ...",
    ): "what has one operand does not look at a second",
    (
        "def transfer(gm, node, first, second=(0, 0)): ...",
        "def transfer(gm, node, first, second=(1, 0)): ...",
    ): "what has one operand does not look at a second",
    ("0.0 if a < 0 < b else ...", "0.0 if a < 0 <= b else ..."): "the square of an end that is 0 is 0",
    ("0.0 if a < 0 < b else ...", "0.0 if a <= 0 < b else ..."): "the square of an end that is 0 is 0",
    ("tuple(...())", "...()"): "a range may be a list",
    ("...(first, dtype=torch.float64)", "...(first)"): "an end may be rounded as the program's values are",
}

# ---------------------------------------------------------------------------------------------------- answers


def _product(first, second, square):
    corners = torch.stack(torch.broadcast_tensors(*(a * b for a in first for b in second)))
    corners = corners.nan_to_num(0, math.inf, -math.inf)
    low, high = corners.amin(0), corners.amax(0)
    if square:
        low = torch.where((first[0] <= 0) & (first[1] >= 0), 0.0, torch.minimum(corners[0], corners[3]))
    return low, high


def _layer(layer, low, high):
    inf, weight = math.inf, layer.weight.double()
    at, by = (low + high) / 2 @ weight.T, (high - low) / 2 @ weight.abs().T
    at = at if layer.bias is None else at + layer.bias.double()
    return (at - by).nan_to_num(-inf, inf, -inf), (at + by).nan_to_num(inf, inf, -inf)


@right("each element has its own interval; a layer is centre and radius")
def elementwise(gm, inputs):
    bounds = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            continue
        name = op_name(node, gm)
        ends = [
            bounds[a.name] if isinstance(a, fx.Node) else (torch.tensor(float(a)),) * 2
            for a in node.args[:2]
            if not isinstance(a, list | tuple)
        ]
        if node.op == "placeholder":
            pair = tuple(torch.full(shape(node), end, dtype=torch.float64) for end in inputs[node.name])
        elif node.op == "get_attr":
            pair = (attribute(gm, node.target).double(),) * 2
        elif name in ("exp", "relu", "sigmoid", "tanh"):
            pair = tuple(getattr(torch, name)(end) for end in ends[0])
        elif name == "neg":
            pair = -ends[0][1], -ends[0][0]
        elif name in ("add", "sub"):
            other = ends[1] if name == "add" else (-ends[1][1], -ends[1][0])
            pair = ends[0][0] + other[0], ends[0][1] + other[1]
        elif name == "mul":
            pair = _product(*ends, square=node.args[0] is node.args[1])
        elif name == "Linear":
            pair = _layer(gm.get_submodule(node.target), *ends[0])
        elif name in ("sum", "mean", "transpose", "reshape", "flatten"):
            pair = tuple(getattr(end, name)(*node.args[1:], **node.kwargs) for end in ends[0])
        elif name == "softmax":
            pair = torch.zeros(1).double(), torch.ones(1).double()
            pair = tuple(p.expand(shape(node)) for p in pair)
        else:
            pair = tuple(torch.full(shape(node), end, dtype=torch.float64) for end in (-math.inf, math.inf))
        bounds[node.name] = pair
    return {name: (float(low.min()), float(high.max())) for name, (low, high) in bounds.items()}


@right("asks the corners of every operation, whatever it is; a layer is one product after the other")
def by_corners(gm, inputs):
    inf, bounds = math.inf, {}
    functions = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b if a and b else 0.0,
                 "neg": lambda a: -a, "relu": lambda a: max(a, 0), "exp": lambda a: float(torch.exp(torch.tensor(a).double())),  # noqa: E501
                 "sigmoid": lambda a: float(torch.sigmoid(torch.tensor(a).double())), "tanh": math.tanh}  # fmt: skip
    for node in gm.graph.nodes:
        if node.op == "output":
            continue
        name = op_name(node, gm)
        ends = [
            bounds[a.name] if isinstance(a, fx.Node) else [a] for a in node.args if isinstance(a, fx.Node | int | float)
        ]
        if node.op == "placeholder":
            pair = inputs[node.name]
        elif node.op == "get_attr":
            numbers = attribute(gm, node.target).flatten().tolist()
            pair = min(numbers), max(numbers)
        elif name in functions and len(ends) == 2:
            same = node.args[0] is node.args[1]
            corners = (
                [functions[name](a, a) for a in ends[0]]
                if same and name == "mul"
                else [functions[name](a, b) for a in ends[0] for b in ends[1]]
            )
            if same and name == "mul" and ends[0][0] < 0 < ends[0][1]:
                corners.append(0.0)
            pair = min(corners), max(corners)
        elif name in functions:
            corners = [functions[name](a) for a in ends[0]]
            pair = min(corners), max(corners)
        elif name == "Linear" and inf not in map(abs, ends[0]):
            layer = gm.get_submodule(node.target)
            rows, (low, high) = layer.weight.tolist(), ends[0]
            offset = [0.0] * len(rows) if layer.bias is None else layer.bias.tolist()
            pair = (
                min(b + sum(min(w * low, w * high) for w in row) for row, b in zip(rows, offset, strict=True)),
                max(b + sum(max(w * low, w * high) for w in row) for row, b in zip(rows, offset, strict=True)),
            )
        elif name == "sum":
            count = math.prod(shape(node.args[0])) // math.prod(shape(node))
            pair = count * ends[0][0], count * ends[0][1]
        elif name in ("mean", "reshape", "transpose", "flatten"):
            pair = ends[0]
        else:
            pair = (0, 1) if name == "softmax" else (-inf, inf)
        bounds[node.name] = pair
    return {name: tuple(map(float, pair)) for name, pair in bounds.items()}


@wrong("same", "runs the graph on random inputs and takes what it saw")
def sampled(gm, inputs):
    samples = {}

    class Watch(fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            if n.op != "output":
                samples.setdefault(n.name, []).extend([float(result.min()), float(result.max())])
            return result

    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for _ in range(20):
        with torch.no_grad():
            Watch(gm).run(
                *(inputs[n.name][0] + (inputs[n.name][1] - inputs[n.name][0]) * torch.rand(shape(n)) for n in places)
            )
    return {name: (min(ends), max(ends)) for name, ends in samples.items()}


@wrong("did", "everything is possible: sound, and of no use")
def everything(gm, inputs):
    return {n.name: (-math.inf, math.inf) for n in gm.graph.nodes if n.op != "output"}


low_from_low = edited("same", "a difference of ranges is low - low … high - high")(("(-d, -c)", "(c, d)"))
low_times_low = edited("same", "multiplies low by low and high by high")(
    ("[... for p in (a, b) for q in (c, d)]", "[... for p, q in ((a, c), (b, d))]")
)
equal_ranges = edited("same", "takes every product across zero for a square")(
    ("node.args[0] is node.args[1]", "(a < 0 < b)")
)
equal_operands = edited("same", "takes a product of two operands with equal ranges for a square")(
    ("node.args[0] is node.args[1]", "first == second")
)
no_difference = edited("same", "takes the difference of two operands with equal ranges for 0")(
    ("(-d, -c)", "(-a, -b) if first == second else (-d, -c)")
)
sum_by_name = edited("did", "takes a sum whose dimension is given by name for one over all of them")(
    ("... / math.prod(shape(node))", "... / (math.prod(shape(node)) if len(node.args) > 1 else 1)")
)
in_the_graph = edited("valid", "looks for a number in the graph's module alone, not in its layers")(
    ("attribute(gm, node.target).min().item()", "getattr(gm, node.target).min().item()")
)
sum_of_one = edited("did", "a sum of numbers below 0 ends where they end")(
    ("count * a, count * b", "count * a, max(b, count * b)")
)
relu_from_zero = edited("did", "the range of a relu begins at 0, wherever its operand's begins")(
    ("if name == 'softmax': ...", "if name == 'softmax': ...\nif name == 'rectified':\n    return 0.0, max(b, 0.0)"),
    ("op_name(node, gm)", 'op_name(node, gm).replace("relu", "rectified")'),
)
by_formula = edited("valid", "computes the sigmoid by its formula, whose exp overflows far below zero")(
    (
        "if name == 'softmax': ...",
        "if name == 'softmax': ...\nif name == 'logistic':\n    return 1 / (1 + math.exp(-a)), 1 / (1 + math.exp(-b))",
    ),
    ("op_name(node, gm)", 'op_name(node, gm).replace("sigmoid", "logistic")'),
)
like_relu = edited("same", "takes what resembles a relu for one")(
    ("op_name(node, gm)", 'op_name(node, gm).replace("leaky_relu", "relu").replace("gelu", "relu")')
)
relu_at_low = edited("valid", "a relu clips the low end alone")(
    ("if name == 'softmax': ...", "if name == 'softmax': ...\nif name == 'rectified':\n    return max(a, 0.0), b"),
    ("op_name(node, gm)", 'op_name(node, gm).replace("relu", "rectified")'),
)
softmax_of_ends = edited("same", "takes the softmax of the two ends: it may have more than two terms")(
    ("return 0.0, 1.0", "return tuple(torch.tensor(first, dtype=torch.float64).softmax(0).nan_to_num(0.0).tolist())")
)
softmax_within_operand = edited("valid", "cuts a softmax's range with its operand's")(
    ("return 0.0, 1.0", "return max(a, 0.0), min(b, 1.0)")
)
whole_numbers = edited("same", "a number among the operands is rounded down")(("(a, a)", "(a // 1, a // 1)"))
all_or_nothing = edited("did", "what is unknown at one end is unknown at both once it is negated")(
    ("return (-b, -a)", "return (-b, -a) if math.isfinite(a) else EVERYTHING")
)
not_negated = edited("valid", "negates both ends and leaves them in their places")(("(-b, -a)", "(-a, -b)"))
by_magnitude = edited("did", "bounds a layer by magnitudes: |weights| times the largest operand")(
    ("up * a + down * b", "(down - up) * max(abs(a), abs(b))"),
    ("up * b + down * a", "(up - down) * max(abs(a), abs(b))"),
)
no_signs = edited("same", "puts the low end into every weight, the negative ones, too")(
    ("up * a + down * b", "torch.minimum((up + down) * a, (up + down) * b)"),
    ("up * b + down * a", "torch.maximum((up + down) * a, (up + down) * b)"),
)
infinite_layer = edited("spared", "puts an infinite end into a layer, too, weight by weight")(
    ("math.isfinite(a) and math.isfinite(b)", "True"),
    ("up * a + down * b", "(up * a).nan_to_num(0, inf, -inf) + (down * b).nan_to_num(0, inf, -inf)"),
    ("up * b + down * a", "(up * b).nan_to_num(0, inf, -inf) + (down * a).nan_to_num(0, inf, -inf)"),
    ("layer = ...", "...\ninf = math.inf"),
)
passes_on = edited("spared", "an operation without a row hands its operand's range on")(
    ("EVERYTHING  # no row", "a, b")
)
no_bias = edited("same", "forgets the bias of a layer")(("0 if layer.bias is None else layer.bias.double()", "0"))


@wrong("valid", "takes the rows of the library's table")
def by_the_library(gm, inputs):
    values = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            low, high = inputs.get(node.name, (0.0, 0.0))
            ends = (torch.full(tuple(shape(node)), end, dtype=torch.float64) for end in (low, high))
            values[node] = library.Interval(*ends) if node.op == "placeholder" else None
        elif node.op == "get_attr":
            values[node] = library.constant(attribute(gm, node.target).detach())
        else:
            args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
            values[node] = library.TRANSFER[op_name(node, gm)](*args, **kwargs)
    return {n.name: (v.low.min().item(), v.high.max().item()) for n, v in values.items() if v is not None}
