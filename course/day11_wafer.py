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
# # Day 11 · Beyond one chip: wafer-scale mapping
#
# Until now a program ran on one processor: operations ran one after the other, and memory was elsewhere. Today the
# machine is a **wafer**: hundreds of thousands of small cores on one piece of silicon, each with 48 KB of its own, and
# no other memory. All operations of a network are on it at once, each on cores of its own, and examples stream through.
# The compiler decides *where* instead of *when*.
#
# In the exercises, [work/day11/wafer.ipynb](../work/day11/wafer.ipynb), you price messages, place tasks and build
# reduces; in the stretch questions you fit operations into memory, search with a budget, multiply matrices and find out
# where scaling bends. The lesson takes about 75 minutes, and 15 more for what is marked stretch.

# %%
import numpy as np
import torch

from passlab import chart, guess, models
from passlab.wafer import (
    FORMULAS,
    TREES,
    WAFERS,
    Deadlock,
    Machine,
    Message,
    bound,
    broadcast_messages,
    numbers,
    program,
    reduce_grid,
    reduce_messages,
    simulate,
)
from passlab.wafer.pictures import (
    draw_load,
    draw_placements,
    draw_traffic,
    pipeline,
    play,
)

# %% [markdown]
# ## The machine
#
# Here are two wafers that were built, with the published figures and those that we had to derive or assume:

# %%
for wafer in WAFERS.values():
    machine = wafer.machine
    across = machine.distance((0, 0), (machine.rows - 1, machine.columns - 1))
    print(
        f"{wafer.name}: {machine.rows} × {machine.columns} = {machine.cores:,} cores "
        f"for programs, {across:,} hops across"
    )
    for what, source in wafer.sources.items():
        print(f"    {what}: {source}")
assert all(wafer.machine.memory == 48 * 1024 for wafer in WAFERS.values())

# %% [markdown]
# Cores form a grid. Each has a **router** with a link to each of its four neighbours; a link carries one 32-bit word a
# cycle in each direction. A word takes T_R = 2 cycles from a core to its router (the **ramp**), one in each router that
# it passes, the first and the last among them, T_R into the core at the other end, and one to be processed. Routes are
# XY: first along the row, then along the column.
#
# So one word takes T_R + P + T_R + 1 cycles to the other end of P cores, and B words, one after the other, take B + P +
# 2·T_R. The simulator agrees, because it is built of the same links and ramps, not of this formula:

# %%
line = Machine(1, 16)


def took(machine, messages):
    return simulate(program(machine, messages)).cycles


for words in (1, 10, 100):
    one = Message(line.route((0, 0), (0, 15)), words)
    print(
        f"{words:4} words over 16 cores: {took(line, [one])} cycles, "
        f"by the formula {words + 16 + 2 * line.ramp}"
    )
    assert took(line, [one]) == words + 16 + 2 * line.ramp

# %% [markdown]
# A message may wait for another one to arrive completely (`waits`), or pass its words on as they come (`streams`). With
# many words this makes all the difference. And routers can copy: a **multicast** costs no more than one message.

# %%
bet = guess(
    "100 words take 120 cycles to the last of 16 cores. How many to all 15 others?",
    ...,
)

# %% tags=["hide-output"]
start, middle, end = (0, 0), (0, 8), (0, 15)
first = Message(line.route(start, middle), 100)
for how in ("waits", "streams"):
    print(
        f"in two parts, the second {how}:",
        took(line, [first, Message(line.route(middle, end), 100, **{how: (0,)})]),
    )
print("to all 15 others at once:", took(line, broadcast_messages(16, 100)))
assert took(line, broadcast_messages(16, 100)) == 100 + 16 + 4
bet.compare(took(line, broadcast_messages(16, 100)))

# %% [markdown]
# A message that has to wait holds on to the links behind it. Four messages that go round a square, each needing a link
# that the next one holds, wait forever. On XY routes no such circle can close: no message turns from a column into a
# row.

# %%
square = [(0, 0), (0, 1), (1, 1), (1, 0)]
rounds = [tuple(square[(i + k) % 4] for k in range(3)) for i in range(4)]
small = Machine(2, 2)
try:
    took(small, [Message(route, 4) for route in rounds])
    raise AssertionError("this should not end")
