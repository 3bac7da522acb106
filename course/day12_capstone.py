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
# # Day 12 · A compiler of your own
#
# For eleven days you wrote parts. Today they become a compiler: it takes a model that it has not seen and hands over a
# faster one. This lesson takes one model through the passes of all days and measures what each of them contributed. It
# shows how a compiler's result is handed over and judged, how such measurements can mislead, and where to go from here.
#
# In the exercises, [work/day12/capstone.ipynb](../work/day12/capstone.ipynb), you write the compiler, and a text about
# it that a person reads. The lesson takes about 75 minutes.

# %%
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from passlab import diff, draw, equivalent, guess, timed, trace
from passlab.capstone import (
    BadCompiled,
    Compiled,
    Triton,
    build,
    counts,
    examined,
    groupable,
    grouped,
    measure,
    why_not_compiled,
)
from passlab.capstone.baselines import BASELINES
from passlab.capstone.reference import STAGES
from passlab.capstone.triton import runs_on
from passlab.drawing import chart, waterfall

# %% [markdown]
# ## The model
#
# It is built so that the passes of every day have something to do: batch norms, a scale that is constant, a value that
# is computed twice, another that is unused, chains of element-wise operations, and two large branches that need not be
# alive at the same time.


# %%
class Showcase(nn.Module):
    def __init__(self, width=16, wide=64):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(i, width, 3, padding=1, bias=False) for i in (3, width, width)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))
        self.left, self.right = nn.Conv2d(width, wide, 1), nn.Conv2d(width, wide, 1)
        self.head, self.scale = (
            nn.Linear(2 * wide, 10),
            nn.Parameter(torch.rand(width, 1, 1)),
        )

    def forward(self, x):
        start = torch.relu(self.norms[0](self.convs[0](x)))
        inner = torch.relu(self.norms[1](self.convs[1](start)))
        x = torch.relu(self.norms[2](self.convs[2](inner)) + start)
        scaled = x * (self.scale * self.scale + 1)
        x.exp()
        x = x * torch.sigmoid(scaled) + torch.sigmoid(scaled)
        left, right = self.left(x), self.right(x)
        return self.head(torch.cat([left.mean((2, 3)), right.mean((2, 3))], 1))


torch.manual_seed(0)
x = torch.randn(1, 3, 64, 64)
gm = trace(Showcase().eval(), x)
draw(gm)

# %% [markdown]
# ## A compiler hands over data
#
# A grader must not run a stranger's code and believe its clock. So a compiler here does not return a function. It
# returns a `Compiled`, which is data, and the judge builds the program and holds the clock:
#
# | part | what it is | by default |
# |---|---|---|
# | `graph` | a torch.fx graph, rewritten (days 2 and 3) | – |
# | `groups` | lists of node names: each becomes one kernel (day 4) | no groups |
# | `schedules` | first node of a group → knobs of its loops (day 8) | chosen by rule |
# | `plan` | order of the steps, offsets in one arena (day 5) | the graph's order, first fit |
# | `kernels` | first node of a group → a kernel as Triton source, for a GPU (day 4) | made by the grader |
# | `layouts` | a value or parameter → order of its dimensions in memory (day 5) | as torch and oneDNN like it |
#
# A graph alone is a compiled model, too: one whose compiler did nothing. `counts` says what it costs, without running
# anything on a clock: kernels started, bytes that they read and write, bytes of the arena.

# %%
baseline = Compiled(gm)
counts(baseline, (x,))

# %% [markdown]
# A group has to be something that one kernel can do. Two kinds can: element-wise operations with reductions along rows
# (TVM makes the loops), and one convolution or linear layer with the sum and the activation after it (as oneDNN,
# torch's library for a CPU, has it). `groupable` looks at a graph once and returns a function that says why given
# groups are not legal:

# %%
why_not = groupable(gm, (x,))
for groups in (
    [["norms_2", "add", "relu_2"]],
    [["convs_0", "relu"]],
    [["sigmoid", "sigmoid_1"]],
    [["left", "mean"]],
):
    print(groups, "→", why_not(groups))

# %% [markdown]
# Now a chain becomes one kernel. (A view costs nothing in a graph, but as the last member of a group it would be a
# copy: keep it inside the group, or leave it out.)

# %%
chain = [
    node.name
    for node in gm.graph.nodes
    if node.name in ("mul_1", "sigmoid", "mul_2", "sigmoid_1", "add_2")
]
by_hand = Compiled(gm, groups=[chain], schedules={chain[0]: {"vector": 16}})
program = build(by_hand, (x,))
print(chain, counts(by_hand, (x,)), sep="\n")
assert torch.allclose(program(x), gm(x), atol=1e-5)

