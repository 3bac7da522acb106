"""Sections: every plan is one by a check of its own, no plan is missed, and the hard instances fit."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from passlab.memory import sections
from passlab.memory.allocate import MANY
from passlab.memory.buffers import MINIMALLOC, SOLVABLE, Buffer, height, instance, lower_bound
from passlab.memory.exact import exact
from passlab.memory.search import search
from passlab.memory.sections import smallest, within

#: A guard against a search that hangs; none of these takes as many seconds.
SECONDS = 120
#: The smallest arena of these has five bytes, and never more than four are live.
PUZZLE = [(0, 1, 2), (0, 2, 2), (1, 3, 1), (1, 4, 1), (2, 3, 1), (2, 4, 1), (3, 5, 2), (4, 5, 2)]


def fits(buffers, offsets, capacity):
    """Compare all pairs: the library's own check is a sweep."""
    places = [(b, range(offsets[b.name], offsets[b.name] + b.size)) for b in buffers]
    inside = all(place.start >= 0 and place.stop <= capacity for _, place in places)
    return inside and not any(
        a.lower < b.upper and b.lower < a.upper and p.start < q.stop and q.start < p.stop
        for (a, p), (b, q) in combinations([(b, p) for b, p in places if b.size and b.upper > b.lower], 2)
    )


def named(rows):
    return [Buffer(f"b{i}", *row) for i, row in enumerate(rows)]


def crowded(rng, capacity, steps):
    """Draw buffers that fill every step: what ends is replaced by a random split of its bytes."""
    live, rows, free = [], [], capacity
    for step in range(steps):
        ends = [row for row in live if rng.random() < 0.45]
        live = [row for row in live if row not in ends]
        rows += [(lower, step, size) for lower, size in ends]
        free += sum(size for _, size in ends)
        while free:
            live.append((step, rng.randint(1, min(5, free))))
            free -= live[-1][1]
    rows += [(lower, steps, size) for lower, size in live]
    rng.shuffle(rows)
    return named(row for row in rows if row[1] > row[0])


def near_the_puzzle(rng):
    """Draw buffers of which many need more bytes than are ever live: the puzzle, larger, with a few changes."""
    scale = rng.randint(1, 4)
    rows = [(3 * lower, 3 * upper, size * scale) for lower, upper, size in PUZZLE]
    for i in rng.sample(range(len(rows)), rng.randint(0, 2)):
        lower, upper, size = rows[i]
        rows[i] = (lower + rng.randint(0, 1), upper - rng.randint(0, 1), size - rng.randint(0, scale > 1))
    return named(rows + [(lower := rng.randrange(12), lower + 1, 1) for _ in range(rng.randint(0, 2))])


@pytest.mark.parametrize("nodes", [1, sections.NODES])
def test_the_search_agrees_with_the_solver(monkeypatch, nodes):
    monkeypatch.setattr(sections, "NODES", nodes)  # with 1, failures are remembered over several attempts
    rng, gaps, searched = random.Random(3), 0, 0
    for i in range(80):
        buffers = near_the_puzzle(rng) if i % 2 else crowded(rng, rng.randint(4, 14), rng.randint(4, 8))
        best = exact(buffers, seconds=SECONDS).arena
        gaps += best > lower_bound(buffers)
        for capacity in (best - 1, best, best + 1):
            packing = within(buffers, capacity, SECONDS)
            assert packing.status == ("packed" if capacity >= best else "impossible")
            assert (packing.offsets is None) == (capacity < best)
            assert packing.offsets is None or fits(buffers, packing.offsets, capacity)
            searched += packing.nodes > 0
        assert height(buffers, smallest(buffers, seconds=SECONDS)) == best
    assert gaps > 10 and searched > 20