except Deadlock as error:
    print(error)
print(
    "by XY routes:",
    took(small, [Message(small.route(route[0], route[-1]), 4) for route in rounds]),
    "cycles",
)

# %% [markdown]
# ## Five numbers
#
# Messages can be priced without simulating them. Luczynski and others (HPDC 2024) need five numbers: **contention** C,
# the most words that one core sends or receives; **energy** E, words times hops; **links** N that are used;
# **distance** L, the longest way; **depth** D, messages in the longest chain of waiting. Then
#
# T = max(C, E / N + L) + (2·T_R + 1) · D.
#
# Take a chain: core 3 sends its B words to core 2, which adds its own and sends to core 1, and so on. On paper: C = B,
# E = 3B, N = 3, L = 3, D = 3, so T = B + 3 + 15.

# %%
chain = reduce_messages(TREES["chain"](4), words=20)
law = numbers(TREES["chain"](4), 20)
print(law)
print("by the law:", law.cycles(), " simulated:", took(Machine(1, 4), chain))
assert law.cycles() == 20 + 18 == took(Machine(1, 4), chain)

# %% [markdown]
# ## A reduce is a tree
#
# Sums over all cores are everywhere: dot products, norms, gradients, products of matrices. On a line, a reduce is a
# list: to which core does core i send its sum? Four of the many possible ones, for eight cores:

# %%
for name, tree in TREES.items():
    print(f"{name:<10}", tree(8))

# %% [markdown]
# A star is one message deep, but one core receives everything. A chain lets each link carry every word once, and is P -
# 1 messages deep. Two others are between these: in a binary **tree** pairs add up, then pairs of pairs; **two-phase**
# has chains in groups of about √P cores, and then one of the groups' first cores. So the fastest one depends on P and
# B. This map follows from closed forms:

# %%
from matplotlib import pyplot as plt

sizes, lengths = [2**k for k in range(2, 10)], [2**k for k in range(14)]
names = list(FORMULAS)
best = np.array(
    [[min(names, key=lambda n: FORMULAS[n](p, b)) for b in lengths] for p in sizes]
)
colours = dict(zip(names, ("#E69F00", "#0072B2", "#009E73", "#CC79A7"), strict=True))
figure, axes = plt.subplots(figsize=(7.2, 3.6))
for (row, column), name in np.ndenumerate(best):
    axes.add_patch(
        plt.Rectangle((column - 0.5, row - 0.5), 0.96, 0.96, color=colours[name], lw=0)
    )
for name in names:
    axes.scatter([], [], marker="s", s=80, color=colours[name], label=name)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
axes.set(
    xlim=(-0.5, 13.5),
    ylim=(-0.5, 7.5),
    xlabel="words B",
    ylabel="cores P",
    title="Which reduce is fastest",
)
axes.set_xticks(range(14), lengths, fontsize=8)
axes.set_yticks(range(8), sizes)
axes.spines[:].set_visible(False)

# %% [markdown]
# One word: star. Few words on many cores: the binary tree. Many words: the chain. Does the machine agree? All four are
# simulated at a sample of points, and the winner has to be the same wherever the two best closed forms differ by more
# than 15 %:

# %%
worst = 0
for cores, words in [
    (8, 1),
    (8, 64),
    (32, 8),
    (32, 128),
    (64, 32),
    (64, 4096),
    (128, 16),
    (128, 256),
]:
    seen = {
        n: took(Machine(1, cores), reduce_messages(TREES[n](cores), words))
        for n in names
    }
    form = {n: FORMULAS[n](cores, words) for n in names}
    worst = max(worst, *(abs(seen[n] / form[n] - 1) for n in names))
    order = sorted(form, key=form.get)
    if form[order[1]] > 1.15 * form[order[0]]:
        assert min(seen, key=seen.get) == order[0]
    print(
        f"P = {cores:4} B = {words:5}  " + "  ".join(f"{n} {seen[n]:6}" for n in names)
    )
print(f"simulated and closed form differ by {worst:.1%} at most")
assert worst < 0.1

