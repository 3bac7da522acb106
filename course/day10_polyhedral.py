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
# # Day 10 · The polyhedral model: a preview
#
# On day 8 you changed loops one primitive at a time, and each primitive had its own rule for when it is allowed. The
# polyhedral model has one rule for all of them. It describes a loop nest by three things:
#
# - the **iteration domain**: a set of integer points, one for each turn of the loops,
# - the **dependences**: a relation between points, which says what must stay after what,
# - the **schedule**: a map from points to times, which says in which order they run.
#
# Interchange, reversal, tiling, skewing, fusion: each is only another map. Whether it is allowed is a question about
# sets, and **isl**, the integer set library, answers it exactly, for all sizes at once. The price is that loops must
# be *affine*: bounds and subscripts are sums of loop variables and sizes, times numbers.
#
# In the exercises, [work/day10/polyhedral.ipynb](../work/day10/polyhedral.ipynb), you take loops apart, judge orders,
# skew a stencil, generate code and make a product of matrices fast. The lesson takes about 70 minutes, and 20 more for
# what is marked stretch.

# %%
import re

import islpy as isl
import numpy as np

from passlab import guess, timed
from passlab.drawing import lattice, plot, slider
from passlab.polyhedral import (
    PROGRAMS,
    NotAffine,
    dependences,
    fixed,
    order,
    pairs,
    parse,
)

# %% [markdown]
# ## A loop nest is a set
#
# Today's main character is a stencil: heat on a line. In each step every cell becomes the mean of itself and its two
# neighbours. `A` keeps all steps.

# %%
jacobi = parse("""
for t in range(T):
    for i in range(1, N - 1):
        A[t + 1, i] = (A[t, i - 1] + A[t, i] + A[t, i + 1]) / 3
""")
S = jacobi["S"]
print(S.domain)

# %% [markdown]
# `S` is the name of the statement, `S[t, i]` an **instance** of it: one turn of the loops. `T` and `N` are parameters.
# isl keeps them as symbols; at given sizes the set is what Python's loops run through.

# %%
sizes = {"T": 5, "N": 10}
instances = order(jacobi, jacobi.schedule, sizes)
assert instances == [("S", (t, i)) for t in range(5) for i in range(1, 9)]
lattice(jacobi, jacobi.schedule, sizes, title="The iteration domain, coloured by time")

# %% [markdown]
# A domain need not be a box. In a triangular solve the inner loop ends at the outer one, and the parameters may appear
# anywhere in the bounds:

# %%
solve = PROGRAMS["trisolve"]
print(solve.source)
for statement in solve.statements:
    print(statement.body, "  ", statement.domain)
assert (
    len([at for name, at in order(solve, solve.schedule, {"N": 6}) if name == "T"])
    == 6 * 5 // 2
)

# %% [markdown]
# ## Accesses are maps
#
# An access is a map from an instance to the elements that it touches. Maps can be applied, reversed, chained and
# intersected, and nearly everything today is one of these four.

# %%
print("writes", S.writes)
print("reads ", S.reads)
reads = fixed(
    S.reads, sizes
).project_out_all_params()  # at these sizes, without symbols
print("S[2, 4] reads", reads.intersect_domain(isl.UnionSet("{ S[2, 4] }")).range())
readers = reads.reverse().intersect_domain(isl.UnionSet("{ A[2, 4] }")).range()
print("A[2, 4] is read by", readers)
assert readers.is_equal(isl.UnionSet("{ S[2, 3]; S[2, 4]; S[2, 5] }"))

# %% [markdown]
# Code that is *not* affine has no such map. Each of these loops is fine Python, but cannot be analysed:

# %%
OUTSIDE = [
    "for i in range(N):\n    A[i * i] = 0",
    "for i in range(N):\n    A[B[i]] = 1",
    "for i in range(N):\n    if A[i] > 0:\n        A[i] = 0",
    "while N > 1:\n    A[0] = A[0] / 2",
    "for i in range(N * M):\n    A[i] = 0",
]
for source in OUTSIDE:
    try:
        parse(source)
        raise AssertionError("this should not be affine")
    except NotAffine as error:
        print("·", error)

# %% [markdown]
# Most layers of a network are affine once their shapes are known. Sparse matrices, sorting and sampling are not.
#
# ## Dependences
#
# Two instances depend on each other if they touch the same element and at least one of them writes it. The earlier one
# is the source, the later one the target:
#
# - **flow**: write, then read. A value travels.
# - **anti**: read, then write. The old value must have been used.
# - **output**: write, then write. The last one must stay the last.
#
# This stencil works in place, and has all three:

