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
# # Day 13 · torch.compile from inside
#
# `torch.compile(f)` is one line, and under it are three compilers. **Dynamo** reads the bytecode of `f` and makes
# graphs of it. **AOTAutograd** turns each into a forward and a backward graph in which nothing is written in place. A
# **backend**, by default **Inductor**, turns these into programs. This lesson looks at what each hands to the next, and
# puts passes of your own in between.
#
# - **capture**: what becomes a graph, where a graph ends, and when it may be used again
# - **lowering**: functional graphs, forward and backward; operations taken apart
# - **backends**: one in ten lines, with the passes of days 3 and 4; Inductor's loops, read
# - **launches**: a queue, and why it must not run empty
#
# In the exercises, [work/day13/compile.ipynb](../work/day13/compile.ipynb), you find breaks as Dynamo does, count
# compilations, and write a backend. The lesson takes about 75 minutes, and 15 more for what is marked stretch.

# %%
import dis
import re
import shutil
import sysconfig
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import fx, nn
from torch.fx.experimental.const_fold import split_const_subgraphs
from torch.fx.passes.dialect.common.cse_pass import CSEPass

from passlab import backend, cost, draw, equivalent, guess, launches, models
from passlab.capstone.reference import cse, dce, fold_constants
from passlab.capstone.training import decompositions, fuse, simplify
from passlab.capture import Capture, capture, lower, min_cut, save_all

# const_fold warns when it splits a graph.
warnings.filterwarnings("ignore", message="Attempted to insert a get_attr Node")

# %% [markdown]
# ## What becomes a graph
#
# Day 1's tracing called the function with placeholders. It saw no loop and no condition, since Python executed them.
# Dynamo does not call the function. Python hands it the *bytecode* just before the first call, and it goes through the
# instructions one by one, with a stack on which each value is a tensor (of a known shape and type, without data) or a
# Python object. The line in the loop:


# %%
def layers(x, steps):
    parts = []
    for i in range(steps):
        parts.append(x * i)
    count["calls"] += 1
    return torch.cat(parts).relu()


count = {"calls": 0}
appending = layers.__code__.co_firstlineno + 3  # the line of parts.append
for line in dis.get_instructions(layers):
    if line.positions.lineno == appending:
        print(f"{line.offset:3} {line.opname:15}{line.argrepr}")

# %%
x = torch.randn(3, 4)
program = capture(layers, x, 2)
print(program.graphs[0].graph)
program(x, 2)
print(count, "after two calls")

# %% [markdown]
# The list and the loop are gone: Dynamo executed them. Only operations of torch are in the graph. But the counter was
# not forgotten, though the second call executed no line of `layers`. Dynamo replaced the bytecode of the function: the
# new one checks its **guards** (the conditions under which the graph is right, see below), calls the compiled graph,
# and then repeats what else the function did, here one store into a dictionary. What a function *returns*, and what it
# *changes*, stay the same.
#
# ## Breaks
#
# Some instructions cannot be executed without data. Dynamo then ends the graph, lets Python execute the instruction,
# and starts again after it: a **graph break**.


# %%
def several(x, y):
    z = x.relu() + 1
    if z.sum() > 0:
        z = z * 2
    print("between")
    return (z + y.item()).sin()


program = capture(several, torch.ones(3, 4), torch.tensor(2.0))
for place in program.breaks:
    print(place)
draw(program, title="Three graphs and the breaks between them")

# %% [markdown]
# Only what is still needed goes from one graph to the next, through Python. Each piece is a function of its own to Dynamo,
# with guards of its own. Breaks cost: nothing is fused across them, and Python runs again. This course has a closed list
# of reasons, `passlab.capture.REASONS`. Some examples:


# %%
@torch.compiler.disable
def closed(x):
    return x * 3


