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
# # Day 14 · Training as a pass
#
# To train a network is to compute a loss, its gradients with respect to all parameters, and new parameters. The forward
# pass is only the first part. A compiler that speeds up the others must see them as graphs, and it can: differentiation
# takes a graph and returns a larger one. It is a pass.
#
# - **rules**: for each operation, how a gradient goes from its result to its operands
# - **forks, broadcasts, edges**: where gradients are added, and what has none
# - **the cut**: what the forward graph saves for the backward graph, and what is better computed twice
# - **updates and directions**: one kernel for an optimizer; forward mode
#
# In the exercises, [work/day14/training.ipynb](../work/day14/training.ipynb), you write the rules, the pass and the
# cut. The lesson takes about 75 minutes, and 30 more for what is marked stretch.

# %%
import math

import networkx as nx
import torch
from torch import fx, nn

from passlab import draw, equivalent, guess, models
from passlab.autodiff import (
    CONSTANT,
    RECOMPUTED,
    RULES,
    bytes_of,
    fit,
    joint,
    partition,
    rejoin,
    saved_values,
    torch_joint,
    work_of,
)
from passlab.capture import lower, min_cut, save_all
from passlab.drawing import gantt, joint_graph
from passlab.drawing.picture import size
from passlab.drawing.usage import over_time
from passlab.memory.liveness import liveness
from passlab.memory.tasks import tasks_of, usage

aten = torch.ops.aten
_ = torch.manual_seed(0)

# %% [markdown]
# ## The joint graph
#
# `lower` returns a function as a graph of ATen operations without writes. `joint` differentiates it:


# %%
def loss(x, w):
    h = torch.tanh(x @ w)
    return (h * h).sum()


x, w = torch.randn(3, 4), torch.randn(4, 2)
forward = lower(loss, x, w).forward
whole = joint(forward)
draw(whole, title="A loss and its gradients")

# %% [markdown]
# This is a **joint graph**. It takes the inputs of the function, and a *tangent*: the gradient of the loss with respect
# to the function's result, which is 1 if the result is the loss itself. It returns the result, and the gradient of each
# input. The two halves share values: `tanh` is read by the loss, and again by its own gradient.
#
# Torch's autograd records operations while a program runs, and then walks back. That walk can be recorded, too, and
# the two graphs compared, on ordinary numbers, zeros, infinities and NaN:

# %%
one = torch.tensor(1.0)
verdict = equivalent(torch_joint(forward), whole, (x, w, one))
print(verdict)
leaf = w.clone().requires_grad_()
loss(x, leaf).backward()
assert verdict and torch.allclose(whole(x, w, one)[2], leaf.grad)

# %% [markdown]
# ## A rule for each operation
#
# The derivative of an operation with n numbers in and m out is a matrix of m × n numbers, its Jacobian J. It is never
# built. The chain rule asks for products only, and from the loss backwards they are products of a row with a matrix: if
# `g` is the gradient with respect to the result, `g J` is the gradient with respect to the operand. For `tanh`, J is
# diagonal:

# %%
v, g = torch.randn(4), torch.randn(4)
jacobian = torch.autograd.functional.jacobian(torch.tanh, v)
out = torch.tanh(v)
print(f"nonzero: {jacobian.count_nonzero()} of {jacobian.numel()}")
print("g J              ", *(f"{n:7.4f}" for n in g @ jacobian))
print("g · (1 − tanh² v)", *(f"{n:7.4f}" for n in g * (1 - out * out)))
assert torch.allclose(g @ jacobian, g * (1 - out * out))

# %% [markdown]
# So a rule is a function of `g`, the result and the operands, and it returns a gradient for each operand: a
# **vector-Jacobian product**, VJP. The library's rules are a table with one line for most operations:

# %%
for op in (
    *(aten.add.Tensor, aten.mul.Tensor, aten.exp.default, aten.sin.default),
    *(aten.tanh.default, aten._softmax.default, aten.amax.default, aten.mm.default),
    *(aten.sum.default, aten.expand.default, aten.view.default, aten.select.int),
):
    print(f"{op.name().removeprefix('aten::'):<14}{RULES[op].law}")
print(f"… {len(RULES)} operations")
(gradient,) = RULES[aten.tanh.default].apply(g, out, v)
assert torch.equal(gradient, g * (1 - out * out))

