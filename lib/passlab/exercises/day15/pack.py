"""Day 15, four bits, packed: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.exercises.day15._results import operands, why_not_alike, why_not_as_often, why_not_near
from passlab.fx.cases import call, graph, live, read
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.nodes import attribute, op_name
from passlab.given.day15.pack import linear_int4
from passlab.judge import Case, Finding, enough, listed, there_are
from passlab.quantization import dequantize, quantize, unpack

#: How far a result may be off, relative to the largest one: sums of floats have no fixed order.
ROUNDING = 1e-5


def pack_case(name: str, *shapes: Any, about: tuple[str, ...] = (), **parts: Any) -> Callable[[Callable], Case]:
    """Return a decorator that makes a case of a program `body(m, *inputs)`; see `passlab.fx.cases.graph`.

    A part named `w…` of the shape (outputs, inputs) gets a part `s…`, its scales, for groups of `parts["group"]`. The
    largest number of a group becomes the integer `parts["largest"]`, which is 7 if it is not given.
    """

    def case(body: Callable) -> Case:
        group, weights = parts.get("group", 4), {}
        generator = torch.Generator().manual_seed(len(name))
        for key, shape in parts.items():
            if key != "group" and isinstance(shape, tuple):
                weights[key] = torch.randn(shape, generator=generator)
                if key[0] == "w":
                    most = weights[key].unflatten(-1, (-1, group)).abs().amax(-1)
                    weights[f"s{key[1:]}"] = most / parts.get("largest", 7)
        build = graph(body, *shapes, **weights)
        return Case(name, lambda: (build(),), about)

    return case


def pair(weight: Any, scale: Any, group: int = 4, bits: int = 4) -> Any:
    """Put the quantize and dequantize of a weight into the program that is traced."""
    q = call(quantize, weight, scale, 0, bits, group=group)
    return call(dequantize, q, scale, 0, bits, group=group)


@pack_case("a layer", (3, 8), w=(5, 8), b=(5,))
def layer(m: Any, x: Any) -> Any:
    return torch.relu(F.linear(x, pair(m.w, m.s), m.b))


@pack_case("two layers and one weight", (2, 3, 8), w=(8, 8))
def shared(m: Any, x: Any) -> Any:
    y = torch.tanh(F.linear(x, pair(m.w, m.s)))
    return F.linear(y, pair(read(x, "w"), read(x, "s")))


@pack_case("a table and a layer", torch.tensor([1, 4, 4]), w=(5, 8))
def table(m: Any, index: Any) -> Any:
    weight = pair(m.w, m.s)
    return F.linear(F.embedding(index, weight), weight)


@pack_case("eight bits, and a float", (3, 8), w=(5, 8), w2=(4, 5), group=1, about=("valid", "same", "spared"))
def others(m: Any, x: Any) -> Any:
    return F.linear(F.linear(x, pair(m.w, m.s, 1, 8)), m.w2)


# ---------------------------------------------------------------------------------------------------- the laws


def calls_of(gm: fx.GraphModule, target: Callable) -> list[fx.Node]:
    """Return the live nodes that call a function."""
    return [node for node in live(gm) if node.target is target]


def readers(gm: fx.GraphModule, target: Any) -> list[fx.Node]:
    """Return the live nodes that read an attribute."""
    reads = {node for node in gm.graph.find_nodes(op="get_attr") if node.target == target}
    return [user for user in live(gm) if reads & set(user.all_input_nodes)]


def weight_of(dq: Any) -> str:
    """Return the name of the constant behind a dequantize."""
    return str(dq.args[0].args[0].target)


def pairs(gm: fx.GraphModule) -> dict[fx.Node, Tensor]:
    """Return the dequantize nodes of weights of 4 bits that need no floats, each with the weight."""
    result: dict[fx.Node, Tensor] = {}
    for dq in calls_of(gm, dequantize):
        q: Any = dq.args[0]
        if q.target is not quantize or dq.args[3] != 4 or q.args[0].op != "get_attr":
            continue
        weight = q.args[0].target
        if all(user.target is quantize for user in readers(gm, weight)):
            result[dq] = attribute(gm, weight)
    return result


def stored(gm: fx.GraphModule) -> dict[str, int]:
    """Return attribute → its bytes, of those that live nodes read."""
    names = dict.fromkeys(str(node.target) for node in live(gm) if node.op == "get_attr")
    return {name: (value := attribute(gm, name)).numel() * value.element_size() for name in names}


def fewest_bytes(gm: fx.GraphModule) -> int:
    sizes = stored(gm)
    for dq, weight in pairs(gm).items():
        sizes[weight_of(dq)] = weight.numel() if weight.shape[-1] % 2 else weight.numel() // 2
    return sum(sizes.values())


def _operands(input: Any, weight: Any, bias: Any = None) -> tuple:
    return input, weight, bias


def fusable(gm: fx.GraphModule) -> dict[fx.Node, fx.Node]:
    """Return the linear layers whose weights are packed, each with the dequantize that it reads."""
    packed = {dq for dq, weight in pairs(gm).items() if weight.shape[-1] % 2 == 0}
    weights = {node: _operands(*node.args, **node.kwargs)[1] for node in calls_of(gm, F.linear)}
    return {node: weight for node, weight in weights.items() if weight in packed}


def unpacked(gm: fx.GraphModule) -> int:
    """Return how many weights have to be unpacked for others than linear layers."""
    layers, weights, needed = fusable(gm), set(), set(live(gm))
    for dq, weight in pairs(gm).items():
        for user in needed & set(dq.users):
            fused = layers.get(user) is dq and _operands(*user.args, **user.kwargs)[0] is not dq
            if not fused and weight.shape[-1] % 2 == 0:
                weights.add(weight_of(dq))
    return len(weights)


def kept(gm: fx.GraphModule) -> Counter[str]:
    """Return how often each function occurs besides those of pairs; linear layers are all the same."""
    count: Counter[str] = Counter()
    for node in live(gm):
        if node.op.startswith("call_") and node.target not in (quantize, dequantize, unpack):
            count["linear" if node.target is linear_int4 else op_name(node, gm)] += 1
    return count


def why_not_kept(before: fx.GraphModule, after: fx.GraphModule) -> str:
    if reason := why_not_as_often(kept(before), kept(after)):
        return reason
    packed = {dq.args[0] for dq in pairs(before)}
    left = [node for node in calls_of(before, quantize) if node not in packed]
    quantizes = calls_of(after, quantize)
    if len(quantizes) < len(left):
        return (
            f"{there_are(len(quantizes), 'quantize node')}; {len(left)} should stay: "
            "their weights have other bits, or are needed as floats."
        )
    fused = calls_of(after, linear_int4)
    if len(fused) > len(fusable(before)):
        return (
            f"There are {len(fused)} linear_int4 nodes; {len(fusable(before))} layers have weights of 4 bits to pack."
        )
    grids = [_grid(node) for node in calls_of(before, dequantize)]
    for node in calls_of(after, dequantize):
        if _grid(node) not in grids:
            given = (f"{name}={value}" for name, value in _grid(node).items())
            return f"{node.name} has {listed(list(given))}, as none had before."
    return ""


def _grid(dq: fx.Node) -> dict[str, Any]:
    """Return what a dequantize takes besides integers and a scale, by name."""
    return {name: value for name, value in operands(dq).items() if name not in ("q", "scale")}


def why_not_packed(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return which floats are still there, or what is unpacked in vain, or ""."""
    sizes, least = stored(after), fewest_bytes(before)
    if sum(sizes.values()) > least:
        parts = ", ".join(f"{name} {size}" for name, size in sizes.items())
        return f"The graph reads {sum(sizes.values())} bytes of constants ({parts}); {enough(least)}."
    fused, opened = calls_of(after, linear_int4), calls_of(after, unpack)
    for operand in (operand for node in (*fused, *opened) for operand in node.all_input_nodes):
        if operand.op == "get_attr" and attribute(after, str(operand.target)).dtype == torch.int8:
            return f"{operand.target} is int8; two integers in a byte are a uint8."
    if len(fused) < len(fusable(before)):
        return f"{len(fusable(before))} linear layers can read packed weights; {len(fused)} do."
    if len(opened) > unpacked(before):
        return f"{there_are(len(opened), 'unpack node')}; {enough(unpacked(before))}."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (before,) = case.build()
    broken = why_not_valid(before, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    after = rebuild(value)
    wrong = why_not_alike(before, after, before.meta["inputs"], why_not_near(ROUNDING))
    yield Finding("same", not wrong, wrong, before=before, after=value)
    if wrong:
        return
    changed = why_not_kept(before, after)
    yield Finding("spared", not changed, changed, before=before, after=value)
    floats = why_not_packed(before, after)
    yield Finding("did", not floats, floats, before=before, after=value)