# %% [markdown]
# For a GPU a group can bring its own kernel, as the *text* of a Triton function with what starts it: what its
# parameters are, how many programs run, and numbers that are known at compile time. The text may hold nothing but such
# functions, and it is not taken on trust: the grader reads it and compiles it where your graph runs, too, and compares
# the kernel with its group, also on NaN. A group has a schedule or a kernel, not both.
#
# On a GPU that kernel runs. Grading on a CPU, as here, cannot compile it: Triton's *interpreter* runs the text once,
# for the comparison, if it takes at most 512 programs, and in the program the group runs as it would without a kernel.
# So `interpret=True`, which runs the interpreter there, is slow, and its time says nothing.

# %%
TEXT = """
import triton
import triton.language as tl


@triton.jit
def scaled(x, scale, out, elements, area, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    factor = tl.load(scale + at // area, mask=inside)
    tl.store(out + at, tl.load(x + at, mask=inside) * factor, mask=inside)
"""
area, elements = 64 * 64, 16 * 64 * 64
kernel = Triton(
    TEXT,
    "scaled",
    ["relu_2", "add_1", "mul_1"],
    [16],
    {"elements": elements, "area": area, "BLOCK": 4096},
)
as_text = Compiled(gm, [["mul_1"]], kernels={"mul_1": kernel})
for why in (why_not_compiled(gm, as_text), examined(as_text, (x,), gm)["differs"]):
    print(why or "fine")
if runs_on(x.device):  # Triton is for Linux
    assert torch.allclose(build(as_text, (x,), interpret=True)(x), gm(x), atol=1e-5)
wrong_index = replace(kernel, source=TEXT.replace("at // area", "at % 16"))
print(examined(replace(as_text, kernels={"mul_1": wrong_index}), (x,), gm)["differs"])

# %% [markdown]
# A **layout** names a value, or the path of a parameter, and the order of its dimensions in memory:
# `[0, 2, 3, 1]` is channels last. A parameter is stored so once, when the program is built. A value is converted by a
# step of its own: one launch, and its bytes twice. Does it pay?

# %%
last_channels = [0, 2, 3, 1]
choices = {
    "by rule": {},
    "channels last": {"x": last_channels},
    "as it comes": {"x": [0, 1, 2, 3]},
}
stored = {name: Compiled(gm, layouts=layouts) for name, layouts in choices.items()}
costs = {name: counts(compiled, (x,)) for name, compiled in stored.items()}
for name, figures in costs.items():
    print(f"{name:14} {figures}")
assert costs["channels last"].launches == costs["by rule"].launches + 1
timing = timed(
    {name: build(compiled, (x,)) for name, compiled in stored.items()}, x, repeats=30
)
rule = timing.rows[0]
for row in timing.rows[1:]:
    beyond = abs(row.median - rule.median) > max(row.iqr, rule.iqr)
    print(f"{row.name}: {'beyond' if beyond else 'within'} the spread of by rule")
timing

# %% [markdown]
# The conversion is a launch more, and the lines above the table say whether the clock sees a difference. oneDNN stores
# weights in blocks of its own and takes images as they come, so the course's compiler names no layout. On a GPU, whose
# convolutions may prefer channels last, and for a kernel that would read down the columns, measure again.

# %% [markdown]
# ## Step by step
#
# The course's own compiler is a list of stages. Each takes a `Compiled` and returns the next one; none knows of the
# others. Yours can be built the same way.

# %%
variants = {"as traced": baseline}
for stage in STAGES:
    variants[stage.name] = stage.run(list(variants.values())[-1], (x,))
    print(f"{stage.day}  {stage.name}")
last = variants[STAGES[-1].name]

# %% [markdown]
# What did each of them save? A **waterfall** shows a figure after each step, and in colour what the step took away.
# First the launches:

# %%
cost = {name: counts(compiled, (x,)) for name, compiled in variants.items()}
waterfall("Kernels started", {name: each.launches for name, each in cost.items()})

# %% [markdown]
# Folding saves one launch for each batch norm, fusion one for each member of a group but its first. This model has no
# tuples to take apart, unlike an LSTM, whose four gates are parts of one product. The plan does not save any: it moves
# values to other places, and starts the same kernels. Now the bytes that all kernels together read and write:

# %%
waterfall(
    "Bytes read and written", {name: each.bytes for name, each in cost.items()}, "B"
)

