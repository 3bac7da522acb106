"""Shared by the exercises on tasks: programs that are drawn, and sentences about returned lists of names."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from passlab.judge import shown
from passlab.judge.forms import why_not_a_list
from passlab.memory.tasks import Task, check_order

#: The most steps of a schedule that is judged.
STEPS = 2000


def wrong_list(tasks: Sequence[Task], value: Any, again: bool = False) -> str:
    """Return why `value` is not a schedule of the tasks, or ""."""
    if wrong := why_not_a_list(value, "a list of names of tasks"):
        return wrong
    if len(value) > STEPS:
        return f"The list has {len(value)} steps; at most {STEPS} are judged."
    if bad := [name for name in value if not isinstance(name, str)]:
        return f"The list holds {shown(bad[0])}, of type {type(bad[0]).__name__}; a task is called by its name."
    try:
        check_order(tasks, [name[:60] for name in value], again)
    except ValueError as error:
        return str(error)
    return ""


def drawn(rng: random.Random, count: int) -> list[Task]:
    """Return a random graph of `count` tasks.

    Each reads a few earlier ones; the last reads every result that is not read yet.
    """
    tasks: list[Task] = []
    for i in range(count - 1):
        reads = rng.sample([task.name for task in tasks], min(len(tasks), rng.choice([0, 1, 1, 2])))
        tasks.append(Task(f"t{i}", tuple(reads), rng.randint(1, 12), rng.choice([0, 0, 0, 4]), rng.randint(1, 9)))
    results = {task.name for task in tasks} - {read for task in tasks for read in task.reads}
    return [*tasks, Task("end", tuple(sorted(results)), 1)]


def tree(rng: random.Random, count: int, bushy: int = 3) -> list[Task]:
    """Return a random tree of `count` tasks, in an order in which it can run.

    The last reads every result that is not read yet.
    """
    tasks: list[Task] = []
    roots: list[str] = []
    for i in range(count - 1):
        reads = rng.sample(roots, min(len(roots), rng.choice([0, 1, 1, rng.randint(1, bushy)])))
        roots = [name for name in roots if name not in reads] + [f"t{i}"]
        tasks.append(Task(f"t{i}", tuple(reads), rng.randint(1, 20), rng.choice([0, 0, rng.randint(0, 30)])))
    return [*tasks, Task("end", tuple(roots), 1)]


def there_and_back(rng: random.Random, count: int) -> list[Task]:
    """Return a chain and its way back, as in training: step i back reads result i of the way there."""
    forward = [
        Task(f"f{i}", (f"f{i - 1}",) if i else (), rng.randint(4, 8), cost=rng.randint(1, 9)) for i in range(count)
    ]
    back = [
        Task(f"b{i}", (*((f"b{i + 1}",) if i < count - 1 else ()), f"f{i}"), rng.randint(1, 4), cost=rng.randint(1, 9))
        for i in reversed(range(count))
    ]
    return forward + back


def until(draw: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
    """Return the first drawn value that fits."""
    return next(value for value in iter(draw, object()) if fits(value))
