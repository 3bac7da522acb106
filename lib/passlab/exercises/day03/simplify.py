"""Day 3, algebraic simplification: visible cases and judge."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passlab.fx.cases import case, expecting, graph, least, most
from passlab.judge import Case

#: `x * 1 = x` makes an output of the program an input. The laws do not apply where memory is written, so no caller can
#: observe this.
judge = expecting(aliasing=False)


def cases() -> list[Case]:
    def free(law: str) -> str:
        return f"{law} holds here."

    def kept(law: str, why: str) -> str:
        return f"{law} does not hold here: {why}."

    def units(m: Any, x: fx.Proxy) -> fx.Proxy:
        return 1 * (((x * 1.0) / 1 - 0) ** 1).relu()

    def integers(m: Any, n: fx.Proxy) -> tuple:
        return 0 + n, (n * 0) + (n - n), n + 0.0, n / 1

    def traps(m: Any, x: fx.Proxy) -> tuple:
        roots = torch.sqrt(x * x), torch.log(torch.exp(x))
        return 1 / (x + 0.0), x * 0, x - x, x / x, torch.exp(torch.log(x)), *roots

    def twice(m: Any, x: fx.Proxy) -> tuple:
        relu = F.relu(torch.relu(x.relu()))
        return relu, torch.abs(abs(-x)), -torch.neg(relu), relu + (-x), x**2

    def shapes(m: Any, x: fx.Proxy) -> tuple:
        back = x.transpose(0, 1).transpose(-1, -2)
        away = x.unsqueeze(0).transpose(0, 1).transpose(1, 2)
        return torch.tanh(back), away, x.reshape(3, 2).reshape(-1), x * m.ones, x * m.wide

    def options(m: Any, x: fx.Proxy) -> tuple:
        return torch.div(x, 1, rounding_mode="floor"), torch.add(x, -x, alpha=2)

    minus_zero = kept("x + 0.0 = x", "for x = -0 the sum is +0, and 1 / (x + 0.0) tells them apart")
    nan = kept("x * 0 = 0", "it is NaN for x = inf and for x = NaN")
    return [
        case(
            "numbers that do nothing",
            graph(units, (2, 3)),
            did=[
                most("mul", 0, free("x * 1 = x")),
                most("truediv", 0, free("x / 1 = x")),
                most("sub", 0, free("x - 0 = x")),
                most("pow", 0, free("x ** 1 = x")),
            ],
        ),
        case(
            "integers",
            graph(integers, torch.arange(4)),
            did=[
                most("mul", 0, free("x * 0 = zeros (x is an integer: no NaN, no inf)")),
                most("sub", 0, free("x - x = zeros (x is an integer)")),
                most("add", 2, free("x + 0 = x (x is an integer: no -0)")),
            ],
            spared=[
                least("add", 2, kept("x + 0.0 = x", "the sum is a float, x is an integer")),
                least("truediv", 1, kept("x / 1 = x", "the quotient is a float, x is an integer")),
            ],
        ),
        case(
            "NaN, inf, -0",
            graph(traps, (2, 3)),
            spared=[
                least("exp", 1, kept("exp(log(x)) = x", "log of a negative number is NaN")),
                least("sqrt", 1, kept("sqrt(x * x) = abs(x)", "x * x overflows long before x does")),
                least("add", 1, minus_zero),
                least("mul", 2, nan),
                least("sub", 1, kept("x - x = 0", "inf - inf is NaN")),
                least("truediv", 2, kept("x / x = 1", "0 / 0 is NaN")),
                least("log", 2, kept("log(exp(x)) = x", "exp(x) overflows long before x does")),
            ],
        ),
        case(
            "twice is once",
            graph(twice, (2, 3)),
            did=[
                most("relu", 1, free("relu(relu(x)) = relu(x)")),
                most("abs", 1, free("abs(abs(x)) = abs(x)")),
                most("neg", 0, free("One of -(-x) = x, abs(-x) = abs(x) and x + (-y) = x - y")),
                most("pow", 0, free("x ** 2 = x * x")),
            ],
        ),
        case(
            "shapes",
            graph(shapes, (2, 3), ones=torch.ones(2, 3), wide=torch.ones(4, 2, 3)),
            did=[
                most("transpose", 2, free("Transposing the same two dimensions twice does nothing; this")),
                most("reshape", 1, free("reshape(reshape(x, s), t) = reshape(x, t)")),
                most("mul", 1, free("x * 1 = x, where 1 is a parameter full of ones,")),
            ],
            spared=[
                least("transpose", 2, "(0, 1) and then (1, 2) is a rotation of three dimensions, not a way back."),
                least("mul", 1, kept("x * 1 = x", "the ones are wider than x, and the product is as wide as they are")),
            ],
        ),
        case(
            "options",
            graph(options, (2, 3)),
            spared=[
                least("div", 1, kept("x / 1 = x", "this division rounds down")),
                least("add", 1, kept("x + (-y) = x - y", "alpha=2 doubles the second operand first")),
            ],
        ),
    ]
