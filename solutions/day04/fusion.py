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
# # Day 4 · Fusion: exercises
#
# Seven questions. The core is questions 1 and 2 and the plain cases of 6, about 80 minutes; the rest, about 360 minutes,
# is stretch: harder, and for extra credit. Read the lesson first: [day04_fusion.ipynb](../../course/day04_fusion.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day04.chains")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import itertools
import math
import operator
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from IPython.display import display
from torch import fx, nn
from torch.nn import functional as F

from passlab import (
    bytes_moved,
    check,
    diff,
    draw,
    exercises,
    hint,
    launches,
    models,
    progress,
    smaller,
    timed,
    trace,
)
from passlab.drawing import roofline, traffic
from passlab.fx.effects import effects, memory_order, written
from passlab.fx.ops import linear_act
from passlab.fx.patterns import Pattern, pattern
from passlab.given.day04.cost import MACHINE
from passlab.kernels import fused
from passlab.measure import peak_memory, seconds
from passlab.measure.machine import measure_machine
from passlab.relax import tvm

# %%
progress("day04")

# %% [markdown]
# ## 1 · Chains of element-wise operations
#
# Five element-wise operations in a row read and write the tensor five times; as one kernel, once. Which of them can be
# combined? Here a kernel has *one* result, the value of its last node. The other values are never written to memory, so
# no node outside may use them. (Kernels with several results exist: torch.compile makes them, TVM's FuseOps does not.)


# %%
def chains(gm: fx.GraphModule) -> list[list[str]]:
    """Find the largest groups of element-wise operations that can be one kernel.

    A kernel has one result.

    In:  a graph with shapes on its nodes.
    Out: a list of groups; a group is a list of names of nodes. A group of one saves
         nothing and may be left out.
    In a group: only operations whose `pattern` is ELEMWISE or BROADCAST. Every value
         but that of the last node is read in the group, by one member or by several,
         and nowhere else; returning it is reading it. The group may read as many values
         from outside as it likes.
    In no group: what has effects (its pattern is OPAQUE), and what touches memory that
         the program writes, as its operand or as its result:
         `passlab.fx.effects.written(gm.graph)` is the set of the nodes whose memory is
         written.
    Largest: no two groups, or a group and an operation, could be one.
    Not to be called: passlab.exercises.day04.chains.largest_groups.

    Example:  a = x * 2;  b = exp(a);  c = relu(b) + b;  return sum(c), tanh(c)
              [["mul", "exp", "relu", "add"]]: b is read twice, both times inside;
                  c leaves, so tanh is on its own.
    """
    ### BEGIN SOLUTION
    memory, last = written(gm.graph), {}  # last: node -> the last node of its group
    for node in reversed(gm.graph.nodes):
        if pattern(node) <= Pattern.BROADCAST and memory.isdisjoint(
            [node, *node.all_input_nodes]
        ):
            # Readers come first in this walk: the node joins their group if they are
            # all in the same one.
            readers = {last.get(reader) for reader in node.users}
            last[node] = (
                readers.pop() if len(readers) == 1 and None not in readers else node
            )
    groups = {}
    for node in gm.graph.nodes:
        if node in last:
            groups.setdefault(last[node], []).append(node.name)
    return [group for group in groups.values() if len(group) > 1]
    ### END SOLUTION


# %%
check("day04.chains", chains)


# %% [markdown]
# A GELU, spelled out: your groups in frames, and as kernels that run.


# %%
with suppress(Exception):
    x = torch.randn(64, 64)
    gelu = trace(models.TanhGELU(), x)
    after = fused(gelu, chains(gelu))
    display(draw(gelu, groups=chains(gelu)))
    torch.testing.assert_close(after(x), gelu(x))
    print(f"{launches(gelu, x)} kernels become {launches(after, x)}")

# %% [markdown]
# ## 2 · May this group be one kernel?
#
# A kernel starts when all its inputs are ready, and its results are ready when it ends. So a group must be *convex*: no
# path may lead out of it and back into it. Memory counts, too: a node that reads memory which another one overwrites
# has to stay on its side of the write, although neither reads the other's value. `memory_order(graph)[node]` (from
# `passlab.fx.effects`) lists the nodes that must run before a node for this reason; for most nodes the list is empty.


# %%
def obstacle(gm: fx.GraphModule, group: list[str]) -> list[str] | None:
    """Find out why the group cannot become one kernel; None if it can.

    In:  a graph, and names of some of its calls, connected or not, in any order.
    Out: None, or a list of names that shows why not:
         [a]               a member that does more than compute: it draws, writes, may
                           stop the program, or is unknown;
         [a, u, …, w, b]   a way out of the group and back: a and b are members, all
                           between them are not, and each node reads the value of the
                           one before it, or must stay behind it for the memory they
                           touch.
         Where there are several reasons, any one will do.
    Not to be called: passlab.exercises.day04.convex.way_back,
         passlab.kernels.groups._way_back, passlab.kernels.groups._why_no_order.

    Example:  e = exp(x);  s = sum(e);  y = e / s
              ["exp", "truediv"] cannot be: ["exp", "sum_1", "truediv"].
                  With "sum_1" in the group it can.
    """
    ### BEGIN SOLUTION
    inside = {node for node in gm.graph.nodes if node.name in group}
    # One walk in graph order: note for each node outside how it was reached from the
    # group. The first member that follows such a node closes a way out and back.
    came_from, memory = {}, memory_order(gm.graph)
    for node in gm.graph.nodes:
        if node in inside and effects(node):
            return [node.name]
        behind = [*node.all_input_nodes, *memory[node]]
        reached = [
            n for n in behind if n in came_from or (n in inside and node not in inside)
        ]
        if reached and node not in inside:
            came_from[node] = reached[0]
        elif reached:
            path = [node, reached[0]]
            while path[-1] not in inside:
                path.append(came_from[path[-1]])
            return [n.name for n in reversed(path)]
    return None
    ### END SOLUTION


