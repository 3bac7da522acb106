"""Day 5, what lives when: visible cases, and a judge that runs the graph on tensors without numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passlab.fx.cases import graph, store
from passlab.judge import Case, Finding, as_decorator, cases_in, listed, shown
from passlab.judge.forms import excerpt, why_not_names, why_not_of_type
from passlab.memory.storages import Storage, storages


@as_decorator
def live_case(
    name: str, build: Callable[[], fx.GraphModule], *inputs: tuple[int, ...] | Tensor | Callable[[], Tensor]
) -> Case:
    """Return a case: a graph and inputs for it, each a shape, a tensor, or a function that returns one."""

    def tensor(like: tuple[int, ...] | Tensor | Callable[[], Tensor]) -> Tensor:
        if isinstance(like, Tensor):
            return like.clone()
        return torch.ones(like) if isinstance(like, tuple) else like()

    return Case(name, lambda: (build(), [*map(tensor, inputs)]))


@live_case("a chain", graph(..., (2, 3)), (2, 3))
def chain(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    z = torch.tanh(y)
    torch.exp(x)
    return z + 1


@live_case("views", graph(..., (3, 3)), (3, 3))
def views(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    rows = y.view(-1)
    first, second = rows[:3], y.t()
    z = torch.exp(x)
    return z + first + second.reshape(-1)[:3]


@live_case("in place", graph(..., (2, 3)), (2, 3))
def in_place(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x * 2
    z = y.add_(1)
    store(y, 0, 0.0)
    w = torch.exp(x)
    return w * F.relu(z, inplace=True)


@live_case("pieces of one result", graph(..., (2, 4), lin=lambda: nn.Linear(4, 4)), (2, 4))
def pieces(m: Any, x: fx.Proxy) -> tuple:
    a, b = m.lin(x).chunk(2, -1)[0], m.lin(x).split(2, -1)[1]
    return a, torch.sigmoid(a), b.sum()


@live_case("memory of the caller", graph(..., (3, 3), w=(2, 2)), (3, 3))
def of_the_caller(m: Any, x: fx.Proxy) -> tuple:
    y = x.t()
    x.add_(1)
    w = m.w.view(-1)
    return y, w, x[0] * 2


def cases() -> list[Case]:
    return [*cases_in(__name__)]


def expected(gm: fx.GraphModule, inputs: list[Tensor]) -> tuple[dict[str, tuple[int, int, int]], list[Storage]]:
    """Return name → (lower, upper, bytes) of what the graph makes, and all storages."""
    every = storages(gm, *inputs)
    own = [s for s in every if s.kind == "value" and s.size]
    return {s.name: (s.touched[0], s.touched[-1] + 1, s.size) for s in own}, every


def judge(case: Case, value: Any) -> Iterator[Finding]:
    gm, inputs = case.build()
    names = [node.name for node in gm.graph.nodes]
    broken = _no_ranges(names, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    ranges, every = expected(gm, inputs)
    owner = {name: storage for storage in every for name in storage.values}
    late, long = _too_short(names, ranges, owner, value), _too_long(names, ranges, owner, value)
    yield Finding("did", not late, late, mark=(late.split()[0],) if late else ())
    yield Finding("spared", not long, long, mark=(long.split()[0],) if long else ())


def _no_ranges(names: list[str], value: Any) -> str:
    if wrong := why_not_of_type(value, "a dict from a node's name to (lower, upper, bytes)", dict):
        return wrong
    if wrong := why_not_names(value, names):
        return wrong
    for name, numbers in value.items():
        if type(numbers) not in (tuple, list) or len(numbers) != 3 or any(type(n) is not int for n in numbers):
            return f"The range of {name} must be three ints, (lower, upper, bytes); it is {excerpt(numbers)}."
        lower, upper, size = numbers
        if not 0 <= lower < upper <= len(names):
            steps = f"the steps are 0 to {len(names) - 1}"
            return f"[{shown(lower)}, {shown(upper)}) is not a range of steps for {name}: {steps}."
        if size < 0:
            return f"{name} cannot have {shown(size)} bytes."
    return ""


def _too_short(names: list[str], ranges: dict, owner: dict[str, Storage], value: dict) -> str:
    for name, (lower, upper, size) in ranges.items():
        if name not in value:
            return f"{name} makes {size} bytes of its own, and is missing."
        start, end, nbytes = value[name]
        if start > lower:
            return f"{name} is made in step {lower}; your range begins at {start}."
        if end < upper:
            shared = [other for other in owner_values(owner, name) if other != name]
            also = f" Its memory is also that of {listed(shared)}." if shared else ""
            return f"{name} is touched in step {upper - 1} by {names[upper - 1]}; your range ends at {end}.{also}"
        if nbytes < size:
            return f"{name} has {size} bytes; you say {nbytes}."
    return ""


def owner_values(owner: dict[str, Storage], name: str) -> list[str]:
    return owner[name].values if name in owner else []


def _too_long(names: list[str], ranges: dict, owner: dict[str, Storage], value: dict) -> str:
    for name, (start, end, nbytes) in value.items():
        if name not in ranges:
            storage = owner.get(name)
            if storage is None or not storage.size:
                return f"{name} makes no memory."
            if storage.kind != "value":
                return f"{name} is in memory of the caller, {storage.name}: leave it out."
            return f"{name} is in the storage of {storage.name}: it has none of its own."
        lower, upper, size = ranges[name]
        if start < lower:
            return f"{name} is made in step {lower}; your range begins at {start}."
        if end > upper:
            return (
                f"{name} is touched for the last time in step {upper - 1}, by {names[upper - 1]}; "
                f"your range ends at {end}."
            )
        if nbytes > size:
            return f"{name} has {size} bytes; you say {shown(nbytes)}."
    return ""
