"""Keep a memory budget by running tasks again, with as little work as possible.

    found = rematerialise(tasks, order, budget)       # a good schedule, quickly; None if it finds none
    best = optimum(tasks, order, budget)              # the best there is, by integer programming; None if there is none

A schedule is a list of names in which a task may stand more than once (see `tasks`). The first runs come in the given
order.

Reading order: `shortest` searches states. `optimum` is the integer program of P. Jain et al., "Checkmate: Breaking the
memory wall with optimal tensor rematerialization", MLSys 2020. `greedy` starts with everything kept, and while a step
needs more than the budget, gives up the result that frees most bytes for long per unit of work, the measure of
M. Kirisame et al., "Dynamic tensor rematerialization", ICLR 2021; then it takes back what turns out to be unnecessary.
`rematerialise` searches where that is quick, and is greedy elsewhere.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from passlab.memory.tasks import Task, check_order, lives, readers, usage, work


def over(tasks: Sequence[Task], schedule: Sequence[str], budget: int) -> int:
    """Return by how many bytes a schedule exceeds a budget, summed over its steps."""
    return sum(max(0, used - budget) for used in usage(tasks, schedule))


def shortest(tasks: Iterable[Task], order: Sequence[str], budget: int, states: int = 200_000) -> list[str] | None:
    """Return a schedule within the budget with the least work of all, or None if there is none.

    A state is (how many tasks of the order have run, which results are there). A step runs a task, which costs its
    work, or drops a result, which costs nothing. A* (P. Hart, N. Nilsson, B. Raphael, 1968) goes first where the work
    so far and what is surely left is least: all tasks that have not run, and all that have, whose results are not there
    and will be read. It knows the schedules of `optimum`, and those that run earlier tasks in another order. Raises
    TimeoutError after so many states.
    """
    check_order(tasks := list(tasks), order)
    place = {name: i for i, name in enumerate(order)}
    line = sorted(tasks, key=lambda task: place[task.name])
    needs = [sum(1 << place[read] for read in set(task.reads)) for task in line]
    kept = sum(1 << place[name] for name, after in readers(tasks).items() if not after)
    wanted = [kept] * (len(line) + 1)  # wanted[k]: results that the tasks from number k on read, and outputs
    for k in reversed(range(len(line))):
        wanted[k] = wanted[k + 1] | needs[k]
    queue: list[tuple] = [(0, 0, 0, 0, None)]  # work for second runs, − first runs, results as bits, bytes, steps
    closed: set[tuple[int, int]] = set()
    while queue:
        cost, ran, there, used, path = heapq.heappop(queue)
        if (ran, there) in closed:
            continue
        closed.add((ran, there))
        if -ran == len(line) and there & kept == kept:
            return _steps(path, order)
        if len(closed) > states:
            raise TimeoutError(f"No schedule is proved the best after {states:,} states for {len(line)} tasks.")
        for i in range(min(1 - ran, len(line))):
            task, bit, first = line[i], 1 << i, i == -ran
            paid = task.cost if wanted[-ran] & bit else 0  # a result that will be read is paid for when it is dropped
            if there & bit:
                heapq.heappush(queue, (cost + paid, ran, there ^ bit, used - task.size, path))
            elif needs[i] & there == needs[i] and used + task.size + task.scratch <= budget:
                more = 0 if first else task.cost - paid
                heapq.heappush(queue, (cost + more, ran - first, there | bit, used + task.size, (i, path)))
    return None


def _steps(path: tuple | None, order: Sequence[str]) -> list[str]:
    steps: list[str] = []
    while path:
        i, path = path
        steps.append(order[i])
    return steps[::-1]


def optimum(tasks: Iterable[Task], order: Sequence[str], budget: int, seconds: float = 60) -> list[str] | None:
    """Return a schedule within the budget with the least work of all, or None if there is none.

    Checkmate's program, solved by OR-tools' CP-SAT: in stage t, task t of the order runs for the first time; before it,
    earlier tasks may run again, in the order. `run[t, i]`: task i runs in stage t; `keep[t, i]`: its result is kept
    from stage t - 1. Raises TimeoutError where so many seconds of work do not suffice for a proof.
    """
    from ortools.sat.python import cp_model

    check_order(tasks := list(tasks), order)
    outputs = [name for name, after in readers(tasks).items() if not after]
    end = Task("the end", tuple(outputs), cost=0)  # a last task that reads all outputs: they have to be there then
    named, place = {task.name: task for task in tasks}, {name: i for i, name in enumerate(order)}
    line = [*(named[name] for name in order), end]
    after = [[r for r, task in enumerate(line) if line[i].name in task.reads] for i in range(len(line))]
    model, n = cp_model.CpModel(), len(line)
    run = {(t, i): model.new_bool_var("") for t in range(n) for i in range(t + 1)}
    keep = {(t, i): model.new_bool_var("") if 0 <= i < t else False for t in range(n + 1) for i in range(n)}
    for t in range(n):
        model.add(run[t, t] == 1)
        for i in range(t + 1):
            model.add_at_most_one(run[t, i], keep[t, i])  # what is kept is not made again
            model.add_bool_or(~keep[t + 1, i], run[t, i], keep[t, i])
            for read in line[i].reads:
                model.add_bool_or(~run[t, i], run[t, place[read]], keep[t, place[read]])
        for k in range(t + 1):
            used = line[k].size + line[k].scratch
            for i in [i for i in range(t + 1) if i != k]:
                # The result of i is there while k runs if it is kept, or made before k, and somebody needs it later.
                there = model.new_bool_var("")
                used += line[i].size * there
                for need in [run[t, reader] for reader in after[i] if k <= reader <= t] + [keep[t + 1, i]]:
                    model.add_bool_or(~keep[t, i], ~need, there) if i < t else None
                    model.add_bool_or(~run[t, i], ~need, there) if i < k else None
            model.add(used <= budget).only_enforce_if(run[t, k])
    model.minimize(sum(line[i].cost * ran for (_, i), ran in run.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError(f"CP-SAT has no proof after {seconds:g} s of work for {n} tasks: try fewer.")
    return [order[i] for t in range(n) for i in range(t + 1) if i < len(order) and solver.value(run[t, i])]


def least_budget(tasks: Iterable[Task], order: Sequence[str], seconds: float = 60) -> int:
    """Return the smallest budget in bytes that any schedule keeps, by bisection over `optimum`."""
    tasks = list(tasks)
    high = max(usage(tasks, order), default=0)
    low = max((t.size + t.scratch for t in tasks), default=0)
    while low < high:
        middle = (low + high) // 2
        if optimum(tasks, order, middle, seconds) is None:
            low = middle + 1
        else:
            high = middle
    return low


def rematerialise(tasks: Iterable[Task], order: Sequence[str], budget: int, states: int = 30_000) -> list[str] | None:
    """Return a schedule within the budget (bytes), with first runs in the given order; None if none is found.

    The best one if `shortest` finds it within this many states, else that of `greedy`. Raises BadOrder or BadTasks.
    """
    try:
        return shortest(tasks := list(tasks), order, budget, states)
    except TimeoutError:
        return greedy(tasks, order, budget)


def greedy(
    tasks: Iterable[Task], order: Sequence[str], budget: int, tries: int = 12, seed: int = 0
) -> list[str] | None:
    """Return a schedule within the budget (bytes), with first runs in the given order; None if none is found.

    Several greedy tries, all but the first with some chance in the choice; the one with the least work counts. Raises
    BadOrder or BadTasks.
    """
    check_order(tasks := list(tasks), order)
    rng, best = random.Random(seed), None
    for k in range(tries):
        found = _shorter(tasks, _greedy(tasks, list(order), budget, rng if k else None), budget)
        if found and (best is None or work(tasks, found) < work(tasks, best)):
            best = found
        if best and len(best) == len(order):
            break
    return best


def _greedy(tasks: Sequence[Task], schedule: list[str], budget: int, rng: random.Random | None) -> list[str] | None:
    """Insert runs until the budget is kept, each the one that lowers the excess most per unit of work."""
    cost, excess = {task.name: task.cost for task in tasks}, over(tasks, schedule, budget)
    while excess:
        options = []
        for place, names in _insertions(tasks, schedule, budget):
            longer = [*schedule[:place], *names, *schedule[place:]]
            gain = excess - over(tasks, longer, budget)
            if gain > 0:
                luck = rng.uniform(0.5, 1.5) if rng else 1
                options.append((gain / (sum(cost[name] for name in names) or 0.5) * luck, longer, gain))
        if not options or len(schedule) > 20 * len(tasks):
            return None
        _, schedule, gain = max(options, key=lambda option: option[0])
        excess -= gain
    return schedule


def _insertions(tasks: Sequence[Task], schedule: Sequence[str], budget: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (place, names to run there) for each result that lies unused through a step above the budget.

    A run needs its own reads. It is offered three times: they are kept so long, or made again as far as they are no
    longer there, or all made again from the beginning.
    """
    named, found = {task.name: task for task in tasks}, lives(tasks, schedule)
    high = [i for i, used in enumerate(usage(tasks, schedule)) if used > budget]
    for life in found:
        for before, place in pairwise(life.touched):
            if place < len(schedule) and any(before < i < place for i in high):
                there = {it.name for it in found if it.touched[0] < place <= it.touched[-1]} - {life.name}
                for enough in (set(named) - {life.name}, there, set()):
                    yield place, _closure(named, life.name, enough)


def _closure(named: dict[str, Task], name: str, there: set[str]) -> list[str]:
    """Return the runs that make a result from those that are there, itself last."""
    steps: list[str] = []
    todo = [(name, False)]
    while todo:
        at, ready = todo.pop()
        if ready:
            steps += [at] * (at not in steps)
        else:
            todo.append((at, True))
            todo += [(read, False) for read in named[at].reads if read not in there]
    return steps


def _shorter(tasks: Sequence[Task], schedule: list[str] | None, budget: int) -> list[str] | None:
    """Drop runs that the budget does not need, the costliest first."""
    if schedule is None:
        return None
    cost = {task.name: task.cost for task in tasks}
    dropped = True
    while dropped:
        seen: set[str] = set()
        repeated = [i for i, name in enumerate(schedule) if name in seen or seen.add(name)]
        dropped = False
        for i in sorted(repeated, key=lambda i: -cost[schedule[i]]):
            less = schedule[:i] + schedule[i + 1 :]
            if not over(tasks, less, budget):
                schedule, dropped = less, True
                break
    return schedule