# %%
seidel = PROGRAMS["seidel"]
print(seidel.source)
small = {"T": 2, "N": 6}
for kind in ("flow", "anti", "output"):
    examples = pairs(dependences(seidel, kind), small)
    (s, a), (t, b) = examples[0]
    print(f"{kind:<7}{len(examples):3} pairs, first {s}{list(a)} → {t}{list(b)}")

# %% [markdown]
# The definition, written down in isl: elements that one writes and the other reads, and the first comes first. Counting
# by hand, with two loops over all pairs, gives the same.

# %%
timed_order = seidel.schedule.intersect_domain(seidel.domain)
# Pairs of instances, the first strictly before the second
earlier = timed_order.lex_lt_union_map(timed_order)
flow = seidel.writes.apply_range(seidel.reads.reverse()).intersect(earlier)
assert flow.is_equal(dependences(seidel, "flow"))

ran = [at for _, at in order(seidel, seidel.schedule, small)]
# B reads what a wrote
counted = [
    (a, b) for n, a in enumerate(ran) for b in ran[n + 1 :] if abs(a[1] - b[1]) <= 1
]
assert sorted(counted) == [(a, b) for (_, a), (_, b) in pairs(flow, small)]
print(len(counted), "pairs by hand")

# %% [markdown]
# Not every pair carries a value: the element may have been written again in between. **Value-based** flow keeps only
# the last write before each read: it says which values travel. For legality the memory-based pairs count, as
# long as the program keeps its arrays.

# %%
values = dependences(seidel, "values")
print(
    len(pairs(flow, small)),
    "pairs share memory,",
    len(pairs(values, small)),
    "pass on a value",
)
assert values.is_strict_subset(flow)
lattice(
    jacobi,
    jacobi.schedule,
    sizes,
    dependences=dependences(jacobi, "flow"),
    title="jacobi: the flow dependences",
)

# %% [markdown]
# `jacobi` writes every element once, so there is nothing to overwrite: its dependences are all flow.

# %%
assert dependences(jacobi, "anti").is_empty()
assert dependences(jacobi, "output").is_empty()
assert dependences(jacobi).is_equal(dependences(jacobi, "values"))
print(
    "distances, target minus source:",
    dependences(jacobi).deltas().project_out_all_params(),
)

# %% [markdown]
# ## A schedule is a map
#
# It gives each instance a time, and times are compared like words in a dictionary: first by the first number, then by
# the second. The loops as written are the map `S[t, i] -> [t, i]`. Another map is another order:

# %%
from passlab.polyhedral import interchange, legal, reverse, violated, why_not_a_schedule

print(jacobi.schedule)
swapped = isl.UnionMap("{ S[t, i] -> [i, t] }")
assert swapped.is_equal(
    interchange(jacobi.schedule, 0, 1).gist_params(isl.Set("{ : }"))
)
print([at for _, at in order(jacobi, swapped, sizes)][:6])

# %% [markdown]
# Not every map is an order. It has to give every instance one time, and no two of them the same:

# %%
for text in (
    "{ S[t, i] -> [t] }",
    "{ S[t, i] -> [t, i] : i > 3 }",
    "{ S[t, i] -> [t, x] : i <= x <= i + 1 }",
):
    print(f"{text:<42} {why_not_a_schedule(jacobi, text)}")
    assert why_not_a_schedule(jacobi, text)

# %% [markdown]
# ## Legality is one question
#
# A schedule is legal if every source still comes before its target. So take all dependences, remove the pairs that the
# schedule runs in the right order, and look at what is left. Interchange for `jacobi`:

# %%
bet = guess("May the two loops of `jacobi` be interchanged?", ..., among=("yes", "no"))

# %% tags=["hide-output"]
deps = dependences(jacobi)
timed_order = swapped.intersect_domain(jacobi.domain)
left = deps.subtract(timed_order.lex_lt_union_map(timed_order))
print("empty?", left.is_empty(), "  a pair that breaks:", violated(deps, swapped))
assert not left.is_empty() and violated(deps, swapped) == ("S[0, 2]", "S[1, 1]")
bet.compare("yes" if left.is_empty() else "no")

