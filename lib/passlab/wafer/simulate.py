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

    def at_time(self, kind: int, times: np.ndarray, events: np.ndarray) -> None:
        """Enter events at `times`. kind 0: a resource is free, 1: a message is ready to send, 2: a head arrives."""
        if not len(events):
            return
        low, high = int(times.min()), int(times.max())
        if low == high:
            self._bucket(low)[kind].append(events)
            return
        order = np.argsort(times, kind="stable")
        times, events = times[order], events[order]
        cuts = np.flatnonzero(np.diff(times)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(times)], strict=True):
            self._bucket(int(times[start]))[kind].append(events[start:end])

    def _bucket(self, time: int) -> tuple[list, list, list]:
        bucket = self.events.get(time)
        if bucket is None:
            bucket = self.events[time] = ([], [], [])
            heapq.heappush(self.times, time)
        return bucket

    def ask(self, resources: np.ndarray, messages: np.ndarray, time: int) -> np.ndarray:
        """Return which messages get their resource; the others queue. `messages` ascends: lower numbers go first."""
        number = np.arange(len(resources), dtype=np.int32)
        self.one[resources[::-1]] = number[::-1]
        granted = (self.free[resources] <= time) & (self.one[resources] == number)
        taken_now = resources[granted]
        self.owner[taken_now], self.free[taken_now] = messages[granted], NEVER
        if not granted.all():
            self._enqueue(resources[~granted], messages[~granted])
        return granted

    def _way(self, resources: np.ndarray) -> np.ndarray:
        """Return 1 for entries of cores, else 0: the number of the message's queue."""
        return ((resources >= 4 * self.p.machine.cores) & (resources < 5 * self.p.machine.cores)).astype(np.int8)

    def _enqueue(self, resources: np.ndarray, messages: np.ndarray) -> None:
        while len(resources):
            _, index = np.unique(resources, return_index=True)
            heads_of, first = resources[index], messages[index]
            way, tail = self._way(heads_of), self.queue_tail[heads_of]
            empty = tail < 0
            self.queue_head[heads_of[empty]] = first[empty]
            self.next[way[~empty], tail[~empty]] = first[~empty]
            self.queue_tail[heads_of] = first
            self.next[way, first] = -1
            self.call(heads_of[empty])
            queued = np.ones(len(resources), bool)
            queued[index] = False
            resources, messages = resources[queued], messages[queued]

    def call(self, resources: np.ndarray) -> None:
        """Enter when resources with a queue will be free, if that is known."""
        resources = resources[(self.queue_head[resources] >= 0) & (self.free[resources] < NEVER)]
        self.at_time(0, self.free[resources], resources)

    def serve(self, resources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hand resources that are free now to the first in each queue; return the resources and their new owners."""
        messages, way = self.queue_head[resources], self._way(resources)
        following = self.next[way, messages]
        self.queue_head[resources] = following
        self.queue_tail[resources[following < 0]] = -1
        self.owner[resources], self.free[resources] = messages, NEVER
        return resources, messages.astype(np.int64)

    def run(self) -> Run:
        p = self.p
        begin = np.flatnonzero(self.unready == 0)
        self.ready[begin] = p.work[begin]
        self.at_time(1, self.ready[begin] + self.ramp + 1, begin)
        gates, empty = 5 * p.machine.cores, np.zeros(0, np.int64)
        time = 0
        while self.times:
            time = heapq.heappop(self.times)
            freed, ready, heads = self.events.pop(time)
            heads = list(heads)
            moving = []
            if freed:
                resources, messages = self.serve(np.concatenate(freed))
                gate = resources >= gates
                heads.append(messages[gate])
                moving.append(messages[~gate])
            if ready:
                messages = np.sort(np.concatenate(ready))
                heads.append(messages[self.ask(self.gate[messages], messages, time)])
            if moving:
                messages = np.concatenate(moving)
                np.subtract.at(self.lacks, messages, 1)
                moving = [np.unique(messages[self.lacks[messages] == 0])]
            if heads:
                messages = np.sort(np.concatenate(heads))
                place = self.at[messages]
                link, down = self.link[place], self.down[place]
                lacks = np.zeros(len(messages), np.int8)
                for resources in (link, down):
                    asks = resources >= 0
                    lacks[asks] += 1
                    lacks[asks] -= self.ask(resources[asks], messages[asks], time)
                self.lacks[messages] = lacks
                moving.append(messages[lacks == 0])
            messages = np.concatenate(moving) if moving else empty
            if len(messages):
                self.cross(messages, time)
        stuck = np.flatnonzero(self.done == NEVER)
        if len(stuck):
            raise Deadlock(self._story(stuck, time))
        return Run(p, int(self.done.max(initial=0)), self.ready, self.done, self.passed)

    def cross(self, messages: np.ndarray, time: int) -> None:
        """Move the heads of messages to the next router, or into their last core."""
        place = self.at[messages]
        self.passed[place] = time
        ended = place == self.last[messages]
        on = messages[~ended]
        self.at[on] += 1
        if len(on):
            self._bucket(time + 1)[2].append(on)
        landed = self.p.drops[place] & self.busy[place]
        if landed.any():
            self.arrive(place[landed], np.full(int(landed.sum()), time + self.ramp), first=True)
        self.settle(messages)

    def settle(self, messages: np.ndarray) -> None:
        """Record when the last words of messages pass each place, as far as that is known."""
        p = self.p
        messages = messages[self.unsupplied[messages] == 0]
        if not len(messages):
            return
        at, first, last = self.at[messages], self.first[messages], self.last[messages]
        over = (at == last) & (self.passed[at] < NEVER)
        # the head has passed up to `head`; the last word is known up to `words` − 1 places before that
        head = np.where(over, last, at - 1)
        known = np.where(over, last, head - p.words[messages] + 1)
        begun = self.passed[first] < NEVER
        low = self.freed[messages]
        high = np.where(begun, np.maximum(known + 1, low), low)
        move = high > low
        messages, low, high, head, first = messages[move], low[move], high[move], head[move], first[move]
        if not len(messages):
            return
        self.freed[messages] = high
        places = ranges(low, high)
        sizes = high - low
        behind = places + np.repeat(p.words[messages] - 1, sizes)
        reach = np.repeat(head, sizes)
        passing = self.passed[np.minimum(behind, reach)] + np.maximum(behind - reach, 0)
        supplied = np.maximum(self.supplied[messages], self.ready[messages] + p.words[messages] - 1) + self.ramp + 1
        passing = np.maximum(passing, np.repeat(supplied - first, sizes) + places)
        out, into = self.link[places], p.drops[places]
        begins = places == np.repeat(first, sizes)
        for resources, mask in (
            (out[out >= 0], out >= 0),
            (self.down[places[into]], into),
            (self.gate[messages[low == first]], begins),
        ):
            self.free[resources] = passing[mask] + 1
            self.call(resources)
        ends = places == np.repeat(self.last[messages], sizes)
        self.done[messages[high == self.last[messages] + 1]] = passing[ends] + self.ramp + 1
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

    def _story(self, stuck: np.ndarray, time: int) -> str:
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
        continuation = f"; and so on, {len(circle)} messages in a circle" if len(circle) > 4 else ""
        return f"Deadlock after cycle {time}: {circle_text}{continuation}."

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
        for resource in (link, down):
            if resource >= 0 and self.owner[resource] != number:
                blocker = int(self.owner[resource])
                into = (
                    f"link {core} → {self.p.core(self.p.cores[place + 1])}"
                    if resource == link
                    else f"the way into {core}"
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