# %% [markdown]
# The table also tells what a rule *reads*: that of `exp` reads the result, that of `sin` the operand, that of `mul`
# both operands, and that of `add` nothing. This decides what has to be kept.
#
# The operations that only move and add numbers have a rule without calculus. Such an operation is a fixed matrix A, and
# its rule is Aᵀ. Where forward copies, backward sums; where forward sums, backward copies; a part becomes a whole with
# zeros elsewhere. A rule is right if ⟨A x, g⟩ = ⟨x, Aᵀ g⟩ for all x and g:

# %%
rows, at = torch.tensor([2, 2, 0]), torch.zeros(4)
duals = {
    "copy, sum": (lambda x: x.expand(3, 4), lambda g: g.sum(0)),
    "sum, copy": (lambda x: x.sum(), lambda g: g.expand(4)),
    "part, zeros elsewhere": (lambda x: x[1:3], lambda g: nn.functional.pad(g, (1, 1))),
    "look up, add at": (lambda x: x[rows], lambda g: at.index_add(0, rows, g)),
}
for name, (apply, back) in duals.items():
    result = apply(v)
    g = torch.randn(result.shape)
    one_way, other = (result * g).sum(), (v * back(g)).sum()
    print(f"{name:<27}{one_way:9.5f}{other:9.5f}")
    assert torch.allclose(one_way, other, atol=1e-5)

# %% [markdown]
# In "look up" row 2 is read twice, and its gradient is the sum of both. If each were written and not added, one of them
# would be lost. That is the next point.
#
# ## Forks add
#
# A value with several consumers influences the loss in several ways, and its gradient is the sum over all of them.
# Here is a program on single numbers, and the whole of reverse mode:

# %%
OPS = {
    "sin": (math.sin, lambda g, out, x: (g * math.cos(x),)),
    "exp": (math.exp, lambda g, out, x: (g * out,)),
    "add": (lambda x, y: x + y, lambda g, out, x, y: (g, g)),
    "mul": (lambda x, y: x * y, lambda g, out, x, y: (g * y, g * x)),
}
program = [
    ("a", "sin", ("x",)),
    ("b", "mul", ("a", "x")),
    ("c", "exp", ("a",)),
    ("unused", "exp", ("x",)),
    ("d", "mul", ("b", "b")),
    ("loss", "add", ("d", "c")),
]


def run(program, x):
    env = {"x": x}
    for name, op, operands in program:
        env[name] = OPS[op][0](*(env[operand] for operand in operands))
    return env


def gradients(program, x, forks=True):
    env, g = run(program, x), {"loss": 1.0}
    for name, op, operands in reversed(program):
        if name not in g:
            continue  # the loss does not depend on it
        parts = OPS[op][1](g[name], env[name], *(env[operand] for operand in operands))
        for operand, part in zip(operands, parts, strict=True):
            g[operand] = part + (g.get(operand, 0.0) if forks else 0.0)
    return g


# %%
step = 1e-6
slope = run(program, 0.7 + step)["loss"] - run(program, 0.7 - step)["loss"]
print(f"slope by a small step: {slope / (2 * step):.6f}")
print(f"forks added:           {gradients(program, 0.7)['x']:.6f}")
print(f"the last one kept:     {gradients(program, 0.7, forks=False)['x']:.6f}")
assert math.isclose(gradients(program, 0.7)["x"], slope / (2 * step), rel_tol=1e-6)

# %% [markdown]
# Three things make it right. The walk goes against the order of the program, so every consumer of a value is done
# before the value's own rule runs. `mul(b, b)` is a fork, too: both operands give a part. A value on which the loss
# does not depend has no gradient, or zero where one is needed.
#
# On day 2 several consumers meant *do not fuse, or compute twice*. Backwards, the same fork is a place where values
# meet: a copy is the dual of a sum.
#
# The pass for tensors is this loop on `fx` nodes. Each rule runs on tensors without data, and what it calls is
# recorded as nodes of the joint graph. An operation may have several results, which `getitem` nodes read one by one;
# its rule takes a tuple, with None for a result that nothing uses:

# %%
pieces = torch.arange(6.0).split(2)
parts = (None, torch.ones(2), None)
print(RULES[aten.split.Tensor].apply(parts, pieces, torch.arange(6.0), 2))

