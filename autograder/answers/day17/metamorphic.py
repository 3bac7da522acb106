"""Hidden cases and answers of day17.metamorphic."""

from __future__ import annotations

import math
import random

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day17.metamorphic import (
    in_a_row,
    larger_first,
    last_entry,
    last_row,
    law_case,
    negative,
    positive,
    shared,
)
from passlab.fx.cases import graph, seeded
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    a, b, c = rng.sample([2, 3, 4, 5], 3)
    number = round(rng.uniform(2.0, 4.0), 2)
    # numbers of both signs, larger and smaller ones than those of `small`
    wide = torch.linspace(-rng.uniform(2.0, 3.0), rng.uniform(2.0, 3.0), a * b).view(a, b)
    small = torch.linspace(-rng.uniform(0.2, 1.0), rng.uniform(0.2, 1.0), b)
    cases: list[Case] = []

    def law(name, body, faults, *shapes, about=(), **parts):
        build = seeded(graph(body, *(shapes or [(a, b)]), **parts), rng.randrange(10**6))
        cases.append(law_case(name, build, faults, about))

    def divided(op):
        return lambda m, x: torch.div(op(x), number)

    for name in ("tanh", "sin", "cos", "abs", "relu"):
        draw = positive if name == "relu" else rng.choice([negative, positive])
        law(name, divided(getattr(torch, name)), {f"{name} is wrong for {draw.__name__} operands": draw(name)}, wide)

    def of_two(op):
        return lambda m, x, y: op(x, y)

    for name in ("add", "sub", "mul", "maximum"):
        text = f"{name} is wrong where the first operand is the larger one"
        law(name, of_two(getattr(torch, name)), {text: larger_first(name)}, wide, small)
    dim = rng.randrange(2)  # not the last one
    entry = "the last entry counts too much in a sum"
    law("sum", lambda m, x: torch.sum(x, dim), {entry: last_entry("sum")}, (a, b, c))
    law("sum, kept", lambda m, x: torch.sum(x, -1, keepdim=True), {entry: last_entry("sum")}, (a, b))
    law("sum, dim by name", lambda m, x: torch.sum(x, keepdim=True, dim=dim), {entry: last_entry("sum")}, (a, b, c))
    soft = {"the last entry of a softmax is wrong": last_entry("softmax")}
    law("softmax", lambda m, x: torch.softmax(x, dim - 3), soft, (a, b, c))
    law("softmax, dim by name", lambda m, x: torch.softmax(x, dim=dim - 3), soft, (a, b, c))
    product = {"the last row of a matrix product is wrong": last_row}
    law("matmul", lambda m, x, y: torch.matmul(x, y), product, (a, b), (b, c))
    law("matmul of many", lambda m, x: torch.matmul(x, m.w), product, (a, b, c), w=(c, b))
    first, second = rng.choice([("div", "exp"), ("exp", "sigmoid"), ("sigmoid", "reciprocal"), ("exp", "reciprocal")])
    calls = {
        "div": lambda x: torch.div(x, number),
        **{name: getattr(torch, name) for name in ("exp", "sigmoid", "reciprocal")},
    }
    row = {f"{first} and {second} in a row are wrong": in_a_row(first, second)}
    law("two in a row", lambda m, x: torch.atan(calls[second](calls[first](x))), row)
    law(
        "two in a row, and a second reader",
        lambda m, x: torch.div(calls[second](e := calls[first](x)), torch.atan(e)),
        row | {f"{first} and atan in a row are wrong": in_a_row(first, "atan")},
    )
    quotient = {"exp and div in a row are wrong": in_a_row("exp", "div")}
    law("two in a row, the first as second operand", lambda m, x: torch.div(x, torch.exp(x)), quotient)
    twice = {"a value that two nodes read is wrong": shared}
    law("read twice", lambda m, x: torch.div(e := torch.sigmoid(torch.exp(x)), torch.exp(e)), twice)
    law("read by three", lambda m, x: torch.div(torch.div(e := torch.exp(x), torch.exp(e)), torch.sqrt(e)), twice)
    odd = {"tanh is wrong for negative operands": negative("tanh")}
    law("an input that nothing reads", lambda m, x, y: divided(torch.tanh)(m, x), odd, wide, small)
    whole = {
        "add is wrong where the first operand is the larger one": larger_first("add"),
        "tanh is wrong for negative operands": negative("tanh"),
        **product,
        **soft,
    }
    law(
        "a layer",
        lambda m, x: torch.softmax(torch.matmul(torch.tanh(torch.add(x, m.b)), m.w), 1),
        whole,
        wide,
        b=small,
        w=(b, c),
    )
    rows = {
        "sin is wrong for positive operands": positive("sin"),
        "mul is wrong where the first operand is the larger one": larger_first("mul"),
        entry: last_entry("sum"),
        "sin and div in a row are wrong": in_a_row("sin", "div"),
        "a value that two nodes read is wrong": shared,
    }
    law(
        "all at once",
        lambda m, x, y: torch.sum(torch.mul(torch.div(s := torch.sin(x), number), torch.sub(y, s)), 1),
        rows,
        wide,
        wide.flip(0),
    )
    law("read twice, a multiple", lambda m, x: torch.div(e := torch.div(torch.exp(x), number), torch.exp(e)), twice)
    return cases