# %%
check("day04.convex", obstacle)


# %% [markdown]
# Softmax, spelled out: each pair of its operations, and the obstacle:


# %%
class Softmax(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)


with suppress(Exception):
    softmax = trace(Softmax(), torch.randn(2, 3))
    calls = [node.name for node in softmax.graph.nodes if node.op.startswith("call_")]
    for pair in itertools.combinations(calls, 2):
        print(
            f"{' and '.join(pair):<20} "
            f"{' → '.join(obstacle(softmax, list(pair)) or ['may be one kernel'])}"
        )

# %% [markdown]
# ## 3 · Linear, bias and activation · stretch
#
# In every layer of every transformer, a sum and an activation follow a matrix product. Each of them reads and writes
# the whole result again, for one addition or one function of each number. Libraries have one kernel for all three (an
# *epilogue* of the product, in the words of cuBLASLt and CUTLASS); here it is `passlab.fx.ops.linear_act`:
#
#     linear_act(x, weight, bias, "relu")      # or "gelu", "gelu_tanh", "silu"; weight is (outputs, inputs)
#
# The formula is short, but it has many spellings.


# %%
def fuse_linear_act(gm: fx.GraphModule) -> fx.GraphModule:
    """`act(x @ w.t() + b)` = `linear_act(x, w, b, act)`.

    The values in between must not have other users.

    In:  a graph with shapes and dtypes on its nodes (`node.meta["tensor_meta"]`). To be
         found:
         - the product: a module of type nn.Linear (exactly), F.linear, x @ w.t(), or
           torch.addmm(b, x, w.t()) without alpha and beta. @ may be torch.matmul,
           torch.mm or a method; w.t() may be w.T, w.mT, or transpose(0, 1) as function
           or method, with its two dimensions in either order, counted from either end;
         - the bias: it is in the product, or is added to one without bias (+, torch.add
           or .add, on either side, no alpha), or there is none;
         - the activation: relu (nn.ReLU, torch.relu, F.relu, .relu()), gelu or
           gelu_tanh (nn.GELU, F.gelu, by `approximate`), silu (nn.SiLU, F.silu), in
           place or not.
         Modules and functions of F may be given their operands by name.
    Out: each such group is one call of linear_act. Parameters are shared, not copied; a
         parameter p of the module fc is read by `gm.graph.get_attr("fc.p")`. Nodes that
         are no longer used are gone.
    Stays:
         - a product or sum that another node reads, or that is an output:
               y = m.fc(x);  relu(y) + y
         - a bias not of shape (outputs,), a second bias:
               relu(m.fc(x) + b)
         - a weight that is not a matrix, or not transposed:
               relu(x @ w.transpose(1, 1))
         - operands that do not have one floating-point dtype:
               relu(x @ w.t() + b.double())
         - an x, weight or bias whose memory the program writes (`written(gm.graph)`; a
           parameter of a module is written if a get_attr of its path is), unless only a
           fused activation writes it:
               y = m.fc(x);  x.add_(1);  relu(y)
         - all other activations; other calls of a shared module:
               relu6(m.fc(x))

    Example:  y = x @ w.t();  s = b + y;  return relu(s)
    becomes   return linear_act(x, w, b, "relu")
    """
    ### BEGIN SOLUTION
    for node in list(gm.graph.nodes):
        name = activation(gm, node)
        layer = name and read_once(operand(node)) and linear_layer(gm, operand(node))
        if not layer:
            continue
        x, weight, bias, inner = layer
        # One call reads all operands at one time: it cannot see a write that comes in
        # between. Ask anew: an activation that is fused by now no longer writes.
        memory = written(gm.graph)
        # Parameters of modules are given by their path.
        memory |= {node.target for node in memory if node.op == "get_attr"}
        if any(n in memory for n in (x, weight, bias)):
            continue
        with gm.graph.inserting_before(node):
            weight, bias = (
                gm.graph.get_attr(n) if isinstance(n, str) else n
                for n in (weight, bias)
            )
            fused = gm.graph.call_function(linear_act, (x, weight, bias, name))
        fused.meta = node.meta
        node.replace_all_uses_with(fused)
        for dead in (node, *inner):
            if not dead.users:
                gm.graph.erase_node(dead)
    gm.recompile()
    return gm


class Linear(NamedTuple):
    """A layer. A module's parameters are given by path.

    `nodes` are those that one call replaces, the last first.
    """

    x: Any
    weight: Any
    bias: Any
    nodes: list


CALLS = ("call_function", "call_method")
MATMULS = (operator.matmul, torch.matmul, torch.mm, "matmul", "mm")
ADDS = (operator.add, torch.add, "add")
TRANSPOSES = (torch.t, "t", torch.transpose, "transpose")
ACTIVATIONS = {
    torch.relu: "relu",
    F.relu: "relu",
    "relu": "relu",
    F.silu: "silu",
    F.gelu: "gelu",
}


def activation(gm: fx.GraphModule, node: fx.Node) -> str | None:
    """Return the name of the activation that a node calls, or None."""
    if node.op == "call_module":
        module = gm.get_submodule(node.target)
        name = {nn.ReLU: "relu", nn.SiLU: "silu", nn.GELU: "gelu"}.get(type(module))
        tanh = name == "gelu" and module.approximate == "tanh"
    else:
        name = ACTIVATIONS.get(node.target) if node.op in CALLS else None
        tanh = name == "gelu" and node.kwargs.get("approximate") == "tanh"
    return "gelu_tanh" if tanh else name


def operand(node: fx.Node) -> Any:
    """Return the first operand, given by place or by name."""
    return node.args[0] if node.args else node.kwargs["input"]


def read_once(node: Any) -> bool:
    """Return whether it is a node whose value is used once."""
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return False
    (reader,) = node.users
    return sum(n is node for n in (*reader.args, *reader.kwargs.values())) == 1