# %% [markdown]
# ## Shapes, types, integers
#
# A broadcast copies, so its dual sums: a gradient arrives in the shape of the *result*, and must have that of the
# operand. The same holds for types, where operands were converted. One function at the end of every rule does both:

# %%
bias = torch.randn(3, 1, dtype=torch.float32)
g = torch.randn(2, 3, 4, dtype=torch.float64)
print(fit(g, bias).shape, fit(g, bias).dtype)
assert torch.equal(fit(g, bias), g.sum((0, 2)).reshape(3, 1).float())

# %% [markdown]
# A new dimension is summed away; a dimension of 1 that was stretched is summed and stays. `Tensor.sum_to_size` does
# that.
#
# Integers have no gradient: an index cannot move a little. Nor does a comparison, `argmax`, `floor`, or `detach`, whose
# purpose is to stop gradients. A float value that such an operation reads gets nothing from it; what it gets from its
# other readers still flows:

# %%
print(len(CONSTANT), "operations without a gradient, such as")
print("  ", *sorted(op.name().removeprefix("aten::") for op in CONSTANT)[:9])
picked = lower(lambda x, i: x[i] * i, torch.randn(5), torch.tensor([1, 1, 3])).forward
print(len(joint(picked).graph.find_nodes(op="output")[0].args[0]), "results")

# %% [markdown]
# The two results of `joint(picked)` are the output and the gradient of `x`; the index has none.
#
# An operation that has a gradient but no rule is an error if a gradient has to pass through it:

# %%
bessel = lower(lambda x: torch.special.bessel_j0(x) * 2, torch.randn(3)).forward
try:
    joint(bessel)
    raise AssertionError("this should be refused")
except ValueError as error:
    print(str(error).split(" It comes")[0])

# %% [markdown]
# ## At the edges
#
# Some functions have no derivative at a point, and training meets such points: the result of a ReLU is often exactly
# 0. What a framework returns there is a convention, and a compiler has to keep it:

# %%
inf, nan = math.inf, math.nan
edges = {
    "relu": (torch.relu, [[0.0], [nan]]),
    "abs": (torch.abs, [[0.0]]),
    "clamp to 0 … 1": (lambda x: x.clamp(0, 1), [[0.0], [nan]]),
    "hardtanh": (nn.functional.hardtanh, [[1.0]]),
    "sqrt": (torch.sqrt, [[0.0]]),
    "norm": (torch.linalg.vector_norm, [[0.0, 0.0]]),
    "amax": (torch.amax, [[2.0, 2.0, 1.0]]),
    "x[0] max x[1]": (lambda x: torch.maximum(x[0], x[1]), [[1.0, 1.0], [nan, 1.0]]),
}
for name, (f, points) in edges.items():
    for point in points:
        at = torch.tensor(point, dtype=torch.float64, requires_grad=True)
        f(at).sum().backward()
        print(f"{name:<15}at {point!s:<16}{at.grad.tolist()}")
        by_rules = joint(lower(lambda x, f=f: f(x).sum(), at.detach()).forward)
        assert torch.equal(by_rules(at.detach(), one.double())[1], at.grad)

# %% [markdown]
# The library's rules give the same (the last line). A trap is where a rule *multiplies* by a mask. The side of `where`
# that was not chosen gets the gradient 0, and then the rule of `sqrt` computes 0 / (2 √0), which is NaN:

# %%
for safe in (False, True):
    v = torch.tensor([0.0, 4.0], requires_grad=True)
    inside = torch.where(v > 0, v, 1.0) if safe else v
    torch.where(v > 0, inside.sqrt(), 0.0).sum().backward()
    print("operand made safe first:" if safe else "as it is:", v.grad.tolist())
mask = torch.tensor([1.0, 0.0])
print("inf · mask:", (torch.tensor([1.0, inf]) * mask).tolist())

# %% [markdown]
# So rules choose with `torch.where` or `masked_fill`, and do not multiply: ∞ · 0 is NaN.
#
# ## Checking with small steps
#
# A rule is checked against (f(x + h) − f(x − h)) / 2h. Here `f` sums the GELU of a thousand numbers, and there are two
# gradients: the right one, and that of GELU's approximation with tanh, which is wrong by less than a thousandth:


