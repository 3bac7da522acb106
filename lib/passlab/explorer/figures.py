"""What a program costs: nodes, launches, bytes moved and peak memory."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import fx

from passlab.explorer.programs import Program
from passlab.graph import Graph
from passlab.graph.registry import ir, load
from passlab.measure import cost, peak_memory
from passlab.process.error_text import reason


class Figures(NamedTuple):
    """The cost of a program; None for what cannot be counted. bytes and peak are in bytes."""

    nodes: int | None = None
    launches: int | None = None
    bytes: int | None = None
    peak: int | None = None


def figures(program: Program, inputs: tuple) -> Figures:
    """Return the cost of a program, counted as by `passlab.cost` and `passlab.peak_memory`.

    The kernels of a module of TVM are those of the module as it is, not of its build. For all but torch.fx, the peak
    follows from the values of `main` in their order, each alive from its node to its last user.
    """
    value, graph = program.value, program.graph
    nodes = sum(node.kind != "data" for node in graph)
    try:
        if isinstance(value, fx.GraphModule):
            if program.error:
                return Figures(nodes)
            c = cost(value, *inputs)
            return Figures(c.nodes, c.launches, c.bytes, _peak(value, inputs))
        if getattr(ir(value), "package", "") == "tvm":
            measure = load("tvm.measure")
            launches, moved = len(list(measure.kernels_of(value))), int(measure.bytes_moved(value))
            return Figures(load("tvm.modules").counts(value).total(), launches, moved, _live(graph))
        c = cost(value, *inputs)
        return Figures(c.nodes, c.launches, c.bytes, _live(graph))
    except Exception:  # a broken graph, a symbolic shape, an IR that is not counted: the view still has its nodes
        return Figures(nodes)


def _peak(gm: fx.GraphModule, inputs: tuple) -> int | None:
    values = inputs or gm.meta.get("inputs")
    if not values:
        return None
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return int(peak_memory(copy.deepcopy(gm), *copy.deepcopy(values)))


def _live(graph: Graph) -> int | None:
    """Return the most bytes of values that are alive at once, without those of inputs and weights."""
    computed = [node for node in graph if node.kind != "data"]
    if any(node.bytes is None for node in computed):
        return None
    left = {node.id: len(graph.consumers(node.id)) for node in computed}
    sizes: dict[str, int] = {}
    peak = 0
    for node in graph:
        if node.id in left:
            sizes[node.id] = node.bytes or 0
        peak = max(peak, sum(sizes.values()))
        for id in node.inputs:
            if id in left:
                left[id] -= 1
                if not left[id]:
                    sizes.pop(id, None)
    return peak


def compare(first: Program, program: Program, inputs: tuple) -> tuple[bool | None, str]:
    """Return whether a program computes what the first one does, None if unknown, and a sentence."""
    if program is first:
        return True, "the first program"
    try:
        if program.weights:
            equivalent: Any = partial(load("mlir.equivalent").equivalent_modules, weights=program.weights)
        else:
            equivalent = load("equivalence").equivalent
        result = equivalent(first.value, program.value, inputs or None)
    except Exception as error:
        return None, f"not compared: {reason(error) or type(error).__name__}"
    return bool(result), repr(result)
