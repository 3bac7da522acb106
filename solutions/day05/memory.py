# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Day 5 · Memory: exercises
#
# Eight questions. The core is questions 1, 2 and 3, about 85 minutes; the rest, about 195 minutes, is stretch: harder,
# and for extra credit. Read the lesson first: [day05_memory.ipynb](../../course/day05_memory.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day05.cache")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import heapq
import math
from itertools import permutations, product
from typing import Any

from IPython.display import display
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from passlab import check, exercises, hint, progress
from passlab.drawing.cachelines import warp
from passlab.drawing.memory import arena
from passlab.drawing.usage import over_time
from passlab.memory.buffers import Buffer, instance
from passlab.memory.tasks import Task, usage

# %%
progress("day05")

# %% [markdown]
# ## 1 · Live ranges
#
# A plan places storages, not values. Find the storages that a graph allocates, and the steps in which each of them is
# live, in the order of the graph. A step is the position of a node in `gm.graph.nodes`: inputs, `get_attr` and the
# output count, too. You get inputs to run the graph on.
#
# | node | its memory |
# | --- | --- |
# | computes a new result | a new storage, with the name of the node |
# | a view, `getitem` of a `split`, an in-place operation | the storage of its operand |
# | an input, a parameter, or a view of one | the caller's: leave it out |
# | a result of 0 bytes | leave it out |
#
# A storage is live from the step that allocates it to the last step that touches it: a node touches the storages of its
# operands and of its value. The output node touches the results of the graph. A result without readers is live for one
# step. No node of this exercise allocates two storages. A storage may be larger than the view that you hold.
#
# Inputs may be views with strides of their own, transposed or expanded. `reshape` and `contiguous` return a view for some
# strides and a copy for others, so run the graph on the inputs themselves, not on copies.


# %%
def liveness(
    gm: fx.GraphModule, inputs: list[Tensor]
) -> dict[str, tuple[int, int, int]]:
    """Find the live range and the size of each storage that the graph makes.

    In:  a graph, and inputs for it: gm(*inputs) runs.
    Out: name of the node that makes the storage → (lower, upper, bytes): it is live in
         the steps lower to upper - 1.
    Not to be called: passlab.memory.storages.storages,
         passlab.memory.storages.recorded, passlab.memory.storages._Recorder,
         passlab.memory.liveness.liveness, passlab.memory.liveness.ranges.

    Example:  x (step 0), y = relu(x) (1), v = y.view(-1) (2), z = exp(x) (3),
              s = v + 1 (4), output s (5), with 6 floats in x:
              {"y": (1, 5, 24), "z": (3, 4, 24), "s": (4, 6, 24)}. y lives as long as v.
    """
    ### BEGIN SOLUTION
    recorder = Recorder(gm, inputs)
    recorder.run(*inputs)
    return {
        name: (first, last + 1, size)
        for name, first, last, size in recorder.ranges.values()
    }


class Recorder(fx.Interpreter):
    """Run a graph and note when each storage is touched."""

    def __init__(self, gm, inputs):
        # a storage that is freed gives its address to the next one: keep all values
        super().__init__(gm, garbage_collect_values=False)
        owned = (*inputs, *gm.parameters(), *gm.buffers())
        self.callers = {t.untyped_storage().data_ptr() for t in owned}
        self.ranges, self.step = {}, -1

    def run_node(self, node: fx.Node) -> Any:
        self.step += 1
        value = super().run_node(node)
        operands = [self.env[operand] for operand in node.all_input_nodes]
        for tensor in tree_leaves((operands, value)):
            if isinstance(tensor, Tensor):
                self.touch(node.name, tensor.untyped_storage())
        return value

    def touch(self, name, storage):
        at = storage.data_ptr()
        if at not in self.callers and storage.nbytes():
            made_by, first, _, size = self.ranges.get(
                at, (name, self.step, self.step, storage.nbytes())
            )
            self.ranges[at] = made_by, first, self.step, size

    ### END SOLUTION


# %%
check("day05.liveness", liveness)

# %% [markdown]
# ## 2 · Offsets in an arena
#
# Give each buffer an offset in one arena. Two buffers that are live in a common step must not share a byte; [0, 3) and
# [3, 5) have no step in common. The arena ends with the last buffer, rounded up to the alignment, and it should be
# small. It is compared with the bound: the largest sum of sizes, rounded up to the alignment, that are live at once.
#
# | cases | the arena may be |
# | --- | --- |
# | a few buffers that fit without a gap | as large as the bound |
# | the buffers of a model, forward or training | 1.15 times the bound |
# | an instance of MiniMalloc, with other names and in another order | 1.25 times the bound |
#
# A buffer of 0 bytes gets an offset, too. MiniMalloc's instances have up to 454 buffers, and five seconds are enough
# for dozens of plans in plain Python.