def cut(rng, steps, capacity, pieces):
    """Cut a rectangle of time and bytes into buffers, and leave a few out: so they fit, with little to spare."""
    blocks = [(0, steps, 0, capacity)]
    while len(blocks) < pieces:
        lower, upper, low, high = blocks.pop(rng.randrange(len(blocks)))
        if upper - lower > 1 and rng.random() < 0.6:
            step = rng.randrange(lower + 1, upper)
            blocks += [(lower, step, low, high), (step, upper, low, high)]
        elif high - low > 1:
            byte = rng.randrange(low + 1, high)
            blocks += [(lower, upper, low, byte), (lower, upper, byte, high)]
        else:
            blocks.append((lower, upper, low, high))
    rng.shuffle(blocks)
    return named((lower, upper, high - low) for lower, upper, low, high in blocks[rng.randint(0, 2) :])


@pytest.mark.parametrize("nodes", [1, sections.NODES])
def test_no_plan_is_missed(monkeypatch, nodes):
    monkeypatch.setattr(sections, "NODES", nodes)
    monkeypatch.setattr(sections, "ORDERS", {"names": lambda b: (b.name,)})  # so that first fit leaves it to the search
    rng = random.Random(11)
    for _ in range(150):
        capacity = rng.choice((6, 9, 14, 30))
        buffers = cut(rng, rng.choice((8, 16, 24)), capacity, rng.randint(15, 40))
        packing = within(buffers, capacity, SECONDS)
        assert packing.status == "packed" and fits(buffers, packing.offsets, capacity)


@pytest.mark.parametrize("letter", MINIMALLOC)
def test_the_hard_instances_fit(letter):
    buffers = instance(letter)
    packing = within(buffers, SOLVABLE, SECONDS)
    assert packing.status == "packed" and fits(buffers, packing.offsets, SOLVABLE)
    assert packing.nodes < 100 * len(buffers)


def test_the_result_is_the_same_every_time():
    assert within(instance("F"), SOLVABLE, SECONDS) == within(instance("F"), SOLVABLE, SECONDS)


def test_no_time_means_no_answer():
    buffers = instance("E")
    packing = within(buffers, SOLVABLE, seconds=0)
    assert packing.status == "unknown" and packing.offsets is None
    offsets = smallest(buffers, seconds=0)
    assert fits(buffers, offsets, height(buffers, offsets))


def test_what_needs_no_place():
    assert within([], 0) == ("packed", {}, 0)
    assert within([Buffer("a", 0, 2, 0), Buffer("b", 1, 1, 9)], 9).offsets == {"a": 0, "b": 0}
    assert within(named(PUZZLE), 3) == ("impossible", None, 0)
    assert smallest([]) == {}


def test_parts_with_nothing_between_them():
    rows = [(lower + 9 * i, upper + 9 * i, size) for i in range(12) for lower, upper, size in PUZZLE]
    buffers = named(rows)
    assert within(buffers, 4, SECONDS).status == "impossible"
    assert fits(buffers, within(buffers, 5, SECONDS).offsets, 5)
    # a part that cannot be solved is not tried again for each plan of the other parts
    assert within(buffers, 4, SECONDS).nodes < 40 * len(buffers)


@pytest.mark.parametrize("alignment", [1, 16])
def test_offsets_are_aligned_and_not_above_those_of_local_search(alignment):
    rng = random.Random(7)
    for _ in range(20):
        buffers = named((lower := rng.randrange(8), lower + rng.randint(1, 5), rng.randint(0, 99)) for _ in range(14))
        offsets = smallest(buffers, alignment, SECONDS)
        assert fits(buffers, offsets, top := height(buffers, offsets))
        assert all(offset % alignment == 0 for offset in offsets.values())
        rounded = [Buffer(b.name, b.lower, b.upper, -(-b.size // alignment) * alignment) for b in buffers]
        assert height(rounded, offsets) <= height(rounded, search(buffers, alignment, tries=50))
        assert top >= lower_bound(buffers)


def test_many_buffers_are_placed_greedily(monkeypatch):
    buffers = named((i, i + 3, 1 + i % 7) for i in range(MANY + 1))
    monkeypatch.setattr(sections, "within", None)
    offsets = smallest(buffers)
    assert fits(buffers[:200], offsets, height(buffers, offsets))
