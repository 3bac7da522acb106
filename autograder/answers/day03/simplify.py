"""Hidden cases and answers of day03.simplify."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day03._shared import generated
from autograder.authoring.answers import edited, plain, right, wrong
from passlab.exercises.day03.simplify import PLAIN, fails, holds, table
from passlab.fx.cases import case, graph, least, most, read
from passlab.fx.effects import written
from passlab.judge import Case, core

# ---------------------------------------------------------------------------------------------------- hidden cases


RESHAPED = "reshape(reshape(x, s), t) = reshape(x, t)"
TRANSPOSED = "x.transpose(a, b).transpose(b, a) = x"


def none_of(**counts: int) -> list:
    return [most(op, count, "The law holds here.") for op, count in counts.items()]


def _spellings() -> list[Case]:
    """Return each op as an operator, a function and a method."""
    two = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow}
    one = {"neg": (operator.neg, torch.neg), "abs": (operator.abs, torch.abs), "relu": (F.relu, torch.relu)}

    def binary(op: str) -> list[Callable]:
        return [two[op], getattr(torch, op), lambda x, y: getattr(x, op)(y)]

    def unary(op: str) -> list[Callable]:
        return [*one[op], lambda x: getattr(x, op)()]

    def twice(outer: str, inner: str) -> list[Callable]:
        return [lambda m, x, f=f, g=g: f(g(x)) for f in unary(outer) for g in unary(inner)]

    laws = [("add", "x + 0 = x", 0), ("sub", "x - 0 = x", 0), ("mul", "x * 1 = x", 1), ("div", "x / 1 = x", 1)]
    laws += [("pow", "x ** 1 = x", 1)]
    shapes = [torch.transpose, lambda x, *dims: x.transpose(*dims)]
    return [
        table(
            "operators, functions and methods of two operands",
            [
                holds(law, lambda m, n, x, f=f, c=c, op=op: f(n if op == "add" else x, c), **{op: 0, "truediv": 0})
                for op, law, c in laws
                for f in binary(op)
            ],
            torch.arange(4),
            (2, 3),
        ),
        table(
            "operators, functions and methods of one operand",
            [
                *[holds("-(-x) = x", f, neg=0) for f in twice("neg", "neg")],
                *[holds("abs(abs(x)) = abs(x)", f, abs=1) for f in twice("abs", "abs")],
                *[holds("abs(-x) = abs(x)", f, neg=0) for f in twice("abs", "neg")],
                *[holds("relu(relu(x)) = relu(x)", f, relu=1) for f in twice("relu", "relu")],
                *[
                    holds("x + (-y) = x - y", lambda m, x, f=f, g=g: f(x, g(m.y)), neg=0, add=0)
                    for f in binary("add")
                    for g in unary("neg")
                ],
                *[
                    holds(TRANSPOSED, lambda m, x, f=f, g=g: f(g(x, 0, 1), 0, 1), transpose=0)
                    for f in shapes
                    for g in shapes
                ],
            ],
            (2, 3),
            y=(3,),
        ),
    ]


ones = table(
    "tensors of one number",
    [
        holds("x * 1 = x", lambda m, x: m.ones * x, mul=0),
        holds("x * 1 = x", lambda m, x: x.mul(m.one), mul=0),
        holds("x - 0 = x", lambda m, x: x.sub(m.zeros), sub=0),
        holds("x ** 1 = x", lambda m, x: x**m.ones, pow=0),
        holds("x + (-y) = x - y, and then x - 0 = x,", lambda m, x: x + (-m.zeros), add=0, sub=0),
        fails("x + 0.0 = x", "-0.0 + 0.0 is 0.0", lambda m, x: x + m.zeros, add=1),
        fails("x * 1 = x", "one of the elements is not 1", lambda m, x: x * m.almost, mul=1),
        fails("x / 1 = x", "one of the elements is -1", lambda m, x: x / m.signs, truediv=1),
        fails("x - 0 = x", "one of the zeros is -0.0, and -0.0 - -0.0 is 0.0", lambda m, x: x - m.mixed, sub=1),
    ],
    (2, 3),
    ones=torch.ones(2, 3),
    zeros=torch.zeros(3),
    one=torch.tensor(1.0),
    almost=torch.tensor([1.0, 1.0, 1.0 + 1e-6]),
    signs=torch.tensor([1.0, -1.0, 1.0]),
    mixed=torch.tensor([0.0, -0.0, 0.0]),
)

whole = table(
    "whole numbers",
    [
        holds("x * 0 = zeros", lambda m, n, k: torch.mul(n, 0), mul=0),
        holds("x - x = zeros", lambda m, n, k: n.sub(n), sub=0),
        holds("x + 0 = x", lambda m, n, k: n + m.zeros, add=0),
        holds("x + (-y) = x - y, and then x - x = zeros,", lambda m, n, k: n + (-n), neg=0, add=0, sub=0),
        holds("x + (-y) = x - y", lambda m, n, k: n + (-k), neg=0, add=0),
        fails("x - x = 0", "these are two tensors", lambda m, n, k: n - k, sub=1),
        fails("x * 1 = x", "the product is a float", lambda m, n, k: n * 1.0, mul=1),
        fails("x ** 1 = x", "the power is a float", lambda m, n, k: n**1.0, pow=1),
        fails("x / 1 = x", "the quotient is a float", lambda m, n, k: n / m.ones, truediv=1),
    ],
    torch.arange(4),
    torch.arange(4).flip(0),
    ones=torch.ones(4, dtype=torch.int64),
    zeros=torch.zeros(4, dtype=torch.int64),
)

narrow = table(
    "narrow integers and Boolean values",
    [
        fails("abs(-x) = abs(x)", "in uint8, -1 is 255", lambda m, n, k, b: abs(-k), neg=1),
        fails("x + (-y) = x - y", "a wider sum sees -1 as 255", lambda m, n, k, b: n + (-k), neg=1),
        fails("x + (-y) = x - y", "torch subtracts from no Boolean tensor", lambda m, n, k, b: b + (-n), neg=1),
        fails("x + (-y) = x - y", "torch subtracts from no Boolean value", lambda m, n, k, b: True + (-n), neg=1),
        fails("x * 1 = x", "the product is an integer", lambda m, n, k, b: b * 1, mul=1),
        fails("x ** 2 = x * x", "the power is an integer", lambda m, n, k, b: b**2, pow=1),
        holds("x * 1 = x", lambda m, n, k, b: b * True, mul=0),
    ],
    torch.arange(4),
    torch.arange(4, dtype=torch.uint8),
    torch.tensor([True, False, True, False]),
)


def towers(height: int) -> Case:
    @case("towers", graph(..., (2, 3)), did=none_of(relu=1, abs=1, neg=height % 2, mul=0))
    def program(m: Any, x: fx.Proxy) -> tuple:
        a = b = c = x
        for _ in range(height):
            a, b, c = -a, F.relu(b), (c * 1.0).abs()
        return a, b, c

    return program


@case("an operand with other readers", graph(..., (2, 3)), did=none_of(neg=1, add=0))
def shared(m: Any, x: fx.Proxy) -> tuple:
    minus = -x
    return torch.neg(minus), minus * 2, torch.tanh(x) + minus


@case(
    "a copy that is written",
    graph(..., (2, 3)),
    spared=[least("mul", 2, "x * 1 makes new memory, and here one of the two is written: x would change with it.")],
)
def written_program(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(x)
    flat = y.view(-1)
    product = flat * 1
    flat.mul_(2)
    z = torch.tanh(x)
    same = z * 1
    same.add_(1)
    return same, product, y, z


@case(
    "an operand that is written",
    graph(..., (2, 3)),
    spared=[least("neg", 2, "-(-x) = x gives another value here: x is written after -x was computed.")],
)
def written_below(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(x)
    minus = -y
    y.add_(1)
    return -minus, y


@case(
    "modules with misleading names",
    graph(..., (2, 3), neg=nn.Tanh, abs=nn.Tanh, relu=nn.Sigmoid),
    spared=[least("Tanh", 4, "neg and abs are tanh here."), least("Sigmoid", 2, "relu is a sigmoid here.")],
)
def modules(m: Any, x: fx.Proxy) -> tuple:
    return m.neg(m.neg(x)), m.abs(m.abs(x)), m.relu(m.relu(x))


@case(
    "inputs with misleading names",
    graph(..., (2, 3), (2, 3)),
    did=[most("neg", 0, "-(-x) = x, whatever an input is called.")],
)
def inputs(m: Any, neg: fx.Proxy, add: fx.Proxy) -> tuple:
    return torch.abs(neg) + torch.relu(add), torch.neg(torch.neg(neg)) * torch.neg(torch.neg(add))


@case("sizes", graph(..., (2, 3)))
def sizes(m: Any, x: fx.Proxy) -> fx.Proxy:
    rows, columns = x.size(0), x.size(1)
    return x.reshape(rows * 1, columns + 0) + (rows + (-columns)) * abs(-rows) + (-rows)


@case(
    "ones that are written",
    graph(..., (2, 3), ones=torch.ones(3)),
    spared=[least("mul", 2, "The parameter is full of ones now; the program itself writes into it.")],
)
def counting(m: Any, x: fx.Proxy) -> tuple:
    before = x * read(x, "ones")
    read(x, "ones").add_(1)
    return before, x * read(x, "ones")


def chains(length: int) -> Case:
    def reshaped(x: fx.Proxy) -> fx.Proxy:
        for _ in range(length):
            x = torch.reshape(x.reshape(-1), (3, 2))
        return x.reshape([6, 1])

    return table(
        "chains",
        [
            holds("reshape(reshape(x, s), t) = reshape(x, t)", lambda m, x: reshaped(x), reshape=1),
            holds(TRANSPOSED, lambda m, x: torch.transpose(x, 0, 1).transpose(1, 0), transpose=0),
            holds(TRANSPOSED, lambda m, x: x.unsqueeze(0).transpose(0, 2).transpose(-1, 0), transpose=0),
            holds("abs(-x) = abs(x), and then abs(abs(x)) = abs(x),", lambda m, x: abs(-abs(x)), abs=1, neg=0),
            holds("x ** 2 = x * x, and then x * 1 = x,", lambda m, x: x + m.ones**2, pow=0, mul=0),
            fails(TRANSPOSED, "roll does not transpose", lambda m, x: x.roll(1, 0).transpose(0, 1), transpose=1),
            fails(
                "reshape(reshape(x, s), t) = reshape(x, t)",
                "a reshape and a transposition do not exchange",
                lambda m, x: x.reshape(3, 2).transpose(0, 1).reshape(-1),
                reshape=2,
            ),
        ],
        (2, 3),
        ones=torch.ones(2, 3),
    )


never = table(
    "never, and nearly never",
    [
        fails("x + 0.0 = x", "-0.0 + 0.0 is 0.0", lambda m, x: 0.0 + x, add=1),
        fails("x - 0 = x", "-0.0 - -0.0 is 0.0", lambda m, x: x - (-0.0), sub=1),
        fails("x * 0 = 0", "inf * 0 is NaN", lambda m, x: torch.mul(0, x), mul=1),
        fails("x - x = 0", "inf - inf is NaN", lambda m, x: torch.sub(x, x), sub=1),
        fails("x / x = 1", "0 / 0 is NaN", lambda m, x: torch.div(x, x), div=1),
        fails("x ** 2 = x * x", "this is x ** 3", lambda m, x: torch.pow(x, 3), pow=1),
        fails("x - x = 0", "for a complex number, too, inf - inf is NaN", lambda m, x: m.c - m.c, sub=1),
        holds("x + (-y) = x - y", lambda m, x: 2.0 + (-x), neg=0, add=0),
        holds("x + (-y) = x - y", lambda m, x: m.fine + (-x), neg=0, add=0),
        fails("x - 1 = 1 - x", "the operands are the other way round", lambda m, x: 1 - x, sub=1),
        fails("x / 1 = x", "this is 1 / x", lambda m, x: 1 / x, truediv=1),
        fails("x - 0 = x", "this is 0 - x", lambda m, x: 0 - x, sub=1),
        fails("x ** 2 = x * x", "this is 2 ** x", lambda m, x: 2**x, pow=1),
    ],
    (2, 3),
    c=torch.ones(3, dtype=torch.complex64),
    fine=torch.ones(3, dtype=torch.float64),
)

options = table(
    "calls with options",
    [
        fails("x / 1 = x", "this division truncates", lambda m, x: x.div(1, rounding_mode="trunc"), div=1),
        fails("x + (-y) = x - y", "alpha is 3", lambda m, x: x.add(-x, alpha=3), add=1),
        fails("x + (-y) = x - y", "alpha is 0", lambda m, x: x.add(-x, alpha=0), add=1),
        fails("x - x = 0", "alpha is 0.5", lambda m, x: torch.sub(x, x, alpha=0.5), sub=1),
        holds("relu(relu(x)) = relu(x)", lambda m, x: F.relu(F.relu(x), inplace=False), relu=1),
        holds("x / 1 = x", lambda m, x: torch.div(x, 1, rounding_mode=None), div=0),
    ],
    (2, 3),
)

wide = table(
    "wider than x",
    [
        holds("x * 1 = x", lambda m, x: x * m.row, mul=0),
        holds("x * 1 = x", lambda m, x: m.wide * m.row, mul=0),
        fails("x * 1 = x", "the product is wider than x", lambda m, x: x * m.wide, mul=1),
        fails("x - 0 = x", "the difference is wider than x", lambda m, x: x - m.deep, sub=1),
        fails("x * 1 = x", "the product is a double", lambda m, x: m.fine * x, mul=1),
    ],
    (2, 3),
    row=torch.ones(3),
    wide=torch.ones(2, 2, 3),
    deep=torch.zeros(1, 2, 3),
    fine=torch.ones(3, dtype=torch.float64),
)


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ones", torch.ones(3))


buffers = table(
    "a buffer of a part",
    [holds("x * 1 = x, where 1 is a buffer full of ones,", lambda m, x: x * m.part.ones, mul=0)],
    (2, 3),
    part=Part,
)

other_way = table(
    "a minus on the left",
    [
        holds("x + (-y) = x - y, also as (-y) + x,", lambda m, x: -x + m.y, neg=0, add=0),
        holds("x + (-y) = x - y, also as (-y) + x,", lambda m, x: torch.add(torch.neg(m.y), x), neg=0, add=0),
    ],
    (2, 3),
    y=(2, 3),
)

PLANES = (2, 3), (2, 3, 4)

methods_t = table(
    "t, a transpose",
    [
        holds("x.t().t() = x", lambda m, x, y: torch.t(x).t(), t=0),
        holds(TRANSPOSED, lambda m, x, y: x.t().transpose(1, 0), t=0, transpose=0),
        fails(TRANSPOSED, "one of the two exchanges nothing", lambda m, x, y: x.transpose(0, 0).t(), t=1),
    ],
    *PLANES,
)

attributes = table(
    "T and mT, transposes",
    [
        holds("x.T.T = x", lambda m, x, y: x.T.T, getattr=0),
        holds("y.mT.mT = y", lambda m, x, y: y.mT.mT, getattr=0),
        holds(TRANSPOSED, lambda m, x, y: y.transpose(1, 2).mT, transpose=0, getattr=0),
        fails(TRANSPOSED, "mT exchanges the last two of three", lambda m, x, y: y.transpose(0, 1).mT, getattr=1),
        fails("x.T.T = x", "real is not a transpose", lambda m, x, y: x.T.real.exp(), getattr=2),
    ],
    *PLANES,
)

nothing_exchanged = table(
    "transposes that exchange nothing",
    [
        holds(
            "x.transpose(a, b).transpose(c, d) = x, where a = b and c = d,",
            lambda m, x, y: y.transpose(0, 0).transpose(1, -2),
            transpose=0,
        ),
        fails(TRANSPOSED, "one exchanges nothing", lambda m, x, y: y.transpose(0, 0).transpose(0, 1), transpose=1),
    ],
    *PLANES,
)


def plain_towers(height: int) -> Case:
    def tower(x: fx.Proxy, apply: Callable) -> fx.Proxy:
        for _ in range(height):
            x = apply(x)
        return x

    return table(
        "plain: towers",
        [
            holds(law, lambda m, x, apply=apply: tower(x, apply), **{op: int(op == "relu")})
            for law, (apply, op) in PLAIN.items()
        ],
        (2, 3),
    )


@core
@case("plain: the inner value has other readers", graph(..., (2, 3)), did=none_of(neg=1))
def plain_shared(m: Any, x: fx.Proxy) -> tuple:
    minus = -x
    return -minus, minus * 2


complexes = table(
    "complex numbers",
    [
        fails("x * 1 = x", "for complex numbers inf * 1 has a NaN", lambda m, x: m.c * 1, mul=1),
        fails("x / 1 = x", "for complex numbers inf / 1 has a NaN", lambda m, x: m.c / 1, truediv=1),
        holds("x + (-y) = x - y", lambda m, x: x + (-m.c), neg=0, add=0),
    ],
    (2, 3),
    c=torch.ones(3, dtype=torch.complex64),
)

computed = table(
    "shapes and dimensions that the program computes",
    [
        holds(RESHAPED, lambda m, x: x.reshape(-1).reshape(x.shape), reshape=1),
        holds(RESHAPED, lambda m, x: torch.reshape(x.reshape(-1), x.size()), reshape=1),
        holds(RESHAPED, lambda m, x: x.reshape(3, 2).reshape(x.size(0) * x.size(1)), reshape=1),
        holds(RESHAPED, lambda m, x: x.reshape(x.size(1), -1).reshape(-1, x.size(0)), reshape=1),
        fails(
            TRANSPOSED, "one exchanges nothing", lambda m, x: x.transpose(x.dim() - 2, 0).transpose(0, 1), transpose=2
        ),
    ],
    (2, 3),
)

minus_zeros = table(
    "a tensor of minus zeros",
    [fails("x - 0 = x", "-0.0 - -0.0 is 0.0", lambda m, x: x - m.zeros, sub=1)],
    (2, 3),
    zeros=torch.full((3,), -0.0),
)


@case("a parameter without elements", graph(..., (2, 3), none=torch.zeros(0, 3)))
def empty(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.cat([x, x[:0] * m.none, x[:0] - m.none])


@case("a long chain", graph(..., (2, 3)), did=none_of(mul=0))
def long(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x * 1
    for _ in range(1500):
        y = torch.tanh(y)
    return y * 1


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    times = rng.randrange(4, 30)
    features = ("identity", "pointwise", "views", "integers", "constant")
    return [
        core(plain_towers(times)),
        plain_shared,
        *_spellings(),
        ones,
        whole,
        narrow,
        towers(times),
        shared,
        written_program,
        written_below,
        modules,
        inputs,
        sizes,
        counting,
        chains(times),
        never,
        options,
        wide,
        buffers,
        other_way,
        methods_t,
        attributes,
        nothing_exchanged,
        complexes,
        computed,
        minus_zeros,
        empty,
        long,
        *generated("simplify", rng, 5, 30, "The law holds here.", only=features),
    ]


# ---------------------------------------------------------------------------------------------------- answers

_BINARY = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.pow: "pow"}
_METHODS = ["add", "sub", "mul", "div", "pow", "neg", "abs", "relu", "transpose", "reshape"]
NAMES = (
    _BINARY
    | {operator.neg: "neg", operator.abs: "abs", F.relu: "relu"}
    | {name: name for name in _METHODS}
    | {getattr(torch, name): name for name in _METHODS}
    | {torch.t: "transpose", "t": "transpose"}
)


class _Rules:
    """Rules over the nodes of a graph. `exact`: x + 0, x * 0 and x - x only where there is no NaN, inf or -0."""

    def __init__(self, gm, memory, exact=True):
        self.gm, self.memory, self.exact = gm, memory, exact

    def name(self, x):
        if not isinstance(x, fx.Node) or x.op not in ("call_function", "call_method"):
            return None
        if x.target is getattr:
            return "transpose" if x.args[1] in ("T", "mT") else None
        return None if any(v is not None and v is not False for v in x.kwargs.values()) else NAMES.get(x.target)

    def type(self, x):
        meta = x.meta.get("tensor_meta") if isinstance(x, fx.Node) else None
        return (meta.shape, meta.dtype) if hasattr(meta, "dtype") else None

    def keeps(self, n, x):
        return self.type(x) is not None and self.type(n) == self.type(x)

    def whole(self, x):
        dtype = self.type(x)[1] if self.type(x) else torch.float32
        return not (dtype.is_floating_point or dtype.is_complex)

    def value(self, x):
        if not isinstance(x, fx.Node):
            return x if isinstance(x, int | float) else None
        if x.op != "get_attr":
            return None
        numbers = operator.attrgetter(x.target)(self.gm).flatten().tolist()
        return numbers[0] if len(set(map(repr, numbers))) == 1 else None

    def result(self, node):
        """Return what stands for a node: a node, (function, operands), or None for itself."""
        name, args = self.name(node), node.args
        if name is None or not args or node in self.memory:
            return None
        result = self.binary(node, name, *args) if name in _BINARY.values() and len(args) == 2 else None
        if result is None:
            reverse = name in ("add", "mul") and len(args) == 2
            result = self.binary(node, name, *reversed(args)) if reverse else self.chain(node, name, args)
        operands = [result] if isinstance(result, fx.Node) else result[1] if result else ()
        return None if any(n in self.memory for n in (*operands, *args) if isinstance(n, fx.Node)) else result

    def moved(self, node, tensor):
        if isinstance(node.target, str):
            return getattr(tensor, node.target)(*node.args[1:])
        return node.target(tensor, *node.args[1:])

    def chain(self, n, name, args):
        x, inner = args[0], self.name(args[0])
        if name == inner == "neg":
            return x.args[0]
        if name in ("abs", "relu") and inner == name:
            return x
        if name == "abs" and inner == "neg" and (not self.whole(x) or self.type(x)[1].is_signed):
            return operator.abs, x.args
        if name == inner == "transpose":
            if any(isinstance(d, fx.Node) for d in (*args[1:], *x.args[1:])):
                return None
            sizes = torch.empty(tuple(range(2, 2 + len(self.type(n)[0]))), device="meta")  # no two dimensions are alike
            return x.args[0] if self.moved(n, self.moved(x, sizes)).shape == sizes.shape else None
        if name == inner == "reshape":
            return "reshape", (x.args[0], *args[1:])
        return None

    def binary(self, n, name, x, c):
        number, exact = self.value(c), self.keeps(n, x) and (self.whole(x) or not self.exact)
        if number is not None and self.keeps(n, x):
            keeps = name == "pow" or not self.type(x)[1].is_complex
            if number == 1 and name in ("mul", "div", "pow") and keeps:
                return x
            if number == 0 and name == "sub" and keeps and math.copysign(1, number) > 0:
                return x
            if number == 2 and name == "pow":
                return operator.mul, (x, x)
            if number == 0 and name == "add" and exact:
                return x
            if number == 0 and name == "mul" and exact:
                return torch.zeros_like, (x,)
        if name == "sub" and x is c and exact:
            return torch.zeros_like, (x,)
        wraps = self.whole(c) and self.type(n)[1] != self.type(c)[1]
        boolean = isinstance(x, bool) or (self.type(x) or [0, 0])[1] == torch.bool
        if name == "add" and self.name(c) == "neg" and not boolean and not wraps:
            return operator.sub, (x, c.args[0])
        return None


def _simplify(gm, *dropped):
    """Copy the graph node by node, and put something simpler in a node's place where a rule says so."""
    memory, graph, new = written(gm.graph), fx.Graph(), {}
    rules = _Rules(gm, set(), exact="integers" not in dropped)
    for node in gm.graph.nodes:
        at = new[node] = graph.node_copy(node, new.__getitem__)
        if node in memory:
            rules.memory.add(at)
        while (result := rules.result(at)) is not None:
            if isinstance(result, fx.Node):
                graph.erase_node(at)
                new[node] = result
                break
            call = (graph.call_method if isinstance(result[0], str) else graph.call_function)(*result)
            call.meta = dict(node.meta)
            graph.erase_node(at)
            at = new[node] = call
    return fx.GraphModule(gm, graph)