EXAMPLES = {
    "an if on a tensor": lambda x: x + 1 if x.sum() > 0 else x - 1,
    "an if on a size": lambda x: x + 1 if x.shape[0] > 2 else x - 1,
    "float of a tensor": lambda x: x * float(x.sum()),
    "a mask": lambda x: x[x > 0] + 1,
    "a row": lambda x: x[0] + 1,
    "a disabled function": lambda x: closed(x + 1) * 2,
}
# %%
bet = guess("How many of the six functions have a break?", ...)

# %% tags=["hide-output"]
broken = 0
for name, function in EXAMPLES.items():
    program = capture(function, torch.ones(3, 4))
    broken += bool(program.breaks)
    reasons = ", ".join(place.reason for place in program.breaks) or "no break"
    print(f"{name:21}{reasons:10}graphs: {len(program.graphs)}")
bet.compare(broken)

# %% [markdown]
# An `if` on a size is not a break: Dynamo knows the size, takes one side, and guards the size. The same holds for every
# number that it can compute itself. Two rules are harder to guess. Inside a *loop* there are no breaks: Dynamo cannot
# start again in the middle of one, so it gives up on the function from the last break on, and Python runs the rest. And
# a function that is called is read in place; if it would break, the caller breaks at the call, and the callee is
# compiled by itself. Below, graph 3 is the rest of `outer`:


# %%
def looped(x):
    x = x.relu()
    print(end="")
    x = x + 1
    for _ in range(3):
        x = x * 2
        print(end="")
    return x


def inner(x):
    x = x + 1
    print(end="")
    return x * 2


def outer(x):
    return inner(x.relu()).sin()


for function in (looped, outer):
    program = capture(function, torch.ones(3, 4))
    print(program, program.counts)
draw(program, title="A break in a called function breaks the caller, too")

# %% [markdown]
# ## Control flow · stretch
#
# Most breaks are easy to avoid. Print after the function, keep numbers as tensors without dimensions, count with `sum`
# where you would mask. For an `if` there are two ways. `torch.where` computes both sides and chooses element by
# element. `torch.cond` puts both sides into the graph as functions, and one of them runs; both must return tensors of
# the same type and number of dimensions, and neither may write into its operands, or return views of them.


# %%
def branch(x):
    if x.sum() > 0:
        return x.sqrt()
    return x.neg()


def chosen(x):
    return torch.where(x.sum() > 0, x.sqrt(), x.neg())


def both(x):
    return torch.cond(x.sum() > 0, lambda x: x.sqrt(), lambda x: x.neg(), (x,))


for function in (branch, chosen, both):
    program = capture(function, torch.ones(3, 4))
    graphs, breaks = len(program.graphs), len(program.breaks)
    print(f"{function.__name__:8}graphs: {graphs}, breaks: {breaks}")
for other in (chosen, both):
    assert all(
        torch.equal(branch(x), other(x)) for x in (torch.ones(3), -torch.ones(3))
    )

# %% [markdown]
# Beware of gradients with `where`: the side that was not chosen contributes 0 times its derivative, which is NaN where
# that is infinite. The remedy is to choose twice: first the operand, so that the other side computes something harmless.

# %%
for name, function in {
    "where": lambda x: torch.where(x > 0, x.sqrt(), x),
    "where twice": lambda x: torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), x),
}.items():
    x = torch.tensor([4.0, 0.0], requires_grad=True)
    function(x).sum().backward()
    print(f"{name:12}{x.grad}")

# %% [markdown]
# A loop of known length unrolls, and a long one makes a large graph. `scan` is a loop as one operation: a function of
# (state, element) that returns (new state, result), applied along a dimension.

# %%
from torch._higher_order_ops import scan


def running(x):
    return scan(lambda s, row: (s * 0.5 + row, s.sin()), torch.zeros(4), x)


def unrolled(x):
    s, results = torch.zeros(4), []
    for row in x:
        results.append(s.sin())
        s = s * 0.5 + row
    return s, torch.stack(results)