# %% [markdown]
# The order is the same and the shares are not: a batch norm reads and writes a whole feature map, a constant is small.
# A pass that removes many small nodes can look good in the first picture and do nothing in the second.
#
# Peak memory is another matter again. The two large branches are computed one after the other and both wait for their
# means. Only the last stage changes that:

# %%
waterfall("Peak memory", {name: each.peak for name, each in cost.items()}, "B")

# %%
order = last.plan.order
print(*order, sep=" → ")
assert order.index("mean") < order.index("right")
*earlier, final = (each.peak for each in cost.values())
assert set(earlier) == {earlier[0]} and final < earlier[0]

# %% [markdown]
# A plan is made for the steps as they will run, so for the *grouped* graph: `planned(grouped(graph, groups, inputs),
# x)` from day 5. Each group is one node there, with the name of its last member.

# %%
steps = [node.name for node in grouped(last.graph, last.groups, (x,)).graph.nodes]
print(len(list(last.graph.graph.nodes)), "nodes,", len(steps), "steps")
assert set(last.plan.offsets) <= set(steps)

# %% [markdown]
# What became of the graph, side by side:

# %%
diff(gm, last.graph)

# %% [markdown]
# ## Time, and how it lies
#
# Counts are the same on every machine and at every call. Time is not. It misleads in three ways; the first and the last
# have a cell each. **The first call** pays for what later ones find ready:

# %%
bet = guess("How many times as long as the median does the first call take?", ...)

# %% tags=["hide-output"]
from time import perf_counter

torch.set_num_threads(1)  # threads that wait for each other are noise, too
fresh = build(last, (x,))
calls = []
for _ in range(30):
    start = perf_counter()
    fresh(x)
    calls.append(perf_counter() - start)
first, *rest = (1e3 * seconds for seconds in calls)
print(
    f"first {first:.2f} ms, median of the rest {sorted(rest)[14]:.2f} ms, "
    f"largest {max(rest):.2f} ms"
)
bet.compare(round(first / sorted(rest)[14]))

# %% [markdown]
# **One after the other**: a candidate loses if something else happens to run while it is timed. `timed` lets all take
# turns in rotating order, so that a slow second hits all of them, and takes medians. And **noise looks like a result**.
# So measure the same program against itself: what differs here is what you cannot see below.

# %%
twice = timed({"one": fresh, "the same": build(last, (x,))}, x)
twice

# %% [markdown]
# With turns, medians and the spread, here is the waterfall of time. A change that is smaller than the spread is not a
# result, and the picture says so. On a busy machine that can be all of them: run the cell again, or take more
# `repeats`.

# %%
programs = {name: build(compiled, (x,)) for name, compiled in variants.items()}
times = timed(programs, x, repeats=40)
share = {row.name: row.ratio for row in times.rows}
spread = {row.name: row.iqr / times.rows[0].median for row in times.rows}
waterfall("Time for a call, as a share of the first", share, spreads=spread)

# %% [markdown]
# Fewer launches and fewer bytes are why a program *can* be faster; only the clock says whether it is. On a small model
# the launches weigh, on a large one the bytes, and where convolutions take the time, what is around them hardly matters
# (the roofline of day 4).
#
# ## How a compiler is judged
#
# On models that you have not seen: the families of the zoo in other sizes, and random graphs. **Equivalence comes
# first.** A result that computes something else has no other figures, however fast it is.

# %%
equivalent(gm, last.graph, (x,))

# %%
forgetful = deepcopy(gm)
relu = next(node for node in forgetful.graph.nodes if node.name == "relu_1")
relu.replace_all_uses_with(relu.args[0])
forgetful.recompile()
print(why_not_compiled(gm, Compiled(forgetful)) or equivalent(gm, forgetful, (x,)))

# %% [markdown]
# What cannot be built is refused with a sentence that names the place. `why_not_compiled` checks what needs no
# shapes; `build` raises `BadCompiled` for the rest:

# %%
overlaps = replace(last.plan, offsets=dict.fromkeys(last.plan.offsets, 0))
for compiled in (
    Compiled(gm, groups=[["relu"], ["relu"]]),
    Compiled(last.graph, last.groups, plan=overlaps),
    Compiled(gm, groups=[chain], schedules={chain[0]: {"speed": 11}}),
    replace(as_text, kernels={"mul_1": replace(kernel, name="scale")}),
    Compiled(gm, layouts={"x": [0, 2, 1]}),
):
    try:
        print(why_not_compiled(gm, compiled) or build(compiled, (x,)))
    except BadCompiled as error:
        print(error)

# %% [markdown]
# Then come launches, bytes, peak memory and, in the stretch question, time, beside the baselines. `measure` does all of
# that in one go. `torch.compile` compiles C++ first; where no C++ compiler is found, the table says so.

