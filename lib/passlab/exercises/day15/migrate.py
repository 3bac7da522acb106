"""Day 15, outliers from activations into weights: visible cases and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from passlab.exercises.day15._results import why_not_alike, why_not_near
from passlab.fx.cases import call, graph
from passlab.fx.judge import why_not_valid
from passlab.fx.nodes import attribute, op_name
from passlab.fx.values import values_of
from passlab.judge import Case, Finding

#: How far a value may be off, relative to the largest one of its channel.
ROUNDING = 1e-4
#: The least maximum of a channel.
LEAST = 1e-5
#: What a case decides in which nothing may move.
STAYS = ("valid", "same", "spared")


def migrate_case(
    name: str, *shapes: Any, alpha: float = 0.5, about: tuple[str, ...] = (), **parts: Any
) -> Callable[[Callable], Case]:
    """Return a decorator that makes a case of a program `body(m, *inputs)`; see `passlab.fx.cases.graph`.

    The answer gets the graph, the maxima of all channels, and alpha.
    """

    def case(body: Callable) -> Case:
        build = graph(body, *shapes, **parts)
        return Case(name, lambda: (gm := build(), maxima(gm), alpha), about)

    return case


def maxima(gm: fx.GraphModule) -> dict[str, Tensor]:
    """Return node → the largest magnitude in each index of the last dimension, of nodes that return tensors."""
    values = values_of(gm, gm.meta["inputs"]).items()
    return {n.name: v.abs().flatten(0, -2).amax(0) for n, v in values if isinstance(v, Tensor) and v.dim() > 1}


def hot(*channels: int, width: int = 8, size: float = 50.0) -> Tensor:
    """Return ones, with a few large numbers among them."""
    value = torch.ones(width)
    value[list(channels)] = size
    return value


def normed(m: Any, x: Any) -> Any:
    """Return the layer norm of x over 8 numbers, called by position."""
    return call(F.layer_norm, x, (8,), m.g, m.b)


@migrate_case("a norm and a layer", (6, 8), g=hot(2, 5), b=(8,), w=(4, 8))
def one(m: Any, x: Any) -> Any:
    return F.linear(normed(m, x), m.w)


@migrate_case("a norm and three layers", (2, 6, 8), alpha=0.75, g=hot(1), b=(8,), q=(8, 8), k=(8, 8), v=(8, 8), c=(8,))
def three(m: Any, x: Any) -> Any:
    y = normed(m, x)
    return torch.tanh(F.linear(y, m.q, m.c)) * torch.tanh(F.linear(y, m.k)) + F.linear(y, m.v)


@migrate_case("two layers and a relu", (6, 8), w=(5, 8), b=(5,), v=(3, 5))
def two_layers(m: Any, x: Any) -> Any:
    return F.linear(torch.relu(F.linear(x, m.w, m.b)), m.v)


@migrate_case("something else reads the norm", (6, 8), g=hot(2), b=(8,), w=(8, 8), about=STAYS)
def residual(m: Any, x: Any) -> Any:
    y = normed(m, x)
    return y + torch.tanh(F.linear(y, m.w))


# ---------------------------------------------------------------------------------------------------- the laws


def constant(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "get_attr"


def layer(node: Any) -> bool:
    """Return whether a node is a linear layer of constants."""
    return node.target is F.linear and all(part is None or constant(part) for part in node.args[1:])


def norm(node: Any) -> bool:
    """Return whether a node is a layer norm over one dimension with weight and bias."""
    parts = node.args
    return node.target is F.layer_norm and len(parts) > 3 and len(parts[1]) == 1 and all(map(constant, parts[2:4]))


def factors(gm: fx.GraphModule, largest: Mapping[str, Tensor], alpha: float) -> dict[fx.Node, Tensor]:
    """Return node → by what its value is divided: the layers and norms from which factors move, and relus behind."""
    result: dict[fx.Node, Tensor] = {}
    for node in gm.graph.nodes:
        if not layer(node) and not norm(node):
            continue
        way = [node]
        while [user.target for user in way[-1].users] == [torch.relu]:
            way += way[-1].users
        readers = list(way[-1].users)
        if readers and all(layer(user) and user.args[0] is way[-1] for user in readers):
            weights = torch.cat([attribute(gm, user.args[1].target) for user in readers]).abs().amax(0)
            s = largest[way[-1].name].clamp(min=LEAST) ** alpha / weights.clamp(min=LEAST) ** (1 - alpha)
            result |= dict.fromkeys(way, s)
    return result


def calls(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op.startswith("call_")]


def why_not_kept(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return which call differs, other than in its constants, or ""."""
    old, new = calls(before), calls(after)
    if len(old) != len(new):
        return f"The graph had {len(old)} calls, and has {len(new)}: only constants may change."
    pairs = dict(zip(old, new, strict=True))
    for a, b in pairs.items():
        if op_name(a, before) != op_name(b, after):
            return f"{a.name} calls {op_name(a, before)}; in its place {b.name} calls {op_name(b, after)}."
        operands = [(pairs.get(x, x), y) for x, y in zip(a.args, b.args, strict=False) if isinstance(x, fx.Node)]
        if len(a.args) != len(b.args) or any(x is not y for x, y in operands if x in new):
            return f"{b.name} has other operands than {a.name} had."
    return ""


def why_not_divided(before: fx.GraphModule, after: fx.GraphModule, by: Mapping[fx.Node, Tensor], moved: bool) -> str:
    """Return which value is not what it was, divided by its factor; `moved`: of those with a factor, or of others."""
    inputs = before.meta["inputs"]
    old, new = values_of(before, inputs), values_of(after, inputs)
    for a, b in zip(calls(before), calls(after), strict=True):
        if (a in by) != moved or not isinstance(old[a], Tensor) or old[a].dim() == 0:
            continue
        value = old[a] / by.get(a, torch.ones(()))
        off = (new[b] - value).abs().flatten(0, -2 if value.dim() > 1 else 0).amax(0)
        most = value.abs().flatten(0, -2 if value.dim() > 1 else 0).amax(0)
        bad = ~(off <= ROUNDING * most.clamp(min=1e-3 * float(most.max())))
        if bad.any():
            at = int(bad.flatten().nonzero()[0])
            target = f"the largest magnitude should be {float(most.flatten()[at]):.4g}"
            return f"In channel {at} of {a.name} {target}; a value differs by {float(off.flatten()[at]):.2g}."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    before, largest, alpha = case.build()
    broken = why_not_valid(before, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    wrong = why_not_alike(before, value, before.meta["inputs"], why_not_near(ROUNDING))
    yield Finding("same", not wrong, wrong, before=before, after=value)
    if wrong:
        return
    by = factors(before, largest, alpha)
    changed = why_not_kept(before, value)
    stays = changed or why_not_divided(before, value, by, moved=False)
    yield Finding("spared", not stays, stays, before=before, after=value)
    if not changed:
        wrong = why_not_divided(before, value, by, moved=True)
        yield Finding("did", not wrong, wrong, before=before, after=value)
