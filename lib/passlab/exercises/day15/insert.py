"""Day 15, inserting pairs: visible cases and judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.exercises.day15._results import constant_of
from passlab.fx.cases import graph, live
from passlab.fx.judge import why_not_valid
from passlab.fx.nodes import attribute, op_name
from passlab.given.day15.insert import LAYERS, MOVES
from passlab.judge import Case, Finding, plural, shown
from passlab.quantization import dequantize, quantize, weight_scales
from passlab.quantization.graphs import calls

#: What a case decides in which no value needs a pair.
NONE = ("valid", "same", "spared")


def insert_case(
    name: str, *shapes: Any, about: tuple[str, ...] = (), ties: Mapping[str, str] | None = None, **parts: Any
) -> Callable[[Callable], Case]:
    """Return a decorator that makes a case of a program `body(m, *inputs)`; see `passlab.fx.cases.graph`.

    `ties`: name of a parameter → that of the one whose tensor it is, too.
    """

    def case(body: Callable) -> Case:
        build = graph(body, *shapes, **parts)

        def arguments() -> tuple:
            gm = build()
            for name, other in (ties or {}).items():
                setattr(gm, name, getattr(gm, other))
            return gm, grids_of(gm)

        return Case(name, arguments, about)

    return case


def grids_of(gm: fx.GraphModule) -> dict[str, tuple[float, int]]:
    """Return name of a float value → its grid, each another one; not of weights and biases."""
    names = [node.name for node in gm.graph.nodes if node.op not in ("output", "get_attr")]
    return {name: (2.0**-6 * (1 + i / 8), 5 * i % 64 - 32) for i, name in enumerate(names)}


@insert_case("one layer", (2, 3), w=(4, 3), b=(4,))
def one(m: Any, x: Any) -> Any:
    return F.linear(torch.tanh(x), m.w, m.b)


@insert_case("behind a relu", (1, 3, 5, 5), w=(4, 3, 3, 3), v=(4, 4, 1, 1))
def activated(m: Any, x: Any) -> Any:
    y = torch.relu(F.conv2d(x, m.w, None, 1, 1))
    return F.conv2d(y, m.v), torch.exp(y)


@insert_case("before what moves", (1, 3, 4, 4), w=(4, 48))
def moved(m: Any, x: Any) -> Any:
    y = torch.exp(x)
    return F.linear(torch.flatten(torch.transpose(y, 1, 2), 1), m.w)


@insert_case("a sum with two readers", (2, 3), (2, 3), w=(3, 3), v=(3, 3))
def residual(m: Any, x: Any, y: Any) -> Any:
    z = torch.add(x, y)
    return torch.add(F.linear(z, m.w), z), torch.relu(z)


@insert_case("a shared weight", (2, 3), w=(3, 3))
def shared(m: Any, x: Any) -> Any:
    return F.linear(torch.tanh(F.linear(x, m.w)), m.w)


@insert_case("no layer", (2, 3), about=NONE)
def nothing(m: Any, x: Any) -> Any:
    return torch.softmax(torch.relu(x), 1), torch.add(x, 1)


# ---------------------------------------------------------------------------------------------------- the rules


def is_layer(node: fx.Node) -> bool:
    """Return whether a node is a layer: an addition only of two values."""
    if node.op != "call_function" or node.target not in LAYERS:
        return False
    values = [x for x in node.args[:2] if isinstance(x, fx.Node) and x.op != "get_attr"]
    return node.target is not torch.add or len(values) == 2


def source(node: Any) -> fx.Node:
    """Return the value that a node moves the elements of."""
    while node.op == "call_function" and node.target in MOVES:
        node = node.args[0]
    return node


def result(layer: fx.Node) -> fx.Node:
    """Return the node behind which the pair of a layer's result belongs."""
    (user, *others) = layer.users
    return user if not others and user.target is torch.relu else layer


def values_of_layers(gm: fx.GraphModule) -> dict[fx.Node, str]:
    """Return each value that needs a pair → why."""
    roots: dict[fx.Node, str] = {}
    for layer in filter(is_layer, gm.graph.nodes):
        for operand in layer.args[: 2 if layer.target is torch.add else 1]:
            roots.setdefault(source(operand), f"the layer {layer.name} reads it")
    for layer in filter(is_layer, gm.graph.nodes):
        root = result(layer)
        roots.setdefault(root, "a layer returns it" if root is layer else f"it is the relu of {layer.name}")
    return roots


