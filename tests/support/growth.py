"""Whether a function's CPU time grows with its input as it should, measured so that a busy machine does not decide."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How many times larger the larger input is.
STEP = 8
#: Time that grows as n^1.5: 23 times for eight times the input, where a linear function takes 8, a quadratic one 64.
MOST = STEP**1.5
ROUNDS = 10


def ratio(run: Callable[[int], object], n: int) -> float:
    """Return the CPU time of `run(STEP * n)` over that of `run(n)`: the first of some rounds that is at most MOST.

    If none is, return the least. In a round both run one after the other, so that what disturbs one round does not
    decide; time that really grows faster fails in each. Less than 10 ms counts as 10 ms.
    """
    run(n)
    least = float("inf")
    for _ in range(ROUNDS):
        few, many = (max(_seconds(run, size), 0.01) for size in (n, STEP * n))
        least = min(least, many / few)
        if least <= MOST:
            break
    return least


def _seconds(run: Callable[[int], object], n: int) -> float:
    start = time.process_time()
    run(n)
    return time.process_time() - start
