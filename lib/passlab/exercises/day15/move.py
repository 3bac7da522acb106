"""Day 15, moving bytes in place of floats: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.equivalence.trials import nearby
from passlab.exercises.day15._results import operands, why_not_alike, why_not_as_often, why_not_equal
from passlab.fx.cases import call, graph, live
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import op_name
from passlab.fx.values import values_of
from passlab.given.day15.move import MOVING
from passlab.judge import Case, Finding, listed
from passlab.quantization import dequantize, quantize

#: What a case decides in which there is nothing to move.
STAYS = ("valid", "same", "spared")
#: A grid: scale, zero point, bits.
Grid = tuple[float, int, int]
GRID: Grid = (0.05, 3, 8)
PAIR = (quantize, dequantize)
#: By how much the inputs of the runs are multiplied: some values leave every grid.
SIZES = (1, 0.1, 40)


def move_case(name: str, *shapes: Any, about: tuple[str, ...] = (), **parts: Any) -> Callable[[Callable], Case]:
    """Return a decorator that makes a case of a program `body(m, *inputs)`; see `passlab.fx.cases.graph`."""

    def case(body: Callable) -> Case:
        build = graph(body, *shapes, **parts)
        return Case(name, lambda: (build(),), about)

    return case


def q(x: Any, grid: Grid = GRID, **options: Any) -> Any:
    """Put a quantize into the program that is traced."""
    return call(quantize, x, *grid, **options)


def dq(x: Any, grid: Grid = GRID, **options: Any) -> Any:
    return call(dequantize, x, *grid, **options)


@move_case("between two layers", (2, 3, 4), w=(3, 3))
def between(m: Any, x: Any) -> Any:
    y = dq(q(F.linear(x.transpose(1, 2), m.w)))
    z = dq(q(torch.flatten(torch.transpose(y, 1, 2), 1)))
    return torch.tanh(z)


@move_case("before a quantize", (1, 2, 6, 6))
def before(m: Any, x: Any) -> Any:
    return q(torch.flatten(F.max_pool2d(torch.relu(x), 3, 2, 1), 1))


@move_case("behind a dequantize", (4, 6))
def behind(m: Any, x: Any) -> Any:
    y = dq(q(x))
    return torch.tanh(y[:, 1:]), torch.permute(y, (1, 0)), y + 1


@move_case("two on one grid", (3, 4), (3, 4))
def one_grid(m: Any, x: Any, y: Any) -> Any:
    both = torch.cat([dq(q(x)), dq(q(torch.exp(y)))], 1)
    return torch.tanh(both), both + 1


@move_case("two grids", (3, 4), (3, 4), about=STAYS)
def two_grids(m: Any, x: Any, y: Any) -> Any:
    both = torch.cat([dq(q(x)), dq(q(y, (0.5, 3, 8)), (0.5, 3, 8))], 1)
    return torch.tanh(both)


@move_case("functions that compute", (2, 4), about=STAYS)
def computing(m: Any, x: Any) -> Any:
    return q(torch.relu(dq(q(x)))), torch.neg(dq(q(x)))


# ---------------------------------------------------------------------------------------------------- the laws


def grid_of(node: Any, function: Callable) -> tuple | None:
    """Return the grid of a node that calls quantize or dequantize with one scale, None for other nodes."""
    if not isinstance(node, fx.Node) or node.target is not function:
        return None
    _, scale, *grid, axis, group = operands(node).values()
    return (scale, *grid) if isinstance(scale, float) and axis is None and group is None else None


def movable(gm: fx.GraphModule) -> set[fx.Node]:
    """Return the nodes that can move int8 by the laws: of the program before it is changed."""
    needed = set(live(gm))
    below: dict[fx.Node, tuple] = {}
    for node in gm.graph.nodes:
        if node.target in MOVING:
            grids = {below.get(x) or grid_of(x, dequantize) for x in node.all_input_nodes}
            if len(grids) == 1 and (grid := grids.pop()) is not None:
                below[node] = grid
    above: set[fx.Node] = set()
    for node in reversed(gm.graph.nodes):
        users = needed & set(node.users)
        if node.target in MOVING and len(users) == 1:
            (user,) = users
            if user in above or grid_of(user, quantize) is not None:
                above.add(node)
    return above | set(below)


def moved_bytes(gm: fx.GraphModule, inputs: tuple) -> dict[fx.Node, int]:
    """Return the bytes that each live node of MOVING writes. Raises ValueError if the graph cannot run."""
    values = values_of(gm, inputs)
    nodes = [node for node in live(gm) if node.target in MOVING and isinstance(values[node], Tensor)]
    return {node: values[node].numel() * values[node].element_size() for node in nodes}


def fewest_bytes(gm: fx.GraphModule) -> int:
    """Return the bytes that are moved if all is int8 that the laws allow. Nodes have shapes."""
    numbers = {node: node.meta["tensor_meta"] for node in live(gm) if node.target in MOVING}
    small = movable(gm)
    return sum(meta.shape.numel() * (1 if node in small else meta.dtype.itemsize) for node, meta in numbers.items())


def why_not_bitwise(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return where the results of two graphs differ, on ordinary, small and large inputs, or ""."""
    for size in SIZES:
        inputs = tuple(x * size if x.is_floating_point() else x for x in nearby(before.meta["inputs"]))
        if reason := why_not_alike(before, after, inputs, why_not_equal):
            return f"With inputs of about {size:g}: {reason[0].lower()}{reason[1:]}"
    return ""


