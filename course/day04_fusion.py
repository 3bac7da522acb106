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
# # Day 4 · Fusion
#
# The optimizations of day 3 remove nodes. The nodes that are left run one by one: each is a separate kernel, reads its
# operands from memory, and writes its result there for the next one to read back. **Fusion** makes one kernel of
# several nodes. It saves no arithmetic. It saves the traffic between them, and the time to start them.
#
# Today you measure how much that saves, see which nodes may share a kernel and which may not, turn a group of nodes
# into a kernel that runs, and meet the cases in which fusing loses. The exercises are in two notebooks:
# [work/day04/fusion.ipynb](../work/day04/fusion.ipynb), and [work/day04/groups.ipynb](../work/day04/groups.ipynb) for
# the one that is compared with TVM's Relay. The lesson takes about 75 minutes, and 80 more for what is marked stretch.

# %%
import importlib.util
import operator
import warnings

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from passlab import (
    bytes_moved,
    cost,
    diff,
    draw,
    equivalent,
    guess,
    kernels,
    launches,
    models,
    peak_memory,
    timed,
    trace,
)
from passlab.drawing.roofline import roofline, traffic
from passlab.fx import rewrites
from passlab.fx.dominators import post_dominators
from passlab.fx.patterns import Pattern, canonical, pattern
from passlab.graph import Graph, Node, Table
from passlab.kernels.schedule import on_cpu
from passlab.measure.machine import measure_machine
from passlab.notebook import beside
from passlab.relax.pipelines import host

# torch.export warns about its own code.
warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")

# %% [markdown]
# ## Two bills
#
# A model pays twice for every node: once for starting a kernel, and once for moving its bytes. Today's running example
# is five cheap operations, as many networks have them between their layers:


# %%
class Five(nn.Module):
    """A scale, a shift, an activation, a gain, and the input again."""

    def forward(self, x, scale, shift):
        return torch.relu(x * scale + shift) * 0.5 + x


x, scale, shift = torch.randn(512, 256), torch.rand(256), torch.randn(256)
five = trace(Five(), x, scale, shift)
print(f"{launches(five, x, scale, shift)!r}\n{bytes_moved(five, x, scale, shift)!r}")
draw(five, title="Five operations, five kernels")

# %% [markdown]
# The bytes follow from the shapes: each node reads its operands and writes its result. If the five were one kernel, it
# would read the inputs of the *group* once and write the output of the group once. It saves the values between: each of
# the $Y_i$ inside is written once and read once per reader, so
#
# $$\text{saved} = \sum_i (1 + r_i)\,|Y_i| + \text{(inputs that were read more than once)}$$

# %%
bet = guess(
    "How many times fewer bytes than five kernels does one kernel for all five move?",
    ...,
)

# %% tags=["hide-output"]
nbytes = {
    node.name: node.meta["tensor_meta"]
    for node in five.graph.nodes
    if "tensor_meta" in node.meta
}
nbytes = {
    name: meta.shape.numel() * meta.dtype.itemsize for name, meta in nbytes.items()
}
placeholders = [node for node in five.graph.nodes if node.op == "placeholder"]
all_five = [node for node in five.graph.nodes if node.op == "call_function"]
between = sum((1 + len(node.users)) * nbytes[node.name] for node in all_five[:-1])
again = sum((len(node.users) - 1) * nbytes[node.name] for node in placeholders)
unfused, joint = (
    int(bytes_moved(five)),
    sum(nbytes[node.name] for node in placeholders) + nbytes[all_five[-1].name],
)
print(
    f"apart {unfused:,}   together {joint:,}   between {between:,}   "
    f"read again {again:,}"
)
assert unfused - joint == between + again and unfused > 5 * joint
bet.compare(round(unfused / joint, 1))

# %% [markdown]
# ## Which bill is the large one?
#
# That depends on the size. The cell below runs the five operations on more and more rows, always into the same two
# buffers, and compares the time with the two bills: five launches, and eleven tensors moved. `measure_machine` measures
# the time of a launch and the speed of copies on this machine.

# %%
machine = measure_machine()
print(machine)
buffers = torch.empty(2, 65536, 256)


def five_into(first, second, x, scale, shift):
    """The same five kernels, into memory that is already allocated."""
    torch.mul(x, scale, out=first)
    torch.add(first, shift, out=second)
    torch.clamp_min(second, 0, out=first)
    torch.mul(first, 0.5, out=second)
    return torch.add(second, x, out=first)


assert torch.equal(five_into(*buffers[:, :512], x, scale, shift), five(x, scale, shift))

# %%
sizes, clock, launching, moving = [4**p for p in range(9)], [], [], []
for rows in sizes:
    inputs = torch.randn(rows, 256), scale, shift
    run = timed({"five": five_into}, *buffers[:, :rows], *inputs, repeats=5)
    clock.append(run["five"].min)
    launching.append(5 * machine.launch)
    moving.append(bytes_moved(five, *inputs) / machine.bandwidth)
elements = [256 * rows for rows in sizes]
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
axis.loglog(elements, clock, "o-", color="#0072B2", label="measured")
axis.loglog(elements, launching, "--", color="#C24E00", label="five launches")
axis.loglog(elements, moving, ":", color="#1A1A1A", label="bytes / bandwidth")
axis.set(xlabel="elements", ylabel="seconds", title="Five operations, by size")
axis.legend()
plt.show()

# %%
for at in (0, 4, 8):
    share = launching[at] / (launching[at] + moving[at])
    print(
        f"{elements[at]:>10,} elements: {share:4.0%} of the predicted time is launching"
    )
assert moving[-1] > 100 * launching[-1]
assert clock[2] < 8 * clock[0], "16 times the work, and about the same time"
assert clock[8] > 500 * clock[0], "time is bytes"

# %% [markdown]
# On the left every kernel costs the same: fusing five into one gains up to a factor of five. On the right time is
# proportional to bytes, and fusing gains as much as it saves in traffic. Between the two the data fits into caches,
# which are faster than the memory that the dotted line assumes.
#
# A third bill is easily overlooked. Eager torch, which runs each operation as soon as Python calls it, allocates memory
# for every result, and the operating system hands out large pieces page by page, each cleared to zero, when they are
# first touched:

# %%
large = torch.randn(65536, 256), scale, shift
fresh = timed(
    {"into buffers": lambda *inputs: five_into(*buffers, *inputs), "eager": five},
    *large,
    repeats=3,
    warmup=1,
)
fresh

# %% [markdown]
# One kernel of five operations allocates one result instead of five.
#
# ## The roofline
#
# There is one more limit, and that is arithmetic. Divide the operations by the bytes: this is the **arithmetic
# intensity** of a kernel, in flops per byte. A machine that computes $P$ flops and moves $B$ bytes in a second can do
# at most $\min(P, B \cdot \text{intensity})$ flops per second. Draw that over the intensity and you see a roof:

