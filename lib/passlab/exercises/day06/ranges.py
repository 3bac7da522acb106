"""Day 6, ranges: visible cases, the bounds that the table of the text gives, and a judge that looks for a way out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from passlab.dataflow.precision import extremes, values
from passlab.equivalence.seeds import own_seed
from passlab.fx.cases import graph
from passlab.fx.nodes import attribute, op_name, shape
from passlab.judge import Case, Finding, as_decorator, shown
from passlab.judge.forms import why_not_a_dict

Bounds = tuple[float, float]
EVERYTHING = (-math.inf, math.inf)
RISING = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp}
MOVES = ("reshape", "transpose", "flatten", "mean")


def bounds(gm: fx.GraphModule, inputs: dict[str, Bounds]) -> dict[str, Bounds]:
    """Return node → the range that the table in the text gives it."""
    ranges: dict[str, Bounds] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            ranges[node.name] = inputs[node.name]
        elif node.op == "get_attr":
            weight = attribute(gm, node.target)
            ranges[node.name] = float(weight.min()), float(weight.max())
        elif node.op != "output":
            ranges[node.name] = _transfer(gm, node, ranges)
    return ranges


def _transfer(gm: fx.GraphModule, node: fx.Node, ranges: dict[str, Bounds]) -> Bounds:
    name = op_name(node, gm)
    operands = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, fx.Node | int | float)]
    ends = [ranges[a.name] if isinstance(a, fx.Node) else (a, a) for a in operands]
    low, high = ends[0]
    if name in ("add", "sub"):
        other = ends[1] if name == "add" else (-ends[1][1], -ends[1][0])
        return low + other[0], high + other[1]
    if name == "neg":
        return -high, -low
    if name == "mul":
        corners = [0.0 if 0 in (a, b) else a * b for a in ends[0] for b in ends[1]]
        square = node.args[0] is node.args[1] and low <= 0 <= high
        return 0.0 if square else min(corners[0], corners[3]) if node.args[0] is node.args[1] else min(corners), max(
            corners
        )
    if name in RISING:
        return tuple(float(RISING[name](torch.tensor(end, dtype=torch.float64))) for end in (low, high))
    if name == "softmax":
        return 0.0, 1.0
    if name in MOVES:
        return low, high
    if name == "sum":
        count = math.prod(shape(node.args[0])) / math.prod(shape(node))
        return low * count, high * count
    if name == "Linear" and math.isfinite(low) and math.isfinite(high):
        module = gm.get_submodule(node.target)
        weight = module.weight.detach().double()
        bias = 0 if module.bias is None else module.bias.detach().double()
        up, down = weight.clamp(min=0).sum(1), weight.clamp(max=0).sum(1)
        return float((up * low + down * high + bias).min()), float((up * high + down * low + bias).max())
    return EVERYTHING


def _room(*ends: float) -> float:
    """Return how far off rounding may be at these ends."""
    return 1e-4 * (1 + max((abs(end) for end in ends if math.isfinite(end)), default=0))


def _invalid(gm: fx.GraphModule, value: Any) -> str:
    def each(name: str, pair: Any) -> str:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not all(type(end) in (int, float) and end == end for end in pair):
            return f"The range of {name} is {shown(pair)}; it must be two numbers, low and high."
        if pair[0] > pair[1]:
            return f"The range of {name} begins at {pair[0]:.4g} and ends at {pair[1]:.4g}, which is before it."
        return ""

    names = [n.name for n in gm.graph.nodes if n.op != "output"]
    form, kind = "a dict from a node's name to (low, high)", "the name of a node besides the output"
    return why_not_a_dict(value, form, names, "range", kind, each, label="Node {}")


def _escape(gm: fx.GraphModule, inputs: dict[str, Bounds], name: str, low: float, high: float) -> str:
    """Return what happens to a node if inputs are found with which it leaves low … high, or ""."""
    for up in (True, False):
        for seed in range(2):
            point = extremes(gm, inputs, name, own_seed(seed), steps=8, up=up)
            with torch.no_grad():
                result = values(gm, {}, *point)[name]
            reached = float(result.max() if up else result.min())
            if reached > high + _room(high) or reached < low - _room(low):
                return f"{name} reaches {reached:.6g} on inputs in their ranges; your range is {low:.6g} … {high:.6g}."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Same: no input leaves a range. Did: ranges are as narrow as the table's. Spared: where nothing is known, the
    answer says so."""
    gm, inputs = case.build()
    broken = _invalid(gm, value)
    yield Finding("valid", not broken, broken, before=gm)
    if broken:
        return
    ranges = bounds(gm, inputs)
    escaped, wide, claimed = ("", ""), ("", ""), ("", "")
    for name, (low, high) in ranges.items():
        answer = value[name]
        slack = _room(low, high)
        if answer[0] > low + slack or answer[1] < high - slack:
            if math.isinf(high - low) and not claimed[0]:
                claimed = (
                    name,
                    f"The table knows {low:g} … {high:g} of {name}, no less; got {answer[0]:.4g} … {answer[1]:.4g}.",
                )
            elif not escaped[0] and (reason := _escape(gm, inputs, name, *answer)):
                escaped = name, reason
        room = slack + (0.01 * (high - low) if math.isfinite(high - low) else 0)
        if (answer[0] < low - room or answer[1] > high + room) and not wide[0]:
            wide = (
                name,
                f"{name}: your range {answer[0]:.4g} … {answer[1]:.4g} is sound; {low:.4g} … {high:.4g} is known, too.",
            )
    yield Finding("same", not escaped[0], escaped[1], before=gm, mark=(escaped[0],) if escaped[0] else ())
    yield Finding("did", not wide[0], wide[1], before=gm, mark=(wide[0],) if wide[0] else ())
    yield Finding("spared", not claimed[0], claimed[1], before=gm, mark=(claimed[0],) if claimed[0] else ())


