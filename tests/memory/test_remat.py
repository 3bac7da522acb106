"""Rematerialisation: the search, the integer program and the greedy way, each against the others."""

from __future__ import annotations

import random

import pytest

from passlab.memory.remat import greedy, optimum, over, rematerialise, shortest
from passlab.memory.tasks import BadOrder, Task, peak, usage, work


def chain(rng, count):
    tasks = [Task(f"f{i}", (f"f{i - 1}",) if i else (), rng.randint(3, 9), 0, rng.randint(1, 9)) for i in range(count)]
    for i in reversed(range(count)):
        reads = (*([f"b{i + 1}"] if i < count - 1 else []), f"f{i}")
        tasks.append(Task(f"b{i}", reads, rng.randint(1, 4), 0, rng.randint(1, 9)))
    return tasks


def graph(rng, count):
    tasks = []
    for i in range(count):
        reads = tuple(f"t{j}" for j in range(i) if rng.random() < (0.7 if j == i - 1 else 0.2))
        tasks.append(Task(f"t{i}", reads, rng.randint(1, 9), rng.choice([0, 0, 2]), rng.randint(1, 9)))
    return tasks


def everything(tasks, order, budget):
    """The least work, by trying all schedules with at most a few steps more than there are tasks."""
    best = None

    def go(schedule, k):
        nonlocal best
        if len(schedule) > len(order) + 3:
            return
        if k == len(order) and not over(tasks, schedule, budget):
            cost = work(tasks, schedule)
            best = cost if best is None else min(best, cost)
        done = set(schedule)
        for i, name in enumerate(order[: k + 1]):
            if all(read in done for read in named[name].reads) and schedule[-1:] != [name]:
                go([*schedule, name], k + (i == k))

    named = {task.name: task for task in tasks}
    go([], 0)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_does_less_work(seed):
    rng = random.Random(seed)
    tasks = graph(rng, 4) if seed % 2 else chain(rng, 2)
    order = [task.name for task in tasks]
    budget = int(peak(tasks, order) * rng.uniform(0.7, 1))
    schedule, best = shortest(tasks, order, budget), everything(tasks, order, budget)
    assert (schedule and work(tasks, schedule)) == best


#: The last ones have a dropped result that nothing reads again: it must not count as work.
@pytest.mark.parametrize("seed", [*range(24), 77, 175, 237, 301])
def test_the_search_and_the_integer_program_agree(seed):
    rng = random.Random(seed)
    tasks = graph(rng, rng.randint(4, 8)) if seed % 2 else chain(rng, rng.randint(2, 5))
    order = [task.name for task in tasks]
    budget = int(peak(tasks, order) * rng.uniform(0.6, 1))
    schedule, best, quick = (way(tasks, order, budget) for way in (shortest, optimum, greedy))
    assert (schedule is None) == (best is None)
    if best is None:
        assert quick is None
        return
    assert max(usage(tasks, schedule)) <= budget and max(usage(tasks, best)) <= budget
    assert work(tasks, schedule) == work(tasks, best) == work(tasks, rematerialise(tasks, order, budget))
    if quick is not None:
        assert max(usage(tasks, quick)) <= budget and work(tasks, quick) >= work(tasks, best)


def test_a_budget_that_suffices_repeats_nothing():
    tasks = chain(random.Random(1), 5)
    order = [task.name for task in tasks]
    for way in (shortest, optimum, greedy):
        assert sorted(way(tasks, order, peak(tasks, order))) == sorted(order)
        assert work(tasks, way(tasks, order, peak(tasks, order) - 1)) > work(tasks, order)


def test_outputs_are_there_at_the_end():
    tasks = [Task("out", (), 5, cost=3), Task("a", (), 6), Task("b", ("a",), 6)]
    order = ["out", "a", "b"]
    for way in (shortest, optimum):
        assert way(tasks, order, 17) == order
        assert way(tasks, order, 16) == ["out", "a", "b", "out"], "room for a and b is made by making out again"
        assert way(tasks, order, 11) is None


def test_a_search_that_takes_too_long_says_so_and_the_greedy_way_remains():
    tasks = chain(random.Random(4), 6)
    order = [task.name for task in tasks]
    budget = peak(tasks, order) * 3 // 4
    with pytest.raises(TimeoutError, match="after 5 states for 12 tasks"):
        shortest(tasks, order, budget, states=5)
    assert rematerialise(tasks, order, budget, states=5) == greedy(tasks, order, budget)


@pytest.mark.parametrize("way", [shortest, optimum, greedy, rematerialise])
def test_an_order_that_does_not_run_is_refused(way):
    tasks = [Task("a"), Task("b", ("a",))]
    with pytest.raises(BadOrder, match="b runs in step 0, before a"):
        way(tasks, ["b", "a"], 9)
