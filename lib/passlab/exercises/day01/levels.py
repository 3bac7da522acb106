"""Day 1, depth, levels, and what may run in parallel: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from passlab.exercises.day01._shared import TooMuch, cost_cases, excess, net, traced, why_not_pairs
from passlab.judge import Case, Finding, and_more, there_are
from passlab.judge.forms import excerpt, why_not_a_dict, why_not_names, why_not_of_type


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


def cases() -> list[Case]:
    return [
        Case("two branches", traced(_branches, (2, 4)), ("valid", "did", "spared")),
        Case(
            "operands in lists and keywords", traced(_operands_everywhere, (2, 4), (2, 4)), ("valid", "did", "spared")
        ),
        *cost_cases(),
    ]


#: Nodes that do no work: values that exist before anything runs, and the output.
IDLE = ("placeholder", "get_attr", "output")


def find_levels(gm: fx.GraphModule) -> tuple[dict[str, int], set[frozenset[str]]]:
    """Return name → level for every working node, and the pairs of working nodes that do not depend on each other."""
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


ENTRIES = ("depth", "levels", "parallel")
WANTED = "a dict with the keys depth, levels and parallel"


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `did`: depth, levels, every pair. `spared`: no pair that depends. `cost`: both, with limited work."""
    gm = case.build()[0]
    if isinstance(value, TooMuch):
        yield excess(value, gm)
        return
    nodes = {node.name: node for node in gm.graph.nodes}
    broken = why_not_a_dict(
        value,
        WANTED,
        ENTRIES,
        "entry",
        "an entry",
        lambda key, _: _why_not_an_entry(key, value, nodes),
        label="The key {!r}",
    )
    yield Finding("valid", not broken, broken, before=gm)
    if broken:
        return
    level, expected = find_levels(gm)
    pairs = {frozenset(pair) for pair in value["parallel"]}
    wrong, mark = _wrong_level(value, level, nodes)
    missed, extra = (min(map(sorted, odd), default=None) for odd in (expected - pairs, pairs - expected))
    if not wrong and missed:
        a, b = missed
        mark = (a, b)
        wrong = f"{a} and {b} may run in parallel, because no path leads from one to the other; this pair is missing."
        if level[a] != level[b]:
            wrong += f" They need not be on the same level (here {level[a]} and {level[b]})."
    yield Finding("did", not wrong, wrong or "", before=gm, mark=mark)
    message = ""
    if extra:
        idle = [name for name in extra if nodes[name].op in IDLE]
        message = f"{' and '.join(extra)} cannot be a pair: "
        if idle:
            message += f"{idle[0]} is {nodes[idle[0]].op} and does no work."
        else:
            message += (
                "a node does not form a pair with itself." if len(extra) == 1 else "a path leads from one to the other."
            )
    yield Finding("spared", not extra, message, before=gm, mark=tuple(extra or ()))
    if "cost" in case.about:
        yield Finding("cost", not wrong and not extra)


def _why_not_an_entry(key: str, value: dict, nodes: dict) -> str:
    """Return why an entry of the answer has another form than its text says."""
    entry = value[key]
    if key == "parallel":
        return why_not_pairs(entry, "parallel as a set of pairs of names", nodes, "parallel")
    if key == "depth":
        return "" if isinstance(entry, int) else f"depth must be a number of levels; it is {excerpt(entry)}."
    if reason := why_not_of_type(entry, "levels as a list of lists of names", list, tuple):
        return reason
    named = set()
    for number, names in enumerate(entry):
        if not isinstance(names, list | tuple | set | frozenset):
            return f"Level {number} must be a list of names; it is {excerpt(names)}."
        if reason := why_not_names(names, nodes, f"Level {number}"):
            return reason
        for name in names:
            if name in named:
                return f"Node {name} occurs twice in levels. Each node is on exactly one level."
            named.add(name)
    return ""


def _wrong_level(value: dict, level: dict[str, int], nodes: dict) -> tuple[str, tuple[str, ...]]:
    """Return the first thing that is wrong with depth and levels, and the node to look at."""
    answer = {name: number for number, names in enumerate(value["levels"]) for name in names}
    for name in answer:
        if name not in level:
            return f"{name} is {nodes[name].op}: it does no work and must not be on a level.", (name,)
    for name, expected in level.items():
        if name not in answer:
            return f"{name} is missing; it belongs on level {expected}.", (name,)
        if answer[name] != expected:
            reads = [f"{used.name} ({level[used.name]})" for used in nodes[name].all_input_nodes if used.name in level]
            reason = f"it reads {and_more(reads)}" if reads else "it reads only inputs and constants"
            return f"{name} is on level {answer[name]}; expected {expected}: {reason}.", (name,)
    if len(value["levels"]) != (depth := 1 + max(level.values(), default=-1)):
        return f"{there_are(len(value['levels']), 'level')}, empty ones included; expected {depth}.", ()
    if value["depth"] != depth:
        return f"depth is {value['depth']}; expected {depth}, the number of levels.", ()
    return "", ()
