"""Day 16, the cheapest term: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_of_type

#: Class → its e-nodes: each a label, then the classes of its operands.
Classes = dict[int, list[tuple]]
#: Class → the e-node that is taken for it.
Choice = Mapping[int, tuple]


class Graph(NamedTuple):
    """An e-graph as data, what is wanted of it, and what each label costs."""

    classes: Classes
    roots: list[int]
    cost: dict[str, int]
    shared: bool = False

    def build(self) -> tuple[Classes, list[int], dict[str, int], bool]:
        """Return new arguments for an answer."""
        classes = {number: list(nodes) for number, nodes in self.classes.items()}
        return classes, list(self.roots), dict(self.cost), self.shared


def extract_case(name: str, graph: Graph) -> Case:
    """Return a case of trees, which decides `did`, or one with shared parts, which decides `cost`."""
    return Case(name, graph.build, ("valid", "cost" if graph.shared else "did"))


def drawn(rng: random.Random, count: int, shared: bool = False, roots: int = 1) -> Graph:
    """Return an e-graph with `count` classes, from each of which a term can be made, in any order and with loops."""
    names = rng.sample(range(2 * count), count)
    cost = {f"f{k}": rng.choice([0, 1, 1, 2, 3, 4, 7]) for k in range(6)} | {
        f"c{k}": rng.randint(1, 4) for k in range(4)
    }
    classes: Classes = {}
    for at, name in enumerate(names):
        below, near = names[:at], names[max(0, at - 4) : at]
        nodes = [(f"f{rng.randrange(6)}", *rng.choices(near, k=rng.choice([1, 2, 2, 2])))] if near else []
        nodes += [(f"f{rng.randrange(6)}", *rng.choices(below, k=2)) for _ in range(rng.randint(0, 2)) if below]
        nodes += [(f"f{rng.randrange(6)}", rng.choice(names)) for _ in range(rng.randint(0, 1))]  # perhaps a loop
        if at < 3:
            nodes.append((f"c{rng.randrange(4)}",))
        rng.shuffle(nodes)
        classes[name] = list(dict.fromkeys(nodes))
    order = rng.sample(names, count)
    return Graph({name: classes[name] for name in order}, rng.sample(names[-roots - 1 :], roots), cost, shared)


def cases() -> list[Case]:
    product: Classes = {1: [("mul", 2, 3), ("add", 2, 2)], 2: [("x",)], 3: [("2",)]}
    cost = {"x": 1, "2": 1, "mul": 4, "add": 2}
    dear: Classes = {1: [("mul", 2, 3), ("add", 2, 2)], 2: [("exp", 4)], 3: [("2",)], 4: [("x",)]}
    loop: Classes = {
        0: [("x",), ("add", 0, 2)],
        1: [("add", 1, 2), ("mul", 1, 3), ("neg", 0)],
        2: [("0",)],
        3: [("1",)],
    }
    free = dict.fromkeys(["x", "add", "mul", "neg", "0", "1"], 0)
    apart: Classes = {
        0: [("add", 1, 2)],
        1: [("f", 3), ("g", 4)],
        2: [("h", 5), ("k", 4)],
        3: [("x",)],
        4: [("e", 3)],
        5: [("y",)],
    }
    prices = {"add": 1, "f": 4, "g": 1, "h": 4, "k": 1, "e": 4, "x": 1, "y": 1}
    return [
        extract_case("x · 2 or x + x", Graph(product, [1], cost)),
        extract_case("exp x is used twice", Graph(dear, [1], cost | {"exp": 8})),
        extract_case("exp x is shared", Graph(dear, [1], cost | {"exp": 8}, True)),
        extract_case("loops without a cost", Graph(loop, [1], free)),
        extract_case("loops, shared by two roots", Graph(loop, [0, 1], free | {"x": 1, "neg": 1}, True)),
        extract_case("two parts, each dearer alone", Graph(apart, [0], prices, True)),
    ]


# ------------------------------------------------------------------------------------------------------ what is right


def cheapest(graph: Graph) -> tuple[dict[int, tuple], dict[int, int]]:
    """Return the e-node of each class whose tree is cheapest, and what that costs."""
    choice: dict[int, tuple] = {}
    total: dict[int, int] = {}
    changes = True
    while changes:
        changes = False
        for number, nodes in graph.classes.items():
            for node in nodes:
                if all(operand in total for operand in node[1:]):
                    price = graph.cost[node[0]] + sum(total[operand] for operand in node[1:])
                    if price < total.get(number, price + 1):
                        choice[number], total[number], changes = node, price, True
    return choice, total


def cheapest_shared(graph: Graph) -> dict[int, tuple]:
    """Return the choice whose e-nodes, each counted once, cost least: an integer program, solved to its end."""
    model = cp_model.CpModel()
    used = {number: model.new_bool_var("") for number in graph.classes}
    level = {number: model.new_int_var(0, len(used), "") for number in used}  # operands are below what uses them
    takes: dict[tuple[int, tuple], Any] = {}
    for number, nodes in graph.classes.items():
        for node in nodes:
            take = takes[number, node] = model.new_bool_var("")
            for operand in set(node[1:]):
                model.add_implication(take, used[operand])
                model.add(level[operand] < level[number]).only_enforce_if(take)
        model.add(sum(takes[number, node] for node in nodes) == used[number])
    for root in graph.roots:
        model.add(used[root] == 1)
    model.minimize(sum(graph.cost[node[0]] * take for (_, node), take in takes.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        raise ValueError("From some root no term can be made.")
    return {number: node for (number, node), take in takes.items() if solver.value(take)}


def reached(choice: Choice, roots: Sequence[int]) -> list[int]:
    """Return the classes that a choice uses, operands first."""
    order: dict[int, None] = {}
    todo = [(root, False) for root in reversed(roots)]
    while todo:
        number, ready = todo.pop()
        if ready:
            order.setdefault(number)
        elif number not in order:
            todo += [(number, True), *((operand, False) for operand in choice[number][1:] if operand not in order)]
    return list(order)


def price(graph: Graph, choice: Choice) -> int:
    """Return what a choice costs."""
    order = reached(choice, graph.roots)
    if graph.shared:
        return sum(graph.cost[choice[number][0]] for number in order)
    total: dict[int, int] = {}
    for number in order:
        label, *operands = choice[number]
        total[number] = graph.cost[label] + sum(total[operand] for operand in operands)
    return sum(total[root] for root in graph.roots)


# --------------------------------------------------------------------------------------------------------------- judge


def why_not_a_choice(value: Any, graph: Graph) -> str:
    """Return why a value does not choose an e-node for all that is used, or leads back to a class, or ""."""
    if fault := why_not_of_type(value, "a dict from class to e-node", dict):
        return fault
    path: list[int] = []  # from a root to where we are
    finished: set[int] = set()
    todo: list[tuple[int, str]] = [(root, "it is a root") for root in reversed(graph.roots)]
    while todo:
        number, reason = todo[-1]
        if number in finished:
            todo.pop()
        elif path and path[-1] == number and reason == "":
            finished.add(path.pop())
            todo.pop()
        elif number in path:
            loop = " → ".join(map(str, [*path[path.index(number) :], number]))
            return f"The choice leads back to class {number}: {loop}. That makes no term."
        else:
            if number not in value:
                return f"Class {number} has no e-node, and {reason}."
            if not _is_one_of(value[number], graph.classes[number]):
                return f"{shown(value[number])} is not an e-node of class {number}, and {reason}."
            todo[-1] = (number, "")
            path.append(number)
            node = tuple(value[number])
            todo += [(operand, f"it is an operand of {node} in class {number}") for operand in node[1:]]
    return ""


def _is_one_of(node: Any, nodes: Sequence[tuple]) -> bool:
    plain = isinstance(node, list | tuple) and all(type(part) in (int, str) for part in node)
    return plain and tuple(node) in nodes


def dearer(graph: Graph, choice: Choice) -> str:
    """Return by how much a choice is dearer than the best one, and where, or ""."""
    best = cheapest_shared(graph) if graph.shared else cheapest(graph)[0]
    own, least = price(graph, choice), price(graph, best)
    if own <= least:
        return ""
    kind = "with shared parts counted once" if graph.shared else "as trees"
    text = f"Your choice costs {own:,} {kind}; {least:,} is possible"
    common = [number for number in reached(choice, graph.roots) if number in best]
    other = next((number for number in common if tuple(choice[number]) != tuple(best[number])), None)
    if other is None:
        return f"{text}."
    return f"{text}, for instance with {best[other]} for class {other}, where you take {tuple(choice[other])}."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    graph = Graph(*case.build())
    broken = why_not_a_choice(value, graph)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    reason = dearer(graph, {number: tuple(value[number]) for number in reached(value, graph.roots)})
    yield Finding("cost" if graph.shared else "did", not reason, reason)
