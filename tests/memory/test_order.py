"""Tasks and orders: peaks against all orders, trees, bounds, graphs of torch, and sentences for broken input."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import fx, nn

from passlab import peak_memory
from passlab.memory.buffers import lower_bound as buffers_bound
from passlab.memory.liveness import liveness
from passlab.memory.order import beam, best_order, is_tree, liu, lower_bound, postorder, search
from passlab.memory.tasks import BadOrder, BadTasks, Task, by_name, nodes_of, peak, tasks_of, usage, work


def drawn(rng, count, as_tree):
    tasks, left = [], []
    for i in range(count):
        names = [task.name for task in tasks]
        reads = (
            rng.sample(left, rng.randint(0, min(3, len(left)))) if as_tree else [n for n in names if rng.random() < 0.4]
        )
        left = [name for name in left if name not in reads] + [f"t{i}"]
        tasks.append(Task(f"t{i}", tuple(reads), rng.randint(0, 9), rng.choice([0, 0, 5])))
    return tasks


def lowest(tasks):
    """The lowest peak, from all orders."""
    peaks = []
    for order in itertools.permutations([task.name for task in tasks]):
        try:
            peaks.append(peak(tasks, order))
        except BadOrder:
            continue
    return min(peaks)


@pytest.mark.parametrize("seed", range(60))
def test_no_order_beats_the_search_and_the_bound_is_below(seed):
    tasks = drawn(random.Random(seed), 6, as_tree=False)
    best, schedule = lowest(tasks), search(tasks)
    assert schedule.peak == schedule.lower_bound == best == peak(tasks, schedule.order)
    assert lower_bound(tasks) <= best <= peak(tasks, beam(tasks, 1))
    assert best_order(tasks).peak == best


@pytest.mark.parametrize("seed", range(60))
def test_liu_is_the_best_order_of_a_tree(seed):
    tasks = drawn(random.Random(seed), 6, as_tree=True)
    assert is_tree(tasks)
    assert peak(tasks, liu(tasks)) == lowest(tasks) <= peak(tasks, postorder(tasks))


@pytest.mark.parametrize("seed", range(5))
def test_liu_agrees_with_the_search_on_larger_trees(seed):
    tasks = drawn(random.Random(seed), 40, as_tree=True)
    assert peak(tasks, liu(tasks)) == search(tasks, 10**5).peak


def test_results_of_one_size_need_as_many_as_sethi_and_ullman_say():
    """A complete binary tree of depth d needs d + 1 registers, and one while an operation takes its operands."""
    for depth in range(1, 6):
        tasks = [Task(f"{depth}.{i}", (), 1) for i in range(2**depth)]
        for level in reversed(range(depth)):
            tasks += [
                Task(f"{level}.{i}", (f"{level + 1}.{2 * i}", f"{level + 1}.{2 * i + 1}"), 1) for i in range(2**level)
            ]
        assert peak(tasks, postorder(tasks)) == peak(tasks, liu(tasks)) == depth + 2


def test_a_search_that_is_cut_short_still_gives_a_bound():
    tasks = drawn(random.Random(3), 14, as_tree=False)
    best = search(tasks, 10**6)
    bound = search(tasks, 1)
    assert isinstance(bound, int) and lower_bound(tasks) <= bound <= best.peak
    schedule = best_order(tasks, states=1, width=4)
    assert schedule.lower_bound <= best.peak <= schedule.peak == peak(tasks, schedule.order)


def test_only_trees_have_a_postorder():
    shared = [Task("a"), Task("b", ("a",)), Task("c", ("a",))]
    for way in (postorder, liu):
        with pytest.raises(ValueError, match="a has 2 readers"):
            way(shared)


def test_usage_follows_the_rule():
    tasks = [Task("a", (), 4), Task("b", ("a",), 2, 10), Task("out", ("b",), 1), Task("c", ("a",), 8)]
    assert usage(tasks, ["a", "b", "out", "c"]) == [4, 16, 7, 13]  # out is read by nothing, so it stays
    assert usage(tasks, ["a", "b", "out", "a", "c"]) == [4, 16, 3, 5, 13], "the first a goes after b"
    assert work(tasks, ["a", "b", "out", "a", "c"]) == 5
    assert usage([], []) == [] and peak([], []) == 0


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([Task("a"), Task("a")], "Two tasks are called 'a'"),
        ([Task("a", ("b",))], "a reads 'b', and no task has that name"),
        ([Task("a", ("b",)), Task("b", ("a",)), Task("c")], "a and b wait for each other"),
        ([Task("a", size=-1)], "The size of a is -1"),
        ([Task("a", scratch=-2)], "The scratch of a is -2"),
    ],
)
def test_tasks_that_are_no_program_are_named(tasks, sentence):
    with pytest.raises(BadTasks, match=sentence):
        by_name(tasks)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (["a", "b"], "leaves out c"),
        (["a", "c", "b"], "c runs in step 1, before b"),
        (["a", "b", "b", "c"], "runs b a second time, in step 2"),
        (["a", "x", "b", "c"], "Step 1 of the order is 'x'"),
    ],
)
def test_orders_that_do_not_run_are_named(order, sentence):
    with pytest.raises(BadOrder, match=sentence):
        peak([Task("a"), Task("b", ("a",)), Task("c", ("b",))], order)


def test_tasks_may_be_listed_in_any_order():
    assert list(by_name([Task("c", ("b",)), Task("b", ("a",)), Task("a")])) == ["a", "b", "c"]


def traced(call, *inputs):
    return tasks_of(fx.symbolic_trace(call), *inputs)


def test_a_view_has_no_size_and_keeps_its_base():
    def call(x):
        base = x + 1
        view = base.t()[1:]
        return view * 2

    tasks = {task.name: task for task in traced(call, torch.ones(3, 4))}
    assert tasks["add"].size == 48 and tasks["t"].size == tasks["getitem"].size == 0
    assert tasks["mul"].reads == ("getitem", "add") and tasks["mul"].size == 3 * 3 * 4
    assert tasks["output"].reads == ("mul",)


def test_a_reshape_that_copies_has_a_size():
    tasks = {task.name: task for task in traced(lambda x: (x + 1).t().reshape(-1) + 1, torch.ones(3, 4))}
    assert tasks["reshape"].size == 48


def test_parts_of_a_tuple_live_as_long_as_the_last_as_tasks_and_apart_as_storages():
    def f(x):
        large, places = x.max(1)  # two results of one task
        total = large.sum()
        return (x * total).sum(), places

    gm, x = fx.symbolic_trace(f), torch.randn(64, 2)
    tasks = tasks_of(gm, x)
    parts, product = 64 * (4 + 8), 64 * 2 * 4
    # Beside the product and a sum, both parts live as tasks; in truth only the places, of 8 bytes each.
    assert peak(tasks, [task.name for task in tasks]) == parts + product + 4
    assert buffers_bound(liveness(gm, x)) == int(peak_memory(gm, x)) == 64 * 8 + product + 4


def test_what_the_caller_owns_is_not_counted():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            return (x @ self.weight.t()).relu(), x

    tasks = {task.name: task for task in tasks_of(fx.symbolic_trace(Model()), torch.ones(2, 4))}
    assert tasks["matmul"].reads == ("t",) and tasks["t"].size == 0 and tasks["matmul"].size == 32
    assert tasks["output"].reads == ("relu",)


def test_an_output_that_is_read_stays():
    def call(x):
        y = x + 1
        return y, torch.cat([y, y]).sum()

    tasks = traced(call, torch.ones(8))
    assert usage(tasks, [task.name for task in tasks])[-1] == 32 + 4


def test_results_that_nothing_needs_are_left_out():
    def call(x):
        torch.cat([x, x])
        return x + 1

    assert [task.name for task in traced(call, torch.ones(8))] == ["add", "output"]


def test_an_order_of_tasks_becomes_one_of_all_nodes():
    def call(x, y):
        torch.cat([x, x]).sum()
        return (x + 1) * (y - 1)

    gm = fx.symbolic_trace(call)
    order = [task.name for task in tasks_of(gm, torch.ones(8), torch.ones(8))]
    assert order == ["add", "sub", "mul", "output"]
    assert nodes_of(gm, ["sub", "add", "mul", "output"]) == ["x", "y", "sub", "add", "mul", "cat", "sum_1", "output"]


def test_a_graph_that_writes_is_refused_by_name():
    def call(x):
        y = x + 1
        y.add_(1)
        return y

    with pytest.raises(BadTasks, match="add_ writes into existing memory"):
        traced(call, torch.ones(2))