# %% [markdown]
# `S[0, 2]` makes a value that `S[1, 1]` needs, and by columns it runs later. The answer is also a proof: where nothing
# is left, the order is legal for every `T` and `N`, not only for those that were tried.

# %%
lattice(
    jacobi,
    swapped,
    sizes,
    violated=violated(deps, swapped),
    title="Interchanged: one pair that breaks",
)

# %% [markdown]
# Is it really wrong, or only against the rules? Code comes later today; running it is one line:

# %%
from passlab.polyhedral import python_source, random_arrays, reference, run_python

arrays = random_arrays(jacobi, {"T": 8, "N": 20})
right = reference(jacobi, {"T": 8, "N": 20}, arrays)["A"]


def error(schedule):
    """Largest difference to the loops as written."""
    return np.abs(
        run_python(python_source(jacobi, schedule), {"T": 8, "N": 20}, arrays)["A"]
        - right
    ).max()


print(f"interchanged: off by {error(swapped):.2f}")
assert error(swapped) > 0.01 and error(jacobi.schedule) == 0

# %% [markdown]
# Now reversal. Within one step the cells do not depend on each other, so they may run backwards. Steps may not:

# %%
for name, schedule in {
    "i": reverse(jacobi.schedule, 1),
    "t": reverse(jacobi.schedule, 0),
}.items():
    print(
        f"{name} backwards: {violated(deps, schedule) or 'legal'}; "
        f"off by {error(schedule):.2f}"
    )
assert legal(jacobi, reverse(jacobi.schedule, 1))
assert not legal(jacobi, reverse(jacobi.schedule, 0))

# %% [markdown]
# ## Tiling, and why it fails
#
# A row of `A` that is too long for the cache is loaded again in each step. Tiling runs a block of cells for several
# steps before the next block: each value is used again while it is near. As a map, tile numbers are the first
# dimensions:

# %%
from passlab.polyhedral import depth, parallel, skew, tile, times

blocks = tile(jacobi.schedule, [0, 1], [3, 4])
print(
    isl.UnionMap("{ S[t, i] -> [floor(t/3), floor(i/4), t, i] }").is_equal(
        blocks.gist_params(isl.Set("{ : }"))
    )
)
pair = violated(deps, blocks)
print("legal?", legal(jacobi, blocks), " ", pair, f"  off by {error(blocks):.3f}")
assert not legal(jacobi, blocks) and error(blocks) > 0.001
lattice(
    jacobi, blocks, sizes, tiles=2, violated=pair, title="Tiles of 3 × 4, not legal"
)

# %% [markdown]
# The first tile needs a value from the second one, at its right edge, and the second needs values from the first. No
# order of tiles is right. Look at the distances: `(1, -1)` goes back in the second dimension. Rectangular tiles are
# legal where no distance goes back in any of the tiled dimensions.
#
# **Skewing** adds `t` to `i`. Every step shifts the cells by one to the right, and the distances become these:

# %%
skewed = skew(jacobi.schedule, 1, 0)
print(skewed)
distances = deps.apply_domain(skewed).apply_range(skewed).deltas()
print(distances.project_out_all_params())
forward = isl.UnionSet("{ [a, b] : a >= 0 and b >= 0 }")
assert distances.is_subset(forward)
assert not deps.deltas().is_subset(isl.UnionSet("{ S[a, b] : a >= 0 and b >= 0 }"))
assert legal(jacobi, skewed) and order(jacobi, skewed, sizes) == instances, (
    "alone it changes nothing"
)

# %% [markdown]
# Alone, skewing does not even change the order. But now both dimensions only go forward, and may be tiled:

# %%
tiles = tile(skewed, [0, 1], [3, 4])
assert legal(jacobi, tiles) and error(tiles) == 0
lattice(
    jacobi,
    tiles,
    sizes,
    tiles=2,
    dependences=deps,
    title="Skewed tiles: every arrow goes forward",
)

# %% [markdown]
# In the picture the tiles lean to the left: their edges run along the dependences. The same arrows show what is
# independent. Tiles on a diagonal have no arrow between them, so they may run at once. That is another map, too: let
# the sum of the two tile numbers be the first time. It is a **wavefront**.

# %%
fronts = interchange(skew(tiles, 1, 0), 0, 1)
print(fronts)
assert legal(jacobi, fronts)
at = dict((instance, time) for time, instance in times(jacobi, fronts, sizes))
plot(
    {instance: time[:1] for instance, time in at.items()},
    tiles={instance: time[:2] for instance, time in at.items()},
    axes={"S": ("t", "i")},
    title="Tiles of one number may run at once",
)