# %%
a, b, target = torch.randn(3, 512, 512)
product, elements = trace(lambda a, b: a @ b, a, b), large[0].numel()
unfused, joint = int(bytes_moved(five, *large)), (2 * elements + 512) * 4
clock = timed(
    {
        "five": lambda: five_into(*buffers, *large),
        "product": lambda: torch.mm(a, b, out=target),
    },
    repeats=4,
)
points = {
    "five kernels": (5 * elements, unfused, clock["five"].min),
    "one kernel": (5 * elements, joint),  # not timed yet: drawn on the roof
    "512 x 512 product": (
        2 * 512**3,
        int(bytes_moved(product, a, b)),
        clock["product"].min,
    ),
}
roofline(points, machine)

# %%
intensity = {name: flops / nbytes for name, (flops, nbytes, *_) in points.items()}
print(
    {name: round(value, 2) for name, value in intensity.items()},
    "ridge at",
    round(machine.ridge, 2),
)
assert intensity["one kernel"] > 5 * intensity["five kernels"]
assert intensity["512 x 512 product"] > machine.ridge
assert points["512 x 512 product"][0] / points["512 x 512 product"][1] == 512 / 6

# %% [markdown]
# Where the two roofs meet is the **ridge**. Left of it memory is the limit, and a kernel gains by moving to the right:
# the same operations for fewer bytes. That is what fusion does. Right of it, arithmetic is the limit: a large product
# of matrices has no use for less traffic. A product of two $n \times n$ matrices has the intensity $2n^3/12n^2 = n/6$.

# %% [markdown]
# ## Which elements does an element read?
#
# Two loops can be one loop if each iteration of the second needs only the result of the same iteration of the first. So
# ask of an operation: on which elements of the operand does one element of the result depend? You can compute that. The
# Jacobian of an operation is zero wherever there is no dependence:


# %%
def reads(op, *shape):
    """Which elements of the operand each element of the result reads.

    A row for each element of the result, a column for each of the operand.
    """
    operand = torch.rand(shape)
    jacobian = torch.autograd.functional.jacobian(op, operand)
    return jacobian.reshape(-1, operand.numel()) != 0


table, weight = torch.rand(4, 4), torch.rand(4, 4)
READS = {
    "ELEMWISE": ("relu(x)", reads(torch.relu, 4, 4)),
    "BROADCAST": ("table + x", reads(lambda row: table + row, 4)),
    "INJECTIVE": ("x.t()", reads(torch.t, 4, 4)),
    "COMM_REDUCE": ("x.sum(1)", reads(lambda x: x.sum(1), 4, 4)),
    "OUT_ELEMWISE_FUSABLE": ("x @ weight", reads(lambda x: x @ weight, 4, 4)),
}
figure, axes = plt.subplots(1, 5, figsize=(11, 2.9), layout="constrained")
for axis, (name, (written, mask)) in zip(axes, READS.items(), strict=True):
    axis.imshow(mask, cmap="Blues", vmax=1.4, aspect="equal")
    axis.set_title(f"{name}\n{written}", fontsize=8)
    axis.set(xlabel="operand", ylabel="result", xticks=[], yticks=[])
plt.show()

# %% [markdown]
# The names are those of TVM, whose compilers attach one to every operator: its **op pattern**. The pictures are their
# definitions. Element-wise: the diagonal. Broadcast: each result element reads one operand element, which several may
# share. Injective: the diagonal, rearranged. Reduction: each result reads many operand elements, each read once. In the
# last, each result reads many operand elements, and each of these is read many times: a matrix product, a convolution.
# Such an operation keeps its own loops; only element-wise operations may follow it in the same kernel.

# %%
mask = {name: mask.int() for name, (_, mask) in READS.items()}
# The reads of each result, and those from each operand:
count = {
    name: (set(m.sum(1).tolist()), set(m.sum(0).tolist())) for name, m in mask.items()
}
assert torch.equal(mask["ELEMWISE"], torch.eye(16, dtype=torch.int))
assert count["BROADCAST"] == ({1}, {4})
assert count["INJECTIVE"] == ({1}, {1})
assert not torch.equal(mask["INJECTIVE"], mask["ELEMWISE"])
assert count["COMM_REDUCE"] == ({4}, {1})
assert count["OUT_ELEMWISE_FUSABLE"] == (
    {4},
    {4},
)

# %% [markdown]
# `passlab.fx.patterns` returns the pattern of a torch.fx node in any of its spellings. The table compares it with the
# number in Relay's registry. (The first cell runs in a process beside this one, as on day 1.)

# %%
# %%beside relay
from passlab.relay import relay
from passlab.relay import tvm as old_tvm
from passlab.tvm.modules import groups

ASKED = "nn.relu exp cast add multiply expand_dims reshape transpose squeeze take "
ASKED += "concatenate sum mean nn.conv2d nn.dense nn.softmax nn.max_pool2d argsort"
PATTERN = {
    name: int(relay.op.get(name).get_attr("TOpPattern")) for name in ASKED.split()
}


# %%
class Forms(nn.Module):
    """One node for each operator that Relay was asked about, in the same order."""

    def forward(self, x, image, kernel, at):
        same = torch.relu(x), x.exp(), x.double(), x + x, operator.mul(x, x)
        moved = (
            x.unsqueeze(0),
            x.reshape(-1),
            x.t(),
            torch.squeeze(x),
            torch.index_select(x, 0, at),
            torch.cat([x, x]),
        )
        summed = (
            x.sum(1),
            x.mean(1),
            F.conv2d(image, kernel),
            F.linear(x, x),
            F.softmax(x, -1),
            F.max_pool2d(image, 2),
        )
        return *same, *moved, *summed, torch.argsort(x)


image, kernel = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
forms = trace(Forms(), torch.randn(8, 8), image, kernel, torch.tensor([1, 3]))
calls = [node for node in forms.graph.nodes if node.op.startswith("call_")]
relay_numbers = beside.value("relay", "PATTERN") or {
    canonical(node): int(pattern(node)) for node in calls
}
rows = []
for node, (name, number) in zip(calls, relay_numbers.items(), strict=True):
    rows.append(
        (str(number), Pattern(number).name, name, canonical(node), pattern(node).name)
    )
    assert pattern(node) == number, node
Table(("", "pattern", "Relay", "torch.fx", "op_patterns"), tuple(sorted(rows)))

# %% [markdown]
# Some of these surprise people: an addition of equal shapes counts as broadcast, a cast is element-wise, softmax and
# pooling are in the class of convolutions (they have loops of their own), and opaque is number 8: 7 is for tuples.
#
# Which may follow which? Ask Relay's `FuseOps` for every pair: is the operation of the row, followed by that of the
# column, one kernel?


# %%
# %%beside relay
def fused(body):
    """The groups that FuseOps makes of an expression."""
    main = relay.Function(relay.analysis.free_vars(body), body)
    module = relay.transform.InferType()(old_tvm.IRModule.from_expr(main))
    with old_tvm.transform.PassContext(opt_level=3):
        return groups(relay.transform.FuseOps()(module))


