"""Measuring: time, kernel launches, bytes moved, peak memory. Each function's docstring defines its number.

    timed({"eager": model, "mine": fused}, x)     # a table: median, spread, minimum, ratio to the first
    launches(model, x)                            # 2 launches on cpu: aten.addmm, aten.relu
    bytes_moved(gm, x)                            # read + written, from shapes
    cost(gm, x)                                   # nodes, launches and bytes at once

Time depends on the machine; the others do not, and are the ones to assert on. Each IR counts in its own package
(`passlab.fx.measure`, `passlab.tvm.measure`); `clock` times anything, `machine` measures the machine's limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from passlab.fx.measure import peak_memory
from passlab.graph import Cost, Graph, Measured, Node, view
from passlab.graph.registry import part
from passlab.measure.clock import Row, Timing, seconds, timed

__all__ = ["Cost", "Measured", "Row", "Timing", "bytes_moved", "cost", "launches", "peak_memory", "seconds", "timed"]


def launches(fn: Callable, *args) -> Measured:
    """Return the number of kernels that `fn(*args)` starts.

    On a CPU: ATen operations that write to a tensor's memory (views and `empty` do not), each of which eager torch
    runs as one kernel call, and each call of a `passlab.kernels.Kernel`. On CUDA: kernels the profiler saw run, copies
    and fills not counted. `.detail` has the count by name. `fn` is called once on a CPU, three times on CUDA. Raises
    ValueError for torch.compile on a CPU.

    An IRModule is built by TVM, and the kernels of the build are counted: see `passlab.tvm.measure.launches`.
    """
    return part(fn, "measure", "fx").launches(fn, *args)


def bytes_moved(program: Any, *inputs) -> Measured:
    """Return the bytes that a graph reads and writes.

    The model: every node reads each of its operands (weights too) from memory once, and writes its result there once;
    views and bare allocations (`empty`) are free; no cache, no tiling. A torch graph is run once on `inputs` (default:
    `gm.meta["inputs"]`, or zeros of the placeholders' shapes) to see shapes and which results are views; the graph and
    the inputs are not changed. An IRModule's kernels follow from its types (`passlab.tvm.measure`). Other IRs are
    counted on `passlab.view`, where compute and memory nodes move bytes. `.detail` has the bytes by node. Raises
    ValueError for a node of unknown size.
    """
    counts = part(program, "measure")
    if counts is not None:
        return counts.bytes_moved(program, *inputs)
    graph = view(program, *inputs)
    traffic = {}
    for node in graph.nodes:
        if node.kind in ("compute", "memory"):
            traffic[node.id] = sum(_known(graph, id) for id in (node.id, *node.inputs))
    return Measured(sum(traffic.values()), "bytes moved", detail=traffic)


def _known(graph: Graph, id: str) -> int:
    node = graph.node(id)
    if node.bytes is None:
        raise ValueError(f"bytes_moved cannot count node {id!r}: {_why_unknown(node, graph.ir)}")
    return node.bytes


#: IR → where a program states the shape of a value.
_STATED = {"ONNX": "in the value_info, input or output of its GraphProto"}


def _why_unknown(node: Node, ir: str) -> str:
    """Return why the bytes of a value are not known, and what to do about it."""
    tensor = node.dtype is None or re.match(r"bool$|(bf|f|u?i|c)\w*\d", node.dtype)
    if not tensor:
        return (
            f"a value of type {node.dtype} has no fixed size. Count the part of the program that computes with tensors."
        )
    shape = "unknown" if node.shape is None else f"[{', '.join(map(str, node.shape))}]"
    return f"its shape is {shape}. Give it a shape of numbers {_STATED.get(ir, 'in the program')}."


def cost(program: Any, *inputs) -> Cost:
    """Return the cost of a torch graph or IRModule: nodes (its calls), `launches` and `bytes_moved`."""
    return part(program, "measure", "fx").cost(program, *inputs)