# %% [markdown]
# When may the turns of a loop run all at once? When no dependence is **carried** by it: no pair has times that are
# equal in all outer dimensions and differ in this one. That is again a question of sets, and `parallel` asks it for
# each dimension:

# %%
for name, schedule in {
    "as written": jacobi.schedule,
    "skewed tiles": tiles,
    "wavefronts": fronts,
}.items():
    print(
        f"{name:<13} parallel dimensions: "
        f"{parallel(jacobi, schedule)} of {depth(schedule)}"
    )
assert parallel(jacobi, jacobi.schedule) == [1] and parallel(jacobi, tiles) == [3]
assert parallel(jacobi, fronts) == [1, 3], (
    "the tiles of a front, and in a tile the cells of a step"
)

# %% [markdown]
# Drag the slider through time (in a notebook `slider(…).live()` is the same as a widget):

# %%
slider(jacobi, fronts, {"T": 4, "N": 9}, dependences=deps, tiles=2)

# %% [markdown]
# ## Finding a schedule
#
# The conditions on a schedule are linear in its coefficients, so an integer solver can look for one: this was
# Feautrier's idea in 1992. In 2008 Pluto looked for dimensions in which *all* distances go forward, since these can be
# tiled. isl has such a scheduler. Asked about our stencil, it finds the skew:


# %%
def proposed(program, coincidence=False):
    deps = dependences(program)
    constraints = (
        isl.ScheduleConstraints.on_domain(program.domain)
        .set_validity(deps)
        .set_proximity(deps)
    )
    return (
        constraints.set_coincidence(deps) if coincidence else constraints
    ).compute_schedule()


print(proposed(jacobi).get_map())
assert proposed(jacobi).get_map().is_subset(skewed)
assert legal(jacobi, proposed(jacobi).get_map())
assert "permutable: 1" in str(proposed(jacobi)), "the two dimensions may be tiled"

matmul = PROGRAMS["matmul"]
for flag in (False, True):
    print(
        "parallel dimensions of matmul:",
        re.findall(r"coincident: (\[.*?\])", str(proposed(matmul, flag)))[0],
    )
assert "coincident: [ 1, 1, 0 ]" in str(proposed(matmul, coincidence=True))
assert "coincident: [ 1, 1, 1 ]" in str(proposed(matmul)), (
    "and yet the sum over k is carried"
)

# %% [markdown]
# A trap: isl decides which dimensions are parallel (`coincident`) from the pairs that were given to `set_coincidence`.
# Without any, it calls all of them parallel, even the sum over `k`.
#
# ## From the map back to loops
#
# A map is not a program. Loops that visit points in the order of their times are made by scanning polyhedra: isl
# projects the set of times onto its first dimension, which gives the outermost loop's bounds, then goes on inside.

# %%
from passlab.polyhedral import ast, compiled, prim_func, visits

print(ast(jacobi, tiles).to_C_str())

# %% [markdown]
# The `max` and `min` are the edges of the domain, cut by the edges of the tile. This tree is all a compiler needs. As
# Python source, with the statement's subscripts in terms of the new loops:

# %%
print(python_source(jacobi, tiles))
assert error(tiles) == 0

# %% [markdown]
# And as TensorIR, the language of day 8. Each statement becomes a block whose variables are its instance. The order in
# which the function visits them can be read off by walking through its loops, and compared:

# %%
function = prim_func(
    matmul, tile(matmul.schedule, [0, 1], [4, 4]), {"M": 8, "N": 8, "K": 8}
)
print(function.script().split("\n\n")[-1])
walked = visits(prim_func(jacobi, fronts, {"T": 6, "N": 20}))
assert walked == order(jacobi, fronts, {"T": 6, "N": 20})
print(len(walked), "instances, in the order of the schedule")

# %% [markdown]
# ## Python numbers out of isl
#
# A set may be infinite, so isl answers with sets. Code of your own needs numbers at some point, and the exercises do,
# too. There are three ways. The **points** of a finite set: `foreach_point` calls a function with each of them.

# %%
ahead_by, deltas = isl.Set.from_union_set(deps.deltas()).project_out_all_params(), []
ahead_by.foreach_point(deltas.append)
print(
    [
        [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(2)]
        for point in deltas
    ]
)
print(
    "the farthest in each dimension:",
    [ahead_by.dim_max_val(k).to_python() for k in range(2)],
)
assert len(deltas) == 3