# %% [markdown]
# How good can a reduce be at all? `bound(P, B)` is the least that the law allows any tree, found by dynamic programming
# over its depth. Exercise 4 asks you to come near it everywhere. With few words the machine is a little faster than the
# law allows; the star at the end of this section says why.

# %%
for words in (1, 16, 64, 256, 4096):
    fastest = min(names, key=lambda n: FORMULAS[n](64, words))
    least = bound(64, words)
    print(
        f"P = 64 B = {words:4}  bound {least:5.0f}  {fastest:<10} "
        f"{FORMULAS[fastest](64, words) / least:.2f} times that"
    )

# %% [markdown]
# The law of the five numbers is more general, and coarser. Where it differs from the machine, something overlaps that
# it adds up, or the other way round:

# %%
for name, cores, words in [
    ("chain", 64, 64),
    ("two-phase", 64, 64),
    ("tree", 8, 8),
    ("star", 64, 1),
]:
    predicted, seen = (
        numbers(TREES[name](cores), words).cycles(),
        took(Machine(1, cores), reduce_messages(TREES[name](cores), words)),
    )
    print(
        f"{name:<10} P = {cores:3} B = {words:3}   law {predicted:6.0f}   "
        f"simulated {seen:6}   {seen / predicted - 1:+.0%}"
    )

# %% [markdown]
# In a tree the law adds the depth to the contention, though the first message overlaps with the others. In a star of
# one word the words arrive one after the other, as if they were one message: contention alone is right. A grid reduces
# its rows first, then a column. Drag the slider; colours show the depth of a message in the tree.

# %%
grid = Machine(8, 8)
run = simulate(reduce_grid(grid, TREES["two-phase"](8), TREES["two-phase"](8), 16))
play(run, title="Two-phase reduce of 16 words on 8 × 8 cores")

# %%
draw_traffic(run, title="Words that each link carried, and each core received")

# %% [markdown]
# ## A whole wafer, predicted
#
# Rocki and others (SC 2020) solved a linear system with BiCGStab on the WSE-1: 600 × 595 × 1536 points, a column of
# 1536 on each core, 28.1 µs for an iteration. How much of that follows from stated constants (16-bit
# arithmetic in four lanes, two numbers in a word, T_R) and a simulated all-reduce?
#
# The cycles do; the clock is not among the constants. The course's 0.9 GHz is derived from 0.86 PFLOP/s, "about a third
# of the peak", which the same paper computes from the same 28.1 µs. So the microseconds are not an independent
# prediction: the error below is as uncertain as the clock.

# %%
from passlab.wafer.stencil import MEASURED, POINTS, all_reduce_cycles, iteration

wafer = Machine(POINTS[0], POINTS[1], clock=WAFERS["WSE-1"].clock)
parts = iteration(wafer, POINTS[2])
predicted = wafer.seconds(parts.cycles)
once = wafer.seconds(all_reduce_cycles(wafer))
print(
    f"an iteration: {predicted * 1e6:.1f} µs predicted, "
    f"{MEASURED * 1e6:.1f} µs measured"
)
print(f"an all-reduce of one word: {once * 1e6:.2f} µs, derived")
assert abs(predicted / MEASURED - 1) < 0.25
chart(
    "cycles of an iteration",
    {part: getattr(parts, part) for part in ("products", "updates", "dots", "sums")},
)

# %% [markdown]
# The same cycles at other clocks that the machine may have had:

# %%
for clock in (0.8e9, 0.85e9, 0.9e9, 0.95e9, 1e9):
    off = parts.cycles / clock / MEASURED - 1
    print(f"{clock / 1e9:.2f} GHz: {parts.cycles / clock * 1e6:.1f} µs, {off:+.0%}")
    assert -0.25 < off < 0.005

# %% [markdown]
# No clock in this range makes the cycles too many: they are about right or too few.
#
# The time of an all-reduce over 357,000 cores, printed above, is derived in the same way: simulated cycles at the
# derived clock, not a measurement. If it is about right, it is what a wafer is for: problems with little work between
# two sums, which on other machines wait for the sums most of the time.
#
# ## A network on the grid
#
# Now a network of our own: a GPT block of the zoo. `work_of` runs its graph once and lists the operations, with the
# bytes that they keep and the words that they read.

