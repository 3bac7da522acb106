"""Shared parts of the day 1 exercises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from passlab import trace, view
from passlab.fx.cases import seeded
from passlab.given.day01._shared import MOST_CALLS, TooMuch
from passlab.judge import Case, Finding
from passlab.judge.forms import why_not_names, why_not_of_type
from passlab.judge.words import shown

LADDER = 60
CHAIN = 1_200


def net(forward: Callable, **parts: nn.Module | torch.Tensor) -> nn.Module:
    """Return a module in eval mode with the given parts and `forward(self, x, …)`; tensors become buffers."""
    model = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
            model.register_buffer(name, part)
        else:
            setattr(model, name, part)
    return model.eval()


def traced(make: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[], tuple]:
    """Return a case's `build`: it makes the module's graph, with shapes propagated from inputs of the given shapes."""

    def build() -> tuple:
        inputs = seeded(lambda: tuple(torch.randn(shape) for shape in shapes), 1)()
        return (trace(seeded(make)(), *inputs),)

    return build


def from_edges(reads: list[list[int]], op: Callable[[int], Any]) -> fx.GraphModule:
    """Return a graph whose node 0 is the input and whose node i reads `reads[i]`; every value is a (2, 2) tensor."""
    graph = fx.Graph()
    nodes = [graph.placeholder("x")]
    for sources in reads[1:]:
        nodes.append(graph.call_function(op(len(sources)), tuple(nodes[j] for j in sources)))
    graph.output(nodes[-1])
    meta = _extract_tensor_metadata(torch.zeros(2, 2))
    for node in graph.nodes:
        node.meta["tensor_meta"] = meta
    return fx.GraphModule(nn.Module(), graph)


def _op(operands: int) -> Callable:
    return torch.relu if operands == 1 else torch.add


def ladder() -> tuple:
    """Return a row of diamonds: few nodes, 2 ** LADDER paths from the input to the output."""
    reads: list[list[int]] = [[]]
    for _ in range(LADDER):
        top = len(reads) - 1
        reads += [[top], [top], [top + 1, top + 2]]
    return (from_edges(reads, _op),)


def chain() -> tuple:
    """Return CHAIN operations in a row, and an addition that joins the input with their end."""
    return (from_edges([[]] + [[i] for i in range(CHAIN)] + [[0, CHAIN]], _op),)


TOO_MUCH = {
    "calls": f"More than {MOST_CALLS:,} function calls on a graph of {{nodes:,}} nodes: the work is repeated for every "
    "path. Store the result for each node, so that each node is processed only once.",
    "depth": "This graph is {nodes:,} nodes deep, too deep for Python's recursion limit. "
    "gm.graph.nodes lists every node after the nodes it reads: one loop in that order needs no recursion.",
    "data": "Your code ran an operation on real data. Tensors made with device='meta' have a shape and a dtype but no "
    "data; convert weights with tensor.to('meta').",
}


def excess(value: TooMuch, gm: fx.GraphModule) -> Finding:
    """Return the finding for too much work on a graph."""
    return Finding("cost", False, TOO_MUCH[value.what].format(nodes=len(gm.graph.nodes)))


def line(gm: fx.GraphModule, name: str) -> str:
    """Return a node as one line of Python, as in the drawings: `add = add(x, linear)`."""
    return f"`{view(gm).node(name).text}`"


def cost_cases() -> list[Case]:
    return [
        Case(f"{LADDER} diamonds in a row: 2^{LADDER} paths", ladder, ("cost",)),
        Case(f"{CHAIN:,} operations in a row", chain, ("cost",)),
    ]


def why_not_pairs(value: Any, form: str, nodes: dict, holder: str) -> str:
    """Return why a value is not a collection of pairs of names, each in one order. `holder`: what holds them."""
    if reason := why_not_of_type(value, form, set, frozenset, list, tuple):
        return reason
    pairs = set()
    for pair in value:
        if not isinstance(pair, tuple | list | frozenset | set) or len(pair) != 2:
            return f"{holder} holds {shown(pair)}, which is not a pair."
        if reason := why_not_names(pair, nodes, holder):
            return reason
        a, b = pair
        if a != b and (b, a) in pairs:
            return f"{holder} holds {a} and {b} in both orders. Give each pair once."
        pairs.add((a, b))
    return ""