# ---------------------------------------------------------------------------------------------------- the graphs


class Terms:
    """Number what the nodes of graphs compute, with pairs left out: equal numbers, equal values."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def of(self, gm: fx.GraphModule) -> dict[fx.Node, int]:
        """Return node → number. A quantize or dequantize has the number of what it reads."""
        terms: dict[fx.Node, int] = {}
        inputs = 0
        for node in gm.graph.nodes:
            if node.target in (quantize, dequantize) and node.args and isinstance(node.args[0], fx.Node):
                terms[node] = terms[node.args[0]]
                continue
            if node.op == "placeholder":
                key: tuple = ("placeholder", inputs)
                inputs += 1
            elif node.op == "get_attr":
                key = "constant", content(attribute(gm, node.target))
            else:
                target = node.target if isinstance(node.target, str) else op_name(node)
                arguments = fx.node.map_arg((node.args, node.kwargs), lambda x: f"value {terms[x]}")
                key = node.op, target, repr(arguments)
            terms[node] = self.numbers.setdefault(key, len(self.numbers))
        return terms


def content(value: Any) -> Any:
    """Return what tells tensors apart: tied ones may come back as two of the same numbers."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), tuple(value.detach().flatten().tolist())
    return repr(value)


class Pair(NamedTuple):
    """A dequantize whose operand is a quantize, and the operands of both, by name."""

    q: fx.Node
    value: fx.Node
    grids: tuple[dict, dict]


def operands(node: fx.Node) -> dict[str, Any]:
    """Return the grid that a quantize or dequantize is called with, defaults filled in. Raise TypeError for none."""
    names = ("x", "scale", "zero_point", "bits", "axis", "group")
    defaults = {"zero_point": 0, "bits": 8, "axis": None, "group": None}
    values = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    values.pop("q", None)
    return {name: values[name] if name in values else defaults[name] for name in names[1:]}


def pair_of(node: Any) -> Pair | None:
    """Return the pair that a node ends."""
    if not calls(node, dequantize) or not node.args or not calls(node.args[0], quantize) or not node.args[0].args:
        return None
    q = node.args[0]
    try:
        return Pair(q, q.args[0], (operands(q), operands(node)))
    except KeyError:
        return None


