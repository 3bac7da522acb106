"""Hidden cases and answers of day06.precision."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day06.precision import layer, planned
from passlab.fx.cases import graph
from passlab.fx.nodes import op_name, shape
from passlab.judge import Case, cases_in

# ---------------------------------------------------------------------------------------------------- hidden cases


def below(m: Any, x: fx.Proxy) -> tuple:
    y = x * 1000
    return torch.relu(y), y.transpose(0, 1)


def one_layer(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.tanh(m.first(x))


def averages(m: Any, x: fx.Proxy) -> tuple:
    return x.mean(1), x.mean((0, 1)), (x * 0.001).mean(1), x.reshape(-1, 4).mean(1)


def sums(m: Any, x: fx.Proxy) -> tuple:
    return x.sum(1), x.sum(0), torch.relu(x).sum((0, 1))


def exponents(m: Any, x: fx.Proxy) -> tuple:
    return torch.exp(x), torch.exp(x + 3), torch.tanh(torch.exp(x + 3))


def constant(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.relu(m.w * x) + 1


def strange(m: Any, x: fx.Proxy) -> tuple:
    a = torch.cos(x)
    return a * 0 + 1, torch.softmax(a, dim=1), m.first(a), torch.sigmoid(a).mean(1), torch.sigmoid(a) * x


def inputs(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    a = x * y
    return torch.neg(a), y * 0.5 - x, a.flatten(0).sum()


def shares(m: Any, x: fx.Proxy) -> tuple:
    y = x * 20_000
    return torch.softmax(y, dim=1), torch.softmax(x, dim=1), torch.neg(y)


def deep(m: Any, x: fx.Proxy) -> fx.Proxy:
    h = torch.relu(m.first(x))
    h = torch.relu(m.second(h))
    return torch.tanh(m.third(h) * 1e-3) - torch.sigmoid(h.sum(1, keepdim=True))


@planned("exactly 60,000", graph(..., (2, 4), first=layer([[20_000.0, -5_000.0, 0.0, 25_000.0]], [10_000.0])), "did",
         x=(-1.0, 1.0))  # fmt: skip
def exact(m: Any, x: fx.Proxy) -> tuple:
    return torch.relu(x * 60_000), m.first(x), (x * 15_000).sum(1), (x * 15_000).mean(1)


@planned("two rows, one with a bias", graph(..., (2, 2), first=layer([[20_000.0, 20_000.0], [1.0, 1.0]], [0.0, 5e4])),
         "did", x=(-1.0, 1.0))  # fmt: skip
def apart(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.first(x)


@planned("known at one end", graph(..., (2, 3)), "did", "spared", x=(-100.0, 5.0))
def half_open(m: Any, x: fx.Proxy) -> tuple:
    a = torch.relu(torch.cos(x))
    return torch.neg(a), torch.tanh(a), torch.exp(x)


@planned("means of columns", graph(..., (4096, 4), (4, 4096)), "did", "spared", x=(-1.0, 50.0), y=(-1.0, 50.0))
def columns(m: Any, x: fx.Proxy, y: fx.Proxy) -> tuple:
    return x.mean(0), y.mean(0)


@planned("dimensions from the end and by name", graph(..., (4, 2048)), "did", "spared", x=(-40.0, 1.0))
def dimensions(m: Any, x: fx.Proxy) -> tuple:
    return x.mean(dim=0), torch.mean(x, -2), torch.mean(x, dim=1)


@planned("an operand by name", graph(..., (2, 3)), "did", "spared", x=(-4.0, 2.0))
def by_name(m: Any, x: fx.Proxy) -> tuple:
    return torch.softmax(input=x * 20_000, dim=1), torch.softmax(input=x, dim=1)


@planned("layers in a part", graph(..., (2, 2), part=lambda: torch.nn.Sequential(layer([[2.0, 1.0], [0.5, 0.5]])(),
         layer([[3e4, -3e4]])())), "did", "spared", x=(1.0, 1.0))  # fmt: skip
def nested(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.tanh(m.part(x))


@planned("a layer of small weights", graph(..., (2, 2), first=layer([[1e-4, 1e-4]])), "did", "spared", x=(-1e5, 1e5))
def small_weights(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.tanh(m.first(x))


@planned("a small constant, and a call that nothing reads", graph(..., (2, 2), w=torch.tensor([1.0, -2.0])), "did",
         x=(-1.0, 1.0))  # fmt: skip
def unread(m: Any, x: fx.Proxy) -> fx.Proxy:
    torch.neg(x)
    return m.w * x


EVERYTHING = ("same", "did", "spared")
#: What a case decides in which no call is safe: an empty plan would be complete there without a look.
UNSAFE = ("same", "spared")


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    big, tiny = rng.uniform(300, 500), rng.uniform(1e-6, 2e-6)
    many, above = rng.choice((2048, 4096)), rng.randint(61_500, 65_000)

    def near_the_end(m: Any, x: fx.Proxy) -> tuple:
        return torch.relu(x * above), torch.relu(x * 58_000), x * 0.1 * 80_000

    def just_above(m: Any, x: fx.Proxy) -> tuple:
        return x * 60_050, x * 59_950

    def there_and_back(m: Any, x: fx.Proxy) -> fx.Proxy:
        return torch.sigmoid(x * big * big * tiny) + x

    def rows(count: int, wide: int, most: float) -> list[list[float]]:
        return [[rng.uniform(-most, most) for _ in range(wide)] for _ in range(count)]

    scale = rng.uniform(25_000, 30_000)
    diagonal = [[scale if i == j else 0.0 for j in range(4)] for i in range(4)]
    nets = {"first": layer(rows(6, 4, 30)), "second": layer(rows(5, 6, 30)), "third": layer(rows(1, 5, 30))}
    return [
        *cases_in(__name__),
        planned("far below zero", graph(below, (2, 3)), *UNSAFE, x=(-rng.uniform(70, 90), 5.0)),
        planned("a negative input", graph(below, (2, 3)), *UNSAFE, x=(-rng.uniform(70, 90), -65.0)),
        planned("between 60,000 and 65,504", graph(near_the_end, (2, 3)), "did", "spared", x=(-1.0, 1.0)),
        planned("out of the range, and back", graph(there_and_back, (2, 3)), *EVERYTHING, x=(-1.0, 1.0)),
        planned(
            "terms that cancel",
            graph(one_layer, (4, 2), first=layer([[1.0, 2.0], [-scale, scale + 1]])),
            "did",
            "spared",
            x=(1.5, 1.6),
        ),
        planned(
            "terms below zero that cancel",
            graph(one_layer, (4, 2), first=layer([[-scale, scale + 2], [1.0, 2.0]])),
            "did",
            "spared",
            x=(-1.6, -0.1),
        ),
        planned(
            "terms that cancel, from near zero on",
            graph(one_layer, (4, 2), first=layer([[1.0, 2.0], [-scale, scale + 1]])),
            "did",
            "spared",
            x=(0.1, 1.6),
        ),
        planned("just above 60,000", graph(just_above, (2, 3)), "did", "spared", x=(-1.0, 1.0)),
        planned(
            "a bias against the rest",
            graph(one_layer, (4, 1), first=layer([[-scale]], [2 * scale - 10_000])),
            "did",
            "spared",
            x=(0.9, 1.0),
        ),
        planned(
            "a bias below zero",
            graph(one_layer, (4, 1), first=layer([[scale]], [10_000 - 2 * scale])),
            "did",
            "spared",
            x=(0.9, 1.0),
        ),
        planned(
            "large weights, small operands",
            graph(one_layer, (4, 2), first=layer([[rng.uniform(7e4, 9e4), 1.0]])),
            "did",
            "spared",
            x=(-0.01, 0.01),
        ),
        planned(
            "large weights below zero",
            graph(one_layer, (4, 2), first=layer([[-rng.uniform(7e4, 9e4), 1.0]])),
            "did",
            "spared",
            x=(-0.01, 0.01),
        ),
        planned("each row fits", graph(one_layer, (2, 4), first=layer(diagonal)), "did", x=(-1.5, 1.9)),
        planned(
            "a layer with negative operands",
            graph(one_layer, (2, 4), first=layer(diagonal)),
            *UNSAFE,
            x=(-2.9, 0.5),
        ),
        planned("means", graph(averages, (8, many)), "did", "spared", x=(-rng.uniform(35, 50), 1.0)),
        planned("sums", graph(sums, (8, many)), *EVERYTHING, x=(-4.0, rng.uniform(9, 12))),
        planned("exponents", graph(exponents, (2, 3)), *EVERYTHING, x=(-2.0, rng.uniform(9, 10))),
        planned(
            "a large constant",
            graph(constant, (2, 3), w=torch.tensor([1.0, 2.0, rng.uniform(8e4, 1e5)])),
            "did",
            "spared",
            x=(-0.1, 0.1),
        ),
        planned(
            "nothing is known",
            graph(strange, (2, 3), first=layer(rows(2, 3, 1), [0.0, 1.0])),
            "did",
            "spared",
            x=(-1.0, 1.0),
        ),
        planned(
            "a large second operand",
            graph(inputs, (2, 3), (2, 3)),
            *EVERYTHING,
            x=(-0.1, 0.1),
            y=(-1e4, rng.uniform(7e4, 9e4)),
        ),
        planned("shares", graph(shares, (2, 3)), *EVERYTHING, x=(-rng.uniform(4, 6), 2.0)),
        *(
            planned(f"a deep one, number {k}", graph(deep, (2, 4), **nets), "did", "spared", x=(-end, end))
            for k, end in enumerate((0.01, 0.5, 10.0), 1)
        ),
    ]


# ---------------------------------------------------------------------------------------------------- answers


@right("asks for each reason against float16 in turn; sums as products of matrices")
def reasons(gm, ranges):
    def far(name):
        low, high = ranges[name]
        return low < -60_000 or high > 60_000

    names = []
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        first, name = node.all_input_nodes[0], op_name(node, gm)
        if far(node.name) or any(far(operand.name) for operand in node.all_input_nodes):
            continue
        most = max(ranges[first.name], key=abs)
        if name in ("sum", "mean") and abs(most) * math.prod(shape(first)) > 60_000 * math.prod(shape(node)):
            continue
        if name == "Linear":
            parts = {key: value.double().abs() for key, value in gm.get_submodule(node.target).named_parameters()}
            reach = parts["weight"] @ torch.full((parts["weight"].shape[1],), abs(most)).double()
            if "bias" in parts:
                reach += parts["bias"]
            if reach.max() > 60_000 or parts["weight"].max() > 60_000:
                continue
        names.append(node.name)
    return names


@right("in plain Python: a list of everything that is held, one number after the other")
def plain(gm, ranges):
    def bounds(node):
        for other in [node, *node.all_input_nodes]:
            yield from ranges[other.name]
        operand = node.all_input_nodes[0]
        most, name = max(map(abs, ranges[operand.name])), op_name(node, gm)
        if name in ("sum", "mean"):
            yield most * math.prod(shape(operand)) / math.prod(shape(node))
        if name == "Linear":
            layer_ = gm.get_submodule(node.target)
            rows = layer_.weight.tolist()
            bias = [0.0] * len(rows) if layer_.bias is None else layer_.bias.tolist()
            for row, b in zip(rows, bias, strict=True):
                yield from row
                yield sum(abs(w) * most for w in row) + abs(b)

    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    return {node.name for node in calls if all(-60_000 <= number <= 60_000 for number in bounds(node))}


@wrong("same", "float16 is wide enough for everything")
def everything_in_half(gm, ranges):
    return {node.name for node in gm.graph.nodes if node.op.startswith("call_")}


@wrong("did", "nothing in float16: safe, and of no use")
def nothing_in_half(gm, ranges):
    return set()


@wrong("did", "once a node has to stay in float32, so does all that reads it")
def never_back(gm, ranges):
    safe, nodes = plain(gm, ranges), set()
    for node in gm.graph.nodes:
        before = [other.name for other in node.all_input_nodes if other.op.startswith("call_")]
        if node.name in safe and all(name in nodes for name in before):
            nodes.add(node.name)
    return nodes


@wrong("valid", "names inputs and constants, too")
def inputs_too(gm, ranges):
    return {name for name, (low, high) in ranges.items() if max(-low, high) <= 60_000}


@wrong("valid", "names constants that fit, too")
def constants_too(gm, ranges):
    constants = [node.name for node in gm.graph.nodes if node.op == "get_attr"]
    return plain(gm, ranges) | {name for name in constants if max(map(abs, ranges[name])) <= 60_000}


operands_only = edited("same", "asks for what is read, not for the result")(("(node, *...)", "..."))
no_sums = edited("spared", "what happens on the way to a result does not matter")(
    ("magnitudes + on_the_way(gm, node, most)", "magnitudes")
)
cancelled = edited("spared", "terms cancel on the way, too")(("layer.weight.double().abs", "layer.weight.double"))
no_bias = edited("spared", "forgets the bias")(("weight.sum(1) * most + bias", "weight.sum(1) * most"))

one_end = edited("spared", "adds up a layer's terms at the high end of its operand alone")(
    ("layer = gm.get_submodule(node.target)", "layer, most = gm.get_submodule(node.target), abs(high)"),
    ("on_the_way(gm, node, most)", "on_the_way(gm, node, most, ranges[node.all_input_nodes[0].name][1])"),
    ("def on_the_way(gm, node, most): ...", "def on_the_way(gm, node, most, high): ..."),
)
other_end = edited("spared", "adds up a layer's terms at the low end of its operand alone")(
    ("layer = gm.get_submodule(node.target)", "layer, most = gm.get_submodule(node.target), abs(low)"),
    ("on_the_way(gm, node, most)", "on_the_way(gm, node, most, ranges[node.all_input_nodes[0].name][0])"),
    ("def on_the_way(gm, node, most): ...", "def on_the_way(gm, node, most, low): ..."),
)
first_row = edited("spared", "looks at the first output of a layer")(
    ("(weight.sum(1) * most + bias).max()", "(weight.sum(1) * most + bias)[0]")
)
bias_apart = edited("did", "adds the largest bias to the largest row, though they are of different outputs")(
    ("(weight.sum(1) * most + bias).max()", "((weight.sum(1) * most).max() + torch.as_tensor(bias).max())")
)
last_dimension = edited("did", "a mean has as many terms as its operand has columns")(
    ("math.prod(shape(node.all_input_nodes[0])) / math.prod(shape(node))", "shape(node.all_input_nodes[0])[-1]")
)
finite_ends = edited("spared", "an end that is infinite does not count if the other one is known")(
    (
        "return max(abs(end) for end in ends)",
        "return max((abs(end) for end in ends if math.isfinite(end)), default=math.inf)",
    )
)
below_the_end = edited("did", "exactly 60,000 is too much")(("... <= MOST", "... < MOST"))
to_the_end = edited("spared", "leaves no room for rounding: 65504 is the end")(("MOST", "65504"))
numbers_too = edited("did", "a number among the operands must fit, too")(
    (
        "if ... <= MOST: ...",
        "magnitudes += [abs(arg) for arg in node.args if isinstance(arg, (int, float))]\nif ... <= MOST: ...",
    )
)
by_position = edited("spared", "overlooks an operand that is given by name")(
    ("(node, *...)", "(node, *[arg for arg in node.args if isinstance(arg, fx.Node)])")
)
layers_read = edited("same", "asks of a layer for its weights, its terms and its result, not for what it reads")(
    ("(node, *...)", '((node,) if node.op == "call_module" else (node, *...))')
)
top_layers = edited("valid", "looks for a layer on the top module only: it may lie in a part")(
    ("gm.get_submodule(node.target)", "getattr(gm, node.target)")
)
named_dimensions = edited("did", "a mean over a dimension that is given by name is over all of them")(
    (
        "math.prod(shape(node.all_input_nodes[0])) / math.prod(shape(node))",
        "math.prod(shape(node.all_input_nodes[0])) / (1 if node.kwargs else math.prod(shape(node)))",
    )
)
methods = edited("spared", "takes x.mean(1) for a mean, and torch.mean(x, 1) not")(
    ('name in ("sum", "mean")', 'node.target in ("sum", "mean")')
)
read_calls = edited("did", "leaves out calls that nothing reads")(
    ('node.op.startswith("call_")', 'node.op.startswith("call_") and node.users')
)

EQUIVALENT = {
    (
        "0 if layer.bias is None else ...",
        "1 if layer.bias is None else ...",
    ): "so near to the end, either plan is accepted",
    ('("sum", "mean")', '("mean",)'): "the range of a sum is that of its terms, so often",
}
