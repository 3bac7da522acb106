"""Day 3, the four classics: visible cases of constant folding, dead code, common subexpressions and simplification."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from passlab.exercises.cases_day03 import Expectation, case, expecting, graph, least, most, names, nodes, read, store
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- folding


def constants(limit: int, why: str) -> Expectation:
    """No constant that the pass made is larger than `limit` bytes."""

    def held(gm: fx.GraphModule) -> dict[str, int]:
        read = {n.target: operator.attrgetter(n.target)(gm) for n in gm.graph.nodes if n.op == "get_attr"}
        return {name: getattr(value, "nbytes", 0) for name, value in read.items()}

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        big = {name: size for name, size in held(after).items() if size > limit and name not in held(before)}
        if not big:
            return None
        return f"{why} {names(list(big))} takes {max(big.values()):,} bytes; the limit is {limit:,}."

    return law


def _without_data(func: Any, args: tuple, kwargs: dict) -> Any:
    """What an operation gives, on the meta device: shapes and no data. Where that cannot be told, what it computes."""

    def bare(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

    places = any(argument.name == "device" for argument in func._schema.arguments)
    try:
        return func(*tree_map(bare, args), **tree_map(bare, kwargs) | ({"device": "meta"} if places else {}))
    except Exception:
        return func(*args, **kwargs)


class _Memory(TorchDispatchMode):
    """Memory that ends: whoever wants to make a tensor of more than `limit` bytes gets a MemoryError instead."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        for made in tree_leaves(_without_data(func, args, kwargs or {})):
            if isinstance(made, torch.Tensor) and (size := made.untyped_storage().nbytes()) > self.limit:
                raise MemoryError(f"a value of {size:,} bytes was to be computed, and the limit is {self.limit:,}")
        return func(*args, **(kwargs or {}))


def call_fold(answer: Callable, case: Case) -> Any:
    """Fold with as much memory for one value as the limit says, or as the largest tensor that is there already.

    An answer could switch this off. It gains nothing: one of the hidden cases has a value that fits into no memory.
    """
    gm, *limit = case.build()
    if not limit:
        return answer(gm)
    there = [t.nbytes for t in (*gm.state_dict().values(), *gm.meta["inputs"])]
    with _Memory(max(limit[0], *there)):
        return answer(gm, *limit)