# %%
from passlab.wafer.mapping import (
    BadMapping,
    at,
    load,
    messages,
    named,
    rectangle,
    traffic,
)
from passlab.wafer.pieces import cut, inner_words, piece_bytes
from passlab.wafer.work import fused, work_of


def zoo(name):
    row = models.ZOO[name]
    return work_of(torch.fx.symbolic_trace(row.build()), *row.inputs(1))


work = zoo("gpt")
for o in work[:6]:
    reads = (
        ", ".join(
            f"{read.words} words of {read.source}{' (resident)' * read.resident}"
            for read in o.reads
        )
        or "input"
    )
    print(
        f"{o.name:<15} keeps {o.weights:6,} B, works on {o.window:4} + {o.result:4} B, "
        f"{o.flops:7,} flops; {reads}"
    )

# %% [markdown]
# An operation keeps its weights, but not its activations: tokens, or rows of an image, stream through, and cores hold
# only a **window** of them at a time. Attention is different: it needs all keys and values (`resident`).
#
# A large operation is **cut** into p × q blocks, like a matrix, with one block (a **piece**) on each core. The input
# goes down the columns, partial sums go along the rows. A block of column j needs the window's share of that column,
# one of row i the result's share of that row; so flat and tall shapes differ in what they keep, and in the words that
# they pass around inside:

# %%
qkv = work[1]
for p, q in [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1)]:
    print(
        f"{p:2} × {q:2}: {piece_bytes(qkv, p, q):6,} bytes a core, "
        f"{inner_words(qkv, p, q):7,} words pass between cores"
    )

# %% [markdown]
# That is the **layout** problem of a wafer: not NCHW or NHWC, but the shape of a rectangle.
#
# How many cores should each operation get? In a pipeline, a new result comes out as often as the slowest stage allows.
# So choose a number of cycles, give each operation the fewest cores with which it is that fast, and see whether they
# fit on the grid. Bisect. This is **load balance**, and it replaces what tuning did on day 8.

# %%
grid = Machine(16, 16)
pieces = cut(work, grid)
stages = {
    name: len(pieces.of(name))
    for name in (
        "attention_qkv",
        "matmul",
        "softmax",
        "attention_proj",
        "mlp_0",
        "mlp_2",
    )
}
print(len(pieces), "pieces;", stages)
busy = {
    f"{side} × {side}": cut(work, Machine(side, side)).cycles.max()
    for side in (6, 8, 16, 32)
}
assert list(busy.values()) == sorted(busy.values(), reverse=True)
chart("cycles of the slowest piece, for one example", busy)

# %% [markdown]
# ## Where?
#
# The cost of a mapping: each word takes hops, and each link carries a word a cycle. `traffic` is words × hops; `load`
# finds the busiest core, ramp and link. Row by row is the obvious way to fill a grid. Greedy puts each piece on the
# free core that is nearest to the pieces it exchanges words with. Annealing exchanges pieces. An exchange that saves
# traffic is accepted. One that adds traffic is accepted with the probability exp(-added / heat), and the heat falls from
# about the size of a usual change to nearly 0:


# %%
def accepts(added, heat, rng):
    return added <= 0 or rng.random() < np.exp(-added / heat)


rng = np.random.default_rng(0)
for heat in (100, 30, 10, 3):
    share = np.mean([accepts(20, heat, rng) for _ in range(10_000)])
    print(f"20 words × hops more, at heat {heat:3}: {share:4.0%} are accepted")

# %%
from passlab.wafer.placing import greedy, row_major, search

plans = {
    "row by row": row_major(pieces, grid),
    "greedy": greedy(pieces, grid),
    "search": search(pieces, grid, evaluations=400_000),
}
travel = {name: traffic(pieces, cores, grid) for name, cores in plans.items()}
assert travel["row by row"] > 1.5 * travel["greedy"]
assert travel["greedy"] > 1.2 * travel["search"]
draw_placements(pieces, plans, grid, "A GPT block on 16 × 16 cores")

# %% [markdown]
# In the picture the search has given the stages compact shapes, and stages that exchange words are neighbours. The work
# of cores and links for one example, row by row and after the search:

