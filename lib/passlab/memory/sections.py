"""A plan within a capacity, by a systematic search over sections of time.

    within(instance("A"), SOLVABLE).offsets     # name → offset, or None
    smallest(buffers, alignment=64)             # name → offset, of the smallest arena found

A section is a stretch of time in which the same buffers are live. Its floor is the end of the highest buffer that is
placed in it, and its load is the sum of the sizes still to be placed. Ideas from M. D. Moffitt, "MiniMalloc: A
Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023:

- canonical solutions: a buffer lies at 0 or on another one, so its offset is the highest floor of its sections;
- inference: a section whose floor and load exceed the capacity ends the branch, and a floor rises to the lowest
  offset that any of the section's remaining buffers can have;
- several initial orders in turn, each with a limit of nodes that doubles.

Three more make it fast enough for Python:

- Branching by section. In a section with the lowest floor, some buffer starts at this floor, or none does and the floor
  rises. So no two branches hold the same plan, whatever happens in other sections.
- Backjumping (P. Prosser, "Hybrid Algorithms for the Constraint Satisfaction Problem", 1993). Each failure is blamed on
  a set of sections: any state with the same buffers to place and at least the same floors in them fails, too. A choice
  that touches none of them is not varied. This also separates independent parts of the problem. The blame of a state
  is remembered, for all orders.
- Weights (F. Boussemart et al., "Boosting Systematic Search by Weighting Constraints", 2004). A section in which
  branches end is weighted, and every second attempt prefers heavy sections.

Sets of sections are ints with one bit for each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count, product
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from passlab.memory.allocate import MANY, ORDERS, first_fit
from passlab.memory.buffers import Buffer, aligned, height, lower_bound, rounded

#: The initial orders: by width (how long it lives), area, total (the highest load of its sections) and size.
PREORDERS = ("width area total", "total area width", "size", "area")
#: Nodes for each buffer in the first round of attempts.
NODES = 4
NEVER = 1 << 62
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Packing(NamedTuple):
    """The result of `within`. status: packed, impossible (proved), or unknown when time is up; nodes: of the search."""

    status: str
    offsets: Mapping[str, int] | None
    nodes: int


def within(buffers: Sequence[Buffer], capacity: int, seconds: float = 10.0) -> Packing:
    """Return offsets with which all buffers end at or below `capacity`, a proof that there are none, or neither.

    Tries first fit by all orders, then searches. seconds: of CPU time. The result is the same every time, unless time
    is up.
    """
    end = time.process_time() + seconds
    if lower_bound(buffers) > capacity:
        return Packing("impossible", None, 0)
    greedy = _greedy(buffers, capacity, 1, end)
    if height(buffers, greedy) <= capacity:
        return Packing("packed", greedy, 0)
    solid = [b for b in buffers if b.size and b.upper > b.lower]
    search = _Search(solid, capacity, end)
    for doubling in count():
        for preorder, weighted in product(PREORDERS, (False, True)):
            outcome = search.attempt(preorder, weighted, (NODES * len(solid)) << doubling)
            if isinstance(outcome, dict):
                return Packing("packed", dict.fromkeys((b.name for b in buffers), 0) | outcome, search.nodes)
            if outcome == "impossible" or time.process_time() >= end:
                return Packing(outcome, None, search.nodes)
    raise AssertionError("The rounds have no end.")


def smallest(buffers: Sequence[Buffer], alignment: int = 1, seconds: float = 10.0) -> dict[str, int]:
    """Return name → offset of the smallest arena found within these seconds of CPU time.

    Begins with first fit by all orders. For up to `MANY` buffers, it then asks `within` for the lower bound, and after
    that for the middle between the best arena and the largest that was asked for in vain.
    """
    end = time.process_time() + seconds
    buffers = rounded(buffers, alignment)
    goal = low = lower_bound(buffers)
    plan = _greedy(buffers, low, alignment, end)
    while goal < (best := height(buffers, plan)) and len(buffers) <= MANY and time.process_time() < end:
        if offsets := within(buffers, goal, (end - time.process_time()) / 2).offsets:
            plan = dict(offsets)
            best = height(buffers, plan)
        else:
            low = goal + alignment
        goal = aligned((low + best) // 2, alignment)
    return plan


def _greedy(buffers: Sequence[Buffer], goal: int, alignment: int, end: float) -> dict[str, int]:
    """Return the best plan by first fit; stop at one not above the goal, or when the next would take too long."""
    plans = []
    for key in ORDERS.values():
        begin = time.process_time()
        plans.append(first_fit(buffers, key, alignment))
        instant = time.process_time()
        if height(buffers, plans[-1]) <= goal or instant + (instant - begin) > end:
            break
    return min(plans, key=lambda plan: height(buffers, plan))


# ── the search ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Node:
    """A state of the search. Arrays per section: `floors`, `loads`; per buffer: `open` (to be placed) and `lows`.

    lows: lowest possible offsets; trail: the floors before and after each rise of floors on the way to this state.
    """

    floors: Ints
    loads: Ints
    open: Bools
    lows: Ints
    trail: list[tuple[Ints, Ints]]
    key: bytes = b""
    moves: Iterator[tuple[int, int]] = field(default_factory=lambda: iter(()))
    section: int = 0  # in which the search branches
    blame: int = 0  # sections to which the failures of its branches are due
    move: tuple[int, int] = (0, 0)  # the current branch: (buffer, offset), or (RISE, new floor of the section)


#: In place of a buffer in a move: none starts at the floor of the section.
RISE = -1


class _Search:
    """A search for one instance. Knows, from one attempt to the next, the states that fail and weights of sections."""

    def __init__(self, buffers: Sequence[Buffer], capacity: int, end: float):
        self.buffers, self.end, self.nodes = buffers, end, 0
        self.unit = gcd(*(b.size for b in buffers))
        self.capacity = capacity // self.unit
        self.sizes = np.array([b.size // self.unit for b in buffers], np.int64)
        self._divide()
        self.weights = np.ones(len(self.loads))
        self.failed: dict[bytes, int] = {}

    def _divide(self) -> None:
        """Divide time into sections: those of buffer b are the numbers from first[b] to last[b] - 1."""
        lower, upper = (np.array([getattr(b, side) for b in self.buffers], np.int64) for side in ("lower", "upper"))
        steps = np.unique(np.concatenate((lower, upper)))
        first, last = np.searchsorted(steps, lower), np.searchsorted(steps, upper)
        used = np.zeros(len(steps), bool)
        for a, z in zip(first, last, strict=True):
            used[a:z] = True
        numbers = np.concatenate(([0], np.cumsum(used)))  # sections in which nothing is live are left out
        self.first, self.last = numbers[first], numbers[last]
        spans = [(int(a), int(z)) for a, z in zip(self.first, self.last, strict=True)]
        self.live = [[b for b, (a, z) in enumerate(spans) if a <= s < z] for s in range(int(numbers[-1]))]
        self.span = [(1 << z) - (1 << a) for a, z in spans]
        self.bounds = np.stack((self.first, self.last), axis=1).ravel()
        self.members = np.concatenate([np.array(live, np.int64) for live in self.live])
        self.starts = np.cumsum([0] + [len(live) for live in self.live[:-1]])
        self.loads = np.add.reduceat(self.sizes[self.members], self.starts)

    def attempt(self, preorder: str, weighted: bool, limit: int) -> dict[str, int] | str:
        """Return offsets, "impossible", or "unknown" after `limit` nodes. Branches are tried in the order."""
        self.rank, self.weighted, limit = self._ranked(preorder), weighted, self.nodes + limit
        empty = np.zeros(len(self.loads), np.int64)
        path: list[_Node] = []
        state: _Node | int = self._settle(empty, self.loads, np.ones(len(self.buffers), bool))
        while True:
            if isinstance(state, _Node):
                path.append(state)
                self.nodes += 1
                if not state.open.any():
                    return self._named(path)
                if self.nodes >= limit or time.process_time() >= self.end:
                    return "unknown"
            elif not path:
                return "impossible"
            elif state & self._touched(path[-1]):
                path[-1].blame |= state
            else:  # the last choice is not to blame, so neither are the ones that this node still has
                state = self._closed(path.pop(), state)
                continue
            node = path[-1]
            if move := next(node.moves, None):
                node.move = move
                state = self._child(node)
            else:
                state = self._closed(path.pop(), node.blame)

    def _ranked(self, preorder: str) -> Ints:
        """Return the rank of each buffer in an order: the largest by the first word first, then by the next."""
        width = np.array([b.upper - b.lower for b in self.buffers], np.int64)
        total = np.maximum.reduceat(np.append(self.loads, 0), self.bounds)[::2]
        words = {"width": width, "area": width * self.sizes, "total": total, "size": self.sizes}
        queue = np.lexsort([-words[word] for word in reversed(preorder.split())])
        rank = np.empty(len(queue), np.int64)
        rank[queue] = np.arange(len(queue))
        return rank

    def _named(self, path: Sequence[_Node]) -> dict[str, int]:
        return {self.buffers[b].name: at * self.unit for b, at in (node.move for node in path[:-1]) if b != RISE}

    # ── from state to state ───────────────────────────────────────────────────────────────────────────────────────────

    def _child(self, node: _Node) -> _Node | int:
        """Return the state after a node's current move, or the sections to blame for its failure."""
        b, at = node.move
        floors, loads, still = node.floors.copy(), node.loads, node.open
        if b == RISE:
            floors[node.section] = at
        else:
            loads, still = loads.copy(), still.copy()
            floors[self.first[b] : self.last[b]] = at + self.sizes[b]
            loads[self.first[b] : self.last[b]] -= self.sizes[b]
            still[b] = False
        return self._settle(floors, loads, still)

    def _settle(self, floors: Ints, loads: Ints, still: Bools) -> _Node | int:
        """Raise floors as long as inference can; return the state, or the sections to blame if there is no plan."""
        trail: list[tuple[Ints, Ints]] = []
        node = _Node(floors, loads, still, floors, trail)
        while True:
            lows = np.maximum.reduceat(np.append(node.floors, 0), self.bounds)[::2]
            lows[~still] = NEVER
            least = np.minimum.reduceat(lows[self.members], self.starts)
            risen = np.where(loads > 0, np.maximum(node.floors, least), node.floors)
            if rises := bool((risen > node.floors).any()):
                trail.append((node.floors, risen))
            node.floors, node.lows = risen, lows
            over = np.flatnonzero(risen + loads > self.capacity)
            if len(over):
                self.weights[over[0]] += 1
                return self._explained(1 << int(over[0]), node)
            if not rises:
                return self._opened(node)

    def _opened(self, node: _Node) -> _Node | int:
        """Return a node with its section and moves, or the sections to blame if its state has failed before."""
        if not node.open.any():
            return node
        floors = np.where(node.loads > 0, node.floors, NEVER)
        node.key = blake2b(node.open.tobytes() + floors.tobytes(), digest_size=16).digest()
        if (blame := self.failed.get(node.key)) is not None:
            return self._explained(blame, node)
        node.section = self._section(floors, node.lows)
        node.blame = 1 << node.section
        node.moves = self._moves(node)
        return node

    def _section(self, floors: Ints, lows: Ints) -> int:
        """Return a section with the lowest floor: the one with the fewest branches, for its weight."""
        starts = np.flatnonzero(lows == floors.min())
        ends = [np.bincount(side[starts], minlength=len(floors) + 1) for side in (self.first, self.last)]
        branches = np.cumsum(ends[0] - ends[1])[:-1] / (self.weights if self.weighted else 1)
        return int(np.where(floors == floors.min(), branches, np.inf).argmin())

    def _moves(self, node: _Node) -> Iterator[tuple[int, int]]:
        """Yield the branches of a node: each buffer that can start at the floor of its section, then a higher floor."""
        s, level = node.section, int(node.floors[node.section])
        still = [b for b in self.live[s] if node.open[b]]
        ready = sorted((b for b in still if node.lows[b] == level), key=self.rank.__getitem__)
        later = [b for b in still if node.lows[b] > level]
        up = min((int(node.lows[b]) for b in later), default=NEVER)
        node.blame = self._blocked(node.blame, node.floors, later, up)
        for b in ready:
            yield b, level
        if level + 1 + node.loads[s] > self.capacity:
            return
        below = self._supports(node, ready)
        up = min([up] + [int(node.lows[o] + self.sizes[o]) for o in below])
        for b in ready:
            node.blame |= self.span[b]
        for o in below:
            node.blame = self._blocked(node.blame, node.floors, [o], up - int(self.sizes[o]))
        if up + node.loads[s] <= self.capacity:
            yield RISE, up
        else:
            self.weights[s] += 1

    def _supports(self, node: _Node, ready: Sequence[int]) -> list[int]:
        """Return the buffers that could lie under one of these: it is higher than its lowest offset only on another."""
        under = np.zeros(len(self.buffers), bool)
        for b in ready:
            meets = (self.first < self.last[b]) & (self.last > self.first[b])
            meets[b] = False
            under |= meets
        return [int(o) for o in np.flatnonzero(under & node.open)]

    # ── blame ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _touched(self, node: _Node) -> int:
        """Return the sections that the current move of a node changes."""
        b, _ = node.move
        return 1 << node.section if b == RISE else self.span[b]

    def _closed(self, node: _Node, blame: int) -> int:
        """Remember that a node has failed; return the blame in terms of the floors that the move before it left."""
        self.failed[node.key] = blame
        return self._explained(blame, node)

    def _explained(self, blame: int, node: _Node) -> int:
        """Return the blame without the inferred rises of floors: each is due to the buffers that wait in its section,
        and each of these is blocked by another section.
        """
        for before, after in reversed(node.trail):
            for s in np.flatnonzero(after > before).tolist():
                if blame >> s & 1:
                    still = [b for b in self.live[s] if node.open[b]]
                    blame = self._blocked(blame, before, still, int(after[s]))
        return blame

    def _blocked(self, blame: int, floors: Ints, buffers: Sequence[int], level: int) -> int:
        """Return the blame with a section for each buffer whose floor keeps it at `level` or above."""
        high = int.from_bytes(np.packbits(floors >= level, bitorder="little").tobytes(), "little")
        for b in buffers:
            blocks = self.span[b] & high
            if not blocks & blame:
                blame |= blocks & -blocks
        return blame
