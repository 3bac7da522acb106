"""What the exercises of day 10 share."""

from __future__ import annotations

import random

from passlab.exercises.day10._stencils import Stencil, stencil


def drawn(rng: random.Random, depth: int) -> Stencil:
    """Return a stencil with a few distances at random; each goes forward in the first dimension that it moves in."""
    vectors = {(1, *(0,) * (depth - 1))}
    while len(vectors) < 4:
        vector = (rng.choice((0, 1, 1, 2)), *(rng.randint(-3, 3) for _ in range(depth - 1)))
        if next((step for step in vector if step), 0) > 0:
            vectors.add(vector)
    return stencil(" ".join("tij"[:depth]), *sorted(vectors))