x, row, weight = (
    relay.var(name, shape=shape)
    for name, shape in (("x", (8, 8)), ("row", (8,)), ("w", (8, 8)))
)
STEPS = {
    "relu": relay.nn.relu,
    "add row": lambda value: relay.add(value, row),
    "transpose": relay.transpose,
    "sum": lambda value: relay.sum(value, axis=[1], keepdims=True),
    "dense": lambda value: relay.nn.dense(value, weight),
    "softmax": relay.nn.softmax,
}
ONE = {
    (a, b): len(fused(STEPS[b](STEPS[a](x)))) == 1
    for a in STEPS
    for b in STEPS
    if (a, b) != ("sum", "dense")
}
print(" " * 10, *(f"{name:>9}" for name in STEPS))
for a in STEPS:
    print(f"{a:<10}", *(f"{'yes' if ONE.get((a, b)) else '.':>9}" for b in STEPS))

# %%
# %%beside relay
# An operator before a sum fuses with it, one after it does not.
assert ONE["relu", "sum"]
assert not ONE["sum", "relu"]
# With a matrix product it is the other way round.
assert ONE["dense", "relu"]
assert not ONE["relu", "dense"]
assert ONE["relu", "transpose"]
assert not ONE["transpose", "sum"]
assert not ONE["dense", "dense"]

# %% [markdown]
# `sum(relu(x))` is one kernel: the sum applies relu to each element as it reads it. `relu(sum(x))` is two: the relu
# would have to wait for a whole row, inside a loop over elements. With matrix products it is the other way round: they
# pass on each element that is complete, but an operation *before* one would be computed again for every column.
#
# ## Who reads it, and where do they meet?
#
# Pairs are not enough. A value with two readers can be in one kernel if all values computed from it are combined again
# in that kernel. If it leaves the kernel in two places, a node outside needs it.


# %%
class Diamond(nn.Module):
    def forward(self, image, kernel):
        c = F.conv2d(image, kernel, padding=1)
        return torch.relu(c) + torch.sigmoid(c)


class Fork(nn.Module):
    def forward(self, image, kernel):
        c = F.conv2d(image, kernel, padding=1)
        return torch.relu(c), torch.sigmoid(c)


diamond, fork = trace(Diamond(), image, kernel), trace(Fork(), image, kernel)
draw(
    diamond,
    title="The arms meet again: one group",
    groups=[["conv2d", "relu", "sigmoid", "add"]],
)

# %%
draw(
    fork,
    title="The arms leave: three groups",
    groups=[["conv2d"], ["relu"], ["sigmoid"]],
)

# %% [markdown]
# The frames are not an opinion. They are what Relay's `FuseOps` makes of the same programs:

# %%
# %%beside relay
image, kernel = (
    relay.var("image", shape=(1, 4, 8, 8)),
    relay.var("kernel", shape=(4, 4, 3, 3)),
)
c = relay.nn.conv2d(image, kernel, padding=(1, 1), channels=4, kernel_size=(3, 3))
relu, sigmoid, tanh = relay.nn.relu(c), relay.sigmoid(c), relay.tanh(c)
PROGRAMS = {
    "relu(c) + sigmoid(c)": relu + sigmoid,
    "(relu(c), sigmoid(c))": relay.Tuple([relu, sigmoid]),
    "(relu(c), sigmoid(c), tanh(c))": relay.Tuple([relu, sigmoid, tanh]),
    "relu(relu(c) + image)": relay.nn.relu(relu + image),
    "sum(relu(x))": relay.sum(relay.nn.relu(x)),
    "relu(sum(x))": relay.nn.relu(relay.sum(x)),
}
KERNELS = {name: fused(body) for name, body in PROGRAMS.items()}
for name, members in KERNELS.items():
    print(f"{name:<32}", *map("+".join, members))
assert [len(members) for members in KERNELS.values()] == [1, 3, 4, 1, 1, 2]
assert KERNELS["relu(c) + sigmoid(c)"] == [("nn.conv2d", "nn.relu", "sigmoid", "add")]

# %% [markdown]
# Line four is the end of a residual block: the sum with the block's input is *inside*, as one more operand.
#
# The term for the place where all of them are combined again is **post-dominator**: node $p$ post-dominates $n$ if
# every path from $n$ to the outputs goes through $p$. The first such node is the *immediate* one. The definition is one
# line, if speed does not matter: $n$ itself, and all nodes that post-dominate each of its readers.


# %%
def post_dominators_by_definition(graph):
    """Node → its immediate post-dominator, in quadratic time."""
    every, immediate = {}, {}
    for node in reversed(graph.nodes):
        common = (
            set.intersection(*(every[user] for user in node.users))
            if node.users
            else set()
        )
        every[node] = common | {node}
        immediate[node] = max(common, key=lambda p: len(every[p]), default=None)
    return immediate


for gm in (diamond, fork, five, forms):
    assert post_dominators_by_definition(gm.graph) == post_dominators(gm.graph)
conv = {
    gm: next(node for node in gm.graph.nodes if node.name == "conv2d")
    for gm in (diamond, fork)
}
for gm in conv:
    print(type(gm).__name__, "conv2d →", post_dominators(gm.graph)[conv[gm]])
assert post_dominators(diamond.graph)[conv[diamond]].name == "add"
assert post_dominators(fork.graph)[conv[fork]].op == "output"

# %% [markdown]
# These arrows from node to immediate post-dominator make a tree. `FuseOps` walks up in it: for each node it looks at
# *all* nodes on the paths to the post-dominator, and joins all of them or none.

# %%
tree = post_dominators(diamond.graph)
below = {node: tuple(n.name for n in tree if tree[n] is node) for node in tree}
names = [Node(n.name, canonical(n), "compute", below[n]) for n in tree]
draw(
    Graph("post-dominators", "torch.fx", tuple(names), ("output",)),
    title="The diamond's tree of post-dominators",
)

# %% [markdown]
# These are the rules for calls (tuples have a rule of their own, and the size of a group has a limit):
#
# | the node is | it joins its post-dominator, if all nodes on the paths are at most | and the post-dominator is |
# |---|---|---|
# | OUT_ELEMWISE_FUSABLE | BROADCAST | at most BROADCAST, and every value on the paths has its shape |
# | ELEMWISE or BROADCAST | INJECTIVE | at most INJECTIVE, a COMM_REDUCE, or in a convolution's group already |
# | INJECTIVE | INJECTIVE, in a second round | at most INJECTIVE |
# | COMM_REDUCE, OPAQUE | never | |
#
# ## May these be one kernel?
#
# Such rules find profitable groups. Whether a group is *legal* is another question, and a fusion pass has to check it
# for every group, by whatever rule it was found. The first condition: a kernel starts when all its inputs are
# available. So no value may leave the group and return to it:


# %%
class Detour(nn.Module):
    def forward(self, x, w):
        a = x * 2
        b = a @ w
        return torch.relu(b + a)


class Crossed(nn.Module):
    def forward(self, x, y):
        a, b = x * 2, y * 3
        return torch.relu(b), torch.sigmoid(a)


detour, crossed = trace(Detour(), table, weight), trace(Crossed(), table, weight)
draw(
    detour,
    title="The kernel of group 1 waits for matmul, which waits for the kernel",
    groups=[["mul", "add"]],
)

# %% [markdown]
# Nor may two groups wait for each other, and that is harder to see. Below, each group alone would be fine, and both
# together are impossible.

