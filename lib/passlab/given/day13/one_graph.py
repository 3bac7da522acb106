"""Day 13, one graph: functions with control flow, as steps from one state to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from passlab.judge.travel import record


@record
@dataclass(frozen=True)
class If:
    """One of two graphs is run. The state, a few tensors, is what all graphs of a step take, in the same order.

    `predicate`: returns a bool, as a tensor without dimensions. `yes`, `no`: return the new state, a tuple. `safe`: a
    number for each tensor of the state; if all its elements are that, `yes` and `no` and their gradients are finite.
    """

    predicate: Any
    yes: Any
    no: Any
    safe: tuple[float, ...]


@record
@dataclass(frozen=True)
class While:
    """A graph is run as long as a predicate holds, at most `most` times. The rest is as for `If`."""

    predicate: Any
    body: Any
    most: int
    safe: tuple[float, ...]