def fold_cases() -> list[Case]:
    never = "It is the same on every call, so it can be computed now."
    draws = "rand_like has only constant operands, yet every call draws new numbers: it is no constant."

    def attention(m: Any, x: fx.Proxy) -> fx.Proxy:
        return (x @ m.w.t()) * (1 / torch.sqrt(m.d)) + torch.tanh(m.b) * 2

    def numbers(m: Any, x: fx.Proxy) -> fx.Proxy:
        return (x @ m.w).reshape(-1, m.w.size(0)) * m.w.size(-1) ** -0.5

    def noise(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x + torch.rand_like(m.w) * torch.exp(m.w) + F.dropout(m.w, 0.5, True)

    def outer(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x * (m.u.reshape(-1, 1) * m.v) + torch.exp(m.u).sum()

    def largest(m: Any, x: fx.Proxy) -> fx.Proxy:
        return x * (m.u.reshape(-1, 1) * m.u).amax()

    def counter(m: Any, x: fx.Proxy) -> fx.Proxy:
        read(x, "steps").add_(1)
        return x * (read(x, "steps") * 2) + torch.exp(m.b)

    d = torch.tensor(16.0)
    return [
        case(
            "a weight transposed, 1/sqrt(d)",
            graph(attention, (2, 3), w=(4, 3), d=d, b=(4,)),
            did=[most(op, 0, never) for op in ("t", "sqrt", "truediv", "tanh")] + [most("mul", 1, never)],
            cost=[nodes(8, "A constant that nobody reads any more still takes memory.", dead=True)],
        ),
        case(
            "numbers",
            graph(numbers, (2, 4), w=(4, 4)),
            did=[most(op, 0, "The shape of a weight never changes.") for op in ("size", "pow")],
        ),
        case(
            "noise",
            graph(noise, (4, 3), w=(4, 3)),
            did=[most("exp", 0, never)],
            spared=[least("rand_like", 1, draws), least("dropout", 1, draws.replace("rand_like", "dropout"))],
        ),
        case(
            "larger than the limit",
            graph(outer, (32, 32), u=(32,), v=(32,)),
            2048,
            did=[most("exp", 0, never), most("sum", 0, never)],
            spared=[constants(2048, "Two vectors of 128 bytes make a matrix of 4,096: folding blew up memory.")],
        ),
        case(
            "too large to be computed at all",
            graph(largest, (2, 3), u=(64,)),
            2048,
            spared=[least("mul", 2, "The product has 16,384 bytes.")],
        ),
        case(
            "a counter",
            graph(counter, (2, 3), steps=torch.zeros(3), b=(3,)),
            did=[most("exp", 0, never)],
            spared=[
                least("add_", 1, "add_ writes into a parameter, and the next call sees it."),
                least("mul", 2, "The program writes into what is read here: it is another value at every call."),
            ],
        ),
    ]


# ---------------------------------------------------------------------------------------------------- dead code


def dce_cases() -> list[Case]:
    unread = "Nobody reads it and it has no effect."
    writes = "It writes into memory that is read later: its own result being unused says nothing."

    def chain(m: Any, x: fx.Proxy) -> fx.Proxy:
        kept = torch.relu(x)
        unused = torch.tanh(kept) * m.w
        m.lin(unused + 1).chunk(2, -1)[0]
        return kept

    def writing(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = x * 2
        torch.tanh(y)
        y.add_(1)
        store(y, 0, 0.0)
        F.relu(y, inplace=True)
        torch.add(x[0], 1, out=y[1])
        return y

    def asserting(m: Any, x: fx.Proxy) -> fx.Proxy:
        torch._assert(x.dim() == 2, "two dimensions, please")
        torch.tanh(x)
        return x + 1

    def drawing(m: Any, x: fx.Proxy) -> fx.Proxy:
        torch.rand_like(x)
        torch.exp(x)
        return F.dropout(x, 0.5, True)

    stays = "An assertion is there to stop the program: it is never read."
    moves = "It moves the random generator: without it, all later draws are others."
    return [
        case(
            "a dead chain",
            graph(chain, (2, 4), w=(4,), lin=lambda: nn.Linear(4, 4)),
            did=[most(op, 0, unread, dead=True) for op in ("tanh", "mul", "Linear", "chunk", "getitem", "get_attr")],
        ),
        case(
            "four ways to write",
            graph(writing, (2, 3)),
            did=[most("tanh", 0, unread, dead=True)],
            spared=[least(op, 1, writes) for op in ("add_", "setitem", "relu", "add")],
        ),
        case(
            "an assertion",
            graph(asserting, (2, 3)),
            did=[most("tanh", 0, unread, dead=True)],
            spared=[least("_assert", 1, stays)],
        ),
        case(
            "a draw nobody reads",
            graph(drawing, (2, 3)),
            did=[most("exp", 0, unread, dead=True)],
            spared=[least("rand_like", 1, moves)],
        ),
        case(
            "an unused input",
            graph(lambda m, x, mask: torch.sigmoid(x), (2, 3), (2, 3)),
            spared=[least("placeholder", 2, "Inputs are how the program is called.")],
        ),
    ]


# ---------------------------------------------------------------------------------------------------- same value


def cse_cases() -> list[Case]:
    once = "The same value is computed more than once."
    other = "They differ in an operand, a keyword or the type of a number: they are not the same value."
    draws = "Your CSE merged two draws: each call draws new numbers."
    wrote = "The program writes between these two reads: they read the same place at different times."

    def products(m: Any, x: fx.Proxy) -> fx.Proxy:
        a = torch.relu(torch.add(x @ m.w, m.b, alpha=2))
        b = torch.relu(torch.add(x @ read(x, "w"), read(x, "b"), alpha=2))
        return m.lin(a) + m.lin(b)

    def look_alikes(m: Any, x: fx.Proxy, n: fx.Proxy) -> tuple:
        softmaxes = F.softmax(x, dim=0) + F.softmax(x, dim=1)
        sums = torch.add(x, x, alpha=2) - torch.add(x, x, alpha=3)
        return softmaxes, sums, n + 1, n + 1.0, n + True

    def draws_twice(m: Any, x: fx.Proxy) -> fx.Proxy:
        return F.dropout(x, 0.5, True) + F.dropout(x, 0.5, True) + torch.rand_like(x) * torch.rand_like(x)

    def between(m: Any, x: fx.Proxy) -> fx.Proxy:
        y = torch.relu(x)
        first = y.sum(1, keepdim=True)
        y.add_(1)
        return first * y.sum(1, keepdim=True)

    def parting(m: Any, x: fx.Proxy) -> tuple:
        a, b = x + 1, x + 1
        b.mul_(2)
        return a, b

    def nested(m: Any, x: fx.Proxy) -> fx.Proxy:
        left = torch.cat([x[:, 1:3], x[:, :2]], 1)
        return left * torch.cat([x[:, 1:3], x[:, :2]], 1)

    return [
        case(
            "the same, twice",
            graph(products, (2, 3), w=(3, 4), b=(4,), lin=lambda: nn.Linear(4, 4)),
            did=[most(op, 1, once) for op in ("matmul", "relu", "Linear")] + [most("get_attr", 2, once)],
        ),
        case(
            "lists and slices",
            graph(nested, (2, 4)),
            did=[most("cat", 1, once), most("getitem", 2, once)],
        ),
        case(
            "look-alikes",
            graph(look_alikes, (3, 3), torch.arange(3)),
            spared=[least("softmax", 2, other), least("add", 6, other)],
        ),
        case(
            "two dropouts",
            graph(draws_twice, (2, 3)),
            spared=[least("dropout", 2, draws), least("rand_like", 2, draws)],
        ),
        case("a write in between", graph(between, (2, 3)), spared=[least("sum", 2, wrote)]),
        case(
            "twins that part",
            graph(parting, (2, 3)),
            spared=[least("add", 2, "One of the two is written later, the other is not: they are two places.")],
        ),
    ]


# ---------------------------------------------------------------------------------------------------- simplification


#: `x * 1 = x` makes an output of the program an input. Where memory is written the laws do not hold, so nobody sees it.
judge_simplify = expecting(aliasing=False)


def simplify_cases() -> list[Case]:
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
                most("transpose", 2, free("Transposing the same two dimensions twice does nothing; it")),
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
