"""`make bench`, part memory-more: orders, rematerialisation, layouts and caches against their optima and counts.

Nothing here is timed but the simulation of a cache: all other figures are counts, the same at every run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from autograder.bench.figures import Figure, at_least, at_most, cpu, not_measured


def memory_more(largest: int) -> Iterator[Figure | str]:
    yield from orders()
    yield from rematerialisation()
    yield from layouts()
    yield from caches()


# ---------------------------------------------------------------------------------------------------- order


def forward(model: Any, inputs: Sequence[Any]) -> list:
    """Return the tasks of a model's exported graph."""
    import torch

    from passlab.memory.tasks import tasks_of

    exported = torch.export.export(model, tuple(inputs)).run_decompositions()
    arguments = iter(inputs)
    values = []
    for spec in exported.graph_signature.input_specs:
        value = exported.state_dict.get(spec.target, exported.constants.get(spec.target)) if spec.target else None
        values.append(next(arguments) if value is None else value)
    return tasks_of(exported.graph_module, *values)


def joint(model: Any, inputs: Sequence[Any]) -> list:
    """Return the tasks of the graph that computes a model's outputs and the gradients of its parameters."""
    import torch
    from torch._functorch.aot_autograd import aot_export_joint_simple
    from torch.func import functional_call

    from passlab.memory.tasks import tasks_of

    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    state = parameters | dict(model.named_buffers())

    def call(*values: Any) -> tuple:
        named = dict(zip(state, values, strict=False))
        return (1 * functional_call(model, named, tuple(values[len(state) :])),)  # an output must not be a view

    graph = aot_export_joint_simple(call, (*state.values(), *inputs), trace_joint=True)
    placeholders = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    return tasks_of(graph, *(torch.empty(value.shape, dtype=value.dtype) for value in placeholders))


def orders() -> Iterator[Figure | str]:
    """Compare torch's order of each zoo graph with the best one found, and with the bound."""
    from passlab.memory.order import best_order
    from passlab.memory.tasks import peak
    from passlab.models import ZOO

    proved, count, shares = 0, 0, []
    for name, row in ZOO.items():
        for kind, tasks_from in (("forward", forward), ("training", joint)):
            yield f"order: {name}, {kind}"
            tasks = tasks_from(row.build(), row.inputs())
            best, original = best_order(tasks), peak(tasks, [task.name for task in tasks])
            count += 1
            proved += best.peak == best.lower_bound
            shares.append(best.peak / original)
            if best.peak < original or best.peak > best.lower_bound:
                share = f"{best.peak / original:.3f} of torch's"
                note = f"{len(tasks)} tasks, {original:,} → {best.peak:,} bytes, bound {best.lower_bound:,}"
                yield Figure(f"order, {name}, {kind}: peak", share, note, value=best.peak / original)
    yield at_least("order: zoo graphs whose peak is proved the lowest", proved, count - 2, "", f"of {count}")
    mean = sum(shares) / len(shares)
    yield at_most("order: peak over that of torch's order, mean of the zoo's graphs", mean, 1, "", "")


# ---------------------------------------------------------------------------------------------------- remat


def small_graphs(rng: random.Random, count: int) -> Iterator[list]:
    """Yield drawn graphs, and chains there and back."""
    from passlab.memory.tasks import Task

    for number in range(count):
        if number % 2:
            n = rng.randint(4, 8)
            values = [
                Task(f"f{i}", (f"f{i - 1}",) if i else (), rng.randint(3, 9), 0, rng.randint(1, 9)) for i in range(n)
            ]
            back = [
                Task(f"b{i}", (*([f"b{i + 1}"] if i < n - 1 else []), f"f{i}"), rng.randint(1, 4), 0, rng.randint(1, 9))
                for i in reversed(range(n))
            ]
            yield values + back
        else:
            tasks: list = []
            for i in range(rng.randint(8, 14)):
                reads = tuple(t.name for j, t in enumerate(tasks) if rng.random() < (0.6 if j == i - 1 else 0.15))
                tasks.append(Task(f"t{i}", reads, rng.randint(1, 9), rng.choice([0, 0, 3]), rng.randint(1, 9)))
            yield tasks


