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
# # Day 5 · Memory
#
# A compiler that knows the whole program knows the last use of each result. So it need not allocate memory while the
# program runs: it can assign an offset to every result beforehand, in one block, the **arena**. Chips without a heap
# require this, and everywhere else it saves calls and fragmentation.
#
# - **liveness**: storages, not values, and their live ranges
# - **offsets** in an arena that is as small as possible, which is NP-hard
# - **schedules**: the order of the tasks, and the results that are better computed twice
# - **access patterns**: layouts, cache lines, transactions
#
# In the exercises, [work/day05/memory.ipynb](../work/day05/memory.ipynb), you find live ranges and place buffers, and
# then change orders, layouts and access patterns. The lesson takes about 75 minutes, and 15 more for what is marked
# stretch.

# %%
import math
import random
import warnings
from dataclasses import replace
from itertools import pairwise

import torch
from ortools.sat.python import cp_model
from torch import fx

from passlab import guess, models
from passlab.drawing import arena, arenas, gantt
from passlab.drawing.picture import size
from passlab.memory.allocate import ORDERS, best_fit, colouring, slots
from passlab.memory.arena import bit_equal, run
from passlab.memory.buffers import (
    MINIMALLOC,
    SOLVABLE,
    BadPlan,
    Buffer,
    aligned,
    height,
    instance,
    lower_bound,
    overlaps,
)
from passlab.memory.liveness import liveness
from passlab.memory.plan import Plan, planned
from passlab.memory.search import lowest_first, search
from passlab.memory.sections import within
from passlab.memory.storages import storages
from passlab.memory.training import joint
from passlab.notebook.placing import first_fit_steps, place

# When torch exports a program, it copies a class of its own that is deprecated.
warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")

# %% [markdown]
# ## A value is not a storage
#
# Seven values, but how many pieces of memory?


