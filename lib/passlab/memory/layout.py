"""Choose a layout for each operation, with the least total time of operations and conversions.

    problem = Layouts({"conv": {"NCHW": 3e-3, "NHWC": 1e-3}, "relu": {"NCHW": 1e-4, "NHWC": 1e-4}},
                      (Edge("conv", "relu", nbytes=2**20),), bandwidth=2e10, overhead=1e-6)
    choice = choose(problem)                  # {"conv": "NHWC", "relu": "NHWC"}
    problem.seconds(choice)

Operands and result of an operation have its layout. If the layouts at the two ends of an edge differ, the value is
converted in 2 · bytes / bandwidth + overhead, since every byte is read and written. Each reader converts for itself.

Reading order: `every` (brute force), `tree` (dynamic programming, exact), `reduced` (any graph: a partitioned boolean
quadratic problem, reduced as in B. Scholz, E. Eckstein, "Register allocation for irregular architectures", LCTES 2002),
`choose` (the same, with local search).

`passlab.fx.layout` has two layouts, and costs that forbid or count conversions: a minimum cut is exact for these. With
a third layout, or a time for each, the problem is NP-hard on graphs, and still easy on trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any


@dataclass(frozen=True)
class Edge:
    """A value of `nbytes` bytes, from the operation that computes it to one that reads it."""

    source: str
    target: str
    nbytes: int


@dataclass(frozen=True)
class Layouts:
    """Operation → layout → seconds; edges; bytes per second, and the seconds to start a conversion.

    Raises ValueError for an edge with an unknown operation, and for an operation without a layout.
    """

    operations: Mapping[str, Mapping[str, float]]
    edges: tuple[Edge, ...]
    bandwidth: float
    overhead: float = 0.0

    def __post_init__(self):
        for name, times in self.operations.items():
            if not times:
                raise ValueError(f"{name} has no layout: give it at least one, with its seconds.")
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.operations:
                    names = f"{edge.source} → {edge.target} names {end!r}"
                    raise ValueError(f"The edge {names}, which is not an operation.")
            if edge.source == edge.target:
                raise ValueError(f"{edge.source} reads its own result: an edge joins two operations.")

    @classmethod
    def on(cls, machine: Any, operations: Mapping[str, Mapping[str, float]], edges: tuple[Edge, ...]) -> Layouts:
        """Return the problem with the bandwidth and the overhead of a machine (`passlab.measure.machine`)."""
        return cls(operations, edges, machine.bandwidth, machine.launch)

    def convert(self, nbytes: int) -> float:
        """Return the seconds of a conversion."""
        return 2 * nbytes / self.bandwidth + self.overhead

    def seconds(self, choice: Mapping[str, str]) -> float:
        """Return the time of all operations and conversions. Raises ValueError for an unknown layout."""
        total = 0.0
        for name, times in self.operations.items():
            if choice.get(name) not in times:
                raise ValueError(f"{name} gets {choice.get(name)!r}; its layouts are {', '.join(times)}.")
            total += times[choice[name]]
        return total + sum(self.convert(e.nbytes) for e in self.edges if choice[e.source] != choice[e.target])


def every(problem: Layouts) -> dict[str, str]:
    """Return the best of all choices, of which there are layouts to the power of operations."""
    choices = (dict(zip(problem.operations, row, strict=True)) for row in product(*problem.operations.values()))
    return min(choices, key=problem.seconds)


def _tables(problem: Layouts) -> dict[str, dict[str, dict[tuple[str, str], float]]]:
    """Return operation → neighbour → (own layout, its layout) → seconds of conversion, for both ends of each edge."""
    tables: dict = {name: {} for name in problem.operations}
    for edge in problem.edges:
        for a, b in ((edge.source, edge.target), (edge.target, edge.source)):
            table = tables[a].setdefault(b, {})
            for x, y in product(problem.operations[a], problem.operations[b]):
                table[x, y] = table.get((x, y), 0.0) + (problem.convert(edge.nbytes) if x != y else 0.0)
    return tables


def tree(problem: Layouts) -> dict[str, str]:
    """Return the best choice for a forest. Raises ValueError for a graph with a cycle, in any directions of its edges.

    The best time of a subtree depends only on the layout at its root. So, from the leaves on, each operation's table of
    times adds the best times of its subtrees, and a walk from the root reads off the choices.
    """
    tables, order, parent = _tables(problem), [], {}
    for root in problem.operations:
        stack = [] if root in parent else [(root, "")]
        while stack:
            name, above = stack.pop()
            if name in parent:
                raise ValueError(f"There are two paths to {name}: this is not a tree.")
            parent[name] = above
            order.append(name)
            stack += [(other, name) for other in tables[name] if other != above]
    best = {name: dict(times) for name, times in problem.operations.items()}
    for name in reversed(order):
        if above := parent[name]:
            for x in best[above]:
                best[above][x] += min(best[name][y] + tables[above][name][x, y] for y in best[name])
    choice: dict[str, str] = {}
    for name in order:
        above = parent[name]
        conversion = {y: tables[above][name][choice[above], y] if above else 0.0 for y in best[name]}
        choice[name] = min(best[name], key=lambda y: best[name][y] + conversion[y])
    return choice


def choose(problem: Layouts) -> dict[str, str]:
    """Return a good choice for any graph, and the best one for trees.

    Local search from the choice of `reduced` and from each layout for all operations that have it; the best counts.
    """
    operations = problem.operations.items()
    layouts = sorted({layout for _, times in operations for layout in times})
    uniform = ({n: x if x in t else min(t, key=t.get) for n, t in operations} for x in layouts)
    return min((_local_search(problem, start) for start in (reduced(problem), *uniform)), key=problem.seconds)


def reduced(problem: Layouts) -> dict[str, str]:
    """Return a good choice for any graph; the best one if the reductions for few neighbours suffice, as on trees.

    Operations are removed one by one. With one neighbour (RI) or two (RII), the operation's best cost for each choice
    of the neighbours is added to their costs: that is exact. If all have three neighbours or more (RN), the operation
    with the most gets the layout that is best with each neighbour at its best.
    """
    tables = _tables(problem)
    times = {name: dict(costs) for name, costs in problem.operations.items()}
    removed: list[tuple[str, dict[str, dict]]] = []
    choice: dict[str, str] = {}
    while tables:
        name = min(tables, key=lambda n: len(tables[n]))
        if len(tables[name]) > 2:
            name = max(tables, key=lambda n: len(tables[n]))
            layout = min(times[name], key=lambda x: times[name][x] + _nearby(tables, times, name, x))
            times[name] = {layout: times[name][layout]}  # the only layout from here on
        neighbours = tables.pop(name)
        removed.append((name, neighbours))
        for other in neighbours:
            del tables[other][name]
        if len(neighbours) == 2:
            _join(tables, times[name], neighbours)
        else:
            for other, table in neighbours.items():
                for y in times[other]:
                    times[other][y] += min(times[name][x] + table[x, y] for x in times[name])
    for name, neighbours in reversed(removed):
        costs = _costs(times[name], neighbours, choice)
        choice[name] = min(costs, key=costs.get)
    return choice


def _costs(times: Mapping[str, float], neighbours: Mapping, choice: Mapping[str, str]) -> dict[str, float]:
    """Return layout → seconds of an operation and its conversions, for a choice of its neighbours."""
    return {x: t + sum(table[x, choice[n]] for n, table in neighbours.items()) for x, t in times.items()}


def _local_search(problem: Layouts, choice: dict[str, str]) -> dict[str, str]:
    """Change the layout of single operations as long as that saves time."""
    tables, changed = _tables(problem), True
    while changed:
        changed = False
        for name, times in problem.operations.items():
            costs = _costs(times, tables[name], choice)
            best = min(costs, key=costs.get)
            if costs[best] < costs[choice[name]] * (1 - 1e-12):
                choice[name], changed = best, True
    return choice


def _nearby(tables: Mapping, times: Mapping, name: str, x: str) -> float:
    """Return the least seconds of an operation's neighbours and their conversions, for its layout x."""
    return sum(min(times[other][y] + table[x, y] for y in times[other]) for other, table in tables[name].items())


def _join(tables: dict, costs: Mapping[str, float], neighbours: Mapping[str, dict]) -> None:
    """Add an operation's least cost to the edge between its two neighbours, for each pair of their layouts."""
    (a, to_a), (b, to_b) = neighbours.items()
    for x, y in product({key[1] for key in to_a}, {key[1] for key in to_b}):
        least = min(cost + to_a[z, x] + to_b[z, y] for z, cost in costs.items())
        for source, target, key in ((a, b, (x, y)), (b, a, (y, x))):
            table = tables[source].setdefault(target, {})
            table[key] = table.get(key, 0.0) + least
