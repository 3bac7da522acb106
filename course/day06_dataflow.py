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
# # Day 6 · Dataflow analysis and cost prediction
#
# A pass needs facts that justify its rewrites: a value is never read again, a branch is never taken, two expressions are
# equal. Dataflow analysis finds such facts for programs with branches and loops, without running them. One **solver**
# does it, and an analysis is data for it. A fact must hold on *every* run, and we test it on many.
#
# In the exercises, [work/day06/dataflow.ipynb](../work/day06/dataflow.ipynb), you write such a solver. The lesson takes
# about 75 minutes, and 25 more for what is marked stretch.

# %%
from dataclasses import replace
from itertools import combinations, pairwise

import torch

from passlab import guess, mlir
from passlab.dataflow import (
    CONSTANTS,
    DOMINATORS,
    INTERVALS,
    LIVENESS,
    OPS,
    Analysis,
    from_stablehlo,
    from_torchscript,
    parse,
    predecessors,
    random_program,
    redundant,
    round_robin,
    run,
    solve,
)
from passlab.dataflow.order import reducible, reverse_postorder
from passlab.dataflow.paths import over_all_paths
from passlab.dataflow.solver import DoesNotEnd, NotMonotone
from passlab.drawing import chart, flow, flow_steps, hasse

# %% [markdown]
# ## Programs with loops
#
# An FX graph is a straight line: each value is computed once, before all its readers. That made the analyses of days 3
# and 5 easy, one walk over the nodes. A loop breaks this, because a value at its head has two sources. TorchScript
# keeps the control flow of Python, so let us start there.


# %%
@torch.jit.script
def clipped(step: int, n: int) -> int:
    total = 0
    while n > 0:
        total = total + n
        if total > 10:
            total = total - step
        n = n - 1
    return total


program = from_torchscript(clipped)
flow(program)

# %% [markdown]
# This is a **control-flow graph**. A block runs from top to bottom and ends in a jump, a branch or a return; the orange
# edge leads back into a loop, a **back edge**. An interpreter shows that the result is still the same:

# %%
for arguments in ((3, 5), (2, 9), (4, 0)):
    assert run(program, *arguments).returned == (clipped(*arguments),)
print(run(program, 2, 9).returned, "after", len(run(program, 2, 9).trace), "blocks")

# %% [markdown]
# For the rest of this part we write such programs ourselves, in a text form with one instruction per line.

# %%
count = parse("""
program count(x, n)
entry:
  sum = const 0
  i = const 0
  step = const 1
  debug = const 0
  jump loop
loop:
  more = lt i n
  branch more body done
body:
  branch debug trace next
trace:
  print sum
  debug = const 1
  jump next
next:
  sum = add sum x
  i = add i step
  jump loop
done:
  return sum
""")
print(run(count, 7, 6).returned)

# %% [markdown]
# ### From JAX · stretch
#
# JAX compiles control flow that is written as functions. Its StableHLO has `while` and `case` with regions inside. As
# blocks:


# %%
def stablehlo():
    import jax
    from jax import lax

    def halve(x, n):
        return lax.fori_loop(
            0, n, lambda i, a: lax.cond(a > 10, lambda v: v - i, lambda v: v + x, a), x
        )

    return jax.jit(halve).lower(1, 1).as_text()


flow(from_stablehlo(stablehlo()), title="StableHLO")

# %% [markdown]
# ## Facts, merge, transfer
#
# **Liveness** asks: may the value of this variable still be read? The answer flows backward, from reads to assignments.
# Besides the direction, an analysis has four parts.
#
# - `boundary`: the fact at the end of the program. Nothing is live.
# - `transfer`: the effect of a block on a fact. Upwards, an assignment removes a variable, and a read adds one.
# - `merge`: the fact where paths meet. A variable that is live on *either* path is live: the union.
# - `initial`: the fact before the first visit. Merging with it must change nothing: the empty set.

# %%
live = solve(count, LIVENESS)
flow(count, live, title="What is live on each edge")

# %% [markdown]
# Step through the solver's visits. Each block shows the facts at its start and end; changes of a visit are orange.

# %%
flow_steps(count, live, title="Liveness, visit by visit")