x = torch.randn(20, 4)
for function in (unrolled, running):
    nodes = capture(function, x).graphs[0].graph.nodes
    print(f"{function.__name__:9}{len(nodes):3} nodes")
assert all(map(torch.allclose, unrolled(x), running(x)))

# %% [markdown]
# ## Guards
#
# A compiled graph is right for some inputs only, and its guards say for which. They are checked at each call:


# %%
def scaled(x, k):
    return x * k


program = capture(scaled, torch.randn(3, 4), 2)
for guard in program.compilations[0].guards:
    print(guard)

# %% [markdown]
# If a guard fails, Dynamo compiles another version of the function, and keeps both. It learns from the failure: a size
# or number that differs from what it was before becomes a **symbol** in the new version, which then serves its other
# values, too:

# %%
bet = guess(
    "How many versions of `scaled` are there after calls with (rows, k) = (3, 2), "
    "(5, 2), (6, 2), (6, 3), (7, 9)?",
    ...,
)

# %% tags=["hide-output"]
for rows, k in ((5, 2), (6, 2), (6, 3), (7, 9)):
    program(torch.randn(rows, 4), k)
print("graphs compiled by each call:", program.counts)
for compilation in program.compilations[1:]:
    print("compiled again, since this failed:", compilation.failed_guard)
    print(*[f"    {guard}" for guard in compilation.guards], sep="\n")
bet.compare(len(program.compilations))
draw(program, title="Three versions of one function")

# %% [markdown]
# At each call Dynamo tries the versions, and compiles nothing if one of them fits. Some things never become symbols.
# The sizes 0 and 1 are special in too many rules (a size of 1 broadcasts, an empty tensor has no maximum), so they get
# versions of their own, and a symbol stands for 2 or more. Types, numbers of dimensions and flags are fixed, and so is
# whether gradients are needed or switched on:


# %%
def flagged(x, flag):
    return x + 1 if flag else x - 1


def counted(function, *calls):
    program = Capture(function)
    for arguments in calls:
        program(*arguments)
    return program.counts


T = torch.ones
print("sizes        ", counted(scaled, *[(T(n), 2) for n in (3, 1, 4, 1, 5, 0, 0, 6)]))
print(
    "numbers      ",
    counted(scaled, *[(T(3), k) for k in (2, 3, 1, 0, -7, 2.5, 3.5, 1.0)]),
)
print(
    "dimensions   ",
    counted(scaled, *[(T(s), 2) for s in ((3,), (3, 4), (5, 6), (7,), (8,))]),
)
print("types        ", counted(scaled, (T(3), 2), (T(3).double(), 2), (T(3), 2)))
print("flags        ", counted(flagged, *[(T(3), f) for f in (True, False, True)]))

# %% [markdown]
# In the second line, 0 and 1 are symbols like any number: only *sizes* are special. Numbers of type `float` have versions
# of their own. In the third, all sizes are symbols, since the number of dimensions has varied.
#
# An argument that the function does not read has no guard. And there is a limit: torch keeps eight versions of each
# function, and runs a call as Python if none of them fits.


# %%
def looks_up(x, word):
    return x + 1 if word in "abc" else x - 1


print("unread  ", counted(lambda x, k: x + 1, (T(3), 2), (T(3), 3), (T(3), "text")))
print("limit   ", counted(looks_up, *[(T(3), word) for word in "abcdefghija"]))

# %% [markdown]
# `dynamic=True` makes symbols of all sizes at the first call, `dynamic=False` never. With symbols, a graph computes with
# sizes: they are inputs, and arithmetic on them is nodes. This is why passes must not take sizes for granted.

# %%
for dynamic in (None, True, False):
    program = Capture(lambda x: x.reshape(-1, 2) * x.shape[0], dynamic)
    for rows in (3, 4, 5):
        program(torch.ones(rows, 2))
    print(f"dynamic={dynamic!s:6}", program.counts)
program = capture(lambda x: x.reshape(-1) * x.shape[0], T(3, 2), dynamic=True)
print(program.graphs[0].code.strip())