# %%
def checked(approximate, dtype, h):
    """Return the largest error of a gradient of eight numbers, by steps of h."""
    points = torch.linspace(-3, 3, 1000, dtype=torch.float64).to(dtype)
    leaf = points.clone().requires_grad_()
    nn.functional.gelu(leaf, approximate=approximate).sum().backward()
    errors = []
    for i in range(100, 900, 100):
        up, down = points.clone(), points.clone()
        up[i] += h
        down[i] -= h
        rise = nn.functional.gelu(up).sum() - nn.functional.gelu(down).sum()
        errors.append(abs((rise / (up[i] - down[i]) - leaf.grad[i]).item()))
    return max(errors)


kinds = [
    (dtype, way) for dtype in (torch.float64, torch.float32) for way in ("none", "tanh")
]
names = ("float64, right", "wrong", "float32, right", "wrong")
print(f"{'h':>7}" + "".join(f"{name:>16}" for name in names))
best = dict.fromkeys(kinds, inf)
for power in range(-1, -7, -1):
    errors = [checked(way, dtype, 10.0**power) for dtype, way in kinds]
    best = {kind: min(best[kind], e) for kind, e in zip(kinds, errors, strict=True)}
    print(f"{10.0**power:7.0e}" + "".join(f"{e:16.1e}" for e in errors))
assert best[torch.float64, "none"] < 1e-8 < 1e-4 < best[torch.float64, "tanh"]
assert best[torch.float32, "none"] > best[torch.float64, "tanh"] / 10

# %% [markdown]
# A large h has the error of the curve, about h². A small h has that of rounding, about ε · |f| / h. In float64 there
# is room between the two, and right and wrong are far apart. In float32 there is none: the right rule looks as bad as
# the wrong one. So gradients are checked in float64.
#
# At an edge small steps cannot judge. They say ½ for ReLU at 0, and the convention says 0.

# %%
h = 1e-6
print((max(0.0, h) - max(0.0, -h)) / (2 * h))

# %% [markdown]
# ## What is saved
#
# A joint graph is rarely run in one piece. The forward graph runs first, a loss is computed from its results, and the
# backward graph runs when the tangents are there. Between the two, what the rules read must be kept. A network, and
# what is kept if nothing is computed twice:


# %%
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)).exp().sin() * 2
        return x.square().mean()


model, batch = Deep(), torch.randn(128, 64)
low = lower(model, batch, gradients=True, partition=save_all)
print(f"{len(low.saved)} values, {size(low.saved_bytes)}")
print(*(f"{value.name} {size(value.bytes)}" for value in low.saved[:8]), "…", sep=", ")

# %% [markdown]
# `gradients=True` asks for the gradients of the parameters. `rejoin` puts the two graphs one after the other, so that
# day 5's live ranges show what happens to memory:


# %%
def example(gm):
    values = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    return [torch.zeros(value.shape, dtype=value.dtype) for value in values]


step = rejoin(low.forward, low.backward, 1)
gantt(liveness(step, *example(step)), "A training step, everything saved")

# %% [markdown]
# The long bars are what is saved. What is computed first is read last, so the bytes rise until the loss and fall after
# it. A saved value is free after its last reader.
#
# ## The cut
#
# Must `sin` be saved, if `exp` is saved and `sin` follows from it? Each value that the backward graph reads is either
# saved, or **computed once more** from others that are. Which set has the fewest bytes?
#
# Draw the graph as pipes. A value is a pipe, as wide as its bytes, and the values computed from it begin at its end.
# Inputs are the source, and what the backward graph reads leads to the sink. To save a value is to cut its pipe, and a
# set is enough if no way is left from source to sink. The narrowest such set is a **minimum cut**, which equals the
# largest flow (Ford and Fulkerson, 1956), and is found in polynomial time. Here `big` and `huge` are read by the
# backward graph:

# %%
values = {"x": 400, "w": 64, "big": 900, "small": 40, "huge": 1600, "loss": 4}
operands = {"big": ("x", "w"), "small": ("big",), "huge": ("small",), "loss": ("huge",)}