@right("makes a new graph, and consults the rules as each node is put into it")
def new_graph(gm):
    return _simplify(gm)


@wrong("spared", "x + 0 = x, x * 0 = 0 and x - x = 0 for all numbers: there is no NaN, no inf, no -0", core=True)
def real_numbers(gm):
    return _simplify(gm, "integers")


@right("sweeps over the whole graph until no rule applies any more")
def until_quiet(gm):
    rules, changed = _Rules(gm, written(gm.graph)), True
    while changed:
        changed = False
        for node in list(gm.graph.nodes):
            result = rules.result(node)
            if result is None:
                continue
            if not isinstance(result, fx.Node):
                call = gm.graph.call_method if isinstance(result[0], str) else gm.graph.call_function
                with gm.graph.inserting_before(node):
                    result = call(*result)
                result.meta = dict(node.meta)
            node.replace_all_uses_with(result)
            gm.graph.erase_node(node)
            changed = True
    return gm


@wrong("did", "one look at each node, at its operands as they were: towers lose only one floor", core=True)
def one_floor(gm):
    rules = _Rules(gm, written(gm.graph))
    results = {node: rules.result(node) for node in gm.graph.nodes}
    for node, simpler in results.items():
        if isinstance(simpler, fx.Node) and results[simpler] is None:
            node.replace_all_uses_with(simpler)
            gm.graph.erase_node(node)
    return gm


