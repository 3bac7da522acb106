"""Day 1, find the residual edges: visible cases and judge."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from passlab.exercises.day01._shared import TooMuch, cost_cases, excess, line, net, traced, why_not_pairs
from passlab.judge import Case, Finding
from passlab.judge.expect import why_not_selective

#: The forms that an addition takes in torch.fx.
ADDITIONS = {operator.add, operator.iadd, torch.add, "add", "add_"}


def _block() -> nn.Module:
    return net(lambda self, x: x + self.linear(torch.relu(x)), linear=nn.Linear(4, 4))


def _projection() -> nn.Module:
    def forward(self, x):
        y = self.deep(torch.relu(self.wide(x)))
        return torch.relu(y + self.shortcut(x))

    return net(forward, wide=nn.Linear(4, 8), deep=nn.Linear(8, 6), shortcut=nn.Linear(4, 6))


def _nested() -> nn.Module:
    def forward(self, x):
        y = torch.add(torch.tanh(x), other=x)
        z = torch.sigmoid(y).add(y)
        return torch.relu(z).mul(3).add_(x)

    return net(forward)


def _not_residual() -> nn.Module:
    def forward(self, x):
        gate = x * torch.sigmoid(x)
        double = gate + gate
        wide = torch.cat([double, torch.tanh(double)], 1)
        spread = wide + self.row.expand(wide.size(0), -1)
        return spread + spread.size(0), torch.sub(spread, spread.cos())

    return net(forward, row=nn.Parameter(torch.ones(1, 8)))


def cases() -> list[Case]:
    return [
        Case("one residual block", traced(_block, (2, 4)), ("valid", "did")),
        Case("blocks in blocks", traced(_nested, (2, 4)), ("valid", "did")),
        Case("a shortcut with a layer on it", traced(_projection, (2, 4)), ("valid", "spared")),
        Case("look-alikes", traced(_not_residual, (2, 4)), ("valid", "spared")),
        *cost_cases(),
    ]


def _is_number(node: fx.Node) -> bool:
    return "tensor_meta" not in node.meta


def _adds(node: fx.Node) -> bool:
    """Return whether a node is an addition; a module may be called `add`, too."""
    return node.op != "call_module" and node.target in ADDITIONS


def find_residual(gm: fx.GraphModule) -> set[tuple[str, str]]:
    """Return the residual edges, from the set of ancestors of each node (as bits) along nodes that carry tensors."""
    bit = {node: 1 << i for i, node in enumerate(gm.graph.nodes)}
    above: dict[fx.Node, int] = {}
    edges = set()
    for node in gm.graph.nodes:
        reads = [used for used in node.all_input_nodes if not _is_number(used)]
        above[node] = 0
        for used in reads:
            above[node] |= above[used] | bit[used]
        if _adds(node):
            edges |= {(a.name, node.name) for a in reads if any(above[b] & bit[a] for b in reads)}
    return edges


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `did`: every residual edge is found. `spared`: nothing else is. `cost`: both, with limited work."""
    gm = case.build()[0]
    if isinstance(value, TooMuch):
        yield excess(value, gm)
        return
    nodes = {node.name: node for node in gm.graph.nodes}
    broken = why_not_pairs(value, "a set of pairs (name of a, name of b)", nodes, "The answer")
    yield Finding("valid", not broken, broken, before=gm)
    if broken:
        return
    expected, pairs = find_residual(gm), {tuple(pair) for pair in value}
    missed, extra = sorted(expected - pairs), sorted(pairs - expected)
    message = ""
    if missed:
        a, b = missed[0]
        message = (
            f"{a} → {b} is residual, but your answer does not contain it: {b} adds the value of {a} ({line(gm, b)}), "
            f"and a longer path leads from {a} to {b} as well."
        )
    others = {(used.name, node.name) for node in gm.graph.nodes for used in node.all_input_nodes} - expected
    message = message or why_not_selective(len(others & pairs), len(others), "edges that are not residual")
    yield Finding("did", not message, message, before=gm, mark=missed[0] if missed else ())
    message = f"{' → '.join(extra[0])} is not residual: {_why_not(nodes, *extra[0])}" if extra else ""
    yield Finding("spared", not extra, message, before=gm, mark=extra[0] if extra else ())
    if "cost" in case.about:
        yield Finding("cost", not missed and not extra)


def _why_not(nodes: dict[str, fx.Node], a: str, b: str) -> str:
    if nodes[a] not in nodes[b].all_input_nodes:
        return f"there is no edge between them; {b} does not read {a} itself. A fork that joins again is not enough."
    if not _adds(nodes[b]):
        noun = "the module " if nodes[b].op == "call_module" else ""
        return f"{b} is not an addition: it calls {noun}{getattr(nodes[b].target, '__name__', nodes[b].target)}."
    if _is_number(nodes[a]):
        return f"{a} is a number, not a tensor."
    if len([used for used in nodes[b].all_input_nodes if not _is_number(used)]) == 1:
        return f"{a} is the only tensor that {b} reads, so no longer path of tensors can end there."
    return f"no longer path of tensors leads from {a} to {b}."
