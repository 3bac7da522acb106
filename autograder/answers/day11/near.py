"""Hidden cases and answers of day11.near."""

from __future__ import annotations

import math
import random

from autograder.authoring.answers import right, wrong
from passlab.exercises.day11.near import small_case, zoo_case
from passlab.judge import Case


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def mixed(words, count):
        number = rng.sample(range(count), count)
        return [(number[a], number[b], w) for a, b, w in words]

    both_ways = mixed([(0, 1, 40), (1, 0, 60), (2, 3, 90), (4, 5, 80), (5, 4, 30)], 6)
    line = mixed([(i, i + 1, 10) for i in range(7)], 8)
    # the last one has most of its words for the first, and its neighbours are elsewhere
    torn = [(0, 1, 600), (1, 2, 600), (2, 3, 600), (4, 0, 500), (4, 1, 1), (4, 2, 1), (4, 3, 1)]
    entries = mixed([(0, 2, 500), (3, 1, 500), (0, 1, 20), (2, 3, 20), (2, 0, 1), (3, 1, 1)], 4)
    return [
        small_case("words count, not neighbours", torn, 5, 2, 4, "did", 2500),
        small_case("one task on one core", [], 1, 1, 1, "did", 0),
        small_case("nobody talks", [], 6, 3, 4, "did", 0),
        small_case("three pairs on a full grid", both_ways, 6, 3, 2, "spared", 360),
        small_case("a chain on one row of cores", line, 8, 1, 8, "spared", 130),
        zoo_case(rng),
        zoo_case(rng, mixed=True),
        # 2 · 501 + 20 + 3 · 20 with both pairs of most words side by side, and above 2000 without
        small_case("two tasks in several entries, the last of them small", entries, 4, 1, 4, "did", 1500),
        small_case("two tasks in several entries, the first of them small", entries[::-1], 4, 1, 4, "did", 1500),
    ]


EQUIVALENT = {
    ("talks[a].get(b, 0)", "talks[a].get(b, 1)"): "one word more between two tasks that talk moves nothing that counts",
    ("talks[b].get(a, 0)", "talks[b].get(a, 1)"): "one word more between two tasks that talk moves nothing that counts",
    ("range(count), 0", "range(count), 1"): "all begin with the same",
}


# ---------------------------------------------------------------------------------------------------- answers


def _talks(words, count):
    talks = [{} for _ in range(count)]
    for a, b, number in words:
        talks[a][b] = talks[a].get(b, 0) + number
        talks[b][a] = talks[b].get(a, 0) + number
    return talks


def _one_by_one(words, count, rows, columns, order, first=lambda core: core):
    """Each task in turn on the free core where its words travel least."""
    talks, place = _talks(words, count), {}
    free = [(r, c) for r in range(rows) for c in range(columns)]
    for task in order(talks):
        tasks = [(place[other], number) for other, number in talks[task].items() if other in place]

        def far(core, tasks=tasks):
            return sum(n * (abs(core[0] - x) + abs(core[1] - y)) for (x, y), n in tasks), first(core)

        place[task] = min(free, key=far)
        free.remove(place[task])
    return [place[task] for task in range(count)]


def _connected(talks):
    """The task with the most words to those before it, always."""
    left, pull = set(range(len(talks))), [0] * len(talks)
    while left:
        task = max(left, key=lambda t: (pull[t], -t))
        left.remove(task)
        for other, number in talks[task].items():
            pull[other] += number
        yield task


def _traffic(talks, place):
    return sum(
        n * (abs(place[a][0] - place[b][0]) + abs(place[a][1] - place[b][1]))
        for a, to in enumerate(talks)
        for b, n in to.items()
    )


def _annealed(talks, place, rows, columns, rng, steps):
    tasks = {core: task for task, core in enumerate(place)}
    cores = [(r, c) for r in range(rows) for c in range(columns)]

    def far(task, core, skip):
        return sum(
            n * (abs(core[0] - place[o][0]) + abs(core[1] - place[o][1])) for o, n in talks[task].items() if o != skip
        )

    heat = max(1.0, _traffic(talks, place) / (2 * len(place)))
    for step in range(steps):
        a, b = rng.choice(cores), rng.choice(cores)
        one, two = tasks.get(a), tasks.get(b)
        change = sum(
            far(task, to, other) - far(task, start, other)
            for task, other, start, to in ((one, two, a, b), (two, one, b, a))
            if task is not None
        )
        if change < 0 or rng.random() < math.exp(-change / (heat * 0.002 ** (step / steps))):
            tasks.pop(a, None), tasks.pop(b, None)
            for task, core in ((one, b), (two, a)):
                if task is not None:
                    tasks[core] = task
                    place[task] = core
    return place


