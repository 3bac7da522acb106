"""Day 3: the cases that learners do not see, drawn from a seed. Generated graphs, zoo models, traps made by hand.

What a generated graph must become is asked of the reference answer: at most as many nodes as it leaves.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.bank import reference
from passlab import models, random_graph, trace
from passlab.exercises.cases_day03 import Expect, call, case, graph, least, live, most, nodes, read, store, unrun
from passlab.exercises.cases_day03_classics import constants
from passlab.exercises.cases_day03_pipelines import Best, pipeline_case, shrinking_cases
from passlab.exercises.cases_day03_rewrites import gelus, layout_case, made, none_made
from passlab.fx.layout import converts
from passlab.fx.stages import STAGES
from passlab.judge import Case

Build = Callable[[], fx.GraphModule]


def zoo(name: str) -> Build:
    """A model of the zoo as a graph with shapes."""
    return lambda: trace(models.ZOO[name].build(), *models.ZOO[name].inputs())


def generated(name: str, rng: random.Random, number: int, size: int, why: str, dead: bool = False, **features: Any):
    """Random graphs that must get as small as the reference answer makes them, and others that are written into."""
    answer = reference(f"day03.{name}")
    for i in range(number):
        seed = rng.randrange(10**6)

        def build(seed: int = seed) -> fx.GraphModule:
            return random_graph(seed, size, **features)

        after = answer(build())
        limit = len(after.graph.nodes) if dead else len(live(after))
        yield case(f"generated, number {i + 1}", build, did=[nodes(limit, why, dead=dead)])
    # A dropout draws in the order of memory, which a right rewrite of what it reads may change.
    draws = name in ("dce", "cse")
    for i in range(2):
        seed = rng.randrange(10**6)

        def build(seed: int = seed) -> fx.GraphModule:
            return random_graph(seed, size, mutation=True, random=draws)

        yield case(f"generated, with writes, number {i + 1}", build)


# ---------------------------------------------------------------------------------------------------- folding


def constant_folding(seed: int) -> list[Case]:
    rng = random.Random(seed)
    rows = rng.choice((6, 10))
    never = "It is the same on every call, so it can be computed now."
    written = "The program writes into this memory: what is computed from it is no constant."

    def layer(m: Any, x: fx.Proxy) -> fx.Proxy:
        a, b = m.w.chunk(2, 0)
        return torch.cat([b, a]).t() @ m.lin(torch.tanh(m.w)) + x

    def through_a_view(m: Any, x: fx.Proxy) -> fx.Proxy:
        m.w.view(-1).mul_(0.5)
        return x + torch.exp(m.w)

    def written_result(m: Any, x: fx.Proxy) -> fx.Proxy:
        c = torch.exp(m.w)
        c.add_(x)
        return c * 2

    def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x + m.drop(torch.exp(m.w)) + m.off(torch.tanh(m.w)) + torch.bernoulli(torch.sigmoid(m.w))

    def at_the_limit(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x * (m.u.reshape(-1, 1) * m.v) + torch.exp(m.u)

    def large_then_small(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x + m.u.expand(5000, rows).sum(0)

    def immense(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x * (m.u.reshape(-1, 1) * m.v).amax()

    def sizes(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x.reshape(m.w.shape).flatten() / math.sqrt(2) * (m.w.dim() + m.w.numel())

    def returned(m: Any, x: fx.Proxy) -> tuple:
        return x + 1, m.w.t() * 2

    matrix = 4 * rows * rows
    blown = "Folding blew up memory."
    return [
        case(
            "chunks and a layer of a weight",
            graph(layer, (4, 4), w=(4, 4), lin=lambda: nn.Linear(4, 4, bias=False)),
            did=[most(op, 0, never) for op in ("chunk", "cat", "t", "Linear")],
            cost=[nodes(6, never)],
        ),
        case("written through a view", graph(through_a_view, (2, 3), w=(2, 3)), spared=[least("exp", 1, written)]),
        case("the result is written", graph(written_result, (2, 3), w=(2, 3)), spared=[least("exp", 1, written)]),
        case(
            "dropout of a weight",
            graph(modules, (2, 3), training=True, w=(2, 3), drop=nn.Dropout, off=lambda: nn.Dropout().eval()),
            did=[most("exp", 0, never), most("tanh", 0, never)],
            spared=[least("Dropout", 1, "This module draws."), least("bernoulli", 1, "bernoulli draws.")],
        ),
        case(
            "exactly the limit",
            graph(at_the_limit, (rows, rows), u=(rows,), v=(rows,)),
            matrix,
            did=[most("mul", 1, "Its bytes are not more than the limit."), most("exp", 0, never)],
        ),
        case(
            "one byte under",
            graph(at_the_limit, (rows, rows), u=(rows,), v=(rows,)),
            matrix - 1,
            did=[most("exp", 0, never)],
            spared=[constants(matrix - 1, blown), least("mul", 2, blown)],
        ),
        case(
            "large on the way to small",
            graph(large_then_small, (2, rows), u=(rows,)),
            4096,
            spared=[least("expand", 1, "Its result is over the limit."), least("sum", 1, "Its operand is not folded.")],
        ),
        Case(
            "larger than memory",
            lambda: (unrun(immense, (2, 3), u=(60_000,), v=(60_000,))(), 1 << 20),
            ("valid", "spared"),
            expect=Expect(spared=[least("mul", 2, "The product of two vectors of 240,000 bytes has 14,400,000,000.")]),
        ),
        case("shapes of a weight", graph(sizes, (2, 3), w=(2, 3)), did=[most("add", 0, never), most("dim", 0, never)]),
        case("a constant is returned", graph(returned, (2, 3), w=(2, 3)), did=[most("t", 0, never)]),
        *generated("constant-folding", rng, 4, 25, never, only=("constant", "pointwise", "views", "random", "dead")),
    ]


# ---------------------------------------------------------------------------------------------------- dead code


def dce(seed: int) -> list[Case]:
    rng = random.Random(seed)
    unread = "Nobody reads it and it has no effect."
    aten = torch.ops.aten

    def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
        m.bn(x)
        m.drop(x)
        m.plain(x)
        m.relu(x)
        return x * 2

    def through_a_view(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.relu(x)
        rows = y.view(-1)
        rows[:2].zero_()
        torch.tanh(rows)
        return y

    def overloads(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = x + 0.5
        call(aten.mul_.Tensor, y, x)
        call(aten.mul.Tensor, y, x)
        call(aten.bernoulli.default, torch.sigmoid(y))
        call(operator.iadd, y, 1)
        return F.dropout(y, 0.5, True)

    def buffers(m: Any, x: fx.Proxy) -> fx.Proxy:
        read(x, "steps").add_(1)
        read(x, "steps")
        read(x, "w").copy_(x)
        return torch.tanh(x)

    def silent(m: Any, x: fx.Proxy) -> fx.Proxy:
        F.dropout(x, 0.5, False)
        F.relu(x, inplace=False)
        m.drop(x)
        return x - 1

    def long(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = x
        for _ in range(1500):
            y = torch.tanh(y)
        return x + 1

    writes = "It writes into memory that others read."
    norm = "In training mode a batch norm updates its running statistics."
    return [
        case(
            "modules in training mode",
            graph(
                modules,
                (4, 3),
                training=True,
                bn=lambda: nn.BatchNorm1d(3),
                drop=nn.Dropout,
                plain=lambda: nn.Linear(3, 3),
                relu=lambda: nn.ReLU(inplace=True),
            ),
            did=[most("Linear", 0, unread, dead=True)],
            spared=[
                least("BatchNorm1d", 1, norm),
                least("ReLU", 1, "This ReLU works in place: it changes x."),
                least("Dropout", 1, "A dropout in training mode draws."),
            ],
        ),
        case(
            "written through a view",
            graph(through_a_view, (2, 3)),
            did=[most("tanh", 0, unread, dead=True)],
            spared=[least("zero_", 1, writes)],
        ),
        case(
            "operators by overload",
            graph(overloads, (2, 3)),
            did=[most("mul", 0, unread, dead=True)],
            spared=[least("mul_", 1, writes), least("iadd", 1, writes), least("bernoulli", 1, "It draws.")],
        ),
        case(
            "state",
            graph(buffers, (2, 3), steps=torch.zeros(1), w=(2, 3)),
            did=[most("get_attr", 2, unread, dead=True)],
            spared=[least("add_", 1, writes), least("copy_", 1, writes)],
        ),
        case(
            "switched off",
            graph(silent, (2, 3), drop=nn.Dropout),
            did=[most(op, 0, unread, dead=True) for op in ("dropout", "relu", "Dropout")],
        ),
        case("a long dead chain", graph(long, (2, 3)), did=[nodes(3, unread, dead=True)]),
        *generated("dce", rng, 4, 30, unread, dead=True),
    ]


# ---------------------------------------------------------------------------------------------------- same value


def cse(seed: int) -> list[Case]:
    rng = random.Random(seed)
    once = "The same value is computed more than once."
    other = "They are not the same value."
    aten = torch.ops.aten

    def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
        shared = m.one(x) * m.one(x)
        return shared + m.two(x) + m.drop(x) * m.drop(x)

    def zeros(m: Any, x: fx.Proxy) -> tuple:
        return 1 / (x * 0.0), 1 / (x * -0.0), torch.clamp(x, 0, None), torch.clamp(x, None, 0)

    def deep(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = b = x
        for i in range(6):
            a, b = torch.tanh(a + i), torch.tanh(b + i)
        return a * b

    def overloads(m: Any, x: fx.Proxy) -> fx.Proxy:
        a, b = call(aten.mul.Tensor, x, x), call(aten.mul.Tensor, x, x)
        c, d = call(aten.rand_like.default, x), call(aten.rand_like.default, x)
        return a + b + c * d

    def views(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.relu(x)
        flat = y.view(-1)
        before = y * 2
        flat.add_(1)
        return before + y * 2

    def attribute(m: Any, x: fx.Proxy) -> fx.Proxy:
        before = x + read(x, "steps") * 2
        read(x, "steps").add_(1)
        return before * (x + read(x, "steps") * 2)

    def stored(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = x * 1.5
        first = y[0].sum()
        store(y, 0, 2.0)
        return y * first + y[0].sum()

    def asserting(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = torch.exp(x)
        torch._assert(x.dim() == 2, "two dimensions, please")
        return a + torch.exp(x)

    def norm(m: Any, x: fx.Proxy) -> fx.Proxy:
        return m.bn(x) + m.bn(x)

    def keywords(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = F.softmax(input=x, dim=-1, dtype=torch.float64)
        b = torch.sum(x, dim=[0, 1], keepdim=True) + F.softmax(dim=-1, dtype=torch.float64, input=x)
        return a * b + torch.sum(x, keepdim=True, dim=[0, 1]) + F.softmax(input=x, dim=-1, dtype=torch.float32)

    drew = "Your CSE merged two draws: each call draws new numbers."
    time = "The program writes between these two reads: they read the same place at different times."
    layers: dict[str, Any] = {"one": lambda: nn.Linear(3, 3), "two": lambda: nn.Linear(3, 3), "drop": nn.Dropout}
    return [
        case(
            "one module twice, and its like",
            graph(modules, (2, 3), training=True, **layers),
            did=[most("Linear", 2, once)],
            spared=[
                least("Linear", 2, "Two modules of one class have weights of their own."),
                least("Dropout", 2, drew),
            ],
        ),
        case("zero and minus zero", graph(zeros, (2, 3)), spared=[least("mul", 2, other), least("clamp", 2, other)]),
        case("six deep", graph(deep, (2, 3)), did=[most("tanh", 6, once), most("add", 6, once)]),
        case(
            "operators by overload",
            graph(overloads, (2, 3)),
            did=[most("mul", 2, once)],
            spared=[least("rand_like", 2, drew)],
        ),
        case("written through a view", graph(views, (2, 3)), spared=[least("mul", 2, time)]),
        case("an attribute is written", graph(attribute, (2, 3), steps=torch.zeros(3)), spared=[least("mul", 3, time)]),
        case("a row is written", graph(stored, (2, 3)), spared=[least("sum", 2, time), least("getitem", 2, time)]),
        case("an assertion between", graph(asserting, (2, 3)), did=[most("exp", 1, "An assertion writes nothing.")]),
        case(
            "a batch norm in training mode",
            graph(norm, (4, 3), training=True, bn=lambda: nn.BatchNorm1d(3)),
            spared=[least("BatchNorm1d", 2, "Each call updates the running statistics.")],
        ),
        case(
            "keywords in another order",
            graph(keywords, (2, 3)),
            did=[most("sum", 1, once), most("softmax", 2, once)],
            spared=[least("softmax", 2, other)],
        ),
        case("GPT, where nothing is common", zoo("gpt"), spared=[least("Linear", 4, other)]),
        *generated("cse", rng, 5, 30, once),
    ]


# ---------------------------------------------------------------------------------------------------- simplification


def simplify(seed: int) -> list[Case]:
    rng = random.Random(seed)
    times = rng.randrange(4, 9)

    def units(m: Any, x: fx.Proxy) -> tuple:
        return m.ones * x, torch.mul(1, x), x.sub(m.zeros), x.div(1.0), torch.pow(x, 1), x.pow(2), x.mul(m.one)

    def whole(m: Any, n: fx.Proxy) -> tuple:
        return n * 1.0, n**1.0, torch.mul(n, 0), n.sub(n), n / m.ones, n.add(0) * 1, n + m.zeros

    def towers(m: Any, x: fx.Proxy) -> tuple:
        a = b = c = x
        for _ in range(times):
            a, b, c = -a, F.relu(b), (c * 1.0).abs()
        return a, b, c

    def shared(m: Any, x: fx.Proxy) -> tuple:
        minus = -x
        return torch.neg(minus), minus * 2, torch.tanh(x) + minus

    def written(m: Any, x: fx.Proxy) -> tuple:
        y = torch.relu(x)
        same = y * 1
        same.add_(1)
        flat = y.view(-1)
        kept = flat * 1
        flat.mul_(2)
        return same, kept, y

    def counting(m: Any, x: fx.Proxy) -> tuple:
        before = x * read(x, "ones")
        read(x, "ones").add_(1)
        return before, x * read(x, "ones")

    def chained(m: Any, x: fx.Proxy) -> tuple:
        flat = x.reshape(-1).reshape((3, 2)).reshape(6, 1)
        back = torch.transpose(x, 0, 1).transpose(1, 0)
        third = x.unsqueeze(0).transpose(0, 2).transpose(-1, 0)
        return flat, back * 2, third, x.transpose(0, 1).reshape(-1).reshape(3, 2)

    def never(m: Any, x: fx.Proxy) -> tuple:
        return 0.0 + x, torch.mul(0, x), torch.sub(x, x), torch.div(x, x), torch.pow(x, 3), 1 - x, 1 / x, 0 - x, 2**x

    def options(m: Any, x: fx.Proxy) -> tuple:
        floor = x.div(1, rounding_mode="trunc")
        return floor, x.add(-x, alpha=3), torch.sum(x, 1), F.relu(F.relu(x), inplace=False), torch.sub(x, x, alpha=0.5)

    def wider(m: Any, x: fx.Proxy, flags: fx.Proxy) -> tuple:
        return x * m.row, x * m.wide, m.wide * m.row * x, x - m.deep, flags * 1, m.fine * x

    def narrow(m: Any, n: fx.Proxy, k: fx.Proxy) -> tuple:
        return torch.abs(-k), n + (-k)

    def mixed(m: Any, x: fx.Proxy) -> tuple:
        return x * m.almost, x / m.signs, x + m.zeros, x**m.ones

    cannot = "The law does not hold here."
    holds = "The law holds here."
    return [
        case(
            "tensors of one number, methods and functions",
            graph(units, (2, 3), ones=torch.ones(2, 3), zeros=torch.zeros(3), one=torch.tensor(1.0)),
            did=[most("mul", 1, holds), most("sub", 0, holds), most("div", 0, holds), most("pow", 0, holds)],
        ),
        case(
            "whole numbers",
            graph(
                whole, torch.arange(4), ones=torch.ones(4, dtype=torch.int64), zeros=torch.zeros(4, dtype=torch.int64)
            ),
            did=[most("mul", 1, holds), most("sub", 0, holds), most("add", 0, holds)],
            spared=[least("mul", 1, cannot), least("pow", 1, cannot), least("truediv", 1, cannot)],
        ),
        case(
            "narrow integers",
            graph(narrow, torch.arange(4), torch.arange(4, dtype=torch.uint8)),
            spared=[least("neg", 2, "In uint8, -1 is 255, which abs and a wider sum can see.")],
        ),
        case(
            "towers",
            graph(towers, (2, 3)),
            did=[most("relu", 1, holds), most("abs", 1, holds), most("neg", times % 2, holds), most("mul", 0, holds)],
        ),
        case(
            "an operand with other readers", graph(shared, (2, 3)), did=[most("neg", 1, holds), most("add", 0, holds)]
        ),
        case(
            "a copy that is written",
            graph(written, (2, 3)),
            spared=[
                least("mul", 2, "x * 1 makes new memory, and here one of the two is written: x would change with it.")
            ],
        ),
        case(
            "ones that are written",
            graph(counting, (2, 3), ones=torch.ones(3)),
            spared=[least("mul", 2, "The parameter is full of ones now; the program itself writes into it.")],
        ),
        case("chains of shapes", graph(chained, (2, 3)), did=[most("reshape", 2, holds), most("transpose", 1, holds)]),
        case(
            "never",
            graph(never, (2, 3)),
            spared=[
                least("add", 1, cannot),
                least("mul", 1, cannot),
                least("sub", 3, cannot),
                least("div", 1, cannot),
                least("pow", 2, cannot),
            ],
        ),
        case(
            "calls with options",
            graph(options, (2, 3)),
            did=[most("relu", 1, holds)],
            spared=[least("div", 1, cannot), least("add", 1, cannot), least("sub", 1, cannot)],
        ),
        case(
            "wider than x",
            graph(
                wider,
                (2, 3),
                torch.tensor([True, False]),
                row=torch.ones(3),
                wide=torch.ones(2, 2, 3),
                deep=torch.zeros(1, 2, 3),
                fine=torch.ones(3, dtype=torch.float64),
            ),
            did=[most("mul", 4, holds)],
            spared=[least("mul", 4, cannot), least("sub", 1, cannot)],
        ),
        case(
            "nearly all ones",
            graph(
                mixed,
                (2, 3),
                almost=torch.tensor([1.0, 1.0, 1.0 + 1e-6]),
                signs=torch.tensor([1.0, -1.0, 1.0]),
                zeros=torch.zeros(3),
                ones=torch.ones(3),
            ),
            did=[most("pow", 0, holds)],
            spared=[least("mul", 1, cannot), least("truediv", 1, cannot), least("add", 1, cannot)],
        ),
        *generated("simplify", rng, 5, 30, holds, only=("identity", "pointwise", "views", "integers", "constant")),
    ]


# ---------------------------------------------------------------------------------------------------- pipelines


def best_of(build: Build, stages: tuple[str, ...]) -> Best:
    """What the best order reaches, by trying all of them with the reference answer."""
    _, _, counts = reference("day03.pipeline")(build(), {name: STAGES[name] for name in stages})
    return Best(counts[-1], len(counts))


def pipeline(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def constants(m: Any, x: fx.Proxy) -> fx.Proxy:
        mask = x > 0
        w = torch.where(mask, m.w, read(x, "w"))
        return x + torch.tanh(torch.neg(torch.neg(w))) * 2

    def scaled(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.relu(x) * 4 * 0.5
        z = torch.relu(x) * 2
        return torch.where(x > 0, y, z) * 2 * 2

    def patient(m: Any, x: fx.Proxy) -> fx.Proxy:
        """The smallest graph takes another sweep; the other orders are done sooner, with more nodes."""
        y = torch.relu(x)
        once, _unread = y * 2, y * 2
        return y * 4 + once * 2

    def drawn() -> Build:
        depth, kinds = rng.randrange(2, 4), [rng.randrange(4) for _ in range(3)]

        def body(m: Any, x: fx.Proxy) -> fx.Proxy:
            y = x
            for _ in range(depth):
                for kind in kinds:
                    if kind == 0:
                        y = torch.where(x > 0, torch.relu(y), torch.relu(y))
                    elif kind == 1:
                        y = torch.neg(torch.neg(y)) + torch.tanh(m.w) * 3
                    elif kind == 2:
                        y = y * 2 * 2
                    else:
                        torch.exp(y)
                        y = torch.relu(y) * 2 + torch.relu(y) * 2
            return y

        return graph(body, (2, 3), w=(2, 3))

    builds = {
        "constants behind a where": (graph(constants, (2, 3), w=(2, 3)), ("fold", "simplify", "cse", "dce")),
        "scales and twins": (graph(scaled, (2, 3)), ("double", "cse", "scale", "simplify")),
        "sooner or smaller": (graph(patient, (2, 3)), ("fold", "cse", "scale")),
        "two passes": (graph(scaled, (2, 3)), ("dce", "scale")),
        "nothing to do": (graph(lambda m, x: torch.exp(x), (2, 3)), ("cse", "dce", "simplify")),
    }
    for i in range(3):
        builds[f"drawn, number {i + 1}"] = (drawn(), tuple(rng.sample(list(STAGES), rng.choice((3, 4)))))
    return [pipeline_case(name, build, stages, best_of(build, stages)) for name, (build, stages) in builds.items()]


# ---------------------------------------------------------------------------------------------------- GELU


def gelu(seed: int) -> list[Case]:
    rng = random.Random(seed)
    slope, cubic, root = math.sqrt(2 / math.pi), 0.044715, math.sqrt(2)
    order = "Products and sums may be written in any order and grouped in any way."

    def shuffled(parts: list, join: Callable) -> Any:
        """The parts joined two at a time, in an order drawn from the seed."""
        parts = list(parts)
        while len(parts) > 1:
            a, b = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
            parts.append(join(a, b))
        return parts[0]

    def product(*parts: Any) -> Any:
        def join(a: Any, b: Any) -> Any:
            if isinstance(a, fx.Proxy) and rng.random() < 0.4:
                return rng.choice((lambda: torch.mul(a, b), lambda: a.mul(b)))()
            return a * b

        return shuffled(list(parts), join)

    def total(a: Any, b: Any) -> Any:
        return rng.choice((lambda: a + b, lambda: b + a, lambda: torch.add(b, a)))()

    def drawn(m: Any, x: fx.Proxy, y: fx.Proxy) -> fx.Proxy:
        def erf(z: fx.Proxy) -> fx.Proxy:
            inner = rng.choice((lambda: z / root, lambda: product(z, 0.70710678), lambda: z.div(1.4142135623730951)))()
            gate = total(rng.choice((torch.erf, torch.special.erf, lambda t: t.erf()))(inner), rng.choice((1, 1.0)))
            return rng.choice(
                (lambda: product(0.5, z, gate), lambda: product(z, gate) / 2, lambda: product(z / 2, gate))
            )()

        def tanh(z: fx.Proxy) -> fx.Proxy:
            cubes = (lambda: z**3, lambda: torch.pow(z, 3.0), lambda: product(z, z, z), lambda: z.pow(3))
            inner = rng.choice(
                (
                    lambda: product(slope, total(z, product(cubic, rng.choice(cubes)()))),
                    lambda: product(z, 0.7978845608, total(product(cubic, z, z), 1.0)),
                )
            )()
            return product(0.5, z, total(torch.tanh(inner), 1))

        h = torch.sigmoid(x) * 3
        return erf(x) * tanh(y) + erf(h) + tanh(h - 1)

    def drawn_build(state: Any) -> Build:
        trace_it = graph(drawn, (2, 3), (2, 3))

        def build() -> fx.GraphModule:
            rng.setstate(state)
            return trace_it()

        return build

    def states(number: int) -> list:
        found = []
        for _ in range(number):
            rng.random()
            found.append(random.Random(rng.randrange(10**9)).getstate())
        return found

    def shared(m: Any, x: fx.Proxy) -> tuple:
        gate = 1 + torch.erf(x / root)
        return 0.5 * x * gate, gate * 3, gate * x / 2

    def traps(m: Any, x: fx.Proxy, n: fx.Proxy) -> tuple:
        return (
            0.5 * x * torch.add(1, torch.erf(x / root), alpha=2),
            torch.div(x, 2, rounding_mode="floor") * (1 + torch.erf(x / root)),
            0.5 * x * (1 + torch.erf(x / root) * x),
            0.5 * x * (1 + torch.tanh(x / root)),
            0.5 * x * (1 + torch.erf(slope * (x + cubic * x**3))),
            0.5 * x * (1 + torch.tanh(slope * (x - cubic * x**3))),
            0.5 * x + (1 + torch.erf(x / root)),
            0.5 * x * (1 + torch.erf(0.707 * x)),
            0.5 * x * (2 + torch.erf(x / root)),
            0.5 * n * (1 + torch.erf(n / root)),
            (1 + torch.erf(x / root)) * 0.5,
        )

    def written(m: Any, x: fx.Proxy) -> tuple:
        gate, half = torch.erf(x / root), 0.5 * x
        first = half * (1 + gate)
        gate.mul_(2)
        half.add_(1)
        return first, half * (1 + gate)

    never = "None of these formulas is GELU: look at every constant, sign, power, option and dtype."
    cases = [
        case(f"drawn, number {i + 1}", drawn_build(state), did=[made(2, 2, order)], cost=[nodes(13, "One node each.")])
        for i, state in enumerate(states(5))
    ]
    answer = reference("day03.gelu")
    for i in range(3):
        which = rng.randrange(10**6)

        def build(which: int = which) -> fx.GraphModule:
            return random_graph(which, 60, only=("gelu", "pointwise"))

        erf, tanh = (len(found) for found in gelus(answer(build())).values())
        cases.append(case(f"generated, number {i + 1}", build, did=[made(erf, tanh, order)]))
    return [
        *cases,
        case("GPT", zoo("gpt"), did=[made(0, 1, "The block's MLP has the tanh form.")]),
        case(
            "half of it is read elsewhere",
            graph(shared, (2, 3)),
            did=[made(2, 0, "What else reads the gate keeps it.")],
        ),
        case(
            "a gate that is written",
            graph(written, (2, 3)),
            spared=[none_made("The program writes into erf(…) and into x / 2: what is read later is another value.")],
        ),
        case("more near-misses", graph(traps, (2, 3), torch.arange(3)), spared=[none_made(never)]),
    ]


# ---------------------------------------------------------------------------------------------------- layout


def images(seed: int, size: int) -> Build:
    """A random graph of convolutions and ops that take any layout, with several inputs and outputs."""

    def body(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> tuple:
        rng, pool = random.Random(seed), [x, y, z]
        for _ in range(size):
            a, b = rng.choice(pool[-4:]), rng.choice(pool)
            made = rng.choice(
                (
                    lambda a=a: m.conv(a),
                    lambda a=a: torch.relu(a),
                    lambda a=a: m.bn(a),
                    lambda a=a, b=b: a + b,
                    lambda a=a, b=b: a * torch.sigmoid(b),
                    lambda a=a: a.transpose(2, 3),
                )
            )()
            pool.append(made)
        return pool[-1], pool[-2].flatten(1), rng.choice(pool)

    return graph(body, *[(2, 3, 4, 4)] * 3, conv=lambda: nn.Conv2d(3, 3, 3, padding=1), bn=lambda: nn.BatchNorm2d(3))


def channels_last(seed: int) -> list[Case]:
    rng = random.Random(seed)
    answer = reference("day03.channels-last")

    def two_readers(m: Any, x: fx.Proxy) -> tuple:
        y = m.one(x)
        return torch.relu(y), m.two(y), y.flatten(1), m.one(x)

    def ladder(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> fx.Proxy:
        a = m.one(x) + y
        return torch.tanh(torch.relu(a * z) + y) * y

    def functional(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = F.conv2d(x, m.weight, padding=1)
        return F.avg_pool2d(y + m.bias, 2).mean((2, 3))

    conv = {"one": lambda: nn.Conv2d(3, 3, 3, padding=1), "two": lambda: nn.Conv2d(3, 3, 1)}
    image = (2, 3, 4, 4)
    builds = {
        "one image, four readers": graph(two_readers, image, **conv),
        "turning back early pays": graph(ladder, image, image, image, **conv),
        "functions and weights": graph(functional, image, weight=(3, 3, 3, 3), bias=(1, 3, 1, 1)),
    }
    builds |= {name: zoo(name) for name in ("residual", "skip", "unet", "vit")}
    builds |= {f"drawn, number {i + 1}": images(rng.randrange(10**6), rng.randrange(6, 13)) for i in range(5)}
    return [
        layout_case(name, build, sum(converts(n) is not None for n in answer(build()).graph.nodes))
        for name, build in builds.items()
    ]


def shrinking(seed: int) -> list[Case]:
    """The same three: the answer is a program, and there is nothing to hide."""
    return shrinking_cases()


HIDDEN: dict[str, Callable[[int], list[Case]]] = {
    "day03.constant-folding": constant_folding,
    "day03.dce": dce,
    "day03.cse": cse,
    "day03.simplify": simplify,
    "day03.pipeline": pipeline,
    "day03.gelu": gelu,
    "day03.channels-last": channels_last,
    "day03.shrinking": shrinking,
}
