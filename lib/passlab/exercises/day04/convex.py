"""Day 4: may this group be one kernel? Visible cases, and a judge that checks the witness in the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passlab.fx.cases import graph
from passlab.fx.effects import EFFECTS, effects, memory_order
from passlab.judge import Case, Finding, as_decorator, shown
from passlab.judge.forms import why_not_names


def waits_for(gm: fx.GraphModule) -> dict[fx.Node, list[fx.Node]]:
    """Return, for each node, the earlier nodes it must stay behind: operands, and users of the same memory."""
    return {node: [*node.all_input_nodes, *before] for node, before in memory_order(gm.graph).items()}


def way_back(gm: fx.GraphModule, group: list[str]) -> list[str] | None:
    """Return a path out of the group and back into it, or None."""
    inside = {node for node in gm.graph.nodes if node.name in group}
    came_from: dict[fx.Node, fx.Node] = {}
    for node, before in waits_for(gm).items():
        outside = next((b for b in before if b in came_from), None)
        if node in inside and outside is not None:
            path = [node, outside]
            while path[-1] not in inside:
                path.append(came_from[path[-1]])
            return [step.name for step in reversed(path)]
        if node not in inside:
            step = outside or next((b for b in before if b in inside), None)
            if step is not None:
                came_from[node] = step
    return None


def effectful(gm: fx.GraphModule, group: list[str]) -> list[str]:
    """Return the members that have effects."""
    return [node.name for node in gm.graph.nodes if node.name in group and effects(node)]


def _no_witness(gm: fx.GraphModule, group: list[str], value: list[str]) -> str | None:
    """Return why the answer is not a witness, or None."""
    node_of = {node.name: node for node in gm.graph.nodes}
    if len(value) == 1:
        if value[0] not in group:
            return f"{value[0]} is not in the group."
        kinds = effects(node_of[value[0]])
        return None if kinds else f"{value[0]} has no effect, so it is not a reason."
    for end in (value[0], value[-1]):
        if end not in group:
            return f"A path must start and end in the group; {end} is not in the group."
    if len(value) == 2:
        return f"Between {value[0]} and {value[1]} your path has no node outside the group."
    for name in value[1:-1]:
        if name in group:
            return f"{name} is in the middle of your path but also in the group: only the ends of the path may be."
    before = waits_for(gm)
    for one, next_ in pairwise(value):
        if node_of[one] not in before[node_of[next_]]:
            return f"{next_} neither reads {one} nor has to stay behind it."
    return None


def _invalid(gm: fx.GraphModule, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, list | tuple) or not value:
        return f"The answer is None or a list of names of nodes; it is {shown(value)}."
    return why_not_names(value, {node.name for node in gm.graph.nodes})


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge the obstacle.

    `valid`: None or names of nodes. `did`: a group that cannot be is refused, with a reason. `spared`: one that can be
    is not refused.
    """
    gm, group = case.build()
    broken = _invalid(gm, value)
    yield Finding("valid", not broken, broken, before=gm, mark=tuple(group))
    if broken:
        return
    alone, path = effectful(gm, group), way_back(gm, group)
    path_text = " → ".join(value or ())
    if alone or path:
        reason = ""
        if value is None and alone:
            word = sorted(effects(next(n for n in gm.graph.nodes if n.name == alone[0])))[0]
            reason = f"You allow ({', '.join(group)}) as one kernel, but {alone[0]} has an effect: {EFFECTS[word]}."
        elif value is None:
            reason = f"You allow ({', '.join(group)}) as one kernel, but {_path_text(path)}."
        elif no := _no_witness(gm, group, list(value)):
            reason = f"({', '.join(group)}) cannot be one kernel, but {path_text} does not show it: {no}"
        yield Finding("did", not reason, reason, before=gm, mark=tuple(path or alone))
        return
    no = "" if value is None else _no_witness(gm, group, list(value))
    reason = f"({', '.join(group)}) may be one kernel; your answer was {path_text}. {no}" if no else ""
    yield Finding("spared", not reason, reason, before=gm, mark=tuple(group))


def _path_text(path: list[str]) -> str:
    return (
        f"{' → '.join(path)} leads out of it and back: the kernel would have to run before and after the nodes outside"
    )


@as_decorator
def refused(name: str, build: Callable[[], fx.GraphModule], *group: str) -> Case:
    return Case(name, lambda: (build(), list(group)), ("valid", "did"))


@as_decorator
def allowed(name: str, build: Callable[[], fx.GraphModule], *group: str) -> Case:
    return Case(name, lambda: (build(), list(group)), ("valid", "spared"))


def normalized(m: Any, x: fx.Proxy) -> fx.Proxy:
    e = torch.exp(x)
    return torch.relu(e / e.sum(1, keepdim=True))


def side(m: Any, x: fx.Proxy) -> tuple:
    e = torch.exp(x)
    return e.sum(), e * 2


def round_trip(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.tanh(x) * 2
    b = torch.softmax(a @ m.w, 1).reshape(3, 2).t()
    return torch.relu(b + a)


def strangers(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.exp(x).sum() * torch.tanh(x)


def listed(m: Any, x: fx.Proxy) -> fx.Proxy:
    a = torch.exp(x)
    return torch.maximum(torch.cat([x, a], 1)[:, 3:], a)


def noisy(m: Any, x: fx.Proxy) -> fx.Proxy:
    return torch.relu(F.dropout(x * 2, 0.5, True))


def overwritten(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    a = y * 2
    y.add_(1)
    return y - a


def written_later(m: Any, x: fx.Proxy) -> tuple:
    y = torch.relu(x)
    a = torch.exp(y * 2)
    y.add_(1)
    return a, y


def cases() -> list[Case]:
    shape = (2, 3)
    return [
        refused("there and back", graph(normalized, shape), "exp", "truediv"),
        allowed("a chain", graph(normalized, shape), "truediv", "relu"),
        allowed("the sum is inside", graph(normalized, shape), "exp", "sum_1", "truediv", "relu"),
        allowed("a value leaves", graph(side, shape), "exp", "mul"),
        refused("a long way round", graph(round_trip, shape, w=(3, 3)), "tanh", "mul", "add", "relu"),
        allowed("nothing in common", graph(strangers, shape), "exp", "tanh"),
        refused("through a list", graph(listed, shape), "exp", "maximum"),
        refused("a dropout", graph(noisy, shape), "mul", "dropout", "relu"),
        refused("written in between", graph(overwritten, shape), "mul", "sub"),
        allowed("written afterwards", graph(written_later, shape), "mul", "exp"),
    ]