# %%
knot = [["mul", "relu"], ["mul_1", "sigmoid"]]
assert not any(kernels.illegal(crossed, [group]) for group in knot)
draw(crossed, title="Two groups that wait for each other", groups=knot)

# %% [markdown]
# A set of nodes is **convex** if every path between two of its members stays inside. Convex groups, one at a time,
# never close a cycle; several at once have to be checked together. `kernels.illegal` does it by running the graph with
# groups as single steps, and asks the other questions, too: may this node be moved at all, is all of it on one device,
# of one type, and is there a kernel for it?


# %%
def draws(x):
    return torch.relu(x + torch.rand_like(x))


def writes(x):
    y = x * 2
    y.add_(1)
    return torch.relu(y)


def mixes(x, half):
    return torch.relu(x * half)


def sorts(x):
    return torch.relu(torch.argsort(x) * 2)


# %%
REFUSED = {
    "a way out and back": (detour, [["mul", "add"]]),
    "two that wait": (crossed, knot),
    "random numbers": (trace(draws, table), [["rand_like", "add", "relu"]]),
    "a write": (trace(writes, table), [["mul", "add_", "relu"]]),
    "two types": (trace(mixes, table, table.half()), [["mul", "relu"]]),
    "no kernel": (trace(sorts, table), [["argsort", "mul", "relu"]]),
}
for gm, chosen in REFUSED.values():
    print("·", kernels.illegal(gm, chosen))
assert all(kernels.illegal(gm, chosen) for gm, chosen in REFUSED.values())
whole = [[node.name for node in all_five]]
assert kernels.illegal(five, whole) is None

# %% [markdown]
# "Two types" has a remedy, and its error names it: put a cast before the operation. Eager torch converts the operand by
# itself, inside the product. A cast is element-wise, so it may be in the group. Then one kernel reads numbers of four
# bytes and of two, and the converted copy is never in memory:


# %%
def casts(x, half):
    return torch.relu(x * half.float())


long, short = torch.randn(512, 256), torch.randn(512, 256).half()
mixed = trace(casts, long, short)
chain = [node.name for node in mixed.graph.nodes if node.op.startswith("call_")]
assert kernels.illegal(mixed, [chain]) is None
one_kernel = kernels.fused(mixed, [chain])
assert torch.equal(one_kernel(long, short), trace(mixes, long, short)(long, short))
for name, gm in {"three kernels": mixed, "one kernel": one_kernel}.items():
    print(f"{name:<14} {bytes_moved(gm, long, short)!r}")
assert bytes_moved(one_kernel, long, short) == 2 * long.nbytes + short.nbytes

# %% [markdown]
# ## Find, check, rewrite · stretch
#
# Every fusion pass has these three phases, and it pays to keep them apart. **Find** may be clever, greedy or wrong;
# **check** is the same for all; **rewrite** no longer asks questions. For the first, torch has a partitioner. It grows
# groups out of the nodes that it is told to like, as long as no cycle closes. One block of GPT-2:


# %%
def find(gm):
    """Groups of two or more element-wise nodes, as torch's partitioner grows them."""
    likes = create_op_support(lambda _, node: pattern(node, gm) <= Pattern.BROADCAST)
    partitions = CapabilityBasedPartitioner(gm, likes).propose_partitions()
    order = [node.name for node in gm.graph.nodes]
    return [
        sorted((node.name for node in p.nodes), key=order.index)
        for p in partitions
        if len(p.nodes) > 1
    ]


zoo = models.ZOO["gpt"]
(tokens,) = zoo.inputs()
gpt = trace(zoo.build(), tokens)
chains = find(gpt)
print(*chains, sep="\n")
assert kernels.illegal(gpt, chains) is None

# %%
rewritten = kernels.fused(gpt, chains)
print(cost(gpt, tokens), cost(rewritten, tokens), sep="\n")
assert torch.allclose(gpt(tokens), rewritten(tokens), atol=1e-5)
assert launches(rewritten, tokens) < launches(gpt, tokens)
assert bytes_moved(rewritten, tokens) < bytes_moved(gpt, tokens)
diff(gpt, rewritten, title="One block of GPT-2, its element-wise groups in kernels")

# %% [markdown]
# The rewriting is day 2: for each group one call, with the group's inputs as operands, at a place after the last of
# them and before the first reader of its results. Finding is where compilers differ. This partitioner knows nothing of
# loops. Two chains that have nothing to do with each other, of different sizes, are one group to it:


# %%
class Strangers(nn.Module):
    def forward(self, x, y):
        return torch.relu(x * 2), torch.tanh(y) + 1


strangers = trace(Strangers(), torch.randn(8), torch.randn(5, 3))
print(find(strangers))
assert len(find(strangers)) == 1

# %% [markdown]
# One launch fewer, and not a byte less. The groups of exercise [groups](../work/day04/groups.ipynb) come from patterns
# and post-dominators, and these two would be two.

# %% [markdown]
# ## Groups with a name · stretch
#
# Some groups occur so often that someone has written their kernel by hand, and better than a compiler would. Then
# fusing is matching: find the group, check the conditions, put the one operation in its place. `passlab.fx.rewrites`
# has the usual ones, each with its law in its docstring. First the **GEMM** of every linear algebra library, a product
# that is scaled and added to something, α·A·B + β·C:


# %%
class Gemm(nn.Module):
    def forward(self, a, b, c):
        return 2.0 * (a @ b) + c * 0.5


a, b, c = torch.randn(3, 16, 16).unbind()
plain = trace(Gemm(), a, b, c)
rewritten = rewrites.gemm(trace(Gemm(), a, b, c))
print(cost(plain, a, b, c), cost(rewritten, a, b, c), sep="\n")
assert equivalent(plain, rewritten) and launches(rewritten, a, b, c) == 1
diff(plain, rewritten, title="α·A·B + β·C becomes addmm")

# %% [markdown]
# Four kernels became one, under several conditions. Of the programs below one is a GEMM. In the others the sum has
# another shape than the product, the product has another reader, the dtypes differ, or β is 0: then `addmm` does not
# read C at all, but 0 · NaN is not 0, as you saw on day 3.


# %%
def written_gemm(a, b, c):
    return 2.0 * (a @ b) + c


def read_twice(a, b, c):
    product = a @ b
    return product + c, product


square = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8)
wider = *square[:2], torch.randn(3, 8, 8)
# %%
SIMILAR = {
    "the law holds": (written_gemm, square),
    "C is larger than A·B": (written_gemm, wider),
    "the product is read twice": (read_twice, square),
    "float64 beside float32": (
        lambda a, b, c: (a @ b).double() + c,
        (*square[:2], square[2].double()),
    ),
    "β = 0": (lambda a, b, c: a @ b + 0 * c, square),
}
is_gemm = {}
for name, (program, inputs) in SIMILAR.items():
    after = rewrites.gemm(trace(program, *inputs))
    is_gemm[name] = any(node.target is torch.addmm for node in after.graph.nodes)
    print(f"{name:<26} {'addmm' if is_gemm[name] else 'left alone'}")