# %% [markdown]
# The **coefficients** of a map. One that gives each point a single value is a `PwMultiAff`: for each dimension a list
# of pieces, a part of the domain and an affine expression. `get_coefficient_val` is the number before a variable of the
# domain (`in_`), `get_div` the expression inside a floor:

# %%
example = isl.PwMultiAff.from_map(
    isl.Map("{ S[t, i] -> [floor((t + 1)/3), 2t - i + 5] }")
)
for dim in range(2):
    [(part, value)] = example.get_pw_aff(dim).get_pieces()
    factors = [
        value.get_coefficient_val(isl.dim_type.in_, k).to_python() for k in range(2)
    ]
    floors = [value.get_div(k) for k in range(value.dim(isl.dim_type.div))]
    print(
        value,
        "  factors",
        factors,
        " constant",
        value.get_constant_val().to_python(),
        " inside floors",
        floors,
    )
assert factors == [2, -1]

# %% [markdown]
# The **expressions** in the tree of loops. An `AstExpr` is a number, a name, or an operation on other expressions:


# %%
def spelled(node):
    if node.get_type() == isl.ast_expr_type.int:
        return node.get_val().to_python()
    if node.get_type() == isl.ast_expr_type.id:
        return node.get_id().get_name()
    return [
        node.get_op_type().name,
        *(spelled(node.get_op_arg(k)) for k in range(node.get_op_n_arg())),
    ]


node = ast(jacobi, tiles, {"T": 6, "N": 20})
while node.get_type() == isl.ast_node_type.for_:
    print("from", spelled(node.for_get_init()), "while", spelled(node.for_get_cond()))
    node = node.for_get_body()
assert node.get_type() == isl.ast_node_type.user

# %% [markdown]
# ## A product of matrices
#
# Now with a clock. `distribute` first takes the statement that sets `C` to zero into a separate nest (more on that
# below), then every schedule is a map of `[which nest, i, j, k]`.

# %%
from passlab.polyhedral import distribute, fuse

big = {"M": 384, "N": 384, "K": 384}
nests = distribute(matmul.schedule, 2, 2)
rows = interchange(nests, 2, 3)
print(matmul.schedule, nests, rows, sep="\n")
assert legal(matmul, nests) and legal(matmul, rows)

# %% [markdown]
# Here it is tiled twice: blocks for the caches, and inside them 4 rows × 32 columns for the registers. With `k` outside
# the small block, each loaded piece of `B` is used four times. Loops over 4 and over 32 are marked as unrolled and
# vectorized, the outermost as parallel. It is the schedule that you wrote on day 8, as a map:

# %%
cached = tile(nests, [1, 2, 3], [32, 128, 128])  # [nest, I, J, K, i, j, k]
small_blocks = tile(cached, [4, 5], [4, 32])  # [nest, I, J, K, i/4, j/32, i, j, k]
blocked = interchange(interchange(small_blocks, 6, 8), 7, 8)  # … k, i, j
assert legal(matmul, blocked)
print(python_source(matmul, blocked, big))

# %%
bet = guess("How many times as fast as the loops as written is the tiled order?", ...)

# %% tags=["hide-output"]
inputs = random_arrays(matmul, big)
races = {
    "as written": compiled(matmul, matmul.schedule, big, inputs),
    "i, k, j": compiled(matmul, rows, big, inputs),
    "tiled": compiled(
        matmul, blocked, big, inputs, parallel=[1], unroll=[7], vectorize=[8]
    ),
}
product = inputs["A"] @ inputs["B"]
assert all(
    np.allclose(run()["C"], product, rtol=1e-3, atol=1e-3) for run in races.values()
)
race = timed(races, repeats=4, warmup=1)
assert race["tiled"].min * 5 < race["as written"].min
bet.compare(round(race["as written"].min / race["tiled"].min))
race

# %% [markdown]
# Compare the minima: on a busy machine, the threads of a parallel loop wait for each other.
#
# ## A stencil, skewed and in parallel
#
# With only two rows of memory, which take turns, and rows longer than the cache. There are more dependences now (a row is
# written again two steps later), and the same schedule keeps them:

