"""Hidden cases and answers of day03.simplify."""

from __future__ import annotations

import math
import operator
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from autograder.answers.day03._shared import generated
from autograder.authoring.answers import edited, right, wrong
from passlab.fx.cases import case, graph, least, most, read
from passlab.fx.effects import written
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
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

    def gone(**counts: int) -> list:
        return [most(op, count, holds) for op, count in counts.items()]

    def stay(**counts: int) -> list:
        return [least(op, count, cannot) for op, count in counts.items()]

    return [
        case(
            "tensors of one number, methods and functions",
            graph(units, (2, 3), ones=torch.ones(2, 3), zeros=torch.zeros(3), one=torch.tensor(1.0)),
            did=gone(mul=1, sub=0, div=0, pow=0),
        ),
        case(
            "whole numbers",
            graph(
                whole, torch.arange(4), ones=torch.ones(4, dtype=torch.int64), zeros=torch.zeros(4, dtype=torch.int64)
            ),
            did=gone(mul=1, sub=0, add=0),
            spared=stay(mul=1, pow=1, truediv=1),
        ),
        case(
            "narrow integers",
            graph(narrow, torch.arange(4), torch.arange(4, dtype=torch.uint8)),
            spared=[least("neg", 2, "In uint8, -1 is 255, which abs and a wider sum can see.")],
        ),
        case("towers", graph(towers, (2, 3)), did=gone(relu=1, abs=1, neg=times % 2, mul=0)),
        case("an operand with other readers", graph(shared, (2, 3)), did=gone(neg=1, add=0)),
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
        case("chains of shapes", graph(chained, (2, 3)), did=gone(reshape=2, transpose=1)),
        case("never", graph(never, (2, 3)), spared=stay(add=1, mul=1, sub=3, div=1, pow=2)),
        case("calls with options", graph(options, (2, 3)), did=gone(relu=1), spared=stay(div=1, add=1, sub=1)),
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
            did=gone(mul=4),
            spared=stay(mul=4, sub=1),
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
            did=gone(pow=0),
            spared=stay(mul=1, truediv=1, add=1),
        ),
        *generated("simplify", rng, 5, 30, holds, only=("identity", "pointwise", "views", "integers", "constant")),
    ]


# ---------------------------------------------------------------------------------------------------- answers

_BINARY = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.pow: "pow"}
_METHODS = ["add", "sub", "mul", "div", "pow", "neg", "abs", "relu", "transpose", "reshape"]
NAMES = (
    _BINARY
    | {operator.neg: "neg", operator.abs: "abs", F.relu: "relu"}
    | {name: name for name in _METHODS}
    | {getattr(torch, name): name for name in _METHODS}
)


class _Rules:
    """Rules over the nodes of a graph. `exact`: x + 0, x * 0 and x - x only where there is no NaN, inf or -0."""

    def __init__(self, gm, memory, exact=True):
        self.gm, self.memory, self.exact = gm, memory, exact

    def name(self, x):
        if not isinstance(x, fx.Node) or x.op not in ("call_function", "call_method"):
            return None
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
        held = operator.attrgetter(x.target)(self.gm)
        return held.flatten()[0].item() if held.numel() and bool((held == held.flatten()[0]).all()) else None

    def result(self, node):
        """Return what stands for a node: a node, (function, operands), or None for itself."""
        name, args = self.name(node), node.args
        if name is None or not args or node in self.memory:
            return None
        found = self.binary(node, name, *args) if name in _BINARY.values() and len(args) == 2 else None
        if found is None:
            reverse = name in ("add", "mul") and len(args) == 2
            found = self.binary(node, name, *reversed(args)) if reverse else self.chain(node, name, args)
        operands = [found] if isinstance(found, fx.Node) else found[1] if found else ()
        return None if any(n in self.memory for n in (*operands, *args) if isinstance(n, fx.Node)) else found

    def chain(self, n, name, args):
        x, inner = args[0], self.name(args[0])
        if name == inner == "neg":
            return x.args[0]
        if name in ("abs", "relu") and inner == name:
            return x
        if name == "abs" and inner == "neg" and (not self.whole(x) or self.type(x)[1].is_signed):
            return torch.abs, x.args
        if name == inner == "transpose":
            rank = len(self.type(n)[0])
            return x.args[0] if {d % rank for d in args[1:]} == {d % rank for d in x.args[1:]} else None
        if name == inner == "reshape":
            shape = args[1] if isinstance(args[1], tuple | list) else args[1:]
            return torch.reshape, (x.args[0], tuple(shape))
        return None

    def binary(self, n, name, x, c):
        number, exact = self.value(c), self.keeps(n, x) and (self.whole(x) or not self.exact)
        if number is not None and self.keeps(n, x):
            if number == 1 and name in ("mul", "div", "pow"):
                return x
            if number == 0 and name == "sub" and math.copysign(1, number) > 0:
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
        if name == "add" and self.name(c) == "neg" and isinstance(x, fx.Node) and not wraps:
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
        while (found := rules.result(at)) is not None:
            if isinstance(found, fx.Node):
                graph.erase_node(at)
                new[node] = found
                break
            made = graph.call_function(*found)
            made.meta = dict(node.meta)
            graph.erase_node(at)
            at = new[node] = made
    return fx.GraphModule(gm, graph)