def linear_layer(gm: fx.GraphModule, node: fx.Node) -> Linear | None:
    """Return a layer, with its bias inside or added after it, or None."""
    if node.op not in CALLS or node.target not in ADDS or node.kwargs:
        layer = linear_product(gm, node)
        return layer if layer and fits_linear(gm, layer.weight, layer.bias) else None
    for y, b in (node.args, node.args[::-1]):
        layer = (
            linear_product(gm, y) if read_once(y) and isinstance(b, fx.Node) else None
        )
        if layer and layer.bias is None and fits_linear(gm, layer.weight, b):
            return Linear(layer.x, layer.weight, b, [node, *layer.nodes])
    return None


def linear_product(gm: fx.GraphModule, node: fx.Node) -> Linear | None:
    """Return a layer that is one op, or None."""
    if node.op == "call_module" and type(gm.get_submodule(node.target)) is nn.Linear:
        bias = gm.get_submodule(node.target).bias
        return Linear(
            operand(node),
            f"{node.target}.weight",
            None if bias is None else f"{node.target}.bias",
            [node],
        )
    if node.target is F.linear:
        operands = (
            dict(zip(("input", "weight", "bias"), node.args, strict=False))
            | node.kwargs
        )
        return Linear(
            operands["input"], operands["weight"], operands.get("bias"), [node]
        )
    if node.kwargs or node.op not in CALLS:
        return None
    if node.target in MATMULS and (weight := transposed(node.args[1])):
        return Linear(node.args[0], weight, None, [node, node.args[1]])
    if node.target is torch.addmm and (weight := transposed(node.args[2])):
        return Linear(node.args[1], weight, node.args[0], [node, node.args[2]])
    return None


def transposed(node: fx.Node) -> fx.Node | None:
    """Return w if the node is w.t() of a matrix w."""
    if node.kwargs or node.op not in CALLS:
        return None
    attribute = node.target is getattr and node.args[1] in ("T", "mT")
    turned = node.target in TRANSPOSES and (
        len(node.args) == 1 or (node.args[1] - node.args[2]) % 2
    )
    return node.args[0] if attribute or turned else None


def fits_linear(gm: fx.GraphModule, weight: Any, bias: Any) -> bool:
    """Return whether weight is a matrix and bias a vector of its outputs.

    All must have one floating-point dtype.
    """
    weight, bias = (
        operator.attrgetter(n)(gm)
        if isinstance(n, str)
        else n.meta["tensor_meta"]
        if n is not None
        else None
        for n in (weight, bias)
    )
    if len(weight.shape) != 2 or not weight.dtype.is_floating_point:
        return False
    return bias is None or (
        bias.dtype == weight.dtype and bias.shape == weight.shape[:1]
    )
    ### END SOLUTION


# %%
check("day04.linear-act", fuse_linear_act)

# %% [markdown]
# The second half of a transformer's block, with GELU as a module. The addition at the end reads the second layer's
# value without an activation, so that layer stays.


# %%
class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gelu, self.down = nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(self.gelu(self.up(x)))


with suppress(Exception):
    x = torch.randn(2, 8)
    display(
        diff(
            trace(MLP(), x),
            fuse_linear_act(trace(MLP(), x)),
            title="Linear, bias and activation",
        )
    )

# %% [markdown]
# ## 4 · Attention · stretch
#
# Between the two products there is a tokens × tokens matrix, the one value in a transformer that grows with the square
# of the text length. `F.scaled_dot_product_attention` processes it piece by piece and never has all of it in memory
# (FlashAttention: Dao et al., NeurIPS 2022; for q, k and v of four dimensions). Two properties of the op matter:
#
# - without `scale=` it divides by the root of the head's width; where the program has no scale, pass `scale=1.0`;
# - a boolean `attn_mask` is true where to **look**; the mask of `masked_fill` is true where not to.
#
# And a fully masked row has no largest score: the spelled-out program computes 0 / 0. The op gives zeros there.

# %%
q = torch.randn(1, 1, 512, 16)
scores = peak_memory(lambda q: torch.softmax(q @ q.mT, -1) @ q, q)
whole = peak_memory(lambda q: F.scaled_dot_product_attention(q, q, q, scale=1.0), q)
assert scores >= 512 * 512 * 4 > 4 * whole
print(f"most bytes in tensors at one time: written out {scores:,}, as one op {whole:,}")

blind = torch.ones(512, 512, dtype=torch.bool)
by_hand = torch.softmax((q @ q.mT).masked_fill(blind, -math.inf), -1) @ q
by_op = F.scaled_dot_product_attention(q, q, q, attn_mask=~blind, scale=1.0)
assert by_hand.isnan().all() and (by_op == 0).all()

# %% [markdown]
# So the law holds only where the program has a value: where the program gives NaN or infinity, the op may give
# anything.


