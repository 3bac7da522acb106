"""Simulate programs by events: when each message holds each link, thousands of messages at a time.

The rules (`tests/wafer/stepped.py` follows them word by word, and must agree):

- A core sends one message at a time, one word a cycle. A word takes `ramp` cycles to the router, one in each router
  that it passes, both ends included (one more than links), `ramp` to the core at the other end, and one to be processed
  there; if it is streamed, it leaves in that same cycle.
- The head of a message takes the links of its route one by one, and the entry of each core where it drops a copy; it
  keeps each until its last word has passed. Between two routers there is room for one word: while the head waits, the
  message stops and keeps its links.
- The first to request a link gets it; in the same cycle, the message with the lower number.

So the words of a message follow its head one a cycle, and the times of the head determine the message.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from passlab.wafer.program import Program, ranges

NEVER = np.int64(2**60)


class Deadlock(ValueError):
    """Messages wait for each other; the sentence names them, their cores and the links they wait for."""


@dataclass(frozen=True)
class Run:
    """A finished run, of `cycles` in all.

    For each of the M messages `ready`, the cycle in which its source could send, and `done`, the cycles until its last
    core had processed its last word; for each of the F cores of all routes `passed`, the cycle in which the message's
    head left that core's router.
    """

    program: Program
    cycles: int
    ready: np.ndarray
    done: np.ndarray
    passed: np.ndarray

    def traffic(self) -> np.ndarray:
        """Return the words that each link carried: (rows, columns, 4), to the north, east, south and west."""
        p, machine = self.program, self.program.machine
        links = _links(p)
        sizes = np.diff(p.offsets)
        words = np.repeat(p.words, sizes)
        real = links >= 0
        counts = np.bincount(links[real], weights=words[real], minlength=4 * machine.cores)
        return counts.astype(np.int64).reshape(machine.rows, machine.columns, 4)


def _links(p: Program) -> np.ndarray:
    """Return, for each core of each route (F), the link to the next: core · 4 + direction; −1 for the last."""
    step = np.diff(p.cores, append=p.cores[-1:])
    columns = p.machine.columns
    x_step = (p.cores % columns)[1:] - (p.cores % columns)[:-1]
    x_step = np.append(x_step, 0)
    direction = np.select([x_step == 1, x_step == -1, step > 0], [1, 3, 2], 0)
    links = p.cores * 4 + direction
    links[p.offsets[1:] - 1] = -1
    return links


class _Machine:
    """The state of all messages and of the resources they hold: links, entries of cores, and gates out of cores."""

    def __init__(self, p: Program) -> None:
        self.p, self.ramp = p, p.machine.ramp
        cores = p.machine.cores
        self.first, self.last = p.offsets[:-1], p.offsets[1:] - 1
        self.link = _links(p)
        self.down = np.where(p.drops, 4 * cores + p.cores, -1)
        self.gate = 5 * cores + p.sources
        # resource → its last owner, and the cycle from which it is free again: NEVER while unknown
        self.owner, self.free = np.full(6 * cores, -1, np.int32), np.zeros(6 * cores, np.int64)
        self.one = np.zeros(6 * cores, np.int32)
        self.queue_head, self.queue_tail = np.full(6 * cores, -1, np.int32), np.full(6 * cores, -1, np.int32)
        # the next in a queue; a message can be in two, for a link and for the entry of a core
        self.next = np.full((2, p.count), -1, np.int32)
        self.at, self.lacks = self.first.copy(), np.zeros(p.count, np.int8)
        self.passed = np.full(len(p.cores), NEVER)
        self.ready = np.zeros(p.count, np.int64)
        self.supplied = np.zeros(p.count, np.int64)
        self.done = np.full(p.count, NEVER)
        self.freed = self.first.copy()
        self.unready = np.bincount(p.child, minlength=p.count)
        self.unsupplied = np.bincount(p.child[p.stream], minlength=p.count)
        self._dependences()
        self.times: list[int] = []
        self.events: dict[int, tuple[list, list, list]] = {}

    def _dependences(self) -> None:
        """Find the place of each child's source on its parent's route, and order the dependences by it."""
        p = self.p
        sizes = np.diff(p.offsets)[p.parent]
        places = ranges(self.first[p.parent], self.first[p.parent] + sizes)
        fits = p.cores[places] == np.repeat(p.sources[p.child], sizes)
        place = places[fits]
        order = np.argsort(place, kind="stable")
        self.child, self.stream, place = p.child[order], p.stream[order], place[order]
        self.children = np.searchsorted(place, np.arange(len(p.cores) + 1))
        self.busy = self.children[1:] > self.children[:-1]

    def at_time(self, kind: int, times: np.ndarray, what: np.ndarray) -> None:
        """Enter events at `times`. kind 0: a resource is free, 1: a message is ready to send, 2: a head arrives."""
        if not len(what):
            return
        low, high = int(times.min()), int(times.max())
        if low == high:
            self._bucket(low)[kind].append(what)
            return
        order = np.argsort(times, kind="stable")
        times, what = times[order], what[order]
        cuts = np.flatnonzero(np.diff(times)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(times)], strict=True):
            self._bucket(int(times[start]))[kind].append(what[start:end])

    def _bucket(self, time: int) -> tuple[list, list, list]:
        bucket = self.events.get(time)
        if bucket is None:
            bucket = self.events[time] = ([], [], [])
            heapq.heappush(self.times, time)
        return bucket

    def ask(self, what: np.ndarray, who: np.ndarray, now: int) -> np.ndarray:
        """Return which messages get their resource; the others queue. `who` ascends: the lower number goes first."""
        number = np.arange(len(what), dtype=np.int32)
        self.one[what[::-1]] = number[::-1]
        granted = (self.free[what] <= now) & (self.one[what] == number)
        taken_now = what[granted]
        self.owner[taken_now], self.free[taken_now] = who[granted], NEVER
        if not granted.all():
            self._enqueue(what[~granted], who[~granted])
        return granted

    def _way(self, what: np.ndarray) -> np.ndarray:
        """Return 1 for entries of cores, else 0: the number of the message's queue."""
        return ((what >= 4 * self.p.machine.cores) & (what < 5 * self.p.machine.cores)).astype(np.int8)

    def _enqueue(self, what: np.ndarray, who: np.ndarray) -> None:
        while len(what):
            _, index = np.unique(what, return_index=True)
            heads_of, first = what[index], who[index]
            way, tail = self._way(heads_of), self.queue_tail[heads_of]
            empty = tail < 0
            self.queue_head[heads_of[empty]] = first[empty]
            self.next[way[~empty], tail[~empty]] = first[~empty]
            self.queue_tail[heads_of] = first
            self.next[way, first] = -1
            self.call(heads_of[empty])
            queued = np.ones(len(what), bool)
            queued[index] = False
            what, who = what[queued], who[queued]

    def call(self, what: np.ndarray) -> None:
        """Enter when resources with a queue will be free, if that is known."""
        what = what[(self.queue_head[what] >= 0) & (self.free[what] < NEVER)]
        self.at_time(0, self.free[what], what)

    def serve(self, what: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hand resources that are free now to the first in each queue; return the resources and their new owners."""
        who, way = self.queue_head[what], self._way(what)
        following = self.next[way, who]
        self.queue_head[what] = following
        self.queue_tail[what[following < 0]] = -1
        self.owner[what], self.free[what] = who, NEVER
        return what, who.astype(np.int64)

    def run(self) -> Run:
        p = self.p
        begin = np.flatnonzero(self.unready == 0)
        self.ready[begin] = p.work[begin]
        self.at_time(1, self.ready[begin] + self.ramp + 1, begin)
        gates, empty = 5 * p.machine.cores, np.zeros(0, np.int64)
        now = 0
        while self.times:
            now = heapq.heappop(self.times)
            freed, ready, heads = self.events.pop(now)
            heads = list(heads)
            moving = []
            if freed:
                what, who = self.serve(np.concatenate(freed))
                gate = what >= gates
                heads.append(who[gate])
                moving.append(who[~gate])
            if ready:
                who = np.sort(np.concatenate(ready))
                heads.append(who[self.ask(self.gate[who], who, now)])
            if moving:
                who = np.concatenate(moving)
                np.subtract.at(self.lacks, who, 1)
                moving = [np.unique(who[self.lacks[who] == 0])]
            if heads:
                who = np.sort(np.concatenate(heads))
                place = self.at[who]
                link, down = self.link[place], self.down[place]
                lacks = np.zeros(len(who), np.int8)
                for what in (link, down):
                    asks = what >= 0
                    lacks[asks] += 1
                    lacks[asks] -= self.ask(what[asks], who[asks], now)
                self.lacks[who] = lacks
                moving.append(who[lacks == 0])
            who = np.concatenate(moving) if moving else empty
            if len(who):
                self.cross(who, now)
        stuck = np.flatnonzero(self.done == NEVER)
        if len(stuck):
            raise Deadlock(self._story(stuck, now))
        return Run(p, int(self.done.max(initial=0)), self.ready, self.done, self.passed)

    def cross(self, who: np.ndarray, now: int) -> None:
        """Move the heads of messages to the next router, or into their last core."""
        place = self.at[who]
        self.passed[place] = now
        ended = place == self.last[who]
        on = who[~ended]
        self.at[on] += 1
        if len(on):
            self._bucket(now + 1)[2].append(on)
        landed = self.p.drops[place] & self.busy[place]
        if landed.any():
            self.arrive(place[landed], np.full(int(landed.sum()), now + self.ramp), first=True)
        self.settle(who)

    def settle(self, who: np.ndarray) -> None:
        """Record when the last words of messages pass each place, as far as that is known."""
        p = self.p
        who = who[self.unsupplied[who] == 0]
        if not len(who):
            return
        at, first, last = self.at[who], self.first[who], self.last[who]
        over = (at == last) & (self.passed[at] < NEVER)
        # the head has passed up to `head`; the last word is known up to `words` − 1 places before that
        head = np.where(over, last, at - 1)
        known = np.where(over, last, head - p.words[who] + 1)
        begun = self.passed[first] < NEVER
        low, high = self.freed[who], np.where(begun, np.maximum(known + 1, self.freed[who]), self.freed[who])
        move = high > low
        who, low, high, head, first = who[move], low[move], high[move], head[move], first[move]
        if not len(who):
            return
        self.freed[who] = high
        places = ranges(low, high)
        sizes = high - low
        behind = places + np.repeat(p.words[who] - 1, sizes)
        reach = np.repeat(head, sizes)
        passing = self.passed[np.minimum(behind, reach)] + np.maximum(behind - reach, 0)
        supplied = np.maximum(self.supplied[who], self.ready[who] + p.words[who] - 1) + self.ramp + 1
        passing = np.maximum(passing, np.repeat(supplied - first, sizes) + places)
        out, into = self.link[places], p.drops[places]
        begins = places == np.repeat(first, sizes)
        for what, mask in (
            (out[out >= 0], out >= 0),
            (self.down[places[into]], into),
            (self.gate[who[low == first]], begins),
        ):
            self.free[what] = passing[mask] + 1
            self.call(what)
        ends = places == np.repeat(self.last[who], sizes)
        self.done[who[high == self.last[who] + 1]] = passing[ends] + self.ramp + 1
        landed = into & self.busy[places]
        if landed.any():
            self.arrive(places[landed], passing[landed] + self.ramp, first=False)

    def arrive(self, places: np.ndarray, times: np.ndarray, first: bool) -> None:
        """Process the first (or the last) word of a message at each place, at its time."""
        low, high = self.children[places], self.children[places + 1]
        index = ranges(low, high)
        times = np.repeat(times, high - low)
        child, stream = self.child[index], self.stream[index]
        if first:
            child, times = child[stream], times[stream]
            np.maximum.at(self.ready, child, times)
        else:
            waits, fed = child[~stream], child[stream]
            np.maximum.at(self.ready, waits, times[~stream] + 1)
            np.maximum.at(self.supplied, fed, times[stream])
            np.subtract.at(self.unsupplied, fed, 1)
            child = waits
        if len(child):
            np.subtract.at(self.unready, child, 1)
            child = np.unique(child)
            child = child[self.unready[child] == 0]
            self.ready[child] += self.p.work[child]
            self.at_time(1, self.ready[child] + self.ramp + 1, child)
        if not first and len(fed):
            self.settle(np.unique(fed))

    def _story(self, stuck: np.ndarray, now: int) -> str:
        """Return the cycle of messages that wait for each other, as a sentence."""
        lacking = set(stuck.tolist())
        parents: dict[int, list[int]] = {}
        for child, parent in zip(self.p.child.tolist(), self.p.parent.tolist(), strict=True):
            parents.setdefault(child, []).append(parent)
        path: list[tuple[int, str]] = []
        number = min(lacking)
        while number not in [m for m, _ in path]:
            blocker, reason = self._blocker(number, parents, lacking)
            path.append((number, reason))
            number = blocker
        circle = path[[m for m, _ in path].index(number) :]
        circle_text = "; ".join(f"{self.p.name(m)}, waits for {reason}" for m, reason in circle[:4])
        more = f"; and so on, {len(circle)} messages in a circle" if len(circle) > 4 else ""
        return f"Deadlock after cycle {now}: {circle_text}{more}."

    def _blocker(self, number: int, parents: dict[int, list[int]], lacking: set[int]) -> tuple[int, str]:
        """Return the message that this one waits for, and the reason."""
        place = int(self.at[number])
        if self.unready[number]:
            blocker = next(m for m in parents[number] if m in lacking)
            return blocker, f"message {blocker} to arrive at {self.p.core(self.p.sources[number])}"
        core = self.p.core(self.p.cores[place])
        gate, link, down = int(self.gate[number]), int(self.link[place]), int(self.down[place])
        if self.passed[self.first[number]] == NEVER and self.owner[gate] != number:
            return int(self.owner[gate]), f"its core, which still sends message {int(self.owner[gate])}"
        for what in (link, down):
            if what >= 0 and self.owner[what] != number:
                blocker = int(self.owner[what])
                into = (
                    f"link {core} → {self.p.core(self.p.cores[place + 1])}" if what == link else f"the way into {core}"
                )
                return blocker, f"{into}, which message {blocker} holds"
        blocker = next(m for m in parents[number] if m in lacking)  # its head has arrived, the other words cannot
        return blocker, f"the words of message {blocker} that it streams"


def simulate(program: Program) -> Run:
    """Return the run of a program, cycle by cycle. Raises Deadlock if it never ends.

    >>> from passlab.wafer import Machine, Message, program
    >>> simulate(program(Machine(1, 8), [Message(Machine(1, 8).route((0, 7), (0, 0)), 100)])).cycles
    112
    """
    return _Machine(program).run()
