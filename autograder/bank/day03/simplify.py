"""Bank of day03.simplify. One pass that makes a new graph by rules, and what it becomes when a condition is dropped."""

from __future__ import annotations

import math
import operator

import torch
import torch.nn.functional as F
from torch import fx
from torch.fx.node import map_arg

from autograder.bank import right, wrong
from passlab.fx.effects import written

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
