"""Programs that are drawn, for the hidden cases of day 6."""

from __future__ import annotations

import random

from passlab.dataflow import Program, random_program


def drawn(rng: random.Random, count: int, size: int, jumps: bool = False) -> list[Program]:
    """Return some programs of about `size` blocks, which stand in any order."""
    return [
        random_program(rng.randrange(10**9), size, variables=rng.randint(3, 6), jumps=jumps, shuffle=True)
        for _ in range(count)
    ]