assert list(is_gemm.values()) == [True, False, False, False, False]
nan = torch.full((8, 8), torch.nan)
a, b, _ = square
assert (a @ b + 0 * nan).isnan().all()
assert torch.addmm(nan, a, b, beta=0).isfinite().all()

# %% [markdown]
# ### Convolution, batch norm, activation
#
# This rewrite has two parts. The batch norm disappears into the weights (exercise 3 of day 2), and convolution and
# activation become one module. What that module saves depends on what runs it:

# %%
net = models.ZOO["residual"]
before = trace(net.build(), *net.inputs())
after = rewrites.conv_bn_relu(trace(net.build(), *net.inputs()))
assert equivalent(before, after)
print(cost(before, *net.inputs()), cost(after, *net.inputs()), sep="\n")
diff(before, after, title="conv, bn, relu: once as a separate module, once not")

# %% [markdown]
# The launch of the first batch norm is gone. That of the relu behind it is not: eager torch runs the two halves of a
# `ConvReLU2d` one after the other. The module is a name, which a backend with one kernel for both can recognize;
# without such a backend the name saves nothing.
#
# And if a backend has one, how much does it save? Of conv → bn → relu → add at 64 × 56 × 56 some tutorials say that it
# reads 40 MB and writes 32 MB, and 3.6 times less when fused. Count it: each kernel reads its operands and writes its
# result.

# %%
calls = {"conv": 1, "bn": 1, "relu": 1, "add": 2}  # operation: images that it reads
image = torch.empty(64, 56, 56).nbytes
bills = {
    "a kernel for each": (sum(calls.values()) * image, len(calls) * image),
    "one kernel": (2 * image, image),  # the input of conv, and that of add
}
for name, (read, write) in bills.items():
    print(f"{name:<18}{read / 1e6:.1f} MB read, {write / 1e6:.1f} MB written")
before_bytes, after_bytes = map(sum, bills.values())
weights = torch.empty(64, 64, 3, 3).nbytes
print(
    f"{before_bytes / after_bytes:.1f} times, with the weights of conv "
    f"({weights / 1e6:.2f} MB) {(before_bytes + weights) / (after_bytes + weights):.1f}"
)
assert before_bytes == 3 * after_bytes

# %% [markdown]
# The claim has ten times as many bytes, and its factor of 3.6 is neither of these.

# %% [markdown]
# ### Norms
#
# Layer norm written out is two reductions with arithmetic around them. The name for it exists, and so does a trap:
# torch's `var` divides by $n - 1$ if it is not told otherwise, and layer norm divides by $n$.


# %%
class Norm(nn.Module):
    """Layer norm by hand; `correction` is what the variance takes off n."""

    def __init__(self, correction):
        super().__init__()
        self.correction = correction

    def forward(self, x, weight, bias):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(x.var(-1, keepdim=True, correction=self.correction) + 1e-5)
        return centred * scale * weight + bias


x, weight, bias = torch.randn(512, 256), torch.rand(256), torch.randn(256)
right, nearly = trace(Norm(0), x, weight, bias), trace(Norm(1), x, weight, bias)
named = rewrites.layer_norm(trace(Norm(0), x, weight, bias))
unnamed = rewrites.layer_norm(trace(Norm(1), x, weight, bias))
print(cost(right, x, weight, bias), cost(named, x, weight, bias), sep="\n")
off = (nearly(x, weight, bias) - right(x, weight, bias)).abs().max()
print(f"with n - 1 the result is off by {off:.4f}, and the rewrite left that one alone")
assert torch.allclose(right(x, weight, bias), named(x, weight, bias), atol=1e-5)
assert cost(named, x, weight, bias).launches == 1
assert len(unnamed.graph.nodes) == len(nearly.graph.nodes) and off > 1e-3
diff(right, named, title="Eight nodes with a name")

# %% [markdown]
# ### Attention
#
# Attention is a group whose fusion gains a lot. For $n$ tokens the scores are an $n \times n$ matrix, far larger
# than all inputs and outputs, and five kernels write and read it:


# %%
class Attention(nn.Module):
    def forward(self, q, k, v):
        scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
        return F.softmax(scores, -1) @ v