def others(gm: fx.GraphModule) -> dict[fx.Node, str]:
    """Return the name of what each live node calls, without the quantize and dequantize that may move."""
    names = {}
    for node in live(gm):
        if node.op.startswith("call_") and not any(grid_of(node, function) for function in PAIR):
            names[node] = op_name(node, gm) + " with axis" * (node.target in PAIR)
    return names


def why_not_spared(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return what is called more or less often than before, or computes integers instead of floats, or ""."""
    if reason := why_not_as_often(*(Counter(others(gm).values()) for gm in (before, after))):
        return reason
    inputs = before.meta["inputs"]
    old, new = (_computed(gm, inputs) for gm in (before, after))
    if changed := new - old:
        name, dtype = next(iter(changed))
        return f"{name} returns {dtype}, where it did not before. It is not in MOVING."
    return ""


def _computed(gm: fx.GraphModule, inputs: tuple) -> Counter[tuple[str, str]]:
    """Count the functions that are not of MOVING, by name and the dtype of their tensor."""
    values, names = values_of(gm, inputs), others(gm)
    dtypes = {node: str(getattr(values[node], "dtype", "no tensor")) for node in names if node.target not in MOVING}
    return Counter((names[node], dtype) for node, dtype in dtypes.items())


def why_not_int8(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return which law could be applied once more, or was applied wrongly, or ""."""
    node: Any
    grids = {None, *(grid_of(node, function) for node in before.graph.nodes for function in PAIR)}
    for node in live(after):
        if any(grid_of(node, function) not in grids for function in PAIR):
            return f"{node.name} is on a grid that was nowhere before."
        grid = grid_of(node, quantize)
        if grid and grid_of(node.all_input_nodes[0], dequantize) == grid:
            return f"{node.name} reads {node.all_input_nodes[0]}, on the same grid: the integers were there already."
    moved, least = moved_bytes(after, before.meta["inputs"]), fewest_bytes(before)
    if sum(moved.values()) <= least:
        return ""
    return f"{listed(list(moved))} move {sum(moved.values()):,} bytes; {least:,} are enough."


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (before,) = case.build()
    broken = why_not_valid(before, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    after = rebuild(value)
    wrong = why_not_bitwise(before, after)
    yield Finding("same", not wrong, wrong, before=before, after=value)
    if wrong:
        return
    changed = why_not_spared(before, after)
    yield Finding("spared", not changed, changed, before=before, after=value)
    floats = why_not_int8(before, after)
    yield Finding("did", not floats, floats, before=before, after=value)