# %%
def fuse_attention(gm: fx.GraphModule) -> fx.GraphModule:
    """Replace attention by one op, if the values in between have no other users:

    `softmax(q @ kᵀ * scale + mask) @ v` =
    `F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)`,
    wherever the left side is finite.

    In:  a graph with shapes and dtypes on its nodes (`node.meta["tensor_meta"]`).
         Functions, operators and methods of torch and F are the same op. To be found,
         in this order:
         - the scores: q @ kᵀ by @, matmul or bmm, with kᵀ a node that swaps the last
           two dimensions of k: transpose, mT, or permute of three or four dimensions;
         - a scale, or none: a Python number that q, the scores or both are multiplied
           with (on either side) or divided by; the scale is the product of both. If
           others read q * c too, it may be folded or stay as it is;
         - a mask, or none: a tensor of q's dtype that is added to the scaled scores (on
           either side); or a boolean one in masked_fill(mask, -inf), torch.where(mask,
           scores, -inf) or torch.where(mask, -inf, scores);
         - softmax over the last dimension (its number may be positive or negative;
           nn.Softmax is one, too);
         - any number of dropouts that draw nothing: training=False, p=0, or a module in
           eval mode;
         - the product with v by @, matmul or bmm.
         Softmax and dropout may be given their operands by name.
    Out: each attention is one call of F.scaled_dot_product_attention, with attn_mask
         (or is_causal) and scale. Nodes that are no longer used are gone; one more node
         may invert a boolean mask.
    Stays:
         - a dropout that draws:
               F.dropout(p, 0.1, True) @ v
         - scores or probabilities that others read, or that are an output:
               return p @ v, p
         - a scale after the mask; one that is a tensor; a division that rounds:
               softmax((s + m) * 0.5, -1)
         - another number than -inf:
               s.masked_fill(m, -1e9)
         - softmax with a dtype, without a dimension, or over another one:
               softmax(s, -2)
         - a mask of fewer than two dimensions; one that makes the scores larger; an
           added one of another dtype than q's (also a boolean one, which adds 0 and 1):
               softmax(s + row, -1)
         - q, k, v not of 3 or 4 dimensions, not of the same leading ones, or not of one
           floating-point dtype:
               softmax(x @ x.mT, -1) @ x of a matrix x
         - reads of memory that the program writes (`written(gm.graph)`):
               p = …;  v.add_(1);  p @ v

    Example:  s = q @ k.transpose(1, 2) / 8;  p = softmax(s + m, -1);  return p @ v
    becomes   return scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.125)
    """
    ### BEGIN SOLUTION
    for node in list(gm.graph.nodes):
        match = attention(gm, node)
        if match is None:
            continue
        q, k, v, mask, inverted, scale, inner = match
        # One call reads everything at one time: it cannot see a write that comes in
        # between.
        memory = written(gm.graph)
        if any(n in memory for n in (q, k, v, mask, *inner)):
            continue
        with gm.graph.inserting_before(node):
            mask = (
                gm.graph.call_function(torch.logical_not, (mask,)) if inverted else mask
            )
            options = {"scale": scale} | ({} if mask is None else {"attn_mask": mask})
            fused = gm.graph.call_function(
                F.scaled_dot_product_attention, (q, k, v), options
            )
        fused.meta = node.meta
        node.replace_all_uses_with(fused)
        for dead in (node, *inner):
            if not dead.users:
                gm.graph.erase_node(dead)
    gm.recompile()
    return gm


class Attention(NamedTuple):
    """A match. `inverted`: the mask is True where it hides a score.

    The op's mask is True where it keeps one.
    """

    q: Any
    k: Any
    v: Any
    mask: Any
    inverted: bool
    scale: float
    nodes: list


class Scores(NamedTuple):
    """q @ kᵀ * scale, and the nodes that it consists of."""

    q: Any
    k: Any
    scale: float
    nodes: list


def forms(name: str, *more: Any) -> tuple:
    """Return a function of torch, the method of its name, and other forms of the op."""
    return (getattr(torch, name), name, *more)


PRODUCT = (*forms("matmul", operator.matmul), *forms("bmm"))
TIMES, OVER, PLUS = (
    forms("mul", operator.mul),
    forms("div", operator.truediv),
    forms("add", operator.add),
)
SOFTMAX, DROPOUT = forms("softmax", F.softmax), (torch.dropout, F.dropout)
SWAP, ORDER, FILL = forms("transpose"), forms("permute"), forms("masked_fill")


def inside(node: Any, *ops: Any) -> bool:
    """Return whether the node calls one of these and is used once.

    `read_once`, `operand` and `CALLS` are those of question 3.
    """
    return read_once(node) and node.op in CALLS and node.target in ops


def attention(gm: fx.GraphModule, node: fx.Node) -> Attention | None:
    """Return the attention that ends in a node, or None."""
    if node.op not in CALLS or node.target not in PRODUCT or node.kwargs:
        return None
    at, v = node.args
    inner = []
    while is_dropout(at):
        inner.append(at)
        at = operand(at)
    scores = softmax_operand(gm, at)
    inner.append(at)
    # An addition can be a mask or part of the scores: try each way to read it as a
    # mask, then without one.
    for masked, mask, inverted in (*masked_scores(scores), (scores, None, False)):
        product = scaled_product(masked)
        if product is None:
            continue
        q, k, scale, nodes = product
        if fits_attention(q, k, v, mask, scores):
            return Attention(
                q,
                k,
                v,
                mask,
                inverted,
                scale,
                [*inner, *([scores] if mask else []), *nodes],
            )
    return None


def is_dropout(node: Any) -> bool:
    """Return whether the node is a dropout that draws nothing and has one user."""
    if not read_once(node) or effects(node):
        return False
    if node.op == "call_module":
        return type(node.graph.owning_module.get_submodule(node.target)) is nn.Dropout
    return node.target in DROPOUT


def softmax_operand(gm: fx.GraphModule, node: Any) -> fx.Node | None:
    """Return the operand of a softmax over the last dimension, or None."""
    if not read_once(node):
        return None
    if node.op == "call_module":
        module = gm.get_submodule(node.target)
        dim = module.dim if type(module) is nn.Softmax else None
    else:
        arguments = dict(zip(("input", "dim"), node.args, strict=False)) | node.kwargs
        plain = (
            inside(node, *SOFTMAX)
            and len(node.args) <= 2
            and arguments.get("dtype") is None
        )
        dim = arguments.get("dim") if plain else None
    return (
        operand(node)
        if dim is not None and dim % len(shape_of(node)) == len(shape_of(node)) - 1
        else None
    )


def masked_scores(node: Any) -> Iterator[tuple]:
    """Yield each way to read a node as (scores, mask, whether the mask is inverted)."""
    if inside(node, *PLUS) and not node.kwargs:
        a, b = node.args
        yield from (
            (scores, mask, False)
            for scores, mask in ((a, b), (b, a))
            if dtype_of(mask) == dtype_of(scores)
        )
    elif inside(node, *FILL) and not node.kwargs:
        scores, mask, value = node.args
        yield from [(scores, mask, True)] * (value == -math.inf)
    elif inside(node, torch.where) and not node.kwargs:
        mask, a, b = node.args
        yield from [(a, mask, False)] * (b == -math.inf) + [(b, mask, True)] * (
            a == -math.inf
        )