# %%
two_rows = PROGRAMS["jacobi1d_two_rows"]
print(two_rows.source)
assert not dependences(two_rows, "anti").is_empty()
assert not dependences(two_rows, "output").is_empty()
long = {"T": 32, "N": 5_000_000}
wide = tile(skew(two_rows.schedule, 1, 0), [0, 1], [32, 32768])
waves = interchange(skew(wide, 1, 0), 0, 1)
assert legal(two_rows, waves)
assert not legal(two_rows, tile(two_rows.schedule, [0, 1], [32, 32768]))

# %%
line = random_arrays(two_rows, long)
races = {
    "as written": compiled(two_rows, two_rows.schedule, long, line),
    "cells in parallel": compiled(
        two_rows, two_rows.schedule, long, line, parallel=[1]
    ),
    "skewed tiles": compiled(two_rows, wide, long, line),
    "wavefronts in parallel": compiled(two_rows, waves, long, line, parallel=[1]),
}
first = {name: run()["A"].copy() for name, run in races.items()}
assert all(np.array_equal(first["as written"], array) for array in first.values())
race = timed(races, repeats=4, warmup=1)
assert (
    min(race["skewed tiles"].min, race["wavefronts in parallel"].min)
    < race["as written"].min
)
race

# %% [markdown]
# Running the cells of a step in parallel is legal and needs no skew, but the rows still go through memory in every
# step, and the cores wait for the same bus. Tiles save the traffic, so that the cores can compute.
#
# On a plane it is the same: skew both `i` and `j` by `t`. It is enough to tile steps and rows; whole rows stay vectors.

# %%
plane, square = PROGRAMS["jacobi2d_two_planes"], {"T": 16, "N": 2500}
print(dependences(plane, "values").deltas().project_out_all_params())
both_skewed = skew(skew(plane.schedule, 1, 0), 2, 0)
strips = tile(both_skewed, [0, 1], [16, 64])
assert legal(plane, strips) and not legal(plane, tile(plane.schedule, [0, 1], [16, 64]))
grid = random_arrays(plane, square)
races = {
    "as written": compiled(plane, plane.schedule, square, grid),
    "skewed": compiled(plane, strips, square, grid),
}
assert np.array_equal(*(run()["A"] for run in races.values()))
race = timed(races, repeats=4, warmup=1)
assert race["skewed"].min < race["as written"].min
race

# %% [markdown]
# ## A convolution · stretch
#
# A convolution has four loops, of which the two inner ones run over a window. In another map, the loop over the row
# runs inside them:

# %%
conv = PROGRAMS["conv2d"]
print(conv.source, conv.schedule, sep="\n")
conv_nests = distribute(conv.schedule, 2, 2)  # [nest, y, x, r, s]
across = interchange(interchange(conv_nests, 2, 4), 2, 3)  # [nest, y, r, s, x]
print(across)
assert legal(conv, across)
gains = {}
for window in (5, 15):
    image = {"H": 256, "W": 256, "R": window}
    races = {
        "as written": compiled(conv, conv.schedule, image),
        "rows inside": compiled(conv, across, image),
    }
    assert np.allclose(*(run()["O"] for run in races.values()), rtol=1e-4, atol=1e-4)
    race = timed(races, repeats=5, warmup=1)
    gains[window] = race["as written"].min / race["rows inside"].min
    print(f"{window} × {window}: by rows {gains[window]:.1f} times as fast")
assert gains[15] > 3

# %% [markdown]
# LLVM unrolls a small window of a known size by itself, and then sees the row. The larger one it does not unroll, and
# adds up one element after the other. What a schedule gains depends on what the compiler below it would have done.
#
# ## LU: one program, six orders · stretch
#
# Textbooks give the factorization in versions named by their loops. They are six schedules of one program with two
# statements, and isl says that each of them is legal. (With T before S, the first is not.)

# %%
lu = PROGRAMS["lu"]
print(lu.source)
ORDERS = {
    "k, i, j": lu.schedule,
    "k, j, i": "{ S[k, i] -> [k, 0, i, 0]; T[k, i, j] -> [k, 1, j, i] }",
    "i, k, j": "{ S[k, i] -> [i, k, 0, 0]; T[k, i, j] -> [i, k, 1, j] }",
    "j, k, i": "{ S[k, i] -> [k, k, i, 0]; T[k, i, j] -> [j, k, i, 1] }",
    "j, i, k": "{ S[k, i] -> [k, i, k, 1]; T[k, i, j] -> [j, i, k, 0] }",
    "i, j, k": "{ S[k, i] -> [i, k, k, 0]; T[k, i, j] -> [i, j, k, 1] }",
}
assert all(legal(lu, schedule) for schedule in ORDERS.values())
early = "{ S[k, i] -> [k, 1, i, 0]; T[k, i, j] -> [k, 0, i, j] }"
print("T before S:", violated(dependences(lu), early))
assert violated(dependences(lu), early) == ("S[0, 1]", "T[0, 1, 1]")