# %% [markdown]
# ## Functionalisation
#
# The next step gets Dynamo's graph, which may still write in place, and makes a **functional** one. Each write becomes
# a new value, which later reads of the memory get. If a view is written, its base is computed again (`select_scatter`:
# the base with a row replaced), and other views are taken from the new base.


# %%
def written(x):
    x.mul_(2)
    row = x[0]
    row.add_(1)
    return x.sum()


x = torch.ones(2, 3)
print(capture(written, x.clone()).graphs[0].code.strip())
low = lower(written, x.clone())
print(low.forward.code.strip())

# %% [markdown]
# The graph is pure, but the caller expects `x` to be written. So the last value of `x` is returned, and when the graph
# has run, torch copies it into the caller's tensor: an epilogue of copies, one for each input that was written. Run the
# pure graph, then the copy, and no caller can tell:

# %%
a, b = x.clone(), x.clone()
new, total = low.forward(a)
a.copy_(new)
assert torch.equal(total, written(b)) and torch.equal(a, b)
draw(low.forward, title="The writes as values")

# %% [markdown]
# ## Forward and backward graphs
#
# If anything needs a gradient, AOTAutograd runs torch's own autograd on the graph, with tensors that have no data, and
# records both directions in one **joint graph**. A *partitioner* cuts it in two: the forward graph returns the results,
# and with them whatever the backward graph reads.

# %%
model, inputs = models.ZOO["gpt"].build(), models.ZOO["gpt"].inputs()
for partition in (save_all, min_cut):
    low = lower(model, *inputs, gradients=True, partition=partition)
    sizes = cost(low.forward).launches, cost(low.backward).launches
    print(
        f"{partition.__name__:9}{len(low.saved):3} values, {low.saved_bytes:,} bytes,",
        end=" ",
    )
    print(f"{sizes[0]} + {sizes[1]} launches")
small = lower(lambda x, w: torch.tanh(x * w).sum(), T(4, requires_grad=True), T(4))
print(small.backward.code.strip())

# %% [markdown]
# `min_cut` saves fewer bytes, and computes some cheap values again in the backward graph. Day 14 writes the rules, the
# joint graph, and the cut. Here it matters that backward graphs are graphs like others: the same passes run on them.
#
# ## Decompositions · stretch
#
# A compiler that knew each operation of ATen would never be finished, so most are taken apart into a small *core*. A
# decomposition is a Python function of tensors, traced in place of the operation:

# %%
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx


def norm(x, weight):
    return nn.functional.silu(nn.functional.layer_norm(x, (8,), weight))


schemas = torch._C._jit_get_all_schemas()
names = {s.name.removeprefix("aten::") for s in schemas if s.name[:6] == "aten::"}
packets = [getattr(torch.ops.aten, name) for name in names]
core = [
    p
    for p in packets
    if any(torch.Tag.core in getattr(p, o).tags for o in p.overloads())
]
print(f"{len(names):,} operations, {len(core)} of them in the core,", end=" ")
print(
    len(core_aten_decompositions()), "decompositions of operations and their variants"
)
arguments = torch.randn(4, 8), torch.randn(8)
whole = make_fx(norm)(*arguments)
parts = make_fx(norm, decomposition_table=core_aten_decompositions())(*arguments)
for gm in (whole, parts):
    names = [node.name for node in gm.graph.nodes if node.op[:4] == "call"]
    print(f"{len(names):2} operations: {', '.join(names)}")
equivalent(whole, parts, arguments)

# %% [markdown]
# `silu` is taken apart; `native_layer_norm` is in the core, and stays.
#
# A decomposition must also be accurate in float32. The logarithm of a sum of exponentials overflows if it is written as
# its definition; subtracting the maximum first does not:

# %%
x = torch.tensor([[1000.0, 1000.0], [-1000.0, -1001.0]])
shifted = x - x.amax(1, keepdim=True)
print("torch            ", torch.logsumexp(x, 1))
print("by definition    ", x.exp().sum(1).log())
print("maximum first    ", shifted.exp().sum(1).log() + x.amax(1))

# %% [markdown]
# ## A backend
#
# A backend is a function: it gets a graph and example inputs, and returns what runs in its place. Here is one in ten lines.
# It gets Dynamo's graph as it is, with modules, methods and writes in it:


# %%
def print_calls(gm, inputs):
    gm.graph.eliminate_dead_code()
    gm.recompile()
    names = [node.name for node in gm.graph.nodes if node.op[:4] == "call"]
    print(f"{len(names)} operations: {', '.join(names)}")
    return gm.forward


def wasteful(x):
    x.exp()
    return (x + 1) * (x + 1)


torch.compiler.reset()
print(torch.compile(wasteful, backend=print_calls)(torch.ones(2)))

# %% [markdown]
# The dead operation is gone. But such a pass would also remove writes (see below), and there is no backward graph yet. It
# is better to ask for functional graphs: `passlab.backend(passes…)` has AOTAutograd lower the graph, and runs the passes on
# forward and backward graphs. These are the passes of days 3 and 4, as the capstone has them, on training steps of the
# zoo:


# %%
def step(name, *passes, **options):
    """A model of the zoo after a training step, its backend, and the step's costs."""
    row, ours = models.ZOO[name], backend(*passes, **options)
    model = row.build().requires_grad_(True)
    torch.compiler.reset()
    torch.compile(model, backend=ours)(*row.inputs()).sum().backward()
    costs = [cost(stage.after) for stage in ours.stages]
    return model, ours, sum(c.launches for c in costs), sum(c.bytes for c in costs)


PASSES = (fold_constants, simplify, cse, dce, fuse)
for name in ("mlp", "attention", "residual", "gpt"):
    _, _, *before = step(name)
    _, _, *after = step(name, *PASSES, decompositions=decompositions())
    print(f"{name:10}{before[0]:3} → {after[0]:2} launches, ", end="")
    print(f"{before[1]:9,} → {after[1]:9,} bytes")
    assert after < before

# %% [markdown]
# `decompositions` takes batch norms and their like apart, so that the parts can be in kernels. `fuse` writes small
# products of matrices and convolutions, such as these, as sums of products, which a kernel computes with what surrounds
# them: each graph has become one kernel. Large ones stay calls of torch, whose libraries are much faster there, so
# where they are most of a model, little is won. Nor can kernels save what both graphs must move: each reads the
# weights, and one writes a gradient for each. `ours.stages` keeps each graph before and after the passes. The backward
# graph of the network with a residual, of which `fuse` makes one kernel:

# %%
model, ours, *_ = step("residual", *PASSES, decompositions=decompositions())
draw(ours.stages[1].before, title="A backward graph before the passes")

# %% [markdown]
# A compiled model must return the same, write the same, and have the same gradients. The gradients, compared with those
# of plain torch:

# %%
eager = models.ZOO["residual"].build().requires_grad_(True)
eager(*models.ZOO["residual"].inputs()).sum().backward()
pairs = zip(eager.parameters(), model.parameters(), strict=True)
worst = max((a.grad - b.grad).abs().max().item() for a, b in pairs)
print(f"largest difference of a gradient: {worst:.1e}")
assert worst < 1e-4

# %% [markdown]
# ## When a graph is pure
#
# torch has passes of its own: `CSEPass` merges equal operations, `eliminate_dead_code` removes unused ones, and
# `split_const_subgraphs` computes once what needs no input. What do they assume? Three programs that write:


# %%
def again(x):
    first = x + 1
    x.mul_(2)
    return first * (x + 1)  # the same text, another value


def unused(x):
    y = x * 2
    y.add_(1)  # its result is not used
    return y


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls * 2


def torch_cse(gm):
    return CSEPass()(gm).graph_module