def times_number(node: Any) -> tuple[Any, float]:
    """Return (y, factor) of a node y * c, c * y or y / c with a number c.

    (node, 1.0) for any other.
    """
    if (
        isinstance(node, fx.Node)
        and node.op in CALLS
        and node.target in (*TIMES, *OVER)
        and not node.kwargs
    ):
        for y, c in (node.args, node.args[::-1]):
            if isinstance(c, int | float):
                if node.target in TIMES:
                    return y, float(c)
                # c / y does not scale y.
                if y is node.args[0] and c:
                    return y, 1.0 / c
    return node, 1.0


def scaled_product(node: Any) -> Scores | None:
    """Return the scores that a node computes, or None."""
    product, scale = times_number(node)
    if not inside(product, *PRODUCT) or product.kwargs or not read_once(node):
        return None
    left, right = product.args
    q, more = times_number(left)
    nodes = [
        *([node] if product is not node else []),
        product,
        right,
        *([left] if q is not left else []),
    ]
    return Scores(q, swapped_keys(right), scale * more, nodes)


def swapped_keys(node: fx.Node) -> fx.Node | None:
    """Return k if the node swaps the last two dimensions of k."""
    if node.kwargs or node.op not in CALLS:
        return None
    if node.target is getattr:
        return node.args[0] if node.args[1] == "mT" else None
    if node.target not in (*SWAP, *ORDER):
        return None
    rank = len(shape_of(node))
    dims = [
        d % rank
        for d in (
            node.args[1] if isinstance(node.args[1], tuple | list) else node.args[1:]
        )
    ]
    # A transpose, written as a permutation: the order is that below only if it swaps
    # the last two.
    other = (
        dims
        if node.target in ORDER
        else [*range(rank - 2), *sorted(dims, reverse=True)]
    )
    return node.args[0] if other == [*range(rank - 2), rank - 1, rank - 2] else None


def shape_of(node: Any) -> tuple:
    """Return the shape of a node's value; () if it is not a tensor."""
    meta = node.meta.get("tensor_meta") if isinstance(node, fx.Node) else None
    return getattr(meta, "shape", ())


def dtype_of(node: Any) -> torch.dtype | None:
    """Return the dtype of a node's value, or None."""
    return (
        getattr(node.meta.get("tensor_meta"), "dtype", None)
        if isinstance(node, fx.Node)
        else None
    )


def fits_attention(q: Any, k: Any, v: Any, mask: Any, scores: fx.Node) -> bool:
    """Return whether ranks, leading dimensions and dtypes fit.

    The mask must not broadcast the scores.
    """
    if (
        len(shape_of(q)) not in (3, 4)
        or not shape_of(q)[:-2] == shape_of(k)[:-2] == shape_of(v)[:-2]
    ):
        return False
    if not dtype_of(q) == dtype_of(k) == dtype_of(v):
        return False
    # The op broadcasts the mask to the scores, but never the scores to the mask.
    rows = (*shape_of(q)[:-1], shape_of(k)[-2])
    return shape_of(scores) == rows and (
        mask is None or 2 <= len(shape_of(mask)) <= len(rows)
    )
    ### END SOLUTION


# %%
check("day04.attention", fuse_attention)

# %% [markdown]
# The block of GPT-2 in the zoo spells out its attention. After your pass the matrix of scores is gone:

# %%
with suppress(Exception):
    model = models.ZOO["gpt"]
    block = trace(model.build(), *model.inputs())
    after = fuse_attention(trace(model.build(), *model.inputs()))
    display(diff(block, after, title="Attention as one op"))

# %% [markdown]
# ## 5 · From a group to a kernel · stretch
#
# Now turn a group into a kernel. TensorIR is TVM's language for kernels: buffers, loops, stores. Here is y = exp(x) ·
# exp(x), with exp computed once: a value that is used twice is stored in a buffer of one element, which becomes a
# register. An expression that appears in two places is computed in both. After thirty lines like x = x * x it appears
# 2³⁰ times, and TVM visits each: the check then reports that your answer was still running.

# %%
TIR = tvm.tirx

source = TIR.decl_buffer((4,), "float32", "x", layout=None)
result = TIR.decl_buffer((4,), "float32", "y", layout=None)
power = TIR.decl_buffer((1,), "float32", "power", scope="local", layout=None)
i = TIR.Var("i", "int32")
lines = [
    TIR.AllocBuffer(power),
    TIR.BufferStore(power, TIR.exp(TIR.BufferLoad(source, [i])), [0]),
    TIR.BufferStore(
        result, TIR.BufferLoad(power, [0]) * TIR.BufferLoad(power, [0]), [i]
    ),
]
square = TIR.PrimFunc(
    [source, result], TIR.For(i, 0, 4, TIR.ForKind.SERIAL, TIR.SeqStmt(lines))
)
print(square)

# %% [markdown]
# An element of a buffer is an expression, and so is every combination of expressions: `a + b`, `-a`, `a > b` (operands
# of one type), `a.astype("float32")`, `TIR.const(2, "float32")`, `TIR.exp(a)`, `TIR.tanh`, `TIR.sigmoid`, `TIR.sqrt`,
# `TIR.abs`, `TIR.isnan`, `TIR.Select(condition, a, b)`, `TIR.And(p, q)`, `TIR.Or(p, q)`, `TIR.Not(p)`. A buffer without
# dimensions is loaded with `TIR.BufferLoad(buffer, [])`.
#
# Four things are easy to get wrong. **Broadcasting** aligns shapes at their last dimension; an operand that has size 1
# there is read at 0. **Types**: the result's is in `node.meta["tensor_meta"].dtype`, but a comparison works in the type
# of its operands (`torch.result_type`), and `n < 0.5` of integers is not a comparison with 0. Both operands are rounded
# to that type before they are compared, even a number: next to float16, 0.1 is `torch.tensor(0.1,
# dtype=torch.float16).item()`. In float16 and bfloat16 compute in float32 and cast when you store: kernels do that, and
# TVM expects it. An explicit `to` rounds at once. **NaN**: torch's relu, maximum and minimum propagate it; `TIR.max`
# does not. TVM simplifies as if all numbers were finite: `a.equal(a)` is True for NaN, too, and `a != a` False. So ask
# `TIR.isnan`; that of bfloat16 raises an error ("not supported for isnan op"): test it in float32. (`a - a` and `a * 0`
# become 0, too. No case asks for NaN there.) **Zero** has a sign: -x of 0.0 is -0.0, and 0 - x is not.