# %%
loads = {name: load(pieces, cores, grid) for name, cores in plans.items()}
for name, report in loads.items():
    print(f"{name:<11} {report}")
    ratio = report.hottest / report.computing.max()
    print(f"{'':<11} the busiest link over the slowest core: {ratio:.1f}")
draw_load(pieces, plans["row by row"], grid, "Row by row")

# %%
draw_load(pieces, plans["search"], grid, "After the search")

# %% [markdown]
# Less traffic means less energy. It also means speed: row by row, some links carry more words than the slowest core
# computes cycles, and everything waits for them; after the search, computing is nearly the limit again. Whose words
# does the busiest link carry?

# %%
from passlab.wafer.mapping import link_loads

cores, links = plans["row by row"], loads["row by row"].links
way = max(links, key=lambda name: links[name].max())
busiest = links[way].argmax()
carried = {}
for number, operation in enumerate(pieces.operations):
    sent = pieces.owner[pieces.a] == number
    a, b = cores[pieces.a][sent], cores[pieces.b][sent]
    words = link_loads(a, b, pieces.words[sent], grid)[way].flat[busiest]
    if words:
        carried[operation.name] = int(words)
print(way, "on the busiest link:", carried)
assert sum(carried.values()) == links[way].max()

# %% [markdown]
# Those of GELU: many small operations, with all words of `mlp_0` between them. In MobileNet, too, row by row, everything
# waits for a link. ResNet-18 needs more cores, if only to hold its weights, and rows cost it more traffic as well; but
# its convolutions compute for so long that no link is the limit:

# %%
cycles = {}
for name, size in {"mobilenetv2": 32, "resnet18": 40}.items():
    large = Machine(size, size)
    network = cut(zoo(name), large)
    for rule, place in {"row by row": row_major, "greedy": greedy}.items():
        report = load(network, place(network, large), large)
        cycles[name, rule] = report.cycles
        print(f"{name:<12} {rule:<11} {report}")
        if name == "resnet18":
            assert report.hottest < report.computing.max()
assert cycles["mobilenetv2", "row by row"] > 1.5 * cycles["mobilenetv2", "greedy"]
assert cycles["resnet18", "row by row"] == cycles["resnet18", "greedy"]
held = sum(o.weights for o in zoo("resnet18")) / large.memory
print(f"resnet18's weights alone fill {held:.0f} cores")

# %% [markdown]
# Simulate the messages of one example without computing: the time that the network alone takes. The closed form gives
# the busiest link in the steady state, the simulator the time of one example from start to end. They differ, because a
# stage's words wait for those of the stage before:

# %%
for name, cores in plans.items():
    seen, steady = took(grid, messages(pieces, cores, grid)), loads[name]
    print(
        f"{name:<11} one example {seen:7,} cycles under way; "
        f"busiest link {steady.hottest:6,.0f} cycles an example"
    )
    assert seen > steady.hottest

# %% [markdown]
# Examples follow each other through the pipeline. A core has the colour of the example on which it works:

# %%
stream = pipeline(
    pieces, plans["search"], grid, examples=30, title="30 examples in a GPT block"
)
working = [len(frame.cores) for frame in stream.frames]
full = [turn for turn, count in enumerate(working) if count == len(pieces)]
print(
    f"{working[0]} core works in turn 0, {max(working)} of {grid.cores} in turns "
    f"{full[0]} to {full[-1]}, {working[-1]} in the last turn"
)
stream

# %% [markdown]
# At first few cores work, since the last stages have nothing yet; in the middle all cores that have a piece work, and
# at the end few again. A pipeline has to be filled, and that takes as many turns as it has stages, one after the other.
# With fewer examples than stages it is never full.
#
# Mappings can be written by hand, too, and are checked: on the grid, within memory, each operation once.

# %%
tiny = cut(zoo("tiny"), Machine(2, 2), fill=0.5)
linear, relu = tiny.shape
whole = {
    linear: rectangle(0, 0, *tiny.shape[linear]),
    relu: rectangle(1, 1, *tiny.shape[relu]),
}
bad = [
    {linear: whole[linear]},
    whole | {relu: rectangle(0, 2)},
    [*whole.items(), (relu, rectangle(0, 1))],
]
for mapping, memory in [(bad[0], 400), (bad[1], 400), (bad[2], 400), (whole, 100)]:
    try:
        at(tiny, mapping, Machine(2, 2, memory=memory))
        raise AssertionError("this should not be a mapping")
    except BadMapping as error:
        print("·", error)
