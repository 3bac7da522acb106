"""Day 12, a compiler: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab.capstone import Counts
from passlab.capstone.families import drawn
from passlab.exercises.day12._shared import counted_steps, graph_case, limit, model_case, saved
from passlab.fx.cases import graph, seeded
from passlab.judge import Case, Finding

_ALL = ("valid", "same", "did", "cost")


def repeated(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A value computed twice, one that nothing uses, and a chain."""
    one, unused = torch.tanh(m.lin(x)), x * 3
    two = torch.tanh(m.lin(x))
    del unused
    return torch.relu(one * two + 1) * 0.5


def noisy(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Dropout in training draws anew each time: two equal calls are two draws."""
    y = F.relu(m.lin(x))
    return F.dropout(y, 0.5, True) + F.dropout(y, 0.5, True)


def written(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A value is read before and after it is written."""
    y = x * 2
    early = y + 1
    y.add_(x)
    return early * (y + 1)


def outer(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A product of two constants is far larger than both."""
    return x + m.column * m.row


def cases() -> list[Case]:
    tried = [
        model_case(drawn("convnet", 1), _ALL),
        model_case(drawn("residual", 2), _ALL),
        model_case(drawn("gpt", 3), _ALL),
        traced("the same value twice", repeated, _ALL),
        traced("dropout in training", noisy, ("valid", "same", "spared"), training=True),
        traced("a value is written", written, ("valid", "same", "spared")),
        graph_case(
            "a large product of small constants",
            seeded(graph(outer, (64, 64), column=(64, 1), row=(1, 64))),
            ("valid", "same", "spared"),
        ),
    ]
    return list(map(counted, tried))


def counted(case: Case) -> Case:
    """Return the case with what its model costs, as it is and compiled, as `expect`. That is found when the case is
    built, once for all who are judged."""

    @cache
    def costs() -> tuple[Counts, Counts]:
        return saved(*case.build())

    def build() -> tuple:
        if case.asks("did") or case.asks("cost"):
            costs()
        return case.build()

    return replace(case, build=build, expect=costs)


def traced(name: str, body, about: tuple[str, ...], seed: int = 0, training: bool = False) -> Case:
    make = graph(body, (16, 24), lin=lambda: nn.Linear(24, 24), training=training)
    return graph_case(name, seeded(make, seed), about)


def judge(case: Case, value: object) -> Iterator[Finding]:
    reply = yield from counted_steps(case, value)
    if reply is None:
        return
    eager, reference = case.expect()
    for verdict, what, unit in (("did", "launches", "launches"), ("cost", "bytes", "bytes")):
        n, most = reply[what], limit(case, getattr(eager, what), getattr(reference, what))
        message = (
            f"It takes {n:,} {unit}, and the model as it is {getattr(eager, what):,}. The course's compiler gets to "
            f"{getattr(reference, what):,}; the limit is {most:,}."
        )
        yield Finding(verdict, n <= most, "" if n <= most else message, before=reply["before"], after=_graph(value))


def _graph(value) -> fx.GraphModule:
    return value.graph