# %%
class Small(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        rows = y.view(-1)
        z = torch.exp(x)
        z.add_(1)
        return z.sum() + rows[0]


small, x = fx.symbolic_trace(Small()), torch.randn(3, 4)
for storage in storages(small, x):
    print(f"{storage.kind:6} {storage.size:3} bytes: {', '.join(storage.values)}")

# %% [markdown]
# `view` and `getitem` return a new tensor on the old bytes; `add_` writes into them. How do we know? The graph is run on
# *fake* tensors, which have a shape, strides and a storage, but no numbers. Values with the same storage share memory.
# Names do not help: `reshape` is a view for some strides and a copy for others. A tensor's `untyped_storage()` is its
# piece of memory, and `data_ptr()` the address:

# %%
for name, y in (("x", x), ("x.t()", x.t())):
    same = y.reshape(-1).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    print(f"{name}.reshape(-1) {'is a view' if same else 'is a copy'}")

# %% [markdown]
# ## Live ranges
#
# A storage is live from the step that allocates it to the last step that touches any value in it. The steps are the
# positions of the nodes. Inputs and parameters belong to the caller, so we do not place them.

# %%
for buffer in liveness(small, x):
    print(buffer)
assert next(b for b in liveness(small, x) if b.name == "relu").upper > 5, (
    "its view is read at the end"
)

# %% [markdown]
# `upper` is the step after the last one, as in Python's `range`: a buffer that ends in the step where another begins
# does not overlap it. Here are the live ranges of a U-Net; dark is large:

# %%
model, inputs = models.ZOO["unet"].build(), models.ZOO["unet"].inputs()
unet = fx.symbolic_trace(model)
buffers = liveness(unet, *inputs)
gantt(buffers, "A U-Net, forward")

# %% [markdown]
# Many results are live for two steps: one computes them, the next layer reads them. The long bars are the skip
# connections. Below is the sum of live bytes in each step. Its **peak** is a lower bound: no arena is smaller.

# %%
bet = guess("What percentage of all buffers' bytes is live at the peak?", ...)

# %% tags=["hide-output"]
total, bound = sum(b.size for b in buffers), lower_bound(buffers)
print(
    f"{len(buffers)} buffers have {size(total)} together; "
    f"at most {size(bound)} are live at once"
)
short = [b for b in buffers if b.upper - b.lower == 2]
print(f"{len(short)} of the buffers are live for two steps")
assert bound < total / 5
bet.compare(round(100 * bound / total))

# %% [markdown]
# ## Offsets
#
# **First fit** takes the buffers one after the other, and places each at the lowest offset at which it overlaps no
# placed buffer that is live at the same time. Largest first is a good order:


# %%
def first_fit(buffers, order=ORDERS["size"], alignment=1):
    offsets, placed = {}, []
    for b in sorted(buffers, key=order):
        live = [o for o in placed if o.lower < b.upper and b.lower < o.upper]
        floor = 0
        for o in sorted(live, key=lambda o: offsets[o.name]):
            if floor + b.size <= offsets[o.name]:
                break  # the gap below this one is large enough
            floor = max(floor, aligned(offsets[o.name] + o.size, alignment))
        offsets[b.name] = floor
        placed.append(b)
    return offsets


offsets = first_fit(buffers, ORDERS["size"], alignment=64)
arena(buffers, offsets, "A U-Net, first fit by size")

# %% [markdown]
# Time runs to the right, offsets upwards. Grey is unused memory. The arena is as small as possible: it touches the
# dashed line, the bound.
#
# On the following eight buffers it is two bytes larger. Step through first fit:

# %%
rows = "a041 b041 c052 d124 e241 f272 g483 h671"  # name, lower, upper, size
eight = [Buffer(name, *map(int, numbers)) for name, *numbers in rows.split()]
assert height(eight, first_fit(eight)) == lower_bound(eight) + 2
first_fit_steps(eight)

# %% [markdown]
# `a` and `b` are small, so they come late, and no low gap is free for their whole time.
#
# An older idea is **colouring**, as in register allocation: buffers that are live at once get different slots, and a
# slot is as large as its largest buffer. For intervals the least number of slots is easy to find: in the order in which
# buffers begin, each takes the first free slot. That makes as many slots as there are live buffers at the peak. But few
# slots are not few bytes:


# %%
def lowest_slots(buffers):
    slot = {}
    for b in sorted(buffers, key=lambda b: b.lower):
        busy = {slot[o.name] for o in buffers if o.name in slot and b.lower < o.upper}
        slot[b.name] = min(set(range(len(busy) + 1)) - busy)
    return slot


used = len(set(lowest_slots(buffers).values()))
most_live = lower_bound([replace(b, size=1) for b in buffers])
assert used == most_live == len(set(slots(buffers).values()))
print(f"{used} slots: {size(height(buffers, colouring(buffers, 64)))}")
print(f"offsets: {size(height(buffers, offsets))}")

# %% [markdown]
# Registers have one size, buffers do not. An offset is a colour that takes sizes into account.
#
# ## Hard instances
#
# Models like this one are easy. These eleven instances are not. They come with MiniMalloc (ASPLOS 2024), a planner for
# accelerators that places each in 1 MiB. The table has the height of first fit over the lower bound, in several orders
# (area: size times duration). **Best fit** takes the smallest gap that is large enough:


# %%
def over(buffers, offsets):
    return height(buffers, offsets) / lower_bound(buffers)


hard = {letter: instance(letter) for letter in MINIMALLOC}
counts = [len(blocks) for blocks in hard.values()]
print(f"{len(hard)} instances of {min(counts)} to {max(counts)} buffers")
print("   " + "".join(f"{name:>10}" for name in [*ORDERS, "best fit", "colouring"]))
ratios = {}
for letter, blocks in hard.items():
    plans = {by: first_fit(blocks, key) for by, key in ORDERS.items()}
    plans |= {"best fit": best_fit(blocks), "colouring": colouring(blocks)}
    ratios[letter] = {name: over(blocks, plan) for name, plan in plans.items()}
    print(f"{letter}  " + "".join(f"{r:10.2f}" for r in ratios[letter].values()))

# %% [markdown]
# Largest first is far above the bound everywhere, and yet the best order for most of them:

# %%
by_size = [row["size"] for row in ratios.values()]
print(f"largest first: {min(by_size) - 1:.0%} to {max(by_size) - 1:.0%} too much")
orders = {letter: min(ORDERS, key=row.get) for letter, row in ratios.items()}
others = {letter: order for letter, order in orders.items() if order != "size"}
print(f"another order is better for {len(others)} of {len(hard)}:", others)
assert len(others) < len(hard) / 2

# %% [markdown]
# No order is best everywhere, so a planner tries several.
#
# Another greedy rule chooses not the offset of the next buffer, but the next *buffer*: the one with the lowest possible
# offset. It fills the arena from below. The order only breaks ties:

# %%
print("   " + "".join(f"{name:>10}" for name in ORDERS))
for letter, blocks in hard.items():
    plans = [lowest_first(blocks, key) for key in ORDERS.values()]
    print(f"{letter}  " + "".join(f"{over(blocks, plan):10.2f}" for plan in plans))
assert all(over(blocks, lowest_first(blocks)) < 1.3 for blocks in hard.values())

# %% [markdown]
# The remaining freedom is how to break ties, and local search can use it: change a few places in the order, fill the
# arena again, keep the change if it is not larger. Most tries end early, at a buffer that is too high.

# %%
F = hard["F"]
best = search(F, tries=2000)
arenas(
    F, {"first fit by size": first_fit(F), "after 2,000 tries": best}, "MiniMalloc's F"
)

# %% [markdown]
# ## Exact
#
# Is the bound always reachable? Each buffer is a rectangle with a fixed time and a variable offset, and no two may
# overlap. Of these eight, at most four bytes are live at once. How small an arena can you find? Move them up and down,
# with the mouse or the arrow keys:

# %%
sizes = [
    (0, 1, 2),
    (0, 2, 2),
    (1, 3, 1),
    (1, 4, 1),
    (2, 3, 1),
    (2, 4, 1),
    (3, 5, 2),
    (4, 5, 2),
]
puzzle = [
    Buffer(name, *numbers) for name, numbers in zip("abcdefgh", sizes, strict=True)
]
place(puzzle)

# %% [markdown]
# A constraint solver can prove the answer for small instances:


# %%
def exact(buffers, seconds=60):
    model, limit = cp_model.CpModel(), sum(b.size for b in buffers)
    top = model.new_int_var(0, limit, "top")
    times, places, starts = [], [], {}
    for b in buffers:
        starts[b.name] = start = model.new_int_var(0, limit, b.name)
        times.append(model.new_fixed_size_interval_var(b.lower, b.upper - b.lower, ""))
        places.append(model.new_fixed_size_interval_var(start, b.size, ""))
        model.add(start + b.size <= top)
    model.add_no_overlap_2d(times, places)
    model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    status = solver.status_name(solver.solve(model))
    if status not in ("OPTIMAL", "FEASIBLE"):
        return status, None
    return status, {name: solver.value(start) for name, start in starts.items()}


# %%
status, offsets = exact(puzzle)
print(
    f"at most {lower_bound(puzzle)} bytes are live at once, "
    f"and the smallest arena has {height(puzzle, offsets)} ({status})"
)
assert status == "OPTIMAL" and height(puzzle, offsets) > lower_bound(puzzle)
arena(puzzle, offsets, "The smallest arena for eight buffers")

# %% [markdown]
# Four bytes are not enough, because all four are always in use. So `c` and `d` follow `a`, in its half, and `e` and `f`
# follow `b`. For `g` the bytes of `c` and `e` have to be neighbours. Then `d` and `f` are at the two ends, and what they
# free for `h` is in two pieces.

# %% [markdown]
# On a large instance the time may end before the proof (`FEASIBLE`), or before any plan:

# %%
status, offsets = exact(F, seconds=2)
print(f"{status}: {over(F, offsets):.2f}" if offsets else status)
print(f"after 2,000 tries: {over(F, best):.2f}")

# %% [markdown]
# So both are in use: a search always has an answer, and a solver can prove that one is the best.
#
# Between them is a search for *some* plan within a capacity, like MiniMalloc's:

# %%
packings = {letter: within(blocks, SOLVABLE) for letter, blocks in hard.items()}
print("choices:", {letter: packing.nodes for letter, packing in packings.items()})
solved = [letter for letter, packing in packings.items() if packing.offsets]
print(f"{len(solved)} of {len(hard)} within {SOLVABLE:,} B")

# %% [markdown]
# ## The plan runs
#
# A plan is only worth something if the program runs in it. `run` interprets a graph in one block of bytes, which it
# first fills with NaN. Each operation writes at the offset of the plan; a view of a value in the arena is a view into
# the arena.

# %%
plan = planned(unet, *inputs, allocate=search)
result = run(unet, plan, *inputs)
print(
    f"{size(plan.arena)}, all bits as without a plan: "
    f"{bit_equal(result, unet(*inputs))}"
)
assert bit_equal(result, unet(*inputs))

# %% [markdown]
# Now move the highest buffer a little down:

# %%
high = max(buffers, key=lambda b: plan.offsets[b.name])
shifted = Plan(
    plan.order,
    plan.offsets | {high.name: plan.offsets[high.name] - high.size // 4},
    plan.arena,
)
try:
    run(unet, shifted, *inputs)
    raise AssertionError("this plan should be refused")
except BadPlan as error:
    print(error)
wrong = run(unet, shifted, *inputs, checked=False)
print(
    "all bits as without a plan:",
    bit_equal(wrong, unet(*inputs)),
    f"· pairs that meet: {len(overlaps(buffers, shifted.offsets))}",
)
assert not bit_equal(wrong, unet(*inputs))

# %%
arena(buffers, shifted.offsets, "An overlap")

# %% [markdown]
# Nothing crashes. A bad plan silently gives other numbers, perhaps for some inputs only. So plans are checked.
#
# ## Training · stretch
#
# Training needs most results twice: the backward pass reads them again, in the opposite order. Torch can trace both
# passes into one graph.

# %%
training, operands = joint(model, *inputs)
both_passes = liveness(training, *operands)
print(f"forward: {size(lower_bound(buffers))} in {len(buffers)} buffers")
print(f"training: {size(lower_bound(both_passes))} in {len(both_passes)} buffers")
gantt(both_passes, "A U-Net, training")

# %% [markdown]
# The first results wait for the last gradients: that is the fan of long bars. For this shape, largest first is not enough
# any more:

# %%
plans = {
    "first fit by size": first_fit(both_passes, alignment=64),
    "search": search(both_passes, alignment=64, tries=300),
}
for name, offsets in plans.items():
    print(f"{name:18} {over(both_passes, offsets):.3f}")
plan = Plan(
    tuple(node.name for node in training.graph.nodes),
    plans["search"],
    height(both_passes, plans["search"]),
)
assert bit_equal(run(training, plan, *operands), training(*operands))
arenas(both_passes, plans, "A U-Net in training")

# %% [markdown]
# ## TVM's planner · stretch
#
# Relax plans as in register allocation: `StaticPlanBlockMemory` walks through the program, keeps a pool of storages, and
# gives a new tensor a free one that is large enough, or grows one that is not. To compare, we place the buffers of the
# same Relax module, with the live ranges that it gives them:

# %%
from passlab.relax.measure import live_ranges
from passlab.tvm.importers import relax_module
from passlab.tvm.measure import allocations

module = relax_module(model, *inputs)
relax_buffers = [Buffer(*numbers) for numbers in live_ranges(module)]
storage_bytes = allocations(module, planned=True).bytes
for name, nbytes in (
    (f"{len(relax_buffers)} buffers", sum(b.size for b in relax_buffers)),
    ("TVM's storages", storage_bytes),
    ("slots", height(relax_buffers, colouring(relax_buffers, 64))),
    ("offsets", height(relax_buffers, search(relax_buffers, 64))),
    ("the bound", lower_bound(relax_buffers)),
):
    print(f"{name:<15}{size(nbytes)}")
assert (
    lower_bound(relax_buffers)
    == height(relax_buffers, search(relax_buffers, 64))
    < storage_bytes
)

# %% [markdown]
# Storages cost more than offsets, as slots do: each is as large as its largest tensor.

# %% [markdown]
# ## The order changes the peak
#
# So far the order was fixed. But a graph only states dependences, and two orders of the same tasks can need very
# different amounts of memory. A `Task` has all that matters here: its reads, the size of its result, and the memory
# that it needs while it runs. Here is (a + b) · (c · d + e), with results of one unit:

# %%
from passlab.drawing.cachelines import sweep, warp
from passlab.drawing.usage import over_time, tradeoff
from passlab.memory.order import best_order, liu, postorder
from passlab.memory.tasks import Task, peak, tasks_of, usage

expression = [Task(name, size=1) for name in "abcde"] + [
    Task("a+b", ("a", "b"), 1),
    Task("c·d", ("c", "d"), 1),
    Task("c·d+e", ("c·d", "e"), 1),
    Task("all", ("a+b", "c·d+e"), 1),
]
listing = [task.name for task in expression]
print(
    peak(expression, listing),
    "→",
    peak(expression, postorder(expression)),
    " ".join(postorder(expression)),
)
assert peak(expression, postorder(expression)) < peak(expression, listing)

# %% [markdown]
# Sethi and Ullman found in 1970 how to evaluate an expression with the fewest registers: the result of a subtree
# occupies memory while the next subtree runs. So the subtree that needs most registers runs first.
#
# With results of any size, the rule becomes: largest (peak − result) first. It is optimal if each subtree runs as a
# whole. But that is not always wise:

# %%
turns = [
    Task("big", size=20),
    Task("small", ("big",), 1),
    Task("grown", ("small",), 8),
    Task("wide", size=18),
    Task("thin", ("wide",), 1),
    Task("thick", ("thin",), 7),
    Task("end", ("grown", "thick"), 1),
]
orders = {"one by one": postorder(turns), "in turns (Liu)": liu(turns)}
for name, order in orders.items():
    print(f"{name:<15}{peak(turns, order):3}  {' '.join(order)}")
over_time(
    {name: usage(turns, order) for name, order in orders.items()},
    title="Two orders of one tree",
)

# %% [markdown]
# Liu's idea of 1987: cut the order of a subtree at its valleys. Here `big, small` is a segment with a hill of 21 and a
# valley of 1, and `grown` has a hill of 9 and a valley of 8. Then merge the segments of all subtrees by hill − valley,
# the largest first. That is the best order of a tree, for any sizes.
#
# Most graphs are not trees, and for them the problem is NP-hard. Two things help. The memory in use after some
# tasks have run depends on the *set* of these tasks, not on their order: so a search over sets of tasks suffices. And a
# task that fits, and frees as much as it allocates, may always run at once. Torch's order of a small GPT, and the best
# one:

# %%
model, inputs = models.ZOO["gpt"].build(), models.ZOO["gpt"].inputs()
exported = torch.export.export(model, inputs).run_decompositions()
constants = [
    exported.state_dict.get(s.target, exported.constants.get(s.target))
    for s in exported.graph_signature.input_specs
]
gpt = tasks_of(
    exported.graph_module,
    *(inputs[0] if value is None else value for value in constants),
)
listing = [task.name for task in gpt]
best = best_order(gpt)
print(
    f"{len(gpt)} tasks, {peak(gpt, listing):,} → {best.peak:,} bytes; "
    f"no order is below {best.lower_bound:,}"
)
assert best.lower_bound == best.peak < peak(gpt, listing)
over_time(
    {"torch's order": usage(gpt, listing), "the best": usage(gpt, best.order)},
    title="A small GPT, forward",
)

# %% [markdown]
# Views have no size of their own, and a reader of a view keeps its base alive. The search stops with a proof: it visits
# sets in the order of their peaks, so the peak of the current set is a bound for every order.
#
# ## Rematerialisation
#
# Training keeps the results that the backward pass reads. Here are eight steps forward, cheap and expensive ones in turn
# (like ReLU and convolution), and eight back; step `b3` reads `f3`:

# %%
from passlab.memory.remat import greedy, optimum
from passlab.memory.tasks import work

n = 8
training = [
    Task(f"f{i}", (f"f{i - 1}",) if i else (), 8, cost=1 + i % 2 * 9) for i in range(n)
]
training += [
    Task(f"b{i}", (*([f"b{i + 1}"] if i < n - 1 else []), f"f{i}"), 2, cost=2 + i % 3)
    for i in reversed(range(n))
]
order = [task.name for task in training]
print(peak(training, order), "bytes, of which one result is", training[0].size)

# %% [markdown]
# No order helps: all forward results are needed later. The way out is to drop some and compute them again:
# **rematerialisation**. A schedule is then a list that may contain a task twice. With a third less memory:

# %%
budget = peak(training, order) * 2 // 3
schedule = optimum(training, order, budget)
print(" ".join(schedule))
print(f"{work(training, order)} → {work(training, schedule)} units of work")
curves = {"each once": usage(training, order), "some twice": usage(training, schedule)}
assert max(usage(training, schedule)) <= budget
over_time(curves, {"budget": budget}, title="The same training step under a budget")

# %% [markdown]
# `optimum` is Checkmate's integer program (2020): for each stage and each result, is it kept, is it computed again? A
# solver answers exactly for two dozen tasks or so. For more, use a greedy rule: drop the result that frees the most
# bytes for the longest time per unit of work (as DTR does while the program runs, 2021). The cost of each budget:

# %%
points = {"the optimum": [], "greedy": []}
for share in range(95, 34, -6):
    budget = peak(training, order) * share // 100
    for name, way in (("the optimum", optimum), ("greedy", greedy)):
        if (schedule := way(training, order, budget)) is not None:
            points[name].append((budget, work(training, schedule)))
least, rule = points.values()
assert least != rule and all(a[1] <= b[1] for a, b in zip(least, rule, strict=True))
tradeoff(points, work(training, order), title="Each byte less costs work")

# %% [markdown]
# The first bytes are nearly free. Towards the end each costs more, and the greedy rule is above the optimum.
#
# ## Which layout? · stretch
#
# On day 3 an image had one of two layouts, and conversions were counted. A third, NCHW8c, has blocks of eight channels,
# whose numbers for one pixel are neighbours, for vectors of eight. Now each operation takes a time in each of these
# layouts, and a conversion has a cost: every byte is read and written, so 2 · bytes / bandwidth, and a launch. Bandwidth
# and launch are measured on this machine:

# %%
from passlab.measure.machine import measure_machine
from passlab.memory.layout import Edge, Layouts, choose, every, tree

machine = measure_machine()
conv, relu = (
    {"NCHW": 9e-4, "NHWC": 4e-4, "NCHW8c": 3e-4},
    {"NCHW": 1e-4, "NHWC": 1.1e-4, "NCHW8c": 1.2e-4},
)
operations = {
    "conv1": conv,
    "relu1": relu,
    "conv2": conv,
    "relu2": relu,
    "resize": {"NCHW": 2e-4, "NHWC": 3e-4},
}
operations |= {"conv3": conv, "flatten": {"NCHW": 1e-5}}
names = list(operations)
edges = tuple(Edge(a, b, 2**20) for a, b in pairwise(names))
network = Layouts.on(machine, operations, edges)
choice = tree(network)
print(f"converting 1 MiB: {network.convert(2**20) * 1e6:.0f} µs")
print(", ".join(f"{name} {layout}" for name, layout in choice.items()))
fastest = {name: min(times, key=times.get) for name, times in operations.items()}
print(
    f"each its fastest: {network.seconds(fastest) * 1e6:.0f} µs, together: "
    f"{network.seconds(choice) * 1e6:.0f} µs"
)
assert math.isclose(network.seconds(choice), network.seconds(every(network)))

# %% [markdown]
# `tree` works from the leaves to the root: for each layout of an operation it computes the least time of its subtree.
# That takes operations × layouts² steps, while trying all choices takes layouts^operations, and both agree.
#
# On a graph with cycles the problem is NP-hard. `choose` eliminates operations with one or two neighbours exactly, in
# the same way, guesses only if all have three or more, and then improves single operations. Forty random graphs of
# seven operations, compared with all choices:

# %%
rng = random.Random(0)
factors = []
for _ in range(40):
    times = {
        f"o{i}": {layout: rng.uniform(1, 9) for layout in ("a", "b", "c")}
        for i in range(7)
    }
    pairs = [
        (f"o{i}", f"o{j}")
        for i in range(7)
        for j in range(i + 1, 7)
        if rng.random() < 0.6
    ]
    graph = Layouts(
        times, tuple(Edge(a, b, rng.randint(0, 5)) for a, b in pairs), bandwidth=2.0
    )
    factors.append(graph.seconds(choose(graph)) / graph.seconds(every(graph)))
best = sum(factor < 1 + 1e-9 for factor in factors)
print(
    f"{best} of {len(factors)} are the best, "
    f"the worst takes {max(factors):.3f} times as long"
)
assert max(factors) < 1.1

# %% [markdown]
# ## Memory transactions
#
# Memory does not deliver single numbers. On an NVIDIA GPU, the 32 lanes of a **warp** load at once, and memory delivers
# whole sectors of 32 bytes, four of which make a line. Neighbouring lanes should load neighbouring numbers:

# %%
warp([4 * lane for lane in range(32)], title="x[lane]")

# %%
warp([4 * 16 * lane for lane in range(32)], title="x[16 · lane]")

# %% [markdown]
# In the second one each lane has a row of its own and all read the first column: eight times as many sectors for the
# same 32 numbers. The remedy is to give the lanes neighbouring *columns*: their loads are then **coalesced**, that is,
# served by few sectors. Misaligned rows cost one sector more:

# %%
from passlab.memory.cache import Cache, Nest, hits, misses, transactions

patterns = {
    "x[lane]": [4 * lane for lane in range(32)],
    "x[lane + 4]": [16 + 4 * lane for lane in range(32)],
    "x[2 · lane]": [8 * lane for lane in range(32)],
    "x[16 · lane]": [64 * lane for lane in range(32)],
    "x[0]": [0] * 32,
    "every other lane": [4 * lane if lane % 2 else None for lane in range(32)],
}
for name, addresses in patterns.items():
    load = transactions(addresses)
    print(
        f"{name:<17}{len(load.sectors):3} sectors{len(load.lines):4} lines  "
        f"{load.used:5.0%} used"
    )

# %% [markdown]
# ### Banks · stretch
#
# A GPU's *shared* memory has another rule. It has 32 **banks**, and word number n (of 4 bytes) is in bank n mod
# 32. In one step each bank delivers one word, to all lanes that ask for it. Lanes that ask a bank for different words
# wait for one another: a bank conflict. So a column of a 32 × 32 tile takes 32 steps, and the remedy is one unused word
# per row:


# %%
def bank_steps(addresses):
    words = {at // 4 for at in addresses}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


for name, stride in (("a row", 1), ("a column of 32 × 32", 32), ("of 32 × 33", 33)):
    print(f"{name:<20}{bank_steps([4 * stride * lane for lane in range(32)]):3} steps")
print(f"{'one word for all':<20}{bank_steps([0] * 32):3} steps")
assert bank_steps([4 * 33 * lane for lane in range(32)]) == 1

# %% [markdown]
# Coalescing asks for neighbours, banks ask for different remainders: both can be counted from the addresses.

# %% [markdown]
# ## Caches and the order of loops
#
# A CPU's cache keeps lines of 64 bytes. A line belongs to one set, its number modulo the number of sets, and a full set
# evicts the line that was used least recently. A matrix of 12 × 16 numbers in row-major order, written by rows and by
# columns, with a tiny cache of four lines:

# %%
tiny = Cache(sets=2, ways=2, line=64)
matrix = Nest("A[i][j] = 1", {"i": 12, "j": 16}, {"A": (12, 16)})


def walk(order):
    addresses = matrix.addresses(order)
    cells = [divmod(int(at) // matrix.size, 16) for at in addresses]
    return sweep(
        cells,
        hits(addresses, matrix.size, tiny),
        (12, 16),
        tiny.line // matrix.size,
        f"loops {order}",
    )


walk("ij")

# %%
walk("ji")

# %% [markdown]
# By rows, each line is loaded once and used eight times. By columns, it is evicted before its second use.
#
# Now a product of matrices in three orders. The cache has 4 KiB, too few even for small matrices. `cachegrind`,
# a tool of Valgrind, runs the compiled loops on a model of the same cache and counts. If our model of a cache is right,
# the two agree:

# %%
bet = guess("From the fewest misses to the most?", ..., among=("ijk", "ikj", "jki"))

# %% tags=["hide-output"]
from passlab.memory import cachegrind

first_level = Cache(sets=16, ways=4, line=64)
product = Nest(
    "C[i][j] += A[i][k] * B[k][j]",
    dict.fromkeys("ijk", 72),
    {name: (72, 72) for name in "ABC"},
)
predicted = {
    order: misses(product.addresses(order), product.size, first_level)
    for order in ("ijk", "ikj", "jki")
}
for order, count in predicted.items():
    if reason := cachegrind.missing():
        print(f"{order}: {count:,} predicted. {reason}")
    else:
        total = cachegrind.counted(product, order, first_level)
        print(
            f"{order}: {count:,} predicted, {total:,} counted, {count / total - 1:+.2%}"
        )
        assert abs(count / total - 1) < 0.02
bet.compare(sorted(predicted, key=predicted.__getitem__))

# %% [markdown]
# Now the processor time, for larger matrices, on this machine:

# %%
large = Nest(
    product.body, dict.fromkeys("ijk", 400), {name: (400, 400) for name in "ABC"}
)
if not cachegrind.missing():
    times = {order: cachegrind.seconds(large, order) for order in predicted}
    for order, time_ in times.items():
        print(
            f"{order}: {time_ * 1e3:.0f} ms, "
            f"{time_ / min(times.values()):.1f} times the fastest"
        )

# %% [markdown]
# With `j` innermost, `B` and `C` are read along their lines. With `k` innermost, each iteration reads another line of
# `B`, and with `i` innermost another line of `A` and of `C`. Misses and times tend to rank the orders alike, but are not
# proportional: a processor prefetches lines if it detects a pattern, a second cache is faster than memory, and with `k`
# innermost each addition has to wait for the one before.

# %% [markdown]
# ## Key takeaways
#
# - Storages are live, not values: views and in-place operations extend the live range of their base.
# - The largest sum of live bytes is a lower bound. Offsets are closer to it than slots, and no order is always best.
# - A plan that runs can be checked bit by bit, and a bad one shows only in the numbers.
# - Training keeps forward results until the backward pass reads them, the first results the longest.
# - The order of tasks changes the peak: exact on trees, a search with a bound on other graphs. A result that does not
#   fit in any order can be dropped and computed again.
# - Memory moves in sectors and lines. Count them, and the loop order with the fewest misses is known before a run.
#
# ## Further reading
#
# - "Efficient Memory Management for Deep Neural Net Inference", Yury Pisarchyk and Juhyun Lee, 2020.
# - "An application of generalized tree pebbling to sparse matrix factorization", Joseph Liu, SIAM Journal on Algebraic
#   and Discrete Methods, 1987.
# - "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", Paras Jain et al., MLSys 2020.
# - "TelaMalloc: Efficient On-Chip Memory Allocation for Production Machine Learning Accelerators", Martin Maas,
#   Ulysse Beaugnon, Arun Chauhan and Berkin Ilbeyi, ASPLOS 2023.
# - "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", Michael D. Moffitt, ASPLOS
#   2024.
#
# ## Tomorrow
#
# Liveness was easy because a graph has no branches. Day 6 computes it, and much else, for programs with loops: one
# solver, and the analyses as data for it.
