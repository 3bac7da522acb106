"""Day 3, common subexpression elimination: visible cases and judge."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from passlab.fx.cases import case, expecting, graph, least, most, read
from passlab.judge import core

ONCE = "The same value is computed more than once."
OTHER = "They differ in an operand, a keyword or the type of a number: they do not have the same value."
DRAWS = "Your CSE merged two random draws, but each call draws new numbers."
WROTE = "The program writes between these two reads: they read the same memory at different times."


@core
@case("plain: one call twice", graph(..., (2, 3)), did=[most("exp", 1, ONCE, dead=True), most("sum", 1, ONCE)])
def plain(m: Any, x: Any) -> Any:
    return torch.sum(torch.exp(x), dim=1, keepdim=True) * torch.sum(torch.exp(x), dim=1, keepdim=True)


@core
@case(
    "plain: look-alikes",
    graph(..., (2, 3), (2, 3)),
    spared=[least("mul", 2, OTHER), least("sub", 2, OTHER), least("softmax", 2, OTHER)],
)
def plain_look_alikes(m: Any, x: Any, y: Any) -> tuple:
    return x * 2, x * 3, x - y, y - x, F.softmax(x, dim=0), F.softmax(x, dim=1)


@case(
    "the same, twice",
    graph(..., (2, 3), w=(3, 4), b=(4,), lin=lambda: nn.Linear(4, 4)),
    did=[most(op, 1, ONCE, dead=True) for op in ("matmul", "relu", "Linear")] + [most("get_attr", 2, ONCE, dead=True)],
)
def products(m: Any, x: Any) -> Any:
    a = torch.relu(torch.add(x @ m.w, m.b, alpha=2))
    b = torch.relu(torch.add(x @ read(x, "w"), read(x, "b"), alpha=2))
    return m.lin(a) + m.lin(b)


@case("lists and slices", graph(..., (2, 4)), did=[most("cat", 1, ONCE), most("getitem", 2, ONCE)])
def nested(m: Any, x: Any) -> Any:
    left = torch.cat([x[:, 1:3], x[:, :2]], 1)
    return left * torch.cat([x[:, 1:3], x[:, :2]], 1)


@case(
    "look-alikes",
    graph(..., (3, 3), torch.arange(3)),
    spared=[least("softmax", 2, OTHER), least("add", 6, OTHER)],
)
def look_alikes(m: Any, x: Any, n: Any) -> tuple:
    softmaxes = F.softmax(x, dim=0) + F.softmax(x, dim=1)
    sums = torch.add(x, x, alpha=2) - torch.add(x, x, alpha=3)
    return softmaxes, sums, n + 1, n + 1.0, n + True


@case(
    "two dropouts",
    graph(..., (2, 3)),
    spared=[least("dropout", 2, DRAWS), least("rand_like", 2, DRAWS)],
)
def draws_twice(m: Any, x: Any) -> Any:
    return F.dropout(x, 0.5, True) + F.dropout(x, 0.5, True) + torch.rand_like(x) * torch.rand_like(x)


@case("a write in between", graph(..., (2, 3)), spared=[least("sum", 2, WROTE)])
def between(m: Any, x: Any) -> Any:
    y = torch.relu(x)
    first = y.sum(1, keepdim=True)
    y.add_(1)
    return first * y.sum(1, keepdim=True)


@case(
    "twins that part",
    graph(..., (2, 3)),
    spared=[least("add", 2, "One of the two is written later, the other is not: they must stay separate tensors.")],
)
def parting(m: Any, x: Any) -> tuple:
    a, b = x + 1, x + 1
    b.mul_(2)
    return a, b


judge = expecting()
