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
# # Day 15 · Fewer bits: quantization as a pass
#
# A network in 8-bit integers has a quarter of the bytes, and runs on machines without floats. To get there, a compiler
# replaces numbers by others, which no pass so far was allowed to do. So two things must be stated: what the integers
# compute, down to the last bit, and how far that may be from the floats.
#
# - **grids**: what an integer means, and where the error comes from
# - **passes**: insert, move, fold, until integers stay integers between layers
# - **integers only**: accumulate, requantize, saturate, bit by bit
# - **proofs**: accumulators that cannot overflow, and errors bounded for all inputs
#
# In the exercises, [work/day15/quantization.ipynb](../work/day15/quantization.ipynb), you write the grids and the
# passes. The lesson takes about 75 minutes, and 35 more for what is marked stretch.

# %%
import math
import warnings

import torch
from torch import fx, nn
from torch.nn import functional as F

from passlab import draw, guess, models, timed, trace
from passlab.dataflow.ranges import ranges
from passlab.quantization import (
    QuantizationError,
    accumulators,
    arithmetic,
    channels,
    clipping,
    dequantize,
    errors,
    fixed_point,
    float_copies,
    fold,
    functional,
    grid,
    insert,
    layer_errors,
    move,
    observe,
    overflow,
    overflowing_inputs,
    proved_ranges,
    quantize,
    random_network,
    requantize,
    stated,
    weight_bytes,
    weight_scales,
)

_ = torch.manual_seed(0)

# %% [markdown]
# ## A grid
#
# An integer q of 8 bits is one of −128 … 127. A **grid** says which real number it stands for:
#
# $$x = scale \cdot (q - zero\_point)$$
#
# The `scale` is the distance between neighbours, also called a *step*, and the `zero_point` is the integer that stands
# for 0. To *quantize* is to go to the nearest point of the grid, to *dequantize* to return to a real number:


# %%
def to_integers(x, scale, zero_point):
    return (torch.round(x / scale) + zero_point).clamp(-128, 127).to(torch.int8)


def to_reals(q, scale, zero_point):
    return (q.to(torch.int32) - zero_point) * scale


x = torch.tensor([-1.0, -0.013, 0.0, 0.4, 1.217, 3.0, 9.0])
q = to_integers(x, 4 / 255, -64)
print("x     ", *(f"{v:8.3f}" for v in x))
print("q     ", *(f"{v:8d}" for v in q))
print("x back", *(f"{v:8.3f}" for v in to_reals(q, 4 / 255, -64)))
print("127 − (−64) in int8:", (torch.tensor(127, dtype=torch.int8) + 64).item())

# %% [markdown]
# - Between the ends, a number is **rounded**: the error is at most half a step.
# - Outside, it **saturates**: 9 becomes the last point of the grid, however far that is.
# - 0 stays 0, exactly, since the zero point is an integer.
# - The last line shows why the difference is computed in int32: in 8 bits it wraps around.
#
# The smallest scale for a range from `low` to `high` is (high − low) / 255, since 256 integers have 255 steps. The zero
# point is where 0 falls if `low` is −128, rounded. 0 has to be exact: convolutions pad with zeros, and ReLU makes them.
# So a range on one side of 0 is first extended to it.


# %%
def affine(low, high):
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return 1.0, 0  # all values are 0: any scale will do
    scale = (high - low) / 255
    return scale, round(-128 - low / scale)


for low, high in (
    (-1.0, 3.0),
    (0.0, 6.0),
    (2.0, 6.0),
    (-3.0, -1.0),
    (0.7, 0.7),
    (0.0, 0.0),
):
    g, s = grid(low, high), grid(low, high, symmetric=True)
    assert math.isclose(g.scale, affine(low, high)[0], rel_tol=1e-6)
    assert g.zero_point == affine(low, high)[1] and s.zero_point == 0
    print(f"{low:4} … {high}: scale {g.scale:.4f} at {g.zero_point:4};", end=" ")
    print(f"symmetric {s.scale:.4f}")

# %% [markdown]
# A **symmetric** grid has the zero point 0 and the scale max(−low, high) / 127. It makes sums cheaper, and is used for
# weights. For values on one side of 0 it wastes half of the integers.
#
# The library's `grid`, `quantize` and `dequantize` do this for 2 to 8 bits. Some ranges have no grid:


# %%
def refused(attempt, *args):
    try:
        attempt(*args)
        raise AssertionError("this should be refused")
    except QuantizationError as error:
        print(error)


for low, high in ((1.0, 0.0), (-math.inf, 8.0), (0.0, math.nan)):
    refused(grid, low, high)

