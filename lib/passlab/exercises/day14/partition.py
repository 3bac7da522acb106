"""Day 14, the cut: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.equivalence import equivalent
from passlab.exercises.day14._joint import DEAR, Joint, copied, drawn, draws, is_write, traced
from passlab.fx.cases import seeded
from passlab.fx.judge import why_not_valid
from passlab.fx.values import values_of
from passlab.given.day14.partition import NUMBER
from passlab.judge import Case, Finding, plural
from passlab.judge.forms import why_not_a_list


def split_case(
    name: str,
    build: Callable[[], fx.GraphModule],
    once: Collection[Any] = DEAR,
    outputs: int = 2,
    about: tuple[str, ...] = (),
) -> Case:
    """Return a case of a joint graph with `outputs` outputs; `once`: what is not to be computed twice."""
    graph = cache(build)
    return Case(name, lambda: (copied(graph()), outputs, set(once)), about)


def two_layers(x: Tensor, w: Tensor, v: Tensor) -> list[Tensor]:
    return [F.linear(torch.tanh(F.linear(x, w)).exp().sin(), v).softmax(-1)]


def narrow(x: Tensor, y: Tensor) -> list[Tensor]:
    wide = torch.exp(x)
    return [torch.sin(wide[:, :2] * wide[:, 2:4]).cos().square() * y]


def running(x: Tensor, scale: Tensor) -> list[Tensor]:
    old = torch.cat([scale, scale])
    return [(x * old.exp()).sum(), 0.9 * scale + x.detach().mean()]


def masked(x: Tensor, w: Tensor) -> list[Tensor]:
    y = F.linear(x, w).relu()
    return [(y * (torch.rand_like(y) > 0.5)).sum(0)]


def cases() -> list[Case]:
    layers = seeded(lambda: traced(two_layers, {"x": (4, 6), "w": (10, 6), "v": (3, 10)}))
    return [
        split_case("two layers", layers, outputs=1),
        split_case("narrow views", seeded(lambda: traced(narrow, {"x": (5, 8), "y": (5, 2)})), outputs=1),
        split_case(
            "an input is overwritten",
            seeded(lambda: traced(running, {"x": (4, 6)}, {"scale": (3,)})),
            outputs=1,
        ),
        split_case("a random mask", seeded(lambda: traced(masked, {"x": (4, 6), "w": (5, 6)})), outputs=1),
        split_case("a drawn graph", drawn(random.Random(3), 7)),
    ]


@dataclass(frozen=True)
class Parts:
    """The forward and the backward graph of an answer. `saved`: what the forward graph returns after its outputs."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: tuple[fx.Node, ...]

    def joined(self, joint: Joint) -> fx.GraphModule:
        """Return one graph that runs the two, one after the other, with the inputs and results of the joint graph."""
        graph = fx.Graph()
        inputs = {node.name: graph.placeholder(node.name) for node in (*joint.inputs, *joint.tangents)}
        outputs = self._run(graph, self.forward, [inputs[node.name] for node in joint.inputs])
        number = len(outputs) - len(self.saved)
        tangents = [inputs[node.name] for node in joint.tangents]
        graph.output([*outputs[:number], *self._run(graph, self.backward, [*outputs[number:], *tangents])])
        return fx.GraphModule({}, graph)

    @staticmethod
    def _run(graph: fx.Graph, gm: fx.GraphModule, inputs: list[fx.Node]) -> list[Any]:
        copies = dict(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True))
        for node in gm.graph.nodes:
            if node.op == "call_function":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return [copies.get(node) for node in _results(gm)]


def _results(gm: fx.GraphModule) -> list[Any]:
    return list(gm.graph.find_nodes(op="output")[0].args[0])


def _why_not_part(side: str, gm: Any) -> str:
    """Return why a value is not one of the two graphs, or ""."""
    if not isinstance(gm, fx.GraphModule):
        return f"The {side} graph is a {type(gm).__name__}; it must be a GraphModule."
    if reason := why_not_valid(None, gm):
        return f"The {side} graph: {reason}"
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "call_function", "output"):
            return f"Node {node.name} of the {side} graph is a {node.op}: the joint graph has none."
    if not isinstance(gm.graph.find_nodes(op="output")[0].args[0], (list, tuple)):
        return f"The {side} graph returns one value; it must return a list."
    return ""


