"""A program as tasks with results, and the memory that an order of them needs.

    tasks = tasks_of(gm, *inputs)             # one task for each call of an FX graph
    order = [task.name for task in tasks]
    peak(tasks, order)
    nodes_of(gm, order)                       # an order of all nodes of the graph

The rule, for all of `order` and `remat`: while a task runs, its reads, its result and its scratch memory are live. A
result is live from its task to its last reader; a result without readers is an output, and live to the end. In a
schedule a task may run again: then a reader takes the latest result, and between the last reader of one result and the
next run none is live. Memory of the caller (inputs, parameters) is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from passlab.judge import listed, record

if TYPE_CHECKING:
    from torch import fx


@record
@dataclass(frozen=True)
class Task:
    """A computation. `reads`: names of the tasks whose results it reads; `size`: bytes of its result; `scratch`: bytes
    that it needs only while it runs; `cost`: the work of one run, in any unit."""

    name: str
    reads: tuple[str, ...] = ()
    size: int = 0
    scratch: int = 0
    cost: int = 1


class BadTasks(ValueError):
    """Not a valid program: a duplicate or unknown name, a cycle, or a negative number."""


class BadOrder(ValueError):
    """Not a valid order: a missing, unknown or duplicate name, or a task before one that it reads."""


def by_name(tasks: Iterable[Task]) -> dict[str, Task]:
    """Return name → task in an order in which the tasks can run. Raises BadTasks."""
    named: dict[str, Task] = {}
    for task in tasks:
        if task.name in named:
            raise BadTasks(f"Two tasks are called {task.name!r}: give each its own name.")
        if bad := next((word for word in ("size", "scratch", "cost") if getattr(task, word) < 0), None):
            raise BadTasks(f"The {bad} of {task.name} is {getattr(task, bad)}: it must not be negative.")
        named[task.name] = task
    for task in named.values():
        if unknown := [read for read in task.reads if read not in named]:
            raise BadTasks(f"{task.name} reads {unknown[0]!r}, and no task has that name.")
    if _runs(named):
        return named
    missing, after = {task.name: len(set(task.reads)) for task in named.values()}, readers(named.values())
    order: dict[str, Task] = {}
    queue = [name for name in named if not missing[name]]
    while queue:
        name = queue.pop(0)
        order[name] = named[name]
        for reader in after[name]:
            missing[reader] -= 1
            queue += [reader] * (not missing[reader])
    if cycle := [name for name in named if name not in order]:
        raise BadTasks(f"{listed(cycle)} wait for each other: there is a cycle, and no order runs them.")
    return order


def _runs(named: dict[str, Task]) -> bool:
    """Return whether the tasks can run in the order of the dict."""
    place = {name: i for i, name in enumerate(named)}
    return all(place[read] < place[name] for name, task in named.items() for read in task.reads)


def readers(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Return name → names of the tasks that read its result."""
    tasks = list(tasks)
    names: dict[str, list[str]] = {task.name: [] for task in tasks}
    for task in tasks:
        for read in dict.fromkeys(task.reads):
            names[read].append(task.name)
    return names


def check_order(tasks: Iterable[Task], order: Sequence[str], again: bool = False) -> None:
    """Raise BadOrder unless the order runs each task after its reads: once, or with `again` at least once."""
    named, earlier = by_name(tasks), set()
    for i, name in enumerate(order):
        if name not in named:
            raise BadOrder(f"Step {i} of the order is {name!r}, and no task has that name.")
        if name in earlier and not again:
            raise BadOrder(f"The order runs {name} a second time, in step {i}: each task runs once.")
        if late := [read for read in named[name].reads if read not in earlier]:
            raise BadOrder(f"{name} runs in step {i}, before {late[0]}, whose result it reads.")
        earlier.add(name)
    if missing := [name for name in named if name not in earlier]:
        raise BadOrder(f"The order leaves out {listed(missing)}.")


@dataclass(frozen=True)
class Life:
    """One result in a schedule. `touched`: the step that computes it and the steps that read it; an output is also read
    in the step after the last."""

    name: str
    touched: tuple[int, ...]


def lives(tasks: Iterable[Task], schedule: Sequence[str]) -> list[Life]:
    """Return the result of each step of a schedule, with the steps that use it. The schedule is not checked."""
    named = {task.name: task for task in tasks}
    touched: list[list[int]] = []
    latest: dict[str, list[int]] = {}
    for i, name in enumerate(schedule):
        for read in dict.fromkeys(named[name].reads):
            latest[read].append(i)
        latest[name] = [i]
        touched.append(latest[name])
    for name, after in readers(named.values()).items():
        if not after and name in latest:
            latest[name].append(len(schedule))
    return [Life(name, tuple(steps)) for name, steps in zip(schedule, touched, strict=True)]


