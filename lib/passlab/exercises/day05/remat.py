"""Day 5, run it again: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from passlab.exercises.day05._tasks import drawn, there_and_back, until, wrong_list
from passlab.judge import Case, Finding, enough
from passlab.memory.remat import shortest
from passlab.memory.tasks import Task, peak, usage, work

#: The work of a schedule may exceed the least by this much.
ALLOWED = 1.1


@cache
def least_work(tasks: tuple[Task, ...], budget: int) -> int | None:
    """Return the least work of a schedule within the budget, or None where there is none."""
    schedule = shortest(tasks, [task.name for task in tasks], budget)
    return None if schedule is None else work(tasks, schedule)


def tight(name: str, tasks: Sequence[Task], budget: int) -> Case:
    return Case(name, lambda: (list(tasks), budget), ("valid", "did", "cost"))


def enough_memory(name: str, tasks: Sequence[Task]) -> Case:
    """Return a case whose budget is just what the given order needs: returning that does not decide `did`."""
    budget = peak(tasks, [task.name for task in tasks])
    return Case(name, lambda: (list(tasks), budget), ("valid", "spared"))


def squeezed(rng: random.Random, tasks: Sequence[Task]) -> int | None:
    """Return the smallest of a few budgets that a schedule keeps, and that the given order does not; None if none."""
    most = peak(tasks, [task.name for task in tasks])
    budgets = [most - 1 - rng.randint(0, most // 5) for _ in range(3)]
    return next((b for b in sorted(budgets) if least_work(tuple(tasks), b) is not None), None)


def squeezed_case(rng: random.Random, name: str, count: int) -> Case:
    """Return a drawn graph with a budget that can only be kept by running something again."""

    def draw() -> tuple[list[Task], int | None]:
        tasks = drawn(rng, count)
        return tasks, squeezed(rng, tasks)

    return tight(name, *until(draw, lambda pair: pair[1] is not None))


def cases() -> list[Case]:
    rng = random.Random(7)
    chain = [Task(f"f{i}", (f"f{i - 1}",) if i else (), 4, cost=2) for i in range(4)]
    chain += [Task(f"b{i}", (*((f"b{i + 1}",) if i < 3 else ()), f"f{i}"), 1, cost=2) for i in (3, 2, 1, 0)]
    return [
        tight("a chain there and back", chain, 14),
        enough_memory("the same chain, with enough memory", chain),
        squeezed_case(rng, "a graph of 7 tasks", 7),
        enough_memory("a graph with enough memory", there_and_back(rng, 3)),
    ]


def judge(case: Case, value: Any) -> Iterator[Finding]:
    tasks, budget = case.build()
    broken = wrong_list(tasks, value, again=True)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    used = usage(tasks, value)
    at = used.index(max(used))
    over = f"In step {at}, while {value[at]} runs, {used[at]} bytes are in use; the budget is {budget}."
    yield Finding("did", used[at] <= budget, "" if used[at] <= budget else over)
    if used[at] > budget:
        return
    if case.asks("spared"):
        twice = [name for i, name in enumerate(value) if name in value[:i]]
        message = (
            f"{twice[0]} runs again, but the budget of {budget} bytes suffices for the order as given." if twice else ""
        )
        yield Finding("spared", not twice, message)
    if case.asks("cost"):
        units, least = work(tasks, value), least_work(tuple(tasks), budget) or 0
        message = f"Your schedule does {units} units of work; {enough(least)} for a budget of {budget} bytes."
        yield Finding("cost", units <= least * ALLOWED, "" if units <= least * ALLOWED else message)
