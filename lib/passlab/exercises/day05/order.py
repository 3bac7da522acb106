"""Day 5, an order with a low peak: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from passlab.exercises.day05._tasks import drawn, tree, until, wrong_list
from passlab.judge import Case, Finding
from passlab.memory.order import liu, search
from passlab.memory.tasks import Task, peak

#: A graph's order may exceed the lowest peak by this much.
ALLOWED = 1.1


@cache
def lowest(tasks: tuple[Task, ...], is_tree: bool) -> int:
    return peak(tasks, liu(tasks)) if is_tree else search(tasks, 10**6).peak


def tree_case(name: str, tasks: Sequence[Task]) -> Case:
    return Case(name, lambda: (list(tasks),), ("valid", "cost"))


def graph_case(name: str, tasks: Sequence[Task]) -> Case:
    return Case(name, lambda: (list(tasks),), ("valid", "did"))


def badly_ordered(rng: random.Random, count: int = 12) -> list[Task]:
    """Return a graph whose given order has a peak far above the lowest."""

    def far(tasks: list[Task]) -> bool:
        return peak(tasks, [task.name for task in tasks]) > 1.2 * ALLOWED * lowest(tuple(tasks), False)

    return until(lambda: drawn(rng, count), far)


#: No order that finishes one subtree before the other is the best: both should first shrink to 1.
TURNS = [
    Task("big", (), 20),
    Task("small", ("big",), 1),
    Task("grown", ("small",), 8),
    Task("wide", (), 18),
    Task("thin", ("wide",), 1),
    Task("thick", ("thin",), 7),
    Task("end", ("grown", "thick"), 1),
]


def cases() -> list[Case]:
    rng = random.Random(5)
    unit = [Task("a"), Task("b"), Task("c"), Task("d")]
    unit += [Task("ab", ("a", "b")), Task("cd", ("c", "d")), Task("abcd", ("ab", "cd")), Task("e")]
    unit = [Task(t.name, t.reads, 1) for t in [*unit, Task("all", ("e", "abcd"))]]
    return [
        tree_case("results of one size", unit),
        tree_case("subtrees that take turns", TURNS),
        tree_case("a tree of 40 tasks", tree(rng, 40)),
        graph_case("a small graph", badly_ordered(rng, 8)),
        graph_case("a graph of 12 tasks", badly_ordered(rng)),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    (tasks,) = case.build()
    broken = wrong_list(tasks, value)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    on_tree = case.asks("cost")
    high, best = peak(tasks, value), lowest(tuple(tasks), on_tree)
    message = f"The peak of your order is {high} bytes; there is one with {best}."
    limit = best if on_tree else best * ALLOWED
    yield Finding("cost" if on_tree else "did", high <= limit, "" if high <= limit else message)
