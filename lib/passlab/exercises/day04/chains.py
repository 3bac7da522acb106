"""Day 4: the largest groups of element-wise operations with one result. Visible cases, and a judge that builds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passlab.equivalence import equivalent
from passlab.exercises.day04._shared import why_not_a_call
from passlab.fx.cases import graph
from passlab.fx.effects import EFFECTS, effects, written
from passlab.fx.patterns import POINTWISE, pattern
from passlab.judge import Case, Finding, enough, listed, plural
from passlab.judge.forms import why_not_groups
from passlab.kernels import fused


def why_not_grouped(node: fx.Node, memory: set[fx.Node]) -> str | None:
    """Return why a node cannot be in a group, as the end of a sentence that begins with its name, or None."""
    if kinds := sorted(effects(node)):
        return f"has an effect: {EFFECTS[kinds[0]]}"
    if pattern(node) not in POINTWISE:
        return f"is not an element-wise operation; its pattern is {pattern(node).name}"
    touched = [n.name for n in (node, *node.all_input_nodes) if n in memory]
    return f"uses memory that the program writes ({touched[0]})" if touched else None


def largest_groups(gm: fx.GraphModule) -> dict[fx.Node, fx.Node]:
    """Return each element-wise operation and the last one of its group.

    A node may be in a group with its consumers if all of them are in one group. So each is decided after its
    consumers, and the result is unique.
    """
    memory = written(gm.graph)
    last: dict[fx.Node, fx.Node] = {}
    for node in reversed(gm.graph.nodes):
        if why_not_grouped(node, memory) is None:
            readers = {last.get(reader) for reader in node.users}
            one = len(readers) == 1 and None not in readers
            last[node] = readers.pop() if one else node
    return last


def _invalid(gm: fx.GraphModule, value: Any) -> str:
    return why_not_groups(value, "names of nodes", why_not_a_call(gm), types=(list, tuple))


def _same(gm: fx.GraphModule, groups: list[list[str]]) -> Finding:
    """Check that the groups, built as kernels, compute what the graph computes."""
    try:
        after = fused(gm, groups)
    except ValueError as error:
        return Finding("same", False, str(error), before=gm)
    comparison = equivalent(gm, after, gm.meta["inputs"], trials=("given",), aliasing=False)
    return Finding("same", bool(comparison), "" if comparison else comparison.reason, before=gm, after=after)


def _too_far(gm: fx.GraphModule, groups: list[list[str]]) -> tuple[str, str] | None:
    """Return a member that should not be in its group, and the reason as a message, or None."""
    memory = written(gm.graph)
    for group in groups:
        inside = [n for n in gm.graph.nodes if n.name in group]
        for node in inside:
            if reason := why_not_grouped(node, memory):
                return node.name, f"{node.name} is in a group, but it {reason}."
        for node in inside[:-1]:
            elsewhere = [reader for reader in node.users if reader not in inside]
            if elsewhere or not node.users:
                readers = f"is read by {elsewhere[0].name}, outside" if elsewhere else "is unused"
                return node.name, (
                    f"The group of {listed(inside)} has more than one result: {node.name} {readers}, and "
                    f"{inside[-1].name} is its last node."
                )
    return None


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge the groups.

    `valid`: lists of names. `same`: built as kernels, they compute the same. `did`: what one reader alone reads is in
    the reader's group. `spared`: no group goes too far. `cost`: as few kernels as can be.
    """
    [gm] = case.build()
    wrong = _invalid(gm, value)
    yield Finding("valid", not wrong, wrong, before=gm)
    if wrong:
        return
    groups = [list(group) for group in value if len(group) > 1]
    if case.asks("same"):
        yield _same(gm, groups)
    far = _too_far(gm, [list(group) for group in value])
    yield Finding("spared", not far, far[1] if far else "", before=gm, mark=(far[0],) if far else ())
    group_of = {name: at for at, group in enumerate(value) for name in group}
    last = largest_groups(gm)

    def separate(a: fx.Node, b: fx.Node) -> bool:
        return group_of.get(a.name, a) != group_of.get(b.name, b)

    pairs = [(n, r) for n in reversed(last) for r in n.users if last.get(r) is last[n] and separate(n, r)]
    chain = next((pair for pair in pairs if len(pair[0].users) == 1), None)
    sentence = (
        f"{chain[1].name} alone reads {chain[0].name}: they may share a kernel, but you keep them apart."
        if chain
        else ""
    )
    yield Finding("did", not chain, sentence, before=gm, mark=tuple(n.name for n in chain or ()))
    kernels = len({group_of.get(node.name, node) for node in last})
    fewest = len(set(last.values()))
    sentence = ""
    if kernels > fewest and pairs:
        sentence = (
            f"Your groups make {plural(kernels, 'kernel')} of the element-wise operations; {enough(fewest)}. "
            f"{listed(pairs[0])} may share one, since all consumers of {pairs[0][0].name} may be in it."
        )
    yield Finding("cost", kernels <= fewest, sentence, before=gm, mark=tuple(n.name for n in (pairs or [()])[0]))


def chains_case(name: str, build: Callable[[], fx.GraphModule], *about: str, built: bool = True) -> Case:
    """Return a case. `about`: of did, spared and cost those that it decides. `built`: are the kernels built and run?"""
    return Case(name, lambda: (build(),), ("valid", *["same"] * built, *about))


def five(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.relu(x * m.row + m.col) * 0.5 + 1


def inputs(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> fx.Proxy:
    return torch.tanh(torch.maximum(x * y, z)) - y


def rejoins(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(-x)
    return torch.sigmoid(a) * a + torch.where(a > 1, a, x)


def leaves(m: Any, x: fx.Proxy) -> tuple:
    b = torch.relu(x * 2)
    return torch.tanh(b) + 1, b


def softmax(m: Any, x: fx.Proxy) -> fx.Proxy:
    e = torch.exp(x - x.amax(1, keepdim=True))
    return e / e.sum(1, keepdim=True) * 2


def between(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.sigmoid(torch.relu(x + 1) @ m.w * 2)


def noisy(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.exp(F.dropout(torch.relu(x * 2), 0.5, True)) - 1


def overwritten(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(x)
    a = torch.exp(y) * 2 + 1
    y.add_(1)
    return a - y, torch.tanh(a)


def cases() -> list[Case]:
    shape = (3, 5)
    return [
        chains_case("five in a row", graph(five, shape, row=(5,), col=(3, 1)), "did", "cost"),
        chains_case("several inputs", graph(inputs, shape, shape, (5,)), "did", "cost", built=False),
        chains_case("a value that is read twice", graph(rejoins, shape), "did", "cost"),
        chains_case("a value that leaves", graph(leaves, shape), "did", "spared", "cost", built=False),
        chains_case("softmax written out", graph(softmax, shape), "did", "spared", "cost"),
        chains_case("a product in the middle", graph(between, shape, w=(5, 4)), "did", "spared", "cost", built=False),
        chains_case("a dropout", graph(noisy, shape), "did", "spared", built=False),
        chains_case("written in between", graph(overwritten, shape), "did", "spared"),
    ]
