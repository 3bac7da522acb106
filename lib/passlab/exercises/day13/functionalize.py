"""Day 13, functionalisation: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.fx.passes.shape_prop import ShapeProp

from passlab.equivalence import equivalent
from passlab.equivalence.trials import DEFAULT
from passlab.fx.effects import effects
from passlab.fx.judge import why_not_valid
from passlab.fx.nodes import name_of
from passlab.given.day13.functionalize import COMPUTES, VIEWS, aten
from passlab.judge import Case, Finding, listed

#: Two inputs are never one tensor here.
TRIALS = tuple(trial for trial in DEFAULT if trial != "same tensor")
SHAPES = {"x": (3, 4), "y": (3, 4), "z": (4, 3), "row": (4,)}


class Tensor:
    """A value in a graph that is being written: its methods append ATen operations."""

    def __init__(self, node: fx.Node):
        self.node = node

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        return lambda *operands, **options: call(name, self, *operands, **options)


_OVERLOADS = {"select": "int", "slice": "Tensor", "transpose": "int"} | dict.fromkeys(
    ("add", "sub", "mul", "add_", "sub_", "mul_"), "Tensor"
)


def call(name: str, *operands: Any, **options: Any) -> Tensor:
    """Append a call of an ATen operation; `options` are its keywords."""
    args = tuple(x.node if isinstance(x, Tensor) else x for x in operands)
    target = getattr(getattr(aten, name), _OVERLOADS.get(name, "default"))
    return Tensor(operands[0].node.graph.call_function(target, args, options))


def program(
    body: Callable,
    *inputs: str,
    double: Sequence[str] = (),
    integers: Mapping[str, torch.dtype] = MappingProxyType({}),
    seed: int = 0,
) -> fx.GraphModule:
    """Return the graph of a function of `Tensor`s, with shapes on its nodes. double: inputs in float64."""
    graph, draw = fx.Graph(), torch.Generator().manual_seed(seed)
    results = body(*(Tensor(graph.placeholder(name)) for name in inputs))
    graph.output(tuple(x.node for x in results))
    gm = fx.GraphModule({}, graph)
    examples = {name: torch.randn(SHAPES[name], generator=draw) for name in inputs}
    examples |= {name: examples[name].double() for name in double}
    examples |= {name: (examples[name] * 10).to(dtype) for name, dtype in integers.items()}
    gm.meta["inputs"] = tuple(examples.values())
    with torch.no_grad():
        ShapeProp(gm).propagate(*(x.clone() for x in gm.meta["inputs"]))
    return gm


def case(name: str, body: Callable, *inputs: str, about: Sequence[str] = (), **options: Any) -> Case:
    return Case(name, lambda: (program(body, *inputs, **options),), tuple(about))


def simple(x: Tensor, y: Tensor) -> tuple:
    a = x.add_(y)
    return a.mul(2), y.neg()


def row(x: Tensor) -> tuple:
    first = x.select(0, 0)
    first.mul_(10)
    return x.relu(), first


def old(x: Tensor) -> tuple:
    doubled = x.mul(2)
    part = x.slice(0, 1, 3)
    part.add_(doubled.slice(0, 0, 2))
    return doubled, x.neg()


def overlap(x: Tensor) -> tuple:
    upper, lower = x.slice(0, 0, 2), x.slice(0, 1, 3)
    upper.mul_(3)
    lower.add_(1)
    return upper, lower.neg()


def of_views(x: Tensor, z: Tensor) -> tuple:
    corner = x.transpose(0, 1).slice(0, 1, 3).select(1, 2)
    corner.neg_()
    z.view([3, 4]).copy_(x)
    return corner, z.relu()


def fresh(x: Tensor) -> tuple:
    a = x.mul(2)
    a.select(1, 0).relu_()
    b = a.add(1)
    a.add_(b)
    return a, b


def cases() -> list[Case]:
    return [
        case("an input is written", simple, "x", "y"),
        case("a row is written", row, "x"),
        case("a value from before", old, "x"),
        case("views that overlap", overlap, "x"),
        case("views of views", of_views, "x", "z"),
        case("a value of the graph's own is written", fresh, "x"),
    ]


def memory(node: fx.Node) -> fx.Node:
    """Return the node whose memory the value of a node is in, in a graph of a case."""
    while node.target in VIEWS or node.target in COMPUTES:
        node = node.all_input_nodes[0]
    return node


def written_inputs(gm: fx.GraphModule) -> list[str]:
    """Return the names of the inputs that a graph writes, in their order."""
    names = {memory(node) for node in gm.graph.nodes if node.target in COMPUTES}
    return [str(node.target) for node in gm.graph.find_nodes(op="placeholder") if node in names]


def _epilogue(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the copies into inputs that are the last nodes before the output."""
    copies: list[fx.Node] = []
    for node in list(gm.graph.nodes)[-2::-1]:
        called = node.op in ("call_function", "call_method") and name_of(node.target) == "copy_"
        into = node.args[0] if called and node.args else None
        if not isinstance(into, fx.Node) or into.op != "placeholder":
            break
        copies.append(node)
    return copies[::-1]


def _why_not_pure(gm: fx.GraphModule) -> str:
    epilogue = _epilogue(gm)
    for node in gm.graph.nodes:
        if node not in epilogue and effects(node) - {"signature"}:
            if name_of(node.target) == "copy_":
                return f"Node {node.name} copies before the end, or into a part. Copy into whole inputs, at the end."
            return f"Node {node.name} still writes, or does more than compute."
    return ""


def _why_not_short(before: fx.GraphModule, after: fx.GraphModule) -> str:
    into = [node.all_input_nodes[0] for node in _epilogue(after)]
    if repeated := [name for name in into if into.count(name) > 1]:
        return f"The epilogue copies into {repeated[0]} more than once."
    extra = [node for node in into if node.target not in written_inputs(before)]
    return f"The program does not write into {listed(extra)}: there is nothing to copy." if extra else ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: a graph of the same form. `same`: results and writes. `did`: nothing but the epilogue writes.
    `spared`: it copies into each input that is written, once, and into no other."""
    (before,) = case.build()
    reason = why_not_valid(before, value)
    yield Finding("valid", not reason, reason, before=before)
    if reason:
        return
    result = equivalent(before, value, before.meta["inputs"], trials=TRIALS, aliasing=False)
    yield Finding("same", result.ok, "" if result.ok else result.reason, before=before, after=value)
    reason = _why_not_pure(value)
    yield Finding("did", not reason, reason, before=before, after=value)
    reason = _why_not_short(before, value)
    yield Finding("spared", not reason, reason, before=before, after=value)
