"""Day 6, a safe float16 plan: visible cases, what can be proved safe, and a judge that looks for an overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from passlab.dataflow.precision import HALF, extremes, values
from passlab.exercises.day06.ranges import Bounds, bounds
from passlab.fx.cases import graph
from passlab.fx.nodes import op_name, shape
from passlab.judge import Case, Finding, as_decorator, shown
from passlab.judge.forms import why_not_names

#: What counts as the end of float16: its own, 65504, less some room for rounding.
MOST = 60_000
#: A node that exceeds the end by less than this, as a factor, may be planned either way: an answer may round.
NEAR = 1 + 1e-6
#: So many nodes that are not proved safe are searched for inputs on which they overflow.
SEARCHED = 3


def reaches(gm: fx.GraphModule, ranges: dict[str, Bounds]) -> dict[str, tuple[float, str]]:
    """Return call → the largest magnitude that float16 would have to hold there, and where."""
    return {
        node.name: max(_magnitudes(gm, node, ranges), key=lambda magnitude: magnitude[0])
        for node in gm.graph.nodes
        if node.op.startswith("call_")
    }


def _magnitudes(gm: fx.GraphModule, node: fx.Node, ranges: dict[str, Bounds]) -> Iterator[tuple[float, str]]:
    """Yield the magnitudes that a node has to hold, with what has them."""
    yield _largest(ranges[node.name]), "its result"
    for operand in node.all_input_nodes:
        yield _largest(ranges[operand.name]), f"its operand {operand.name}"
    first = node.all_input_nodes[0]
    name, most = op_name(node, gm), _largest(ranges[first.name])
    if name in ("sum", "mean"):
        yield most * math.prod(shape(first)) / math.prod(shape(node)), "the sum on the way"
    if name == "Linear":
        layer = gm.get_submodule(node.target)
        weights = layer.weight.detach().abs().double()
        bias = 0 if layer.bias is None else layer.bias.detach().abs().double()
        yield float(weights.max()), "a weight"
        if math.isfinite(most):
            yield float((weights.sum(1) * most + bias).max()), "the sum on the way"


def _largest(ends: Bounds) -> float:
    return max(map(abs, ends))


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Same: no input is found on which the plan overflows. Spared: each node in float16 is proved safe. Did: all that
    are proved safe run in it."""
    gm, ranges = case.build()
    calls = [node.name for node in gm.graph.nodes if node.op.startswith("call_")]
    broken = _invalid(calls, value)
    yield Finding("valid", not broken, broken, before=gm)
    if broken:
        return
    magnitudes = reaches(gm, ranges)
    bold = [name for name in calls if name in value and magnitudes[name][0] > NEAR * MOST]
    timid = [name for name in calls if name not in value and magnitudes[name][0] <= MOST]
    escape = overflowing(gm, ranges, set(value), bold)
    yield Finding("same", not escape, escape, before=gm, mark=(escape.split()[0],) if escape else ())
    loss = f"{timid[0]} is safe in float16: nothing there exceeds {magnitudes[timid[0]][0]:.6g}." if timid else ""
    yield Finding("did", not timid, loss, before=gm, mark=tuple(timid[:1]))
    claim = ""
    if bold:
        size, source = magnitudes[bold[0]]
        reach = f"{source} may reach {size:.6g}" if math.isfinite(size) else f"nothing is known of {source}"
        claim = f"{bold[0]} is not proved safe in float16: {reach}."
    yield Finding("spared", not bold, claim, before=gm, mark=tuple(bold[:1]))


def _invalid(calls: list[str], value: Any) -> str:
    if not isinstance(value, set | frozenset | list | tuple):
        return f"The answer is a set of names of nodes; it is {shown(value)}."
    return why_not_names(value, calls, kind="call")


def overflowing(gm: fx.GraphModule, ranges: dict[str, Bounds], half: set[str], bold: list[str]) -> str:
    """Return what overflows with `half` in float16, on inputs in their ranges that drive one of `bold` up or down; ""
    if no such inputs are found."""
    inputs = {node.target: ranges[node.name] for node in gm.graph.nodes if node.op == "placeholder"}
    for name in bold[:SEARCHED]:
        for up in (True, False):
            point = extremes(gm, inputs, name, steps=6, up=up)
            with torch.no_grad():
                exact, mixed = (values(gm, plan, *point) for plan in ({}, dict.fromkeys(half, HALF)))
            for node, result in mixed.items():
                if node in half and isinstance(result, Tensor) and not result.isfinite().all():
                    at = int((~result.isfinite()).flatten().nonzero()[0])
                    true, half_value = float(exact[node].flatten()[at]), float(result.flatten()[at])
                    value = f"where it is {true:.6g}, your plan has {half_value:g}"
                    return f"{node} overflows on inputs in their ranges: {value}."
    return ""


@as_decorator
def planned(name: str, build: Callable[[], fx.GraphModule], *about: str, **inputs: Bounds) -> Case:
    """Return a case. about: what it asks besides a valid answer."""

    def build_with_ranges() -> tuple[fx.GraphModule, dict[str, Bounds]]:
        gm = build()
        return gm, bounds(gm, dict(inputs))

    return Case(name, build_with_ranges, ("valid", *about))


def layer(weights: list[list[float]], bias: list[float] | None = None) -> Callable[[], torch.nn.Linear]:
    """Return a function that makes a layer of these numbers."""

    def make() -> torch.nn.Linear:
        linear = torch.nn.Linear(len(weights[0]), len(weights), bias=bias is not None)
        linear.weight.data = torch.tensor(weights)
        if bias is not None:
            linear.bias.data = torch.tensor(bias)
        return linear

    return make


def small(m: Any, x: Any, y: Any) -> Any:
    return torch.tanh(m.first(x) * 100 - y)


def product(m: Any, x: Any) -> Any:
    return torch.tanh(x * 300 * x * 0.001) + x


def cancels(m: Any, x: Any) -> Any:
    return torch.relu(m.first(x))


def averaged(m: Any, x: Any) -> tuple:
    return x.mean(1), (x * 0.01).mean(1)


def unknown(m: Any, x: Any) -> tuple:
    return torch.sigmoid(torch.sin(x)), torch.neg(x)


def cases() -> list[Case]:
    linear = {"first": layer([[0.5, -0.25, 1.0], [2.0, 0.0, -1.0]])}
    cancelling = {"first": layer([[40_000.0, -40_000.0], [1.0, 1.0]])}
    return [
        planned("all of it fits", graph(small, (4, 3), (4, 2), **linear), "did", x=(-9.0, 9.0), y=(-1.0, 1.0)),
        planned("a product", graph(product, (2, 3)), "same", "did", "spared", x=(-30.0, 30.0)),
        planned("terms that cancel", graph(cancels, (4, 2), **cancelling), "spared", x=(1.0, 1.0)),
        planned("a mean of many", graph(averaged, (2, 4096)), "did", "spared", x=(0.0, 100.0)),
        planned("an operation of which nothing is known", graph(unknown, (2, 3)), "did", "spared", x=(-1.0, 1.0)),
    ]
