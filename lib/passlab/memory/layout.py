"""Choose a layout for each operation, so that computing and converting take the least time together.

    problem = Layouts({"conv": {"NCHW": 3e-3, "NHWC": 1e-3}, "relu": {"NCHW": 1e-4, "NHWC": 1e-4}},
                      (Edge("conv", "relu", nbytes=2**20),), bandwidth=2e10, overhead=1e-6)
    choice = choose(problem)                  # {"conv": "NHWC", "relu": "NHWC"}
    problem.seconds(choice)

An operation takes its operands and leaves its result in its own layout. Where the layouts of an edge differ, its value
is converted: 2 · bytes / bandwidth + overhead, since every byte is read and written. Each reader converts for itself.

Reading order: `every` (brute force), `tree` (dynamic programming, exact), `reduced` (any graph: a partitioned boolean
quadratic problem, reduced as in B. Scholz, E. Eckstein, "Register allocation for irregular architectures", LCTES 2002),
`choose` (the same, bettered step by step).

`passlab.fx.layout` has two layouts, and costs that forbid or count conversions: there a minimum cut is exact on every
graph. With a third layout, or a time for each, the problem is NP-hard on graphs, and still easy on trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any


@dataclass(frozen=True)
class Edge:
    """A value of `nbytes` bytes that one operation makes and another reads."""

    source: str
    target: str
    nbytes: int


@dataclass(frozen=True)
class Layouts:
    """Operation → layout → seconds that it takes in it; edges; bytes per second, and the seconds to start a conversion.

    Raises ValueError for an edge whose operation does not exist, and for an operation without a layout.
    """

    operations: Mapping[str, Mapping[str, float]]
    edges: tuple[Edge, ...]
    bandwidth: float
    overhead: float = 0.0

    def __post_init__(self):
        for name, times in self.operations.items():
            if not times:
                raise ValueError(f"{name} can run in no layout: give it at least one, with its seconds.")
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.operations:
                    raise ValueError(f"The edge {edge.source} → {edge.target} names {end!r}, which is no operation.")
            if edge.source == edge.target:
                raise ValueError(f"{edge.source} reads its own result: an edge joins two operations.")

    @classmethod
    def on(cls, machine: Any, operations: Mapping[str, Mapping[str, float]], edges: tuple[Edge, ...]) -> Layouts:
        """Return the problem with the numbers of a machine (`passlab.measure.machine`)."""
        return cls(operations, edges, machine.bandwidth, machine.launch)

    def convert(self, nbytes: int) -> float:
        """Return the seconds of a conversion."""
        return 2 * nbytes / self.bandwidth + self.overhead

    def seconds(self, choice: Mapping[str, str]) -> float:
        """Return the time of all operations and conversions. Raises ValueError for a choice that does not fit."""
        total = 0.0
        for name, times in self.operations.items():
            if choice.get(name) not in times:
                raise ValueError(f"{name} gets {choice.get(name)!r}; its layouts are {', '.join(times)}.")
            total += times[choice[name]]
        return total + sum(self.convert(e.nbytes) for e in self.edges if choice[e.source] != choice[e.target])


def every(problem: Layouts) -> dict[str, str]:
    """Return the best choice of all, by trying each: layouts to the power of operations."""
    choices = (dict(zip(problem.operations, found, strict=True)) for found in product(*problem.operations.values()))
    return min(choices, key=problem.seconds)


def _tables(problem: Layouts) -> dict[str, dict[str, dict[tuple[str, str], float]]]:
    """Return operation → neighbour → (own layout, its layout) → seconds of conversion, for both ends of each edge."""
    found: dict = {name: {} for name in problem.operations}
    for edge in problem.edges:
        for a, b in ((edge.source, edge.target), (edge.target, edge.source)):
            table = found[a].setdefault(b, {})
            for x, y in product(problem.operations[a], problem.operations[b]):
                table[x, y] = table.get((x, y), 0.0) + (problem.convert(edge.nbytes) if x != y else 0.0)
    return found


def tree(problem: Layouts) -> dict[str, str]:
    """Return the best choice for a tree, or several (ValueError for a graph with a cycle, whichever way its edges go).

    The best time of a subtree depends on the layout at its root only. So each operation's table of times takes up the
    best of what hangs below it, from the leaves on, and the choices are read off on the way back.
    """
    tables, order, parent = _tables(problem), [], {}
    for root in problem.operations:
        todo = [] if root in parent else [(root, "")]
        while todo:
            name, above = todo.pop()
            if name in parent:
                raise ValueError(f"There are two ways to {name}: this is not a tree.")
            parent[name] = above
            order.append(name)
            todo += [(other, name) for other in tables[name] if other != above]
    best = {name: dict(times) for name, times in problem.operations.items()}
    for name in reversed(order):
        if above := parent[name]:
            for x in best[above]:
                best[above][x] += min(best[name][y] + tables[above][name][x, y] for y in best[name])
    choice: dict[str, str] = {}
    for name in order:
        above = parent[name]
        into = {y: tables[above][name][choice[above], y] if above else 0.0 for y in best[name]}
        choice[name] = min(best[name], key=lambda y: best[name][y] + into[y])
    return choice


def choose(problem: Layouts) -> dict[str, str]:
    """Return a good choice for any graph, and the best one for trees.

    That of `reduced`, and one layout for all that can have it, are bettered one operation at a time; the best counts.
    """
    same = ({n: x if x in t else min(t, key=t.get) for n, t in problem.operations.items()} for x in _layouts(problem))
    return min((_settled(problem, start) for start in (reduced(problem), *same)), key=problem.seconds)


def reduced(problem: Layouts) -> dict[str, str]:
    """Return a good choice for any graph; the best one if the reductions for few neighbours suffice, as on trees.

    Operations are taken out one by one. With one neighbour (RI) or two (RII), what is best for the operation is known
    for each choice of theirs, and added to their costs: that is exact. If all have three or more (RN), the one with the
    most is given the layout that is best with its neighbours at their best.
    """
    tables = _tables(problem)
    times = {name: dict(costs) for name, costs in problem.operations.items()}
    taken: list[tuple[str, dict[str, dict]]] = []
    choice: dict[str, str] = {}
    while tables:
        name = min(tables, key=lambda n: len(tables[n]))
        if len(tables[name]) > 2:
            name = max(tables, key=lambda n: len(tables[n]))
            layout = min(times[name], key=lambda x: times[name][x] + _nearby(tables, times, name, x))
            times[name] = {layout: times[name][layout]}  # the others are out; what it costs its neighbours follows
        around = tables.pop(name)
        taken.append((name, around))
        for other in around:
            del tables[other][name]
        if len(around) == 2:
            _join(tables, times[name], around)
        else:
            for other, table in around.items():
                for y in times[other]:
                    times[other][y] += min(times[name][x] + table[x, y] for x in times[name])
    for name, around in reversed(taken):
        costs = {x: cost + sum(table[x, choice[n]] for n, table in around.items()) for x, cost in times[name].items()}
        choice[name] = min(costs, key=costs.get)
    return choice


def _layouts(problem: Layouts) -> list[str]:
    return sorted({layout for times in problem.operations.values() for layout in times})


def _settled(problem: Layouts, choice: dict[str, str]) -> dict[str, str]:
    """Change the layout of single operations as long as that saves time."""
    tables, changed = _tables(problem), True
    while changed:
        changed = False
        for name, times in problem.operations.items():
            costs = {x: t + sum(c[x, choice[n]] for n, c in tables[name].items()) for x, t in times.items()}
            best = min(costs, key=costs.get)
            if costs[best] < costs[choice[name]] * (1 - 1e-12):
                choice[name], changed = best, True
    return choice


def _nearby(tables: Mapping, times: Mapping, name: str, x: str) -> float:
    """Return the least seconds of the neighbours of an operation and of conversions, with the operation in layout x."""
    return sum(min(times[other][y] + table[x, y] for y in times[other]) for other, table in tables[name].items())


def _join(tables: dict, costs: Mapping[str, float], around: Mapping[str, dict]) -> None:
    """Add to the edge between two neighbours what an operation costs at its best, for each pair of their layouts."""
    (a, to_a), (b, to_b) = around.items()
    for x, y in product({key[1] for key in to_a}, {key[1] for key in to_b}):
        least = min(cost + to_a[z, x] + to_b[z, y] for z, cost in costs.items())
        for one, other, key in ((a, b, (x, y)), (b, a, (y, x))):
            table = tables[one].setdefault(other, {})
            table[key] = table.get(key, 0.0) + least