# %% [markdown]
# ## Where the error comes from
#
# Inside a grid the error is that of rounding, which is small if the grid is narrow; outside it is that of clipping.
# These values are from the zoo's GPT block, whose GELU is written out and has an x³ with a few large values:


# %%
def prepared(name):
    """Return a network of the zoo, and its inputs by batch and seed."""
    row = models.ZOO[name]
    return functional(trace(row.build(), *row.inputs(8))), row.inputs


def values_of(net, *inputs):
    run = fx.Interpreter(net, garbage_collect_values=False)
    run.run(*inputs)
    return {node.name: value for node, value in run.env.items()}


gpt, inputs = prepared("gpt")
cubes = values_of(gpt, *inputs(8))["pow_1"]
clipping(cubes, bits=(8, 4), title="x³ in the GPT block")

# %% [markdown]
# With 8 bits the grid should cover nearly everything. With 4 bits it is better to clip: a few values lose much, and all
# others gain.
#
# No choice of ends helps where *some places* are always larger than others. The largest magnitude in each channel of
# two tensors, the weights of a depthwise convolution of MobileNet (one filter for each channel), with its batch norm
# folded in, and the activations behind the first linear layer of the GPT block:

# %%
mobile, images = prepared("mobilenetv2")
weights = values_of(mobile, *images(2))["conv2d_44_weight"]
outputs = values_of(gpt, *inputs(8))["linear"]
channels(
    {
        "weights": weights.abs().amax((1, 2, 3)),
        "activations": outputs.abs().amax((0, 1)),
    }
)

# %% [markdown]
# Most channels of the weight use less than half of a common grid. So it may have one scale (**per tensor**), one for
# each output (**per channel**), or one for each run of, say, 16 inputs of an output (**per group**):


# %%
def spent(w, *how):
    """Return the relative error of weights on grids, and their bits with scales."""
    bits, axis, group = how
    scale = weight_scales(w, bits, axis, group)
    on = (scale, 0, bits, axis, group)
    error = (dequantize(quantize(w, *on), *on) - w).norm() / w.norm()
    return f"{error:8.2%} with {bits + 32 * scale.numel() / w.numel():5.2f} bits"


ways = {"per tensor": (None, None), "per channel": (0, None), "per group": (None, 16)}
tensors = {"depthwise": weights, "GPT, mlp": gpt.get_parameter("mlp.0.weight")}
for name, w in tensors.items():
    for bits in (8, 4):
        for way, (axis, group) in ways.items():
            if group is None or w.dim() == 2:
                print(f"{name:<10}{bits} bits {way:<12}{spent(w, bits, axis, group)}")

# %% [markdown]
# And activations? Look where the scales are in an output o:
#
# $$\sum_i (s_x\, q_i)(s_o\, w_{oi}) = s_x\, s_o \sum_i q_i\, w_{oi}$$
#
# The scales are the same for all i, so integers are summed. A scale for each *input* channel could not leave the sum.
# So weights have a scale per output, and activations one per tensor. With groups, each is a sum of its own.
#
# ## Ranges
#
# The range of an activation depends on the input. There are three ways to get one: the ends seen on some batches
# (*calibration*; what notes them is an **observer**), percentiles of what was seen, or day 6's analysis, whose ranges
# hold for all inputs in range. How many values of other inputs are clipped?

# %%
batches = [inputs(8, seed) for seed in range(4)]
ways = {
    "seen": observe(gpt, batches),
    "99.9 %": observe(gpt, batches, percentile=99.9),
    "proved": proved_ranges(gpt, {"x": (-5.0, 5.0)}),
}
others = values_of(gpt, *inputs(64, 100))
for name in ("linear", "add_4", "add"):
    for way, table in ways.items():
        low, high = table[name]
        clipped = ((others[name] < low) | (others[name] > high)).float().mean()
        print(f"{name:<8}{way:<8}{low:9.2f} … {high:8.2f}  clipped {clipped:.3%}")
    print()

# %% [markdown]
# Proved ranges are never exceeded, and too wide, the more so the deeper the network. Seen ranges are tight, and promise
# nothing. `add` adds the attention mask: its low end is −∞, which no grid covers, and the softmax that reads it stays
# in float.
#
# ## Insert
#
# A **pair** is a quantize and a dequantize. It returns floats that are on a grid, so it can be put anywhere in a float
# graph, which still runs, and now has the errors of integers:


# %%
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x) + x)
        return self.head(torch.max_pool2d(x, 2).flatten(1))


