"""Group a big graph into few boxes: repeated runs are drawn once, the rest is cut where few values cross.

Every group is a stretch of one topological order, so an acyclic graph stays acyclic when it is drawn in groups.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace

Key = Hashable


@dataclass
class Group:
    """Consecutive nodes and their caption: "relu", "12 × (linear → relu)" or "120 nodes".

    A run has a `body`: the groups of its first round. Round r of a run has its nodes in the order of the first, at
    `keys[r * size : (r + 1) * size]`, where `size` is the number of nodes in the body.
    """

    keys: list[Key]
    caption: str
    body: tuple[Group, ...] = ()

    @property
    def boxes(self) -> int:
        """The number of boxes in the drawing of the group."""
        return sum(part.boxes for part in self.body) or 1


def group(
    names: Mapping[Key, str],
    looks: Mapping[Key, Hashable],
    edges: Collection[tuple[Key, Key]],
    keep: Collection[Key],
    limit: int,
) -> list[Group]:
    """Group the nodes in `names` (key → op, in topological order) into about `limit` boxes or fewer.

    Nodes with equal `looks` are alike in the search for runs. `keep`: nodes to draw separately, with their neighbours,
    up to a third of the limit.
    """
    alone = _with_neighbours(keep, edges, limit // 3)
    groups = [Group([key], names[key]) for key in _leaves_late(names, edges)]
    symbols: dict[Hashable, str] = {}

    def symbol(g: Group) -> str:
        """Return one character per look, and a unique one for a separate node."""
        key = g.keys[0] if g.keys[0] in alone else (tuple(looks[k] for k in g.keys), g.caption)
        return symbols.setdefault(key, chr(0x10000 + len(symbols)))

    while len(groups) > limit and (fewer := _runs(groups, "".join(map(symbol, groups)))):
        groups = fewer
    pieces, result = max(limit // 2, 4), groups
    while pieces >= 4 and (len(result) > limit or _crossing(result, edges) > len(result) + limit // 2):
        result = _stretches(groups, edges, alone, pieces)
        pieces //= 2
    if sum(g.boxes for g in result) > limit:
        return [replace(g, body=()) for g in result]
    return result


def _with_neighbours(keep: Collection[Key], edges: Collection[tuple[Key, Key]], limit: int) -> set[Key]:
    alone = set(list(keep)[:limit])
    for producer, consumer in edges:
        if len(alone) >= limit:
            break
        if (producer in keep) != (consumer in keep):
            alone |= {producer, consumer}
    return alone


def _leaves_late(names: Mapping[Key, str], edges: Collection[tuple[Key, Key]]) -> list[Key]:
    """Return the order with every leaf (a weight, an input) moved to just before its first consumer."""
    inputs: dict[Key, list[Key]] = {}
    used = set()
    for producer, consumer in edges:
        inputs.setdefault(consumer, []).append(producer)
        used.add(producer)
    late = {key for key in names if key not in inputs and key in used}
    order, placed = [], set()
    for key in names:
        if key not in late:
            for leaf in inputs.get(key, ()):
                if leaf in late and leaf not in placed:
                    placed.add(leaf)
                    order.append(leaf)
            order.append(key)
    return order


#: The shortest body, of up to 64 nodes, repeated three times or more.
_RUN = re.compile(r"(.{1,64}?)\1{2,}", re.S)


def _runs(groups: list[Group], text: str) -> list[Group]:
    """Merge every run into one group; return [] without a run. A second call merges runs of runs."""
    result, end = [], 0
    for run in _RUN.finditer(text):
        body = groups[run.start() : run.start() + len(run[1])]
        times = (run.end() - run.start()) // len(run[1])
        body_text = " → ".join(part.caption for part in body)
        if len(body_text) > 60:
            body_text = f"{body_text[:40]} … {body[-1].caption[-18:]}"
        result += groups[end : run.start()]
        keys = [key for part in groups[run.start() : run.end()] for key in part.keys]
        result.append(
            Group(keys, f"{times} × {body_text}" if len(body) == 1 else f"{times} × ({body_text})", tuple(body))
        )
        end = run.end()
    return [*result, *groups[end:]] if end else []


def _stretches(groups: list[Group], edges: Collection[tuple[Key, Key]], alone: set[Key], pieces: int) -> list[Group]:
    """Cut the groups into about `pieces` stretches, each ending where the fewest values cross."""
    crossing, size = _values_across(groups, edges), -(-len(groups) // pieces)
    result, start = [], 0
    while start < len(groups):
        if groups[start].keys[0] in alone:
            result.append(groups[start])
            start += 1
            continue
        stop = start
        while stop < len(groups) and stop - start < size * 3 // 2 and groups[stop].keys[0] not in alone:
            stop += 1
        first = min(start + max(size // 2, 1), stop)
        end = min(range(first, stop + 1), key=lambda i: (crossing[i - 1], -i)) if stop - start > size else stop
        keys = [key for part in groups[start:end] for key in part.keys]
        result.append(groups[start] if end - start == 1 else Group(keys, f"{len(keys):,} nodes"))
        start = end
    return result


def _values_across(groups: list[Group], edges: Collection[tuple[Key, Key]]) -> list[int]:
    """Return, for each group, the number of values from it or earlier groups that later groups use."""
    place = {key: i for i, g in enumerate(groups) for key in g.keys}
    last: dict[Key, int] = {}
    for producer, consumer in edges:
        last[producer] = max(last.get(producer, 0), place[consumer])
    change = [0] * (len(groups) + 1)
    for producer, user in last.items():
        if user > place[producer]:
            change[place[producer]] += 1
            change[user] -= 1
    across, live = [], 0
    for step in change[:-1]:
        live += step
        across.append(live)
    return across


def _crossing(groups: list[Group], edges: Collection[tuple[Key, Key]]) -> int:
    """Count the arcs between the groups."""
    place = {key: i for i, g in enumerate(groups) for key in g.keys}
    return len({(place[a], place[b]) for a, b in edges if place[a] != place[b]})
