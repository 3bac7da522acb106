"""Place pieces: row by row, near their neighbours, or by search.

    search(pieces, machine, evaluations=10**6, seed=0)     # the number of each piece's core

Placing communicating tasks close to each other is the quadratic assignment problem (T. C. Koopmans, M. Beckmann,
"Assignment Problems and the Location of Economic Activities", Econometrica 1957); no fast exact algorithm is known.
"""

from __future__ import annotations

import numpy as np

from passlab.wafer.machine import Machine
from passlab.wafer.mapping import traffic
from passlab.wafer.pieces import Pieces


def row_major(pieces: Pieces, machine: Machine) -> np.ndarray:
    """Return the first cores, row by row, in the order of the pieces."""
    _fits(pieces, machine)
    return np.arange(len(pieces))


def _fits(pieces: Pieces, machine: Machine) -> None:
    if len(pieces) > machine.cores:
        raise ValueError(f"{len(pieces)} pieces do not fit on {machine.cores} cores, one on each.")


def greedy(pieces: Pieces, machine: Machine, order: np.ndarray | None = None) -> np.ndarray:
    """Place piece after piece on the free core with the least words × hops to the pieces placed before it.

    Ties go to the core nearest to the middle.
    """
    _fits(pieces, machine)
    start, partner, words = pieces.neighbours
    row, column = np.divmod(np.arange(machine.cores), machine.columns)
    centre = abs(row - (machine.rows - 1) / 2) + abs(column - (machine.columns - 1) / 2)
    penalty, cores = centre * 1e-6, np.full(len(pieces), -1)
    for piece in range(len(pieces)) if order is None else order:
        travel = penalty.copy()
        for k in range(start[piece], start[piece + 1]):
            neighbour = cores[partner[k]]
            if neighbour >= 0:
                travel += words[k] * (abs(row - row[neighbour]) + abs(column - column[neighbour]))
        cores[piece] = travel.argmin()
        penalty[cores[piece]] = np.inf
    return cores


def search(
    pieces: Pieces,
    machine: Machine,
    start: np.ndarray | None = None,
    evaluations: int = 10**6,
    seed: int = 0,
    warm: float = 3.0,
    cold: float = 0.005,
) -> np.ndarray:
    """Return the best placement that simulated annealing finds with this many evaluated exchanges.

    start: the first placement (default: the better of `row_major` and `greedy`). warm, cold: the first temperature, in
    words × hops of a piece at the start, and the last as a share of it. Each round draws a random set of pieces that
    exchange no words, and free cores, and splits it into pairs, each of which may swap places. The gain of a pair does
    not depend on the others, so a round is a few exact operations on arrays.
    S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by Simulated Annealing", Science 1983; independent sets
    by random priorities: M. Luby, SIAM J. Computing 1986.
    """
    _fits(pieces, machine)
    rng = np.random.default_rng(seed)
    starts = [greedy(pieces, machine), row_major(pieces, machine)] if start is None else [start]
    place = min(starts, key=lambda cores: traffic(pieces, cores, machine))
    count, cores, longest = len(pieces), machine.cores, max(machine.rows, machine.columns)
    # pieces count, count + 1, … are free cores: they send nothing
    place = np.r_[place, np.setdiff1d(np.arange(cores), place)]
    first, partner, words = pieces.neighbours
    ends = np.repeat(np.arange(count), np.diff(first))
    row, column = np.divmod(np.arange(cores), machine.columns)
    value = least = traffic(pieces, place[:count], machine)
    best, tried = place[:count].copy(), 0
    high = np.empty(cores)
    while tried < evaluations and least:
        remaining = 1 - tried / evaluations
        priority = rng.random(cores)
        high[:] = 0
        np.maximum.at(high, ends, priority[partner])
        chosen = np.flatnonzero(priority > high)
        # partners are in the same square of the grid, and the squares become smaller
        side = 2 + int(remaining**2 * longest)
        down, right = rng.integers(side, size=2)
        square = (row[place[chosen]] + down) // side * cores + (column[place[chosen]] + right) // side
        order = np.argsort(square + rng.random(len(chosen)))
        chosen, square = chosen[order], square[order]
        pair = np.flatnonzero(square[:-1] == square[1:])
        pair = pair[pair % 2 == rng.integers(2)]
        first_piece, second_piece = chosen[pair], chosen[pair + 1]
        talking = (first_piece < count) | (second_piece < count)
        first_piece, second_piece = first_piece[talking], second_piece[talking]
        swapped = place.copy()
        swapped[first_piece], swapped[second_piece] = place[second_piece], place[first_piece]
        neighbour = place[partner]
        after = abs(row[swapped[ends]] - row[neighbour]) + abs(column[swapped[ends]] - column[neighbour])
        before = abs(row[place[ends]] - row[neighbour]) + abs(column[place[ends]] - column[neighbour])
        gain = np.bincount(ends, (after - before) * words, cores)
        change = gain[first_piece] + gain[second_piece]
        heat = warm * least / count * cold ** (1 - remaining)
        accepted = change < -heat * np.log(rng.random(len(first_piece)))
        first_piece, second_piece = first_piece[accepted], second_piece[accepted]
        place[first_piece], place[second_piece] = swapped[first_piece], swapped[second_piece]
        value += float(change[accepted].sum())
        tried += len(talking)
        if value < least * (1 - 1e-9):
            best, least = place[:count].copy(), value
    return best
