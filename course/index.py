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
# # PassLab
#
# A compiler for neural networks is mostly a pile of small programs that take a graph and give back a better one.
# They are called passes. Here you write them: against real compilers, on real models, with a judge that tells you
# which law your pass broke and draws the smallest graph on which it breaks.
#
# You need Python and a little PyTorch. You do not need to know any compiler.

# %% [markdown]
# ## What a pass does, in one picture
#
# Below is a small network, traced into a graph, and the same graph after a pass that knows one thing: a batch norm
# that follows a convolution can be folded into the convolution's weights. Day 2 has you write it.

# %%
from torch.fx.experimental.optimization import fuse

from passlab import diff, models, trace

block = models.ZOO["residual"]
before = trace(block.build(), *block.inputs())
after = trace(fuse(block.build()), *block.inputs())
diff(before, after, title="Folding batch norms into convolutions")

# %% [markdown]
# Two boxes went away and nothing else moved. Is the result still the same function? That is a question to ask of every
# pass, and asking it is one line:

# %%
from passlab import equivalent

equivalent(before, after)

# %% [markdown]
# ## The days
#
# Each day is a lesson to read and run (at most an hour and a quarter) and an exercise notebook that is graded. A few of
# its questions are the day's *core*: at most two hours, and enough to go on with the next day. The others are
# *stretch*: harder, and their points are extra credit. Lessons stand alone; the exercises use what the lessons show.
#
# | day | lesson | exercises |
# |---|---|---|
# | 1 | [A model is a graph](day01_graphs.ipynb) | [Read and measure graphs](../work/day01/graphs.ipynb) |
# | 2 | [Writing a pass](day02_passes.ipynb) | [Visit, fuse, fold, prove](../work/day02/passes.ipynb) |
# | 3 | [Optimizing graphs](day03_optimizations.ipynb) | [The classics, in order](../work/day03/optimizations.ipynb) |
# | 4 | [Fusion](day04_fusion.ipynb) | [Group, check, generate](../work/day04/fusion.ipynb) |
# | 5 | [Memory](day05_memory.ipynb) | [Live ranges, offsets, orders, caches](../work/day05/memory.ipynb) |
# | 6 | [Dataflow analysis](day06_dataflow.ipynb) | [One solver, many questions](../work/day06/dataflow.ipynb) |
# | 7 | [TVM Relay](day07_relay.ipynb) | [Passes in a real compiler](../work/day07/relay.ipynb) |
# | 8 | [TVM today: Relax, TensorIR, tuning](day08_relax.ipynb) | [Port, schedule, tune](../work/day08/relax.ipynb) |
# | 9 | [MLIR](day09_mlir.ipynb) | [Dialects, patterns, loops](../work/day09/mlir.ipynb) |
# | 10 | [The polyhedral model](day10_polyhedral.ipynb) | [Dependences, orders, loops](../work/day10/polyhedral.ipynb) |
# | 11 | [Beyond one chip](day11_wafer.ipynb) | [Place, reduce, scale](../work/day11/wafer.ipynb) |
# | 12 | [A compiler of your own](day12_capstone.ipynb) | [Everything in one compiler](../work/day12/capstone.ipynb) |
#
# ### Part two: the compilers behind today's models
#
# With day 12 the first part is complete. These days are for those who go on. Each needs the days of part one that are
# named, and no other day of part two.
#
# | day | lesson | exercises | needs |
# |---|---|---|---|
# | 13 | [torch.compile from inside](day13_compile.ipynb) | [Breaks, versions, a backend](../work/day13/compile.ipynb) | 3, 4, 6 |
# | 14 | [Training as a pass](day14_training.ipynb) | [Rules, gradients, the cut](../work/day14/training.ipynb) | 3, 5 |
# | 15 | [Fewer bits](day15_quantization.ipynb) | [Grids, pairs, integers](../work/day15/quantization.ipynb) | 3, 6 |
# | 16 | [All rewrites at once](day16_saturation.ipynb) | [E-graphs, laws, proofs](../work/day16/saturation.ipynb) | 3 |
# | 17 | [Breaking compilers](day17_breaking.ipynb) | [Oracles, graphs, shrinking](../work/day17/breaking.ipynb) | 2, 3 |
#
# ### How long they take
#
# In minutes, core + stretch, if you know Python and a little PyTorch:
#
# | day | lesson | exercises |
# |---|---|---|
# | 1 | 75 + 5 | 80 + 195 |
# | 2 | 70 + 25 | 105 + 205 |
# | 3 | 70 + 10 | 115 + 270 |
# | 4 | 75 + 80 | 80 + 435 |
# | 5 | 75 + 15 | 85 + 195 |
# | 6 | 75 + 25 | 85 + 240 |
# | 7 | 70 + 35 | 95 + 310 |
# | 8 | 65 + 20 | 105 + 135 |
# | 9 | 75 + 45 | 120 + 260 |
# | 10 | 70 + 20 | 75 + 175 |
# | 11 | 75 + 15 | 90 + 145 |
# | 12 | 75 | 95 + 85 |
# | 13 | 75 + 15 | 120 + 150 |
# | 14 | 75 + 30 | 120 + 180 |
# | 15 | 75 + 35 | 110 + 175 |
# | 16 | 75 + 35 | 110 + 115 |
# | 17 | 75 + 15 | 120 + 110 |
#
# Days 1, 2 and 4 have a second exercise notebook each, for a compiler that needs a separate process:
# [Relay](../work/day01/relay.ipynb), [Relax](../work/day02/relax.ipynb) and
# [Relay's fusion](../work/day04/groups.ipynb).
#
# The notebooks in `work/` are your own copies, lessons included, made when you started the lab with `make lab` (or
# `passlab lab`). What you write there is never overwritten. `make update` brings newer releases: they replace copies in
# which you have written nothing, and are put beside the others.

# %% [markdown]
# ## How an exercise answers you
#
# Below every function that you write is one line, `check("day03.cse", cse)`. It gives up to five verdicts, each worth
# points:
#
# | verdict | the question it answers |
# |---|---|
# | valid | is the result a well-formed graph? |
# | equivalent | does it compute the same function, on ordinary and on nasty inputs? |
# | complete | did the pass do everything that it must? |
# | precise | did it leave alone what it must not touch? |
# | efficient | did it save what it promised? |
#
# Where one is missing you get a sentence, a small graph, and the number of the hint that helps. `hint("day03.cse")`
# opens one hint at a time, `smaller("day03.dce")` shows a smaller version of a question (the hardest have one),
# `solution("day03.cse")` shows an answer once you have tried; when yours is right, `check` offers another right one.
# After day 4, `milestones()` runs your own passes on ResNet-18, GPT and ViT.
#
# Lessons ask for guesses, which are not graded. `review()` asks a short question about a day that you have begun, at
# growing intervals if you answer rightly. `fast_track("day03")` is a test of ten minutes: if you pass, you may go on
# with the next day. `progress()` shows how far you are:

# %%
from passlab import progress

progress()