@right("makes a new graph, and consults the rules as each node is put into it")
def new_graph(gm):
    return _simplify(gm)


@wrong("spared", "x + 0 = x, x * 0 = 0 and x - x = 0 for all numbers: there is no NaN, no inf, no -0")
def real_numbers(gm):
    return _simplify(gm, "integers")


@right("sweeps over the whole graph until no rule applies any more")
def until_quiet(gm):
    rules, changed = _Rules(gm, written(gm.graph)), True
    while changed:
        changed = False
        for node in list(gm.graph.nodes):
            found = rules.result(node)
            if found is None:
                continue
            if not isinstance(found, fx.Node):
                with gm.graph.inserting_before(node):
                    found = gm.graph.call_function(*found)
                found.meta = dict(node.meta)
            node.replace_all_uses_with(found)
            gm.graph.erase_node(node)
            changed = True
    return gm


@wrong("did", "one look at each node, at its operands as they were: towers lose only one floor")
def one_floor(gm):
    rules = _Rules(gm, written(gm.graph))
    found = {node: rules.result(node) for node in gm.graph.nodes}
    for node, simpler in found.items():
        if isinstance(simpler, fx.Node) and found[simpler] is None:
            node.replace_all_uses_with(simpler)
            gm.graph.erase_node(node)
    return gm


def _adds(*laws):
    """Return edits: the table has more laws, and exp, log and sqrt are ops, too."""
    forms = "\n".join(f'    "{name}": (torch.{name}, "{name}"),' for name in ("exp", "log", "sqrt"))
    return ("FORMS = {", "FORMS = {\n" + forms), ("LAWS = (", "\n    ".join(["LAWS = (", *laws]))


forgets_types = edited(
    "spared",
    "takes x * 1.0 for x, even where x is an integer, or the ones are wider than x",
    ("typed(x) is not None and typed(n) == typed(x)", "typed(x) is not None"),
)
forgets_options = edited(
    "spared",
    "alpha=2 and rounding_mode='floor' change nothing",
    (" or any(option not in (None, False) for option in x.kwargs.values())", ""),
)
any_two_transposes = edited(
    "spared",
    "two transposes undo each other, whatever they exchange",
    ("return {a % rank, b % rank} == {d % rank for d in x.args[1:]}", "return True"),
)
forgets_writes = edited(
    "spared", "takes x * 1 for x, even where one of the two is written afterwards", ("written(gm.graph)", "set()")
)
one_way_round = edited(
    "did",
    "the number stands on the right: misses 1 * x and 0 + n",
    ('[node.args, node.args[::-1]] if name in ("add", "mul") else ', ""),
)
no_methods = edited(
    "did",
    "functions and operators only: misses x.mul(1)",
    ("return OP.get(x.target)", 'return None if x.op == "call_method" else OP.get(x.target)'),
)
no_tensors = edited(
    "did",
    "numbers in the program text only: misses a parameter full of ones",
    ("held[0].item() if len(held) and (held == held[0]).all() else None", "None"),
)
needs_one_reader = edited(
    "did",
    "where -x has other users, -(-x) stays: as if the inner node had to go",
    ('op(x) == "neg", lambda n, x: x.args)', 'op(x) == "neg" and len(x.users) == 1, lambda n, x: x.args)'),
)
as_on_paper = edited(
    "spared",
    "exp(log(x)) = x and sqrt(x * x) = abs(x), as on paper",
    *_adds(
        'Law("exp", "", lambda n, x: op(x) == "log", lambda n, x: x.args),',
        'Law("sqrt", "", lambda n, x: op(x) == "mul" and x.args[0] is x.args[1], lambda n, x: (torch.abs, x.args[0])),',
    ),
)
logarithms = edited(
    "spared",
    "log(exp(x)) = x, though exp(x) overflows long before x does",
    *_adds('Law("log", "", lambda n, x: op(x) == "exp", lambda n, x: x.args),'),
)
wrapping = edited(
    "spared",
    "abs(-x) = abs(x) and x + (-y) = x - y for all integers: forgets that -x wraps around in uint8",
    (" and not unsigned(x)", ""),
    (" and not wider(n, y)", ""),
)
quotients = edited(
    "spared", "x / x = 1", *_adds('Law("div", "", lambda n, x, y: x is y, lambda n, x, y: (torch.ones_like, x)),')
)