# %% [markdown]
# At the first visit to `loop`, the fact of `body` is still empty, so that of `loop` is too small. Later it is visited
# again.
#
# Why does this end? The facts form a **lattice**: one fact is below another if merging the two gives the other. Here is
# the lattice of a program of three variables. Orange are the facts that the solver finds for one block, one above the
# other:

# %%
fill = parse("""
program fill(n)
entry:
  i = const 0
  one = const 1
  jump loop
loop:
  more = lt i n
  branch more body done
body:
  i = add i one
  jump loop
done:
  return i
""")
facts = [
    frozenset(names) for k in range(4) for names in combinations(("i", "n", "one"), k)
]
climb = [visit.before for visit in solve(fill, LIVENESS).log if visit.block == "loop"]
hasse(facts, frozenset.union, [frozenset(), *climb], "Live at the start of loop")

# %% [markdown]
# Facts only move up, and the way up is finite.
#
# ### Another analysis, as data
#
# `add i step` is an **available expression** at a point if every path from the entry computes it and then leaves `i` and
# `step` alone. A pass may use the old result there. The facts flow forward. A block adds what it computes, and an
# assignment removes all expressions that read the variable. Every path counts, so `merge` is the intersection. It
# changes nothing only if `initial` holds *all* expressions: here a fact moves up by getting smaller.


# %%
def available_after(block, before):
    available = set(before)
    for line in block.instructions:
        if line.op in OPS:
            available.add((line.op, *line.args))
        available = {e for e in available if line.dest not in e[1:]}
    return frozenset(available)


def no_expressions(program):
    return frozenset()


def all_expressions(program):
    lines = [line for block in program.blocks for line in block.instructions]
    return frozenset((line.op, *line.args) for line in lines if line.op in OPS)


AVAILABLE = Analysis(
    "available expressions",
    "forward",
    no_expressions,
    all_expressions,
    frozenset.intersection,
    available_after,
)
flow(count, solve(count, AVAILABLE), title="What is available on each edge")

# %% [markdown]
# Only `lt i n` ever is: the two additions assign a variable that they read. And at the start of `loop` it is not
# available either, since `next` has just assigned `i`.
#
# A **monotone** `transfer` never returns a lower output for a higher input. The solver checks that, because a mistake
# there shows as an endless loop or as wrong code:


# %%
def forgets(block, after):
    return LIVENESS.transfer(block, after) if len(after) < 2 else frozenset()


try:
    solve(count, replace(LIVENESS, name="forgets", transfer=forgets))
    raise AssertionError("this should not be accepted")
except NotMonotone as error:
    print(error)

# %% [markdown]
# ## The order of the visits
#
# Any order of visits leads to the same facts, some after many more visits. In **reverse post-order** a block precedes
# its successors, except along back edges. So the facts that a block reads are as final as they can be.

# %%
print("forward ", reverse_postorder(count))
print("backward", reverse_postorder(count, "backward"))

# %% [markdown]
# A worklist keeps the blocks that have to be visited again, and returns the first of them in that order. The plain method
# visits all blocks round by round until nothing changes. Both, on nearly a thousand blocks in random order:

# %%
bet = guess("What saves more visits?", ..., among=("the worklist", "the order"))

# %% tags=["hide-output"]
large = random_program(1, 1000, shuffle=True)
stored = [block.name for block in large.blocks]
solutions = {
    "rounds, as stored": round_robin(large, AVAILABLE, stored),
    "worklist, as stored": solve(large, AVAILABLE, stored, max_visits=1000),
    "rounds, reverse post-order": round_robin(large, AVAILABLE),
    "worklist, reverse post-order": solve(large, AVAILABLE),
}
facts = solutions["rounds, as stored"].before
assert all(solution.before == facts for solution in solutions.values())
visits = {name: solution.visits for name, solution in solutions.items()}
assert visits["worklist, reverse post-order"] <= 3 * len(stored)
assert visits["rounds, reverse post-order"] < visits["worklist, as stored"]
bet.compare(
    "the order"
    if visits["rounds, reverse post-order"] < visits["worklist, as stored"]
    else "the worklist"
)
chart(f"available expressions: visits to {len(stored)} blocks", visits, "visits")

