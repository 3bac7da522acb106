"""Buffers that live for a while, offsets for them in one arena, and everything that can be wrong with the offsets.

    buffers = [Buffer("a", 0, 2, 64), Buffer("b", 1, 3, 32)]
    lower_bound(buffers)                                  # 96: both live in step 1
    check(buffers, {"a": 0, "b": 32})                     # BadPlan: a and b overlap …

Times are steps: a buffer is live in [lower, upper), so one that ends where another begins does not meet it.
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
    """The offsets, or the order, are no plan for these buffers."""


class Overlap(NamedTuple):
    """Two buffers that share `bytes` bytes from `offset` on, first in `step`."""

    one: str
    other: str
    step: int
    offset: int
    bytes: int


class Problem(NamedTuple):
    """What is wrong with offsets, as a sentence; `overlap`: the first one, if that is it."""

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
    """Return step → live bytes from there on, for each step in which they change, in order."""
    change: dict[int, int] = {}
    for buffer in buffers:
        if buffer.upper > buffer.lower:
            change[buffer.lower] = change.get(buffer.lower, 0) + buffer.size
            change[buffer.upper] = change.get(buffer.upper, 0) - buffer.size
    steps = sorted(change)
    return dict(zip(steps, accumulate(change[step] for step in steps), strict=True))


def lower_bound(buffers: Iterable[Buffer]) -> int:
    """Return the largest sum of bytes that are live in one step: no arena is smaller."""
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


def overlaps(buffers: Sequence[Buffer], offsets: Mapping[str, int]) -> list[Overlap]:
    """Return the pairs that meet in time and in place, ordered by the step in which they meet.

    A sweep over time. Those that are live lie sorted by place, so a newcomer is compared only with its neighbours: what
    overlaps it starts below its end, and above its start less the largest size.
    """
    found: list[Overlap] = []
    swept = sorted((b for b in buffers if b.size and b.upper > b.lower), key=lambda b: b.lower)
    largest = max((b.size for b in swept), default=0)
    live: list[tuple[int, int]] = []  # (first byte, index in swept), sorted
    ends: list[tuple[int, tuple[int, int]]] = []  # a heap of (upper, entry of live)
    for i, buffer in enumerate(swept):
        while ends and ends[0][0] <= buffer.lower:
            del live[bisect_left(live, heappop(ends)[1])]
        at = offsets[buffer.name]
        near = live[bisect_left(live, (at - largest,)) : bisect_left(live, (at + buffer.size,))]
        for first, k in sorted(near, key=itemgetter(1)):
            start, end = max(at, first), min(at + buffer.size, first + swept[k].size)
            if start < end:
                found.append(Overlap(swept[k].name, buffer.name, buffer.lower, start, end - start))
        insort(live, (at, i))
        heappush(ends, (buffer.upper, (at, i)))
    return found


def problem(
    buffers: Sequence[Buffer], offsets: Mapping[str, int], alignment: int = 1, arena: int | None = None
) -> Problem | None:
    """Return what is wrong with the offsets, or None. They may come from anybody."""
    if sentence := _misplaced(buffers, offsets, alignment, arena):
        return Problem(sentence)
    if found := overlaps(buffers, offsets):
        one, other, step, offset, shared = found[0]
        sentence = f"{one} and {other} are both live in step {step} and share {shared} bytes from byte {offset} on"
        return Problem(f"{sentence}: move one of the two.", found[0])
    return None


def _misplaced(buffers: Sequence[Buffer], offsets: Mapping[str, int], alignment: int, arena: int | None) -> str | None:
    """Return a sentence about the first offset that is wrong by itself, or None."""
    if not isinstance(offsets, Mapping):
        return f"Offsets are a dict from the name of a buffer to its first byte; this is a {type(offsets).__name__}."
    for buffer in buffers:
        if buffer.name not in offsets:
            return f"{buffer.name} has no offset."
        at = offsets[buffer.name]
        if type(at) is not int:
            return f"The offset of {buffer.name} is {str(at)[:40]!r}: it must be an int."
        if at < 0:
            return f"The offset of {buffer.name} is {at}: it must not be negative."
        if at % alignment:
            return f"The offset of {buffer.name} is {at}, which is not a multiple of {alignment}."
        if arena is not None and at + buffer.size > arena:
            return f"{buffer.name} ends at byte {at + buffer.size}, and the arena at byte {arena}."
    known = {buffer.name for buffer in buffers}
    if unknown := [name for name in offsets if name not in known]:
        return f"There is no buffer {str(unknown[0])[:40]!r} to give an offset."
    return None


def check(buffers: Sequence[Buffer], offsets: Mapping[str, int], alignment: int = 1, arena: int | None = None) -> None:
    """Raise BadPlan, with a sentence for the learner, unless the offsets are a plan for the buffers."""
    if found := problem(buffers, offsets, alignment, arena):
        raise BadPlan(found.sentence)
