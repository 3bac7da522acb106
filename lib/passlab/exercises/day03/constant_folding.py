"""Day 3, constant folding: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.fx.cases import case, expecting, graph, least, live, most, nodes, read
from passlab.fx.nodes import attribute
from passlab.judge import Case, Finding, core, listed
from passlab.judge.expect import Expectation


def constants(limit: int, why: str) -> Expectation:
    """Expect that no constant made by the pass is larger than `limit` bytes."""

    def sizes(gm: fx.GraphModule) -> dict[str, int]:
        read = {n.target: attribute(gm, n.target) for n in gm.graph.nodes if n.op == "get_attr"}
        return {name: getattr(value, "nbytes", 0) for name, value in read.items()}

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        big = {name: size for name, size in sizes(after).items() if size > limit and name not in sizes(before)}
        if not big:
            return None
        return f"{why} {listed(list(big))} takes {max(big.values()):,} bytes; the limit is {limit:,}."

    return law


def buffers(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
    """Expect that what the pass made is held in buffers."""
    old = {n.target for n in before.graph.nodes if n.op == "get_attr"}
    buffer_names = {name for name, _ in after.named_buffers(remove_duplicate=False)}
    loose = [n for n in after.graph.nodes if n.op == "get_attr" and n.target not in old | buffer_names]
    if not loose:
        return None
    return f"{listed([n.target for n in loose])} should be a buffer: gm.register_buffer(name, value)."


def still_read(name: str, why: str) -> Expectation:
    """Expect that an attribute is still read under its own name."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        return None if any(n.op == "get_attr" and n.target == name for n in live(after)) else why

    return law


NEVER = "It has the same value on every call, so it can be computed now."
DRAWS = "rand_like has only constant operands, but every call draws new numbers: it is not a constant."
LEFT = "An unused constant still takes memory. Erase it."
D = torch.tensor(16.0)


@core
@case(
    "plain: one operation on a weight",
    graph(..., (2, 3), w=(3,)),
    did=[most("tanh", 0, NEVER)],
    cost=[nodes(4, LEFT, dead=True)],
)
def plain(m: Any, x: Any) -> Any:
    return x + torch.tanh(m.w)


@core
@case(
    "plain: an expression of two weights",
    graph(..., (2, 3), w=(3,), b=(3,)),
    did=[most("exp", 0, NEVER), most("mul", 1, NEVER), most("sub", 0, NEVER)],
    cost=[nodes(6, LEFT, dead=True)],
)
def plain_expression(m: Any, x: Any) -> Any:
    return torch.tanh(torch.relu(x)) * (torch.exp(m.w) - m.b * 2)


@case(
    "a weight transposed, 1/sqrt(d)",
    graph(..., (2, 3), w=(4, 3), d=D, b=(4,)),
    did=[most(op, 0, NEVER) for op in ("t", "sqrt", "truediv", "tanh")] + [most("mul", 1, NEVER), buffers],
    cost=[nodes(8, LEFT, dead=True)],
)
def attention(m: Any, x: Any) -> Any:
    return (x @ m.w.t()) * (1 / torch.sqrt(m.d)) + torch.tanh(m.b) * 2


@case(
    "numbers, and a layer's weight",
    graph(..., (2, 4), lin=lambda: nn.Linear(4, 4)),
    did=[most(op, 0, "The shape of a weight never changes.") for op in ("size", "pow")],
)
def numbers(m: Any, x: Any) -> Any:
    w = m.lin.weight
    return (x @ w).reshape(-1, w.size(0)) * w.size(-1) ** -0.5


@case(
    "noise",
    graph(..., (4, 3), w=(4, 3)),
    did=[most("exp", 0, NEVER)],
    spared=[least("rand_like", 1, DRAWS), least("dropout", 1, DRAWS.replace("rand_like", "dropout"))],
)
def noise(m: Any, x: Any) -> Any:
    return x + torch.rand_like(m.w) * torch.exp(m.w) + F.dropout(m.w, 0.5, True)


@case(
    "larger than the limit",
    graph(..., (32, 32), u=(32,), v=(32,)),
    2048,
    did=[most("exp", 0, NEVER), most("sum", 0, NEVER)],
    spared=[constants(2048, "Two vectors of 128 bytes make a matrix of 4,096: folding it multiplies the memory.")],
)
def outer(m: Any, x: Any) -> Any:
    return x * (m.u.reshape(-1, 1) * m.v) + torch.exp(m.u).sum()


@case(
    "too large to be computed at all",
    graph(..., (2, 3), u=(64,)),
    2048,
    spared=[least("mul", 2, "The product has 16,384 bytes.")],
)
def largest(m: Any, x: Any) -> Any:
    return x * (m.u.reshape(-1, 1) * m.u).amax()


@case(
    "a counter",
    graph(..., (2, 3), steps=torch.zeros(3), b=(3,)),
    did=[most("exp", 0, NEVER)],
    spared=[
        least("add_", 1, "add_ writes into a parameter, and the next call sees it."),
        least("mul", 2, "The program writes into the buffer that this reads, so the value differs on every call."),
    ],
)
def counter(m: Any, x: Any) -> Any:
    read(x, "steps").add_(1)
    return x * (read(x, "steps") * 2) + torch.exp(m.b)


_laws = expecting()


def judge(case: Case, value: object) -> Iterator[Finding]:
    """Judge as `expecting` does, and look for buffers in what was returned: rebuilding makes one of each tensor."""
    for finding in _laws(case, value):
        asked = finding.verdict == "did" and finding.ok and buffers in case.expect.did
        if asked and isinstance(value, fx.GraphModule):
            reason = buffers(case.build()[0], value)
            finding = Finding("did", reason is None, reason or "", before=finding.before, after=finding.after)
        yield finding