# %% [markdown]
# The order matters more than the worklist.
#
# ### Nested loops · stretch
#
# The number of rounds depends on how deeply loops are nested, if each loop has one entry. A fact from the innermost body
# is carried one loop further outwards in each round, and the last round changes nothing:


# %%
def nested(depth):
    """Return a program of `depth` loops, each the body of the one before."""
    text = "program nested(n)\nentry:\n  one = const 1\n  x = sub n one\n  jump head0\n"
    for k in range(depth):
        end = f"next{k - 1}" if k else "done"
        body = f"head{k + 1}" if k < depth - 1 else "body"
        text += f"head{k}:\n  branch x {body} {end}\n"
        text += f"next{k}:\n  jump head{k}\n"
    text += f"body:\n  n = sub n one\n  jump next{depth - 1}\ndone:\n  return n\n"
    return parse(text)


for depth in range(1, 6):
    loops = nested(depth)
    rounds = round_robin(loops, AVAILABLE).visits // len(loops.blocks)
    print(f"nesting depth {depth}: {rounds} rounds")
    assert rounds == depth + 2

# %% [markdown]
# Programs whose loops have one entry are **reducible**, and those made of `if` and `while` all are.

# %%
tangled = random_program(6, 7, jumps=True)
assert reducible(large) and not reducible(tangled)
flow(tangled, title="Not reducible: a jump into the middle of a loop")

# %% [markdown]
# ## Branches know something
#
# A branch has two edges, and the facts on them may differ. For that an analysis has one more part, the **edge
# function** `edge(block, target, fact)`: the fact after the block becomes the one on the edge to that target. An example:
# which variables are not 0, so that one may divide by them? On the first edge of a branch, its condition is one of them.


# %%
def nonzero_after(block, before):
    names = set(before)
    for line in block.instructions:
        names.discard(line.dest)
        if line.op == "const" and line.value != 0:
            names.add(line.dest)
    return frozenset(names)


def nonzero_on_edge(block, target, after):
    end = block.terminator
    if end.kind == "branch" and target == end.targets[0]:
        return after | {end.args[0]}
    return after


nonzero = replace(
    AVAILABLE,
    name="not 0",
    initial=lambda program: frozenset(program.variables),
    transfer=nonzero_after,
    edge=nonzero_on_edge,
)
flow(count, solve(count, nonzero), title="What is not 0 on each edge")

# %% [markdown]
# ## Constants, and branches that are not taken
#
# A fact is now a dictionary: the variables whose value is known. Merging keeps the entries of both. Initially a block is
# **unreached**, which is below all dictionaries. The lattice of one variable, with the dictionary that knows nothing on
# top:

# %%
facts = [None, *({"debug": k} for k in (-1, 0, 1, 2)), {}]
hasse(facts, CONSTANTS.merge, title="What is known of one variable")

# %% [markdown]
# An edge is **executable** if its block is reached and its branch may take it. So the edge function says: if the
# condition of a branch is known, only one edge is executable, and the fact on the other one stays unreached (Wegman and
# Zadeck, 1991).

# %%
constants = solve(count, CONSTANTS)
assert constants.before["trace"] is None and constants.before["next"]["debug"] == 0
flow(count, constants, title="Constants")

# %% [markdown]
# `debug` stays 0 *because* `trace` is never reached, and `trace` is never reached because `debug` stays 0. Only an
# optimistic analysis finds that: it assumes the best and retracts refuted facts. Without the edge function both are
# lost:

# %%
all_edges = solve(count, replace(CONSTANTS, edge=None))
print("with   ", constants.before["next"])
print("without", all_edges.before["next"])
assert "debug" not in all_edges.before["next"]

# %% [markdown]
# Is it true? On every run, at each block, each variable must have the value that the fact states. On random programs:

# %%
checked = 0
for seed in range(200):
    sample = random_program(seed, 8, jumps=seed % 2 == 1)
    facts = solve(sample, CONSTANTS).before
    for arguments in ((0, 0), (1, -3), (5, 2)):
        for block, state in run(sample, *arguments, fuel=50).trace:
            assert facts[block] is not None
            assert all(state[name] == value for name, value in facts[block].items())
            checked += len(facts[block])
print(checked, "claims hold")

