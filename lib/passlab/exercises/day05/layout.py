"""Day 5, a layout for each operation: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_a_dict
from passlab.memory.layout import Edge, Layouts, every, tree

LAYOUTS = ("NCHW", "NHWC", "NCHW8c")
#: On a graph, a choice may take this much longer than the fastest; and what rounding may do.
ALLOWED, ROUNDING = 1.1, 1 + 1e-9

Arguments = tuple[dict[str, dict[str, float]], list[tuple[str, str, int]], float, float]


def problem(arguments: Arguments) -> Layouts:
    operations, edges, bandwidth, overhead = arguments
    return Layouts(operations, tuple(Edge(*edge) for edge in edges), bandwidth, overhead)


def on_tree(name: str, build: Callable[[], Arguments]) -> Case:
    return Case(name, build, ("valid", "did"))


def on_graph(name: str, build: Callable[[], Arguments]) -> Case:
    return Case(name, build, ("valid", "cost"))


def drawn(seed: int, count: int, most: int = 1, overhead: float = 2.0) -> Arguments:
    """Return operations that each read up to `most` earlier ones (1: a tree). Times are in µs, bytes per µs 1000.

    Most operations are fastest in a layout of their own, and conversions cost about as much as they gain.
    """
    rng = random.Random(seed)
    operations = {}
    for i in range(count):
        some = rng.sample(LAYOUTS, rng.choice([1, 2, 3, 3, 3]))
        operations[f"op{i}"] = {layout: float(rng.randint(5, 60)) for layout in some}
    edges = []
    for i in range(1, count):
        for j in rng.sample(range(i), min(i, rng.randint(1, most))):
            edges.append((f"op{j}", f"op{i}", rng.randint(0, 12) * 1000))
    return operations, edges, 1000.0, overhead


def chain() -> Arguments:
    costs = {"NCHW": 5.0, "NHWC": 5.0}
    operations = {"conv1": {"NCHW": 40.0, "NHWC": 10.0}, "relu": costs, "conv2": {"NCHW": 40.0, "NHWC": 10.0}}
    operations |= {"flatten": {"NCHW": 1.0}}
    edges = [("conv1", "relu", 4000), ("relu", "conv2", 4000), ("conv2", "flatten", 1000)]
    return operations, edges, 1000.0, 2.0


def cases() -> list[Case]:
    return [
        on_tree("a chain", chain),
        on_tree("one operation", lambda: ({"conv": {"NCHW": 3.0, "NHWC": 2.0}}, [], 1000.0, 0.0)),
        on_tree("a tree of 30", lambda: drawn(1, 30)),
        on_graph("a graph of 6", lambda: drawn(2, 6, 3)),
        on_graph("a graph of 7", lambda: drawn(3, 7, 3)),
    ]


def _invalid(operations: dict, value: Any) -> str:
    def each(name: str, layout: Any) -> str:
        known = isinstance(layout, str) and layout in operations[name]
        return "" if known else f"{name} can run in {', '.join(operations[name])}; you give it {shown(layout)}."

    return why_not_a_dict(value, "a dict from operation to layout", operations, "layout", "an operation", each)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    network = problem(case.build())
    broken = _invalid(network.operations, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    is_tree = case.asks("did")
    best = network.seconds((tree if is_tree else every)(network))
    seconds, limit = network.seconds(value), best * (ROUNDING if is_tree else ALLOWED)
    message = f"Your choice takes {seconds:.6g} µs; there is one that takes {best:.6g} µs."
    yield Finding("did" if is_tree else "cost", seconds <= limit, "" if seconds <= limit else message)
