"""BiCGStab on a 7-point stencil over the whole wafer: an iteration predicted from stated constants.

Rocki et al., "Fast Stencil-Code Computation on a Wafer-Scale Processor", SC 2020 (arXiv:2010.03660): 600 × 595 × 1536
points, one column of 1536 on each core, 44 operations a point and iteration (two products with the matrix of 12, four
dot products and six vector updates of 2), 28.1 µs measured. Numbers of 16 bits; sums over the wafer of 32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from passlab.wafer.collectives import reduce_messages, star
from passlab.wafer.machine import Machine
from passlab.wafer.model import message
from passlab.wafer.program import on_lines
from passlab.wafer.simulate import simulate

#: Products with the matrix, updates of vectors and dot products of an iteration.
PRODUCTS, UPDATES, DOTS = 2, 6, 4
OPERATIONS = PRODUCTS * 12 + UPDATES * 2 + DOTS * 2
#: Rows, columns and depth of the measured grid.
POINTS = (600, 595, 1536)
#: Seconds of an iteration, as measured.
MEASURED = 28.1e-6


@dataclass(frozen=True)
class Iteration:
    """Cycles of one iteration on every core, by purpose."""

    products: float
    updates: float
    dots: float
    sums: float

    @property
    def cycles(self) -> float:
        """Return the cycles of the iteration: its parts follow one another."""
        return self.products + self.updates + self.dots + self.sums


def iteration(machine: Machine, depth: int, lanes: int = 4, sums: float | None = None) -> Iteration:
    """Return the cycles of an iteration, with a column of `depth` points on each core.

    lanes: the numbers of 16 bits that are multiplied, and added, in a cycle: half of them in dot products, whose sums
    have 32 bits, and two, the numbers in a word, for an operand from a link. A product with the matrix multiplies the
    four neighbours' columns as they arrive, the two neighbours in its own column from memory, and adds six times.
    sums: the cycles of an all-reduce of one word, simulated by default.
    """
    product = 4 * depth / 2 + 2 * depth / lanes + 6 * depth / lanes
    wait = all_reduce_cycles(machine) if sums is None else sums
    return Iteration(PRODUCTS * product, UPDATES * depth / lanes, DOTS * depth / (lanes / 2), DOTS * wait)


def all_reduce_cycles(machine: Machine) -> int:
    """Return the cycles of an all-reduce of one word: to the middle of each row, of that column, and all the way back.

    Every core of half a row sends to the middle at once, a star, which is best for one word a core. Both halves of the
    reduce, and of the broadcast, take as long as the longer one.
    """
    wide, high = machine.columns // 2 + 1, machine.rows // 2 + 1
    total = 0
    for size in (wide, high):
        if size > 1:
            line = Machine(1, size, ramp=machine.ramp)
            gather = simulate(on_lines(line, reduce_messages(star(size), 1), np.zeros(1), 1)).cycles
            total += int(gather + 1 + message(size, 1, machine.ramp))  # one more word, the other half's sum; and back
    return total