# %%
n = 256
matrix = (np.random.default_rng(0).uniform(1, 2, (n, n)) + n * np.eye(n)).astype(
    "float32"
)
races = {
    name: compiled(lu, schedule, {"N": n}, {"A": matrix})
    for name, schedule in ORDERS.items()
}
for run in races.values():
    factors = run()["A"].astype("float64")
    assert np.allclose(
        (np.tril(factors, -1) + np.eye(n)) @ np.triu(factors), matrix, atol=1e-2
    )
race = timed(races, repeats=4, warmup=1)
fastest, slowest = (pick(race.rows, key=lambda row: row.min) for pick in (min, max))
print(
    f"{slowest.name} takes {slowest.min / fastest.min:.0f} times as long as "
    f"{fastest.name}"
)
assert slowest.min > 3 * fastest.min
race

# %% [markdown]
# ## Fusion and fission of loops · stretch
#
# Two loops in a row differ in a dimension that is a number: 0 for the first, 1 for the second. Moving this number
# inwards makes one loop of them, `fuse`; moving it outwards makes two, `distribute`. Legal or not is the same question:

# %%
both, ahead = PROGRAMS["two_loops"], PROGRAMS["two_loops_ahead"]
for program in (both, ahead):
    merged = fuse(program.schedule, 0)
    print(
        program.source,
        merged,
        violated(dependences(program), merged) or "legal",
        "",
        sep="\n",
    )
assert legal(both, fuse(both.schedule, 0))
assert violated(dependences(ahead), fuse(ahead.schedule, 0)) == ("S[1]", "T[0]")

# %% [markdown]
# `T[0]` reads an element that `S[1]` writes: the second loop looks ahead by one. So let it run one turn later. A shift
# is also a map, and it is what isl's scheduler proposes:

# %%
behind = "{ S[i] -> [i, 0]; T[i] -> [i + 1, 1] }"
assert legal(ahead, behind)
assert proposed(ahead).get_map().is_subset(isl.UnionMap(behind))
print(python_source(ahead, behind, {"N": 6}))
lattice(
    ahead,
    behind,
    {"N": 8},
    dependences=dependences(ahead),
    title="Fused: T[i] runs in the turn after S[i]",
)

# %% [markdown]
# Fusing saves traffic: `B` is used while it is near. It can also lose. In `matmul` as written, the statement that
# zeroes `C` shares the loops over `i` and `j` with the product, the most that two statements can share. So only `k` is
# left to be the innermost loop. If they share `i` alone, or nothing, the product may run by rows:

# %%
assert fuse(nests, 0, 2).is_equal(matmul.schedule)
shared = {
    "i and j shared": matmul.schedule,
    "i shared": interchange(matmul.schedule, 1, 3),  # [i, k, 0 or 1, j]
    "nothing shared": rows,
}
assert all(legal(matmul, schedule) for schedule in shared.values())
race = timed(
    {name: compiled(matmul, schedule, big) for name, schedule in shared.items()},
    repeats=3,
    warmup=1,
)
assert race["i and j shared"].min > 3 * max(
    race["i shared"].min, race["nothing shared"].min
)
race

# %% [markdown]
# ## The same order in TVM · stretch
#
# TVM's primitives from day 8 do to a loop nest what these maps do to times. `split` and `reorder` are tiling and
# interchange. To check it, take the loops as `prim_func` made them, schedule them by hand, and walk through the result:

# %%
from passlab.relax import tvm

cube = {"M": 8, "N": 8, "K": 8}
by_hand = tvm.s_tir.Schedule(prim_func(matmul, nests, cube))
i, j, k = by_hand.get_loops(by_hand.get_sblock("T"))
(i_tile, i_in), (j_tile, j_in) = (
    by_hand.split(i, [None, 4]),
    by_hand.split(j, [None, 2]),
)
by_hand.reorder(i_tile, j_tile, k, i_in, j_in)

