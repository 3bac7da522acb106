"""Day 4, code generation, the cost model and the measuring: hidden cases."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import torch
from torch import fx

from passlab.exercises.cases_day04_codegen import codegen_case, half, numbers, positive, whole
from passlab.exercises.cases_day04_cost import cost_case, situations
from passlab.exercises.cases_day04_measure import MACHINE, measure_case
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- code generation


def drawn_group(seed: int, size: int) -> Callable:
    """A function of three inputs and element-wise operations at random; some values are used twice."""

    def function(x, y, z):
        rng = random.Random(seed)
        values = [x, y, z]
        for _ in range(size):
            a, b = rng.choice(values[-4:]), rng.choice(values)
            kind = rng.choice(("add", "sub", "mul", "one", "dear", "number", "larger", "where"))
            if kind in ("add", "sub", "mul"):
                values.append(getattr(operator, kind)(a, b))
            elif kind == "one":
                values.append(rng.choice((torch.abs, torch.relu, operator.neg))(a))
            elif kind == "dear":
                values.append(rng.choice((torch.tanh, torch.sigmoid))(a))
            elif kind == "number":
                values.append(rng.choice((a + 2, 0.25 * a, 1 - a, a / 3)))
            elif kind == "larger":
                values.append(rng.choice((torch.maximum, torch.minimum))(a, b))
            else:
                values.append(torch.where(rng.choice((x, y, z)) > 0.25, a, rng.choice((b, 1.5))))
        return values[-1] + (x + y + z) * 0.5  # has the shape of all three

    return function


def codegen(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.choice((7, 13, 29)), rng.choice((3, 11, 17))

    def squares(x):
        for _ in range(24):
            x = x * x * 0.5
        return x

    def waves(x):
        for _ in range(12):
            x = torch.tanh(x) + x
        return x

    def halves(x, y):
        return (torch.where(x > y, x * 2, -y), torch.tanh(x) * y)

    def casts(x, n):
        return (x * 1000).to(torch.int32) + n, (x > n)

    def rounds(x):
        return x.to(torch.float16).to(torch.float32) * 0.001

    def nans(x, y):
        return torch.minimum(x, y) + torch.relu(torch.maximum(y, x)), torch.where(x < y, x, -y)

    def twice(x, unused):
        y = torch.sqrt(torch.abs(x))
        return y, y

    def conditions(n, x):
        return torch.where(n == 3, n, 0) / (n * n + 1), torch.where(x < n, 1.0, 0.0) * 2.5

    def compared(x, n):
        return x == 0.1, x < 0.1, x == 2049, x == n

    def truths(x, n):
        return torch.where(x.to(torch.bool), 1.0, 0.0) + n.to(torch.bool) * 2.0

    sizes = ((n, 1, m), (m,), (4, 1))
    halved = torch.tensor((0.1, 2048.0, 0.2, -0.1), dtype=torch.float16)
    counts = torch.tensor((0, 2049, 256, -1), dtype=torch.int32)
    return [
        codegen_case("squares of squares", squares, numbers(n)),
        codegen_case("each value used twice, and dear", waves, numbers(n)),
        codegen_case("NaN on either side", nans, numbers(n, m), numbers(m)),
        codegen_case("float16", halves, half(n, m, dtype=torch.float16), half(m, dtype=torch.float16)),
        codegen_case("float16 and float32", halves, half(n, m, dtype=torch.float16), numbers(m)),
        codegen_case("bfloat16 and a number without dimensions", halves, half(m), half(), edges=False),
        codegen_case("float16 beside what it cannot hold", compared, halved, counts),
        codegen_case("to bool", truths, torch.tensor((0.5, 0.0, -0.25, 2.0)), counts),
        codegen_case("one over minus nothing", lambda x: 1 / -x, numbers(n, 2)),
        codegen_case("to whole numbers", casts, numbers(n, m), whole(m), edges=False),
        codegen_case("too large for float16 in between", rounds, 100000 * numbers(n), edges=False),
        codegen_case("one value returned twice, an input unused", twice, numbers(2, n), numbers(3)),
        codegen_case("whole numbers and a half", conditions, whole(n, m), numbers(n, m)),
        codegen_case("no rows", halves, numbers(m, 0, n), numbers(n)),
        codegen_case("five dimensions", lambda x, y: x - y, numbers(2, 1, 3, 1, 2), numbers(5, 1, 2, 1)),
        *(
            codegen_case(
                f"drawn, number {i + 1}",
                drawn_group(rng.randrange(10**6), 9),
                *(positive(*size) if i else numbers(*size) for size in sizes),
                edges=False,  # TVM takes x - x for 0, also where x is infinite
            )
            for i in range(3)
        ),
    ]


# ---------------------------------------------------------------------------------------------------- a cost model


def cost(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [cost_case("twelve choices", situations(rng))]


# ---------------------------------------------------------------------------------------------------- measuring


def drawn_graph(seed: int, size: int) -> Callable:
    """A function of a matrix, a row and a weight: element-wise operations, sums, a product at times."""

    def function(x, row, weight):
        rng = random.Random(seed)
        wide, narrow = [x], []
        for _ in range(size):
            a = rng.choice(wide[-3:])
            kind = rng.choice(("one", "two", "row", "sum", "narrow", "product"))
            if kind == "sum":
                narrow.append(rng.choice((torch.sum, torch.mean, torch.amax))(a, -1, True))
            elif kind == "product":
                wide.append(torch.matmul(a, weight))
            elif kind == "two":
                wide.append(a * rng.choice(wide))
            elif kind == "narrow" and narrow:
                wide.append(a - narrow.pop())
            elif kind == "row":
                wide.append(a + row)
            else:
                wide.append(rng.choice((torch.exp, torch.relu, torch.tanh))(a))
        for unread in narrow:
            wide[-1] = wide[-1] / unread
        ends = [v for v in wide[1:-1] if rng.random() < 0.2]
        return (*ends, wide[-1] * 2.0)

    return function


def runs_of(rng: random.Random, gm: fx.GraphModule) -> list[list[str]]:
    """Calls that follow each other as groups; some stay alone. What nobody reads is in none."""
    groups: list[list[str]] = [[]]
    for node in gm.graph.nodes:
        if node.op.startswith("call_"):
            if rng.random() < 0.3:
                groups.append([])
            groups[-1].append(node.name)
    return [group for group in groups if len(group) > 1]


def measure(seed: int) -> list[Case]:
    rng = random.Random(seed)
    n, m = rng.choice((24, 40, 72)), rng.choice((17, 33, 65))

    def drawn(number: int, machine: dict) -> Case:
        draw, chosen = rng.randrange(10**6), rng.randrange(10**6)
        name, function = f"drawn, number {number + 1}", drawn_graph(draw, 8)

        def groups(gm: fx.GraphModule) -> list[list[str]]:
            return runs_of(random.Random(chosen), gm)

        return measure_case(name, function, [(n, m), (m,), (m, m)], groups, machine)

    def gate(x, weight, bias):
        y = torch.matmul(x, weight)
        return y * torch.sigmoid(y + bias)

    def means(x):
        centred = x - torch.mean(x, -1, True)
        return centred * torch.rsqrt(torch.mean(centred * centred, -1, True) + 1e-5), centred

    def unread(x):
        y = x * 2.0
        torch.abs(y), torch.exp(y)
        return torch.relu(y)

    def steps(x):
        return torch.relu(x * 2.0 + 1.0)

    slow = {"bandwidth": 2e9, "flops": 5e8, "launch": 1e-6}
    fast = {"bandwidth": 2e12, "flops": 6e13, "launch": 4e-6}
    level = {"bandwidth": 8e9, "flops": 3e9, "launch": 1e-6}  # its ridge is the intensity of `steps` in one kernel
    return [
        measure_case("a norm by hand", means, [(n, m)], [("mean", "sub"), ("mul", "mean_1", "add", "rsqrt", "mul_1")]),
        measure_case("a gate", gate, [(2 * n, m), (m, n), (n,)], [("add", "sigmoid", "mul")], slow),
        measure_case("no groups", gate, [(n, m), (m, n), (n,)], [], fast),
        measure_case("values that nobody reads", unread, [(n, m)], [("mul", "abs_1")], unread=True),
        measure_case("on the ridge", steps, [(n, m)], [("mul", "add", "relu")], level),
        measure_case("no elements", steps, [(0, m)], [("mul", "add")]),
        measure_case("no calls", lambda x: x, [(n,)], []),
        *(drawn(number, machine) for number, machine in enumerate((MACHINE, slow, fast))),
    ]
