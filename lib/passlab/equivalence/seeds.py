"""What the random inputs are drawn from on which programs are compared, by `equivalent` and by judges.

    with drawn_from(seed):
        equivalent(before, after)  # on inputs that follow from seed, too

It loads without torch, so that a grader can begin at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

#: What is added to the seed of trials: 0, or a number that a grader keeps to itself.
_own_seed = 0


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Draw the random trials of `equivalent` from another seed inside.

    With a known one, all trials follow from the example inputs: a program could hold the results in a table, pass each
    trial, and compute something else.
    """
    global _own_seed
    outer, _own_seed = _own_seed, seed
    try:
        yield
    finally:
        _own_seed = outer


def own_seed(seed: int) -> int:
    """Return the seed from which to draw inputs, for the one that a caller of `equivalent`, or a judge, gave."""
    return seed + _own_seed
