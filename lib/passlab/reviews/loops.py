"""Questions on day 10: iterations, dependences, orders."""

from __future__ import annotations

import random

from passlab import polyhedral
from passlab.reviews.questions import Question, kind


def _nest(rng: random.Random) -> str:
    distances = [(-1, 0), (0, -1), (-1, -1), (-1, 1), (0, 0), (0, 1), (1, -1), (1, 1)]
    reads = [f"A[i{_shift(di)}, j{_shift(dj)}]" for di, dj in rng.sample(distances, rng.randint(1, 2))]
    return f"for i in range(1, N):\n    for j in range(1, N):\n        A[i, j] = {' + '.join(reads)} + B[i, j]"


def _shift(by: int) -> str:
    return f" {'+' if by > 0 else '-'} {abs(by)}" if by else ""


@kind("day10", "interchange")
def interchange(rng: random.Random) -> Question:
    """Whether two loops may be interchanged."""
    text = _nest(rng)
    program = polyhedral.parse(text)
    swapped = polyhedral.interchange(program.schedule, 0, 1)
    pair = polyhedral.violated(polyhedral.dependences(program), swapped)
    reason = f"{pair[0]} and {pair[1]} would change places." if pair else "Every dependence still points forward."
    return Question(f"{text}\n\nMay the two loops be interchanged?", "no" if pair else "yes", reason, ("yes", "no"))


@kind("day10", "reversal")
def reversal(rng: random.Random) -> Question:
    """Whether a loop may run backwards."""
    text, dim = _nest(rng), rng.choice((0, 1))
    program = polyhedral.parse(text)
    pair = polyhedral.violated(polyhedral.dependences(program), polyhedral.reverse(program.schedule, dim))
    reason = f"{pair[0]} and {pair[1]} would change places." if pair else "No dependence is carried by this loop."
    return Question(
        f"{text}\n\nMay the loop over {'ij'[dim]} run backwards?", "no" if pair else "yes", reason, ("yes", "no")
    )


@kind("day10", "parallel")
def parallel(rng: random.Random) -> Question:
    """Which loops may run in parallel."""
    text = _nest(rng)
    program = polyhedral.parse(text)
    free = frozenset("ij"[dim] for dim in polyhedral.parallel(program, program.schedule))
    reason = (
        "A loop may if it carries no dependence: none between two of its turns at equal turns of the loops outside."
    )
    return Question(
        f"{text}\n\nWhich of the loops may run all its turns at once, inside of one turn of those outside?",
        free,
        reason,
    )


@kind("day10", "iterations")
def iterations(rng: random.Random) -> Question:
    """How many iterations a nest has."""
    n, low, gap = rng.randint(4, 9), rng.randint(0, 2), rng.randint(0, 2)
    shape = rng.choice((f"i + {gap}, {n}", f"{low}, i + {gap}", "0, i // 2 + 1"))
    first, last = shape.split(", ")
    answer = sum(max(0, eval(last, {}, {"i": i}) - eval(first, {}, {"i": i})) for i in range(low, n))
    text = f"for i in range({low}, {n}):\n    for j in range({shape}):\n        S\n\nHow many iterations has S?"
    return Question(text, answer, "Add the lengths of the inner loop over all i; a range that is empty adds nothing.")


@kind("day10", "tiles")
def tiles(rng: random.Random) -> Question:
    """How many tiles are not full."""
    n, m, a, b = rng.randint(5, 20), rng.randint(5, 20), rng.randint(2, 6), rng.randint(2, 6)
    tiles_ = -(-n // a) * -(-m // b)
    text = f"{n} × {m} iterations are cut into tiles of {a} × {b}, from the first one on. How many tiles are not full?"
    reason = f"There are {tiles_} tiles, and {(n // a) * (m // b)} of them are full."
    return Question(text, tiles_ - (n // a) * (m // b), reason)