# %%
def codegen(gm: fx.GraphModule) -> tvm.tirx.PrimFunc:
    """Write one kernel for a group of element-wise operations.

    In:  a graph of placeholders, calls and an output of one or more values that have
         the same shape. Its calls: operator.add, sub, mul, truediv, neg, gt, lt, eq;
         torch.abs, relu, exp, tanh, sigmoid, sqrt, maximum, minimum, where; the method
         to(dtype). Operands are nodes and numbers. Shapes and dtypes (float32, float16,
         bfloat16, int32, bool) are in node.meta["tensor_meta"]; there may be no
         elements, or no dimensions. A bool is the condition of where, is cast by `to`,
         or is combined with an operand of another type: nothing is computed in bool.
    Out: a PrimFunc (or an IRModule with it) whose parameters are a buffer for each
         placeholder and one for each output value, in this order. It computes what the
         graph does, writes each element of an output once, and nothing else
         (buffers of one element are registers). A value that is used twice is computed
         once. The dtype of an expression of TIR is its `.ty`.
    Time: 10 s of computing for each test case.

    Example:  for x * 0.5 of two elements
                  for i in range(2): mul[0] = x[i] * T.float32(0.5); out0[i] = mul[0]
    """
    ### BEGIN SOLUTION
    (returned,) = gm.graph.output_node().args
    outputs = returned if isinstance(returned, tuple | list) else [returned]
    shape = outputs[0].meta["tensor_meta"].shape
    loops = [TIR.Var(f"i{d}", "int32") for d in range(len(shape))]
    parameters, values, lines = [], {}, []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            place = buffer(node.name, node.meta["tensor_meta"])
            parameters.append(place)
            values[node] = TIR.BufferLoad(
                place, aligned(loops, node.meta["tensor_meta"].shape)
            )
        elif node.op != "output":
            value = written_out(node, values)
            # a register, because a value that two nodes read would otherwise be written
            # out, and computed, twice
            register = TIR.decl_buffer(
                (1,), str(value.ty.dtype), node.name, scope="local", layout=None
            )
            lines += [TIR.AllocBuffer(register), TIR.BufferStore(register, value, [0])]
            values[node] = TIR.BufferLoad(register, [0])
    for number, node in enumerate(outputs):
        parameters.append(buffer(f"out{number}", node.meta["tensor_meta"]))
        lines.append(
            TIR.BufferStore(
                parameters[-1],
                values[node].astype(name_of(node.meta["tensor_meta"].dtype)),
                loops,
            )
        )
    body = TIR.SeqStmt(lines)
    for loop, size in reversed(list(zip(loops, shape, strict=True))):
        body = TIR.For(loop, 0, size, TIR.ForKind.SERIAL, body)
    return TIR.PrimFunc(parameters, body)


def buffer(name, meta):
    return TIR.decl_buffer(tuple(meta.shape), name_of(meta.dtype), name, layout=None)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def aligned(loops, shape):
    """Return the indices at which an operand of this shape is read.

    Broadcast dimensions are read at 0.
    """
    return [
        0 if size == 1 else loop
        for loop, size in zip(loops[len(loops) - len(shape) :], shape, strict=True)
    ]


def working(dtype):
    """Return the type in which values of this type are computed."""
    return "float32" if dtype in (torch.float16, torch.bfloat16) else name_of(dtype)


def written_out(node, values):
    """Return the expression for a call."""
    name = node.target if isinstance(node.target, str) else node.target.__name__
    dtype = node.meta["tensor_meta"].dtype
    if name == "to":  # rounds to the narrow type, then computes on in the wide one
        return values[node.args[0]].astype(name_of(dtype)).astype(working(dtype))
    compares = name in ("gt", "lt", "eq")
    if compares:
        left, right = (
            torch.empty(
                a.meta["tensor_meta"].shape,
                dtype=a.meta["tensor_meta"].dtype,
                device="meta",
            )
            if isinstance(a, fx.Node)
            else a
            for a in node.args
        )
        dtype = torch.result_type(left, right)

    def operand(a):
        if isinstance(a, fx.Node):
            value = values[a].astype(name_of(dtype)) if compares else values[a]
            return value.astype(working(dtype))
        return TIR.const(
            torch.tensor(a, dtype=dtype).item() if compares else a, working(dtype)
        )

    if name == "where":
        condition, yes, no = node.args
        return TIR.Select(values[condition], operand(yes), operand(no))
    return EXPRESSIONS[name](*map(operand, node.args))


def larger(a, b):
    return TIR.Select(TIR.Or(a > b, TIR.isnan(a)), a, b)


EXPRESSIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "neg": operator.neg,
    "gt": operator.gt,
    "lt": operator.lt,
    "eq": lambda a, b: TIR.And(a.equal(b), TIR.Not(TIR.isnan(a))),
    "abs": TIR.abs,
    "relu": lambda a: TIR.Select(
        a < TIR.const(0, a.ty.dtype), TIR.const(0, a.ty.dtype), a
    ),
    "exp": TIR.exp,
    "tanh": TIR.tanh,
    "sigmoid": TIR.sigmoid,
    "sqrt": TIR.sqrt,
    "maximum": larger,
    "minimum": lambda a, b: TIR.Select(TIR.Or(a < b, TIR.isnan(a)), a, b),
}
### END SOLUTION

