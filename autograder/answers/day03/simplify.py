"""Hidden cases and answers of day03.simplify.

One pass that makes a new graph by rules, and what it becomes when a condition is dropped.
"""

from __future__ import annotations

import math
import operator
import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch.fx.node import map_arg

from autograder.answers.day03._shared import generated
from autograder.authoring.answers import right, wrong
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


# ---------------------------------------------------------------------------------------------------- answers

_BINARY = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div", operator.pow: "pow"}
_METHODS = ["add", "sub", "mul", "div", "pow", "neg", "abs", "relu", "transpose", "reshape", "exp", "log", "sqrt"]
NAMES = (
    _BINARY
    | {operator.neg: "neg", operator.abs: "abs", F.relu: "relu"}
    | {name: name for name in _METHODS}
    | {getattr(torch, name): name for name in _METHODS}
)
CARE = {
    "types",  # the result keeps dtype and shape
    "integers",  # x + 0, x * 0 and x - x only where there is no NaN, inf or -0
    "options",  # alpha=2 is another op
    "commute",  # operands either way round
    "again",  # rules apply to what rules left
    "dims",  # the second transpose undoes the first
    "writes",  # written memory is not touched
    "methods",  # x.mul(1) is x * 1
    "tensors",  # a parameter full of ones is 1
    "wrapping",  # -x of a narrow or unsigned integer wraps around
    "inner",  # neg(neg(x)) as well where neg(x) has other readers
}


class _Rules:
    """Rules over the nodes of the graph that is being made."""

    def __init__(self, gm, care):
        self.gm, self.care, self.memory = gm, care, set()

    def name(self, x):
        if not isinstance(x, fx.Node) or (x.op == "call_method" and "methods" not in self.care):
            return None
        if x.op not in ("call_function", "call_method"):
            return None
        options = {k: v for k, v in x.kwargs.items() if v is not None and v is not False}
        if options and "options" in self.care:
            return None
        return NAMES.get(x.target)

    def type(self, x):
        meta = x.meta.get("tensor_meta") if isinstance(x, fx.Node) else None
        return (meta.shape, meta.dtype) if hasattr(meta, "dtype") else None

    def keeps(self, n, x):
        return isinstance(x, fx.Node) and ("types" not in self.care or (self.type(x) and self.type(n) == self.type(x)))

    def exact(self, n, x):
        if not self.keeps(n, x):
            return False
        return "integers" not in self.care or not (self.type(x)[1].is_floating_point or self.type(x)[1].is_complex)

    def wraps(self, x, unsigned=False, into=None):
        """Are these whole numbers without a sign, or summed up in another type than their own?"""
        if "wrapping" not in self.care or self.type(x) is None:
            return False
        dtype = self.type(x)[1]
        if dtype.is_floating_point or dtype.is_complex:
            return False
        return (unsigned and not dtype.is_signed) or (into is not None and self.type(into)[1] != dtype)

    def value(self, x):
        if not isinstance(x, fx.Node):
            return x if isinstance(x, int | float) else None
        if x.op != "get_attr" or "tensors" not in self.care:
            return None
        held = operator.attrgetter(x.target)(self.gm)
        return held.flatten()[0].item() if held.numel() and bool((held == held.flatten()[0]).all()) else None

    def result(self, n, name, args):
        """What stands for `name(*args)`: a node, (function, operands), or None for itself."""
        if not args:
            return None
        if name in ("add", "mul") and len(args) == 2 and "commute" in self.care:
            return self.binary(n, name, *args) or self.binary(n, name, *reversed(args))
        if name in ("add", "mul", "sub", "div", "pow") and len(args) == 2:
            return self.binary(n, name, *args)
        x = args[0]
        inner = self.name(x)
        if inner and x in self.memory and "writes" in self.care:
            return None
        if name == inner == "neg" and ("inner" in self.care or len(x.users) == 1):
            return x.args[0]
        if name in ("abs", "relu") and inner == name:
            return x
        if name == "abs" and inner == "neg" and not self.wraps(x, unsigned=True):
            return torch.abs, x.args
        if name == inner == "transpose" and len(args) == 3:
            rank = len(self.type(n)[0])
            pairs = [{d % rank for d in dims} for dims in (args[1:], x.args[1:])]
            return x.args[0] if pairs[0] == pairs[1] or "dims" not in self.care else None
        if name == inner == "reshape":
            shape = args[1] if isinstance(args[1], tuple | list) else args[1:]
            return torch.reshape, (x.args[0], tuple(shape))
        return self.extra(n, name, args)

    def extra(self, n, name, args):
        return None

    def binary(self, n, name, x, c):
        number = self.value(c)
        if number is not None and self.keeps(n, x):
            if number == 1 and name in ("mul", "div", "pow"):
                return x
            if number == 0 and name == "sub" and math.copysign(1, number) > 0:
                return x
            if number == 2 and name == "pow":
                return operator.mul, (x, x)
            if number == 0 and name == "add" and self.exact(n, x):
                return x
            if number == 0 and name == "mul" and self.exact(n, x):
                return torch.zeros_like, (x,)
        if name == "sub" and x is c and self.exact(n, x):
            return torch.zeros_like, (x,)
        if name == "add" and self.name(c) == "neg" and isinstance(x, fx.Node) and not self.wraps(c, into=n):
            return operator.sub, (x, c.args[0])
        return self.extra(n, name, (x, c))


def _written(found, args, rule):
    """Does this replacement, or what it replaces, read memory that the program writes?"""
    operands = [found] if isinstance(found, fx.Node) else found[1]
    return any(n in rule.memory for n in (*operands, *args) if isinstance(n, fx.Node))