# ---------------------------------------------------------------------------------------------------- answers


def _rewritten(gm, laws, around=lambda result: result):
    """The graph with a law at each operation that has one."""
    graph, env = fx.Graph(), {}
    tracer = fx.proxy.GraphAppendingTracer(graph)
    for node in gm.graph.nodes:
        law = laws.get(getattr(node.target, "__name__", ""))
        if node.op != "call_function":
            env[node] = graph.node_copy(node, env.__getitem__)
            continue
        args = fx.node.map_arg(node.args, lambda operand: fx.Proxy(env[operand], tracer))
        env[node] = around((law or node.target)(*args, **node.kwargs)).node
    return fx.GraphModule(gm, graph)


#: Operation → how other operations compute it.
_BY_OTHERS = {
    "tanh": lambda x: torch.sigmoid(x * 2) * 2 - 1,
    "sin": lambda x: torch.cos(x - math.pi / 2),
    "cos": lambda x: torch.sin(x + math.pi / 2),
    "abs": lambda x: torch.maximum(x, -x),
    "relu": lambda x: (x + torch.abs(x)) / 2,
    "add": lambda x, y: x - (-y),
    "sub": lambda x, y: x + (-y),
    "mul": lambda x, y: x / (1 / y),
    "maximum": lambda x, y: torch.where(torch.gt(x, y), x, y),
    "sum": lambda x, dim, keepdim=False: torch.mean(x, dim, keepdim=keepdim) * x.size(dim),
    "softmax": lambda x, dim: torch.exp(x) / torch.exp(x).sum(dim, keepdim=True),
    "matmul": lambda x, y: (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2),
}