# %%
def offsets(buffers: list[Buffer], alignment: int) -> dict[str, int]:
    """Give each buffer an offset in one arena.

    In:  buffers, in any order: each has name, lower, upper and size (in bytes, also
         more than 2**32); it is live in the steps lower to upper - 1. Names are
         distinct. alignment: a power of two; all offsets are multiples of it.
    Out: name → offset, an int that is not negative.
    Not to be called: passlab.memory.allocate.first_fit,
         passlab.memory.allocate.best_fit, passlab.memory.allocate.colouring,
         passlab.memory._fast.place, passlab.memory.search.lowest_first,
         passlab.memory.search.search, passlab.memory.exact.exact,
         passlab.memory.sections.smallest, passlab.memory.sections.within,
         passlab.memory.sections._Search.

    Example:  offsets([Buffer("a", 0, 2, 30), Buffer("b", 1, 3, 50), Buffer("c", 2, 4,
              20)], 16) can be
              {"b": 0, "a": 64, "c": 64}: a and c do not meet.
    """
    ### BEGIN SOLUTION
    # among those that fit equally low, sometimes the first, sometimes the
    # longest-lived should go first
    orders = [lambda b: (b.lower, -b.size), lambda b: (-b.upper, -b.size)]
    plans = [lowest_first(buffers, alignment, order) for order in orders]
    return min(
        plans, key=lambda plan: max((plan[b.name] + b.size for b in buffers), default=0)
    )


