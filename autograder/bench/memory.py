"""`make bench`, part memory: arenas over the lower bound, on the zoo and on MiniMalloc's instances, with peers.

A ratio of 1 cannot be bettered. CP-SAT gets as many seconds of wall time as the search gets of CPU time, and is only
asked whether the bound can be reached.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from autograder.bench.figures import Figure, apart, at_most, cpu, growth, not_measured

SECONDS = 10.0
ALIGNMENT = 64


def memory(largest: int) -> Iterator[Figure | str]:
    yield from models()
    yield from minimalloc()
    yield from first_fit_growth(min(largest, 10_000))
    yield from planning(min(largest, 10_000))
    for flavour in ("relax", "relay"):
        yield from apart(peers, flavour)


def models() -> Iterator[Figure | str]:
    """Arena over bound for each model of the zoo, forward and training, and TensorFlow Lite's rule beside it; and
    whether the graph returns the same bits when it runs in an arena."""
    from passlab.memory.allocate import first_fit
    from passlab.memory.arena import bit_equal, run
    from passlab.memory.buffers import height, lower_bound, rounded
    from passlab.memory.liveness import liveness
    from passlab.memory.plan import planned
    from passlab.memory.search import search
    from passlab.memory.training import forward, joint
    from passlab.models import ZOO

    equal = []
    for name, row in ZOO.items():
        for kind, trace in (("forward", forward), ("training", joint)):
            yield f"{name}, {kind}: planning"
            gm, inputs = trace(row.build(), *row.inputs())
            buffers = rounded(liveness(gm, *inputs), ALIGNMENT)
            least = lower_bound(buffers)
            own = height(buffers, search(buffers, ALIGNMENT, seconds=SECONDS)) / least
            by_size = height(buffers, first_fit(buffers, alignment=ALIGNMENT)) / least
            base = f"largest first {by_size:.3f}; bound {least:,} B"
            yield at_most(f"{name}, {kind}: arena / lower bound", own, 1.02, "", base)
            equal.append(bit_equal(run(gm, planned(gm, *inputs), *inputs), gm(*inputs)))
    share = f"{sum(equal)} of {len(equal)}"
    yield Figure("zoo programs bit-equal in an arena", share, target="all", held=all(equal), value=sum(equal))


def minimalloc() -> Iterator[Figure | str]:
    """Arena over bound, by the search and by CP-SAT, for each of the eleven instances."""
    from passlab.memory.allocate import ORDERS, first_fit
    from passlab.memory.buffers import MINIMALLOC, SOLVABLE, height, instance, lower_bound
    from passlab.memory.exact import exact
    from passlab.memory.search import search

    ratios, solved, by_solver = [], 0, 0
    for letter in MINIMALLOC:
        yield f"MiniMalloc's {letter}: searching"
        buffers = instance(letter)
        least = lower_bound(buffers)
        arena, took = cpu(lambda buffers=buffers: height(buffers, search(buffers, seconds=SECONDS)), 1)
        fits = exact(buffers, seconds=SECONDS, within=least)
        greedy = min(height(buffers, first_fit(buffers, key)) for key in ORDERS.values())
        ratios.append(arena / least)
        solved += arena <= SOLVABLE
        by_solver += fits.arena is not None and fits.arena <= SOLVABLE
        base = f"{took:.1f} s; best of four orders {greedy / least:.3f}; CP-SAT, asked for the bound: {fits.status}"
        yield at_most(f"MiniMalloc's {letter}: arena / lower bound", arena / least, 1.15, "", base)
    yield at_most("MiniMalloc: mean of arena / lower bound", sum(ratios) / len(ratios), 1.10, "")
    yield Figure("MiniMalloc: solved in 1,048,576 B", f"{solved} of 11", f"CP-SAT {by_solver} of 11", value=solved)


def first_fit_growth(largest: int) -> Iterator[Figure | str]:
    """CPU time of first fit by size, on buffers that live for a few steps, as in a deep network."""
    from passlab.memory.allocate import first_fit
    from passlab.memory.buffers import Buffer

    times: dict[int, float] = {}
    for count in (largest // 8, largest // 4, largest // 2, largest):
        rng = random.Random(count)
        buffers = []
        for i in range(count):
            lasts = rng.choice((2, 2, 2, 3, 5, 40))
            buffers.append(Buffer(f"b{i}", i, i + lasts, rng.randrange(1, 1 << 20)))
        times[count] = cpu(lambda buffers=buffers: first_fit(buffers)).seconds
    yield at_most(f"first fit, {largest:,} buffers: CPU time", times[largest], 2, " s")
    yield from growth("first fit", times, 1.3)


def planning(largest: int) -> Iterator[Figure | str]:
    """CPU time of all that planning does: storages, live ranges, offsets by first fit, and the check of the plan."""
    import torch

    from passlab.memory.allocate import first_fit
    from passlab.memory.buffers import check
    from passlab.memory.liveness import check_order, ranges
    from passlab.memory.storages import storages

    def plan(gm: torch.fx.GraphModule) -> None:
        order = [node.name for node in gm.graph.nodes]
        check_order(gm, order)
        buffers = ranges(storages(gm, torch.ones(8)), gm, order)
        check(buffers, first_fit(buffers, alignment=ALIGNMENT), ALIGNMENT)

    for kind, reach in (("a chain", 1), ("a random graph", None)):
        yield f"planning {kind}"
        times = {}
        for count in (largest // 8, largest // 4, largest // 2, largest):
            gm = additions(count, reach)
            times[count] = cpu(lambda gm=gm: plan(gm)).seconds
        yield at_most(f"planning {kind} of {largest:,} buffers, all of it: CPU time", times[largest], 2, " s")
        yield from growth(f"planning {kind}, all of it", times, 1.3)


def additions(count: int, reach: int | None = None) -> Any:
    """Return a graph of additions: each of the value before it and one of the last `reach` values (None: of all)."""
    import torch

    rng, graph = random.Random(count), torch.fx.Graph()
    nodes = [graph.placeholder("x")]
    for i in range(count):
        other = nodes[rng.randrange(max(0, i + 1 - reach) if reach else 0, i + 1)]
        nodes.append(graph.call_function(torch.add, (nodes[-1], other)))
    graph.output(nodes[-1])
    return torch.fx.GraphModule({}, graph)


def peers(flavour: str) -> Iterator[Figure | str]:
    """Compare what TVM's planners allocate for the zoo's forward graphs, not fused, with our plans."""
    import torch

    from passlab.memory.buffers import height
    from passlab.memory.liveness import liveness
    from passlab.memory.search import search
    from passlab.models import ZOO
    from passlab.tvm import importers
    from passlab.tvm.measure import allocations

    importer = getattr(importers, f"{flavour}_module")
    planner = {"relax": "StaticPlanBlockMemory", "relay": "GraphPlanMemory"}[flavour]
    for name, row in ZOO.items():
        title = f"{name}, forward: bytes by TVM's {planner}"
        try:
            plan = allocations(importer(row.build(), *row.inputs()), planned=True)
        except Exception as error:
            yield not_measured(title, str(error).strip().splitlines()[0][:120])
            continue
        buffers = liveness(torch.fx.symbolic_trace(row.build()), *row.inputs())
        own = height(buffers, search(buffers, ALIGNMENT, seconds=2))
        ratio = f"{plan.bytes / own:.2f} times ours, {own:,} B"
        yield Figure(title, f"{plan.bytes:,} B", ratio, value=plan.bytes / own)
