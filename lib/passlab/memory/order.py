"""In which order should tasks run, so that the peak of memory is low?

    found = best_order(tasks)
    found.order, found.peak, found.bound      # the bound: no order has a lower peak

Reading order: `postorder` (a tree, one subtree after the other), `liu` (a tree, exactly), `search` (any graph: exactly
if there are few states, with a bound in any case), `beam` (large graphs), `best_order` (whichever fits).

A tree has at most one reader for each result. R. Sethi and J. Ullman, "The generation of optimal code for arithmetic
expressions", JACM 1970, have results of one size; J. W. H. Liu, "An application of generalized tree pebbling to
sparse matrix factorization", SIAM J. Alg. Disc. Meth. 1987, has any sizes, and orders that change between subtrees.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from passlab.memory.tasks import Task, by_name, peak, readers


@dataclass(frozen=True)
class Found:
    """An order with its peak in bytes, and a bound that no order is below. It is best if the two are equal."""

    order: list[str]
    peak: int
    bound: int


def is_tree(tasks: Iterable[Task]) -> bool:
    """Return whether each result has at most one reader."""
    return all(len(after) <= 1 for after in readers(tasks).values())


def _needs_a_tree(tasks: Sequence[Task]) -> None:
    for name, after in readers(tasks).items():
        if len(after) > 1:
            raise ValueError(f"{name} has {len(after)} readers ({after[0]}, {after[1]}, …), so this is not a tree.")


def postorder(tasks: Iterable[Task]) -> list[str]:
    """Return the best order of a tree in which each subtree runs as a whole (ValueError if it is no tree).

    A subtree leaves its result behind while the next one runs. So the one with the largest difference between its peak
    and its result goes first. With results of one size that is Sethi and Ullman's numbering.
    """
    named = by_name(tasks)
    _needs_a_tree(list(named.values()))
    order: dict[str, list[str]] = {}
    most: dict[str, int] = {}
    size = {name: task.size for name, task in named.items()}
    for name, task in [*named.items(), ("", Task("", tuple(n for n, r in readers(named.values()).items() if not r)))]:
        children = sorted(dict.fromkeys(task.reads), key=lambda child: size[child] - most[child])
        held, highest = 0, 0
        for child in children:
            highest = max(highest, held + most[child])
            held += size[child]
        most[name] = max(highest, held + task.size + task.scratch)
        order[name] = [step for child in children for step in order.pop(child)] + [name] * bool(name)
    return order[""]


class Segment(NamedTuple):
    """A part of an order: it climbs to `hill` bytes, and leaves `valley` bytes behind."""

    hill: int
    valley: int
    steps: list[str]


def liu(tasks: Iterable[Task]) -> list[str]:
    """Return an order of a tree with the lowest peak there is (Liu 1987). ValueError if it is no tree.

    The best order of a subtree is cut at its valleys: each segment climbs to the highest hill that is left, and ends at
    the lowest valley after it. So hills fall and valleys rise. It pays to start a segment early if it climbs high over
    what it leaves behind: segments of all subtrees are merged by hill − valley, the largest first.
    """
    named = by_name(tasks)
    _needs_a_tree(list(named.values()))
    segments: dict[str, list[Segment]] = {}
    size = {name: task.size for name, task in named.items()}
    for name, task in named.items():
        children = list(dict.fromkeys(task.reads))
        merged = _merged([segments.pop(child) for child in children])
        held = sum(size[child] for child in children)
        merged.append(Segment(held + task.size + task.scratch, task.size, [name]))
        segments[name] = _cut(merged)
    return [step for segment in _merged(list(segments.values())) for step in segment.steps]


def _merged(subtrees: list[list[Segment]]) -> list[Segment]:
    """Merge the segments of several subtrees, and count their hills and valleys from a common ground."""
    before = [0] * len(subtrees)  # what each subtree holds so far
    queue = [(s.valley - s.hill, k, i) for k, segments in enumerate(subtrees) for i, s in enumerate(segments)]
    merged, held = [], 0
    for _, k, i in sorted(queue):
        hill, valley, steps = subtrees[k][i]
        others = held - before[k]
        held, before[k] = others + valley, valley
        merged.append(Segment(others + hill, held, steps))
    return merged


def _cut(segments: Iterable[Segment]) -> list[Segment]:
    """Join segments until hills fall and valleys rise."""
    stack: list[Segment] = []
    for segment in segments:
        while stack and (segment.hill >= stack[-1].hill or segment.valley <= stack[-1].valley):
            hill, _, steps = stack.pop()
            segment = Segment(max(hill, segment.hill), segment.valley, steps + segment.steps)
        stack.append(segment)
    return stack


def lower_bound(tasks: Iterable[Task]) -> int:
    """Return bytes that every order needs at some moment: the largest sum of what must be there while one task runs.

    While t runs, these are there in any order: its result, its reads, and each result that an ancestor of t has made
    and a descendant of t will read, or that nothing reads.
    """
    named = by_name(tasks)
    bits = {name: 1 << i for i, name in enumerate(named)}
    above: dict[str, int] = {}
    below = dict.fromkeys(named, 0)
    for name, task in named.items():
        above[name] = 0
        for read in task.reads:
            above[name] |= above[read] | bits[read]
    after = readers(named.values())
    for name in reversed(named):
        for reader in after[name]:
            below[name] |= below[reader] | bits[reader]
    wanted = {name: sum(bits[reader] for reader in after[name]) for name in named}
    best = 0
    for name, task in named.items():
        later = below[name] | bits[name]
        there = (n for n in named if above[name] & bits[n] and (wanted[n] & later or not wanted[n]))
        best = max(best, task.size + task.scratch + sum(named[n].size for n in there))
    return best


class _Graph:
    """Tasks as bits of a number. A state is what has run: it says what lives, whatever the order was."""

    def __init__(self, tasks: Iterable[Task]):
        named = by_name(tasks)
        number = {name: i for i, name in enumerate(named)}
        self.names, self.all = list(named), (1 << len(named)) - 1
        self.size = [task.size for task in named.values()]
        self.scratch = [task.scratch for task in named.values()]
        self.reads = [sorted({number[read] for read in task.reads}) for task in named.values()]
        after = readers(named.values())
        self.after = [[number[reader] for reader in after[name]] for name in self.names]
        self.needs = [sum(1 << i for i in reads) for reads in self.reads]
        self.wanted = [sum(1 << i for i in after) for after in self.after]

    def ready(self) -> tuple[int, ...]:
        return tuple(i for i, needs in enumerate(self.needs) if not needs)

    def freed(self, i: int, done: int) -> int:
        """Return the bytes that are dropped after task i, run in a state."""
        left = ~(done | 1 << i)
        return sum(self.size[read] for read in self.reads[i] if not self.wanted[read] & left)

    def run(self, i: int, done: int, live: int, ready: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        """Run task i; return the bytes while it runs, and the state, the live bytes and the ready tasks after it."""
        now = live + self.size[i] + self.scratch[i]
        live += self.size[i] - self.freed(i, done)
        done |= 1 << i
        fresh = tuple(j for j in self.after[i] if not self.needs[j] & ~done)
        return now, done, live, tuple(j for j in ready if j != i) + fresh

    def settle(self, high: int, done: int, live: int, ready: tuple[int, ...]) -> tuple:
        """Run every ready task that frees at least what it makes and stays below the peak so far.

        That loses nothing: in any order that goes on from here, such a task can be moved to the front. It fits now, and
        all that runs between then finds at most as much memory in use as before.
        """
        steps: list[int] = []
        while True:
            for i in ready:
                fits = live + self.size[i] + self.scratch[i] <= high
                if fits and self.size[i] <= self.freed(i, done):
                    _, done, live, ready = self.run(i, done, live, ready)
                    steps.append(i)
                    break
            else:
                return done, live, ready, tuple(steps)


def search(tasks: Iterable[Task], states: int = 20_000) -> Found | int:
    """Return an order with the lowest peak, or, after this many states, a lower bound in bytes.

    Dijkstra's algorithm on the sets that may have run, where a path costs its highest step: states come in the order of
    their peaks, so the peak of the one at hand is a bound for all orders.
    """
    graph = _Graph(tasks)
    least = lower_bound(tasks)
    first = graph.settle(least, 0, 0, graph.ready())
    queue = [(least, -first[0].bit_count(), 0, first[:3])]
    came: dict[int, tuple[int, tuple[int, ...]]] = {first[0]: (-1, first[3])}
    known, closed, count = {first[0]: least}, set(), 0
    while queue:
        high, _, _, (done, live, ready) = heapq.heappop(queue)
        if done in closed:
            continue
        if done == graph.all:
            return Found(_walk(graph, came, done), high, high)
        closed.add(done)
        if len(closed) > states:
            return high
        for i in ready:
            now, *after = graph.run(i, done, live, ready)
            reached = max(high, now)
            *state, steps = graph.settle(reached, *after)
            if state[0] not in known or reached < known[state[0]]:
                known[state[0]] = reached
                came[state[0]] = done, (i, *steps)
                count += 1
                heapq.heappush(queue, (reached, -state[0].bit_count(), count, tuple(state)))
    raise AssertionError("by_name has found an order")


def _walk(graph: _Graph, came: dict[int, tuple[int, tuple[int, ...]]], done: int) -> list[str]:
    order: list[int] = []
    while done >= 0:
        done, steps = came[done]
        order[:0] = steps
    return [graph.names[i] for i in order]


def beam(tasks: Iterable[Task], width: int = 32) -> list[str]:
    """Return a good order of any graph: after each choice, keep the `width` states with the lowest peak, then bytes."""
    graph = _Graph(tasks)
    least = lower_bound(tasks)
    done, live, ready, steps = graph.settle(least, 0, 0, graph.ready())
    front = {done: (least, live, ready, (None, steps))}
    best: tuple | None = None
    while front:
        reached: dict[int, tuple] = {}
        for done, (high, live, ready, path) in front.items():
            if done == graph.all:
                best = min(best or (high, path), (high, path), key=lambda found: found[0])
                continue
            for i in ready:
                now, *after = graph.run(i, done, live, ready)
                top = max(high, now)
                state, left, next_, steps = graph.settle(top, *after)
                if state not in reached or top < reached[state][0]:
                    reached[state] = top, left, next_, (path, (i, *steps))
        front = dict(sorted(reached.items(), key=lambda item: item[1][:2])[:width])
    order: list[int] = []
    path = best[1]
    while path:
        path, steps = path
        order[:0] = steps
    return [graph.names[i] for i in order]


def best_order(tasks: Iterable[Task], states: int = 20_000, width: int = 32) -> Found:
    """Return the best order found: exact on trees and where few states suffice, else the best of a beam search and of
    the order as given, with a bound."""
    tasks = list(by_name(tasks).values())
    if is_tree(tasks):
        order = liu(tasks)
        return Found(order, peak(tasks, order), peak(tasks, order))
    found = search(tasks, states)
    if isinstance(found, Found):
        return found
    orders = [[task.name for task in tasks], beam(tasks, width)]
    order = min(orders, key=lambda order: peak(tasks, order))
    return Found(order, peak(tasks, order), found)