# %%
entry = measure(
    gm,
    last,
    (x,),
    {name: BASELINES[name] for name in ("eager", "torch.compile", "reference")},
    "showcase",
)
assert entry.equivalent
entry

# %% [markdown]
# TVM's default pipeline takes long to compile. So its figure was recorded once, on one core of another machine. Without
# tuning, its convolutions are slow (day 8).

# %%
TVM = 6.8  # times eager's CPU time
ratios = {row.name: round(row.ratio, 2) for row in entry.rows if not row.missing}
chart("Time for a call, over eager's", ratios | {"TVM, recorded": TVM})

# %% [markdown]
# ## Reading the leaderboard
#
# `passlab leaderboard` runs all compilers of a class again, in the sandbox, on models drawn from the stored seed, and
# measures what they handed over by turns with the baselines. Six things to know about its page:
#
# - The rank comes from the **geometric mean** of the speed-up over eager. Twice as fast on one model and half as fast
#   on another is 1, as it should be; the arithmetic mean would say 1.25.
# - Two entries whose difference is within their spreads have the same rank: a **tie**.
# - An entry without equivalence on one model has no rank, and late ones are listed below.
# - The **Pareto front** of time and memory: an entry is on it if no other is at least as good in both and better in
#   one. There can be several winners.
# - A **star** is for going beyond the course's compiler: fewer launches on some model, and on none more launches or bytes.
# - Names are pseudonyms that stay the same all term. Your earlier entries are listed, with what they reached then.

# %%
from math import prod


def mean_speedup(ratios):
    """Geometric mean of the speed-ups over eager, from times as shares of eager's."""
    return prod(1 / ratio for ratio in ratios) ** (1 / len(ratios))


print(mean_speedup([0.5, 2.0]), "and by the arithmetic mean", (1 / 0.5 + 1 / 2.0) / 2)
assert mean_speedup([0.5, 2.0]) == 1

# %% [markdown]
# Ranks and front for entries that we have: the programs of this lesson, one for each stage. An entry shares the rank of
# the one before it if the difference of their times is within the larger of their spreads; the others get their place
# in the list. Grey bars are spreads; blue points are the front.

# %%
from itertools import pairwise

from matplotlib import pyplot as plt

peaks = {name: cost[name].peak / 2**20 for name in share}
listed = sorted(share, key=share.get)
ranks = {listed[0]: 1}
for number, (faster, name) in enumerate(pairwise(listed), 2):
    tie = share[name] - share[faster] <= max(spread[name], spread[faster])
    ranks[name] = ranks[faster] if tie else number


def beats(one, other):
    """Return whether an entry is at least as good in both, and better in one."""
    a, b = ((share[name], peaks[name]) for name in (one, other))
    return a != b and a[0] <= b[0] and a[1] <= b[1]


front = [name for name in listed if not any(beats(other, name) for other in listed)]
letters = dict(zip(listed, "ABCDEFG", strict=True))
for name in listed:
    print(
        f"{letters[name]}  rank {ranks[name]}  {name:<25} "
        f"{share[name]:.2f} ± {spread[name]:.2f}"
    )
figure, axes = plt.subplots(figsize=(6.4, 3.4))
for number, name in enumerate(listed):
    point = share[name], peaks[name]
    axes.errorbar(*point, xerr=spread[name] / 2, color="#BBBBBB", zorder=1)
    axes.scatter(*point, color="#0072B2" if name in front else "#777777", zorder=3)
    axes.annotate(
        letters[name], point, (4, 6 + 11 * (number % 3)), textcoords="offset points"
    )