def lowest_first(buffers, alignment, order):
    """Place the buffer that fits lowest, again and again, as one fills a box.

    Of several, take the first in the order.
    """
    left, plan = sorted(buffers, key=order), {}
    lowest = {b.name: 0 for b in buffers}
    while left:
        buffer = min(left, key=lambda b: lowest[b.name])
        left.remove(buffer)
        plan[buffer.name] = lowest[buffer.name]
        end = -(-(plan[buffer.name] + buffer.size) // alignment) * alignment
        for other in left:
            if other.lower < buffer.upper and buffer.lower < other.upper:
                lowest[other.name] = max(lowest[other.name], end)
    return plan
    ### END SOLUTION


# %%
check("day05.offsets", offsets)

# %% [markdown]
# MiniMalloc's F, as your answer places it:

# %%
try:
    buffers = instance("F")
    display(arena(buffers, offsets(buffers, 1), title="MiniMalloc's F"))
except Exception:
    print("The picture needs an answer to question 2.")

# %% [markdown]
# ## 3 · The transactions of a warp
#
# All 32 lanes of a warp load at once. Memory delivers whole sectors of 32 bytes, and a line of 128 bytes is four of
# them. Count the sectors and lines of one load. Addresses need not be multiples of the size: an element may cross the
# edge of a sector, and then needs both.

# %%
warp([6 + 8 * lane for lane in range(32)], 4, "not aligned")


# %%
def coalescing(addresses: list[int | None], size: int) -> tuple[int, int]:
    """Count the sectors and the lines that one load of a warp asks for.

    In:  addresses: 32 of them, in bytes, below 2**48, one for each lane; None for a
         lane that is switched off,
         size: how many bytes each lane wants, from its address on: 1 to 16.
    Out: (number of sectors of 32 bytes, number of lines of 128 bytes) that hold at
         least one wanted byte. Sector n holds the bytes 32 · n to 32 · n + 31.
    Not to be called: passlab.memory.cache.transactions, passlab.memory.cache.touched,
         passlab.drawing.cachelines.warp.

    Example:  coalescing([4 * lane for lane in range(32)], 4) is (4, 1);
              16 bytes further on it is (5, 2).
    """

    ### BEGIN SOLUTION
    counts = []
    for block in (32, 128):
        numbers = set()  # lanes that want the same block share one transaction
        for at in addresses:
            if at is not None:
                numbers.update(range(at // block, (at + size - 1) // block + 1))
        counts.append(len(numbers))
    return counts[0], counts[1]
    ### END SOLUTION


# %%
check("day05.coalescing", coalescing)

# %% [markdown]
# ## 4 · Slots instead of offsets · stretch
#
# If memory is allocated in slots, like registers, each value gets one. Two values that are live in a common step get
# different slots, with one exception: an element-wise operation may run in place, so its result may take over the slot
# of an operand. Each step computes one value. A slot is as large as the largest value in it.
#
# | value | its slot |
# |---|---|
# | an input, or a view | none: it is in the caller's memory, or in that of its base |
# | an output, or the base of one | no value takes it over, not even after its last reader |
# | the base of views, and of views of these | it is needed until the last of them ends, too |
#
# The result may take over the slot of an operand that owns it, if the step that makes the result is the last one in
# which that operand is needed, both have the same size and dtype, and no value is a view of the operand: a view may see
# the elements in another order. Use as few slots as these rules allow. The sum of their bytes counts only where no
# operation is element-wise. There it may be 1.1 times what this rule gives, step by step: of the free slots the smallest
# that is large enough; if none is, the largest, which grows; a new slot only if none is free.

# %%
COLUMNS = ("name", "lower", "upper", "size", "dtype", "kind", "view_of", "elementwise")
ROWS = [
    ("x", 0, 2, 64, "float32", "input", None, []),
    ("a", 1, 3, 64, "float32", "value", None, []),  # softmax(x)
    ("b", 2, 4, 64, "float32", "value", None, ["a"]),  # exp(a)
    ("v", 3, 5, 64, "float32", "value", "b", []),  # b.T
    ("c", 4, 5, 64, "float32", "output", None, ["v"]),  # relu(v)
]
PROGRAM = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]


# %%
def reuse(values: list[dict]) -> dict[str, int]:
    """Give a slot to each value that needs one.

    In:  values, in any order, with distinct names. Each is made in step "lower", and
         live in the steps "lower" to "upper" - 1, as far as its own name is used.
         "size": bytes, at least 1. "dtype": its name. "kind": "input", "value" or
         "output". "view_of": the name of a value, which may be a view itself, or None.
         "elementwise": the names of the operands if an element-wise operation makes
         the value, else [].
    Out: name → number of its slot, an int from 0 on. Inputs and views are not in it.
    Not to be called: passlab.memory.allocate.slots, passlab.memory.allocate.colouring.

    Example:  reuse(PROGRAM) can be {"a": 0, "b": 0, "c": 1}: exp runs in place,
              but relu cannot, since b has a view.
    """
    ### BEGIN SOLUTION
    named = {value["name"]: value for value in values}
    own = [
        value
        for value in values
        if value["kind"] != "input" and value["view_of"] is None
    ]
    needed_until, viewed = {}, set()
    for value in values:
        owner = value
        while owner["view_of"] is not None:
            owner = named[owner["view_of"]]
            viewed.add(owner["name"])
        # the caller reads the outputs after the last step
        end = math.inf if value["kind"] == "output" else value["upper"]
        needed_until[owner["name"]] = max(needed_until.get(owner["name"], 0), end)

    slot, width, busy_until = {}, [], []
    for value in sorted(own, key=lambda value: value["lower"]):
        free = [
            number for number, end in enumerate(busy_until) if end <= value["lower"]
        ]
        for name in value["elementwise"]:
            alike = all(named[name][key] == value[key] for key in ("size", "dtype"))
            if (
                name in slot
                and name not in viewed
                and alike
                and needed_until[name] == value["lower"] + 1
            ):
                free.append(slot[name])
        if not free:
            free = [len(width)]
            width.append(0)
            busy_until.append(0)
        # first those that are large enough, then the one whose size is nearest
        best = min(
            free,
            key=lambda number: (
                width[number] < value["size"],
                abs(width[number] - value["size"]),
            ),
        )
        width[best] = max(width[best], value["size"])
        busy_until[best] = needed_until[value["name"]]
        slot[value["name"]] = best
    return slot
    ### END SOLUTION


# %%
check("day05.reuse", reuse)

# %% [markdown]
# ## 5 · Which loop order misses least? · stretch
#
# The loops of a nest may run in any order here. For each order, count the misses in a cache that starts empty, and name
# the order with the fewest misses.
#
# A nest is plain data. `loops` has the number of turns of each loop. Each access has its address in turn 0 of all loops,
# and the bytes by which a turn of each loop moves it; a loop that is missing does not move it. In each turn of the
# innermost loop the accesses follow one another. Reads and writes are treated alike, and no element crosses the edge of
# a line. A loop may have one turn, and neither the sets nor the bytes of a line need be a power of two.

# %%
EXAMPLE = {
    "loops": {"i": 8, "j": 16},  # for i in range(8): for j in range(16):
    "accesses": [
        {"start": 0, "steps": {"i": 128, "j": 8}}
    ],  # A[i][j], rows of 16 numbers of 8 bytes
    "cache": {"sets": 2, "ways": 2, "line": 64},
}


# %%
def cache(
    loops: dict[str, int], accesses: list[dict], cache: dict[str, int]
) -> tuple[str, dict[str, int]]:
    """Find the order of the loops with the fewest misses, and the misses of each order.

    In:  loops: name (one letter) → number of turns,
         accesses: a list of {"start": address, "steps": {loop: bytes}}, in the order in
         which a turn makes them,
         cache: "line" bytes in a line; address a is in line a // line. "sets": line n
         may be in set n % sets only. "ways": as many lines fit into a set; in a full
         one, the line is dropped that was used least recently, by a hit or a miss.
    Out: (an order with the fewest misses, {order: misses} for all orders). An order is
         a string of the names of all loops, the outermost first.
    Not to be called: passlab.memory.cache.hits, passlab.memory.cache.misses.

    Example:  cache(**EXAMPLE) is ("ij", {"ij": 16, "ji": 128}).
    """
    ### BEGIN SOLUTION
    misses = {}
    for order in permutations(loops):
        # Each from the line that was used longest ago to the latest
        sets = [[] for _ in range(cache["sets"])]
        missed = 0
        for turns in product(*(range(loops[name]) for name in order)):
            at = dict(zip(order, turns, strict=True))
            for access in accesses:
                address = access["start"] + sum(
                    step * at[name] for name, step in access["steps"].items()
                )
                line = address // cache["line"]
                lines = sets[line % cache["sets"]]
                if line in lines:
                    lines.remove(line)  # it moves to the end: a hit is a use, too
                else:
                    missed += 1
                    if len(lines) == cache["ways"]:
                        del lines[0]
                lines.append(line)
        misses["".join(order)] = missed
    return min(misses, key=misses.get), misses
    ### END SOLUTION


# %%
check("day05.cache", cache)

# %% [markdown]
# ## 6 · An order with a low peak · stretch
#
# Tasks compute results, and read results of others. While a task runs, its reads, its result and its scratch memory are
# live. A result is live from its task to its last reader; a result without readers is an output and is live to the end.
# Find an order of the tasks with a low peak, the largest number of bytes that are live at once:
#
# | the tasks | the peak |
# |---|---|
# | a tree: each result has at most one reader (up to 60 tasks) | the lowest there is |
# | a graph (up to 12 tasks) | at most 10 % above the lowest |
#
# The tasks may be listed in any order, and several may be outputs. A task may name a result twice, as x · x does: then it
# is one reader of one result.

# %%
TREE = [
    Task("big", size=20),
    Task("small", reads=("big",), size=1),
    Task("grown", reads=("small",), size=8),
    Task("wide", size=18),
    Task("thin", reads=("wide",), size=1),
    Task("thick", reads=("thin",), size=7, scratch=3),
    Task("end", reads=("grown", "thick"), size=1),
]
over_time({"as written": usage(TREE, [task.name for task in TREE])})


# %%
def order(tasks: list[Task]) -> list[str]:
    """Find an order of the tasks with a low peak.

    In:  tasks, each with name, reads (names of tasks), size and scratch (bytes, not
         negative).
    Out: their names, each once, each after those that it reads.
    Not to be called: passlab.memory.order.liu, passlab.memory.order.search,
         passlab.memory.order.beam, passlab.memory.order.best_order.

    Example:  order(TREE) can be
              ["big", "small", "wide", "thin", "grown", "thick", "end"], with a peak of
              21 bytes; as written the peak is 27.
    """
    ### BEGIN SOLUTION
    named = {task.name: task for task in tasks}
    readers = {
        name: [task.name for task in tasks if name in task.reads] for name in named
    }
    sorted_names: list[str] = []
    while len(sorted_names) < len(named):
        sorted_names += [
            n
            for n in named
            if n not in sorted_names and set(named[n].reads) <= set(sorted_names)
        ]
    if all(len(after) <= 1 for after in readers.values()):
        return of_tree([named[name] for name in sorted_names])
    return of_graph([named[name] for name in sorted_names], readers)


def of_tree(tasks: list[Task]) -> list[str]:
    """Return a tree's best order by Liu's algorithm; reads come first in `tasks`."""
    size, segments = {task.name: task.size for task in tasks}, {}
    for task in tasks:
        # a result that is read twice is in memory once
        segments[task.name] = merged([segments.pop(read) for read in {*task.reads}])
        inputs = sum(size[read] for read in {*task.reads})
        last = inputs + task.size + task.scratch, task.size, [task.name]
        stack = []
        for hill, valley, steps in [*segments[task.name], last]:
            # a hill that is not lower than the one before, or a valley that is not
            # higher, belongs to one segment
            while stack and (hill >= stack[-1][0] or valley <= stack[-1][1]):
                before = stack.pop()
                hill, steps = max(hill, before[0]), before[2] + steps
            stack.append((hill, valley, steps))
        segments[task.name] = stack
    return [name for _, _, steps in merged(list(segments.values())) for name in steps]


def merged(subtrees: list[list[tuple]]) -> list[tuple]:
    """Merge the segments of several subtrees by hill - valley, the largest first."""
    queue = sorted(
        (v - h, k, i)
        for k, segments in enumerate(subtrees)
        for i, (h, v, _) in enumerate(segments)
    )
    valleys, profile = [0] * len(subtrees), []
    for _, k, i in queue:
        hill, valley, steps = subtrees[k][i]
        others = sum(valleys) - valleys[k]
        valleys[k] = valley
        profile.append((others + hill, others + valley, steps))
    return profile


def of_graph(tasks: list[Task], readers: dict[str, list[str]]) -> list[str]:
    """Run Dijkstra's algorithm on the sets of tasks run; a path costs its peak."""
    queue, closed = [(0, frozenset(), [])], set()
    while True:
        high, done, steps = heapq.heappop(queue)
        if len(done) == len(tasks):
            return steps
        if done in closed:
            continue
        closed.add(done)
        # the live results follow from what has run, so the way to it does not matter
        live = sum(
            t.size
            for t in tasks
            if t.name in done and (not readers[t.name] or {*readers[t.name]} - done)
        )
        for task in tasks:
            if task.name not in done and done.issuperset(task.reads):
                peak = max(high, live + task.size + task.scratch)
                heapq.heappush(queue, (peak, done | {task.name}, [*steps, task.name]))
    ### END SOLUTION


# %%
check("day05.order", order)

# %% [markdown]
# ## 7 · A layout for each operation · stretch
#
# Each operation runs in one of several layouts, and takes a known time in each. If the two ends of an edge have
# different layouts, its value is converted, in 2 · bytes / bandwidth + overhead µs. Choose a layout for each operation,
# so that the total time of operations and conversions is the least:
#
# | edges, in any direction | the time |
# |---|---|
# | a tree: no cycle (up to 60 operations) | the least there is |
# | a graph (up to 8 operations) | at most 10 % above the least |

# %%
CHAIN = {
    "operations": {
        "conv": {"NCHW": 40.0, "NHWC": 10.0},  # µs
        "relu": {"NCHW": 5.0, "NHWC": 5.0},
        "flatten": {"NCHW": 1.0},
    },
    "edges": [("conv", "relu", 4000), ("relu", "flatten", 4000)],
    "bandwidth": 1000.0,  # bytes per µs
    "overhead": 2.0,
}


# %%
def layout(
    operations: dict[str, dict[str, float]],
    edges: list[tuple[str, str, int]],
    bandwidth: float,
    overhead: float,
) -> dict[str, str]:
    """Choose a layout for each operation, with the least time in all.

    In:  operations: name → {layout: µs}; layouts may have any names,
         edges: (operation, operation that reads its result, bytes); there may be two
         between the same operations, bandwidth: bytes per µs; overhead: µs of each
         conversion.
    Out: name → one of its layouts.
    Not to be called: passlab.memory.layout.tree, passlab.memory.layout.choose,
         passlab.memory.layout.reduced, passlab.memory.layout.every.

    Example:  layout(**CHAIN) is {"conv": "NHWC", "relu": "NHWC", "flatten": "NCHW"},
              or relu in NCHW: 26 µs either way.
    """
    ### BEGIN SOLUTION
    tables = [
        ((name,), {(x,): cost for x, cost in costs.items()})
        for name, costs in operations.items()
    ]
    for a, b, nbytes in edges:
        convert = 2 * nbytes / bandwidth + overhead
        pairs = product(operations[a], operations[b])
        tables.append(((a, b), {(x, y): convert if x != y else 0.0 for x, y in pairs}))
    left, order = set(operations), []

    def around(name: str) -> set[str]:
        return {other for scope, _ in tables if name in scope for other in scope} - {
            name
        }

    while left:
        # Few neighbours: a small new table
        name = min(left, key=lambda n: len(around(n)))
        factors, scope = [t for t in tables if name in t[0]], tuple(around(name))
        costs, best = {}, {}
        for layouts in product(*(operations[other] for other in scope)):
            chosen = dict(zip(scope, layouts, strict=True))
            total = {}
            for x in operations[name]:
                every = chosen | {name: x}
                total[x] = sum(
                    t[tuple(every[n] for n in names)] for names, t in factors
                )
            best[layouts] = min(total, key=total.get)
            costs[layouts] = total[best[layouts]]
        tables = [t for t in tables if name not in t[0]] + [(scope, costs)]
        order.append((name, scope, best))
        left.remove(name)
    choice: dict[str, str] = {}
    # The neighbours of an operation were removed after it: they have a layout by now.
    for name, scope, best in reversed(order):
        choice[name] = best[tuple(choice[other] for other in scope)]
    return choice
    ### END SOLUTION


# %%
check("day05.layout", layout)

# %% [markdown]
# ## 8 · Rematerialisation · stretch
#
# The tasks of question 6 again, and now with `cost`, the work of a run, in an order in which they can run. In a
# schedule a task may run several times: a reader takes the latest result, and between the last reader of one result and
# the next run of its task, the result is not live. An output, too, may be dropped and computed again: only its latest
# result is live to the end. Stay within a budget of bytes, with as little work as possible:
#
# | the budget | the schedule |
# |---|---|
# | suffices for the order as given | runs no task twice |
# | is smaller | stays within it in every step; the work of all runs is at most 10 % above the least |
#
# The least is that of all schedules whose first runs are in the order as given. Yours may have another order. There are
# up to 10 tasks, and a schedule within the budget exists.

# %%
THERE_AND_BACK = [
    Task("f0", size=4, cost=2),
    Task("f1", reads=("f0",), size=4, cost=2),
    Task("f2", reads=("f1",), size=4, cost=2),
    Task("b2", reads=("f2",), size=1, cost=3),
    Task("b1", reads=("b2", "f1"), size=1, cost=3),
    Task("b0", reads=("b1", "f0"), size=1, cost=3),
]
KEPT = [task.name for task in THERE_AND_BACK]
AGAIN = ["f0", "f1", "f2", "b2", "f0", "f1", "b1", "b0"]
over_time(
    {
        "each once": usage(THERE_AND_BACK, KEPT),
        "f0 and f1 again": usage(THERE_AND_BACK, AGAIN),
    }
)


# %%
def remat(tasks: list[Task], budget: int) -> list[str]:
    """Find a schedule that stays within the budget, with little work.

    In:  tasks, in an order in which they can run, each with name, reads, size, scratch
         and cost; budget, in bytes.
    Out: names of tasks, each at least once, each time after all that it reads.
    Not to be called: passlab.memory.remat.rematerialise, passlab.memory.remat.optimum,
         passlab.memory.remat.shortest, passlab.memory.remat.greedy,
         passlab.memory.remat._greedy.

    Example:  remat(THERE_AND_BACK, 13) is the order as given, with 15 units of work.
    """
    ### BEGIN SOLUTION
    size = {task.name: task.size for task in tasks}
    outputs = {task.name for task in tasks} - {
        read for task in tasks for read in task.reads
    }
    # A state is the set of live results: nothing else matters for the steps to come.
    # When the outputs are live, every task has run.
    queue, closed = [(0, frozenset(), [])], set()
    while True:
        work, live, steps = heapq.heappop(queue)
        if outputs <= live:
            return steps
        if live in closed:
            continue
        closed.add(live)
        used = sum(size[name] for name in live)
        reached = [(work, live - {name}, steps) for name in live]
        for task in tasks:
            fits = used + task.size + task.scratch <= budget
            if task.name not in live and live.issuperset(task.reads) and fits:
                reached.append(
                    (work + task.cost, live | {task.name}, [*steps, task.name])
                )
        for state in reached:
            heapq.heappush(queue, state)
    ### END SOLUTION


# %%
check("day05.remat", remat)

# %%
progress("day05")
