"""Hidden cases and answers of day13.decompose."""

from __future__ import annotations

import math
import random

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day13.decompose import FAR, INF, NEAR, case, ordinary, program_case
from passlab.given.day13.decompose import aten
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def around(*scales: float, count: int = 6) -> list[float]:
        return [rng.choice((-1, 1)) * rng.uniform(0.1, 1) * scale for scale in scales for _ in range(count)]

    near = [*NEAR, *around(1e-7, 1e-4, 1e-2, 0.5)]
    far = [*FAR, *around(3.0, 10.0, 40.0), -INF, -200.0, 88.7, -17.0, math.nan]
    of_all = [abs(x) if x < -1 else x for x in [*near, *far]]
    pairs = around(1.0, 1e25, 1e-25, count=4)
    large = rng.uniform(500, 1500)
    draw = ordinary(3, 4, 5, seed=rng.randrange(2**31))
    flat = draw.reshape(3, 20)

    def mixed(x, y):
        a = aten.tanh.default(x) + aten.log1p.default(y * y)
        b = aten.hypot.default(a, aten.softplus.default(y))
        return aten._log_softmax.default(b, -1, False) * aten.var.correction(x, [0, 1], keepdim=True)

    return [
        case("log1p", aten.log1p.default, [[*of_all, -1.0, -0.5]]),
        case("log1p of less than -1", aten.log1p.default, [[-2.0, -INF]]),
        case("expm1", aten.expm1.default, [[*near, *far]]),
        case("tanh", aten.tanh.default, [[*near, *far]]),
        case("softplus", aten.softplus.default, [[*near, *far, -90.0, -20.5]]),
        case("hypot", aten.hypot.default, [pairs, [-x * rng.uniform(0.1, 3) for x in pairs]]),
        case(
            "hypot, infinite and 0",
            aten.hypot.default,
            [[INF, INF, -INF, 1.0, 0.0, 3e38], [INF, 1.0, 2.0, -INF, -3.0, 1.0]],
        ),
        case("hypot, twice 0", aten.hypot.default, [[0.0, 1.0], [0.0, 0.0]]),
        case("hypot of NaN", aten.hypot.default, [[math.nan, 1.0, math.nan], [2.0, math.nan, 0.0]]),
        case("softmax", aten._softmax.default, [draw * large], rng.choice((0, -2)), False),
        case("log_softmax", aten._log_softmax.default, [draw * large + large], rng.choice((0, -1)), False),
        case("log_softmax of numbers close together", aten._log_softmax.default, [draw * 1e-3 + 50], 1, False),
        case("log_softmax of large numbers", aten._log_softmax.default, [draw + large], 2, False),
        case("variance of all, of a large mean", aten.var.correction, [flat + large], [0, -1], correction=0),
        case("variance without options", aten.var.correction, [flat - large], [rng.choice((1, -1))]),
        case("variance, dimensions kept", aten.var.correction, [draw * 1e-3 + 0.1], [1], correction=2, keepdim=True),
        case("variance of large numbers", aten.var.correction, [flat * 1e17], [1], correction=1),
        program_case("several", mixed, [flat, flat.flip(0) * 0.5], about=("valid", "same", "did")),
        program_case("nothing to do", lambda x: (x * 2).exp() + 1, [flat], about=("valid", "same", "spared")),
    ]


EQUIVALENT = {
    ("list(gm.graph.nodes)", "gm.graph.nodes"): "torch.fx allows to erase during a walk",
    ("x < 0", "x <= 0"): "at 0 both are 0",
    ("x > 0", "x >= 0"): "at 0 both are 0",
}

# ---------------------------------------------------------------------------------------------------- answers


def _number(node):
    """Return the number of elements of which a node takes the variance."""
    shape = node.args[0].meta["tensor_meta"].shape
    return math.prod(shape[dim] for dim in node.args[1])


def _log1p(x):
    """Return log1p by a series near 0, by log elsewhere."""
    s = x / (2 + x)
    t = s * s
    series = s * 2 * (1 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9)))))
    return torch.where(torch.abs(x) < 0.25, series, torch.log(1 + x))


def _expm1(x):
    """Return expm1 by its series near 0, by exp elsewhere."""
    series = x * 0
    for n in range(9, 0, -1):
        series = (series + 1) * (x / n)
    return torch.where(torch.abs(x) < 0.4, series, torch.exp(x) - 1)


def _tanh(x):
    t = torch.exp(-2 * torch.abs(x))
    far = (1 - t) / (1 + t)
    e = _expm1(2 * torch.abs(x))
    size = torch.where(torch.abs(x) < 0.2, e / (e + 2), far)
    return torch.where(x.lt(0), size.neg(), size)


def _softmax(x, dim, _):
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e.div(e.sum(dim, keepdim=True))


def _log_softmax(x, dim, _):
    shifted = torch.sub(x, x.amax(dim, keepdim=True))
    return torch.sub(shifted, shifted.exp().sum(dim, keepdim=True).log())