class Reading:
    """What the judge reads off the graphs before and after."""

    def __init__(self, before: fx.GraphModule, after: fx.GraphModule, grids: dict[str, tuple[float, int]]):
        self.before, self.after, self.grids = before, after, grids
        terms = Terms()
        self.old, self.new = terms.of(before), terms.of(after)
        self.roots = {self.old[node]: (node, reason) for node, reason in values_of_layers(before).items()}
        self.names = {number: node.name for node, number in reversed(self.old.items())}
        self.live = live(after)

    def layer_weights(self) -> set[int]:
        weights: list[Any] = [node.args[1] for node in self.live if self.weighted(node)]
        return {self.new[weight] for weight in weights}

    @staticmethod
    def weighted(node: fx.Node) -> bool:
        return calls(node, F.linear) or calls(node, F.conv2d)

    def reads(self) -> Iterator[tuple[fx.Node, fx.Node, bool]]:
        """Yield reader, operand and whether the operand is the weight of a layer; not the reads of pairs."""
        for node in self.live:
            if not calls(node, quantize) and not calls(node, dequantize):
                for operand in node.all_input_nodes:
                    yield node, operand, self.weighted(node) and operand is node.args[1]

    def why_changed(self) -> str:
        """Return what differs from the graph without the pairs, or which grid is wrong."""
        old = Counter(self.old[node] for node in live(self.before) if node.op.startswith("call_"))
        new = Counter(
            self.new[node]
            for node in self.live
            if node.op.startswith("call_") and node.target not in (quantize, dequantize)
        )
        if key := next((number for number in old if new[number] != old[number]), None):
            return f"Without the pairs, {self.names[key]} is there {plural(new[key], 'time')}; it was {old[key]}."
        if extra := next(
            (node for node in self.live if self.new[node] not in self.names and not self.scale(node)), None
        ):
            return f"{extra.name} computes what the graph did not."
        if self.new[self.after.graph.output_node()] != self.old[self.before.graph.output_node()]:
            return "The results are others, or in another order."
        return next(filter(None, map(self.why_wrong_grid, self.live)), "")

    def scale(self, node: fx.Node) -> bool:
        """Return whether a node is a scale, which only pairs read."""
        return node.op == "get_attr" and all(user.target in (quantize, dequantize) for user in node.users)

    def why_wrong_grid(self, node: fx.Node) -> str:
        pair = pair_of(node)
        if pair is None:
            return ""
        if pair.value.op == "get_attr":
            return self.why_wrong_scales(pair) if self.new[pair.value] in self.layer_weights() else ""
        name = self.names.get(self.new[pair.value], "")
        if name not in self.grids:
            return ""
        scale, zero_point = self.grids[name]
        right = {"scale": scale, "zero_point": zero_point, "bits": 8, "axis": None, "group": None}
        for part, noun in zip(pair.grids, ("quantize", "dequantize"), strict=True):
            if wrong := next((key for key in right if part[key] != right[key]), None):
                return f"The {noun} of {name} has the {wrong} {shown(part[wrong])}; {name} has {shown(right[wrong])}."
        return ""

    def why_wrong_scales(self, pair: Pair) -> str:
        name = str(pair.value.target)
        scales = weight_scales(attribute(self.after, name).detach())
        for part, noun in zip(pair.grids, ("quantize", "dequantize"), strict=True):
            rest = part["zero_point"], part["bits"], part["group"]
            if rest != (0, 8, None) or part["axis"] not in (0, -attribute(self.after, name).dim()):
                return f"The {noun} of {name} should have the zero point 0, 8 bits and axis=0."
            value = constant_of(self.after, part["scale"])
            if not isinstance(value, Tensor) or value.shape != scales.shape or not torch.allclose(value, scales):
                return f"The {noun} of {name} should have the scales weight_scales(…), one for each output."
        return ""

    def why_incomplete(self) -> str:
        for reader, operand, weight in self.reads():
            if pair_of(operand) is not None:
                continue
            if weight:
                return f"{reader.name} reads its weight {operand.name} without a pair."
            if self.new[operand] in self.roots and operand.op != "get_attr":
                node, reason = self.roots[self.new[operand]]
                return f"{reader.name} should read the pair of {node.name}, not {node.name} itself: {reason}."
        for number, (node, reason) in self.roots.items():
            if not any(self.new[x] == number and pair_of(x) for x in self.live):
                return f"{node.name} has no pair, but needs one: {reason}."
        return ""

    def why_too_much(self) -> str:
        weights = self.layer_weights()
        for node in self.live:
            if calls(node, quantize) or calls(node, dequantize):
                if self.new[node] not in self.roots and self.new[node] not in weights:
                    return f"{self.names.get(self.new[node], node.name)} needs no pair: remove it."
                if calls(node, dequantize) and pair_of(node) is None:
                    return f"{node.name} is a dequantize of what is not quantized."
                if calls(node, quantize) and not any(calls(user, dequantize) for user in node.users):
                    return f"{node.name} is a quantize without a dequantize."
        for reader, operand, weight in self.reads():
            if not weight and pair_of(operand) is not None and self.new[operand] not in self.roots:
                weight_name = self.names[self.new[operand]]
                return f"{reader.name} reads {weight_name} through the pair of a weight; it is not a layer."
        return ""

    def why_doubled(self) -> str:
        for function in (quantize, dequantize):
            nodes = [node for node in self.live if calls(node, function)]
            counts = Counter(self.new[node] for node in nodes)
            if twice := next((node for node in nodes if counts[self.new[node]] > 1), None):
                name = self.names.get(self.new[twice], twice.name)
                return f"{name} has {plural(counts[self.new[twice]], f'{function.__name__} node')}; one is enough."
        return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    before, grids = case.build()
    broken = why_not_valid(before, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    reading = Reading(before, value, grids)
    for verdict, reason in (
        ("same", reading.why_changed()),
        ("spared", reading.why_too_much()),
        ("did", reading.why_incomplete()),
        ("cost", reading.why_doubled()),
    ):
        yield Finding(verdict, not reason, reason, before=before, after=value)