def cut(values, operands, read, expensive=()):
    net = nx.DiGraph()
    for name, nbytes in values.items():
        net.add_edge((name, "in"), (name, "out"), capacity=nbytes)
        for operand in operands.get(name, ()):
            net.add_edge((operand, "out"), (name, "in"))  # as wide as need be
        if name not in operands or name in expensive:
            net.add_edge("source", (name, "in"))
        if name in read:
            net.add_edge((name, "out"), "sink")
    nbytes, (left, _) = nx.minimum_cut(net, "source", "sink")
    ends = [n for n in values if (n, "in") in left and (n, "out") not in left]
    return f"{nbytes:>5} bytes: {', '.join(ends)}"


print("read: huge              ", cut(values, operands, {"huge"}))
print("read: big, huge         ", cut(values, operands, {"big", "huge"}))
print(
    "big is a matrix product ",
    cut(values, operands, {"big", "huge"}, expensive={"big"}),
)

# %% [markdown]
# Each pipe has two ends, because what is cut is a value and not an edge: a value with many readers is saved once. The
# third line has a value that is too expensive to compute twice, such as a matrix product. Its pipe begins at the
# source: then it is saved itself, or what is computed from it.
#
# `partition` does this on a joint graph. Above the line is the forward graph, on the line what is saved, below it the
# backward graph, with dashed boxes for what it computes once more:


# %%
def narrow(x, w):
    h = (x @ w).sin()
    return ((h * h).exp() + h.tanh()).sum()


small = joint(lower(narrow, torch.randn(3, 4), torch.randn(4, 5)).forward)
ahead, back = partition(small, num_fwd_outputs=1)
joint_graph(ahead, back, "One function, cut where it is narrow")

# %% [markdown]
# Three tensors cross the line. Everything element-wise follows from the product `mm`, so `sin`, `exp` and `tanh` need
# not be kept; and the two transposed inputs are views, which the caller holds in any case.
#
# Torch has two partitioners: one that computes nothing twice, and a minimum cut, behind torch.compile. Bytes saved for
# the backward graph, for three networks of the zoo:

# %%
print(f"{'':12}{'all':>12}{'torch':>12}{'partition':>12}")
for name in ("mlp", "attention", "gpt"):
    network, inputs = models.ZOO[name].build(), models.ZOO[name].inputs()
    every = lower(network, *inputs, gradients=True, partition=save_all)
    torchs = lower(network, *inputs, gradients=True, partition=min_cut)
    least = sum(bytes_of(node) for node in saved_values(every.joint, every.outputs))
    print(f"{name:<12}{every.saved_bytes:12,}{torchs.saved_bytes:12,}{least:12,}")
    assert least <= torchs.saved_bytes <= every.saved_bytes

# %% [markdown]
# Torch saves more than the minimum at times, on purpose: it also weighs time, and never recomputes some values (long
# chains, and values that are read far apart).
#
# ## What bytes are counted, and what must not run twice
#
# Three things are not in the picture of pipes.
#
# **A view keeps its whole memory.** Two rows of a large matrix cost as much as the matrix, and a second view of it
# costs nothing more. So count memory, not values:

# %%
large = torch.zeros(1000, 1000)
part = large[:2]
print(
    f"{size(part.numel() * 4)} of numbers, {size(part.untyped_storage().nbytes())} kept"
)
assert part.untyped_storage()._cdata == large.t().untyped_storage()._cdata

# %% [markdown]
# **Random numbers are drawn once.** If the backward graph drew the mask of a dropout again, it would get another one.
# Torch tags these operations:

# %%
seeded = torch.Tag.nondeterministic_seeded
for op in (aten.rand_like.default, aten.native_dropout.default, aten.relu.default):
    print(f"{op.name():<22}{seeded in op.tags}")

# %% [markdown]
# **A saved value must stay as it is.** If a program overwrites a tensor that a rule reads later, the gradient is
# wrong. Autograd counts the writes of each tensor and refuses:

# %%
leaf = torch.ones(3, requires_grad=True)
y = leaf.exp()
z = y.sum()
with torch.no_grad():
    y.mul_(2)
try:
    z.backward()
    raise AssertionError("this should be refused")
except RuntimeError as error:
    print(str(error).split(";")[0])

# %% [markdown]
# In a joint graph no writes are counted. Where a function writes into an input, such as a running mean, a `copy_` of
# the new value into the input may remain at the end. The forward graph does it, and when the backward graph runs, the
# old numbers are gone: neither the input nor a view of it may be saved, but a value computed from it may.
#
# ## Recomputed nodes are common subexpressions
#
# A value that is computed once more has the same operation and the same operands as the first. Day 3 has a pass that
# removes such nodes:


# %%
def merge(gm, tags=True):
    """Merge equal nodes; with tags, no recomputed node with another."""
    graph, copies, first = fx.Graph(), {}, {}
    for node in gm.graph.nodes:
        copy = graph.node_copy(node, copies.__getitem__)
        key = (node.target, str(copy.args), str(copy.kwargs))
        key += (tags and node.meta.get(RECOMPUTED, False),)
        if node.op == "call_function" and key in first:
            graph.erase_node(copy)
        copies[node] = (
            first.setdefault(key, copy) if node.op == "call_function" else copy
        )
    return fx.GraphModule(gm, graph)


def curve(gm):
    tasks = tasks_of(gm, *example(gm))
    return usage(tasks, [task.name for task in tasks])


# %%
bet = guess(
    "Equal nodes are merged after the cut, without care. Which peak does that give?",
    ...,
    among=("that of the cut", "that of saving everything"),
)

# %% tags=["hide-output"]
again = rejoin(*partition(low.joint, num_fwd_outputs=1), 1)
plain, tagged = merge(again, tags=False), merge(again)
for name, gm in (("cut", again), ("merged", plain), ("merged by tags", tagged)):
    print(f"{name:<16}{len(gm.graph.nodes):>5} nodes, peak {size(max(curve(gm)))}")
assert max(curve(plain)) == max(curve(step)) > 1.5 * max(curve(tagged))
bet.compare(
    "that of saving everything"
    if max(curve(plain)) == max(curve(step))
    else "that of the cut"
)
over_time(
    {"everything saved": curve(step), "minimum cut": curve(tagged)},
    title="A training step",
)

# %% [markdown]
# Merged without care, the graph has fewer nodes, but its peak is that of saving everything: each recomputation became a
# long live range. So the partitioner marks its nodes, `meta["recomputed"]`, and a pass that merges must respect the
# mark. It is a *barrier*: no node on one side counts as equal to a node on the other.
#
# Note the second half of the blue curve, too. Each value is computed once more just before it is read. A backward
# graph that began by computing all of them would have saved nothing.

# %% [markdown]
# ## Checkpointing is a choice of the cut · stretch
#
# So far matrix products ran once. If memory is short, they may run twice: *gradient checkpointing* keeps the inputs of
# each block, and computes the block again when its gradient is due. Torch lets the programmer decide where:

# %%
from torch.utils.checkpoint import checkpoint


class Checkpointed(Deep):
    def forward(self, x):
        def pair(x, first, second):
            for layer in (first, second):
                x = torch.tanh(layer(x)).exp().sin() * 2
            return x

        for i in range(0, 6, 2):
            x = checkpoint(pair, x, *self.layers[i : i + 2], use_reentrant=False)
        return x.square().mean()