@as_decorator
def ranged(name: str, build: Callable[[], fx.GraphModule], unknown: bool = False, **inputs: Bounds) -> Case:
    """Return a case. unknown: whether it holds an operation that the table does not have."""
    about = ("valid", "same", "did", "spared") if unknown else ("valid", "same", "did")
    return Case(name, lambda: (build(), dict(inputs)), about)


def differences(m: Any, x: Any, y: Any) -> Any:
    return torch.neg(x - y) * 2 + (1 - x)


def products(m: Any, x: Any, y: Any) -> Any:
    return x * y + x * x


def layers(m: Any, x: Any) -> Any:
    return torch.sigmoid(m.second(torch.relu(m.first(x))))


def constants(m: Any, x: Any) -> Any:
    return torch.exp(x * m.w).transpose(0, 1).sum(1)


def attention(m: Any, x: Any) -> Any:
    return torch.softmax(m.first(x), dim=1).mean(1)


def unknown(m: Any, x: Any) -> tuple:
    a = torch.sin(x)
    return torch.relu(a), torch.tanh(a), m.first(a), a * 0


def cases() -> list[Case]:
    linear = {"first": lambda: torch.nn.Linear(4, 5), "second": lambda: torch.nn.Linear(5, 3)}
    return [
        ranged("differences", graph(differences, (2, 3), (2, 3)), x=(-1.0, 2.0), y=(0.5, 3.0)),
        ranged("products", graph(products, (2, 3), (2, 3)), x=(-2.0, 1.0), y=(-3.0, 5.0)),
        ranged("two layers", graph(layers, (2, 4), **linear), x=(-1.0, 3.0)),
        ranged("a constant", graph(constants, (2, 3), w=(3,)), x=(-1.0, 1.0)),
        ranged("softmax", graph(attention, (2, 4), first=linear["first"]), x=(-9.0, 1.0)),
        ranged("an operation without a row", graph(unknown, (2, 4), first=linear["first"]), True, x=(-1.0, 1.0)),
    ]