def _unshared(gm):
    """The graph with a copy of each value for each of its readers, node by node."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in reversed(graph.nodes):
        if node.op != "call_function":
            continue
        for reader in list(node.users)[1:]:
            with graph.inserting_before(node):
                reader.replace_input_with(node, graph.node_copy(node))
    return fx.GraphModule(gm, graph)


@right("computes each operation by others, puts + 1 - 1 between, and copies shared values one by one")
def by_others(gm):
    return [_rewritten(gm, _BY_OTHERS), _rewritten(gm, {}, lambda result: result + 1 - 1), _unshared(gm)]


@right("one graph: all laws at once, with a product of ones after each operation, of the graph without shared values")
def all_in_one(gm):
    laws = {
        **{name: lambda x, op=op: torch.neg(op(torch.neg(x))) for name, op in _named("tanh", "sin")},
        **{name: lambda x, op=op: op(torch.neg(x)) for name, op in _named("cos", "abs")},
        **{name: lambda x, y, op=op: op(y, x) for name, op in _named("add", "mul", "maximum")},
        "relu": lambda x: x - torch.clamp(x, max=0),
        "sub": lambda x, y: torch.neg(torch.sub(y, x)),
        "sum": lambda x, dim, keepdim=False: torch.sum(x.roll(1, dim), dim, keepdim=keepdim),
        "softmax": lambda x, dim: torch.softmax(x.roll(1, dim), dim).roll(-1, dim),
        "matmul": lambda x, y: torch.matmul(x.flip(-2), y).flip(-2),
    }
    return [_rewritten(_unshared(gm), laws, lambda result: result * 1.0)]


def _named(*names):
    return [(name, getattr(torch, name)) for name in names]


@wrong("did", "returns the graph itself")
def the_same(gm):
    return [fx.GraphModule(gm, gm.graph)]


@wrong("did", "moves the operands of softmax by a number: its last entry is wrong in both")
def shifted(gm):
    laws = _BY_OTHERS | {"softmax": lambda x, dim: torch.softmax(x + 1, dim)}
    return [_rewritten(gm, laws), _rewritten(gm, {}, lambda result: result + 1 - 1), _unshared(gm)]


@wrong("same", "takes laws of the reals that need more digits than float32 has")
def far_away(gm):
    return [*by_others(gm), _rewritten(gm, {}, lambda result: result + 1e6 - 1e6)]


@wrong("same", "takes a law that holds to three digits: cos(x) = sin(x + 1.57)")
def three_digits(gm):
    return [*by_others(gm), _rewritten(gm, {"cos": lambda x: torch.sin(x + 1.57)})]


@wrong("same", "a sum that is off by 0.001")
def a_thousandth(gm):
    return [*by_others(gm), _rewritten(gm, {"sum": lambda *args, **kwargs: torch.sum(*args, **kwargs) + 1e-3})]


@wrong("same", "takes a law that divides by an operand, which may be 0")
def divides(gm):
    return [
        *by_others(gm),
        _rewritten(gm, {"sub": lambda x, y: (x / y - 1) * y, "abs": lambda x: x * x / torch.abs(x)}),
    ]


@wrong("valid", "returns graph and law in pairs")
def pairs(gm):
    return [(gm, other) for other in by_others(gm)]


@wrong("did", "keeps apart what reads its first operand, and nothing else")
def apart_at_first_operands(gm):
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in [node for node in graph.nodes if node.op == "call_function"]:
        readers = [reader for reader in node.users if reader.args[0] is node]
        with graph.inserting_after(node):
            apart = graph.call_method("clone", (node,))
        for reader in readers:
            reader.update_arg(0, apart)
    return [_rewritten(gm, _BY_OTHERS), fx.GraphModule(gm, graph), _unshared(gm)]


@wrong("did", "keeps each value apart from the first node that reads it, and from no other")
def apart_from_the_first(gm):
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in [node for node in graph.nodes if node.op == "call_function"]:
        first = next(iter(node.users))
        with graph.inserting_after(node):
            first.replace_input_with(node, graph.call_method("clone", (node,)))
    return [_rewritten(gm, _BY_OTHERS), fx.GraphModule(gm, graph), _unshared(gm)]


@wrong("did", "copies a value for each of its readers, so that these copies share what the value was made of")
def shared_one_before(gm):
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in [node for node in graph.nodes if node.op == "call_function"]:
        for reader in list(node.users)[1:]:
            with graph.inserting_before(node):
                reader.replace_input_with(node, graph.node_copy(node))
    return [*by_others(gm)[:2], fx.GraphModule(gm, graph)]


@wrong("same", "takes sums and softmax along the last dimension")
def along_the_last(gm):
    laws = {
        "sum": lambda x, dim, keepdim=False: torch.sum(x.flip(-1), -1, keepdim=keepdim),
        "softmax": lambda x, dim: torch.softmax(x.flip(-1), -1).flip(-1),
    }
    return [_rewritten(gm, _BY_OTHERS | laws), *by_others(gm)[1:]]


@wrong("valid", "leaves out inputs that nothing reads")
def unread_inputs(gm):
    graphs = by_others(gm)
    for other in graphs:
        for node in other.graph.find_nodes(op="placeholder"):
            if not node.users:
                other.graph.erase_node(node)
        other.recompile()
    return graphs


no_keyword = edited("did", "looks for dim in its place only")(
    (
        "return law(target, *args, **kwargs)",
        "return target(*args, **kwargs) if 'dim' in kwargs else law(target, *args, **kwargs)",
    )
)
listed = "[Other(gm).transform(), Apart(gm).transform(), again()]"
no_laws = edited("did", "forgets the laws of operations")((listed, "[Apart(gm).transform(), again()]"))
no_apart = edited("did", "leaves rows of operations as they are")((listed, "[Other(gm).transform(), again()]"))
no_again = edited("did", "computes each value once")((listed, "[Other(gm).transform(), Apart(gm).transform()]"))
odd_relu = edited("same", "takes relu for an odd function")(("x + f(-x)", "-f(-x)"))
swapped = edited("same", "swaps the operands of sub, and forgets the sign")(("-f(y, x)", "f(y, x)"))
no_matmul = edited("did", "knows no law of matrix products")(("f(y.mT, x.mT).mT", "f(x, y)"))
not_back = edited("same", "flips the operand of softmax, and not the result")(
    ("flipped(f, x, dim).flip(dim)", "flipped(f, x, dim)")
)
not_flipped = edited("did", "leaves the order of what is summed")(("f(x.flip(dim), dim, **how)", "f(x, dim, **how)"))
negated = edited("same", "negates once")(("torch.neg(torch.neg(...))", "torch.neg(...)"))
