"""Day 5, what lives when: visible cases, and a judge that runs the graph on tensors without numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passlab.fx.cases import graph, store
from passlab.judge import Case, Finding, as_decorator, cases_in, listed
from passlab.memory.storages import Storage, storages


@as_decorator
def live_case(name: str, build: Callable[[], fx.GraphModule], *shapes: tuple[int, ...] | Tensor) -> Case:
    """Return a case: a graph and inputs for it."""

    def made() -> tuple:
        inputs = [shape.clone() if isinstance(shape, Tensor) else torch.ones(shape) for shape in shapes]
        return build(), inputs

    return Case(name, made)


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
    found = storages(gm, *inputs)
    own = [s for s in found if s.kind == "value" and s.size]
    return {s.name: (s.touched[0], s.touched[-1] + 1, s.size) for s in own}, found


def judge(case: Case, value: Any) -> Iterator[Finding]:
    gm, inputs = case.build()
    names = [node.name for node in gm.graph.nodes]
    broken = _no_ranges(names, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    wanted, found = expected(gm, inputs)
    owner = {name: storage for storage in found for name in storage.values}
    late, long = _too_short(names, wanted, owner, value), _too_long(names, wanted, owner, value)
    yield Finding("did", not late, late, mark=(late.split()[0],) if late else ())
    yield Finding("spared", not long, long, mark=(long.split()[0],) if long else ())


def _no_ranges(names: list[str], value: Any) -> str:
    if type(value) is not dict:
        return f"Return a dict from a node's name to (lower, upper, bytes); got {str(value)[:60]!r}."
    for name, numbers in value.items():
        if name not in names:
            return f"{str(name)[:40]!r} is no node of the graph."
        if type(numbers) not in (tuple, list) or len(numbers) != 3 or any(type(n) is not int for n in numbers):
            return f"{name}: the value must be three ints, (lower, upper, bytes); it is {str(numbers)[:60]}."
        lower, upper, size = numbers
        if not 0 <= lower < upper <= len(names):
            return f"{name}: [{lower}, {upper}) is no range of steps: the graph has the steps 0 to {len(names) - 1}."
        if size < 0:
            return f"{name}: {str(size)[:40]} bytes are too few."
    return ""


def _too_short(names: list[str], wanted: dict, owner: dict[str, Storage], value: dict) -> str:
    for name, (lower, upper, size) in wanted.items():
        if name not in value:
            return f"{name} makes {size} bytes of its own, and is missing."
        mine = value[name]
        if mine[0] > lower:
            return f"{name} is there from step {lower} on, when it is made; you have it from step {mine[0]} on."
        if mine[1] < upper:
            shared = [other for other in owner_values(owner, name) if other != name]
            also = f" Its memory is also that of {listed(shared)}." if shared else ""
            return f"{name} is touched in step {upper - 1} by {names[upper - 1]}; you give it up before.{also}"
        if mine[2] < size:
            return f"{name} has {size} bytes; you say {mine[2]}."
    return ""


def owner_values(owner: dict[str, Storage], name: str) -> list[str]:
    return owner[name].values if name in owner else []


def _too_long(names: list[str], wanted: dict, owner: dict[str, Storage], value: dict) -> str:
    for name, mine in value.items():
        if name not in wanted:
            storage = owner.get(name)
            if storage is None or not storage.size:
                return f"{name} makes no memory."
            if storage.kind != "value":
                return f"{name} lies in memory of the caller, {storage.name}: it is not ours to place."
            return f"{name} lies in the storage of {storage.name}: it has none of its own."
        lower, upper, size = wanted[name]
        if mine[0] < lower:
            return f"{name} is made in step {lower}; you have it from step {mine[0]} on."
        if mine[1] > upper:
            return (
                f"{name} is touched for the last time in step {upper - 1}, by {names[upper - 1]}; you end at {mine[1]}."
            )
        if mine[2] > size:
            return f"{name} has {size} bytes; you say {str(mine[2])[:30]}."
    return ""