def torch_dce(gm):
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def torch_fold(gm):
    folded = split_const_subgraphs(gm)
    folded.run_folding()
    return folded


PURE = ((again, torch_cse), (unused, torch_dce), (Counting, torch_fold))
for program, rewrite in PURE:

    def traced(program=program):
        return fx.symbolic_trace(program() if isinstance(program, type) else program)

    for name, gm in (("as written", traced()), (rewrite.__name__, rewrite(traced()))):
        x = torch.ones(1)
        print(f"{name:11}{gm(x).item():4g}, then {gm(x).item():3g}", end="   ")
    print()

# %% [markdown]
# Each pass changed what the program computes. The first two treat a graph as a set of equations; the third treats a
# stored value as a constant. On functional graphs the first two are right: there, each write is a value with a name.

# %%
for program, rewrite in PURE[:2]:
    graphs = [lower(program, torch.ones(2)).forward for _ in range(2)]
    print(f"{rewrite.__name__:11}", equivalent(graphs[0], rewrite(graphs[1])))

# %% [markdown]
# Three things remain. *Random numbers*: two calls of `rand_like` look equal, and are not. *Aliases*: a result that is a
# view of an input must stay one. And *state*: parameters and buffers are inputs of the functional graph, and not
# constants. A pass may assume a pure graph behind AOTAutograd if it leaves these three alone. On Dynamo's own graph it
# has to ask, for each node, what it writes and what memory it shares (day 3's `effects`).
#
# ## Inductor
#
# Inductor's first passes are patterns on ATen graphs. They are written as calls, with names that match anything; the
# matcher walks from the last operation of a pattern to its operands:

# %%
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    PatternMatcherPass,
    register_graph_pattern,
)

aten, patterns = torch.ops.aten, PatternMatcherPass()
twice = CallFunction(aten.neg.default, CallFunction(aten.neg.default, KeywordArg("x")))


@register_graph_pattern(twice, pass_dict=patterns)
def double_negation(match, x):
    match.output_node().replace_all_uses_with(x)
    match.erase_nodes()


def once_read(x):
    return x.neg().neg().sin()


def twice_read(x):
    y = x.neg()
    return y.neg().sin() + y


for function in (once_read, twice_read):
    gm = lower(function, torch.ones(3)).forward
    print(f"{function.__name__:10} matches: {patterns.apply(gm.graph)}; left:", end=" ")
    print(*[node.name for node in gm.graph.nodes if node.op[:4] == "call"])

# %% [markdown]
# An inner operation with other readers does not match: day 2's question of the second reader, answered by the library.
#
# Then it makes loops. On a CPU they are C++, for which a compiler and Python's headers must be installed; the next cell
# says so if they are not. One fused loop, read:


# %%
def chain(x, scale):
    return torch.tanh(x * scale + 1).relu() * x


inputs = torch.randn(64, 256), torch.randn(256)
headers = Path(sysconfig.get_path("include"), "Python.h")
if shutil.which("g++") and headers.exists():
    from torch._inductor import metrics
    from torch._inductor.utils import run_and_get_code

    torch.compiler.reset()
    metrics.reset()
    result, (text, *_) = run_and_get_code(torch.compile(chain), *inputs)
    assert torch.allclose(result, chain(*inputs), atol=1e-6)
    loop = [row for row in text.splitlines() if re.search(r"for\(|auto tmp|store", row)]
    for row in loop:  # without casts of constants
        print(re.sub(r"static_cast<int64_t>\((.*?)L?\)", r"\1", row).strip())
    print(f"launches: {launches(chain, *inputs)} → {metrics.generated_kernel_count}")
else:
    print("Inductor needs g++ and", headers, "to make its loops.")