# %% [markdown]
# ## All paths, or the fixpoint?
#
# The ideal is the **meet over all paths**: the facts of all paths, merged at the end. The solver merges earlier, at each
# join. A transfer **distributes** over the merge if merging before it or after it gives the same: f(a merged with b) is
# f(a) merged with f(b). Then both solutions are the same, as for liveness. For constants they are not:

# %%
differ = parse("""
program differ(c)
entry:
  branch c left right
left:
  a = const 1
  b = const 2
  jump join
right:
  a = const 2
  b = const 1
  jump join
join:
  s = add a b
  jump done
done:
  return s
""")

# %%
bet = guess(
    "What does the solver know of s at the end?", ..., among=("s = 3", "nothing")
)

# %% tags=["hide-output"]
paths, fixpoint = (
    over_all_paths(differ, CONSTANTS)["done"],
    solve(differ, CONSTANTS).before["done"],
)
print("over all paths", paths, "  fixpoint", fixpoint)
assert paths == {"s": 3} and fixpoint == {}
bet.compare(f"s = {fixpoint['s']}" if "s" in fixpoint else "nothing")
flow(differ, solve(differ, CONSTANTS))

# %% [markdown]
# On each path s is 3, but after the merge neither a nor b is known. The solver's answer is safe and less precise. For
# constants the meet over all paths cannot be computed at all (Kam and Ullman, 1977). Available expressions distribute:

# %%
for seed in range(100):
    sample = random_program(seed, 7, jumps=seed % 2 == 1)
    assert over_all_paths(sample, AVAILABLE) == solve(sample, AVAILABLE).before
print("equal on 100 programs")

# %% [markdown]
# ## Termination
#
# With **intervals**, the least and the greatest value of a variable, facts can grow almost without end: i is in 0..0,
# then in 0..1, then in 0..2. The solver stops after a number of visits, and names the block:

# %%
try:
    solve(fill, replace(INTERVALS, widen=None))
    raise AssertionError("this should not end")
except DoesNotEnd as error:
    print(error)

# %% [markdown]
# **Widening** (Cousot and Cousot, 1977) jumps ahead: at the head of a loop, a bound that moved becomes the least or
# greatest number at once. The fact is still true, only wider:

# %%
intervals = solve(fill, INTERVALS)
print(intervals.visits, "visits to", len(fill.blocks), "blocks")
assert intervals.before["body"]["i"] == (0, 2**31 - 2)
flow(fill, intervals, title="Intervals, with widening")

# %% [markdown]
# The edge into the body knows that i < n holds, so adding 1 does not overflow, and i is never below 0.
#
# ## Dominators, and one name for each value · stretch
#
# A block **dominates** another if every path from the entry to that one leads through it. This is an analysis, too: facts
# are sets of blocks, and merging is intersection.

# %%
dominators = solve(count, DOMINATORS).after
for block, names in dominators.items():
    print(f"{block:6} {', '.join(sorted(names))}")

# %% [markdown]
# MLIR's functions are such graphs in **SSA form**: each value is defined once, where it dominates all of its uses. What
# differs from path to path is an argument of a block, and each jump passes it. Here `%i` is either `%zero` or `%next`.
# MLIR checks dominance:

# %%
FILL = """
func.func @fill(%n: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  cf.br ^loop(%zero : i32)
^loop(%i: i32):
  %more = arith.cmpi slt, %i, %n : i32
  cf.cond_br %more, ^body, ^done
^body:
  %next = arith.addi %i, %one : i32
  cf.br ^loop(%next : i32)
^done:
  return %RESULT : i32
}
"""
for value in ("%i", "%next"):
    try:
        mlir.parse(FILL.replace("%RESULT", value))
        print(value, "is accepted")
    except mlir.MLIRError as error:
        print(value, "is refused:", error)

# %% [markdown]
# Which blocks need arguments? Those where the dominance of an assignment ends: its block dominates one of their
# predecessors, but not them, unless it is the block itself. They are its block's **dominance frontier**. An argument
# assigns, too, so the frontier of its block needs arguments as well. A variable that is not live needs no argument.