x = torch.randn(64, 3, 8, 8)
net = functional(trace(Small().eval().requires_grad_(False), x))
pairs = insert(net, observe(net, [(x,)]))
draw(pairs, title="With pairs")

# %% [markdown]
# `functional` made the weights nodes and folded the batch norms. A *layer* is a node with an integer form: linear,
# conv2d, matmul, addition, mean. The rules of `insert`:
#
# - Each value that a layer reads or returns gets a pair, **one**, however many read it: `relu` has two readers.
# - The pair of a convolution is **behind its ReLU**. Before it, half of the grid would be spent on numbers that are then
#   cut off.
# - What only moves elements, such as `max_pool2d` and `flatten`, changes no range. The pair is **before** it.
# - A weight gets a pair with a scale per channel; a weight that several layers share, **once**.
# - A bias does not get a pair yet: its grid follows from the two others.
# - An addition that no layer reads stays in float, as do softmax and norms: a pair would cost a rounding for nothing.

# %%
refused(insert, pairs, {})
refused(insert, net, {}, {"relu": 4})
refused(insert, net, {})
y = net(x)
print(f"error of the pairs: {(pairs(x) - y).norm() / y.norm():.2%}")

# %% [markdown]
# ## Move
#
# Between `relu_1` and `linear` each number moves as four bytes, though it is one of 256. A **dequantize moves below** a
# node f if f(dequantize(q)) = dequantize(f(q)), on the same grid. Which f allow it?

# %%
q = torch.arange(-128, 128).to(torch.int8).reshape(2, 4, 8, 4)
candidates = {
    "flatten": lambda t: t.flatten(1),
    "transpose": lambda t: t.transpose(1, 3),
    "slice": lambda t: t[:, 1:3],
    "max_pool2d": lambda t: F.max_pool2d(t, 2),
    "cat": lambda t: torch.cat([t, t.flip(1)], 1),
    "relu": torch.relu,
    "pad with 0": lambda t: F.pad(t, (1, 1)),
    "negative": lambda t: -t,
    "add": lambda t: t + t,
}
channelwise = torch.tensor([0.1, 0.2, 0.3, 0.4])


def commutes(f, *on):
    try:
        return f(dequantize(q, *on)).equal(dequantize(f(q), *on))
    except RuntimeError:
        return False  # the result has no dimension with these scales


print(f"{'':<17}one scale  zero point 0  per channel")
for name, f in candidates.items():
    row = commutes(f, 0.1, 5), commutes(f, 0.1), commutes(f, channelwise, 0, 8, 1)
    print(f"{name:<17}" + "".join(f"{'yes' if yes else '-':<12}" for yes in row))

# %% [markdown]
# The grid is one increasing function of each element. It commutes with what only **moves** elements, and with what
# **chooses by order**. It does not with what computes: ReLU and padding mean the *number* 0, which is the integer
# `zero_point`; a sum needs another grid; and −(−128) is not an int8. `cat` needs all its operands on one grid. With a scale
# for each channel, even a transpose would have to move the scales along.
#
# In the same way a **quantize moves above** f, if nothing else reads f's result. And where the two meet, a pair vanishes:

# %%
all_of_them = torch.arange(-128, 128).to(torch.int8)
same = quantize(dequantize(all_of_them, 0.1, 5), 0.1, 5)
other = quantize(dequantize(all_of_them, 0.1, 5), 0.07, 5)
print(
    "the same grid:",
    same.equal(all_of_them),
    " another grid:",
    other.equal(all_of_them),
)
assert same.equal(all_of_them)

moved = move(pairs)
for node in moved.graph.nodes:
    if node.name in ("max_pool2d", "flatten"):
        print(f"{node.name:<11}", node.meta["tensor_meta"].dtype)
assert moved(x).equal(pairs(x))

# %% [markdown]
# quantize(dequantize(q)) = q only on the same grid. Between two grids it is a rounding, and stays.
#
# ## Integers only
#
# So far all arithmetic is in floats. What does a linear layer compute in integers? Insert both grids; that of the
# weights has the zero point 0:
#
# $$\sum_i s_x (q_i - z_x) \cdot s_w w_i + b = s_x s_w \Big(\underbrace{\sum_i q_i w_i - z_x \sum_i w_i + \frac{b}{s_x s_w}}_{acc}\Big)$$
#
# `acc`, the **accumulator**, is an int32, with the bias rounded to the grid of scale s_x · s_w. The sum of the weights
# is a constant, so that the zero point costs nothing:

# %%
x_q = torch.tensor([[-128, 7, 90, 127]], dtype=torch.int8)
w_q = torch.tensor([[127, -3, 40, 0], [-5, 127, 0, 64]], dtype=torch.int8)
x_scale, x_zero, w_scale = 0.02, -17, torch.tensor([0.004, 0.0007])
bias = torch.tensor([0.3, -0.1])