axes.step([share[n] for n in front], [peaks[n] for n in front], where="post", zorder=2)
axes.set(xlabel="time, as a share of the first", ylabel="peak memory, MiB")
axes.set(xlim=(0, 1.5 * max(share.values())), ylim=(0, 1.5 * max(peaks.values())))
axes.set_title("Ranks by time, and the front of time and memory")
axes.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# ## Key takeaways
#
# - A compiler is a list of stages that know nothing of each other, and a judge that asks first whether the result is
#   the same function.
# - A result that is data can be checked, counted, built by another process, and believed.
# - Launches, bytes, peak memory and time are four figures. Each pass moves some of them and leaves others.
# - A time without its spread, its baseline and its turns is not a result. Measure a program against itself first.
#
# ## Further reading
#
# Papers, by what they belong to:
#
# - *Graphs and capture.* J. Reed, Z. DeVito, H. He, A. Ussery, J. Ansel, *torch.fx: Practical Program Capture and
#   Transformation for Deep Learning in Python*, MLSys 2022. J. Ansel et al., *PyTorch 2: Faster Machine Learning
#   Through Dynamic Python Bytecode Transformation and Graph Compilation*, ASPLOS 2024.
# - *Passes and dataflow.* A. V. Aho, M. S. Lam, R. Sethi, J. D. Ullman, *Compilers: Principles, Techniques, and Tools*,
#   2nd edition, 2006. F. Nielson, H. R. Nielson, C. Hankin, *Principles of Program Analysis*, 1999.
# - *Rewriting.* Z. Jia, O. Padon, J. Thomas, T. Warszawski, M. Zaharia, A. Aiken, *TASO: Optimizing Deep Learning
#   Computation with Automatic Generation of Graph Substitutions*, SOSP 2019. M. Willsey et al., *egg: Fast and
#   Extensible Equality Saturation*, POPL 2021.
# - *Whole compilers.* T. Chen et al., *TVM: An Automated End-to-End Optimizing Compiler for Deep Learning*, OSDI 2018.
#   C. Lattner et al., *MLIR: Scaling Compiler Infrastructure for Domain Specific Computation*, CGO 2021. P. Tillet, H.
#   T. Kung, D. Cox, *Triton: An Intermediate Language and Compiler for Tiled Neural Network Computations*, MAPL 2019.
# - *Schedules and tuning.* J. Ragan-Kelley et al., *Halide: A Language and Compiler for Optimizing Parallelism,
#   Locality, and Recomputation in Image Processing Pipelines*, PLDI 2013. L. Zheng et al., *Ansor: Generating
#   High-Performance Tensor Programs for Deep Learning*, OSDI 2020.
# - *Kernels.* T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré, *FlashAttention: Fast and Memory-Efficient Exact Attention with
#   IO-Awareness*, NeurIPS 2022. S. Williams, A. Waterman, D. Patterson, *Roofline: An Insightful Visual Performance
#   Model for Multicore Architectures*, CACM 2009.
# - *Loops.* U. Bondhugula, A. Hartono, J. Ramanujam, P. Sadayappan, *A Practical Automatic Polyhedral Parallelizer and
#   Locality Optimizer*, PLDI 2008. S. Verdoolaege, *isl: An Integer Set Library for the Polyhedral Model*, ICMS 2010.
# - *Measuring.* T. Mytkowicz, A. Diwan, M. Hauswirth, P. F. Sweeney, *Producing Wrong Data Without Doing Anything
#   Obviously Wrong!*, ASPLOS 2009. A. Georges, D. Buytaert, L. Eeckhout, *Statistically Rigorous Java Performance
#   Evaluation*, OOPSLA 2007.
#
# Books: J. L. Hennessy, D. A. Patterson, *Computer Architecture: A Quantitative Approach*; S. S. Muchnick, *Advanced
# Compiler Design and Implementation*, 1997; V. Sze, Y.-H. Chen, T.-J. Yang, J. S. Emer, *Efficient Processing of Deep
# Neural Networks*, 2020.
#
# ## Where to go from here
#
# Projects mark what newcomers can do. The links lead to these labels, so they are as fresh as the day you follow them
# (for MLIR, add the label `mlir`; isl has a mailing list instead):
#
# | what you liked | project and its first issues |
# |---|---|
# | graphs, fusion (days 1 to 4) | [PyTorch](https://github.com/pytorch/pytorch/labels/good%20first%20issue) |
# | formats (day 1) | [ONNX](https://github.com/onnx/onnx/labels/good%20first%20issue) |
# | XLA, StableHLO (day 1) | [OpenXLA](https://github.com/openxla/xla/contribute) |
# | kernels (days 4 and 8) | [Triton](https://github.com/triton-lang/triton/contribute) |
# | whole compilers (days 7, 8) | [TVM](https://github.com/apache/tvm/labels/good%20first%20issue) |
# | dialects, patterns (day 9) | [LLVM, MLIR](https://github.com/llvm/llvm-project/labels/good%20first%20issue) |
# | the same in Python (day 9) | [xDSL](https://github.com/xdslproject/xdsl/labels/good%20first%20issue) |
# | code for real devices (day 9) | [IREE](https://github.com/iree-org/iree/contribute) |
# | polyhedra (day 10) | [isl](https://libisl.sourceforge.io/) |
#
# Begin with a test: find a program on which a pass of theirs is wrong, shrink it (day 2), and report it with the shrunk
# graph. It is the contribution that every project is glad to get, and you have the tools for it.
