"""Day 12, faster: visible cases and judge. Only the grader's own clock counts, and only CPU time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch
from torch import nn

from passlab.capstone.families import drawn
from passlab.exercises.day12._shared import TIMED, Demand, broken_in, examined_case, first_three, graph_case, model_case
from passlab.fx.cases import graph, seeded
from passlab.judge import Case, Finding

#: Rounds of timing. Medians of ratios within a round: what disturbs a round disturbs both.
ROUNDS = 9
#: Eager's share of the time that a convolutional model, and a chain over a large tensor, may take.
IMAGES, CHAIN = 0.95, 0.5
#: How often a model is timed at most, on a machine that others use, too; the least ratio counts.
LOOKS = 3


def chain(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Seven element-wise operations over a tensor that no cache holds."""
    z = torch.relu(x * 1.5 + y)
    return torch.maximum(z - y, x) * 0.25 + z


def chain_case(rows: int, columns: int, seed: int = 0) -> Case:
    make = seeded(graph(chain, (rows, columns), (rows, columns)), seed)
    return graph_case("a chain over a large tensor", make, ("valid", "same", "did"), Demand(ROUNDS, CHAIN))


def image_case(family: str, seed: int) -> Case:
    return model_case(drawn(family, seed), ("valid", "same", "cost"), Demand(ROUNDS, IMAGES))


def cases() -> list[Case]:
    return [chain_case(512, 512), image_case("residual", 1)]


def _ratio(reply: dict) -> float:
    """Return the compiled model's time over eager's: the median over the rounds."""
    return statistics.median(own / eager for own, eager in zip(reply["mine"], reply["eager"], strict=False))


def judge(case: Case, value: object) -> Iterator[Finding]:
    for step in first_three(case, value, time_it=True):
        if isinstance(step, Finding):
            yield step
            continue
        if not (case.asks("did") or case.asks("cost")):
            continue
        ratio = _ratio(step)
        for _ in range(LOOKS - 1):
            if ratio > case.expect.ratio:
                again = examined_case(case, value, *case.build(), case.expect.rounds)
                ratio = min(ratio, math.inf if broken_in(again, TIMED) else _ratio(again))
        fast = ratio <= case.expect.ratio
        slower = "slower than the model as it is" if ratio >= 1 else "not fast enough"
        message = f"It is {slower}: it takes {ratio:.2f} of eager's time; the limit is {case.expect.ratio:g}."
        yield Finding("did" if case.asks("did") else "cost", fast, "" if fast else message)