bias_q = torch.round(bias / (x_scale * w_scale)).to(torch.int32)
acc = x_q.int() @ w_q.int().T - x_zero * w_q.sum(1, dtype=torch.int32) + bias_q
assert acc.equal((x_q.int() - x_zero) @ w_q.int().T + bias_q)
reals = dequantize(x_q, x_scale, x_zero), dequantize(w_q, w_scale, axis=0)
print("acc            ", acc.tolist())
print("acc · s_x · s_w", (acc * x_scale * w_scale).tolist())
print("in floats      ", F.linear(*reals, bias).tolist())

# %% [markdown]
# The result must be on its own grid: q = round(acc · factor) + zero_point, with the factor s_x · s_w / s_out. This is to
# **requantize**. The factor is written as multiplier / 2^shift, a *fixed-point number*, so that integers suffice: an
# int64 holds the product, and a division by 2^shift is a shift. With a multiplier of 31 bits the relative error is at
# most 2⁻³¹:

# %%
out_scale, out_zero = 0.03, 10
factors = (x_scale * w_scale / out_scale).tolist()
for factor in factors:
    multiplier, shift = fixed_point(factor)
    print(f"{factor:.7f} ≈ {multiplier} / 2^{shift} = {multiplier:b}b / 2^{shift}")
    assert 2**30 <= multiplier < 2**31
    assert abs(multiplier / 2**shift - factor) <= factor / 2**31


def requantized(acc, multiplier, shift, zero_point, low=-128, high=127):
    product = acc * multiplier
    quotient, rest = product >> shift, product & (2**shift - 1)
    half = 2 ** (shift - 1)
    up = rest > half or (rest == half and quotient % 2 == 1)
    return min(max(quotient + up + zero_point, low), high)


for value, factor in zip(acc[0].tolist(), factors, strict=True):
    multiplier, shift = fixed_point(factor)
    q = requantized(value, multiplier, shift, out_zero)
    bits = f"{value * multiplier & (2**shift - 1):0{shift}b}"
    print(f"{value} · {multiplier} = {value * multiplier >> shift}, rest {bits}b → {q}")
    assert q == requantize(torch.tensor(value), multiplier, shift, out_zero)

# %% [markdown]
# The bits that were shifted out decide how to round. Exactly one half is **rounded to even**: always rounding it up
# errs in one direction, here in acc / 2 for acc = 0 … 999:

# %%
accs = torch.arange(1000)
half = fixed_point(0.5)
rules = {
    "half up": torch.floor(accs / 2 + 0.5),
    "half to even": torch.tensor(
        [requantized(a, *half, 0, 0, 999) for a in accs.tolist()]
    ),
}
for name, rounded in rules.items():
    print(f"{name:<13} 1 3 5 7 → {[int(r) for r in rounded[1:9:2]]}, ", end="")
    print(f"mean error {(rounded - accs / 2).mean():.3f}")

# %% [markdown]
# **Saturation** at the end does an activation's work for nothing: for ReLU the low end is the integer of 0, the zero
# point. A factor behind the layer, such as 1/√d in attention, goes into the requantize's factor. So `fold` makes one
# node of dequantize → conv2d → relu → quantize:

# %%
integers = fold(moved)
draw(integers, title="In integers")

# %% [markdown]
# Weights and biases are constants of int8 and int32, scales became multipliers and shifts, and only the ends are floats.
# An addition has two factors, one for each operand; a mean has the division in its factor.
#
# All this is a *definition*, which passes must keep in every bit. `stated` runs the graph with pairs by it:

# %%
floats = 0
for seed in range(30):
    drawn = random_network(seed)
    inputs_ = drawn.meta["inputs"]
    graph = move(insert(drawn, observe(drawn, [inputs_])))
    assert fold(graph)(*inputs_).equal(stated(graph, *inputs_))
    floats += not graph(*inputs_).equal(stated(graph, *inputs_))
print(f"30 networks equal the definition in every bit; in floats {floats} differ")
assert floats

# %% [markdown]
# The second number is why it is needed. The pairs only *simulate* integers: their sums are rounded, and a result near a
# half may go to the other side. A test against them needs a tolerance.
#
# A function of **one** number, such as GELU, has 256 inputs: a table, read by `lookup`, holds them all, even for the
# eight nodes of a written-out GELU. Softmax and layer norm stay in float, between a dequantize and a quantize.
#
# A bias may not fit into int32. Then the weights beside it are tiny, and so is its step:

# %%
tiny = functional(trace(nn.Linear(4, 2).requires_grad_(False), torch.randn(3, 4)))
tiny.weight.mul_(1e-9)
refused(fold, insert(tiny, observe(tiny, [(torch.randn(3, 4),)])))

# %% [markdown]
# ## Accumulators
#
# An accumulator that overflows is silently wrong: it keeps the sum modulo 2³². With n inputs the products sum to at
# most n · 255 · 127. Some machines add in 16 bits. Day 6's intervals tell before anything runs: the weights are known,
# and the inputs are on a grid.

# %%
dq = next(node for node in moved.graph.nodes if node.name == "dequantize_1")
low, high = -128 - dq.args[2], 127 - dq.args[2]
head = nn.Linear(128, 10).requires_grad_(False)
head.weight.copy_(integers.head_weight_int), head.bias.copy_(integers.linear_bias)
sums = trace(nn.Sequential(head), torch.zeros(1, 128))
print("inputs that fit:", {bits: 2 ** (bits - 1) // (255 * 127) for bits in (16, 32)})
print("day 6:", ranges(sums, {"input": (low, high)})["_0"])
for name, row in accumulators(moved).items():
    print(f"{name:<9}{row.low:>10,} … {row.high:>9,}: {row.bits} bits")

# %%
bad = overflow(moved, "linear", bits=16)
products = (bad.inputs.int() - dq.args[2]) * integers.head_weight_int[bad.output]
total = products.sum() + integers.linear_bias[bad.output]
print(f"{bad.inputs[:5].tolist()} …: {bad.sum:,}; held in 16 bits {bad.held:,}")
assert total == bad.sum and total.to(torch.int16) == bad.held

# %% [markdown]
# This input of the layer was constructed: each number is at the end of the grid at which the sum grows. Can the
# *network* produce such an input? A search starts from random images, and moves each pixel to the end of its range to
# which the gradient points:

# %%
for bits in range(18, 24):
    proved = overflow(moved, "linear", bits) is None
    at = overflowing_inputs(net, moved, "linear", {"x": (-3.0, 3.0)}, bits)
    answer = "no input overflows" if proved else "not proved; "
    answer += "" if proved else "an input does" if at else "no such input found"
    print(f"{bits} bits: {answer}")
    assert not (proved and at)

# %% [markdown]
# There are three answers. From some width on, the bound is a proof. Below another, an input settles it. In between, the
# layer alone could overflow, but no input of the network was found for which it does. That is not a proof.
#
# ## Three errors of a layer
#
# How far are integers from floats? For a layer, on the same inputs x on its grid, both saturated:
#
# $$error \le \max_x \Big|\sum_i (\hat w_i - w_i)\, x_i + (\hat b - b)\Big| + \frac{s_{out}}{2}$$
#
# Weights and bias were rounded, by known amounts, and the result is rounded by half a step. The maximum takes for each x
# the end of the grid that fits the sign of its factor. (The fixed-point factor adds 2⁻³¹ of the sum.) So there are
# three numbers: the error *measured* on data, the worst one *searched*, and the *bound*, proved for all inputs:

# %%
vit, pictures = prepared("vit")
with_pairs = move(insert(vit, observe(vit, [pictures(16, s) for s in range(2)])))
rows = layer_errors(with_pairs, [pictures(64, 9)])
assert all(max(r.measured, r.searched) <= r.bound for r in rows.values())
errors(rows)

# %% [markdown]
# The search nearly reaches the bound: there *are* inputs that are this bad. Data are not like them: their errors have
# random signs, and a sum of n of them grows as √n, not as n.
#
# ## Smaller, and faster?
#
# "int8 is four times smaller and four times faster." The first half, on networks of the zoo, with all scales; beside it
# the share of multiply-adds in integers, and dequantize nodes between two integer layers, before and after the passes:

# %%
for name in ("resnet18", "mobilenetv2", "gpt", "vit"):
    float_net, make = prepared(name)
    inserted = insert(float_net, observe(float_net, [make(8, s) for s in range(4)]))
    folded = fold(move(inserted))
    count, y = weight_bytes(folded), float_net(*make(8, 5))
    copies = [len(float_copies(graph)) for graph in (inserted, folded)]
    size = f"{count.floating:>10,} → {count.stored:>10,} B: {count.ratio:.3f}"
    share = f"{arithmetic(folded).share:.0%} int8, copies {copies}"
    error = (folded(*make(8, 5)) - y).norm() / y.norm()
    print(f"{name:<12}{size}, {share}, error {error:.1%}")
    assert count.ratio < 0.27 and copies[1] == 0

# %% [markdown]
# The other half depends on the machine. A product of matrices, and the GPT block:

# %%
a, b = torch.randint(-128, 128, (2, 1024, 1024), dtype=torch.int8)
a_float, b_float = a.float(), b.float()
timed(
    {
        "float32": lambda: a_float @ b_float,
        "int8 to int32": lambda: torch._int_mm(a, b),
        "int32": lambda: a.int() @ b.int(),
    }
)

# %%
bet = guess(
    "From the fastest to the slowest GPT block?",
    ...,
    among=("floats", "pairs", "integers"),
)

# %% tags=["hide-output"]
inserted = insert(gpt, observe(gpt, batches))
folded, batch = fold(move(inserted)), inputs(32)
print(*(node.name for node in folded.graph.nodes if node.op.startswith("call_")))
clock = timed(
    {
        "floats": lambda: gpt(*batch),
        "pairs": lambda: inserted(*batch),
        "integers": lambda: folded(*batch),
    }
)
bet.compare([row.name for row in sorted(clock.rows, key=lambda row: row.median)])
clock

# %% [markdown]
# The product is faster where the processor has instructions for it, and a kernel uses them. With pairs the network is
# slower: it does what it did before, and rounds. Our integers are slow, too: each requantize is several operations on
# int64 tensors. A kernel does it in registers, before a sum is written. That is day 4's fusion; without it quantization
# saves bytes and no time.

# %% [markdown]
# ## Four bits · stretch
#
# An int4 is −8 … 7, and **two are packed** into a byte: the first is its low half. To read the second, shift by 4. Either
# half is a number of 0 … 15, and those from 8 on stand for 16 less:

# %%
from passlab.quantization import integer_linear_int4, pack_int4, unpack

nibbles = torch.tensor([-8, 7, -1, 3], dtype=torch.int8)
low, high = nibbles[::2].to(torch.uint8) & 15, nibbles[1::2].to(torch.uint8) & 15
packed = low | high << 4
print([f"{byte:08b}" for byte in packed.tolist()])
halves = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).to(torch.int8)
signed = torch.where(halves > 7, halves - 16, halves)
assert packed.equal(pack_int4(nibbles)) and signed.equal(nibbles)
assert signed.equal(unpack(packed))

# %% [markdown]
# With 15 levels an outlier costs much more, so the scales are per **group** of inputs. Each group is a sum of its own,
# and the sums have different factors. A common shift for all groups of an output lets them be added before the one
# rounding:
#
# $$q = saturate\Big(round\Big(\frac{\sum_g acc_g \cdot multiplier_g + bias}{2^{shift}}\Big) + zero\_point\Big)$$
#
# The largest factor of an output gets 31 bits, the others what is left. The bias is on the grid of 2^−shift, in int64:

# %%
four = fold(move(insert(gpt, observe(gpt, batches), bits=4, group=16)))
node = next(n for n in four.graph.nodes if n.target is integer_linear_int4)
_, *rest = node.args
rest = [four.get_buffer(a.target) if isinstance(a, fx.Node) else a for a in rest]
packed, bias, group, x_zero, multiplier, shift, zero_point, low, high = rest
weight = unpack(packed).long()
x_q = torch.randint(-128, 128, (1, 64), dtype=torch.int8)

total = bias.clone()
for g, part in enumerate(weight.split(group, 1)):
    acc = part @ (x_q[0].long() - x_zero)[g * group : (g + 1) * group]
    total += acc * multiplier[:, g].long()
by_hand = [
    requantized(t, 1, s, zero_point, low, high)
    for t, s in zip(total.tolist(), shift.tolist(), strict=True)
]
assert by_hand == integer_linear_int4(x_q, *rest)[0].tolist()
print(packed.dtype, tuple(packed.shape), "for a weight of", tuple(weight.shape))

# %% [markdown]
# `integer_linear_int4` unpacks the weight while it multiplies. A kernel does so in registers and never writes the
# unpacked weight to memory. This makes four bits worthwhile: for small batches a linear layer waits for its weights. So
# some networks have weights of 4 bits and leave the rest in float (*weight-only*). What the groups cost:

# %%
y = gpt(*inputs(64, 100))
for bits, group in ((8, 32), (4, 64), (4, 32), (4, 16), (4, 8)):
    graph = fold(move(insert(gpt, observe(gpt, batches), bits=bits, group=group)))
    error = (graph(*inputs(64, 100)) - y).norm() / y.norm()
    label = f"{bits} bits" + (f", groups of {group}" if bits == 4 else ", per channel")
    print(f"{label:<22}{weight_bytes(graph).ratio:.3f} of the bytes, error {error:.1%}")

# %% [markdown]
# ## A mixed plan · stretch
#
# Through a network errors add up. A layer multiplies an error of its inputs by at most Σ|w|, and adds its own. An
# activation multiplies it by at most its largest slope. `network_errors` does
# this for each node of a graph with pairs:

# %%
from passlab.quantization import network_errors, plan

box = {"input": (-1.0, 1.0)}
layers = nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 4)
deep = nn.Sequential(*layers).requires_grad_(False)
deep = functional(trace(deep, torch.zeros(1, 16)))
samples = torch.rand(5000, 16) * 2 - 1
real = values_of(deep, samples)
tables = {"proved": proved_ranges(deep, box), "seen": observe(deep, [(samples,)])}
for name, table in tables.items():
    graph = insert(deep, table)
    bounds, simulated = network_errors(deep, graph, box), values_of(graph, samples)
    for value in ("linear", "linear_1", "linear_2"):
        error = (simulated[value] - real[value]).abs().max()
        print(f"{name:<7}ranges, {value:<9}", end="")
        print(f"bound {bounds[value]:8.3f}, measured {error:.3f}")
        assert error <= bounds[value]