class OneCall(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


qkv = torch.randn(3, 1, 8, 1024, 64).unbind()
written, named = trace(Attention(), *qkv), trace(OneCall(), *qkv)
print(f"traffic {bytes_moved(written, *qkv)!r} → {bytes_moved(named, *qkv)!r}")
print(f"peak memory {peak_memory(written, *qkv)!r} → {peak_memory(named, *qkv)!r}")
assert torch.allclose(written(*qkv), named(*qkv), atol=1e-5)
assert bytes_moved(written, *qkv) > 10 * bytes_moved(named, *qkv)
timed({"written out": written, "one call": named}, *qkv, repeats=5)

# %% [markdown]
# By the rules above this group is *not* one kernel. A softmax has two reductions, and each must have seen the whole row
# before the next step can begin. FlashAttention (2022) avoids that by algebra. It keeps the largest score, the sum and
# the result so far; when it finds a larger score, it rescales the old sums as if that score had been known from the
# start. So it can process a row block by block, and never stores a row of scores:


# %%
def streamed(q, k, v, block=128):
    """softmax(q kᵀ / √d) v, with k and v seen once, a block at a time."""
    largest = torch.full((*q.shape[:-1], 1), -torch.inf)
    total, result = torch.zeros_like(largest), torch.zeros_like(q)
    for keys, values in zip(k.split(block, -2), v.split(block, -2), strict=True):
        scores = q @ keys.transpose(-2, -1) / q.shape[-1] ** 0.5
        now = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights, keep = (scores - now).exp(), (largest - now).exp()
        total, result = (
            total * keep + weights.sum(-1, keepdim=True),
            result * keep + weights @ values,
        )
        largest = now
    return result / total


print(f"largest difference {(streamed(*qkv) - written(*qkv)).abs().max():.0e}")
assert torch.allclose(streamed(*qkv), written(*qkv), atol=1e-5)
assert torch.allclose(
    streamed(*(30 * t for t in qkv)), named(*(30 * t for t in qkv)), atol=1e-3
)

# %% [markdown]
# Matching attention has its own small print: the scale may be a multiplication, a division, or already in q; a mask may
# be added, or be filled in with −∞; a causal mask is a flag; a dropout between softmax and product must be 0 or known.
# That is exercise 4.

# %% [markdown]
# ## From a group to a kernel · stretch
#
# Now make the kernel. `passlab.kernels` turns a group into one function of TensorIR, the loop language of TVM (day 8),
# and compiles that for this machine. Fusing is *inlining*: a value of the group becomes an expression in the place
# where it is read, and has no buffer.

# %%
from passlab.relax import tvm

function = kernels.prim_func(five)
function.show()

# %%
text = function.script()
assert text.count("T.Buffer(") == 4 and "sblock_alloc_buffer" not in text, (
    "three inputs, one output, nothing between"
)

# %% [markdown]
# Five operations, one loop nest, one statement in it. Broadcasting has become subscripts: `scale` is read at the column
# alone. Called from torch, no tensor is copied on the way in or out. DLPack, a protocol that tensor libraries share, hands
# over the address, so that TVM reads torch's own memory:

# %%
x, scale, shift = torch.randn(512, 256), torch.rand(256), torch.randn(256)
tvm_view = tvm.runtime.from_dlpack(x)
x[0, 0] = 42
assert tvm_view.numpy()[0, 0] == 42
one = kernels.kernel(five)
assert torch.allclose(one(x, scale, shift), five(x, scale, shift), atol=1e-5)
print(
    repr(launches(one, x, scale, shift)),
    repr(bytes_moved(kernels.fused(five, whole), x, scale, shift)),
    sep="\n",
)


# %% [markdown]
# A kernel also has to be right for unusual inputs: sizes that no vector length divides, one element and none,
# half-precision and integer dtypes, operands with gaps between their elements or with transposed strides.


# %%
def agrees(x, *others):
    """Does the kernel of `Five` give what torch gives, and its dtype and shape?"""
    gm = trace(Five(), x, *others)
    result, eager = kernels.kernel(gm)(x, *others), gm(x, *others)
    near = 1e-2 if eager.dtype in (torch.float16, torch.bfloat16) else 1e-5
    return (
        result.dtype == eager.dtype
        and result.shape == eager.shape
        and torch.allclose(result, eager, near, near)
    )


wide = torch.randn(14, 26)
CASES = {
    "odd sizes": (torch.randn(7, 13), torch.rand(13), torch.randn(13)),
    "one element": (torch.randn(1), torch.rand(1), torch.randn(1)),
    "nothing": (torch.randn(0, 5), torch.rand(5), torch.randn(5)),
    "both broadcast": (torch.randn(4, 1), torch.rand(3, 1, 5), torch.tensor(2.0)),
    "float16": tuple(torch.randn(3, 8, 8).half()),
    "bfloat16": tuple(torch.randn(3, 8, 8).bfloat16()),
    "int32": tuple(torch.randint(-9, 9, (3, 8, 8), dtype=torch.int32)),
    "transposed": (wide.t(), torch.rand(14), torch.rand(14)),
    "every second": (wide[::2, ::2], torch.rand(13), torch.rand(13)),
}
results = {name: agrees(*inputs) for name, inputs in CASES.items()}
print(
    *(f"{name:<16} {'agrees' if ok else 'DIFFERS'}" for name, ok in results.items()),
    sep="\n",
)
assert all(results.values())

# %% [markdown]
# Where there is a GPU, the same function is compiled for CUDA, its loops bound to threads; a second way goes through
# Triton, a Python language for such kernels. Without one this cell prints a message.

# %%
if torch.cuda.is_available():
    inputs = [t.cuda() for t in large]
    names = [
        name
        for name in kernels.BACKENDS
        if name == "tvm" or importlib.util.find_spec(name)
    ]
    backends = {
        name: kernels.kernel(five, device="cuda", backend=name) for name in names
    }
    assert all(
        torch.allclose(run(*inputs), five(*inputs), atol=1e-5)
        for run in backends.values()
    )
    print(timed({"eager": five, **backends}, *inputs, repeats=9))
else:
    print("There is no CUDA GPU here.")

# %% [markdown]
# ## Measured · stretch
#
# Sixteen million floats, five candidates: eager torch, the kernel, both of them into memory that is already allocated,
# and `torch.compile`, which fuses by its own rules. And a copy, which moves the fewest bytes that any of them could.

# %%
fused_five = kernels.fused(five, whole)
compiled = torch.compile(Five())
result, _ = buffers
assert torch.allclose(fused_five(*large), five(*large), atol=1e-5)
assert torch.allclose(compiled(*large), five(*large), atol=1e-5)
clock = timed(
    {
        "eager": five,
        "eager, into buffers": lambda *inputs: five_into(*buffers, *inputs),
        "torch.compile": compiled,
        "our kernel": fused_five,
        "our kernel, into a buffer": lambda *inputs: one(*inputs, out=[result]),
        "copy": lambda x, *_: result.copy_(x),
    },
    *large,
    repeats=5,
)
assert clock["our kernel"].ratio < 0.8
clock

# %% [markdown]
# Compare like with like. With memory that is already allocated, one kernel gains about as much time as it saves bytes.
# With fresh memory all of them pay the third bill, and eager torch pays it five times. The chart below shows the bytes,
# and the place of the kernel under the roofline.

# %%
share = clock["copy"].min / clock["our kernel, into a buffer"].min
print(f"the kernel reaches {share:.0%} of the speed of a copy")
per_node, in_one = bytes_moved(five, *large), bytes_moved(fused_five, *large)
traffic({"five kernels": per_node.detail, "one kernel": in_one.detail})

# %%
points |= {
    "one kernel": (5 * elements, int(in_one), clock["our kernel, into a buffer"].min)
}
roofline(points, machine)

# %% [markdown]
# ## When not to fuse · stretch
#
# "Fuse as much as you can" is common advice. Four ways to lose with it, each measured or counted.
#
# **Fusing too deep.** A product of matrices, then bias and relu. The product wants its loops in the order i, k, j: the
# innermost walks along rows, and the compiler makes vectors of it. But in that order no element of a row is finished
# before the whole row is. To put bias and relu innermost, right after the element they need, k has to be inside j.
# Below, TVM's `te` writes a tensor as the formula of its elements, which becomes loops, and a *schedule* moves these
# loops (more on day 8).

# %%
size = 384
te, most = tvm.te, tvm.tirx.max


def layer(n):
    """relu(A·B + bias) as loops, not yet scheduled."""
    a, b, bias = (
        te.placeholder(shape, name=name)
        for name, shape in (("A", (n, n)), ("B", (n, n)), ("bias", (n,)))
    )
    k = te.reduce_axis((0, n), "k")
    c = te.compute(
        (n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product"
    )
    d = te.compute((n, n), lambda i, j: most(c[i, j] + bias[j], 0.0), name="relu")
    return te.create_prim_func([a, b, bias, d])


def loops(order, fuse_at):
    """The layer with the product's loops in this order.

    Bias and relu are inside one of them, or after all of them.
    """
    schedule = tvm.s_tir.Schedule(layer(size))
    product, relu = schedule.get_sblock("product"), schedule.get_sblock("relu")
    loop = dict(zip("ijk", schedule.get_loops(product), strict=True))
    schedule.reorder(*(loop[name] for name in order))
    if fuse_at:
        schedule.reverse_compute_at(relu, loop[fuse_at])
    return schedule.mod


# %%
layers = {
    "unfused, i k j": loops("ikj", None),
    "fused at j, i j k": loops("ijk", "j"),
    "fused at i, i k j": loops("ikj", "i"),
}
layers["fused at j, i j k"].show()

# %%
bet = guess("Which of the three versions is the slowest?", ..., among=tuple(layers))

# %% tags=["hide-output"]
a, b, bias, result = (
    torch.randn(size, size),
    torch.randn(size, size),
    torch.randn(size),
    torch.empty(size, size),
)
runs = {name: tvm.compile(module, host())["main"] for name, module in layers.items()}
inputs = [tvm.runtime.from_dlpack(t) for t in (a, b, bias, result)]
for name, run in runs.items():
    run(*inputs)
    assert torch.allclose(result, torch.relu(a @ b + bias), atol=1e-3), name
clock = timed(runs, *inputs, repeats=5)
assert clock["fused at j, i j k"].ratio > 3
bet.compare(max(layers, key=lambda name: clock[name].median))
clock

# %% [markdown]
# The deepest fusion is the slowest by far. It saved a pass over a small matrix, and paid with the loop order of the
# product. The third version shows the way out: fuse one level further up, a row at a time. The row is still in the
# cache, and the order is kept. How much that brings depends on the sizes: this product is right of the ridge.

# %% [markdown]
# **Across a change of shape.** Pooling after a convolution makes the picture smaller, and by the rules above it is a
# kernel of its own: both have loops of their own. Which elements of the convolution does an element of the pooling
# read? With windows of 2 × 2 that do not overlap, each is read once; with windows of 3 × 3 in steps of one, up to nine
# times, and each time it would be computed again:

# %%
for name, window in {
    "2 × 2, steps of 2": (2, 2),
    "3 × 3, steps of 2": (3, 2),
    "3 × 3, steps of 1": (3, 1),
}.items():
    mask = reads(lambda x, w=window: F.avg_pool2d(x[None, None], *w)[0, 0], 8, 8)
    print(f"{name:<18} reads of an element: {sorted(set(mask.sum(0).tolist()))}")
assert reads(lambda x: F.avg_pool2d(x[None, None], 2)[0, 0], 8, 8).sum(0).max() == 1

# %% [markdown]
# So the first may be fused, if the convolution is computed one level further up, as above: two of its rows at a time,
# which make one row of the result. TVM moves the loops, and finds out by itself which part is needed there:


# %%
def conv_pool(n, channels=8):
    """The largest of each 2 × 2 window of a convolution as loops, not yet scheduled."""
    image = te.placeholder((channels, n + 2, n + 2), name="image")
    kernel = te.placeholder((channels, channels, 3, 3), name="kernel")
    lengths = {"c": channels, "i": 3, "j": 3, "di": 2, "dj": 2}
    c, i, j, di, dj = (te.reduce_axis((0, m), name) for name, m in lengths.items())
    conv = te.compute(
        (channels, n, n),
        lambda o, y, x: te.sum(image[c, y + i, x + j] * kernel[o, c, i, j], [c, i, j]),
        name="conv",
    )
    pool = te.compute(
        (channels, n // 2, n // 2),
        lambda o, y, x: te.max(conv[o, 2 * y + di, 2 * x + dj], [di, dj]),
        name="pool",
    )
    return te.create_prim_func([image, kernel, pool])


def row_by_row(function):
    schedule = tvm.s_tir.Schedule(function)
    row = schedule.get_loops(schedule.get_sblock("pool"))[1]
    schedule.compute_at(schedule.get_sblock("conv"), row)
    return schedule.mod


row_by_row(conv_pool(64)).show()

# %% [markdown]
# The last step is to make the buffer between as small as what is in it at one time:

# %%
LOWER = "LowerInitBlock PlanAndUpdateBufferAllocationLocation ConvertBlocksToOpaque"
lower = tvm.transform.Sequential(
    [
        getattr(tvm.s_tir.transform, name)()
        for name in (*LOWER.split(), "CompactBufferAllocation")
    ]
)
BOTH = {
    "one after the other": tvm.s_tir.Schedule(conv_pool(64)).mod,
    "row by row": row_by_row(conv_pool(64)),
}
for name, module in BOTH.items():
    (line,) = [s for s in lower(module).script().splitlines() if "alloc_buffer" in s]
    print(f"{name:<20}{line.strip()}")
assert "(1, 2, 64)" in line

# %%
image, kernel, result = (
    torch.randn(8, 66, 66),
    torch.randn(8, 8, 3, 3),
    torch.empty(8, 32, 32),
)
tvm.compile(row_by_row(conv_pool(64)), host())["main"](
    *map(tvm.runtime.from_dlpack, (image, kernel, result))
)
expected = F.max_pool2d(F.conv2d(image[None], kernel), 2)[0]
assert torch.allclose(result, expected, atol=1e-3)

# %% [markdown]
# **Computing again.** Fusing is inlining, and an inlined value is computed wherever it is read. A broadcast and a fork
# read a value more than once. Start with a broadcast. Relay's rules put this into one kernel:


# %%
class Late(nn.Module):
    def forward(self, table, row):
        return table + torch.sin(torch.exp(row))


# %%
# %%beside relay
late = relay.add(
    relay.var("table", shape=(4096, 1024)),
    relay.sin(relay.exp(relay.var("row", shape=(1024,)))),
)
print(fused(late))
assert len(fused(late)) == 1

# %%
table, row = torch.randn(4096, 1024), torch.randn(1024)
late = trace(Late(), table, row)
everything = kernels.fused(late, [["exp", "sin", "add"]])
before_it = kernels.fused(late, [["exp", "sin"]])
result = torch.empty_like(table)
assert torch.allclose(everything(table, row), before_it(table, row), atol=1e-5)
print(
    f"exp and sin are computed {table.numel():,} times in one kernel, "
    f"{row.numel():,} times in two"
)
print(
    repr(bytes_moved(everything, table, row)),
    "against",
    repr(bytes_moved(before_it, table, row)),
)
clock = timed({"one kernel": everything, "two": before_it}, table, row, repeats=5)
assert clock["two"].ratio < 0.5
clock

# %% [markdown]
# 4096 rows, and each of them works out the same sines again. The traffic that this saved is a row.
#
# Then a fork. `y + y.flip(-1)` reads each element of y for two of the result. In one kernel y is computed twice; in two
# it is written and read back. Which costs more depends on y:


# %%
class Mirror(nn.Module):
    """y and the mirror image of each of its rows, added, where y = work(x)."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def forward(self, x):
        y = self.work(x)
        return y + y.flip(-1)


WORK = {
    "cheap": lambda x: torch.relu(x) + 1,
    "costly": lambda x: torch.sin(torch.exp(x)) + 2,
}
forked, ratio = {}, {}
for name, work in WORK.items():
    gm = trace(Mirror(work), table)
    *making, mirrored, total = [
        node.name for node in gm.graph.nodes if node.op.startswith("call_")
    ]
    forked[name] = (
        kernels.fused(gm, [making, [mirrored, total]]),
        kernels.fused(gm, [[*making, mirrored, total]]),
    )
    clock = timed(
        dict(zip(("kept", "computed again"), forked[name], strict=True)),
        table,
        repeats=3,
        warmup=1,
    )
    ratio[name] = clock["computed again"].ratio
    print(f"{name}: in one kernel {ratio[name]:.2f} times as long as in two")
assert ratio["cheap"] < ratio["costly"] and ratio["costly"] > 1.2

# %% [markdown]
# **Keeping too much.** A value between two operations of a kernel is in a register, and there are few registers. If
# more values are live than fit, the compiler spills some to the stack and loads them back. The machine code shows how
# often. Below, n values are all needed twice: for their sum, and after that once more.


# %%
class Twice(nn.Module):
    """The squares of the shares that n values have in their sum, added up."""

    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        parts = [torch.abs(x - i) + 1 for i in range(self.n)]
        whole = torch.reciprocal(sum(parts[1:], parts[0]))
        return sum(
            (torch.square(part * whole) for part in parts[1:]),
            torch.square(parts[0] * whole),
        )


def on_the_stack(gm):
    """How many instructions of the kernel read or write the stack."""
    built = tvm.compile(tvm.IRModule({"main": on_cpu(kernels.prim_func(gm))}), host())
    return sum(
        "rsp" in line or "[sp" in line
        for line in built.mod.inspect_source("asm").splitlines()
    )


# %%
x = torch.rand(2**16)
place, counted = torch.empty_like(x), {}
for n in (8, 32, 48):
    gm = trace(Twice(n), x)
    counted[n] = on_the_stack(gm)
    clock = timed({"kernel": kernels.kernel(gm)}, x, repeats=7)
    each = clock["kernel"].min / x.numel() / n
    print(
        f"{n:>2} values: {counted[n]:>3} instructions use the stack, "
        f"{each * 1e9:.3f} ns for each value of an element"
    )
assert counted[8] <= counted[32] < counted[48]

# %% [markdown]
# On a CPU the stack stays in the fastest cache, and the loss is mild, as the last column shows. On a GPU registers are
# shared out among the threads, and a multiprocessor of NVIDIA's has 65,536 of them, for up to 2,048 threads:

# %%
for each_thread in (16, 32, 64, 128, 255):
    threads = min(2048, 65536 // each_thread // 32 * 32)  # threads come in warps of 32
    print(f"{each_thread:>3} registers for a thread: {threads:>5,} threads at a time")
assert min(2048, 65536 // 64) == 1024

# %% [markdown]
# Few threads cannot hide the latency of memory: a group can be too large for its own good. (Relay's limit on
# the size of a group, which you meet on day 7, was set for the compiler's sake: large groups overflowed its stack while
# they were lowered, and took long to compile.)

# %% [markdown]
# ## A model that decides · stretch
#
# All of this fits into one line. A kernel costs its launch, and then its bytes or its operations, whichever takes
# longer, with every operation counted as often as it is done:
#
# $$T = \sum_{\text{kernels}} \Big(L + \max\big(\tfrac{\text{bytes}}{B},\ \sum_i n_i\, t_i\big)\Big)$$
#
# $L$ and $B$ are the machine's. $t_i$, the time of one operation on one element, is measured once for each kind, on
# one core and on data that fits into its cache. Here for the two kinds of work above:


# %%
def in_cache(kernel, sample):
    """Return a call of the kernel that writes into the same tensor each time."""
    place = torch.empty_like(sample)
    return lambda: kernel(sample, out=[place])


one, many = table[:1, :1], table[:16]  # few enough for one core
calls = {}
for name, work in WORK.items():
    alone = kernels.kernel(trace(work, one))
    calls |= {name: in_cache(alone, many), f"{name}, start": in_cache(alone, one)}
clock = timed(calls, repeats=40)  # they take turns: a busy moment hits all
cores = torch.get_num_threads()  # share the work on the whole table

each = {}
for name in WORK:
    start = clock[f"{name}, start"].min
    each[name] = max(clock[name].min - start, 0) / many.numel()
    print(
        f"{name:<7} {each[name] * 1e9:5.2f} ns for an element, "
        f"{start * 1e6:.1f} µs to start"
    )
assert each["cheap"] < each["costly"]


# %%
def predicted(gm, computing):
    """Seconds for a graph of kernels; `computing`: how long each computes, in order."""
    moved = bytes_moved(gm, table).detail.values()
    return sum(
        start + max(n / machine.bandwidth, busy)
        for n, busy in zip(moved, computing, strict=True)
    )


forecast = {}
for name, (two_kernels, one_kernel) in forked.items():
    work = table.numel() * each[name] / cores
    forecast[name] = predicted(one_kernel, [2 * work]) / predicted(
        two_kernels, [work, 0]
    )
    print(
        f"{name:<7} one kernel against two: predicted {forecast[name]:.2f}, "
        f"measured {ratio[name]:.2f}"
    )
assert forecast["cheap"] < forecast["costly"]
assert 1 < forecast["costly"] <= 2, "the work is done twice"

# %% [markdown]
# The model need not be exact; it has to choose right where the choice matters. In exercise 6 your model has to decide
# only cases in which one side is far ahead. Measurements also find what a model leaves out: on day 8 a tuner learns its
# model from them.

# %% [markdown]
# ## Key takeaways
#
# - A node costs a launch and its bytes. Fusing saves the bytes of every value between, and all launches but one.
# - Small tensors: launches decide. Large ones: bytes. Right of the roofline's ridge: neither, and fusion buys little.
# - An op pattern says which elements an element reads. A post-dominator is the node where all values computed from a
#   value are combined again. Together they find groups; a reduction ends one.
# - Legality is not profitability: no path out of the group and back, nor through other groups; no effects; one device.
# - Find, check, rewrite. The check assumes nothing about how a group was found.
# - Named groups (GEMM, norms, attention) are patterns with many preconditions. Attention needs algebra, not only loops.
# - Fusing is inlining: no buffer, and so computed again wherever it is read again. Broadcasts, forks and loop orders
#   are where that loses; a model of launches, bytes and operations decides, and then a clock.
#
# ## Further reading
#
# - "Roofline: An Insightful Visual Performance Model for Multicore Architectures", Samuel Williams, Andrew Waterman,
#   David Patterson, Communications of the ACM 2009.
# - "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning", Tianqi Chen, Thierry Moreau, Ziheng Jiang and
#   others, OSDI 2018.
# - "Relay: A New IR for Machine Learning Frameworks", Jared Roesch, Steven Lyubomirsky, Logan Weber, Josh Pollock,
#   Marisa Kirisame, Tianqi Chen, Zachary Tatlock, MAPL 2018.
# - "DNNFusion: Accelerating Deep Neural Networks Execution with Advanced Operator Fusion", Wei Niu, Jiexiong Guan,
#   Yanzhi Wang, Gagan Agrawal, Bin Ren, PLDI 2021.
# - "Triton: An Intermediate Language and Compiler for Tiled Neural Network Computations", Philippe Tillet, H. T. Kung,
#   David Cox, MAPL 2019.
# - "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", Tri Dao, Daniel Y. Fu, Stefano Ermon,
#   Atri Rudra, Christopher Ré, NeurIPS 2022.
# - "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and Graph Compilation",
#   Jason Ansel, Edward Yang, Horace He and others, ASPLOS 2024.
# - "A Simple, Fast Dominance Algorithm", Keith D. Cooper, Timothy J. Harvey, Ken Kennedy, Rice University 2001.
#
# ## Tomorrow
#
# The values between groups are still written to memory. Day 5 decides where: which of them are live at the same time,
# which may share memory, how few bytes a model can run in, and when it is cheaper to compute a value again than to keep
# it.