def _softplus(x):
    return torch.where(x.gt(0), x, 0) + _log1p(torch.exp(-x.abs()))


def _hypot(x, y):
    """Return hypot with both scaled by a power of two, where they are large or small."""
    x, y = x.abs(), y.abs()
    most = torch.maximum(x, y)
    scale = torch.where(most > 1e15, 2.0**-70, torch.where(most < 1e-15, 2.0**70, 1.0))
    return torch.sqrt(x * scale * (x * scale) + y * scale * (y * scale)) / scale


def _var(number):
    def var(x, dims, correction=1, keepdim=False):
        deviation = x - x.sum(dims, keepdim=True) / number
        return (deviation * deviation).sum(dims, keepdim=keepdim) / (number - correction)

    return var


RULES = {
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten.log1p.default: _log1p,
    aten.expm1.default: _expm1,
    aten.tanh.default: _tanh,
    aten.softplus.default: _softplus,
    aten.hypot.default: _hypot,
}


def _rule(node, rules=RULES):
    return _var(_number(node)) if node.target is aten.var.correction else rules.get(node.target)


@right("series near 0, and plain formulas elsewhere, by a Transformer")
def by_series(gm):
    class Decomposed(fx.Transformer):
        def run_node(self, n):
            if rule := _rule(n):
                args, kwargs = self.fetch_args_kwargs_from_env(n)
                return rule(*args, **kwargs)
            return super().run_node(n)

    return Decomposed(gm).transform()


def _copied(gm, rules=RULES):
    graph, copies = fx.Graph(), {}
    tracer = fx.proxy.GraphAppendingTracer(graph)
    for node in gm.graph.nodes:
        if rule := _rule(node, rules):
            operands = [fx.Proxy(copies[a], tracer) if isinstance(a, fx.Node) else a for a in node.args]
            copies[node] = rule(*operands, **node.kwargs).node
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(gm, graph)


@right("the same formulas, node by node into a new graph")
def copied(gm):
    return _copied(gm)


textbook = edited("spared", "softmax by its definition: exp overflows")(
    ("e = torch.exp(x - torch.amax(x, dim, True))", "e = torch.exp(x)")
)
log_of_softmax = edited("spared", "takes the logarithm of the softmax: it is -inf where that is 0")(
    ("return x - torch.log(torch.sum(torch.exp(x), dim, True))", "return torch.log(softmax(x, dim, _))")
)
sum_first = edited("spared", "adds the maximum to the logarithm, which rounds away what is small")(
    ("x = x - torch.amax(x, dim, True)", "m = torch.amax(x, dim, True)"),
    (
        "x - torch.log(torch.sum(torch.exp(x), dim, True))",
        "x - (m + torch.log(torch.sum(torch.exp(x - m), dim, True)))",
    ),
)
plain_log = edited("spared", "log(1 + x): near 0, x is lost")(
    ("torch.where((u == 1) | (u == INF), x, corrected)", "torch.log(u)")
)
plain_exp = edited("spared", "exp(x) - 1: near 0, only the 1 is left")(
    ("torch.where((u == 0) | (u == INF), u - 1, corrected)", "u - 1")
)
of_squares = edited("spared", "the mean of the squares less the square of the mean: large means cancel")(
    (
        "torch.sum(deviation * deviation, dims, keepdim)",
        "(torch.sum(x * x, dims, keepdim) - torch.sum(x, dims, keepdim) * torch.sum(x, dims, keepdim) / number)",
    )
)
by_squares = edited("spared", "squares what is large or small: inf, or 0")(
    ("torch.where((large == 0) | (large == INF), large, value)", "torch.sqrt(x * x + y * y)")
)
no_limits = edited("spared", "forgets that inf / inf is NaN")(("(large == 0) | (large == INF)", "large == 0"))
overflow = edited("spared", "the correction overflows before it is divided")(
    ("torch.log(u) * (x / (u - 1))", "torch.log(u) * x / (u - 1)")
)
no_correction = edited("same", "divides by the number of elements, whatever the correction")(
    ("number - correction", "number")
)
zeros = edited("spared", "hypot of two zeros is 0 / 0")(("(large == 0) | (large == INF)", "large == INF"))
numbers_alone = edited("spared", "hypot of NaN is 0")(
    (
        "torch.where((large == 0) | (large == INF), large, value)",
        "torch.where(large > 0, torch.where(large < INF, value, INF), 0.0)",
    )
)
last_only = edited("did", "leaves hypot as it is")(("aten.hypot.default", "None"))
other_order = edited("same", "counts the elements of the first dimension only")(
    ("math.prod(shape[dim] for dim in dims)", "shape[dims[0]]")
)


@wrong("did", "uses another operation that is not among the few: sigmoid")
def by_sigmoid(gm):
    return _copied(gm, RULES | {aten.tanh.default: lambda x: torch.sigmoid(2 * x) * 2 - 1})
