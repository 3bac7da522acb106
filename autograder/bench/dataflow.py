"""`make bench`, part dataflow: visits of the solver on 10,000 blocks, against rounds in the order of the text.

Blocks of real programs stand in a good order; here they are shuffled, which is what a solver without an order of its
own must expect. Rounds are measured on 2,000 blocks where they take too long on 10,000.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from autograder.bench.figures import Figure, at_least, at_most

PART = "dataflow"
SIZES = (2_500, 5_000, 10_000)
#: Analysis → the blocks on which rounds are measured.
ROUNDS_ON = {"liveness": 10_000, "reaching definitions": 2_000, "available expressions": 2_000}


def dataflow(largest: int) -> Iterator[Figure | str]:
    """Yield the figures. `largest`: at most this many blocks."""
    from passlab.dataflow import ANALYSES, random_program, reducible, round_robin, solve

    sizes = [size for size in SIZES if size <= largest] or [largest]
    programs = [random_program(1, size, shuffle=True) for size in sizes]
    assert all(map(reducible, programs)), "the bound is one for reducible programs"
    for name, blocks in ROUNDS_ON.items():
        small = random_program(1, min(blocks, largest), shuffle=True)
        stored = [block.name for block in small.blocks]
        analysis = ANALYSES[name]
        yield f"dataflow: {name}"
        count = len(programs[-1].blocks)
        visits = solve(programs[-1], analysis).visits / count
        yield at_most(PART, f"{name}: visits per block, {count} blocks", visits, 3, "")

        mine, quick = seconds(lambda p=small, a=analysis: solve(p, a))
        rounds, slow = seconds(lambda p=small, a=analysis, o=stored: round_robin(p, a, o, max_visits=10_000), 1)
        assert (mine.before, mine.after) == (rounds.before, rounds.after)
        ordered = round_robin(small, analysis).visits
        visits = f"{mine.visits / len(stored):.3g} visits per block; {ordered / len(stored):.3g} by rounds in reverse"
        base = f"{visits} post-order, {rounds.visits / len(stored):.3g} by rounds in the shuffled order"
        shuffled = f"rounds in shuffled text order, {len(stored)} blocks"
        what = f"{name}: fewer visits than {shuffled}"
        yield at_least(PART, what, rounds.visits / mine.visits, 5, "x", base)
        what = f"{name}: less CPU than {shuffled}"
        yield at_least(PART, what, slow / quick, 5, "x", f"{slow:.3g} s by rounds")
        what, ratio = f"{name}: fewer visits than rounds in reverse post-order", ordered / mine.visits
        yield Figure(PART, what, f"{ratio:.3g}x", value=ratio)

        times = [seconds(lambda p=program, a=analysis: solve(p, a))[1] for program in programs]
        if len(times) > 1:
            power = math.log(times[-1] / times[0]) / math.log(len(programs[-1].blocks) / len(programs[0].blocks))
            base = ", ".join(f"{t:.2g} s" for t in times)
            yield at_most(PART, f"{name}: growth, exponent of the number of blocks", power, 1.3, "", base)


def seconds(function: Callable[[], Any], rounds: int = 3) -> tuple[Any, float]:
    """Return the result, and the least CPU seconds of some runs, without the garbage collector's."""
    least, result = math.inf, None
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            result = function()
            least = min(least, time.process_time() - start)
        finally:
            gc.enable()
    return result, least
