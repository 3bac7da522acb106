"""Day 4, exercise 7: cases and judge of measuring. Every number follows from shapes; the judge computes it itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from passlab.fx.reader import trace
from passlab.judge import Case, Finding
from passlab.judge.forms import excerpt, is_number, why_not_a_dict

#: The machine of most cases: ten operations in the time it takes to move a byte.
MACHINE = {"bandwidth": 1e10, "flops": 1e11, "launch": 5e-6}
HALF = torch.float16
REDUCTIONS = (torch.sum, torch.mean, torch.amax)
ROWS, WHOLE = ("before", "after"), ("launches", "bytes", "flops")
NUMBERS, ROOFS = (*WHOLE, "intensity", "seconds"), ("memory", "compute")


def measure_case(
    name: str,
    function: Callable,
    shapes: Sequence[Any],
    groups: Any,
    machine: dict | None = None,
    *,
    unread: bool = False,
) -> Case:
    """Return a case: a function of tensors of these shapes, or (shape, dtype), and its groups, or what finds them.

    unread: unused calls stay in the graph.
    """

    def build() -> tuple:
        pairs = [
            s if isinstance(s, tuple) and len(s) == 2 and isinstance(s[1], torch.dtype) else (s, None) for s in shapes
        ]
        gm = trace(function, *(torch.ones(shape, dtype=dtype) for shape, dtype in pairs))
        if not unread:
            gm.graph.eliminate_dead_code()
        chosen = groups(gm) if callable(groups) else [list(group) for group in groups]
        return gm, chosen, dict(machine or MACHINE)

    return Case(name, build)


def cases() -> list[Case]:
    return [
        measure_case("a chain", chain, [(64, 128)], [("mul", "add", "relu")]),
        measure_case("broadcasting", biased, [(32, 64), (64,), (32, 1)], [("add", "mul", "tanh")]),
        measure_case("read inside and outside", forked, [(64, 64), (64, 64)], [("mul", "abs_1", "add")]),
        measure_case("half precision and bool", picked, [((128, 9), HALF), ((9,), HALF)], [("gt", "where")]),
        measure_case("a product and more", layer, [(128, 256), (256, 128), (128,)], [("matmul", "add", "relu")]),
        measure_case("a softmax by hand", softmax, [(40, 300)], [("sub", "exp"), ("sum_1", "truediv")]),
    ]  # fmt: skip


def chain(x: Any) -> Any:
    return torch.relu(x * 2.0 + 1.0)


def biased(x: Any, row: Any, column: Any) -> Any:
    return torch.tanh((x + row) * column)


def forked(x: Any, y: Any) -> Any:
    z = x * y
    return torch.abs(z) + x, torch.exp(z)


def picked(x: Any, y: Any) -> Any:
    return torch.where(x > y, x, 0.0) * x


def layer(x: Any, weight: Any, bias: Any) -> Any:
    return torch.exp(torch.relu(torch.matmul(x, weight) + bias))


def softmax(x: Any) -> Any:
    powers = torch.exp(x - torch.amax(x, -1, True))
    return powers / torch.sum(powers, -1, True)


def judge(case: Case, value: object) -> Iterator[Finding]:
    gm, groups, machine = case.build()
    broken = _misfit(value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    singles = [[n.name] for n in gm.graph.nodes if n.op.startswith("call_")]
    together = [*groups, *(kernel for kernel in singles if not any(kernel[0] in group for group in groups))]
    expected = {row: priced(gm, kernels, machine) for row, kernels in zip(ROWS, (singles, together), strict=True)}
    for verdict, keys in (
        ("did", ("launches", "bytes")),
        ("spared", ("flops",)),
        ("cost", ("intensity", "seconds", "roof")),
    ):
        pairs = ((row, key) for row in ROWS for key in keys)
        wrong = next((_difference(value, expected, *pair) for pair in pairs if _off(value, expected, *pair)), "")
        yield Finding(verdict, not wrong, wrong)


def _misfit(value: Any) -> str:
    keys = (*NUMBERS, "roof")

    def of_row(row: str, entries: Any) -> str:
        def entry(key: str, entry: Any) -> str:
            if key == "roof":
                fits, kind = isinstance(entry, str) and entry in ROOFS, '"memory" or "compute"'
            else:
                fits, kind = is_number(entry), "a number"
            return "" if fits else f"{key} of {row} must be {kind}; it is {excerpt(entry)}."

        known = f"one of {', '.join(keys)}"
        return why_not_a_dict(entries, f"a dict for {row}", keys, "value", known, entry, label=f"{{}} of {row}")

    return why_not_a_dict(value, 'a dict with "before" and "after"', ROWS, "row", '"before" or "after"', of_row)


def _off(value: dict, expected: dict, row: str, key: str) -> bool:
    answer, right = value[row][key], expected[row][key]
    return answer != right if key == "roof" else not math.isclose(answer, right, rel_tol=1e-6)


def _difference(value: dict, expected: dict, row: str, key: str) -> str:
    answer, right = value[row][key], expected[row][key]
    if key == "roof":
        sides = f"its intensity is {expected[row]['intensity']:.4g} operations/byte"
        return f"{row}: {sides}, so the roof is {right}, not {answer}."
    number = "{:,.0f}" if key in WHOLE else "{:.6g}"
    sentence = f"{row}: {key} is {number.format(answer)}; expected {number.format(right)}"
    kernels = expected[row]["kernels"]
    if key not in ("bytes", "flops", "seconds") or not kernels:
        return f"{sentence}."
    unit = {"bytes": "bytes", "flops": "operations", "seconds": "s"}[key]
    parts = [f"{name} {number.format(numbers[key])}" for name, numbers in list(kernels.items())[:4]]
    return f"{sentence} ({unit} by kernel: {'; '.join(parts)}{'; …' if len(kernels) > 4 else ''})."


def priced(gm: fx.GraphModule, kernels: Sequence[Sequence[str]], machine: dict) -> dict:
    """Return the row of a graph with these kernels, and under `kernels` the numbers of each."""
    nodes, each = {n.name: n for n in gm.graph.nodes}, {}
    for kernel in kernels:
        members = [nodes[name] for name in kernel]
        read = {operand for node in members for operand in node.all_input_nodes if operand not in members}
        written = {node for node in members if any(user not in members for user in node.users)}
        moved, flops = sum(map(_size, read | written)), sum(map(operations, members))
        seconds = machine["launch"] + max(moved / machine["bandwidth"], flops / machine["flops"])
        each["+".join(kernel)] = {"bytes": moved, "flops": flops, "seconds": seconds}
    row = {key: sum(numbers[key] for numbers in each.values()) for key in ("bytes", "flops", "seconds")}
    intensity = row["flops"] / row["bytes"] if row["bytes"] else 0.0
    roof = "memory" if intensity < machine["flops"] / machine["bandwidth"] else "compute"
    return row | {"launches": len(each), "intensity": intensity, "roof": roof, "kernels": each}


def _size(node: fx.Node) -> int:
    meta = node.meta["tensor_meta"]
    return meta.shape.numel() * meta.dtype.itemsize


def operations(node: fx.Node) -> int:
    """Return how many operations a call performs."""
    first = node.args[0] if node.args else node.kwargs["input"]
    if node.target is torch.matmul:
        return 2 * first.meta["tensor_meta"].shape[-1] * node.meta["tensor_meta"].shape.numel()
    return (first if node.target in REDUCTIONS else node).meta["tensor_meta"].shape.numel()
