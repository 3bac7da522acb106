"""A search for a small arena: fill it from below, and change who goes first.

    search(buffers, alignment=64, seconds=10)     # name → offset

First fit asks where the next buffer goes. `lowest_first` asks which buffer goes next: the one that can lie lowest, as
one fills a box from below (the skyline heuristics of strip packing: E. K. Burke, G. Kendall, G. Whitwell, "A New
Placement Heuristic for the Orthogonal Stock-Cutting Problem", Operations Research 2004; MiniMalloc's search also places
at the skyline only). Several can lie equally low, and then a priority decides. The search climbs over priorities.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from passlab.memory.allocate import ORDERS, first_fit
from passlab.memory.buffers import Buffer, aligned, height, lower_bound

#: The priorities with which the search begins, besides the orders of first fit.
PRIORITIES: dict[str, Callable[[Buffer], tuple]] = ORDERS | {"end": lambda b: (-b.upper, -b.size)}
NEVER = 1 << 62


class Box:
    """An arena that is filled from below, again and again, with the same buffers."""

    def __init__(self, buffers: Sequence[Buffer], alignment: int = 1):
        self.buffers = [b for b in buffers if b.size and b.upper > b.lower]
        self.sizes = [aligned(b.size, alignment) for b in self.buffers]
        lower, upper = (np.array([getattr(b, side) for b in self.buffers], np.int64) for side in ("lower", "upper"))
        self.meets = [np.flatnonzero((lower < b.upper) & (upper > b.lower)) for b in self.buffers]

    def fill(self, order: Sequence[int], stop: int = NEVER) -> tuple[int, list[int]] | None:
        """Return (height, offset of each buffer), or None as soon as the height reaches `stop`.

        `order`: the buffers, by number, from the highest to the lowest priority. `where` holds, for each buffer that
        is left, how low it can lie, and its rank in the lowest digits, so that one argmin finds who is next.
        """
        count, top = len(order), 0
        rank = np.empty(count, np.int64)
        rank[list(order)] = np.arange(count)
        where, offsets = rank.copy(), [0] * count
        for _ in range(count):
            i = int(where.argmin())
            offsets[i] = int(where[i]) // count
            end = offsets[i] + self.sizes[i]
            top = max(top, end)
            if top >= stop:
                return None
            met = self.meets[i]
            where[met] = np.maximum(where[met], end * count + rank[met])
            where[i] = NEVER
        return top, offsets

    def sorted(self, key: Callable[[Buffer], tuple]) -> list[int]:
        return sorted(range(len(self.buffers)), key=lambda i: key(self.buffers[i]))

    def named(self, offsets: Sequence[int]) -> dict[str, int]:
        return {buffer.name: at for buffer, at in zip(self.buffers, offsets, strict=True)}


def lowest_first(
    buffers: Sequence[Buffer], order: Callable[[Buffer], tuple] = PRIORITIES["start"], alignment: int = 1
) -> dict[str, int]:
    """Return name → offset: always the buffer that can lie lowest; of several, the first in the order."""
    box = Box(buffers, alignment)
    filled = box.fill(box.sorted(order))
    return dict.fromkeys((b.name for b in buffers), 0) | box.named(filled[1])


def search(
    buffers: Sequence[Buffer], alignment: int = 1, seconds: float = 10.0, seed: int = 0, tries: int = 10**9
) -> dict[str, int]:
    """Return name → offset of the lowest arena found within these seconds of CPU time and this number of tries.

    Begins with the best of all orders, by first fit and by lowest first. Then it moves or swaps a few buffers in the
    order and keeps what is not worse. Most tries end early, at the first buffer above the best height. Stops at the
    lower bound.
    """
    end, rng = time.process_time() + seconds, random.Random(seed)
    rounded = [Buffer(b.name, b.lower, b.upper, aligned(b.size, alignment)) for b in buffers]
    least, nothing = lower_bound(rounded), dict.fromkeys((b.name for b in buffers), 0)
    found = min((first_fit(rounded, key, alignment) for key in ORDERS.values()), key=lambda o: height(rounded, o))
    best = height(rounded, found)
    if best == least:
        return found
    box = Box(buffers, alignment)
    starts = [box.sorted(key) for key in PRIORITIES.values()]
    now, order = min(((box.fill(start)[0], start) for start in starts), key=lambda start: start[0])
    if now < best:
        best, found = now, nothing | box.named(box.fill(order)[1])
    while best > least and tries > 0 and time.process_time() < end:
        tries -= 1
        changed = _changed(order, rng)
        filled = box.fill(changed, now + 1)
        if filled is None:
            continue
        now, order = filled[0], changed
        if now < best:
            best, found = now, nothing | box.named(filled[1])
    return found


def _changed(order: Sequence[int], rng: random.Random) -> list[int]:
    """Return an order with one to five changes: a swap of two, or a move of one, mostly not far."""
    made = list(order)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        i, j = rng.randrange(len(made)), rng.randrange(len(made))
        if rng.random() < 0.5:
            made[i], made[j] = made[j], made[i]
        else:
            one = made.pop(i)
            made.insert(max(0, i + round(rng.gauss(0, len(order) / 4))), one)
    return made