def saved_bytes(module):
    """Return the bytes that autograd saves, without parameters, each memory once."""
    tensors = {}
    parameters = {p.untyped_storage()._cdata for p in module.parameters()}

    def save(tensor):
        storage = tensor.untyped_storage()
        tensors.setdefault(storage._cdata, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        module(batch)
    return sum(
        t.untyped_storage().nbytes()
        for key, t in tensors.items()
        if key not in parameters
    )


for module in (Deep(), Checkpointed()):
    print(f"{type(module).__name__:<14}{size(saved_bytes(module))}")

# %% [markdown]
# It is the same decision as before: a set of values to save, under other conditions. A compiler can make it, too, given
# a budget of bytes: find the least work within the budget. That is no longer a minimum cut, but an integer program; it
# has the variables *saved* and *computed once more* for each value, and the constraint that a value can be computed
# only if each of its operands is available in one of the two ways.

# %%
from passlab.drawing.usage import tradeoff

number = 1
most = sum(bytes_of(node) for node in saved_values(low.joint, number))
least = sum(bytes_of(node) for node in saved_values(low.joint, number, ()))
once = sum(work_of(node) for node in low.joint.graph.nodes)
points, peaks = [], []
for k in range(6):
    budget = least + (most - least) * k // 5
    ahead, back = partition(low.joint, num_fwd_outputs=number, budget=budget)
    twice = sum(work_of(n) for n in back.graph.nodes if n.meta.get(RECOMPUTED))
    points.append((budget, (once + twice) / once))
    peaks.append(max(curve(rejoin(ahead, back, number))))
    print(f"save {size(budget):>9}: work {points[-1][1]:.2f}, peak {size(peaks[-1])}")
assert points[0][1] > points[-1][1] and max(curve(step)) == peaks[0] > peaks[-1]
tradeoff({"work, as a multiple": points}, 1, "Saved bytes against work")

# %% [markdown]
# Saved bytes are not the peak. With the least saved, the last layer's gradient needs the whole network again, and all
# of it is live at once: the peak is that of saving everything. The best peak is between the extremes. With √n of n
# layers saved, only a segment is live at a time (Chen and others, 2016). The peak is what day 5's `rematerialise`
# limits; the cut limits what waits between the two passes.
#
# ## One kernel for an update · stretch
#
# After the backward graph comes the optimizer. Adam keeps averages of the gradient and of its square, m ← β₁m + (1 −
# β₁)g and v ← β₂v + (1 − β₂)g². They begin with zeros, so in step t they are divided by 1 − β₁ᵗ and 1 − β₂ᵗ; then p ←
# p − lr · m / (√v + ε). That is about eight element-wise operations, and a network has hundreds of parameters:

# %%
from passlab import backend, launches, timed
from passlab.autodiff import ADAM, Fused

gpt = models.ZOO["gpt"].build().requires_grad_(True)
for p in gpt.parameters():
    p.grad = torch.randn(p.shape)
loop = torch.optim.Adam(gpt.parameters(), foreach=False)
lists = torch.optim.Adam(gpt.parameters(), foreach=True)
loop.step(), lists.step()
print(len(list(gpt.parameters())), "parameters")
print("a loop:", launches(loop.step))
print("lists: ", launches(lists.step))

# %% [markdown]
# With `foreach`, torch calls one operation for a whole list of tensors: on a GPU that is few kernels, on a CPU a loop
# inside. But it is still one operation after the other, and each reads and writes all parameters. The update is the
# same element-wise program everywhere, a graph on long tensors; here of gradient descent with momentum:


# %%
def momentum(p, g, speed):
    speed = 0.9 * speed + g
    return [p - 0.1 * speed, speed]


print(fx.symbolic_trace(momentum).code.strip())

# %% [markdown]
# So the parameters become *views of one long tensor*, and the program one kernel over it, fused as on day 4:

# %%
fused = Fused(ADAM, gpt.parameters())
fused.step()
print("fused: ", launches(fused.step))
places = {p.untyped_storage().data_ptr() for p in gpt.parameters()}
print(f"{len(places)} storage for all parameters")
timed({"a loop": loop.step, "lists": lists.step, "fused": fused.step})

# %% [markdown]
# The other two launches are copies: `cat` puts the gradients, which autograd allocates one by one, into one tensor, and
# `copy_` writes the new numbers into the parameters, whose memory others may refer to.
#
# What can share a kernel? Parameters of one dtype, on one device, with the same options: weight decay is often 0 for
# biases. And, for Adam, with the same number of steps t. Shared weights are one parameter, and stepped once. A
# parameter without a gradient is not updated at all, not even by its momentum, so it falls behind, and needs a group
# of its own from then on. Twenty steps, with the cut from above behind torch.compile, beside plain torch:


# %%
def trained(make, compiled):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
    run = torch.compile(network, backend=cutter) if compiled else network
    decayed = [p for p in network.parameters() if p.dim() > 1]
    plain = [p for p in network.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain}]
    optimizer = make(groups)
    for i in range(20):
        optimizer.zero_grad()
        run(torch.randn(16, 8)).square().mean().backward()
        if i % 3:
            network[2].bias.grad = None
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()])


cutter = backend(partition=partition)
ours = trained(lambda groups: Fused(ADAM, groups), compiled=True)
torchs = trained(torch.optim.Adam, compiled=False)
print(*(stage.kind for stage in cutter.stages))
print(f"largest difference: {(ours - torchs).abs().max():.1e}")
assert torch.allclose(ours, torchs, atol=1e-6)

