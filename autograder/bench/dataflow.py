"""`make bench`, part dataflow: visits of the solver on 10,000 blocks, against rounds in the order of the text.

Blocks of real programs stand in a good order; here they are shuffled, which is what a solver without an order of its
own must expect. Rounds are measured on 2,000 blocks where they take too long on 10,000.
"""

from __future__ import annotations

from collections.abc import Iterator

from autograder.bench.figures import Figure, at_least, at_most, cpu, growth

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
        yield at_most(f"{name}: visits per block, {count} blocks", visits, 3, "")

        solution, quick = cpu(lambda p=small, a=analysis: solve(p, a))
        rounds, slow = cpu(lambda p=small, a=analysis, o=stored: round_robin(p, a, o, max_visits=10_000), 1)
        assert (solution.before, solution.after) == (rounds.before, rounds.after)
        ordered = round_robin(small, analysis).visits
        visits = (
            f"{solution.visits / len(stored):.3g} visits per block; {ordered / len(stored):.3g} by rounds in reverse"
        )
        base = f"{visits} post-order, {rounds.visits / len(stored):.3g} by rounds in the shuffled order"
        shuffled = f"rounds in shuffled text order, {len(stored)} blocks"
        title = f"{name}: fewer visits than {shuffled}"
        yield at_least(title, rounds.visits / solution.visits, 5, "x", base)
        title = f"{name}: less CPU than {shuffled}"
        yield at_least(title, slow / quick, 5, "x", f"{slow:.3g} s by rounds")
        title, ratio = f"{name}: fewer visits than rounds in reverse post-order", ordered / solution.visits
        yield Figure(title, f"{ratio:.3g}x", value=ratio)

        times = {len(p.blocks): cpu(lambda p=p, a=analysis: solve(p, a)).seconds for p in programs}
        yield from growth(name, times, 1.3)
