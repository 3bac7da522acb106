"""Keep a memory budget by running tasks again, with as little work as possible.

    schedule = rematerialise(tasks, order, budget)    # a good schedule, quickly; None if it finds none
    schedule = optimum(tasks, order, budget)          # an optimal one, by integer programming; None if none exists

A schedule is a list of names that may contain a task more than once (see `tasks`). First runs follow the given order.

Reading order: `shortest` searches states. `optimum` is the integer program of P. Jain et al., "Checkmate: Breaking the
memory wall with optimal tensor rematerialization", MLSys 2020. `greedy` starts with all results kept. While a step
exceeds the budget, it drops the result that frees most bytes for long per unit of work, the measure of M. Kirisame et
al., "Dynamic tensor rematerialization", ICLR 2021; at the end it removes unnecessary runs. `rematerialise` searches
small state spaces and is greedy on large ones.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from passlab.memory.tasks import Task, check_order, lives, readers, usage, work


def over(tasks: Sequence[Task], schedule: Sequence[str], budget: int) -> int:
    """Return the bytes by which a schedule exceeds a budget, summed over its steps."""
    return sum(max(0, nbytes - budget) for nbytes in usage(tasks, schedule))


def shortest(tasks: Iterable[Task], order: Sequence[str], budget: int, states: int = 200_000) -> list[str] | None:
    """Return a schedule within the budget with the least work, or None if none exists.

    A state is (number of tasks of the order that have run, set of live results). A step runs a task, at the cost of its
    work, or drops a result at no cost. A* (P. Hart, N. Nilsson, B. Raphael, 1968) expands the state with the least sum
    of past work and a lower bound on future work: all tasks that have not run, and all that must run again because
    their results are read later and not live. The search space contains the schedules of `optimum`, and those that run
    earlier tasks again in another order. Raises TimeoutError after `states` states.
    """
    check_order(tasks := list(tasks), order)
    place = {name: i for i, name in enumerate(order)}
    line = sorted(tasks, key=lambda task: place[task.name])
    needs = [sum(1 << place[read] for read in set(task.reads)) for task in line]
    outputs = sum(1 << place[name] for name, after in readers(tasks).items() if not after)
    future = [outputs] * (len(line) + 1)  # future[k]: results that the tasks from number k on read, and outputs
    for k in reversed(range(len(line))):
        future[k] = future[k + 1] | needs[k]
    queue: list[tuple] = [(0, 0, 0, 0, None)]  # work for second runs, − first runs, results as bits, bytes, steps
    closed: set[tuple[int, int]] = set()
    while queue:
        cost, ran, live, nbytes, path = heapq.heappop(queue)
        if (ran, live) in closed:
            continue
        closed.add((ran, live))
        if -ran == len(line) and live & outputs == outputs:
            return _steps(path, order)
        if len(closed) > states:
            raise TimeoutError(f"No schedule is proved optimal after {states:,} states for {len(line)} tasks.")
        for i in range(min(1 - ran, len(line))):
            task, bit, first = line[i], 1 << i, i == -ran
            rerun = task.cost if future[-ran] & bit else 0  # dropping a result that is read later implies another run
            if live & bit:
                heapq.heappush(queue, (cost + rerun, ran, live ^ bit, nbytes - task.size, path))
            elif needs[i] & live == needs[i] and nbytes + task.size + task.scratch <= budget:
                extra = 0 if first else task.cost - rerun
                heapq.heappush(queue, (cost + extra, ran - first, live | bit, nbytes + task.size, (i, path)))
    return None


def _steps(path: tuple | None, order: Sequence[str]) -> list[str]:
    steps: list[str] = []
    while path:
        i, path = path
        steps.append(order[i])
    return steps[::-1]


def optimum(tasks: Iterable[Task], order: Sequence[str], budget: int, seconds: float = 60) -> list[str] | None:
    """Return a schedule within the budget with the least work, or None if none exists.

    Checkmate's program, solved by OR-tools' CP-SAT: in stage t, task t of the order runs for the first time; before it,
    earlier tasks may run again, in the order. `run[t, i]`: task i runs in stage t; `keep[t, i]`: its result is kept
    from stage t - 1. Raises TimeoutError without a proof after `seconds` of deterministic time.
    """
    from ortools.sat.python import cp_model

    check_order(tasks := list(tasks), order)
    outputs = [name for name, after in readers(tasks).items() if not after]
    end = Task("the end", tuple(outputs), cost=0)  # reads all outputs, so they are live at the end
    named, place = {task.name: task for task in tasks}, {name: i for i, name in enumerate(order)}
    line = [*(named[name] for name in order), end]
    after = [[r for r, task in enumerate(line) if line[i].name in task.reads] for i in range(len(line))]
    model, n = cp_model.CpModel(), len(line)
    run = {(t, i): model.new_bool_var("") for t in range(n) for i in range(t + 1)}
    keep = {(t, i): model.new_bool_var("") if 0 <= i < t else False for t in range(n + 1) for i in range(n)}
    for t in range(n):
        model.add(run[t, t] == 1)
        for i in range(t + 1):
            model.add_at_most_one(run[t, i], keep[t, i])  # a kept result is not computed again
            model.add_bool_or(~keep[t + 1, i], run[t, i], keep[t, i])
            for read in line[i].reads:
                model.add_bool_or(~run[t, i], run[t, place[read]], keep[t, place[read]])
        for k in range(t + 1):
            nbytes = line[k].size + line[k].scratch
            for i in [i for i in range(t + 1) if i != k]:
                # The result of i is live while k runs if it is kept or was computed before k, and is used later.
                live = model.new_bool_var("")
                nbytes += line[i].size * live
                for use in [run[t, reader] for reader in after[i] if k <= reader <= t] + [keep[t + 1, i]]:
                    model.add_bool_or(~keep[t, i], ~use, live) if i < t else None
                    model.add_bool_or(~run[t, i], ~use, live) if i < k else None
            model.add(nbytes <= budget).only_enforce_if(run[t, k])
    model.minimize(sum(line[i].cost * flag for (_, i), flag in run.items()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError(f"CP-SAT has no proof after {seconds:g} s of work for {n} tasks: try fewer.")
    return [order[i] for t in range(n) for i in range(t + 1) if i < len(order) and solver.value(run[t, i])]


def rematerialise(tasks: Iterable[Task], order: Sequence[str], budget: int, states: int = 30_000) -> list[str] | None:
    """Return a schedule within the budget (bytes), with first runs in the given order, or None.

    The schedule is optimal if `shortest` finishes within `states` states, else it is that of `greedy`. Raises BadOrder
    or BadTasks.
    """
    try:
        return shortest(tasks := list(tasks), order, budget, states)
    except TimeoutError:
        return greedy(tasks, order, budget)


def greedy(
    tasks: Iterable[Task], order: Sequence[str], budget: int, tries: int = 12, seed: int = 0
) -> list[str] | None:
    """Return a schedule within the budget (bytes), with first runs in the given order, or None.

    The one with the least work of several greedy tries, all but the first randomized. Raises BadOrder or BadTasks.
    """
    check_order(tasks := list(tasks), order)
    rng, best = random.Random(seed), None
    for k in range(tries):
        schedule = _shorter(tasks, _greedy(tasks, list(order), budget, rng if k else None), budget)
        if schedule and (best is None or work(tasks, schedule) < work(tasks, best)):
            best = schedule
        if best and len(best) == len(order):
            break
    return best


def _greedy(tasks: Sequence[Task], schedule: list[str], budget: int, rng: random.Random | None) -> list[str] | None:
    """Insert runs until the schedule keeps the budget, each time those that lower the excess most per unit of work."""
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
    """Yield (place, names to run there) for each result that is live but unused in a step above the budget.

    A run needs its own reads, so each place has three variants: all of them are kept that long, or those that are not
    live are computed again, or all are computed again from the beginning.
    """
    named, results = {task.name: task for task in tasks}, lives(tasks, schedule)
    high = [i for i, nbytes in enumerate(usage(tasks, schedule)) if nbytes > budget]
    for life in results:
        for before, place in pairwise(life.touched):
            if place < len(schedule) and any(before < i < place for i in high):
                live = {other.name for other in results if other.touched[0] < place <= other.touched[-1]} - {life.name}
                for base in (set(named) - {life.name}, live, set()):
                    yield place, _closure(named, life.name, base)


def _closure(named: dict[str, Task], name: str, live: set[str]) -> list[str]:
    """Return the runs that compute a result from live ones, in order."""
    steps: list[str] = []
    stack = [(name, False)]
    while stack:
        task, ready = stack.pop()
        if ready:
            steps += [task] * (task not in steps)
        else:
            stack.append((task, True))
            stack += [(read, False) for read in named[task].reads if read not in live]
    return steps


def _shorter(tasks: Sequence[Task], schedule: list[str] | None, budget: int) -> list[str] | None:
    """Remove runs that the budget does not require, the most expensive first."""
    if schedule is None:
        return None
    cost = {task.name: task.cost for task in tasks}
    while True:
        repeats = [i for i, name in enumerate(schedule) if name in schedule[:i]]
        shorter = (schedule[:i] + schedule[i + 1 :] for i in sorted(repeats, key=lambda i: -cost[schedule[i]]))
        if (candidate := next((s for s in shorter if not over(tasks, s, budget)), None)) is None:
            return schedule
        schedule = candidate