def rematerialisation() -> Iterator[Figure | str]:
    """Compare the schedules of small graphs, found by search and greedily, with the optimum of the integer program."""
    from passlab.memory.remat import greedy, optimum, rematerialise
    from passlab.memory.tasks import peak, work

    ratios: dict[str, list[float]] = {"by search": [], "greedily": []}
    possible, most, graphs = 0, 0, 30
    for number, tasks in enumerate(small_graphs(random.Random(0), graphs)):
        order = [task.name for task in tasks]
        most = max(most, len(tasks))
        for share in (0.9, 0.8, 0.7):
            yield f"remat: graph {number}"
            budget = int(peak(tasks, order) * share)
            if (best := optimum(tasks, order, budget)) is None:
                continue
            possible += 1
            for name, way in (("by search", rematerialise), ("greedily", greedy)):
                if plan := way(tasks, order, budget):
                    ratios[name].append(work(tasks, plan) / work(tasks, best))
    reached = ratios["by search"]
    note = f"{graphs} graphs of up to {most} tasks, three budgets each; {len(reached)} of {possible} budgets kept"
    yield at_most("remat: work over the optimum, the worst", max(reached), 1.1, "", note)
    yield at_least("remat: budgets kept, of those that can be", len(reached) / possible, 1, "", "")
    reached = ratios["greedily"]
    note = f"worst {max(reached):.3f}; {len(reached)} of {possible} budgets kept"
    mean = sum(reached) / len(reached)
    yield at_most("remat: greedy alone, work over the optimum, mean", mean, 1.1, "", note)


# ---------------------------------------------------------------------------------------------------- layout


def layouts() -> Iterator[Figure | str]:
    from passlab.memory.layout import Edge, Layouts, choose, every, tree

    rng = random.Random(0)
    off, factors = 0, []
    yield "layout: against all choices"
    for number in range(300):
        n = rng.randint(2, 7)
        times = {f"o{i}": {x: rng.uniform(1, 9) for x in rng.sample("abc", rng.randint(1, 3))} for i in range(n)}
        pairs = [(rng.randrange(i), i) for i in range(1, n)]
        if number % 3 == 0:
            pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.6]
        edges = tuple(Edge(f"o{i}", f"o{j}", rng.randint(0, 5)) for i, j in pairs)
        problem = Layouts(times, edges, bandwidth=2.0, overhead=rng.choice([0.0, 1.0]))
        best = problem.seconds(every(problem))
        if number % 3 == 0:
            factors.append(problem.seconds(choose(problem)) / best)
        else:
            off += abs(problem.seconds(tree(problem)) - best) > 1e-9 * best
    yield at_most("layout: trees on which dynamic programming misses brute force", off, 0, "", "of 200")
    note = f"{sum(f < 1 + 1e-9 for f in factors)} of {len(factors)} are the best"
    yield at_most("layout: graphs, time over the best, the worst", max(factors), 1.1, "", note)


# ---------------------------------------------------------------------------------------------------- caches


def nests() -> dict[str, tuple]:
    """Return name → a loop nest and the orders of its loops that are counted."""
    from passlab.memory.cache import Nest

    square = {"A": (200, 200), "B": (200, 200)}
    five = "B[i][j] = A[i-1][j] + A[i][j-1] + A[i][j] + A[i][j+1] + A[i+1][j]"
    return {
        "sweep": (Nest("A[i][j] = 1", {"i": 300, "j": 300}, {"A": (300, 300)}), ("ij", "ji")),
        "matmul": (
            Nest("C[i][j] += A[i][k] * B[k][j]", dict.fromkeys("ijk", 80), {name: (80, 80) for name in "ABC"}),
            ("ijk", "ikj", "jki"),
        ),
        "transpose": (Nest("B[j][i] = A[i][j]", {"i": 200, "j": 200}, square), ("ij", "ji")),
        "stencil": (Nest(five, {"i": (1, 199), "j": (1, 199)}, square), ("ij", "ji")),
    }


def caches() -> Iterator[Figure | str]:
    """Compare predicted misses with those that cachegrind counts, and time the prediction."""

    from passlab.memory import cachegrind
    from passlab.memory.cache import Cache, misses

    if problem := cachegrind.missing():
        yield not_measured("cachegrind's misses", problem)
    else:
        worst: tuple[float, str] = (0.0, "")
        for cache in (Cache(64, 8, 64), Cache(16, 2, 32)):
            for name, (nest, among) in nests().items():
                for order in among:
                    yield f"cachegrind: {name} {order}"
                    expected = misses(nest.addresses(order), nest.size, cache)
                    counted = cachegrind.counted(nest, order, cache)
                    note = f"{name} {order}, {cache.bytes} bytes: {expected:,} predicted, {counted:,} counted"
                    worst = max(worst, (abs(expected / counted - 1), note))
        yield at_most("cache: misses predicted, off from cachegrind's, the worst", worst[0] * 100, 2, " %", worst[1])
    nest, _ = nests()["matmul"]
    stream = nest.addresses("ijk")
    rate = len(stream) / cpu(lambda: misses(stream, nest.size, Cache()), 1).seconds / 1e6
    yield at_least("cache: accesses simulated in a second, millions", rate, 1, "", "matmul, 32 KiB, 8 ways")
