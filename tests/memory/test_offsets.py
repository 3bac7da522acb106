"""Offsets: every plan is one, bounds hold, small instances agree with trying everything, sentences for bad plans."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
import torch

from autograder.bench.memory import additions
from passlab.memory import _fast
from passlab.memory.allocate import ORDERS, best_fit, colouring, first_fit, slots
from passlab.memory.buffers import (
    MINIMALLOC,
    SOLVABLE,
    BadPlan,
    Buffer,
    aligned,
    check,
    height,
    instance,
    live_bytes,
    lower_bound,
    overlaps,
    peak_step,
    problem,
)
from passlab.memory.exact import exact
from passlab.memory.plan import check_plan, planned
from passlab.memory.search import lowest_first, search
from passlab.memory.storages import storages
from tests.support import growth

PLANNERS = {f"first fit by {name}": lambda b, a, key=key: first_fit(b, key, a) for name, key in ORDERS.items()}
PLANNERS |= {f"lowest first by {name}": lambda b, a, key=key: lowest_first(b, key, a) for name, key in ORDERS.items()}
PLANNERS |= {"best fit": lambda b, a: best_fit(b, alignment=a), "colouring": colouring}
PLANNERS |= {"search": lambda b, a: search(b, a, tries=20)}


def drawn(rng, count):
    buffers = []
    for i in range(count):
        lower = rng.randrange(8)
        buffers.append(Buffer(f"b{i}", lower, lower + rng.randint(1, 5), rng.choice((0, 1, 7, 16, 30, 64, 100))))
    return buffers


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("alignment", [1, 16])
def test_every_plan_is_one(name, alignment):
    rng = random.Random(5)
    for _ in range(30):
        buffers = drawn(rng, rng.randint(0, 14))
        offsets = PLANNERS[name](buffers, alignment)
        assert problem(buffers, offsets, alignment) is None
        assert height(buffers, offsets) >= lower_bound(buffers)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("alignment", [1, 16])
def test_the_fast_planner_gives_the_same_offsets(name, alignment):
    rng = random.Random(6)
    for _ in range(150):
        buffers = drawn(rng, rng.randint(0, 14))
        for best, fit in ((False, first_fit), (True, best_fit)):
            assert _fast.place(buffers, ORDERS[name], alignment, best) == fit(buffers, ORDERS[name], alignment)


def test_many_buffers_are_placed_by_the_fast_planner(monkeypatch):
    buffers = drawn(random.Random(8), 40)
    plans = [fit(buffers) for fit in (first_fit, best_fit)]
    monkeypatch.setattr("passlab.memory.allocate.MANY", 39)
    monkeypatch.setattr("passlab.memory.allocate.gaps", None)
    assert [fit(buffers) for fit in (first_fit, best_fit)] == plans


def test_overlaps_are_those_of_every_pair_and_every_byte():
    rng = random.Random(7)
    for _ in range(60):
        buffers = [Buffer(f"b{i}", lo := rng.randrange(4), lo + rng.randint(1, 3), rng.randrange(4)) for i in range(6)]
        offsets = {b.name: rng.randrange(6) for b in buffers}
        cells = {
            b.name: {(t, offsets[b.name] + k) for t in range(b.lower, b.upper) for k in range(b.size)} for b in buffers
        }
        shared = {frozenset(pair): cells[pair[0]] & cells[pair[1]] for pair in permutations(cells, 2)}
        result = {frozenset((o.one, o.other)): o for o in overlaps(buffers, offsets)}
        assert set(result) == {pair for pair, both in shared.items() if both}
        for pair, o in result.items():
            assert (o.step, o.offset) == min(shared[pair])
            assert o.bytes == len({place for _, place in shared[pair]})


def test_overlaps_come_in_the_order_of_time():
    buffers = [Buffer("d", 5, 9, 4), Buffer("a", 0, 9, 100), Buffer("c", 3, 9, 1), Buffer("b", 1, 2, 4)]
    result = overlaps(buffers, {"a": 0, "b": 0, "c": 50, "d": 48})
    assert [(o.one, o.other, o.step) for o in result] == [("a", "b", 1), ("a", "c", 3), ("a", "d", 5), ("c", "d", 5)]


def test_the_check_compares_only_neighbours():
    class Counted(dict):
        lookups = 0

        def __getitem__(self, name):
            self.lookups += 1
            return super().__getitem__(name)

    buffers = [Buffer(f"b{i}", 0, 9, 1 + i % 3) for i in range(300)]
    offsets = Counted({b.name: 3 * i for i, b in enumerate(buffers)})
    assert overlaps(buffers, offsets) == [] and offsets.lookups == 300


def test_storages_are_found_in_time_that_grows_as_the_graph_does():
    graphs = {count: additions(count, 1) for count in (500, 500 * growth.STEP)}
    assert growth.ratio(lambda count: storages(graphs[count], torch.ones(8)), 500) <= growth.MOST


def test_the_bound_is_the_largest_sum():
    rng = random.Random(9)
    for _ in range(40):
        buffers = drawn(rng, 9)
        sums = {t: sum(b.size for b in buffers if b.lower <= t < b.upper) for t in range(14)}
        assert lower_bound(buffers) == max(sums.values())
        assert sums[peak_step(buffers)] == max(sums.values())
        assert all(sums[t] == live for t, live in live_bytes(buffers).items() if t < 14)
    assert lower_bound([]) == 0 and peak_step([]) == 0


def test_slots_are_as_many_as_buffers_live_at_once():
    rng = random.Random(11)
    for _ in range(40):
        buffers = drawn(rng, 12)
        peak = max(sum(b.lower <= t < b.upper for b in buffers) for t in range(14))
        slot_of = slots(buffers)
        assert len(set(slot_of.values())) == peak
        for one, other in permutations(buffers, 2):
            if one.lower < other.upper and other.lower < one.upper:
                assert slot_of[one.name] != slot_of[other.name]


def test_the_solver_agrees_with_trying_all_orders():
    rng = random.Random(13)
    for _ in range(8):
        buffers = [Buffer(f"b{i}", lo := rng.randrange(5), lo + rng.randint(1, 4), rng.randint(1, 4)) for i in range(6)]
        # first fit in some order finds the smallest arena: sort any best plan by offset
        best = min(
            height(buffers, first_fit(buffers, dict(zip(order, range(6), strict=True)).get))
            for order in permutations(buffers)
        )
        result = exact(buffers, seconds=5)
        assert result.status == "optimal" and result.arena == best == height(buffers, result.offsets)
        assert problem(buffers, result.offsets) is None
        fits = exact(buffers, seconds=5, within=best)
        assert height(buffers, fits.offsets) == best and problem(buffers, fits.offsets) is None
        assert exact(buffers, seconds=5, within=best - 1).status == "impossible"
        assert height(buffers, search(buffers, tries=200)) == best


def test_sizes_are_rounded_up():
    buffers = [Buffer("a", 0, 2, 30), Buffer("b", 0, 2, 30)]
    assert sorted(first_fit(buffers, alignment=64).values()) == [0, 64]
    assert [aligned(n, 64) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
    assert exact(buffers, alignment=64, seconds=5).arena == 94


def test_the_last_buffer_needs_no_padding():
    buffers = [Buffer("a", 0, 2, 6), Buffer("b", 1, 3, 9), Buffer("c", 2, 4, 3)]
    best = min(
        height(buffers, first_fit(buffers, dict(zip(o, range(3), strict=True)).get, 8)) for o in permutations(buffers)
    )
    result = exact(buffers, alignment=8, seconds=5)
    assert result.arena == result.bound == best == 17
    assert exact(buffers, alignment=8, seconds=5, within=17).arena == 17
    assert exact(buffers, alignment=8, seconds=5, within=16).bound == 17
    assert exact([Buffer("a", 0, 1, 8), Buffer("b", 0, 1, 8)], seconds=5, within=17).arena == 16


def test_ends_that_touch_do_not_meet():
    relay = [Buffer(f"t{i}", i, i + 1, 100) for i in range(5)]
    for planner in PLANNERS.values():
        assert height(relay, planner(relay, 1)) == 100


@pytest.mark.parametrize("letter", MINIMALLOC)
def test_the_hard_instances(letter):
    buffers = instance(letter)
    assert lower_bound(buffers) <= SOLVABLE
    offsets = search(buffers, tries=150)
    assert problem(buffers, offsets) is None
    assert height(buffers, offsets) < 1.25 * lower_bound(buffers)


def test_the_search_is_the_same_every_time():
    buffers = instance("A")
    assert search(buffers, tries=100, seed=3) == search(buffers, tries=100, seed=3)


TWO = [Buffer("conv", 0, 3, 64), Buffer("relu", 2, 4, 32)]


@pytest.mark.parametrize(
    ("offsets", "sentence"),
    [
        ({"conv": 0}, "relu has no offset."),
        ({"conv": 0, "relu": 32}, "conv and relu are both live in step 2 and share 32 bytes from byte 32 on"),
        ({"conv": 0, "relu": 65}, "The offset of relu is 65, which is not a multiple of 16."),
        ({"conv": -16, "relu": 64}, "The offset of conv is -16: it must not be negative."),
        ({"conv": 0, "relu": 112}, "relu ends at byte 144, and the arena at byte 128."),
        ({"conv": 0, "relu": True}, "The offset of relu is 'True': it must be an int."),
        ({"conv": 0, "relu": 64.0}, "The offset of relu is '64.0': it must be an int."),
        ({"conv": 0, "relu": 64, "tanh": 0}, "There is no buffer 'tanh' to give an offset."),
        ([0, 64], "Offsets are a dict from the name of a buffer to its first byte; this is a list."),
    ],
)
def test_what_is_wrong_with_a_plan(offsets, sentence):
    with pytest.raises(BadPlan) as error:
        check(TWO, offsets, 16, 128)
    assert str(error.value).startswith(sentence)


def test_a_problem_carries_the_overlap_that_it_is():
    result = problem(TWO, {"conv": 0, "relu": 32}, 16)
    assert result.overlap == overlaps(TWO, {"conv": 0, "relu": 32})[0]
    assert problem(TWO, {"conv": 0}, 16).overlap is None


class Views(torch.nn.Module):
    """Returns a view of its input, and a view of a result."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x.view(-1), torch.add(x, self.w).t()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("view", "view is in x, which is an input: it is the caller's memory, and has no offset in the arena."),
        ("x", "x is an input: it is the caller's memory, and has no offset in the arena."),
        ("w", "w is a parameter: it is the caller's memory, and has no offset in the arena."),
        ("t", "t is in the memory of add: only add has an offset."),
    ],
)
def test_a_value_in_memory_of_another_has_no_offset(name, sentence):
    gm, x = torch.fx.symbolic_trace(Views()), torch.ones(3, 3)
    plan = planned(gm, x)
    check_plan(gm, plan, x)
    with pytest.raises(BadPlan) as error:
        check_plan(gm, replace(plan, offsets={**plan.offsets, name: 128}, arena=256), x)
    assert str(error.value) == sentence


def test_instances_have_names():
    with pytest.raises(ValueError, match="There is no instance 'Z': they are called A, B"):
        instance("Z")
