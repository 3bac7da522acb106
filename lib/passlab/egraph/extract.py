"""The cheapest term of a class: by its size as a tree, or with shared parts counted once.

`cheapest` is exact for trees, where a part that is used twice costs twice: each class takes the e-node whose operands
are cheapest, until none changes. With sharing, the best choice of one class depends on what others choose, and the
problem is NP-hard (as set cover is): `cheapest_shared` gives it to OR-Tools' CP-SAT as an integer program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from passlab.egraph.graph import EGraph, Node, Term

#: The cost of applying a label, without its operands.
Cost = Callable[[Hashable], int]


def cheapest(graph: EGraph, number: int, cost: Cost = lambda label: 1) -> tuple[Term, int]:
    """Return the term of a class with the least sum of costs, and that sum; a part counts each time it is used."""
    choice, total = _choices(graph, cost)
    return _terms(graph, choice, [number])[0], total[graph.find(number)]


def cheapest_shared(
    graph: EGraph, numbers: Sequence[int], cost: Cost = lambda label: 1, seconds: float = 10.0
) -> tuple[list[Term], int, bool]:
    """Return terms for classes with the least sum of costs, that sum, and whether it is proved to be the least.

    A part that is used several times, also by several of the terms, counts once. seconds: of the solver; after them,
    the best choice so far counts.
    """
    from ortools.sat.python import cp_model

    roots = [graph.find(number) for number in numbers]
    used = _reached(graph, roots, graph.nodes)
    model = cp_model.CpModel()
    picked = {number: model.new_bool_var("") for number in used}
    level = {number: model.new_int_var(0, len(used), "") for number in used}  # what a term uses is below it
    takes: dict[tuple[int, Node], Any] = {}
    for number in used:
        nodes = list(graph.nodes[number])
        for node in nodes:
            take = takes[number, node] = model.new_bool_var("")
            for operand in {graph.find(n) for n in node[1:]}:
                model.add_implication(take, picked[operand])
                model.add(level[operand] < level[number]).only_enforce_if(take)
        model.add(sum(takes[number, node] for node in nodes) == 1).only_enforce_if(picked[number])
    for root in roots:
        model.add(picked[root] == 1)
    model.minimize(sum(cost(node[0]) * take for (_, node), take in takes.items()))
    start, _ = _choices(graph, cost)
    needed = _reached(graph, roots, {number: (node,) for number, node in start.items()})
    for (number, node), take in takes.items():
        model.add_hint(take, number in needed and start[number] == node)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError(f"No choice was found in {seconds:g} s: allow more, or take cheapest(), which counts trees.")
    choice = {number: node for (number, node), take in takes.items() if solver.value(take)}
    return _terms(graph, choice, roots), round(solver.objective_value), status == cp_model.OPTIMAL


def _reached(graph: EGraph, roots: Sequence[int], nodes: Mapping[int, Iterable[Node]]) -> set[int]:
    """Return classes and those below them, where a class has these e-nodes."""
    reached, todo = set(roots), list(roots)
    while todo:
        below = {graph.find(operand) for node in nodes[todo.pop()] for operand in node[1:]} - reached
        reached |= below
        todo += below
    return reached


def _choices(graph: EGraph, cost: Cost) -> tuple[dict[int, Node], dict[int, int]]:
    """Return the cheapest e-node of each class, and what its tree costs."""
    choice: dict[int, Node] = {}
    total: dict[int, int] = {}
    changes = True
    while changes:
        changes = False
        for number, nodes in graph.nodes.items():
            for node in nodes:
                operands = [total.get(graph.find(operand)) for operand in node[1:]]
                if None in operands:
                    continue
                price = cost(node[0]) + sum(operands)  # type: ignore[arg-type]
                if price < total.get(number, price + 1):
                    choice[number], total[number], changes = node, price, True
    return choice, total


def _terms(graph: EGraph, choice: dict[int, Node], numbers: Sequence[int]) -> list[Term]:
    """Return the terms that a choice of e-nodes makes of classes; a class that is used twice is one object."""
    built: dict[int, Term] = {}
    todo = [graph.find(number) for number in numbers]
    while todo:
        operands = [graph.find(operand) for operand in choice[todo[-1]][1:]]
        waiting = [operand for operand in operands if operand not in built]
        todo += waiting
        if not waiting:
            number = todo.pop()
            built.setdefault(number, (choice[number][0], *(built[operand] for operand in operands)))
    return [built[graph.find(number)] for number in numbers]