@right("annealing from rows, with no greedy start")
def annealed(words, count, rows, columns):
    place = [divmod(task, columns) for task in range(count)]
    talks, rng = _talks(words, count), random.Random(5)
    plans = [_annealed(talks, list(place), rows, columns, rng, 60_000)] if count > 1 else [place]
    return min(plans, key=lambda plan: _traffic(talks, plan))


@right("greedy placements from every corner and from the middle, the best of them improved; a tuple for a list")
def several(words, count, rows, columns):
    talks = _talks(words, count)
    starts = [(0, 0), (0, columns - 1), (rows - 1, 0), (rows // 2, columns // 2)]
    plans = [
        _one_by_one(words, count, rows, columns, _connected, lambda c, s=s: abs(c[0] - s[0]) + abs(c[1] - s[1]))
        for s in starts
    ]
    best = min(plans, key=lambda plan: _traffic(talks, plan))
    tasks, place = {core: task for task, core in enumerate(best)}, list(best)

    def far(task, core):
        return sum(n * (abs(core[0] - place[o][0]) + abs(core[1] - place[o][1])) for o, n in talks[task].items())

    for _ in range(6):  # each task to the best core within two steps
        for task in range(count):
            r, c = place[task]
            for core in [(r + i, c + j) for i in (-2, -1, 0, 1, 2) for j in (-2, -1, 0, 1, 2)]:
                if not (0 <= core[0] < rows and 0 <= core[1] < columns) or core == place[task]:
                    continue
                other, home = tasks.get(core), place[task]
                before = far(task, home) + (far(other, core) if other is not None else 0)
                place[task] = core
                if other is not None:
                    place[other] = home
                if far(task, core) + (far(other, home) if other is not None else 0) < before:
                    tasks[core] = task
                    tasks.pop(home)
                    if other is not None:
                        tasks[home] = other
                else:
                    place[task] = home
                    if other is not None:
                        place[other] = core
    return tuple(place)


@wrong("did", "greedy with the last entry for two tasks, in place of their sum")
def last_entry(words, count, rows, columns):
    last = {tuple(sorted((a, b))): number for a, b, number in words}
    return _one_by_one([(*pair, number) for pair, number in last.items()], count, rows, columns, _connected)


@wrong("did", "greedy with the first entry for two tasks, in place of their sum")
def first_entry(words, count, rows, columns):
    return last_entry(words[::-1], count, rows, columns)


@wrong("did", "row by row")
def by_rows(words, count, rows, columns):
    return [divmod(task, columns) for task in range(count)]


@wrong("did", "row by row, every other row backwards, or column by column: only neighbours in the order are near")
def snake(words, count, rows, columns):
    return [
        (task // columns, columns - 1 - task % columns if task // columns % 2 else task % columns)
        for task in range(count)
    ]


@wrong("did", "who talks most goes to the middle, wherever its neighbours are")
def loudest_in_the_middle(words, count, rows, columns):
    talks = _talks(words, count)
    cores = sorted(
        ((r, c) for r in range(rows) for c in range(columns)),
        key=lambda x: abs(x[0] - rows / 2) + abs(x[1] - columns / 2),
    )
    order = sorted(range(count), key=lambda task: -sum(talks[task].values()))
    place = dict(zip(order, cores, strict=False))
    return [place[task] for task in range(count)]


@wrong("spared", "greedy in the order of the numbers: the first tasks have nobody to be near to")
def in_order(words, count, rows, columns):
    talks = _talks(words, count)
    plans = [
        _one_by_one(words, count, rows, columns, lambda talks: range(len(talks)), first)
        for first in (lambda c: c, lambda c: abs(c[0] - rows / 2) + abs(c[1] - columns / 2))
    ]
    return min(plans, key=lambda plan: _traffic(talks, plan))


@wrong("valid", "each task on the core where its words travel least, taken or not; or rows and columns are mixed up")
def all_on_one(words, count, rows, columns):
    return [(0, 0)] * count


@wrong("valid", "only tasks that talk get a core")
def talkers_only(words, count, rows, columns):
    talks = _talks(words, count)
    return [divmod(task, columns) for task in range(count) if talks[task]]
