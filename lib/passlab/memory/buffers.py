"""Buffers with live ranges, and checks of their offsets in one arena.

    buffers = [Buffer("a", 0, 2, 64), Buffer("b", 1, 3, 32)]
    lower_bound(buffers)                                  # 96: both are live in step 1
    check(buffers, {"a": 0, "b": 32})                     # BadPlan: a and b overlap …

Times are steps: a buffer is live in [lower, upper), so two buffers do not meet if one ends where the other begins.
"""

from __future__ import annotations

import csv
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from passlab.judge import record

#: The names of the eleven instances that `instance` reads: MiniMalloc's challenging benchmarks.
MINIMALLOC = "ABCDEFGHIJK"
#: The arena in which each of these eleven can be solved (M. D. Moffitt, ASPLOS 2024).
SOLVABLE = 1 << 20


@record
@dataclass(frozen=True)
class Buffer:
    """`size` bytes that are live in the steps [lower, upper)."""

    name: str
    lower: int
    upper: int
    size: int


class BadPlan(ValueError):
    """The offsets or the order are not a valid plan for these buffers."""


class Overlap(NamedTuple):
    """Two buffers that share `bytes` bytes from `offset` on, first in `step`."""

    one: str
    other: str
    step: int
    offset: int
    bytes: int


class Problem(NamedTuple):
    """The first error in offsets, as a sentence; `overlap`: the two buffers, if the error is an overlap."""

    sentence: str
    overlap: Overlap | None = None


def instance(letter: str) -> list[Buffer]:
    """Return one of MiniMalloc's instances, "A" to "K". Raises ValueError for another name."""
    if len(letter) != 1 or letter not in MINIMALLOC:
        raise ValueError(f"There is no instance {letter!r}: they are called {', '.join(MINIMALLOC)}.")
    with (Path(__file__).parent / "minimalloc" / f"{letter}.csv").open() as file:
        rows = csv.DictReader(file)
        return [Buffer(row["id"], int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows]


def live_bytes(buffers: Iterable[Buffer]) -> dict[int, int]:
    """Return step → live bytes from this step on, for each step in which they change, in order."""
    change: dict[int, int] = {}
    for buffer in buffers:
        if buffer.upper > buffer.lower:
            change[buffer.lower] = change.get(buffer.lower, 0) + buffer.size
            change[buffer.upper] = change.get(buffer.upper, 0) - buffer.size
    steps = sorted(change)
    return dict(zip(steps, accumulate(change[step] for step in steps), strict=True))


def lower_bound(buffers: Iterable[Buffer]) -> int:
    """Return the largest sum of live bytes in a step: no arena is smaller."""
    return max(live_bytes(buffers).values(), default=0)


def peak_step(buffers: Iterable[Buffer]) -> int:
    """Return the first step in which most bytes are live; 0 if there are no buffers."""
    live = live_bytes(buffers)
    return max(live, key=live.__getitem__, default=0)


def height(buffers: Iterable[Buffer], offsets: Mapping[str, int]) -> int:
    """Return the bytes of the smallest arena that holds all buffers at their offsets."""
    return max((offsets[buffer.name] + buffer.size for buffer in buffers), default=0)


def aligned(nbytes: int, alignment: int) -> int:
    """Return the least multiple of `alignment` that is not less than `nbytes`."""
    return -(-nbytes // alignment) * alignment


def rounded(buffers: Iterable[Buffer], alignment: int) -> list[Buffer]:
    """Return buffers with their sizes rounded up to the alignment."""
    return [Buffer(b.name, b.lower, b.upper, aligned(b.size, alignment)) for b in buffers]


def overlaps(buffers: Sequence[Buffer], offsets: Mapping[str, int]) -> list[Overlap]:
    """Return the pairs that overlap in time and in the arena, ordered by their first common step.

    A sweep over time. Live buffers are sorted by offset, so a new one is compared only with its neighbours: a buffer
    that overlaps it starts below its end, and above its start less the largest size.
    """
    pairs: list[Overlap] = []
    queue = sorted((b for b in buffers if b.size and b.upper > b.lower), key=lambda b: b.lower)
    largest = max((b.size for b in queue), default=0)
    live: list[tuple[int, int]] = []  # (offset, index in queue), sorted
    ends: list[tuple[int, tuple[int, int]]] = []  # a heap of (upper, entry of live)
    for i, buffer in enumerate(queue):
        while ends and ends[0][0] <= buffer.lower:
            del live[bisect_left(live, heappop(ends)[1])]
        offset = offsets[buffer.name]
        near = live[bisect_left(live, (offset - largest,)) : bisect_left(live, (offset + buffer.size,))]
        for first, k in sorted(near, key=itemgetter(1)):
            start, end = max(offset, first), min(offset + buffer.size, first + queue[k].size)
            if start < end:
                pairs.append(Overlap(queue[k].name, buffer.name, buffer.lower, start, end - start))
        insort(live, (offset, i))
        heappush(ends, (buffer.upper, (offset, i)))
    return pairs


def problem(
    buffers: Sequence[Buffer], offsets: Mapping[str, int], alignment: int = 1, arena: int | None = None
) -> Problem | None:
    """Return the first error in the offsets, or None. The offsets may be any object."""
    if sentence := _misplaced(buffers, offsets, alignment, arena):
        return Problem(sentence)
    if pairs := overlaps(buffers, offsets):
        a, b, step, offset, nbytes = pairs[0]
        sentence = f"{a} and {b} are both live in step {step} and share {nbytes} bytes from byte {offset} on"
        return Problem(f"{sentence}: move one of the two.", pairs[0])
    return None


def _misplaced(buffers: Sequence[Buffer], offsets: Mapping[str, int], alignment: int, arena: int | None) -> str | None:
    """Return the first error of a single offset, as a sentence, or None."""
    if not isinstance(offsets, Mapping):
        return f"Offsets are a dict from the name of a buffer to its first byte; this is a {type(offsets).__name__}."
    for buffer in buffers:
        if buffer.name not in offsets:
            return f"{buffer.name} has no offset."
        offset = offsets[buffer.name]
        if type(offset) is not int:
            return f"The offset of {buffer.name} is {str(offset)[:40]!r}: it must be an int."
        if offset < 0:
            return f"The offset of {buffer.name} is {offset}: it must not be negative."
        if offset % alignment:
            return f"The offset of {buffer.name} is {offset}, which is not a multiple of {alignment}."
        if arena is not None and offset + buffer.size > arena:
            return f"{buffer.name} ends at byte {offset + buffer.size}, and the arena at byte {arena}."
    known = {buffer.name for buffer in buffers}
    if unknown := [name for name in offsets if name not in known]:
        return f"There is no buffer {str(unknown[0])[:40]!r} to give an offset."
    return None


def check(buffers: Sequence[Buffer], offsets: Mapping[str, int], alignment: int = 1, arena: int | None = None) -> None:
    """Raise BadPlan, with a sentence for the learner, unless the offsets are a valid plan for the buffers."""
    if error := problem(buffers, offsets, alignment, arena):
        raise BadPlan(error.sentence)
