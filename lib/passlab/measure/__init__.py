"""Measuring: time, kernel launches, bytes moved, peak memory. What each number means is said where it is made.

    timed({"eager": model, "mine": fused}, x)     # a table: median, spread, minimum, ratio to the first
    launches(model, x)                            # 2 launches on cpu: aten.addmm, aten.relu
    bytes_moved(gm, x)                            # read + written, from shapes
    cost(gm, x)                                   # nodes, launches and bytes at once

Time depends on the machine; the other four do not, and are the ones to assert on. Each IR counts in its own package
(`passlab.fx.measure`, `passlab.tvm.measure`); `clock` times anything, `machine` says what a machine can do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.fx.measure import peak_memory
from passlab.graph import Cost, Graph, Measured, view
from passlab.graph.registry import part
from passlab.measure.clock import Row, Timing, seconds, timed

__all__ = ["Cost", "Measured", "Row", "Timing", "bytes_moved", "cost", "launches", "peak_memory", "seconds", "timed"]


def launches(fn: Callable, *args) -> Measured:
    """How many kernels `fn(*args)` starts.

    On a CPU: ATen operations that write to a tensor's memory (views and `empty` do not), each of which eager torch
    runs as one kernel call, and each call of a `passlab.kernels.Kernel`. On CUDA: kernels the profiler saw run, copies
    and fills not counted. `.detail` has the count by name. `fn` is called once on a CPU, three times on CUDA. Raises
    ValueError for torch.compile on a CPU.

    An IRModule is built by TVM, and the kernels of that are counted: see `passlab.tvm.measure.launches`.
    """
    return part(fn, "measure", "fx").launches(fn, *args)


def bytes_moved(program: Any, *inputs) -> Measured:
    """Bytes that a graph reads and writes, by this model: every node reads each of its operands (weights too) from
    memory once, and writes its result there once; views and bare allocations (`empty`) are free.

    The numbers follow from shapes alone: no cache, no tiling. A torch graph is run once on `inputs` (if none are given:
    `gm.meta["inputs"]`, or zeros of the shapes on the placeholders) to see shapes and which results are views; the
    graph and the inputs stay as they are. An IRModule's kernels follow from its types (`passlab.tvm.measure`). Other
    IRs are counted on `passlab.view`: there compute and memory nodes move bytes. `.detail` has the bytes by node.
    """
    counts = part(program, "measure")
    if counts is not None:
        return counts.bytes_moved(program, *inputs)
    graph = view(program, *inputs)
    moved = {}
    for node in graph.nodes:
        if node.kind in ("compute", "memory"):
            moved[node.id] = sum(_known(graph, id) for id in (node.id, *node.inputs))
    return Measured(sum(moved.values()), "bytes moved", detail=moved)


def _known(graph: Graph, id: str) -> int:
    size = graph.node(id).bytes
    if size is None:
        raise ValueError(f"bytes_moved: the size of node {id!r} is not known. Give example inputs: bytes_moved(g, x).")
    return size


def cost(program: Any, *inputs) -> Cost:
    """Nodes (calls: neither inputs, weights nor output), `launches` and `bytes_moved` of a torch graph or IRModule."""
    return part(program, "measure", "fx").cost(program, *inputs)
