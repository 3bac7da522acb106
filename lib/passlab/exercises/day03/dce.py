"""Day 3, dead code elimination: visible cases and judge."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from passlab.fx.cases import case, expecting, graph, least, most, store
from passlab.judge import Case

UNREAD = "It is unused and has no effect."
WRITES = "It writes into memory that is read later: its own result being unused says nothing."
STAYS = "An assertion is meant to stop the program; its result is always unused."
MOVES = "It advances the random generator: without it, all later draws change."


@case(
    "a dead chain",
    graph(..., (2, 4), w=(4,), lin=lambda: nn.Linear(4, 4)),
    did=[most(op, 0, UNREAD, dead=True) for op in ("tanh", "mul", "Linear", "chunk", "getitem", "get_attr")],
)
def chain(m: Any, x: Any) -> Any:
    a = torch.relu(x)
    unused = torch.tanh(a) * m.w
    m.lin(unused + 1).chunk(2, -1)[0]
    return a


@case(
    "four ways to write",
    graph(..., (2, 3)),
    did=[most("tanh", 0, UNREAD, dead=True)],
    spared=[least(op, 1, WRITES) for op in ("add_", "setitem", "relu", "add")],
)
def writing(m: Any, x: Any) -> Any:
    y = x * 2
    torch.tanh(y)
    y.add_(1)
    store(y, 0, 0.0)
    F.relu(y, inplace=True)
    torch.add(x[0], 1, out=y[1])
    return y


@case(
    "an assertion",
    graph(..., (2, 3)),
    did=[most("tanh", 0, UNREAD, dead=True)],
    spared=[least("_assert", 1, STAYS)],
)
def asserting(m: Any, x: Any) -> Any:
    torch._assert(x.dim() == 2, "two dimensions, please")
    torch.tanh(x)
    return x + 1


@case(
    "an unused draw",
    graph(..., (2, 3)),
    did=[most("exp", 0, UNREAD, dead=True)],
    spared=[least("rand_like", 1, MOVES)],
)
def drawing(m: Any, x: Any) -> Any:
    torch.rand_like(x)
    torch.exp(x)
    return F.dropout(x, 0.5, True)


unused_input = case(
    "an unused input",
    graph(lambda m, x, mask: torch.sigmoid(x), (2, 3), (2, 3)),
    spared=[least("placeholder", 2, "Inputs belong to the program's signature, even if they are unused.")],
)


def smaller_cases() -> list[Case]:
    """Return the cases in which nothing has effects besides the inputs and the output."""
    limits = {"tanh": 0, "mul": 0, "sum": 0, "exp": 1}

    @case(
        "dead and live consumers",
        graph(..., (2, 4)),
        did=[most(op, number, "It is unused.", dead=True) for op, number in limits.items()],
        spared=[least("relu", 1, "It is used."), least("exp", 1, "One of the two is used.")],
    )
    def forked(m: Any, x: Any) -> Any:
        a = torch.relu(x)
        (torch.tanh(a) * torch.exp(x)).sum()
        return a + torch.exp(x)

    return [chain, unused_input, forked]


judge = expecting()