# %% [markdown]
# Within a layer the bound was tight; after three it is not. It does not know that the errors of 64 inputs have a common
# cause, and cannot all be at their worst at once. For ranges that were only seen it is looser still: an input outside
# is clipped, by as much as the proved range allows. On data, seen ranges have the smaller error. So there is a choice:
# a promise for all inputs, or accuracy on likely ones.
#
# A **plan** gives each weight 4, 8 or 32 bits, so that the bytes are few and the error is within a budget. If the budget
# must hold for all inputs, the error is the bound. There are 3ⁿ plans, but errors only grow with fewer bits: if a plan
# is over the budget even with the rest in float, so are all plans that begin like it. So `plan` does not try those, nor
# those that cannot have fewer bytes than the best so far: *branch and bound*. Beside it, what a search finds:


# %%
def worst(graph, rounds=30):
    """Return the largest error found: the worst inputs of each round are changed."""
    x, largest = torch.rand(512, 16) * 2 - 1, 0.0
    for _ in range(rounds):
        error = (graph(x) - deep(x)).abs().amax(1)
        largest = max(largest, error.max().item())
        x = x[error.topk(32).indices].repeat(16, 1)
        ends = torch.rand_like(x).round() * 2 - 1
        x = torch.where(torch.rand_like(x) < 0.15, ends, x)
    return largest


