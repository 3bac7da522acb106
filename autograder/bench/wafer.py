"""`make bench`, part wafer: a million cores simulated, formulas beside the simulator, published figures beside ours.

The all-reduce is simulated in a process of its own, whose memory is measured.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Iterator

from autograder.bench.figures import Figure, apart, at_most

SIDE, WORDS = 1_000, 4_096
CORES = (4, 8, 16, 32, 64, 128, 256, 512)
SIZES = (1, 8, 64, 512, 4_096, 8_192)


def wafer(largest: int) -> Iterator[Figure | str]:
    """Yield the figures. `largest`: the most cores on a side of the large machine."""
    yield from apart(million, min(SIDE, largest))
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
    title = f"all-reduce of {WORDS:,} words, {side} × {side} cores"
    base = f"{program.count:,} messages, built in {built:.2g} s; {run.cycles:,} cycles, {least:,} by the formulas"
    yield at_most(f"{title}: CPU", seconds, 5, " s", base)
    yield at_most(f"{title}: memory", used, 2, " GB")
    yield at_most(f"{title}: cycles over the sum of its parts", run.cycles / least, 1.02, "x")


def formulas() -> Iterator[Figure | str]:
    """Compare the simulator with the closed forms, and from the published law, for each tree; who wins where."""
    from passlab.wafer import FORMULAS, TREES, Machine, broadcast_messages, numbers, program, reduce_messages, simulate
    from passlab.wafer.model import message

    def cycles_of(messages: list, cores: int) -> int:
        return simulate(program(Machine(1, cores), messages)).cycles

    def law(name: str, cores: int, words: int) -> float:
        if name == "star":  # one word after the other: contention alone
            return words * (cores - 1) + 5
        return numbers(TREES[name](cores), words).cycles()

    points = [(cores, words) for cores in CORES for words in SIZES]
    off = [abs(cycles_of(broadcast_messages(*at), at[0]) / message(*at) - 1) for at in points]
    yield at_most("broadcast: simulated from the closed form", 100 * max(off), 10, " %")
    cycles: dict[tuple, int] = {}
    for name in FORMULAS:
        own, published = {}, {}
        for at in points:
            if name == "star" and math.prod(at) > 2**18:
                continue  # far from the others, and slow to simulate
            yield f"wafer: {name}, {at[0]} cores, {at[1]} words"
            cycles[name, *at] = simulated = cycles_of(reduce_messages(TREES[name](at[0]), at[1]), at[0])
            own[at], published[at] = abs(simulated / FORMULAS[name](*at) - 1), abs(simulated / law(name, *at) - 1)
        yield at_most(f"{name}: simulated from the closed form", 100 * max(own.values()), 10, " %")
        beyond = [at for at, share in published.items() if share > 0.1]
        where = max(published, key=published.get)
        base = f"{len(beyond)} of {len(published)} points beyond 10 %"
        base += ": " + ", ".join(f"P={cores} B={words}" for cores, words in beyond) if beyond else ""
        simulated = 100 * published[where]
        yield Figure(f"{name}: simulated from the published law", f"{simulated:.3g} %", base, value=simulated)
    for source, forms in (("closed forms", lambda name, *at: FORMULAS[name](*at)), ("the published law's cycles", law)):
        missed, total = [], 0
        for at in points:
            order = sorted((forms(name, *at), name) for name in FORMULAS)
            if order[1][0] > 1.15 * order[0][0]:
                total += 1
                names = [name for name in FORMULAS if (name, *at) in cycles]
                winner = min(names, key=lambda name, at=at: cycles[name, *at])
                if forms(winner, *at) > order[0][0]:
                    missed.append(at)
        note = f"another winner, where {source} differ by 15 %"
        yield at_most(note, len(missed), 0, f" of {total}", str(missed or ""))


def published() -> Iterator[Figure]:
    """BiCGStab on the first wafer: predicted beside measured (Rocki et al., SC 2020)."""
    from passlab.wafer import WAFERS, Machine, stencil

    machine = Machine(*stencil.POINTS[:2], clock=WAFERS["WSE-1"].clock)
    took = machine.seconds(stencil.iteration(machine, stencil.POINTS[2]).cycles)
    base = f"predicted {took * 1e6:.3g} µs, measured {stencil.MEASURED * 1e6:.3g} µs"
    yield at_most("BiCGStab: predicted from measured", 100 * abs(took / stencil.MEASURED - 1), 25, " %", base)
    sums = machine.seconds(stencil.all_reduce_cycles(machine))
    base = f"predicted {sums * 1e6:.3g} µs, published about 1.5 µs"
    yield at_most("all-reduce of a word: predicted from published", 100 * abs(math.log(sums / 1.5e-6)), 25, " %", base)
