"""`make bench`, part wafer: a million cores simulated, formulas beside the simulator, published figures beside ours.

The all-reduce is simulated in a process of its own, whose memory is measured.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Iterator

from autograder.bench.figures import Figure, apart, at_most, tell

PART = "wafer"
SIDE, WORDS = 1_000, 4_096
CORES = (4, 16, 64, 256, 512)
SIZES = (1, 8, 64, 512, 4_096, 8_192)


def wafer(largest: int) -> Iterator[Figure | str]:
    """Yield the figures. `largest`: at most so many cores a side of the large machine."""
    yield from apart(PART, "autograder.bench.wafer", str(min(SIDE, largest)))
    yield from formulas()
    yield from published()


def million(side: int) -> Iterator[Figure]:
    """Build and simulate one all-reduce on side × side cores: chains along the rows, a chain of their first cores."""
    from passlab.wafer import TREES, Machine, all_reduce, simulate

    machine, chain = Machine(side, side), TREES["chain"](side)
    begin = time.process_time()
    program = all_reduce(machine, chain, chain, WORDS)
    built = time.process_time() - begin
    run = simulate(program)
    seconds = time.process_time() - begin
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform != "darwin" else 2**30)
    # two reduces, B + 6 (P − 1) each, and a broadcast: down the first column and along the rows
    least = 2 * (WORDS + 6 * (side - 1)) + WORDS + 2 * (side - 1)
    what = f"all-reduce of {WORDS:,} words, {side} × {side} cores"
    base = f"{program.count:,} messages, built in {built:.2g} s; {run.cycles:,} cycles, {least:,} by the formulas"
    yield at_most(PART, f"{what}: CPU", seconds, 5, " s", base)
    yield at_most(PART, f"{what}: memory", used, 2, " GB")
    yield at_most(PART, f"{what}: cycles over the sum of its parts", run.cycles / least, 1.02, "x")


def formulas() -> Iterator[Figure | str]:
    """How far the simulator is from the closed forms, and from the published law, for each tree; who wins where."""
    from passlab.wafer import FORMULAS, TREES, Machine, numbers, program, reduce_messages, simulate

    cycles: dict[tuple, int] = {}
    for name in FORMULAS:
        apart_by, law_by, where = 0.0, 0.0, (0, 0)
        for cores in CORES:
            for words in SIZES:
                if name == "star" and cores * words > 2**18:
                    continue  # far from the others, and slow to simulate
                yield f"wafer: {name}, {cores} cores, {words} words"
                messages = reduce_messages(TREES[name](cores), words)
                cycles[name, cores, words] = seen = simulate(program(Machine(1, cores), messages)).cycles
                apart_by = max(apart_by, abs(seen / FORMULAS[name](cores, words) - 1))
                law = numbers(TREES[name](cores), words).cycles()
                if name == "star":  # one word after the other: contention alone
                    law = words * (cores - 1) + 5
                if abs(seen / law - 1) > law_by:
                    law_by, where = abs(seen / law - 1), (cores, words)
        yield at_most(PART, f"{name}: simulated from the closed form", 100 * apart_by, 10, " %")
        base = f"farthest at {where[0]} cores, {where[1]} words"
        yield Figure(PART, f"{name}: simulated from the published law", f"{100 * law_by:.3g} %", base, value=law_by)
    missed, asked = [], 0
    for cores in CORES:
        for words in SIZES:
            forms = sorted((FORMULAS[name](cores, words), name) for name in FORMULAS)
            if forms[1][0] > 1.15 * forms[0][0]:
                asked += 1
                winner = min(
                    (name for name in FORMULAS if (name, cores, words) in cycles),
                    key=lambda name, at=(cores, words): cycles[name, *at],
                )
                if FORMULAS[winner](cores, words) > forms[0][0]:
                    missed.append((cores, words))
    yield at_most(
        PART, "another winner, where closed forms differ by 15 %", len(missed), 0, f" of {asked}", str(missed or "")
    )


def published() -> Iterator[Figure]:
    """BiCGStab on the first wafer: predicted beside measured (Rocki et al., SC 2020)."""
    from passlab.wafer import WAFERS, Machine, stencil

    machine = Machine(*stencil.POINTS[:2], clock=WAFERS["WSE-1"].clock)
    took = machine.seconds(stencil.iteration(machine, stencil.POINTS[2]).cycles)
    base = f"predicted {took * 1e6:.3g} µs, measured {stencil.MEASURED * 1e6:.3g} µs"
    yield at_most(PART, "BiCGStab: predicted from measured", 100 * abs(took / stencil.MEASURED - 1), 25, " %", base)
    sums = machine.seconds(stencil.all_reduce_cycles(machine))
    base = f"predicted {sums * 1e6:.3g} µs, published about 1.5 µs"
    yield at_most(
        PART, "all-reduce of a word: predicted from published", 100 * abs(math.log(sums / 1.5e-6)), 25, " %", base
    )


if __name__ == "__main__":
    for figure in million(int(sys.argv[1])):
        tell(figure)
