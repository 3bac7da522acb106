"""Offsets for buffers: first fit and best fit by several orders, and colouring.

    first_fit(buffers, ORDERS["size"], alignment=64)     # name → offset

The best order depends on the instance. TensorFlow Lite uses "size" (Y. Pisarchyk, J. Lee, "Efficient Memory Management
for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from passlab.memory import _fast
from passlab.memory.buffers import Buffer, aligned

Order = Callable[[Buffer], tuple]

#: Name → the key by which the buffers are sorted before they are placed one after the other.
ORDERS: dict[str, Order] = {
    "size": lambda b: (-b.size, b.lower),
    "area": lambda b: (-b.size * (b.upper - b.lower), b.lower),
    "duration": lambda b: (b.lower - b.upper, -b.size),
    "start": lambda b: (b.lower, -b.size),
}
#: More buffers than this are placed by `_fast`, to the same offsets.
MANY = 1000


def first_fit(buffers: Sequence[Buffer], order: Order = ORDERS["size"], alignment: int = 1) -> dict[str, int]:
    """Return name → offset: each buffer in the order, at the lowest offset that is free during its lifetime."""
    if len(buffers) > MANY:
        return _fast.place(buffers, order, alignment, best=False)
    placed, offsets = [], {}
    for buffer in sorted(buffers, key=order):
        offsets[buffer.name] = next(gaps(buffer, placed, offsets, alignment))[0]
        placed.append(buffer)
    return offsets


def best_fit(buffers: Sequence[Buffer], order: Order = ORDERS["size"], alignment: int = 1) -> dict[str, int]:
    """Return name → offset: each buffer in the order, in the smallest gap that holds it, or on top."""
    if len(buffers) > MANY:
        return _fast.place(buffers, order, alignment, best=True)
    placed, offsets = [], {}
    for buffer in sorted(buffers, key=order):
        offsets[buffer.name] = min(gaps(buffer, placed, offsets, alignment), key=lambda gap: gap[1])[0]
        placed.append(buffer)
    return offsets


def gaps(
    buffer: Buffer, placed: Sequence[Buffer], offsets: Mapping[str, int], alignment: int
) -> Iterator[tuple[int, float]]:
    """Yield (offset, bytes) of each gap that holds a buffer, from low to high; the last is above all placed buffers."""
    live = (p for p in placed if p.lower < buffer.upper and buffer.lower < p.upper)
    floor = 0
    for start, end in sorted((offsets[p.name], offsets[p.name] + p.size) for p in live):
        if floor + buffer.size <= start:
            yield floor, start - floor
        floor = max(floor, aligned(end, alignment))
    yield floor, math.inf


def slots(buffers: Sequence[Buffer]) -> dict[str, int]:
    """Return name → slot, with as many slots as there are buffers live at once.

    Interval graphs are perfect: in the order of their starts, any free slot will do (F. Gavril, 1972). Takes the free
    slot of the nearest size, so that large slots remain for large buffers.
    """
    slot_of: dict[str, int] = {}
    free_from, width = [], []  # of each slot: the first step in which it is free, and its size
    for buffer in sorted(buffers, key=lambda b: (b.lower, -b.size)):
        free = [slot for slot, step in enumerate(free_from) if step <= buffer.lower]
        if free:
            slot = min(free, key=lambda slot: abs(width[slot] - buffer.size))
        else:
            slot = len(width)
            free_from.append(0)
            width.append(0)
        slot_of[buffer.name] = slot
        free_from[slot], width[slot] = buffer.upper, max(width[slot], buffer.size)
    return slot_of


def colouring(buffers: Sequence[Buffer], alignment: int = 1) -> dict[str, int]:
    """Return name → offset of the buffer's slot. A slot is as large as its largest buffer."""
    slot_of = slots(buffers)
    width = [0] * len(set(slot_of.values()))
    for buffer in buffers:
        width[slot_of[buffer.name]] = max(width[slot_of[buffer.name]], aligned(buffer.size, alignment))
    starts = list(accumulate(width, initial=0))
    return {buffer.name: starts[slot_of[buffer.name]] for buffer in buffers}
