"""First fit and best fit for thousands of buffers, with NumPy in place of the inner loop of `allocate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from passlab.memory.buffers import Buffer


def place(buffers: Sequence[Buffer], order: Callable[[Buffer], tuple], alignment: int, best: bool) -> dict[str, int]:
    """Return the offsets of `allocate.best_fit` or `allocate.first_fit`. One step compares all placed buffers."""
    queue = sorted(buffers, key=order)
    lower, upper = (np.array([getattr(b, side) for b in queue], dtype=np.int64) for side in ("lower", "upper"))
    start, end = np.zeros(len(queue), np.int64), np.zeros(len(queue), np.int64)
    for i, buffer in enumerate(queue):
        live = np.flatnonzero((lower[:i] < buffer.upper) & (upper[:i] > buffer.lower))
        live = live[np.lexsort((end[live], start[live]))]
        floors = np.maximum.accumulate(np.concatenate(([0], -(-end[live] // alignment) * alignment)))
        room = start[live] - floors[:-1]
        fits = np.flatnonzero(room >= buffer.size)
        k = -1 if not len(fits) else fits[np.argmin(room[fits])] if best else fits[0]
        start[i], end[i] = floors[k], floors[k] + buffer.size
    return {buffer.name: int(offset) for buffer, offset in zip(queue, start, strict=True)}
