"""A search for a small arena: fill it from below, and change the priorities of the buffers.

    search(buffers, alignment=64, seconds=10)     # name → offset

First fit chooses the offset of the next buffer. `lowest_first` chooses the next buffer: the one with the lowest
possible offset, which fills the arena from below (the skyline heuristics of strip packing: E. K. Burke, G. Kendall,
G. Whitwell, "A New Placement Heuristic for the Orthogonal Stock-Cutting Problem", Operations Research 2004;
MiniMalloc's search also places at the skyline only). A priority breaks ties. The search is hill climbing over
priorities, after a systematic one (`passlab.memory.sections`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from passlab.memory.allocate import MANY, ORDERS, first_fit
from passlab.memory.buffers import Buffer, aligned, height, lower_bound, rounded
from passlab.memory.sections import smallest

#: Initial priorities of the search: the orders of first fit, and one more.
PRIORITIES: dict[str, Callable[[Buffer], tuple]] = ORDERS | {"end": lambda b: (-b.upper, -b.size)}
NEVER = 1 << 62


class Box:
    """An arena to fill from below, repeatedly, with the same buffers."""

    def __init__(self, buffers: Sequence[Buffer], alignment: int = 1):
        self.buffers = [b for b in buffers if b.size and b.upper > b.lower]
        self.sizes = [aligned(b.size, alignment) for b in self.buffers]
        lower, upper = (np.array([getattr(b, side) for b in self.buffers], np.int64) for side in ("lower", "upper"))
        self.meets = [np.flatnonzero((lower < b.upper) & (upper > b.lower)) for b in self.buffers]

    def fill(self, order: Sequence[int], stop: int = NEVER) -> tuple[int, list[int]] | None:
        """Return (height, offset of each buffer), or None as soon as the height reaches `stop`.

        `order`: the buffers, by number, from the highest to the lowest priority. `key` of a remaining buffer is its
        lowest possible offset, with its rank in the lowest digits, so that one argmin finds the next buffer.
        """
        count, top = len(order), 0
        rank = np.empty(count, np.int64)
        rank[list(order)] = np.arange(count)
        key, offsets = rank.copy(), [0] * count
        for _ in range(count):
            i = int(key.argmin())
            offsets[i] = int(key[i]) // count
            end = offsets[i] + self.sizes[i]
            top = max(top, end)
            if top >= stop:
                return None
            neighbours = self.meets[i]
            key[neighbours] = np.maximum(key[neighbours], end * count + rank[neighbours])
            key[i] = NEVER
        return top, offsets

    def sorted(self, key: Callable[[Buffer], tuple]) -> list[int]:
        return sorted(range(len(self.buffers)), key=lambda i: key(self.buffers[i]))

    def named(self, offsets: Sequence[int]) -> dict[str, int]:
        return {buffer.name: offset for buffer, offset in zip(self.buffers, offsets, strict=True)}


def lowest_first(
    buffers: Sequence[Buffer], order: Callable[[Buffer], tuple] = PRIORITIES["start"], alignment: int = 1
) -> dict[str, int]:
    """Return name → offset: place the buffer with the lowest possible offset; break ties by the order."""
    box = Box(buffers, alignment)
    _, offsets = box.fill(box.sorted(order))
    return dict.fromkeys((b.name for b in buffers), 0) | box.named(offsets)


def search(
    buffers: Sequence[Buffer], alignment: int = 1, seconds: float = 10.0, seed: int = 0, tries: int | None = None
) -> dict[str, int]:
    """Return name → offset of the smallest arena found within these seconds of CPU time and this number of tries.

    Starts with the best of all orders, by first fit and by lowest first. Without a limit of tries, half of the time is
    for a systematic search of up to `MANY` buffers. Each try moves or swaps a few buffers in the order and keeps a
    result that is not worse. Most tries end early, at the first buffer above the best height. Stops at the lower bound.
    """
    end, rng = time.process_time() + seconds, random.Random(seed)
    buffers = rounded(buffers, alignment)
    least, zeros = lower_bound(buffers), dict.fromkeys((b.name for b in buffers), 0)
    plan = min((first_fit(buffers, key, alignment) for key in ORDERS.values()), key=lambda plan: height(buffers, plan))
    best = height(buffers, plan)
    if best == least:
        return plan
    box = Box(buffers, alignment)
    starts = [box.sorted(key) for key in PRIORITIES.values()]
    current, order = min(((box.fill(start)[0], start) for start in starts), key=lambda pair: pair[0])
    if current < best:
        best, plan = current, zeros | box.named(box.fill(order)[1])
    if best > least and tries is None and len(buffers) <= MANY:
        systematic = smallest(buffers, alignment, seconds / 2)
        if (top := height(buffers, systematic)) < best:
            best, plan = top, systematic
    for _ in count() if tries is None else range(tries):
        if best == least or time.process_time() >= end:
            break
        neighbour = _neighbour(order, rng)
        if (result := box.fill(neighbour, current + 1)) is None:
            continue
        current, order = result[0], neighbour
        if current < best:
            best, plan = current, zeros | box.named(result[1])
    return plan


def _neighbour(order: Sequence[int], rng: random.Random) -> list[int]:
    """Return an order with one to five changes: a swap of two buffers, or a move of one, usually not far."""
    order, count = list(order), len(order)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        i, j = rng.randrange(count), rng.randrange(count)
        if rng.random() < 0.5:
            order[i], order[j] = order[j], order[i]
        else:
            buffer = order.pop(i)
            order.insert(max(0, i + round(rng.gauss(0, count / 4))), buffer)
    return order
