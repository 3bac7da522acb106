"""Where to put pieces: row by row, near their neighbours, or by search.

    search(pieces, machine, evaluations=10**6, seed=0)     # the number of each piece's core

To place tasks that talk so that words travel little is the quadratic assignment problem (T. C. Koopmans, M. Beckmann,
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
    """Place piece after piece on the free core where its words to the pieces placed before it travel least.

    The first one goes to the middle, and of several equal cores the one nearest to the middle is taken.
    """
    _fits(pieces, machine)
    start, other, words = pieces.neighbours
    row, column = np.divmod(np.arange(machine.cores), machine.columns)
    centre = abs(row - (machine.rows - 1) / 2) + abs(column - (machine.columns - 1) / 2)
    taken, cores = centre * 1e-6, np.full(len(pieces), -1)
    for piece in range(len(pieces)) if order is None else order:
        far = taken.copy()
        for k in range(start[piece], start[piece + 1]):
            there = cores[other[k]]
            if there >= 0:
                far += words[k] * (abs(row - row[there]) + abs(column - column[there]))
        cores[piece] = far.argmin()
        taken[cores[piece]] = np.inf
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

    Begins with `start`, or with the better one of rows and greedy. `warm`, `cold`: the first temperature, in words ×
    hops of a piece at the start, and the last as a share of it. In each round a random set of pieces is drawn in which
    no two talk to each other, and with them free cores; the set is cut into pairs, and each pair may change places.
    What one pair gains does not depend on what the others do, so that a whole round is a few operations on arrays, and
    exact.
    S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by Simulated Annealing", Science 1983; independent sets
    by random priorities: M. Luby, SIAM J. Computing 1986.
    """
    _fits(pieces, machine)
    rng = np.random.default_rng(seed)
    starts = [greedy(pieces, machine), row_major(pieces, machine)] if start is None else [start]
    now = min(starts, key=lambda cores: traffic(pieces, cores, machine))
    count, cores, longest = len(pieces), machine.cores, max(machine.rows, machine.columns)
    # pieces count, count + 1, … are free cores: they send nothing
    now = np.r_[now, np.setdiff1d(np.arange(cores), now)]
    first, other, words = pieces.neighbours
    ends = np.repeat(np.arange(count), np.diff(first))
    row, column = np.divmod(np.arange(cores), machine.columns)
    value = least = traffic(pieces, now[:count], machine)
    best, used = now[:count].copy(), 0
    high = np.empty(cores)
    while used < evaluations and least:
        left = 1 - used / evaluations
        drawn = rng.random(cores)
        high[:] = 0
        np.maximum.at(high, ends, drawn[other])
        chosen = np.flatnonzero(drawn > high)
        # partners lie in the same square of the grid, and the squares become smaller
        side = 2 + int(left**2 * longest)
        down, right = rng.integers(side, size=2)
        square = (row[now[chosen]] + down) // side * cores + (column[now[chosen]] + right) // side
        order = np.argsort(square + rng.random(len(chosen)))
        chosen, square = chosen[order], square[order]
        pair = np.flatnonzero(square[:-1] == square[1:])
        pair = pair[pair % 2 == rng.integers(2)]
        one, two = chosen[pair], chosen[pair + 1]
        talking = (one < count) | (two < count)
        one, two = one[talking], two[talking]
        to = now.copy()
        to[one], to[two] = now[two], now[one]
        there = now[other]
        far = abs(row[to[ends]] - row[there]) + abs(column[to[ends]] - column[there])
        near = abs(row[now[ends]] - row[there]) + abs(column[now[ends]] - column[there])
        gain = np.bincount(ends, (far - near) * words, cores)
        change = gain[one] + gain[two]
        heat = warm * least / count * cold ** (1 - left)
        taken = change < -heat * np.log(rng.random(len(one)))
        one, two = one[taken], two[taken]
        now[one], now[two] = to[one], to[two]
        value += float(change[taken].sum())
        used += len(talking)
        if value < least * (1 - 1e-9):
            best, least = now[:count].copy(), value
    return best