# %% [markdown]
# ## Forward mode · stretch
#
# The chain rule can be read from the other end. *Reverse mode* has a row and multiplies it by one Jacobian after the
# other from the loss on; *forward mode* has a column, the change of the inputs, and multiplies in the order of the
# program. Then a derivative travels along with each value, and nothing is saved. Here it is on the program of single
# numbers, with the same rules, since for a single number row and column are the same:


# %%
def derivative(program, x):
    env, change = run(program, x), {"x": 1.0}
    for name, op, operands in program:
        parts = OPS[op][1](1.0, env[name], *(env[operand] for operand in operands))
        pairs = zip(operands, parts, strict=True)
        change[name] = sum(part * change[operand] for operand, part in pairs)
    return change["loss"]


print(f"forward {derivative(program, 0.7):.9f}")
print(f"reverse {gradients(program, 0.7)['x']:.9f}")
assert math.isclose(derivative(program, 0.7), gradients(program, 0.7)["x"])

# %% [markdown]
# A fork needs no care: each consumer takes the change of the value. At an operation with several operands, the parts
# are added. It is the mirror image of reverse mode.
#
# One run of forward mode gives the derivative of *all outputs* along *one direction*; one of reverse mode that of *one
# output* by *all inputs*. A loss with a million parameters is a case for reverse mode. `jvp` makes the graph:

# %%
from passlab.autodiff import jvp

dx, dw = torch.randn_like(x), torch.randn_like(w)
along = jvp(forward)
outputs = along(x, w, dx, dw)
direct = torch.func.jvp(loss, (x, w), (dx, dw))
_, by_x, by_w = whole(x, w, one)
print(f"forward: {outputs[1]:.6f}")
print(f"reverse: {(by_x * dx).sum() + (by_w * dw).sum():.6f}, ⟨gradient, direction⟩")
assert torch.allclose(outputs[1], direct[1])

# %% [markdown]
# Together they give second derivatives. The Hessian of a loss with n parameters has n² numbers, but its product with a
# vector costs about as much as a few gradients. Along v, the gradient changes by H v: forward mode over reverse mode.
# Or the gradient of ⟨gradient, v⟩: reverse over reverse. The graphs:


# %%
def bowl(x):
    return (x.sin() * x * x).sum()


v, point = torch.randn(5), torch.randn(5)
once = joint(lower(bowl, point).forward)
_, hessian_vector = jvp(once)(point, one, v, torch.tensor(0.0))[-2:]


def along_v(x, v):
    return (once(x, torch.ones(()))[1] * v).sum()


twice = joint(lower(along_v, point, v).forward)
_, reverse_twice, _ = twice(point, v, one)
exact = torch.autograd.functional.hessian(bowl, point) @ v
for name, value in (
    ("forward over reverse", hessian_vector),
    ("reverse over reverse", reverse_twice),
    ("the matrix, times v", exact),
):
    print(f"{name:<22}", *(f"{n:8.4f}" for n in value))
assert torch.allclose(hessian_vector, exact, atol=1e-4)
assert torch.allclose(reverse_twice, exact, atol=1e-4)

# %% [markdown]
# A joint graph is a graph of ATen operations like any other, so it can be differentiated again. That is what it means
# to say that differentiation is a pass.

# %% [markdown]
# ## Key takeaways
#
# - Gradients are computed by a graph, which a pass makes: walk back, apply a rule for each operation, add at forks.
# - A rule is g times the Jacobian, which is never built. Copies and sums are duals, parts and zeros elsewhere, too.
# - A gradient has the shape and the dtype of its operand; integers have none. At the edges there are conventions, and
#   `where` keeps them where a product makes NaN.
# - Check in float64. In float32 small steps cannot tell right from wrong.
# - What is saved is a minimum cut: values as pipes, as wide as the memory that they keep.
# - What is computed once more is marked, so that no pass merges it, and computed late.
#
# ## Further reading
#
# - *Evaluating Derivatives*, Andreas Griewank and Andrea Walther, second edition, SIAM, 2008.
# - "Training Deep Nets with Sublinear Memory Cost", Tianqi Chen, Bing Xu, Chiyuan Zhang and Carlos Guestrin, 2016.
# - "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", Paras Jain et al., MLSys 2020.
# - "A new trick for calculating Jacobian vector products", Jamie Townsend, 2017: forward mode out of two reverse
#   modes.
