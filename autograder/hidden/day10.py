"""Day 10: the cases that learners do not see, drawn from a seed."""

from __future__ import annotations

from autograder.hidden import day10_loops as loops
from autograder.hidden import day10_nests as nests
from autograder.hidden import day10_orders as orders

HIDDEN = {
    "day10.domains": nests.domains,
    "day10.dependences": nests.dependences,
    "day10.legality": orders.legality,
    "day10.skew": orders.skew,
    "day10.generate": loops.generate,
    "day10.tile": loops.tile,
    "day10.tvm": loops.tvm,
}