for budget in (0.05, 0.5, 2.5, 5.0):
    chosen = plan(deep, tables["proved"], box, budget)
    graph = fold(insert(deep, tables["proved"], chosen.bits, group=16))
    bits = ", ".join(f"{name} {n}" for name, n in sorted(chosen.bits.items()))
    print(f"budget {budget:<5}{chosen.bytes:6} bytes: {bits}")
    print(f"{'':11}proved {chosen.error:.3f}, found {worst(graph):.3f}")
    assert worst(graph) <= chosen.error <= budget

# %% [markdown]
# No counterexample exists, and the search finds none; it stays far below the bound, as we saw. A plan for *likely*
# inputs would use measured errors in place of the bound. It would have fewer bytes, and no promise.
#
# ## Outliers moved into weights · stretch
#
# In large language models, a few channels behind a norm are up to a hundred times as large as the others, whatever the
# input (see SmoothQuant, below). An activation has one scale, so these channels set it, and only a few integers are
# left for the others. The zoo's weights are drawn at random and have no such channels, so we make two, without changing
# the function: what is multiplied into the norm's weights is divided out of the columns of the next linear layer.

# %%
from passlab.quantization import migrate

hot = torch.ones(64)
hot[[5, 40]] = 50.0
with torch.no_grad():
    spiky, _ = prepared("gpt")
    for norm, reader in (("norm1", "attention.qkv"), ("norm2", "mlp.0")):
        spiky.get_submodule(norm).weight.mul_(hot)
        spiky.get_submodule(norm).bias.mul_(hot)
        spiky.get_submodule(reader).weight.div_(hot)
y = gpt(*inputs(64, 100))
assert torch.allclose(spiky(*inputs(64, 100)), y, atol=1e-4)


def error_of(graph):
    integers = fold(move(insert(graph, observe(graph, batches))))
    return f"{(integers(*inputs(64, 100)) - y).norm() / y.norm():.1%}"


print("without outliers:", error_of(gpt), " with outliers:", error_of(spiky))