assert named(tiny, at(tiny, whole, Machine(2, 2)), Machine(2, 2)) == whole

# %% [markdown]
# ## Fusion, layout and tuning are other problems here
#
# On day 4, fusion saved launches and trips to memory. Here nothing is launched, and there is no common memory. But each
# separate operation receives and sends all its words over links. GELU in the tanh form is eight
# element-wise operations; as one they read `mlp_0` once and send once:

# %%
gelu = [
    o.name
    for o in work
    if o.name.split("_")[0] in ("mul", "pow", "add", "tanh") and o.words == 4096
]
one = fused(work, gelu)
print(len(gelu), "operations become one:", ", ".join(gelu))
words = {
    name: sum(read.words for o in operations for read in o.reads)
    for name, operations in {"as traced": work, "GELU fused": one}.items()
}
assert words["as traced"] > 2 * words["GELU fused"]
chart("words from operation to operation", words)

# %% [markdown]
# | | on one chip | on a wafer |
# |---|---|---|
# | fusion | fewer launches, fewer trips to memory | fewer words on links, fewer stages |
# | layout | the order of numbers in memory | the shape of an operation's rectangle |
# | tuning | tile sizes, vector lengths, threads | how many cores each operation gets, and where |
# | memory | reuse one arena, plan its peak | everything stays where it is: does it fit in 48 KB? |
# | the limit | bandwidth to memory | the busiest link, the slowest stage, the distance |
#
# And the search itself? Annealing needs time: with few evaluations it cools too fast and finds nothing better than its
# start. Exercise 6 is about a search with a given budget.

# %%
totals = {"greedy": travel["greedy"]} | {
    f"{count:,} evaluations": traffic(
        pieces, search(pieces, grid, evaluations=count), grid
    )
    for count in (10_000, 100_000)
}
totals["400,000 evaluations"] = travel["search"]
chart("words × hops", totals)

# %% [markdown]
# ## Products of matrices on a mesh · stretch
#
# Core (i, j) holds the blocks A[i, j] and B[i, j], and computes C[i, j]. In step k it needs A[i, k] and B[k, j]. SUMMA
# broadcasts them. Cannon skews the blocks once, then shifts A to the left and B up, one core a step; the block that
# leaves at one end comes in at the other, a long way. A ring can be folded so that neighbours are at most two links
# apart, 0 2 4 5 3 1, and then no block goes far (WaferLLM's MeshGEMM). All three give A @ B, in different numbers of
# cycles:

# %%
from passlab.wafer.matmul import ALGORITHMS
from passlab.wafer.matmul import run as multiply

for name in ("summa", "cannon"):
    print(f"{name}, 3 × 3 cores, first of step 1:", ALGORITHMS[name](3)[1][0])
mesh, rng = Machine(8, 8), np.random.default_rng(0)
for size in (2, 6):
    a, b = rng.random((2, 8 * size, 8 * size))
    for name, steps in ALGORITHMS.items():
        product = multiply(mesh, steps(8), a, b)
        assert np.allclose(product.c, a @ b)
        print(
            f"{size} × {size} blocks, {name:<7} {product.cycles:5} cycles, "
            f"in a step {product.hops} hops at most"
        )

# %% [markdown]
# With small blocks the distance counts; with large ones the multiplication hides all of it but the first step's. A core
# holds one block of each matrix: memory decides how large blocks may be, distance how small.
#
# Here is what moves in one step, with blocks of A of 4 words on 6 × 6 cores. In SUMMA, one column sends to both sides
# of every row:

# %%
square6 = Machine(6, 6)


def play_step(name, number=2):
    """Play the messages of A in one step of an algorithm."""
    moves = [move for move in ALGORITHMS[name](6)[number] if move.matrix == "A"]
    messages = [
        Message(square6.route(m.source, m.targets[-1]), 4, drops=m.targets)
        for m in moves
    ]
    run = simulate(program(square6, messages))
    return play(run, title=f"{name}, step {number}: {run.cycles} cycles")