def usage(tasks: Iterable[Task], schedule: Sequence[str]) -> list[int]:
    """Return the live bytes in each step of a schedule. Raises BadOrder."""
    check_order(tasks := list(tasks), schedule, again=True)
    return _usage(tasks, schedule)


def _usage(tasks: Sequence[Task], schedule: Sequence[str]) -> list[int]:
    named, change = {task.name: task for task in tasks}, [0] * (len(schedule) + 2)
    for life in lives(tasks, schedule):
        change[life.touched[0]] += named[life.name].size
        change[life.touched[-1] + 1] -= named[life.name].size
    return [live + named[name].scratch for live, name in zip(accumulate(change), schedule, strict=False)]


def peak(tasks: Iterable[Task], order: Sequence[str]) -> int:
    """Return the peak of live bytes in an order that runs each task once. Raises BadOrder."""
    check_order(tasks := list(tasks), order)
    return max(_usage(tasks, order), default=0)


def work(tasks: Iterable[Task], schedule: Iterable[str]) -> int:
    """Return the cost of all runs of a schedule."""
    cost = {task.name: task.cost for task in tasks}
    return sum(cost[name] for name in schedule)


def tasks_of(gm: fx.GraphModule, *inputs: Any) -> list[Task]:
    """Return the calls of an FX graph as tasks, in the order of the graph, with a last one that reads all outputs.

    The size of a result is that of its new memory: it is 0 for a view, whose readers read both the view and its base.
    A task has one result, so all parts of a tuple live until the last of them is read: for a graph with such operations
    (batch norms, gradients of convolutions), `peak` is an upper bound; `liveness` has a buffer for each part.
    `cost` is bytes read and written. The graph runs on `inputs` without data, in torch's FakeTensorMode. Raises
    BadTasks for a graph that writes into existing memory.
    """
    from torch import fx
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_leaves

    from passlab.fx.effects import writes

    if writer := next((node for node in gm.graph.nodes if writes(node)), None):
        raise BadTasks(
            f"{writer.name} writes into existing memory, so its place in the order is fixed. "
            "Make the graph functional first, as torch.export's run_decompositions() does."
        )
    live = {node for node in gm.graph.nodes if node.op == "output"}
    for node in reversed(gm.graph.nodes):
        live.update(node.all_input_nodes if node in live else ())
    owner: dict[int, str | None] = {}  # storage → the task that allocates it, None for memory of the caller
    memory: dict[fx.Node, dict[int, int]] = {}  # node → storage → bytes
    values, tasks = [], []  # `values` keeps the tensors alive, so that no two storages get one address

    class Watch(fx.Interpreter):
        def fetch_attr(self, target: str) -> Any:
            value = super().fetch_attr(target)
            return mode.from_tensor(value) if hasattr(value, "untyped_storage") else value

        def run_node(self, node: fx.Node) -> Any:
            value = super().run_node(node)
            values.append(value)
            parts = [t.untyped_storage() for t in tree_leaves(value) if hasattr(t, "untyped_storage")]
            memory[node] = {part._cdata: part.nbytes() for part in parts}
            operands = [n for n in node.all_input_nodes if n.op.startswith("call")]
            fresh = [storage for storage in memory[node] if storage not in owner]
            owner.update(dict.fromkeys(fresh, node.name if node.op.startswith("call") else None))
            if (node.op.startswith("call") and node in live) or node.op == "output":
                bases = [owner[storage] for n in node.all_input_nodes for storage in memory[n] if owner[storage]]
                reads = tuple(dict.fromkeys([*(n.name for n in operands), *bases]))
                size = 0 if node.op == "output" else sum(memory[node][storage] for storage in fresh)
                traffic = size + sum(nbytes for n in node.all_input_nodes for nbytes in memory[n].values())
                tasks.append(Task(node.name, reads, size, cost=traffic if size else 0))
            return value

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(x) if hasattr(x, "untyped_storage") else x for x in inputs]
        Watch(gm).run(*fake)
    return tasks


def nodes_of(gm: fx.GraphModule, order: Sequence[str]) -> list[str]:
    """Return an order of all nodes of an FX graph, given an order of its tasks.

    Inputs and parameters are first. Unused calls, which are not tasks, run before the output.
    """
    *steps, output = order
    rest = [node for node in gm.graph.nodes if node.name not in {*order}]
    leaves = [node.name for node in rest if not node.op.startswith("call")]
    unused = [node.name for node in rest if node.op.startswith("call")]
    return [*leaves, *steps, *unused, output]