# %%
frontier = {
    block: {
        join
        for join, sources in predecessors(count).items()
        for source in sources
        if block in dominators[source] and block not in dominators[join] - {join}
    }
    for block in dominators
}
block_arguments = {block: set() for block in dominators}
for variable in count.variables:
    lines = {
        b.name for b in count.blocks for line in b.instructions if line.dest == variable
    }
    waiting = list(lines)
    while waiting:
        for join in frontier[waiting.pop()]:
            if variable in live.before[join] - block_arguments[join]:
                block_arguments[join].add(variable)
                waiting.append(join)
print({block: sorted(names) for block, names in block_arguments.items() if names})

# %% [markdown]
# ## Equal values · stretch
#
# Day 3's common subexpressions were equal *texts* on a straight line. Here facts are equations, such as c = a + b and
# b = x, with all their consequences. Merging keeps the equations of both paths: **global value numbering** in its
# oldest form (Kildall, 1973).

# %%
equal = parse("""
program equal(x, y)
entry:
  z = copy x
  a = add x y
  branch a left right
left:
  p = const 1
  q = const 1
  jump join
right:
  p = const 2
  q = const 2
  jump join
join:
  b = add y z
  r = mul p y
  s = mul q y
  return b r s
""")
for block, lines in redundant(equal).items():
    for i, names in lines.items():
        print(
            f"{block}: `{equal[block].instructions[i]}` is already in "
            f"{', '.join(names)}"
        )
assert redundant(equal)["join"] == {0: ["a"], 2: ["r"]}

# %% [markdown]
# No operation occurs twice as text, and p and q are not constants. But they are equal to each other on both paths, so
# they are equal at the join.

# %% [markdown]
# ## Ranges
#
# What are the bounds of every value of a network? Each operation has a transfer function for intervals: `relu` clips it
# at 0, `tanh` maps both ends, a product evaluates its four corners. The graph is a straight line, so one pass is
# enough.

# %%
from torch import fx

from passlab import models, trace
from passlab.dataflow import precision
from passlab.dataflow.precision import overflow, plan
from passlab.dataflow.ranges import ranges

mlp = models.ZOO["mlp"]
gm = trace(mlp.build(), *mlp.inputs())
bounds = ranges(gm, {"input": (-3.0, 3.0)})
for name, range_ in bounds.items():
    print(f"{name:10} {range_}")

# %% [markdown]
# A layer is the interesting row. Its weights are known: for the low end of the result, a positive weight uses the low
# end of its operand, and a negative one the high end. For one layer no narrower range is correct: an input with the
# signs of the right row reaches its end, up to rounding.

# %%
layer = gm.get_submodule("0")
row = int((3 * layer.weight.abs().sum(1) + layer.bias).argmax())
worst = 3 * layer.weight[row].sign()
reached = float(layer(worst)[row])
print(f"{bounds['_0']}, reached: {reached:.3f}")
assert 0.999 * bounds["_0"].high < reached <= bounds["_0"].high

# %% [markdown]
# Over many layers the ranges grow, although the values do not: each element is assumed to be at its worst, all at once,
# and no single input achieves that. This is the price of an analysis of one operation after the other. The last column
# is for the next section: in how many calls all numbers fit into float16.

# %%
for name in ("mlp", "convnet", "mobilenetv2", "resnet18"):
    model = models.ZOO[name]
    traced = trace(model.build(), *model.inputs())
    inputs = {
        n.target: (-3.0, 3.0) for n in traced.graph.nodes if n.op == "placeholder"
    }
    *_, last = ranges(traced, inputs).values()
    result = float(model.build()(*model.inputs()).abs().max())
    half = [dtype == torch.float16 for dtype in plan(traced, inputs).values()]
    print(f"{name:12} up to {last.largest:.3g}, on an example {result:.3g}", end=", ")
    print(f"{sum(half)} of {len(half)} fit float16")

# %% [markdown]
# ## A safe plan for float16
#
# The largest float16 is 65504. A **partial sum** adds only some terms of an output, in any order. A node whose range and
# partial sums stay below may run in float16; all others stay in float32. This model needs both:


# %%
class Energy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.tanh((self.up(x) ** 2).sum(1) * 1e-3)


torch.manual_seed(0)
energy = trace(Energy().eval(), torch.randn(2, 64))
span = {"x": (-100.0, 100.0)}
safe = plan(energy, span)
for name, dtype in safe.items():
    print(f"{name:6} {dtype!s:14} {ranges(energy, span)[name]}")

