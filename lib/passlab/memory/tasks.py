"""A program as tasks that make results, and how much memory an order of them needs.

    tasks = tasks_of(gm, *inputs)             # one task for each call of an FX graph
    order = [task.name for task in tasks]
    peak(tasks, order)
    nodes_of(gm, order)                       # an order of all nodes of the graph

The rule, for all of `order` and `remat`: while a task runs, its reads, its result and its scratch memory are there. A
result is there from its task to its last reader; a result without readers is an output, and stays to the end. In a
schedule a task may run again: then a reader takes the latest result, and between the last reader of one and the next
run there is none. What the caller owns (inputs, parameters) is not counted.
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
    """A computation. `reads`: names of the tasks whose results it reads; `size`: bytes of its own result; `scratch`:
    bytes that it needs while it runs; `cost`: the work of one run, in any unit."""

    name: str
    reads: tuple[str, ...] = ()
    size: int = 0
    scratch: int = 0
    cost: int = 1


class BadTasks(ValueError):
    """The tasks are no program: a name twice, a read of what there is not, a cycle, a negative number."""


class BadOrder(ValueError):
    """The order does not run these tasks: a name that is missing, unknown, twice, or before what it reads."""


def by_name(tasks: Iterable[Task]) -> dict[str, Task]:
    """Return name → task, with the tasks in an order in which they can run. Raises BadTasks."""
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
    left, after = {task.name: len(set(task.reads)) for task in named.values()}, readers(named.values())
    ready: dict[str, Task] = {}
    todo = [name for name in named if not left[name]]
    while todo:
        name = todo.pop(0)
        ready[name] = named[name]
        for reader in after[name]:
            left[reader] -= 1
            todo += [reader] * (not left[reader])
    if cycle := [name for name in named if name not in ready]:
        raise BadTasks(f"{listed(cycle)} wait for each other: there is a cycle, and no order runs them.")
    return ready


def _runs(named: dict[str, Task]) -> bool:
    """Return whether the tasks stand in an order in which they can run."""
    place = {name: i for i, name in enumerate(named)}
    return all(place[read] < place[name] for name, task in named.items() for read in task.reads)


def readers(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Return name → names of the tasks that read its result."""
    tasks = list(tasks)
    found: dict[str, list[str]] = {task.name: [] for task in tasks}
    for task in tasks:
        for read in dict.fromkeys(task.reads):
            found[read].append(task.name)
    return found


def check_order(tasks: Iterable[Task], order: Sequence[str], again: bool = False) -> None:
    """Raise BadOrder unless the order runs each task, after what it reads: once, or with `again` at least once."""
    named, done = by_name(tasks), set()
    for i, name in enumerate(order):
        if name not in named:
            raise BadOrder(f"Step {i} of the order is {name!r}, and no task has that name.")
        if name in done and not again:
            raise BadOrder(f"The order runs {name} a second time, in step {i}: each task runs once.")
        if late := [read for read in named[name].reads if read not in done]:
            raise BadOrder(f"{name} runs in step {i}, before {late[0]}, whose result it reads.")
        done.add(name)
    if missing := [name for name in named if name not in done]:
        raise BadOrder(f"The order leaves out {listed(missing)}.")


@dataclass(frozen=True)
class Life:
    """One result in a schedule. `touched`: the step that makes it, and those that read it; an output is read at the
    end, in the step after the last."""

    name: str
    touched: tuple[int, ...]


def lives(tasks: Iterable[Task], schedule: Sequence[str]) -> list[Life]:
    """Return the results that the steps of a schedule make, each with the steps that use it. Not checked."""
    named = {task.name: task for task in tasks}
    found: list[list[int]] = []
    latest: dict[str, list[int]] = {}
    for i, name in enumerate(schedule):
        for read in dict.fromkeys(named[name].reads):
            latest[read].append(i)
        latest[name] = [i]
        found.append(latest[name])
    for name, after in readers(named.values()).items():
        if not after and name in latest:
            latest[name].append(len(schedule))
    return [Life(name, tuple(touched)) for name, touched in zip(schedule, found, strict=True)]