as_map = """{ S[i, j] -> [0, i, j, 0, 0, 0];
              T[i, j, k] -> [1, floor(i/4), floor(j/2), k, i, j] }"""
assert visits(by_hand.mod["main"]) == order(matmul, as_map, cube)
print(len(visits(by_hand.mod["main"])), "instances in the same order")

# %% [markdown]
# Three differences. `fuse` means something else: TVM's makes one loop of two *nested* ones, and the order stays what it
# was. What is called fusion here is `compute_at` there.

# %%
before = visits(by_hand.mod["main"])
by_hand.fuse(i_tile, j_tile)
assert visits(by_hand.mod["main"]) == before
print(len(by_hand.get_loops(by_hand.get_sblock("T"))), "loops around T, the same order")

# %% [markdown]
# Second, TVM does no dependence analysis of this kind. A block says of each variable whether it is data-parallel or a
# reduction, and each primitive has its rule about that. Neither is true of our stencil's variables, so even a legal
# loop is refused. The printed line is the rule that it breaks. And there is no primitive that skews.

# %%
heat = tvm.s_tir.Schedule(prim_func(jacobi, jacobi.schedule, {"T": 4, "N": 8}))
t, i = heat.get_loops(heat.get_sblock("S"))
try:
    heat.parallel(i)
    raise AssertionError("TVM has learned about dependences")
except tvm.s_tir.schedule.ScheduleError as refusal:
    print(re.search(r"Definition of a local complete block:\s*(.*)", str(refusal))[1])
assert 1 in parallel(jacobi, jacobi.schedule), "isl knows better"
assert not hasattr(heat, "skew")

# %% [markdown]
# Third, isl does not know that additions may be reordered: to isl, `C[i, j] += …` carries a dependence in `k`, and
# reversing `k` is illegal. TVM calls `k` a reduction, and reorders it, since the last bit of a sum rarely matters.

# %%
assert not legal(matmul, reverse(nests, 3))
last_first = tvm.s_tir.Schedule(prim_func(matmul, nests, cube))
i, j, k = last_first.get_loops(last_first.get_sblock("T"))
outer, inner = last_first.split(k, [None, 4])
last_first.reorder(inner, outer)
at_origin = [
    at[2]
    for name, at in visits(last_first.mod["main"])
    if name == "T" and at[:2] == (0, 0)
]
print("k runs", at_origin)
assert at_origin != sorted(at_origin)

# %% [markdown]
# ## Key takeaways
#
# - A loop nest is a domain, accesses and a schedule: sets and maps of integers, with sizes as symbols.
# - Dependences are pairs that share an element: flow, anti, output. Legal means that every pair stays in order, and isl
#   proves it for all sizes, or names a pair that breaks.
# - Interchange, reversal, skewing, tiling, fusion and shifting are maps, and compose as maps do.
# - Tiles want distances that only go forward. Skewing gets them, and the wavefronts that run in parallel come with it.
# - Code generation is scanning polyhedra: the bounds are projections, the `min` and `max` are edges.
# - A legal order need not be a fast one. Traffic, vectors and registers decide; fusing everything can lose.
#
# ## Further reading
#
# - "Some Efficient Solutions to the Affine Scheduling Problem", Paul Feautrier, International Journal of Parallel
#   Programming, 1992 (two parts).
# - "Code Generation in the Polyhedral Model Is Easier Than You Think", Cédric Bastoul, PACT 2004.
# - "A Practical Automatic Polyhedral Parallelizer and Locality Optimizer", Uday Bondhugula, Albert Hartono,
#   J. Ramanujam and P. Sadayappan, PLDI 2008 (Pluto).
# - "isl: An Integer Set Library for the Polyhedral Model", Sven Verdoolaege, ICMS 2010.
# - "Polyhedral AST Generation Is More Than Scanning Polyhedra", Tobias Grosser, Sven Verdoolaege and Albert Cohen,
#   ACM TOPLAS, 2015.
# - "Tensor Comprehensions: Framework-Agnostic High-Performance Machine Learning Abstractions", Nicolas Vasilache,
#   Oleksandr Zinenko, Theodoros Theodoridis and others, arXiv:1802.04730, 2018.
#
# ## Tomorrow
#
# A schedule says when. On a chip with thousands of small cores, each with its own memory, it must also say where, and
# moving a value costs more than computing it. Day 11 maps graphs onto a wafer: placement, routes, pipelines and load.
