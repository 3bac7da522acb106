"""Orders of tasks with a low peak of memory.

    schedule = best_order(tasks)
    schedule.order, schedule.peak, schedule.lower_bound      # no order has a peak below lower_bound

Reading order: `postorder` (a tree, one subtree after the other), `liu` (a tree, exactly), `search` (any graph: exactly
if there are few states, else a bound), `beam` (large graphs), `best_order` (chooses among them).

A tree has at most one reader for each result. R. Sethi and J. Ullman, "The generation of optimal code for arithmetic
expressions", JACM 1970, assume results of one size; J. W. H. Liu, "An application of generalized tree pebbling to
sparse matrix factorization", SIAM J. Alg. Disc. Meth. 1987, allows any sizes, and orders that alternate between
subtrees.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from passlab.memory.tasks import Task, by_name, peak, readers


@dataclass(frozen=True)
class Schedule:
    """An order, its peak in bytes, and a lower bound on all peaks. The order is optimal if the two are equal."""

    order: list[str]
    peak: int
    lower_bound: int


def is_tree(tasks: Iterable[Task]) -> bool:
    """Return whether each result has at most one reader."""
    return all(len(after) <= 1 for after in readers(tasks).values())


def _check_tree(tasks: Sequence[Task]) -> None:
    for name, after in readers(tasks).items():
        if len(after) > 1:
            raise ValueError(f"{name} has {len(after)} readers ({after[0]}, {after[1]}, …), so this is not a tree.")


def postorder(tasks: Iterable[Task]) -> list[str]:
    """Return the best order of a tree in which each subtree runs as a whole. Raises ValueError unless it is a tree.

    The result of a subtree stays live while the next subtree runs. So the subtree with the largest difference between
    peak and result runs first. With results of one size that is Sethi and Ullman's numbering.
    """
    named = by_name(tasks)
    _check_tree(list(named.values()))
    order: dict[str, list[str]] = {}
    peaks: dict[str, int] = {}
    size = {name: task.size for name, task in named.items()}
    for name, task in [*named.items(), ("", Task("", tuple(n for n, r in readers(named.values()).items() if not r)))]:
        children = sorted(dict.fromkeys(task.reads), key=lambda child: size[child] - peaks[child])
        live, high = 0, 0
        for child in children:
            high = max(high, live + peaks[child])
            live += size[child]
        peaks[name] = max(high, live + task.size + task.scratch)
        order[name] = [step for child in children for step in order.pop(child)] + [name] * bool(name)
    return order[""]


class Segment(NamedTuple):
    """A part of an order, with a peak of `hill` bytes and `valley` live bytes after it."""

    hill: int
    valley: int
    steps: list[str]


def liu(tasks: Iterable[Task]) -> list[str]:
    """Return an order of a tree with the lowest possible peak (Liu 1987). Raises ValueError unless it is a tree.

    The best order of a subtree is cut at its valleys: each segment climbs to the highest remaining hill and ends at the
    lowest valley after it. So hills fall and valleys rise. A segment should start early if its hill is far above its
    valley: segments of all subtrees are merged by hill − valley, the largest first.
    """
    named = by_name(tasks)
    _check_tree(list(named.values()))
    segments: dict[str, list[Segment]] = {}
    size = {name: task.size for name, task in named.items()}
    for name, task in named.items():
        children = list(dict.fromkeys(task.reads))
        merged = _merged([segments.pop(child) for child in children])
        live = sum(size[child] for child in children)
        merged.append(Segment(live + task.size + task.scratch, task.size, [name]))
        segments[name] = _cut(merged)
    return [step for segment in _merged(list(segments.values())) for step in segment.steps]


def _merged(subtrees: list[list[Segment]]) -> list[Segment]:
    """Merge the segments of several subtrees, with hills and valleys that include the other subtrees' live bytes."""
    valleys = [0] * len(subtrees)  # live bytes of each subtree
    queue = [(s.valley - s.hill, k, i) for k, segments in enumerate(subtrees) for i, s in enumerate(segments)]
    merged, live = [], 0
    for _, k, i in sorted(queue):
        hill, valley, steps = subtrees[k][i]
        others = live - valleys[k]
        live, valleys[k] = others + valley, valley
        merged.append(Segment(others + hill, live, steps))
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
    """Return the largest sum of bytes that are live while some task runs, in every order.

    While t runs, these are live: its result, its reads, and each result of an ancestor of t that a descendant of t
    reads, or that has no reader.
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
    readers_of = {name: sum(bits[reader] for reader in after[name]) for name in named}
    best = 0
    for name, task in named.items():
        later = below[name] | bits[name]
        live = (n for n in named if above[name] & bits[n] and (readers_of[n] & later or not readers_of[n]))
        best = max(best, task.size + task.scratch + sum(named[n].size for n in live))
    return best


class _Graph:
    """Tasks as bits of a number. A state is the set of tasks that have run; the live results follow from it."""

    def __init__(self, tasks: Iterable[Task]):
        named = by_name(tasks)
        number = {name: i for i, name in enumerate(named)}
        after = readers(named.values())
        self.names, self.all = list(named), (1 << len(named)) - 1
        self.size = [task.size for task in named.values()]
        self.scratch = [task.scratch for task in named.values()]
        self.reads = [sorted({number[read] for read in task.reads}) for task in named.values()]
        self.readers = [[number[reader] for reader in after[name]] for name in self.names]
        self.reads_bits = [sum(1 << i for i in reads) for reads in self.reads]
        self.readers_bits = [sum(1 << i for i in readers) for readers in self.readers]

    def ready(self) -> tuple[int, ...]:
        return tuple(i for i, reads in enumerate(self.reads_bits) if not reads)

    def freed(self, i: int, ran: int) -> int:
        """Return the bytes that become free when task i runs after those in `ran`, a set of bits."""
        rest = ~(ran | 1 << i)
        return sum(self.size[read] for read in self.reads[i] if not self.readers_bits[read] & rest)

    def run(self, i: int, ran: int, live: int, ready: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        """Run task i; return the bytes while it runs, and the state, the live bytes and the ready tasks after it."""
        during = live + self.size[i] + self.scratch[i]
        live += self.size[i] - self.freed(i, ran)
        ran |= 1 << i
        fresh = tuple(j for j in self.readers[i] if not self.reads_bits[j] & ~ran)
        return during, ran, live, tuple(j for j in ready if j != i) + fresh

    def settle(self, high: int, ran: int, live: int, ready: tuple[int, ...]) -> tuple:
        """Run every ready task that frees at least as much as it allocates and stays below the peak so far.

        No order is lost: in any continuation such a task can be moved to the front. It fits at once, and all tasks that
        ran before it then find at most as much memory in use as before.
        """
        steps: list[int] = []
        while True:
            for i in ready:
                fits = live + self.size[i] + self.scratch[i] <= high
                if fits and self.size[i] <= self.freed(i, ran):
                    _, ran, live, ready = self.run(i, ran, live, ready)
                    steps.append(i)
                    break
            else:
                return ran, live, ready, tuple(steps)


Path = tuple[Any, tuple[int, ...]]  # (path before, tasks), None at the start


def search(tasks: Iterable[Task], states: int = 20_000) -> Schedule | int:
    """Return an order with the lowest peak or, after this many states, a lower bound in bytes.

    Dijkstra's algorithm on the sets of tasks that may have run. A path costs its highest step, so states leave the
    queue in the order of their peaks, and the peak of the current one is a bound for all orders.
    """
    graph = _Graph(tasks)
    least = lower_bound(tasks)
    ran, live, ready, steps = graph.settle(least, 0, 0, graph.ready())
    queue: list[tuple] = [(least, -ran.bit_count(), 0, (ran, live, ready), (None, steps))]
    known, closed, count = {ran: least}, set(), 0
    while queue:
        high, _, _, (ran, live, ready), path = heapq.heappop(queue)
        if ran in closed:
            continue
        if ran == graph.all:
            return Schedule(_names(graph, path), high, high)
        closed.add(ran)
        if len(closed) > states:
            return high
        for i in ready:
            during, *after = graph.run(i, ran, live, ready)
            top = max(high, during)
            *state, steps = graph.settle(top, *after)
            if state[0] not in known or top < known[state[0]]:
                known[state[0]] = top
                count += 1
                heapq.heappush(queue, (top, -state[0].bit_count(), count, tuple(state), (path, (i, *steps))))
    raise AssertionError("by_name returned tasks that have no order")


def _names(graph: _Graph, path: Path | None) -> list[str]:
    order: list[int] = []
    while path:
        path, steps = path
        order[:0] = steps
    return [graph.names[i] for i in order]


def beam(tasks: Iterable[Task], width: int = 32) -> list[str]:
    """Return a good order of any graph: after each choice, keep the `width` states with the lowest peak, then bytes."""
    graph = _Graph(tasks)
    least = lower_bound(tasks)
    ran, live, ready, steps = graph.settle(least, 0, 0, graph.ready())
    front = {ran: (least, live, ready, (None, steps))}
    complete: list[tuple[int, Path]] = []
    while front:
        states: dict[int, tuple] = {}
        for ran, (high, live, ready, path) in front.items():
            if ran == graph.all:
                complete.append((high, path))
                continue
            for i in ready:
                during, *after = graph.run(i, ran, live, ready)
                top = max(high, during)
                state, *rest, steps = graph.settle(top, *after)
                if state not in states or top < states[state][0]:
                    states[state] = top, *rest, (path, (i, *steps))
        front = dict(sorted(states.items(), key=lambda item: item[1][:2])[:width])
    return _names(graph, min(complete, key=lambda pair: pair[0])[1])


def best_order(tasks: Iterable[Task], states: int = 20_000, width: int = 32) -> Schedule:
    """Return the best order: exact on trees and where few states suffice, else the better one of a beam search and the
    order of `tasks`, with a bound."""
    tasks = list(by_name(tasks).values())
    if is_tree(tasks):
        order = liu(tasks)
        return Schedule(order, peak(tasks, order), peak(tasks, order))
    schedule = search(tasks, states)
    if isinstance(schedule, Schedule):
        return schedule
    orders = [[task.name for task in tasks], beam(tasks, width)]
    order = min(orders, key=lambda order: peak(tasks, order))
    return Schedule(order, peak(tasks, order), schedule)