def _simplify(gm, *dropped, rules=_Rules):
    """Copy the graph node by node, and put something simpler in a node's place where a rule says so."""
    care = CARE - set(dropped)
    old_memory = written(gm.graph) if "writes" in care else set()
    graph, new = fx.Graph(), {}
    rule = rules(gm, care)

    def simpler(node, name, args):
        found = rule.result(node, name, args)
        if found is None or _written(found, args, rule):
            return None
        if isinstance(found, fx.Node):
            return found
        made = graph.call_function(found[0], tuple(found[1]))
        made.meta = dict(node.meta)
        if (
            "again" in care
            and (better := rule.name(made))
            and (further := simpler(made, better, made.args)) is not None
        ):
            graph.erase_node(made)
            return further
        return made

    for node in gm.graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), new.__getitem__)
        copy = graph.node_copy(node, new.__getitem__)
        name = rule.name(copy)
        if not kwargs or name is None or node in old_memory:
            kwargs = {}
        operands = args if "again" in care else copy.args
        found = simpler(copy, name, operands) if name and node not in old_memory else None
        if found is not None:
            graph.erase_node(copy)
        new[node] = copy if found is None else found
        if node in old_memory:
            rule.memory.add(new[node])
    return fx.GraphModule(gm, graph)


@right("makes a new graph, and consults the rules as each node is put into it")
def new_graph(gm):
    return _simplify(gm)


def _sweep(gm, *dropped):
    """Edit the graph, sweep by sweep, until no rule applies any more."""
    rule = _Rules(gm, CARE - set(dropped))
    rule.memory = written(gm.graph)
    changed = True
    while changed:
        changed = False
        for node in list(gm.graph.nodes):
            name = rule.name(node)
            found = rule.result(node, name, node.args) if name and node not in rule.memory else None
            if found is None or _written(found, node.args, rule):
                continue
            if not isinstance(found, fx.Node):
                with gm.graph.inserting_before(node):
                    found = gm.graph.call_function(found[0], tuple(found[1]))
                found.meta = dict(node.meta)
            node.replace_all_uses_with(found)
            gm.graph.erase_node(node)
            changed = True
    return gm


@wrong("spared", "x + 0 = x, x * 0 = 0 and x - x = 0 for all numbers: there is no NaN, no inf, no -0")
def real_numbers(gm):
    return _simplify(gm, "integers")


@wrong("spared", "x * 1.0 is x, also where x is an integer, or the ones are wider than x")
def forgets_types(gm):
    return _simplify(gm, "types")


@wrong("spared", "alpha=2 and rounding_mode='floor' change nothing")
def forgets_options(gm):
    return _simplify(gm, "options")


@wrong("spared", "two transposes undo each other, whatever they exchange")
def any_two_transposes(gm):
    return _simplify(gm, "dims")


@wrong("spared", "x * 1 is x, also where one of the two is written afterwards")
def forgets_writes(gm):
    return _simplify(gm, "writes")


@wrong("did", "the number stands on the right: 1 * x and 0 + n are not seen")
def one_way_round(gm):
    return _simplify(gm, "commute")


@wrong("did", "functions and operators only: x.mul(1) is not seen")
def no_methods(gm):
    return _simplify(gm, "methods")


@wrong("did", "numbers in the program text only: a parameter full of ones is not seen")
def no_tensors(gm):
    return _simplify(gm, "tensors")


@right("sweeps over the whole graph until no rule applies any more")
def until_quiet(gm):
    return _sweep(gm)


@wrong("did", "where -x has other readers, -(-x) stays: as if the inner node had to go")
def needs_one_reader(gm):
    return _sweep(gm, "inner")


class _Wishful(_Rules):
    """Some laws more."""

    def extra(self, n, name, args):
        x = args[0]
        if name == "exp" and self.name(x) == "log":
            return x.args[0]
        if name == "sqrt" and self.name(x) == "mul" and x.args[0] is x.args[1]:
            return torch.abs, (x.args[0],)
        return None


class _Logarithms(_Rules):
    def extra(self, n, name, args):
        return args[0].args[0] if name == "log" and self.name(args[0]) == "exp" else None


class _Quotients(_Rules):
    def extra(self, n, name, args):
        same = name == "div" and isinstance(args[0], fx.Node) and args[0] is args[1]
        return (torch.ones_like, (args[0],)) if same else None


@wrong("spared", "exp(log(x)) = x and sqrt(x * x) = abs(x), as on paper")
def as_on_paper(gm):
    return _simplify(gm, rules=_Wishful)


@wrong("spared", "log(exp(x)) = x, though exp(x) overflows long before x does")
def logarithms(gm):
    return _simplify(gm, rules=_Logarithms)


@wrong("spared", "abs(-x) = abs(x) and x + (-y) = x - y for all integers: forgets that -x wraps around in uint8")
def wrapping(gm):
    return _simplify(gm, "wrapping")


@wrong("spared", "x / x = 1")
def quotients(gm):
    return _simplify(gm, rules=_Quotients)


@wrong("did", "one look at each node, at its operands as they were: towers lose one floor only")
def one_floor(gm):
    rule, memory = _Rules(gm, CARE), written(gm.graph)
    rule.memory = memory
    found = {}
    for node in gm.graph.nodes:
        name = rule.name(node)
        if name and node not in memory:
            found[node] = rule.result(node, name, node.args)
    for node, by in found.items():
        if isinstance(by, fx.Node) and by not in memory and by not in found:
            node.replace_all_uses_with(by)
            gm.graph.erase_node(node)
    return gm
