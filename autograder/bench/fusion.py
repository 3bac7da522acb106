"""`make bench`, part fusion: finding groups in large graphs, and the gain of a group as one kernel.

Each half runs in a separate process, since a process can hold only one TVM and the exercise about groups uses Relay's.
Candidates for the chain take turns, and ratios compare least times: other programs can only make a time longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from autograder.bench.course import SIZES, on
from autograder.bench.figures import Figure, apart, at_most, growth, interleave, not_measured, versus

#: CapabilityBasedPartitioner takes quadratic time, so it is measured on a graph of this many nodes.
PARTITIONED = 3_000
ELEMENTS, ROUNDS = 2**24, 9


def fusion(largest: int) -> Iterator[Figure | str]:
    for half in (grouping, chain):
        yield f"{half.__name__}: starting"
        yield from apart(half, largest)


# Grouping


def grouping(largest: int) -> Iterator[Figure | str]:
    """Time the reference answer for groups: growth with the graph, and against torch's own partitioner."""
    from autograder.authoring.answers import reference

    try:
        groups = reference("day04.groups")
    except KeyError as error:
        yield not_measured("grouping", error.args[0])
        return
    times: dict[int, float] = {}
    for n in (n for n in SIZES if n <= largest):
        yield f"grouping {n:,} nodes"
        times[n] = interleave({"groups": on(graph(n), groups)}, 3 if n <= 10_000 else 2)["groups"]
    yield from growth("grouping", times, 1.2)
    yield f"grouping {PARTITIONED:,} nodes, and torch's partitioner"
    gm = graph(PARTITIONED)
    seconds = interleave({"ours": on(gm, groups), "CapabilityBasedPartitioner": on(gm, partitions)}, 2)
    yield versus(f"grouping {PARTITIONED:,} nodes", seconds, "ours", "CapabilityBasedPartitioner", 20)


def graph(nodes: int) -> Any:
    from passlab.fx.generate import random_graph

    return random_graph(0, size=nodes, views=False)


def partitions(gm: Any) -> list:
    """Return torch's partitions of all operations that are not opaque."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    from passlab.fx.patterns import Pattern, pattern

    class Fusible(OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return node.op.startswith("call_") and pattern(node, gm) != Pattern.OPAQUE

    return CapabilityBasedPartitioner(gm, Fusible(), allows_single_node_partition=True).propose_partitions()


# A chain of five


def chain(largest: int, elements: int = ELEMENTS) -> Iterator[Figure | str]:
    """Time mul, add, relu, mul, add as one kernel. Candidates allocate their results, except for "memory given"."""
    import torch

    import passlab
    from passlab.kernels import fused
    from passlab.measure import timed

    def five(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 1.5 + 0.25) * 0.75 + 0.5

    name = f"mul, add, relu, mul, add on {elements / 1e6:.3g} M floats"
    yield f"{name}: building"
    x, memory = torch.randn(elements), torch.empty(elements)
    gm = passlab.trace(five, x)
    one = fused(gm, [[node.name for node in gm.graph.nodes if node.op == "call_function"]])
    (kernel,) = one.children()
    candidates: dict[str, Callable] = {
        "torch eager": gm,
        "one kernel": one,
        "torch.compile": torch.compile(five),
        "a copy": torch.clone,
        "one kernel, memory given": lambda x: kernel(x, out=[memory]),
        "a copy, memory given": lambda x: memory.copy_(x),
    }
    off = float((one(x) - five(x)).abs().max())
    yield at_most(f"{name}: largest difference to torch", off, 1e-6, "")
    yield f"{name}: timing"
    times = timed(candidates, x, repeats=ROUNDS)
    seconds = {candidate: times[candidate].min for candidate in candidates}
    yield versus(name, seconds, "one kernel", "torch eager", 3)
    yield versus(name, seconds, "one kernel", "a copy", 0.7)
    yield versus(name, seconds, "one kernel, memory given", "a copy, memory given", 0.7)
    yield versus(name, seconds, "one kernel", "torch.compile", 0.9)