play_step("summa")

# %% [markdown]
# Cannon: all blocks move one core to the left, but those of the first column cross the whole row:

# %%
play_step("cannon")

# %% [markdown]
# The folded ring, 0 2 4 5 3 1: no block crosses more than two links, so the step takes fewer cycles. The ring is all that
# has changed.

# %%
play_step("shift")

# %% [markdown]
# ## Scaling · stretch
#
# **Strong** scaling is more cores for the same problem. **Weak** scaling is more cores and a larger problem, with the
# same share for each core. One iteration is work, an exchange with the neighbours (halo) and a sum over all cores. Its
# efficiency on p × p cores is T(1) / (p² · T(p)) in strong scaling, and T(1) / T(p) in weak scaling:

# %%
from passlab.wafer.scaling import Stencil, bend, efficiency, strong, weak

stencil = Stencil(work=10, depth=32, sums=2)
sides = [1, 2, 4, 8, 16, 32, 64, 128, 256]
for name, cycles, is_strong in (
    ("strong", strong(stencil, 256, sides), True),
    ("weak", weak(stencil, 1, sides), False),
):
    shares = efficiency(cycles, is_strong)
    print(
        f"{name:<6} " + "  ".join(f"{side}²: {shares[side]:.0%}" for side in sides),
        "  bends at",
        bend(cycles, is_strong),
    )

# %% [markdown]
# Both curves as a picture. A curve *bends* where it falls below one half; a part of the iteration is to blame:

# %%
figure, axes = plt.subplots(figsize=(6.4, 3.2))
for name, cycles, is_strong, colour in (
    ("strong", strong(stencil, 256, sides), True, "#0072B2"),
    ("weak", weak(stencil, 1, sides), False, "#E69F00"),
):
    shares = efficiency(cycles, is_strong)
    axes.plot(sides, [shares[side] for side in sides], "o-", color=colour, label=name)
    if (at_side := bend(cycles, is_strong)) is not None:
        side, part = at_side
        axes.annotate(part, (side, shares[side]), (6, 6), textcoords="offset points")
axes.axhline(0.5, color="grey", lw=0.8, ls="--")
axes.set_xscale("log", base=2)
axes.set_xticks(sides, [f"{side}²" for side in sides])
axes.set(
    xlabel="cores", ylabel="efficiency", ylim=(0, 1.05), title="Where scaling bends"
)
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Key takeaways
#
# - On a wafer all operations run at once. A compiler decides their places, how they are cut, and how words travel.
# - Messages cost words + hops + ramps. Five numbers price a program of messages; a simulator of links and ramps shows
#   where the price is wrong, and why.
# - No reduce is best: star for one word, tree for few, chain for many, groups of chains between them.
# - Load balance is how many cores an operation gets; memory says how few it may get.
# - No fast way to an optimal placement is known. Greedy saves much of the traffic of rows, and annealing saves more, if
#   it has time.
# - Fusion, layout and tuning keep their names and change their meaning.
#
# ## Further reading
#
# - P. Luczynski, L. Gianinazzi, P. Iff, L. Wilson, D. De Sensi, T. Hoefler, *Near-Optimal Wafer-Scale Reduce*,
#   HPDC 2024.
# - K. Rocki et al., *Fast Stencil-Code Computation on a Wafer-Scale Processor*, SC 2020.
# - C. He et al., *WaferLLM: Large Language Model Inference at Wafer Scale*, OSDI 2025.
# - *ISPD 2020 Contest: Wafer-Scale Deep Learning Accelerator Placement*, ACM ISPD 2020: kernels as rectangles on a
#   633 × 633 grid.
# - S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, *Optimization by Simulated Annealing*, Science 1983.
# - R. A. van de Geijn, J. Watts, *SUMMA: Scalable Universal Matrix Multiplication Algorithm*, Concurrency 1997.
#
# ## What comes next
#
# Tomorrow everything comes together on one machine again: a compiler of your own, from graph to kernels, on models that
# it has not seen. Today adds a habit: ask of each pass which resource it saves, and whether this machine has it.
