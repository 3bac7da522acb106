"""Day 1, reading a graph: visible cases and judges of counting, residual edges and levels."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.exercises.cases_day01 import (
    CHAIN,
    LADDER,
    TooMuch,
    chain,
    excess,
    ladder,
    line,
    listed,
    net,
    several,
    traced,
)
from passlab.graph import KINDS, view
from passlab.judge import Case, Finding

# ------------------------------------------------------------------------------------------- counting by kind


def _three_forms() -> nn.Module:
    def forward(self, x):
        x = F.relu(self.linear(x))
        x = x.reshape(2, 2, 3).transpose(1, 2)
        return torch.flatten(x, 1) + self.shift

    return net(forward, linear=nn.Linear(4, 6), shift=nn.Parameter(torch.zeros(6)))


def _storage() -> nn.Module:
    def forward(self, x, y):
        torch._assert(x.shape[0] == 2, "two rows, please")
        z = torch.cat([x, y], 1).clone()
        left, right = z.add_(1).chunk(2, -1)
        return self.act(left).permute(1, 0).contiguous(), right.size(0)

    return net(forward, act=nn.ReLU(inplace=True))


def _misnamed() -> nn.Module:
    def forward(self, clone):
        x = self.reshape(clone)
        x = self.view(x)
        return self.relu(x), self.clone(x.sigmoid())

    return net(forward, reshape=nn.Linear(4, 4), view=nn.Tanh(), relu=nn.Flatten(), clone=nn.ReLU())


def count_cases() -> list[Case]:
    return [
        Case("functions, methods and modules", traced(_three_forms, (2, 4)), ("valid", "did")),
        Case("storage, shapes and an assertion", traced(_storage, (2, 3), (2, 3)), ("valid", "did")),
        Case("names that mislead", traced(_misnamed, (2, 4)), ("valid", "spared")),
    ]


def judge_count(case: Case, value: Any) -> Iterator[Finding]:
    """`did`: every node is counted under its kind. `spared`: no node is counted under a kind that it is not."""
    gm = case.build()[0]
    expected, members = {}, {}
    for kind in KINDS:
        nodes = [node for node in view(gm) if node.kind == kind]
        members[kind] = [node.id for node in nodes]
        expected[kind] = (len(nodes), sum(node.bytes or 0 for node in nodes))
    broken = _no_count(value)
    yield Finding("valid", broken is None, broken or "", before=gm)
    if broken:
        return
    for verdict, place, what in (("did", 0, "nodes"), ("did", 1, "bytes"), ("spared", 0, "nodes")):
        wrong = [kind for kind in KINDS if value[kind][place] != expected[kind][place]]
        more = [kind for kind in wrong if value[kind][place] > expected[kind][place]]
        kind = next(iter(more or wrong), None)
        message = ""
        if kind is not None:
            want, got, names = expected[kind][place], value[kind][place], listed(members[kind], 8) or "none"
            message = f"Of {what} of kind {kind}, expected {want:,}, got {got:,}. The {kind} nodes here: {names}."
        yield Finding(verdict, kind is None, message, before=gm, mark=tuple(members[kind]) if kind else ())


def _no_count(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"Return a dict from kind to (nodes, bytes); this is {_a(value)}."
    for kind in KINDS:
        if kind not in value:
            return f"The kind {kind!r} is missing. All five are there, also those with (0, 0)."
    for kind, pair in value.items():
        if kind not in KINDS:
            return f"{kind!r} is no kind. The kinds are {', '.join(KINDS)}."
        whole = isinstance(pair, tuple | list) and len(pair) == 2
        if not whole or not all(isinstance(n, int) and not isinstance(n, bool) for n in pair):
            return f"The entry of {kind!r} should be two ints, (nodes, bytes); it is {str(pair)[:60]}."
    return None


def _a(value: Any) -> str:
    if value is None:
        return "None: is there a `return` on every way out?"
    return f"of type {type(value).__name__}"


# -------------------------------------------------------------------------------------------- residual edges

#: The forms in which torch.fx shows an addition.
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


def _cost_cases() -> list[Case]:
    return [
        Case(f"{LADDER} diamonds in a row: 2^{LADDER} paths", ladder, ("cost",)),
        Case(f"{CHAIN:,} operations in a row", chain, ("cost",)),
    ]


def residual_cases() -> list[Case]:
    return [
        Case("one residual block", traced(_block, (2, 4)), ("valid", "did")),
        Case("blocks in blocks", traced(_nested, (2, 4)), ("valid", "did")),
        Case("a shortcut with a layer on it", traced(_projection, (2, 4)), ("valid", "spared")),
        Case("look-alikes", traced(_not_residual, (2, 4)), ("valid", "spared")),
        *_cost_cases(),
    ]


def _is_number(node: fx.Node) -> bool:
    return "tensor_meta" not in node.meta


def find_residual(gm: fx.GraphModule) -> set[tuple[str, str]]:
    """The residual edges, from the set of ancestors of each node (as bits) along nodes that carry tensors."""
    bit = {node: 1 << i for i, node in enumerate(gm.graph.nodes)}
    above: dict[fx.Node, int] = {}
    found = set()
    for node in gm.graph.nodes:
        reads = [used for used in node.all_input_nodes if not _is_number(used)]
        above[node] = 0
        for used in reads:
            above[node] |= above[used] | bit[used]
        if node.target in ADDITIONS:
            found |= {(a.name, node.name) for a in reads if any(above[b] & bit[a] for b in reads)}
    return found


def judge_residual(case: Case, value: Any) -> Iterator[Finding]:
    """`did`: every residual edge is found. `spared`: nothing else is. `cost`: both, with limited work."""
    gm = case.build()[0]
    if isinstance(value, TooMuch):
        yield excess(value, gm)
        return
    nodes = {node.name: node for node in gm.graph.nodes}
    pairs, broken = _pairs(value, nodes, "residual_edges returns a set of pairs (name of a, name of b)")
    yield Finding("valid", broken is None, broken or "", before=gm)
    if broken:
        return
    expected = find_residual(gm)
    missed, extra = sorted(expected - pairs), sorted(pairs - expected)
    message = ""
    if missed:
        a, b = missed[0]
        message = (
            f"{a} → {b} is residual and was not found: {b} adds the value of {a} ({line(gm, b)}), and a longer path "
            f"leads from {a} to {b} as well."
        )
    yield Finding("did", not missed, message, before=gm, mark=missed[0] if missed else ())
    message = f"{' → '.join(extra[0])} is not residual: {_why_not(nodes, *extra[0])}" if extra else ""
    yield Finding("spared", not extra, message, before=gm, mark=extra[0] if extra else ())
    if "cost" in case.about:
        yield Finding("cost", not missed and not extra)


def _why_not(nodes: dict[str, fx.Node], a: str, b: str) -> str:
    if nodes[a] not in nodes[b].all_input_nodes:
        return f"there is no edge between them, {b} does not read {a} itself. A fork that joins again is not enough."
    if nodes[b].target not in ADDITIONS:
        return f"{b} is no addition: it calls {getattr(nodes[b].target, '__name__', nodes[b].target)}."
    if _is_number(nodes[a]):
        return f"{a} is a number, not a tensor."
    if len([used for used in nodes[b].all_input_nodes if not _is_number(used)]) == 1:
        return f"{a} is the only tensor that {b} reads, so no longer path of tensors can end there."
    return f"no longer path of tensors leads from {a} to {b}."


def _pairs(value: Any, nodes: dict, wanted: str) -> tuple[set[tuple[str, str]], str | None]:
    """The pairs of names in a value, or the sentence that says why it holds none."""
    if not isinstance(value, set | frozenset | list | tuple):
        return set(), f"{wanted}; this is {_a(value)}."
    pairs = set()
    for entry in value:
        if not isinstance(entry, tuple | list | frozenset | set) or len(entry) != 2:
            return set(), f"{wanted}; it holds {str(entry)[:60]}, which is no pair."
        for name in entry:
            if isinstance(name, fx.Node):
                return set(), f"{wanted}; it holds the node {name} itself. Give its name, {name}.name."
            if not isinstance(name, str) or name not in nodes:
                return set(), f"{wanted}; the graph has no node called {str(name)[:60]!r}."
        pairs.add(tuple(entry))
    return pairs, None


# ---------------------------------------------------------------------------------- depth, levels, parallel nodes


def _branches() -> nn.Module:
    def forward(self, x):
        a = torch.relu(self.first(x))
        b = self.second(x)
        c = torch.cat([a, b], 1)
        return c.sigmoid()

    return net(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 4))


def _operands_everywhere() -> nn.Module:
    def forward(self, x, y):
        a = torch.add(x, other=torch.tanh(y))
        b = x.view(y.size(0), -1)
        unread = torch.cos(a)  # noqa: F841
        return torch.stack([b, a]) * self.scale

    return net(forward, scale=torch.ones(4))


def level_cases() -> list[Case]:
    return [
        Case("two branches", traced(_branches, (2, 4)), ("valid", "did", "spared")),
        Case(
            "operands in lists and keywords", traced(_operands_everywhere, (2, 4), (2, 4)), ("valid", "did", "spared")
        ),
        *_cost_cases(),
    ]


#: Nodes that do no work: values that are there before anything runs, and the end.
IDLE = ("placeholder", "get_attr", "output")


def find_levels(gm: fx.GraphModule) -> tuple[dict[str, int], set[frozenset[str]]]:
    """Name → level for every working node, and the pairs of working nodes of which neither needs the other."""
    level: dict[fx.Node, int] = {}
    above: dict[fx.Node, int] = {}
    workers = [node for node in gm.graph.nodes if node.op not in IDLE]
    pairs = set()
    for i, node in enumerate(workers):
        reads = [used for used in node.all_input_nodes if used in level]
        level[node] = 1 + max((level[used] for used in reads), default=-1)
        above[node] = 1 << i
        for used in reads:
            above[node] |= above[used]
        free = (1 << i) - 1 & ~above[node]
        while free:
            other = free.bit_length() - 1
            pairs.add(frozenset((workers[other].name, node.name)))
            free ^= 1 << other
    return {node.name: depth for node, depth in level.items()}, pairs


def judge_levels(case: Case, value: Any) -> Iterator[Finding]:
    """`did`: depth, levels, every pair. `spared`: no pair where one needs the other. `cost`: both, limited work."""
    gm = case.build()[0]
    if isinstance(value, TooMuch):
        yield excess(value, gm)
        return
    nodes = {node.name: node for node in gm.graph.nodes}
    broken = _no_levels(value, nodes)
    if not broken:
        pairs, broken = _pairs(value["parallel"], nodes, "parallel is a set of pairs of names")
    yield Finding("valid", broken is None, broken or "", before=gm)
    if broken:
        return
    level, expected = find_levels(gm)
    given = {frozenset(pair) for pair in pairs}
    wrong, mark = _wrong_level(value, level, nodes)
    missed, extra = sorted(map(sorted, expected - given)), sorted(map(sorted, given - expected))
    if not wrong and missed:
        a, b = missed[0]
        mark = (a, b)
        wrong = f"{a} and {b} may run in parallel, and the pair is missing: no path leads from one to the other."
        if level[a] != level[b]:
            wrong += f" They need not be on one level (here {level[a]} and {level[b]})."
    yield Finding("did", not wrong, wrong or "", before=gm, mark=mark)
    message = ""
    if extra:
        pair, idle = extra[0], [name for name in extra[0] if nodes[name].op in IDLE]
        message = f"{' and '.join(pair)} cannot be a pair: "
        if idle:
            message += f"{idle[0]} is {nodes[idle[0]].op} and does no work."
        else:
            message += "a node is no pair with itself." if len(pair) == 1 else "a path leads from one to the other."
    yield Finding("spared", not extra, message, before=gm, mark=tuple(extra[0]) if extra else ())
    if "cost" in case.about:
        yield Finding("cost", not wrong and not extra)


def _no_levels(value: Any, nodes: dict) -> str | None:
    if not isinstance(value, dict) or set(value) != {"depth", "levels", "parallel"}:
        got = f"a dict with the keys {listed(map(repr, value)) or '(none)'}" if isinstance(value, dict) else _a(value)
        return f"Return a dict with the keys depth, levels and parallel; this is {got}."
    if not isinstance(value["depth"], int):
        return f"depth is a number of levels; this one is {_a(value['depth'])}."
    if not isinstance(value["levels"], list | tuple):
        return f"levels is a list of lists of names; this one is {_a(value['levels'])}."
    seen = set()
    for number, names in enumerate(value["levels"]):
        if not isinstance(names, list | tuple | set | frozenset):
            return f"Level {number} should be a list of names; it is {_a(names)}."
        for name in names:
            if not isinstance(name, str) or name not in nodes:
                return f"Level {number} holds {str(name)[:60]!r}, which is the name of no node." + (
                    " Give node.name, not the node." if isinstance(name, fx.Node) else ""
                )
            if name in seen:
                return f"Node {name} stands in the levels twice. A node is on one level."
            seen.add(name)
    return None


def _wrong_level(value: dict, level: dict[str, int], nodes: dict) -> tuple[str, tuple[str, ...]]:
    """The first thing wrong with depth and levels, and the node to look at."""
    given = {name: number for number, names in enumerate(value["levels"]) for name in names}
    for name in given:
        if name not in level:
            return f"{name} is {nodes[name].op}: it does no work and stands on no level.", (name,)
    for name, expected in level.items():
        if name not in given:
            return f"{name} stands on no level; it belongs on level {expected}.", (name,)
        if given[name] != expected:
            reads = [f"{used.name} ({level[used.name]})" for used in nodes[name].all_input_nodes if used.name in level]
            why = f"it reads {listed(reads)}" if reads else "it reads only inputs and constants"
            return f"{name} stands on level {given[name]}; expected {expected}: {why}.", (name,)
    if len(value["levels"]) != (depth := 1 + max(level.values(), default=-1)):
        return f"There are {several(len(value['levels']), 'level')}, empty ones included; expected {depth}.", ()
    if value["depth"] != depth:
        return f"depth is {value['depth']}; expected {depth}, the number of levels.", ()
    return "", ()