# %% [markdown]
# Five operations, one pass over the memory. The inner loop takes a vector at a time, as many numbers as this
# processor's registers hold; `scale` is read at the same place for each row, which is all that is left of broadcasting.
# All results but the last stay in registers: day 4's argument for fusion.
#
# ## A queue of launches
#
# On a GPU, starting a kernel puts it into a queue, and Python goes on at once. The GPU takes kernels from the queue. Who
# waits for whom? Say that a launch takes the CPU 5 µs, and kernels run for 2 µs, or for 20:


# %%
def queue(kernels, launch=5.0):
    """(start, end) of each launch and of each kernel, in µs."""
    cpu, gpu, now, free = [], [], 0.0, 0.0
    for length in kernels:
        cpu.append((now, now + launch))
        now += launch
        start = max(now, free)
        free = start + length
        gpu.append((start, free))
    return cpu, gpu


figure, panels = plt.subplots(2, 1, figsize=(8, 3.2), layout="constrained")
for panel, length in zip(panels, (2, 20), strict=True):
    cpu, gpu = queue([length] * 8)
    for height, spans in ((1, cpu), (0, gpu)):
        bars = [(start, end - start) for start, end in spans]
        panel.broken_barh(bars, (height - 0.35, 0.7), edgecolor="white")
    busy = sum(end - start for start, end in gpu) / gpu[-1][1]
    panel.set(yticks=[0, 1], yticklabels=["GPU", "CPU"], xlabel="µs")
    panel.set_title(f"kernels of {length} µs: the GPU is busy {busy:.0%} of the time")

# %% [markdown]
# With short kernels the queue is always empty, and the GPU waits for Python. Fusion helps, since it makes fewer and
# longer kernels. The other remedy is a **CUDA graph**: the launches are recorded once, and replayed with a single one.
# It requires that nothing is decided on the CPU in between and that all addresses stay the same: a captured graph
# without breaks, and a memory plan as on day 5. The same queue, with the launches of the second and later kernels free:

# %%
for length in (2, 5, 20):
    kernels = [length] * 50
    one_by_one = queue(kernels)[1][-1][1]
    replayed = 5.0 + sum(kernels)
    print(f"{length:2} µs each: {one_by_one:5.0f} µs, replayed {replayed:5.0f} µs")

# %% [markdown]
# ### Recorded · stretch
#
# Fifty additions, started one by one and replayed:

# %%
if torch.cuda.is_available():
    x = torch.randn(1024, device="cuda")
    for _ in range(3):
        y = x
        for _ in range(50):
            y = y + 1
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        y = x
        for _ in range(50):
            y = y + 1

    def milliseconds(run):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(100):
            run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 100

    def eager():
        y = x
        for _ in range(50):
            y = y + 1

    print(f"{milliseconds(eager):.3f} ms → {milliseconds(recorded.replay):.3f} ms")
else:
    print("There is no GPU here, so there is nothing to record.")

# %% [markdown]
# `torch.compile(model, mode="reduce-overhead")` records by itself.
#
# ## Key takeaways
#
# - Dynamo executes bytecode with tensors that have no data. Only operations of torch get into the graph; what the function
#   does to the world is done again at each call.
# - A break splits the function where data is needed; inside a loop, it costs the rest of the function.
# - A graph is valid under its guards. What varies becomes a symbol, but not the sizes 0 and 1; after eight versions
#   Python runs.
# - AOTAutograd makes graphs pure: writes become results and an epilogue of copies. Forward and backward are both graphs.
# - Passes that treat a graph as equations are right on functional graphs, except for random numbers, aliases and
#   buffers.
# - Short kernels leave a GPU waiting for Python: fuse them, or record the launches.
#
# ## Further reading
#
# - "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and Graph Compilation", Jason Ansel
#   et al., ASPLOS 2024.
# - "The Deep Learning Compiler: A Comprehensive Survey", Mingzhen Li et al., IEEE Transactions on Parallel and
#   Distributed Systems, 2021.
#
# ## Tomorrow
#
# Today torch differentiated the graphs. Day 14 does it as a pass: rules, the joint graph, and the cut that decides what is
# saved.