# %%
check("day04.codegen", codegen)


# %% [markdown]
# Your kernel for a group of every layer of a transformer, the tanh form of GELU: eight operations, one pass over the
# data:


# %%
def gelu_by_hand(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


with suppress(NotImplementedError):
    print(codegen(trace(gelu_by_hand, torch.randn(4, 256))))

# %% [markdown]
# ## 6 · To fuse or not · core and stretch
#
# TVM's kernel for a group computes **one** value, its result, and every other value in place, each time it is used.
# That takes no memory, but sometimes a lot of arithmetic: each element of a product reads a whole row, each element of
# a matrix reads its element of a row vector, and each use of a sum adds it up again. A value that is in several groups
# is computed in each of their kernels. So fusing can lose.

# %%
judged = exercises.module("day04.cost")
for situation in judged.situations(random.Random(3))[:7]:
    both = judged.sides(situation)
    print(
        f"{situation.name:<42} apart {seconds(both.apart):>8}   "
        f"fused {seconds(both.fused):>8}   {both.gain:.2f} times"
    )

# %% [markdown]
# Both sides are TVM kernels with the same scheduling rule, on one core. A cost model predicts which side is faster,
# from the graph and a few numbers of the machine. It need not predict the time. (Your answer is judged by arithmetic,
# not by a clock: for other machines than this one, and with the same result everywhere.)


# %%
def cost(
    gm: fx.GraphModule, groups: list[list[str]], machine: dict[str, float]
) -> bool:
    """Decide if the graph is faster with these groups than with a kernel for each call.

    In:  gm: placeholders, calls and an output, float32. The calls are torch.matmul (of
         two matrices), torch.sum over the last dimension, and element-wise ones, whose
         operands are broadcast; node.meta["tensor_meta"] has their shapes. groups:
         names of nodes; a node can be in several. Each group is one kernel, whose
         result is the one node of the group that no other node of it reads; all else in
         it is computed in place, each time it is read. Calls in no group are kernels of
         their own.
         machine: "bandwidth" in bytes/s; "launch", seconds for a kernel; "step",
         seconds for an addition, a multiplication or a comparison; "dear", how many
         steps exp, erf, tanh or sigmoid take; "registers", how many values a kernel can
         keep while it computes an element of its result, in the graph's order: each
         value beyond these takes two steps, one to store it and one to load it. A
         result may take over the register of an operand that is read for the last time.
    Out: True to fuse, False to leave the calls apart. You are asked only where one side
         takes at least 1.3 times as long, whether a kernel moves and computes at the
         same time or in turn. Machines differ: each of the five numbers decides some
         cases.

    The core: all calls are element-wise, all tensors have one shape, and each value is
         read at most once in a group, so a kernel computes it once for each element of
         the result. There are enough registers. The other four numbers decide.

    Example:  matmul(exp(x), w) with w of 384 columns in one group: False, since each
              exp would be computed 384 times.
              relu(x * 2) of 100,000 elements in one group: True, half as many bytes and
              one launch.
    """
    ### BEGIN SOLUTION
    singles = [[node] for node in gm.graph.nodes if node.op == "call_function"]
    grouped = {name for group in groups for name in group}
    fused = [
        [node for node in gm.graph.nodes if node.name in group] for group in groups
    ]
    fused += [[node] for [node] in singles if node.name not in grouped]
    return sum(price(kernel, machine) for kernel in fused) < sum(
        price(kernel, machine) for kernel in singles
    )


def price(kernel, machine):
    """Return the seconds of a kernel of these nodes, in graph order.

    They are a launch plus the longer of moving bytes and computing.
    """
    result = next(
        node for node in kernel if not any(user in kernel for user in node.users)
    )
    read = {
        operand
        for node in kernel
        for operand in node.all_input_nodes
        if operand not in kernel
    }
    moved = sum(4 * elements(node) for node in {result, *read})
    times = evaluations(kernel, result)
    steps = sum(times[node] * steps_of(node, machine) for node in kernel)
    # Values that do not fit into registers are spilled: one store and one load each.
    steps += 2 * max(0, most_alive(kernel) - machine["registers"]) * times[result]
    return machine["launch"] + max(
        moved / machine["bandwidth"], steps * machine["step"]
    )


def elements(node):
    return node.meta["tensor_meta"].shape.numel()


def evaluations(kernel, result):
    """Return how often elements of each node are computed.

    They are computed once for each time a user inside the kernel reads one.
    """
    times = dict.fromkeys(kernel, 0) | {result: elements(result)}
    for node in reversed(kernel):
        for operand in node.all_input_nodes:
            if operand in times:
                times[operand] += times[node] * added_up(node)
    return times


def added_up(node):
    """Return how many elements of an operand one element of this node reads."""
    if node.target is torch.matmul:
        return node.args[0].meta["tensor_meta"].shape[-1]
    return elements(node.args[0]) // elements(node) if node.target is torch.sum else 1


def steps_of(node, machine):
    """Return the steps for one element."""
    if node.target in (torch.exp, torch.erf, torch.tanh, torch.sigmoid):
        return machine["dear"]
    return 2 * added_up(node) if node.target is torch.matmul else added_up(node)


def most_alive(kernel):
    """Return the most values that are live at one time.

    Live values are loaded or computed, and still to be used.
    """
    alive, most = set(), 0
    for node in reversed(kernel):
        alive = alive - {node} | set(node.all_input_nodes)
        most = max(most, len(alive))
    return most
    ### END SOLUTION


# %%
check("day04.cost-core", cost)

# %%
check("day04.cost", cost)


# %% [markdown]
# Which of the terms decide? Remove one by making it free on the machine, and count the correct answers:

# %%
WITHOUT = {
    "all terms": {},
    "no launches": {"launch": 0.0},
    "no bytes": {"bandwidth": math.inf},
    "no steps": {"step": 0.0},
    "exp as cheap as +": {"dear": 1},
    "unlimited registers": {"registers": math.inf},
}
judged = exercises.module("day04.cost")
choices = judged.situations(random.Random(3))
with suppress(NotImplementedError):
    for name, change in WITHOUT.items():
        guesses = [
            cost(gm, choice.named(gm), MACHINE | change)
            for choice in choices
            for gm in [choice.graph()]
        ]
        right = sum(
            not judged.sides(choice).wrong(guess)
            for choice, guess in zip(choices, guesses, strict=True)
        )
        print(f"{name:<20} {right} of {len(choices)} right")

# %% [markdown]
# Registers decide nothing here: a value that does not fit into them is kept in the fast first-level cache. On a GPU a
# kernel with many live values runs with fewer threads at a time, so the term counts there.

# %% [markdown]
# ## 7 · What fusion saves · stretch
#
# Fusing saves kernel launches, and bytes that are written to memory and read back. Both follow from the graph alone,
# and, with three numbers of a machine, so does a bound: a kernel is no faster than its bytes and no faster than its
# operations. That is the **roofline**. Below its *ridge*, the operations/byte at which both take equally long, memory
# decides: fewer bytes take less time.


# %%
def measure(
    gm: fx.GraphModule, groups: list[list[str]], machine: dict[str, float]
) -> dict[str, dict]:
    """Price a graph before and after fusing, from its shapes.

    In:  gm: placeholders, calls and an output; node.meta["tensor_meta"] has shape and
         dtype. The calls are torch.matmul (of vectors and batches, too), torch.sum,
         torch.mean and torch.amax (over any dimensions), and element-wise ones, whose
         operands are broadcast; operands may be given by name. groups: names of nodes
         that are one kernel after fusing; every other call is a kernel by itself.
         Before, every call is.
         machine: "bandwidth" in bytes/s, "flops" in operations/s, "launch" in s.
    Out: {"before": row, "after": row}; a row has
         "launches"   how many kernels there are
         "bytes"      for each kernel: all tensors from outside that it reads, and all
                      its values that something outside reads (another kernel, the
                      output), each once, with the size that the tensor has itself; an
                      unused value is not written
         "flops"      of all calls: 2·k for each element of a product that sums over k,
                      one for each element that sum, mean or amax reads, one for each
                      element of any other result
         "intensity"  flops / bytes; 0.0 where no byte moves
         "seconds"    the sum over kernels of launch + the longer of bytes/bandwidth and
                      flops/flops of the machine
         "roof"       "memory" if the intensity is less than the machine's
                      flops/bandwidth, else "compute"
    Not to be called: passlab.exercises.day04.measure.priced.

    Example:  for relu(x * 2) of 1000 float32 in one group: before 2 launches,
              16,000 bytes; after 1 launch, 8,000 bytes;
              2,000 flops both times.
    """
    ### BEGIN SOLUTION
    nodes = {node.name: node for node in gm.graph.nodes}
    grouped = {name for group in groups for name in group}
    calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    singles = [[node] for node in calls]
    together = [[nodes[name] for name in group] for group in groups]
    together += [[node] for node in calls if node.name not in grouped]
    return {"before": row(singles, machine), "after": row(together, machine)}


def row(kernels, machine):
    each = [(traffic_of(kernel), sum(map(flops_of, kernel))) for kernel in kernels]
    # Kernels run one after the other, but in a kernel moving and computing overlap: it
    # takes the longer of the two.
    moved, done = sum(nbytes for nbytes, _ in each), sum(flops for _, flops in each)
    intensity = done / moved if moved else 0.0
    return {
        "launches": len(kernels),
        "bytes": moved,
        "flops": done,
        "intensity": intensity,
        "seconds": sum(
            machine["launch"]
            + max(nbytes / machine["bandwidth"], flops / machine["flops"])
            for nbytes, flops in each
        ),
        "roof": "memory"
        if intensity < machine["flops"] / machine["bandwidth"]
        else "compute",
    }


def traffic_of(kernel):
    """Return the bytes that a kernel of these nodes reads and writes."""
    read = {
        operand
        for node in kernel
        for operand in node.all_input_nodes
        if operand not in kernel
    }
    # A value that only the kernel itself reads stays in registers.
    written = {
        node for node in kernel if any(user not in kernel for user in node.users)
    }
    return sum(nbytes_of(node) for node in read | written)


def nbytes_of(node):
    meta = node.meta["tensor_meta"]
    return meta.shape.numel() * meta.dtype.itemsize


def flops_of(node):
    elements = node.meta["tensor_meta"].shape.numel()
    first = node.args[0] if node.args else node.kwargs["input"]
    if node.target is torch.matmul:
        return 2 * first.meta["tensor_meta"].shape[-1] * elements
    if node.target in (torch.sum, torch.mean, torch.amax):
        return first.meta["tensor_meta"].shape.numel()
    return elements
    ### END SOLUTION


# %%
check("day04.measure", measure)


# %% [markdown]
# Five cheap operations on 16 million numbers, as torch runs them and as one kernel of `passlab.kernels`. First the
# bytes:


# %%
def five(x):
    return torch.relu(x * 0.5 + 1.0) * 2.0 - 0.25


numbers = torch.randn(2**24)
chain = trace(five, numbers)
names = [node.name for node in chain.graph.nodes if node.op == "call_function"]
programs = {"before": chain, "after": fused(chain, [names])}
display(traffic({name: bytes_moved(gm).detail for name, gm in programs.items()}))

# %% [markdown]
# Now place both under the roofline of this machine, whose three numbers are measured here. Fusing moves the program to
# the right: the same operations, fewer bytes. The distance to the roof is the remaining potential of its kernels.

# %%
machine = measure_machine()
print(machine)
with suppress(NotImplementedError):
    rows, times = (
        measure(chain, [names], vars(machine)),
        timed(programs, numbers, repeats=5, warmup=1),
    )
    points = {
        name: (of["flops"], of["bytes"], times[name].min) for name, of in rows.items()
    }
    display(roofline(points, machine, "Before and after fusing"), times)
