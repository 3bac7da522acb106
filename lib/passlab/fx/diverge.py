"""Find where two graphs diverge. Both are run node by node on the inputs that showed a difference.

A node of `after` *agrees* when its value equals that of the node of the same name in `before`, or of a later one there
(a folded convolution computes what the batch norm computed); a node with a new name may agree with any. The first node
that does not agree is reported, and the pair of graphs is cut down around it: nodes that agree become inputs. The pair
is run once more to confirm that it differs.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from passlab.equivalence.trials import Trial
from passlab.equivalence.values import Difference, Tolerance, compare, unusual, wide
from passlab.fx.programs import Program, Run, Trace

#: graphs with more nodes than this are not searched
LARGEST = 20_000


class _Matcher:
    """Finds, for values of `after`, the node of `before` with the same value."""

    def __init__(self, before: Trace, tolerance: Tolerance):
        self.before, self.tolerance = before, tolerance
        self.place = {name: i for i, name in enumerate(before.values)}
        self.index: dict[tuple, list[tuple[float, str]]] = {}  # by shape and dtype: sums of the elements, in order
        for name, value in before.values.items():
            if isinstance(value, Tensor) and not unusual(value) and value.numel() > 1:
                self.index.setdefault((value.shape, value.dtype), []).append((_total(value), name))
        for entries in self.index.values():
            entries.sort()

    def partner(self, name: str, value: Any) -> str | None:
        known = self.before.values
        if name in known and not compare(known[name], value, self.tolerance):
            return name
        if not isinstance(value, Tensor) or unusual(value) or value.numel() < 2:
            return None
        entries, total = self.index.get((value.shape, value.dtype), []), _total(value)
        slack = (
            4 * self.tolerance.rtol * _total(wide(value).double().abs()) if self.tolerance.atol is None else math.inf
        )
        first = bisect.bisect_left(entries, (total - slack, ""))
        for sum_, other in entries[first : first + 100]:
            if sum_ > total + slack:
                break
            if self.place[other] < self.place.get(name, 0):
                continue  # an earlier value of `before` is not an agreement
            x, y = wide(known[other]), wide(value)
            if not (self.tolerance.mismatches(x, y) if x.is_floating_point() else x != y).any():
                return other
        return None


def _total(t: Tensor) -> float:
    return float(wide(t).double().nan_to_num(0.0, 0.0, 0.0).sum())


class Match(NamedTuple):
    """The traces of two programs, and for each node of `after` that agrees, its partner in `before`."""

    before: Trace
    after: Trace
    partners: dict[str, str]


def match(before: Program, after: Program, trial: Trial, tolerance: Tolerance, run: Callable[..., Run]) -> Match:
    """Run both programs on a trial, and match their values."""
    b, a = (run(p, trial, traced=True).trace for p in (before, after))
    matcher = _Matcher(b, tolerance)
    return Match(b, a, {n: p for n, value in a.values.items() if (p := matcher.partner(n, value)) is not None})


def divergent_nodes(
    before: Program, after: Program, trial: Trial, tolerance: Tolerance, run: Callable[..., Run]
) -> list[fx.Node]:
    """Return the live operations of `after` whose values no node of `before` computes."""
    _, a, partners = match(before, after, trial, tolerance, run)
    live: set[str] = set()
    for n in a.graph.output_node().all_input_nodes:
        live |= _ancestors(a.graph, n.name)
    ops = (n for n in a.graph.nodes if n.op.startswith("call_") and n.name in live)
    return [n for n in ops if n.name in a.values and n.name not in partners]


@dataclass
class Place:
    """Where two graphs diverge: the node, and the smallest pair of graphs found that still differs."""

    node: str | None = None
    before: fx.GraphModule | None = None
    after: fx.GraphModule | None = None


def locate(
    before: Program,
    after: Program,
    trial: Trial,
    difference: Difference,
    tolerance: Tolerance,
    run: Callable[..., Run],
    differences: Callable[[Program, Trial, Run, Run], list[Difference]],
    native: torch.dtype | None,
) -> Place:
    """Find the first node at which two programs with graphs diverge on a trial, and cut the pair down around it.

    `run(program, trial, traced=...)` runs a program, `differences(program, trial, run, run)` lists the differences
    between two runs. `native`: the float dtype of the programs, for the inputs of the pair.
    """
    b, a, partners = match(before, after, trial, tolerance, run)
    old, new = _ends(b, a, difference, partners)
    region = _unmatched(a.graph, new, partners) if new else []
    early = difference.part == "output" and not region  # `after` returns a correct value, but one from too early
    whole = Place(old if early or new is None else new, before.fn, after.fn)
    if old is None and new is None:
        return whole
    if difference.part == "output" and region:
        whole.node = region[0]
    for cut in (True, False):
        pair = _pair(before, after, b, a, old, new, partners if cut else {}, difference.part)
        if pair is not None:
            left, right, values = pair
            small = replace(trial, args=values)
            if _differ(Program(left), Program(right), small, run, differences):
                left.meta["inputs"] = right.meta["inputs"] = tuple(_in_dtype(v, native) for v in values)
                return Place(whole.node, left, right)
    return whole if _differ(before, after, trial, run, differences) else Place()


def _ends(b: Trace, a: Trace, difference: Difference, partners: dict[str, str]) -> tuple[str | None, str | None]:
    """Return the nodes, one of each graph, at which to cut the pair off."""
    if difference.part == "error":
        return (a.failed if a.failed in b.values else _output(b, 0), a.failed)
    if difference.part == "random":
        for i, (name, state) in enumerate(b.draws):
            if i >= len(a.draws) or not torch.equal(state, a.draws[i][1]):
                return name, (a.draws[i][0] if i < len(a.draws) else None)
        return None, a.draws[len(b.draws)][0] if len(a.draws) > len(b.draws) else None
    if difference.part in ("input", "state") or difference.part.startswith("what is written"):
        removed = next((n for n in b.writes if n not in a.writes), None)
        added = next((n for n in a.writes if n not in b.writes), None)
        return removed, added
    if difference.part != "output":
        return None, None
    last = _output(a, difference.leaf)
    live = _ancestors(a.graph, last)
    for node in a.graph.nodes:
        if node.name in live and node.name in b.values and node.op.startswith("call_") and node.name not in partners:
            return node.name, node.name
    return _output(b, difference.leaf), last


def _output(trace: Trace, leaf: int) -> str | None:
    """Return the name of the node of the `leaf`-th output."""
    arranged = trace.graph.output_node().args[0]
    nodes = pytree.tree_leaves(arranged, is_leaf=lambda x: isinstance(x, fx.Node))
    if len(nodes) == 1 and isinstance(nodes[0], fx.Node):
        return nodes[0].name  # it may itself be a tuple
    return nodes[leaf].name if leaf < len(nodes) and isinstance(nodes[leaf], fx.Node) else None


def _by_name(graph: fx.Graph) -> dict[str, fx.Node]:
    return {n.name: n for n in graph.nodes}


def _ancestors(graph: fx.Graph, name: str | None, stop: Iterable[str] = ()) -> set[str]:
    """Return the node and all it depends on, without going beyond nodes in `stop`."""
    nodes, stop = _by_name(graph), set(stop)
    visited: set[str] = set()
    todo = [name] if name is not None else []
    while todo:
        at = todo.pop()
        if at not in visited:
            visited.add(at)
            if at not in stop:
                todo += [n.name for n in nodes[at].all_input_nodes]
    return visited


def _unmatched(graph: fx.Graph, end: str, partners: dict[str, str]) -> list[str]:
    """Return the nodes between agreeing ones and `end`, in order."""
    region = _ancestors(graph, end, [n for n in partners if n != end])
    return [n.name for n in graph.nodes if n.name in region and n.name not in partners and n.op.startswith("call_")]


class _Pair(NamedTuple):
    """The parts of both graphs that differ, and the values of the inputs that both take."""

    before: fx.GraphModule
    after: fx.GraphModule
    inputs: tuple[Any, ...]


def _pair(
    before: Program,
    after: Program,
    b: Trace,
    a: Trace,
    old: str | None,
    new: str | None,
    partners: dict[str, str],
    part: str,
) -> _Pair | None:
    """Cut both graphs off after `old` and `new`, with agreeing nodes as inputs; None if an input has no value."""
    inputs = {n.name for n in b.graph.find_nodes(op="placeholder")}
    b_nodes, a_nodes = _by_name(b.graph), _by_name(a.graph)
    keep = {"get_attr", "output"}
    agreed = {p for p in partners.values() if b_nodes[p].op not in keep} - ({old} if part != "output" else set())
    links = {n: p for n, p in partners.items() if p in agreed and n != new and a_nodes[n].op not in keep}
    links |= {n.name: n.name for n in a.graph.find_nodes(op="placeholder")}
    b_region = _ancestors(b.graph, old, agreed | inputs)
    a_region = _ancestors(a.graph, new, links)
    used = (b_region & (agreed | inputs)) | {links[n] for n in a_region if n in links}
    if old is None or new is None:  # a node was removed or added: both sides return its operands
        used |= inputs if not used else set()
    order = [n.name for n in b.graph.nodes if n.name in used]
    if any(n not in b.values for n in order):
        return None
    values = tuple(b.values[n] for n in order)
    left = _cut(before.fn, order, {n: n for n in agreed | inputs}, b_region, old, b.values)
    right = _cut(after.fn, order, links, a_region, new, b.values)
    return _Pair(left, right, values)


def _cut(
    gm: fx.GraphModule, inputs: list[str], links: dict[str, str], region: set[str], end: str | None, values: dict
) -> fx.GraphModule:
    """Copy the nodes of `region` up to `end`, with placeholders for `inputs`; `links`: node → the input it becomes."""
    graph, placeholders, copies = fx.Graph(), {}, {}
    named = _by_name(gm.graph)
    for name in inputs:
        placeholders[name] = graph.create_node("placeholder", name, name=name)
        if isinstance(values.get(name), Tensor) and name in named:
            placeholders[name].meta.update({k: v for k, v in named[name].meta.items() if k == "tensor_meta"})
    for node in gm.graph.nodes:
        if node.name not in region:
            continue
        link = links.get(node.name)
        copies[node] = placeholders[link] if link in placeholders else graph.node_copy(node, copies.__getitem__)
        if node.name == end:
            break
    graph.output(copies[named[end]] if end is not None else next(iter(placeholders.values()), None))
    cut = fx.GraphModule(gm, graph)
    cut.training = gm.training
    return cut


def _in_dtype(value: Any, dtype: torch.dtype | None) -> Any:
    """Convert a value recorded in float64 to the dtype of the program's parameters."""
    return value.to(dtype) if dtype is not None and isinstance(value, Tensor) and value.is_floating_point() else value


def _differ(before: Program, after: Program, trial: Trial, run: Callable[..., Run], differences: Callable) -> bool:
    b, a = run(before, trial), run(after, trial)
    return b.error is None and (a.error is not None or bool(differences(before, trial, b, a)))