# %% [markdown]
# Is the plan too careful? Run everything in float16 and look for an input that overflows. If a search finds one, the
# plan was needed; if it finds none, that proves nothing.

# %%
half_plan = dict.fromkeys(safe, torch.float16)
counter = overflow(energy, half_plan, span)
print(counter)
assert overflow(energy, safe, span) is None
exact = energy(*counter.inputs)
print(
    "planned, largest error:",
    float((precision.run(energy, safe, *counter.inputs) - exact).detach().abs().max()),
)

# %% [markdown]
# ## Symbolic shapes
#
# The sizes of the inputs become names, and every operation computes with formulas. Where two sizes must be equal, a
# rule cannot refuse a name that might not be; it adds a constraint, with the node that requires it. The rule of
# `torch.cat`:


# %%
def concatenate(a, b, dim):
    sums, constraints = list(a), []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if i == dim:
            sums[i] = f"{x} + {y}"
        elif x != y:
            constraints.append(f"{x} == {y}")
    return sums, constraints


print(concatenate(["b", "c", "h // 2 * 2"], ["b", 8, "h"], dim=1))

# %% [markdown]
# A U-Net has such joins:

# %%
from passlab.dataflow.shapes import exported, runs, shapes

unet = models.ZOO["unet"].build()
sizes = shapes(fx.symbolic_trace(unet), {"x": ("b", "c", "h", "w")})
for constraint in sizes.constraints:
    print(constraint)

# %% [markdown]
# Three halvings and three joins: `h` must be a multiple of 8. It is not stated anywhere in the model. torch.export does
# the same analysis:

# %%
exported_unet = exported(unet, models.ZOO["unet"].inputs())
*_, x = (n for n in exported_unet.graph.nodes if n.op == "placeholder")
print("shape of x:", list(x.meta["val"].shape))
print("ranges:", exported_unet.range_constraints)
for shape in ((2, 1, 32, 32), (2, 1, 36, 32), (2, 1, 40, 48)):
    symbols = dict(zip("bchw", shape, strict=True))
    print(
        shape,
        sizes.accepts(symbols),
        runs(exported_unet.module(), [shape]),
        runs(unet, [shape]),
    )
    assert sizes.accepts(symbols) == runs(unet, [shape])

# %% [markdown]
# The range alone is `h >= 8`; the remainder is in a **guard**, a condition that each call checks.

# %% [markdown]
# ### Where export refuses more · stretch
#
# export also assumes that sizes *inside* the graph are 2 or more, since a size of 1 would be broadcast. So it refuses
# inputs on which the network runs:

# %%
convnet = models.ZOO["convnet"].build()
ours = shapes(fx.symbolic_trace(convnet), {"x": ("b", "c", "h", "w")})
theirs = exported(convnet, models.ZOO["convnet"].inputs()).module()
small = (2, 3, 32, 5)
print(
    "the network:",
    runs(convnet, [small]),
    " ours:",
    ours.accepts(dict(zip("bchw", small, strict=True))),
)
try:
    theirs(torch.zeros(small))
except Exception as error:
    print("export:", str(error).splitlines()[0])

# %% [markdown]
# ## How long will it take?
#
# The roofline predicts it from three numbers of the machine: a launch, and the maximum of moving and computing. The
# operators of the zoo and of random networks, measured on one thread, are stored with the course:

# %%
from passlab.dataflow.predict import fit, load, load_machine, roofline, score
from passlab.drawing.predicted import scatter

rows, machine = load(), load_machine()
rooflines = dict(zip(rows, roofline(rows, machine), strict=True))
print(machine)
new = [row for row in rows if row.model == "vit"]
times = [row.seconds for row in new]
print("roofline on the ViT:", score([rooflines[row] for row in new], times))

# %% [markdown]
# The roofline is meant as a bound. Is no operator faster?

