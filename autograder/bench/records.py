"""`make bench`, part records: the course's best figures, each beside what has been published.

Memory: MiniMalloc's eleven challenging instances in 1,048,576 bytes. Its paper (M. D. Moffitt, "MiniMalloc: A
Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023) solves all of them, in C++.
CP-SAT is asked the same question on one core, and gets as many seconds of wall time as the search gets of CPU time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from autograder.bench.figures import Figure, at_least, at_most, cpu

SECONDS = 10.0
ALIGNMENT = 64
#: Above the lower bound by no more than this.
CLOSE = 1.02


def records(largest: int) -> Iterator[Figure | str]:
    yield from minimalloc()
    yield from zoo()
    yield from deep(min(largest, 10_000))


def minimalloc() -> Iterator[Figure | str]:
    """CPU time to a plan within the capacity, for each of the eleven instances; and CP-SAT's."""
    from passlab.memory.buffers import MINIMALLOC, SOLVABLE, check, instance
    from passlab.memory.exact import exact
    from passlab.memory.sections import within

    solved = by_solver = 0
    for letter in MINIMALLOC:
        yield f"MiniMalloc's {letter}: searching"
        buffers = instance(letter)
        packing, took = cpu(partial(within, buffers, SOLVABLE, SECONDS), 1)
        if packing.offsets is not None:
            check(buffers, packing.offsets, arena=SOLVABLE)
        solver, solver_took = cpu(partial(exact, buffers, seconds=SECONDS, within=SOLVABLE), 1)
        within_limit = packing.offsets is not None and took <= SECONDS
        solved += within_limit
        by_solver += solver.offsets is not None
        answer = f"{'no plan in' if solver.offsets is None else 'a plan after'} {solver_took:.1f} s"
        yield Figure(
            f"MiniMalloc's {letter}: CPU time to a plan in {SOLVABLE:,} B",
            f"{took:.2f} s" if packing.offsets is not None else f"no plan in {took:.1f} s",
            f"{packing.nodes:,} nodes for {len(buffers)} buffers; CP-SAT: {answer}",
            f"≤ {SECONDS:g} s",
            within_limit,
            took,
        )
    note = f"published: 11 of 11 by MiniMalloc; CP-SAT in this run: {by_solver} of 11"
    yield at_least(f"MiniMalloc: solved within {SECONDS:g} s of CPU time each", solved, 11, " of 11", note)


def zoo() -> Iterator[Figure | str]:
    """Arena over lower bound on the zoo's graphs, forward and training: the worst, by both searches."""
    from passlab.memory.buffers import check, height, lower_bound, rounded
    from passlab.memory.liveness import liveness
    from passlab.memory.search import search
    from passlab.memory.sections import smallest
    from passlab.memory.training import forward, joint
    from passlab.models import ZOO

    ratios, climbed, slowest = [], [], 0.0
    for name, row in ZOO.items():
        for how, trace in (("forward", forward), ("training", joint)):
            yield f"{name}, {how}: planning"
            gm, inputs = trace(row.build(), *row.inputs())
            buffers = rounded(liveness(gm, *inputs), ALIGNMENT)
            least = lower_bound(buffers)
            plan, took = cpu(partial(smallest, buffers, ALIGNMENT, SECONDS), 1)
            check(buffers, plan, ALIGNMENT)
            ratios.append(height(buffers, plan) / least)
            climbed.append(height(buffers, search(buffers, ALIGNMENT, SECONDS)) / least)
            slowest = max(slowest, took)
    note = f"{ratios.count(1)} of {len(ratios)} at the bound, {slowest:.2f} s at most; local search {max(climbed):.4f}"
    yield at_most("zoo's graphs: arena / lower bound, the worst", max(ratios), CLOSE, "", note)


def deep(count: int) -> Iterator[Figure | str]:
    """CPU time and arena over lower bound for deep networks of the zoo in training, with this many buffers."""
    from passlab.memory.buffers import check, height, lower_bound, rounded
    from passlab.memory.liveness import liveness
    from passlab.memory.sections import smallest

    for name, model, example in deep_models(count):
        yield f"{name}: tracing"
        gm, inputs = traced(model, example)
        buffers = rounded(liveness(gm, *inputs), ALIGNMENT)
        plan, took = cpu(partial(smallest, buffers, ALIGNMENT, 2), 1)
        check(buffers, plan, ALIGNMENT)
        what = f"{name}, training, {len(buffers):,} buffers"
        ratio = height(buffers, plan) / lower_bound(buffers)
        yield at_most(f"{what}: CPU time", took, 2, " s", "no published figure")
        yield Figure(f"{what}: arena / lower bound", f"{ratio:.4f}", "", f"≤ {CLOSE}", ratio <= CLOSE, ratio)


def deep_models(count: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, model, input) of networks with about `count` buffers in training."""
    import torch

    from passlab.models import ResNet, bottleneck, vit

    blocks = count // 52  # as counted: a block has 52 buffers, two inputs not included
    yield f"ViT of {blocks} blocks", vit(32, 8, 64, blocks, 4, 10), torch.ones(2, 3, 32, 32)
    stage = count // (4 * 44) + 1
    model = ResNet(bottleneck, (stage,) * 4, 4, 10, 8)
    yield f"ResNet of {4 * stage} blocks", model, torch.ones(2, 3, 64, 64)


def traced(model: Any, inputs: Any) -> tuple[Any, tuple]:
    """Return the graph of forward and backward and its inputs. A deep graph needs a deep stack."""
    import sys

    from passlab.memory.training import joint

    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        return joint(model, inputs)
    finally:
        sys.setrecursionlimit(usual)