# %% [markdown]
# A factor may be moved between a channel of an activation and the weights that read it:
#
# $$\sum_i x_i w_{oi} = \sum_i \frac{x_i}{s_i} (s_i w_{oi}), \qquad s_i = \max|x_i|^\alpha \,/\, \max_o|w_{oi}|^{1-\alpha}$$
#
# 1/sᵢ goes into the weight and the bias of the norm before, so it costs nothing. A linear layer before would do as well
# (in its rows), and a ReLU in between does not matter: relu(x / s) = relu(x) / s. It is allowed if *only* linear layers
# read the value; if there are several, they share the s, with the maximum over all their weights. α says how much of
# the range is moved: 0 nothing of the activation's, 1 all of it.

# %%
for alpha in (0.0, 0.25, 0.5, 0.75, 1.0):
    balanced = migrate(spiky, batches, alpha)
    assert torch.allclose(balanced(*inputs(64, 100)), y, atol=1e-4)
    print(f"α = {alpha:<5}error {error_of(balanced)}")
norms = {"with outliers": spiky, "α = 0.5": migrate(spiky, batches, 0.5)}
largest = {
    name: values_of(graph, *inputs(8))["layer_norm"].abs().amax((0, 1))
    for name, graph in norms.items()
}
channels(largest, title="Channels behind the first norm")

# %% [markdown]
# Even α = 0 helps here. It makes the columns of the weights equal, and those of our two channels were small by just the
# factor by which the activations are large. In a trained network they need not be small, and ½ is the usual choice.
#
# ## What others do · stretch
#
# **onnxruntime** takes the same pairs, as QuantizeLinear and DequantizeLinear of ONNX, and folds them by patterns of its
# own. Its requantize multiplies by a float, so that results may differ by a step:

# %%
from importlib.util import find_spec


def compared(name, integers):
    y = net(x)
    error = (integers - y).norm() / y.norm()
    steps = ((integers - folded_small(x)) / step).abs().max()
    print(f"{name}: error {error:.2%}; at most {steps:.0f} steps from ours")


folded_small = fold(move(pairs))
(last,) = pairs.graph.output_node().all_input_nodes
step = last.args[1]
print(f"ours: error {(folded_small(x) - net(x)).norm() / net(x).norm():.2%}")
if find_spec("onnxruntime"):
    from onnxruntime import InferenceSession

    from passlab.quantization.onnx_format import to_onnx

    session = InferenceSession(to_onnx(moved).SerializeToString())
    (result,) = session.run(None, {"x": x.numpy()})
    compared("onnxruntime, our pairs", torch.from_numpy(result))
else:
    print("onnxruntime is not installed: pip install onnxruntime, and run this again.")

# %% [markdown]
# **torchao** has torch's own flow, PyTorch 2 Export quantization (PT2E). `prepare_pt2e` puts observers into an exported
# graph where a *quantizer* says so, a description of what a backend can do. Some batches are run, and `convert_pt2e`
# puts pairs in their place. They are operations of torch, `quantize_per_tensor` and so on, and stay pairs: folding them
# is left to the backend, which on x86 is Inductor. This quantizer finds layers by notes that only a *strict* export
# makes.

# %%
if find_spec("torchao"):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    config = x86.get_default_x86_inductor_quantization_config()
    quantizer = x86.X86InductorQuantizer().set_global(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(net, (x,), strict=True)
        observed = prepare_pt2e(exported.module(), quantizer)
    observed(x)
    converted = convert_pt2e(observed)
    compared("torchao", converted(x))
    left = sum("quantize" in str(node.target) for node in converted.graph.nodes)
    ours = sum(n.target in (quantize, dequantize) for n in folded_small.graph.nodes)
    print(f"{left} quantize and dequantize nodes; ours: {ours}")
else:
    print("torchao is not installed: pip install torchao, and run this again.")

# %% [markdown]
# ## Key takeaways
#
# - On a grid 0 is exact, errors inside are half a step, and what is outside is clipped.
# - Weights have a scale per output, activations one per tensor: scales must be the same within a sum.
# - Insert pairs, move them past what moves elements, fold: an int32 sum, a multiplication and a shift.
# - The integers are a definition, kept in every bit.
# - Ranges prove accumulators and errors: nearly exactly for a layer, loosely for a network.
# - Bytes are saved for sure; time only if kernels are fused.
#
# ## Further reading
#
# - "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", Benoit Jacob et al.,
#   CVPR 2018.
# - "A White Paper on Neural Network Quantization", Markus Nagel et al., 2021.
# - "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", Guangxuan Xiao et al.,
#   ICML 2023.
