"""Hidden cases and answers of day01.residual-edges."""

from __future__ import annotations

import operator

import torch
from torch import fx, nn

from autograder.answers.day01._shared import random_case, tangled, zoo_case
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day01._shared import net, traced
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _through_tuples() -> nn.Module:
    def forward(self, x):
        left, right = torch.split(x, 2, -1)
        y = torch.cat([right, left], dim=-1).add(x)
        z = self.weight + torch.tanh(self.weight)
        return (y + z).add_(torch.cos(y)), torch.add(self.scale, x, alpha=0.5)

    return net(forward, weight=nn.Parameter(torch.ones(4)), scale=torch.ones(4))


def _iadd() -> tuple:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.mul, (x, 2))
    z = graph.call_function(operator.iadd, (graph.call_method("neg", (y,)), y))
    graph.output(graph.call_function(operator.isub, (z, x)))
    gm = fx.GraphModule(nn.Module(), graph)
    fx.passes.shape_prop.ShapeProp(gm).propagate(torch.randn(2, 4))  # tracing would turn `iadd` into `add`
    return (gm,)


def _numbers_between() -> nn.Module:
    def forward(self, x, y):
        rows = x.shape[0]
        spread = self.token.expand(rows, -1)
        count = y.size(0) + 1
        return x + spread, y + count, (x + x).mul(x), torch.cat([y, y.neg()], 0) - count

    return net(forward, token=nn.Parameter(torch.ones(1, 4)))


def _added_number() -> nn.Module:
    def forward(self, x):
        rows = x.size(0)
        return rows + x.view(rows, -1)

    return net(forward)


def _broadcast() -> nn.Module:
    return net(lambda self, x, y: x + torch.tanh(x * y))


def _module_called_add() -> nn.Module:
    return net(lambda self, x: self.add(x, torch.tanh(x)), add=nn.Bilinear(4, 4, 4))


def hidden(seed: int) -> list[Case]:
    did, both, spared = ("valid", "did"), ("valid", "did", "spared"), ("valid", "spared")
    return [
        *(Case(f"tangle {i}", tangled(seed * 10 + i), both) for i in range(4)),
        *(Case(f"random graph {i}", random_case(seed * 10 + i, 30, mutation=False), spared) for i in range(2)),
        Case("a transformer block", zoo_case("gpt"), did),
        Case("inverted residuals", zoo_case("mobilenetv2"), both),
        Case("a U-Net", zoo_case("unet"), spared),
        Case("an unrolled LSTM", zoo_case("lstm"), spared),
        Case("through tuples", traced(_through_tuples, (2, 4)), both),
        Case("a smaller tensor that spreads", traced(_broadcast, (1, 4), (3, 4)), both),
        Case("an addition that writes", _iadd, both),
        Case("a module called add", traced(_module_called_add, (2, 4)), spared),
        Case("a number on both paths", traced(_added_number, (2, 4)), spared),
        Case("numbers between tensors", traced(_numbers_between, (2, 4), (3, 4)), spared),
    ]


# ---------------------------------------------------------------------------------------------------- answers

ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")


def _adds(node):
    return node.op != "call_module" and node.target in ADDITIONS


def _tensors(node):
    return [a for a in node.all_input_nodes if "tensor_meta" in a.meta]


@right("sets of ancestors as the bits of one int")
def by_bits(gm):
    bits, edges = {}, []
    for i, node in enumerate(gm.graph.nodes):
        reads, own = _tensors(node), 0
        for a in reads:
            own |= bits[a]
        for a in reads:
            last = bits[a].bit_length() - 1  # a node's own bit is its highest
            if _adds(node) and any(bits[c] >> last & 1 for c in reads if c is not a):
                edges.append((a.name, node.name))
        bits[node] = own | 1 << i
    return edges


@right("for each addition, a walk upwards from its other operands that visits every node once")
def by_search(gm):
    edges = set()
    for node in gm.graph.nodes:
        if not _adds(node):
            continue
        for a in _tensors(node):
            todo, visited = [c for c in _tensors(node) if c is not a], set()
            while todo:
                at = todo.pop()
                if at not in visited:
                    visited.add(at)
                    todo += _tensors(at)
            if a in visited:
                edges.add((a.name, node.name))
    return edges


@wrong("spared", "a fork that joins again is enough: an edge between the two is not asked for")
def forks_that_join(gm):
    above, edges = {}, set()
    for node in gm.graph.nodes:
        reads = _tensors(node)
        above[node] = set(reads).union(*(above[a] for a in reads))
        if _adds(node) and len(reads) == 2:
            left, right_ = ({c} | above[c] for c in reads)
            both = [a for a in gm.graph.nodes if a in left & right_]
            edges |= {(both[-1].name, node.name)} if both else set()
    return edges


def _edges(gm, leads):
    """Return the edges a → b into additions where `leads(a, c)` for an operand c of b."""
    additions = [node for node in reversed(gm.graph.nodes) if _adds(node)]
    return {(a.name, b.name) for b in additions for a in _tensors(b) if any(leads(a, c) for c in _tensors(b))}


@wrong("cost", "follows every path: 2**60 of them in a row of diamonds")
def all_paths(gm):
    def leads(a, b):
        return any(c is a or leads(a, c) for c in _tensors(b))

    return _edges(gm, leads)


@wrong("did", "asks for the same shape on both ends of the edge: no operand is broadcast")
def equal_shapes(gm):
    shapes = {node.name: getattr(node.meta.get("tensor_meta"), "shape", None) for node in gm.graph.nodes}
    return {(a, b) for a, b in by_search(gm) if shapes[a] == shapes[b]}


@wrong("spared", "asks for tensors in between, but the edge may start at a number")
def from_numbers(gm):
    above, edges = {}, set()
    for node in gm.graph.nodes:
        reads = node.all_input_nodes
        above[node] = set(reads).union(*(above[a] for a in reads)) if "tensor_meta" in node.meta else set()
        if _adds(node):
            edges |= {(a.name, node.name) for a in reads if any(a in above[c] for c in reads)}
    return edges


any_join = edited("spared", "every join counts: products, concatenations and subtractions too")(
    ("node.target in additions", "True")
)
numbers_too = edited("spared", "follows numbers like tensors: takes x + x.size(0) for a residual")(
    ('[a for a in ... if "tensor_meta" in a.meta]', "[a for a in ...]")
)
doubles = edited("spared", "takes x + x for a residual: both ways are the same edge")(
    ("a in above[c]", "a is c or a in above[c]")
)
operator_only = edited("did", "knows the operator + and no other form of addition")(
    ('{..., operator.iadd, torch.add, "add", "add_"}', "{...}")
)
args_only = edited("did", "looks at args alone: misses operands in keywords and lists")(
    ("... in a.meta", "... in a.meta and any(a is b for b in node.args)")
)
nodes_not_names = edited("valid", "returns nodes instead of their names")(("(a.name, node.name)", "(a, node)"))
short_ways = edited("did", "the longer path may have only one node in between")(("above[c]", "c.all_input_nodes"))
modules_too = edited("spared", "takes a module called add for an addition")(('node.op != "call_module" and ...', "..."))