def usage(tasks: Iterable[Task], schedule: Sequence[str]) -> list[int]:
    """Return the bytes that there are while each step of a schedule runs. Raises BadOrder."""
    check_order(tasks := list(tasks), schedule, again=True)
    return _usage(tasks, schedule)


def _usage(tasks: Sequence[Task], schedule: Sequence[str]) -> list[int]:
    named, change = {task.name: task for task in tasks}, [0] * (len(schedule) + 2)
    for life in lives(tasks, schedule):
        change[life.touched[0]] += named[life.name].size
        change[life.touched[-1] + 1] -= named[life.name].size
    return [live + named[name].scratch for live, name in zip(accumulate(change), schedule, strict=False)]


def peak(tasks: Iterable[Task], order: Sequence[str]) -> int:
    """Return the most bytes that there are at once in an order of the tasks, each run once. Raises BadOrder."""
    check_order(tasks := list(tasks), order)
    return max(_usage(tasks, order), default=0)


def work(tasks: Iterable[Task], schedule: Iterable[str]) -> int:
    """Return the cost of all runs of a schedule."""
    cost = {task.name: task.cost for task in tasks}
    return sum(cost[name] for name in schedule)


def tasks_of(gm: fx.GraphModule, *inputs: Any) -> list[Task]:
    """Return the calls of an FX graph as tasks, in the order of the graph, with a last one that reads all outputs.

    A result's size is that of the memory that it brings with it: that of a view is 0, and its readers read the view and
    what it looks at. `cost` is bytes read and written. The graph runs on `inputs` without data, in torch's
    FakeTensorMode. Raises BadTasks for a graph that writes into existing memory.
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
    needed = {node for node in gm.graph.nodes if node.op == "output"}
    for node in reversed(gm.graph.nodes):
        needed.update(node.all_input_nodes if node in needed else ())
    owner: dict[int, str | None] = {}  # storage → the task that made it, None for memory of the caller
    holds: dict[fx.Node, dict[int, int]] = {}  # node → storage → bytes
    keep, tasks = [], []  # `keep` holds the values, so that no two storages get one address

    class Watch(fx.Interpreter):
        def fetch_attr(self, target: str) -> Any:
            value = super().fetch_attr(target)
            return mode.from_tensor(value) if hasattr(value, "untyped_storage") else value

        def run_node(self, node: fx.Node) -> Any:
            value = super().run_node(node)
            keep.append(value)
            parts = [t.untyped_storage() for t in tree_leaves(value) if hasattr(t, "untyped_storage")]
            holds[node] = {part._cdata: part.nbytes() for part in parts}
            operands = [n for n in node.all_input_nodes if n.op.startswith("call")]
            own = [at for at in holds[node] if at not in owner]
            for at in own:
                owner[at] = node.name if node.op.startswith("call") else None
            if (node.op.startswith("call") and node in needed) or node.op == "output":
                bases = [owner[at] for n in node.all_input_nodes for at in holds[n] if owner[at]]
                reads = tuple(dict.fromkeys([*(n.name for n in operands), *bases]))
                size = 0 if node.op == "output" else sum(holds[node][at] for at in own)
                moved = size + sum(bytes_ for n in node.all_input_nodes for bytes_ in holds[n].values())
                tasks.append(Task(node.name, reads, size, cost=moved if size else 0))
            return value

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(x) if hasattr(x, "untyped_storage") else x for x in inputs]
        Watch(gm).run(*fake)
    return tasks


def nodes_of(gm: fx.GraphModule, order: Sequence[str]) -> list[str]:
    """Return an order of all nodes of an FX graph, given one of its tasks.

    What the caller owns comes first. A call that nothing uses is no task: it runs before the output, which is last.
    """
    *steps, end = order
    rest = [node for node in gm.graph.nodes if node.name not in {*order}]
    owned = [node.name for node in rest if not node.op.startswith("call")]
    unused = [node.name for node in rest if node.op.startswith("call")]
    return [*owned, *steps, *unused, end]