@wrong("valid", "looks at the operands first, calling itself: a long chain is too deep for that")
def operands_first(gm):
    order = []

    def visit(node):
        if node not in order:
            for operand in node.all_input_nodes:
                visit(operand)
            order.append(node)

    visit(next(iter(reversed(gm.graph.nodes))))
    return _simplify(gm)


@plain("five laws on floats of one shape: no methods, dtypes, keywords or writes")
def five_laws(gm):
    for node in list(gm.graph.nodes):
        x, *rest = node.args or (None,)
        below = getattr(x, "target", None)
        if (node.target, *rest) in ((operator.mul, 1), (operator.truediv, 1), (operator.sub, 0)):
            simpler = x
        elif node.target is below is operator.neg:
            simpler = x.args[0]
        elif node.target is below is F.relu:
            simpler = x
        else:
            continue
        node.replace_all_uses_with(simpler)
        gm.graph.erase_node(node)
    return gm


complex_products = edited("spared", "takes x * 1 for x among complex numbers, too")(
    ("like(n, x) and not typed(x)[1].is_complex", "like(n, x)"),
    (
        "real(n, x) and not typed(x)[1].is_floating_point",
        "like(n, x) and not (typed(x)[1].is_floating_point or typed(x)[1].is_complex)",
    ),
)
shapes_are_tuples = edited("same", "takes x.shape for one number of a shape, since it is a node")(
    (
        '("reshape", x.args[0], *shape)',
        "(torch.reshape, x.args[0], shape[0] if isinstance(shape[0], tuple | list) else shape)",
    )
)
dims_are_numbers = edited("valid", "indexes with a dimension that is a node")(
    ('op(x) != "transpose" or ...', 'op(x) != "transpose"')
)
first_element = edited("valid", "takes the first element of each parameter, also where there is none")(
    (
        "numbers[0] if len(set(map(repr, numbers))) == 1 else None",
        "numbers[0] if len(set(map(repr, numbers))) <= 1 else None",
    )
)
no_minus_zeros = edited("spared", "tells 0.0 and -0.0 apart in the text of the program, but not in a tensor")(
    ('repr(number(c)) in ("0", "0.0")', 'number(c) == 0 and repr(c) != "-0.0"')
)
modules_by_name = edited("spared", "takes a module for the function of its name")(
    ('..., "call_method"', '..., "call_method", "call_module"')
)
forgets_types = edited("spared", "takes x * 1.0 for x, even where x is an integer, or the ones are wider than x")(
    ("return typed(x) is not None and typed(n) == typed(x)", "return typed(x) is not None")
)
forgets_options = edited("spared", "alpha=2 and rounding_mode='floor' change nothing")(
    ("not isinstance(x, fx.Node) or ...", "not isinstance(x, fx.Node)")
)
any_two_transposes = edited("spared", "two transposes undo each other, whatever they exchange")(
    ("return [first[d] for d in transposed(n)] == sorted(first)", "return True")
)
forgets_writes = edited("spared", "takes x * 1 for x, even where one of the two is written afterwards")(
    ("written(gm.graph)", "set()")
)
one_way_round = edited("did", "the number stands on the right: misses 1 * x and 0 + n")(
    ('[node.args, node.args[::-1]] if name in ("add", "mul") else [node.args]', "[node.args]")
)
no_methods = edited("did", "functions and operators only: misses x.mul(1)")(
    ('x.op in ("call_function", "call_method")', 'x.op in ("call_function",)')
)
no_tensors = edited("did", "numbers in the program text only: misses a parameter full of ones")(
    ("numbers[0] if len(set(map(repr, numbers))) == 1 else None", "None")
)
needs_one_reader = edited("did", "where -x has other users, -(-x) stays: as if the inner node had to go", core=True)(
    ('lambda n, x: op(x) == "neg"', 'lambda n, x: op(x) == "neg" and len(x.users) == 1')
)
minus_on_the_right = edited("did", "x + (-y) = x - y, but not (-y) + x")(
    ('op(y) == "neg" and ...', 'op(y) == "neg" and y is n.args[-1] and ...')
)
compares_pairs = edited("did", "compares what two transposes exchange, also where each of them exchanges nothing")(
    (
        "[first[d] for d in transposed(n)] == sorted(first)",
        "[first[d] for d in transposed(n)] == sorted(first) != first",
    )
)
no_attributes = edited("did", "knows transposes as calls: misses x.T and x.mT")(('x.args[1] in ("T", "mT")', "False"))
no_t = edited("did", "knows transpose, T and mT, but not t")(
    ('(torch.transpose, "transpose", torch.t, "t")', '(torch.transpose, "transpose")')
)
parameters_only = edited("did", "looks for a number among the parameters: a buffer is none")(
    (
        "operator.attrgetter(x.target)(x.graph.owning_module)",
        "dict(x.graph.owning_module.named_parameters()).get(x.target, torch.empty(0))",
    )
)
as_on_paper = edited("spared", "exp(log(x)) = x and sqrt(x * x) = abs(x), as on paper")(
    (
        "FORMS.items()",
        'FORMS.update(exp=(torch.exp, "exp"), log=(torch.log, "log"), sqrt=(torch.sqrt, "sqrt")) or FORMS.items()',
    ),
    (
        "LAWS",
        """
        (
            Law("exp", "", lambda n, x: op(x) == "log", lambda n, x: x.args),
            Law("sqrt", "", lambda n, x: op(x) == "mul" and len({*x.args}) == 1, lambda n, x: (torch.abs, x.args[0])),
            *LAWS,
        )
        """,
    ),
)
wrapping = edited(
    "spared", "abs(-x) = abs(x) and x + (-y) = x - y for all dtypes: -x wraps around in uint8, bools have no minus"
)(("... and not unsigned(x)", "..."), ("... and not wider(n, y)", "..."))

EQUIVALENT = {
    ("dict(node.meta)", "node.meta"): "the node whose dictionary it shares is erased",
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
}