def why_not_parts(value: Any, joint: Joint, outputs: int) -> str:
    """Return why a value is not a forward and a backward graph of a joint graph, or ""."""
    if reason := why_not_a_list(value, "a pair, the forward and the backward graph", 2):
        return reason
    for side, gm in zip(("forward", "backward"), value, strict=True):
        if reason := _why_not_part(side, gm):
            return reason
    names = [[node.name for node in gm.graph.find_nodes(op="placeholder")] for gm in value]
    inputs = [node.name for node in joint.inputs]
    if names[0] != inputs:
        return (
            f"The forward graph takes ({', '.join(names[0])}); it must take the inputs of the joint graph without the "
            f"tangents, ({', '.join(inputs)})."
        )
    results = [_results(gm) for gm in value]
    gradients = len(joint.results) - outputs
    if len(results[0]) < outputs:
        return f"The forward graph returns {plural(len(results[0]), 'value')}; the joint graph has {outputs} outputs."
    if len(results[1]) != gradients:
        return f"The backward graph returns {plural(len(results[1]), 'value')}; there are {gradients} gradients."
    saved, tangents = results[0][outputs:], [node.name for node in joint.tangents]
    for node in saved:
        if not isinstance(node, fx.Node):
            return f"The forward graph saves {node!r}, which is not a node."
    if len(names[1]) != len(saved) + len(tangents) or names[1][len(saved) :] != tangents:
        return (
            f"The backward graph takes ({', '.join(names[1])}); it must take the {plural(len(saved), 'saved value')} "
            f"({', '.join(node.name for node in saved)}), in this order, and then {', '.join(tangents)}."
        )
    return ""


def overwritten(forward: fx.GraphModule, saved: tuple[fx.Node, ...], values: dict[fx.Node, Any]) -> str:
    """Return which saved value the forward graph writes into, or ""."""
    places = {place(values[node.args[0]]): node for node in forward.graph.nodes if is_write(node)}
    for node in saved:
        if write := places.get(place(values[node])):
            return (
                f"The forward graph saves {node.name} and writes into its memory ({write.name}): the backward graph "
                "reads the new value."
            )
    return ""


def place(value: Any) -> Any:
    """Return the memory of a value."""
    return value.untyped_storage()._cdata if isinstance(value, Tensor) else id(value)


def repeated(parts: Parts, gm: fx.GraphModule, once: Collection[Any]) -> str:
    """Return which operation runs more often than in the joint graph and must not, or ""."""
    targets = {node.target for node in gm.graph.nodes if node.target in once or draws(node)}
    for target in sorted(targets, key=str):
        before = gm.graph.find_nodes(op="call_function", target=target)
        after = [
            node
            for part in (parts.forward, parts.backward)
            for node in part.graph.find_nodes(op="call_function", target=target)
        ]
        if len(after) > len(before):
            law = "draws new numbers" if draws(before[0]) else "is in `once`"
            return (
                f"{target} {law}, and runs {len(after)} times; the joint graph has {plural(len(before), 'such node')}."
            )
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    gm, outputs, once = case.build()
    joint = Joint.of(gm, outputs)
    broken = why_not_parts(value, joint, outputs)
    values: Any = {}
    if not broken:
        forward, backward = value
        parts = Parts(forward, backward, tuple(_results(forward)[outputs:]))
        try:
            values = values_of(forward, gm.meta["inputs"][: len(joint.inputs)])
        except ValueError as error:
            broken = f"The forward graph cannot run: {error}"
    if not broken:
        for node in parts.saved:
            if not isinstance(values[node], (Tensor, int, float)):
                broken = f"The forward graph saves {node.name}, a tuple: save its parts, which `getitem` reads."
    yield Finding("valid", not broken, broken)
    if broken:
        return
    write = next((node for node in backward.graph.nodes if is_write(node)), None)
    wrong = f"{write.name} writes in the backward graph; a write belongs to the forward graph." if write else ""
    wrong = wrong or overwritten(forward, parts.saved, values)
    if not wrong:
        result = equivalent(gm, parts.joined(joint), gm.meta["inputs"])
        wrong = "" if result.ok else result.reason
    yield Finding("same", not wrong, wrong)
    twice = repeated(parts, gm, once)
    yield Finding("spared", not twice, twice)
    if wrong or twice:
        return
    size = saved_bytes([values[node] for node in dict.fromkeys(parts.saved)])
    saved = f"You save {size:,} bytes"
    names = ", ".join(node.name for node in parts.saved) or "nothing"
    simple, least = joint.simple(), joint.least(once)
    yield Finding(
        "did",
        size <= simple,
        f"{saved} ({names}); what the gradients read has {simple:,} bytes, each memory counted once.",
    )
    if case.asks("cost"):
        yield Finding("cost", size <= least, f"{saved} ({names}); {least:,} are enough.")


def saved_bytes(values: list[Any]) -> int:
    """Return the bytes of the memory behind these values: each memory once, and 8 for a number."""
    storages = {place(value): value.untyped_storage().nbytes() for value in values if isinstance(value, Tensor)}
    return sum(storages.values()) + NUMBER * sum(not isinstance(value, Tensor) for value in values)