# %%
moving = {r for r in rows if r.nbytes / machine.bandwidth > r.flops / machine.flops}
faster = [row for row in rows if row.seconds < rooflines[row] / 1.1]
most = max(rooflines[row] / row.seconds for row in rows)
print(f"{len(faster)} of {len(rows)} are over 10 % faster, to {most:.1f} times")
print("bound by computing:", *{row.kind for row in faster if row not in moving})
pace = {"copying 64 MiB": machine.bandwidth / 1e9}
for least, end in pairwise([0, 2**15, 2**18, 2**20, 2**22, 2**24, 2**40]):
    fastest = max(r.nbytes / r.seconds for r in moving if least <= r.nbytes < end)
    label = f"up to {end // 1024} KiB" if end < 2**40 else "more"
    pace[label] = fastest / 1e9
chart("Fastest operator, by the bytes that it moves", pace, "GB/s")

# %% [markdown]
# Its bandwidth is that of a copy of 64 MiB. But each operator was timed many times in a row, and up to some MiB its
# operands were in a cache. Its peak is that of a product of two matrices, which some convolutions exceed. A bound needs
# a roof for each level of memory, and the hardware's peak.
#
# Most operators are slower than the roofline, by a ratio that depends on kind and size. Decision trees can learn it,
# fitted to the quotient of time and roofline. The test is a network that the fit has not seen.

# %%
old = [row for row in rows if row.model != "vit"]
fitted = fit(old, machine)
print("fitted, ViT not seen:", score(fitted(new), times))
scatter(
    {
        "roofline": ([rooflines[row] for row in new], times),
        "fitted": (fitted(new), times),
    },
    title="A ViT that was not measured",
)

# %% [markdown]
# Spearman's **rank correlation** compares only the two orders, by their ranks: 1 if they are equal, -1 if one is the
# reverse of the other. To choose the faster of two operators, nothing else is needed.
#
# ### Larger than measured · stretch
#
# When is such a model unreliable? Remove the large operators, and predict them:

# %%
limit = sorted(row.flops for row in rows)[len(rows) * 3 // 4]
small_ones = fit([row for row in rows if row.flops <= limit], machine)
inside = [row for row in new if row.flops <= limit]
beyond = [row for row in rows if row.flops > 4 * limit]
print(
    "as large as measured:", score(small_ones(inside), [row.seconds for row in inside])
)
print(
    "larger than measured:", score(small_ones(beyond), [row.seconds for row in beyond])
)

# %% [markdown]
# All thresholds of a tree are between sizes that were measured. Beyond the largest, it repeats the last factor.

# %% [markdown]
# ### On your machine · stretch
#
# A table describes one machine. Here are a few operators timed now, on yours:

# %%
from passlab.dataflow.predict import measure

timings = list(measure("mlp", models.ZOO["mlp"].build(), (256, 16), rounds=20))
for row, expected in zip(timings, fitted(timings), strict=True):
    print(
        f"{row.node:6} {row.kind:8} measured {row.seconds * 1e6:7.1f} µs, "
        f"predicted {expected * 1e6:7.1f} µs"
    )

# %% [markdown]
# ## Key takeaways
#
# - An analysis is a direction, a boundary, an initial fact, a merge and a transfer. One solver serves all of them.
# - It ends if facts only rise in their lattice, and not without end; widening ensures the second. It is safe if each
#   transfer is.
# - Reverse post-order makes it fast, and the less deeply loops are nested, the faster.
# - Optimism finds more: assume that nothing is reached, and retract refuted facts.
# - The fixpoint equals the meet over all paths if transfer distributes over merge; else it is safe, and less precise.
# - Without branches one pass is enough: for ranges, a safe float16 plan, symbolic shapes.
# - A roofline bounds what comes from memory; in a cache, operators are faster.
# - A fitted model predicts times of networks that it has not seen, within the sizes that it has, on one machine.
#
# ## Further reading
#
# - "A Unified Approach to Global Program Optimization", Gary Kildall, POPL 1973.
# - "Monotone Data Flow Analysis Frameworks", John Kam and Jeffrey Ullman, Acta Informatica, 1977.
# - "Abstract Interpretation", Patrick Cousot and Radhia Cousot, POPL 1977.
# - "Constant Propagation with Conditional Branches", Mark Wegman and Kenneth Zadeck, ACM TOPLAS, 1991.
# - Bril, Adrian Sampson's teaching IR, and its `examples/df.py`: a solver and its analyses in 160 lines.
#
# ## Tomorrow
#
# Day 7 meets a real compiler: TVM's Relay, whose passes use such analyses at every step.
