"""Day 14, once more under a budget: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.autodiff import work_of
from passlab.equivalence import equivalent
from passlab.exercises.day14._joint import Joint, copied, drawn, draws, traced
from passlab.fx.cases import seeded
from passlab.fx.judge import why_not_valid
from passlab.fx.values import values_of
from passlab.given.day14.partition import memory
from passlab.judge import Case, Finding

#: The work of what is computed once more may exceed the least by this much.
ALLOWED = 1.1
#: How the name of a node begins that is computed once more.
AGAIN = "again"


def merged(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph with one node in place of equal ones. Those that draw random numbers are never equal."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    first: dict[Any, fx.Node] = {}
    for node in gm.graph.nodes:
        copy = graph.node_copy(node, copies.__getitem__)
        copies[node] = copy if (key := equal_key(copy)) is None else first.setdefault(key, copy)
        if copies[node] is not copy:
            graph.erase_node(copy)
    return fx.GraphModule({}, graph)


def equal_key(node: fx.Node) -> tuple | None:
    """Return what two nodes have in common that compute the same, or None for a node that is like no other."""
    if node.op != "call_function" or draws(node):
        return None
    return node.target, str(node.args), str(node.kwargs), node.name.startswith(AGAIN)


def least_work(gm: fx.GraphModule, outputs: int, budget: int) -> int | None:
    """Return the least work with `budget` saved bytes in a joint graph without equal nodes; None if that is too few."""
    from ortools.sat.python import cp_model

    joint, model = Joint.of(gm, outputs), cp_model.CpModel()
    sizes = dict(place for node in joint.forward if (place := memory(node)))
    saved = {name: model.new_bool_var(name) for name in sizes}
    repeats = {node: model.new_bool_var(f"{AGAIN} {node.name}") for node in joint.forward}

    def available(node: fx.Node) -> Any:
        place = memory(node)
        return repeats[node] + (saved[place[0]] if place else 0)

    for node in joint.forward:
        if node in joint.needed:
            model.add(available(node) >= 1)
        if node.op != "call_function" or draws(node):
            model.add(repeats[node] == 0)
        for operand in node.all_input_nodes:
            model.add(available(operand) >= repeats[node])
    model.add(sum(saved[name] * size for name, size in sizes.items()) <= budget)
    model.minimize(sum(repeats[node] * work_of(node) for node in joint.forward))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return round(solver.objective_value)


def budget_case(
    name: str, build: Callable[[], fx.GraphModule], share: float, outputs: int = 2, about: tuple[str, ...] = ()
) -> Case:
    """Return a case whose budget is between the least bytes (share 0) and those of saving all that is read (1)."""
    graph = cache(build)

    @cache
    def budget() -> int:
        joint = Joint.of(merged(graph()), outputs)
        low, high = joint.least(()), joint.simple()
        return low + int((high - low) * share)

    return Case(name, lambda: (copied(graph()), outputs, budget()), about)


def blocks(x: Tensor, w: Tensor, v: Tensor) -> list[Tensor]:
    h = torch.tanh(F.linear(x, w)).exp()
    return [F.linear(h.sin() * h.cos(), v).sigmoid()]


def twice(x: Tensor, y: Tensor) -> list[Tensor]:
    """The same value is computed in two places."""
    return [torch.exp(x * y).sin() * torch.exp(x * y).cos()]


def masked(x: Tensor, w: Tensor) -> list[Tensor]:
    y = F.linear(x, w).exp()
    return [(y * (torch.rand_like(y) > 0.5)).sin() + y * (torch.rand_like(y) > 0.5)]


def cases() -> list[Case]:
    layers = seeded(lambda: traced(blocks, {"x": (4, 6), "w": (8, 6), "v": (3, 8)}))
    return [
        budget_case("two layers, little memory", layers, 0.2, 1),
        budget_case("two layers, enough memory", layers, 1, 1, ("valid", "same", "spared", "cost")),
        budget_case("an expression in two places", seeded(lambda: traced(twice, {"x": (4, 5), "y": (4, 5)})), 0, 1),
        budget_case("two random masks", seeded(lambda: traced(masked, {"x": (4, 6), "w": (5, 6)})), 0.4, 1),
        budget_case("a drawn graph", drawn(random.Random(1), 6), 0.4),
    ]


def why_not_tagged(gm: fx.GraphModule, outputs: int) -> str:
    """Return why the nodes that are computed once more are not what they should be, or which equal nodes are left."""
    later: set[fx.Node] = set()
    first: dict[tuple, fx.Node] = {}
    results = list(gm.graph.find_nodes(op="output")[0].args[0])
    for node in gm.graph.nodes:
        tagged, operands = node.name.startswith(AGAIN), set(node.all_input_nodes)
        if node.name.startswith("tangent") or operands & later:
            later.add(node)
        if tagged and node in later:
            return f"{node.name} depends on a tangent: only values of the forward graph are computed once more."
        wrong = next((operand for operand in node.all_input_nodes if operand.name.startswith(AGAIN)), None)
        if wrong and node.op == "call_function" and not tagged and node not in later:
            return f"{node.name} belongs to the forward graph and reads {wrong.name}, which runs after it."
        key = equal_key(node)
        if key is not None and (other := first.setdefault(key, node)) is not node:
            return f"{other.name} and {node.name} are equal: one is enough."
    if wrong := next((o for o in results[:outputs] if o.name.startswith(AGAIN)), None):
        return f"The output {wrong.name} is computed after the forward graph."
    return ""


def saved(gm: fx.GraphModule) -> dict[str, int]:
    """Return the memories that are read behind the forward graph, each with its bytes. Nodes have their values."""
    behind: set[fx.Node] = set()
    for node in gm.graph.nodes:
        if node.name.startswith(("tangent", AGAIN)) or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    reads = {operand for node in behind if node.op != "output" for operand in node.all_input_nodes} - behind
    return dict(memory(node) or (node.name, 0) for node in reads)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    gm, outputs, budget = case.build()
    broken = why_not_valid(gm, value)
    values: Any = {}
    if not broken:
        foreign = [n for n in value.graph.nodes if n.op not in ("placeholder", "call_function", "output")]
        broken = f"Node {foreign[0].name} is a {foreign[0].op}: the joint graph has none." if foreign else ""
    if not broken:
        try:
            values = values_of(value, gm.meta["inputs"])
        except ValueError as error:
            broken = f"The graph cannot run: {error}"
    yield Finding("valid", not broken, broken)
    if broken:
        return
    result = equivalent(gm, value, gm.meta["inputs"])
    yield Finding("same", result.ok, "" if result.ok else result.reason)
    wrong = why_not_tagged(value, outputs)
    yield Finding("spared", not wrong, wrong)
    if wrong or not result.ok:
        return
    for node in value.graph.nodes:
        node.meta["val"] = values[node]
    places = saved(value)
    tuples = [name for name, size in places.items() if not size]
    over = f"{tuples[0]} is a tuple, and cannot be saved: save its parts." if tuples else ""
    if sum(places.values()) > budget:
        over = f"You save {sum(places.values()):,} bytes ({', '.join(sorted(places))}); the budget is {budget:,}."
    yield Finding("did", not over, over)
    if over or not case.asks("cost"):
        return
    repeats = [node for node in value.graph.nodes if node.name.startswith(AGAIN)]
    work, least = sum(map(work_of, repeats)), least_work(merged(gm), outputs, budget) or 0
    names = ", ".join(node.name for node in repeats if work_of(node)) or "nothing"
    message = f"What you compute once more ({names}) is {work:,} units of work; {least:,} are enough."
    yield Finding("cost", work <= least * ALLOWED, message)
