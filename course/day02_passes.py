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
# # Day 2 · Writing a pass
#
# Yesterday a model became a graph. Today you change one.
#
# A **pass** is a function from a graph to a graph that computes the same thing. Three questions follow, and today is
# about them: in which order do you visit the nodes, when is a rewrite allowed, and how do you know that the result is
# still the same function?
#
# The lesson takes about 70 minutes, and 25 more for what is marked stretch. The exercises are in
# [work/day02/passes.ipynb](../work/day02/passes.ipynb); one more, in Relax, is in
# [work/day02/relax.ipynb](../work/day02/relax.ipynb).

# %%
import operator
import time
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import diff, draw, equivalent, guess, models, steps, trace, view
from passlab.graph import Table
from passlab.notebook import beside

# %% [markdown]
# ## The smallest pass
#
# PyTorch has three ways to write a ReLU: the module `nn.ReLU()`, the function `torch.relu(x)`, the method `x.relu()`.
# A later pass that looks for ReLU would have to look three times. So compilers *normalize* first: one spelling for one
# meaning. Here is a model that uses the method form.


# %%
class Spellings(nn.Module):
    def forward(self, x, y):
        return (x + y).relu() * torch.relu(x - y)


before = trace(Spellings(), torch.randn(2, 3), torch.randn(2, 3))
draw(before)

# %% [markdown]
# The pass below visits each node once. It has the three steps of every rewriting pass: **match** a node, insert its
# replacement in the right **place**, and redirect its **users** to it.


# %%
def method_relu_to_function(gm: fx.GraphModule) -> fx.GraphModule:
    """`x.relu()` = `torch.relu(x)`, for every x."""
    for node in list(gm.graph.nodes):
        if node.op == "call_method" and node.target == "relu":
            with gm.graph.inserting_before(node):
                function = gm.graph.call_function(torch.relu, node.args, node.kwargs)
            node.replace_all_uses_with(function)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


after = method_relu_to_function(
    trace(Spellings(), torch.randn(2, 3), torch.randn(2, 3))
)
diff(before, after, title="One spelling for one meaning")

# %% [markdown]
# `list(...)` around the nodes matters: the loop changes the list that it walks. So does `recompile()`: a `GraphModule`
# runs Python code that was generated from the graph, and it runs the old code until you generate it again.

# %%
stale = trace(Spellings(), torch.randn(2, 3), torch.randn(2, 3))
for node in stale.graph.nodes:
    if node.target is operator.mul:
        node.target = operator.add

x, y = torch.randn(2, 3), torch.randn(2, 3)
print("graph says add, code still multiplies:", torch.equal(stale(x, y), before(x, y)))
stale.recompile()
print(
    "after recompile() they agree to add:  ",
    torch.equal(stale(x, y), (x + y).relu() + torch.relu(x - y)),
)
assert not torch.equal(stale(x, y), before(x, y))

# %% [markdown]
# ## In which order to walk
#
# A pass that computes something *about* a node (its shape, its cost, a better version of it) needs the answers for its
# operands first. That order, operands before users, is called **post-order**. The obvious way to write it is recursion:


# %%
def cost_by_recursion(node, visits):
    """The cost of computing a node: its own and that of its operands."""
    visits.append(node.name)
    return 1 + sum(
        cost_by_recursion(operand, visits) for operand in node.all_input_nodes
    )


class Ladder(nn.Module):
    """Each rung uses the one below twice."""

    def __init__(self, rungs):
        super().__init__()
        self.rungs = rungs

    def forward(self, x):
        for _ in range(self.rungs):
            x = torch.sin(x) + torch.cos(x)
        return x


draw(trace(Ladder(2), torch.ones(3)))

# %% [markdown]
# On a tree this is fine. A model is not a tree: results are used more than once. Guess, before you run the next two
# cells, how many visits the recursion makes for 16 rungs.

# %%
bet = guess("How many visits does the recursion make on 16 rungs?", ...)

# %% tags=["hide-output"]
for rungs in (4, 8, 16):
    graph = fx.symbolic_trace(Ladder(rungs)).graph
    visits = []
    cost_by_recursion(next(iter(reversed(graph.nodes))), visits)
    print(f"{rungs:3} rungs: {len(graph.nodes):3} nodes, {len(visits):7,} visits")
    assert len(visits) == 1 + 2**rungs + 3 * (2**rungs - 1)
bet.compare(len(visits))

# %% [markdown]
# Every rung doubles the number. The remedy is to remember which nodes are done: then a graph with *n* nodes takes *n*
# visits. (The recursion also counted shared work twice, so its answer is wrong as well as slow.)
#
# torch.fx keeps its node list in an order in which operands come before users, so that a plain loop is a post-order
# walk. Most IRs do not guarantee that order; in exercise 1 you do without it and write the visitor yourself.

# %% [markdown]
# ## Visitors and mutators
#
# The walk is the same for every pass; only the action at a node differs. So compilers separate the two: a **visitor**
# walks and calls one method per kind of node, and a **mutator** also builds a new graph from the results of these
# methods. torch.fx calls them `Interpreter` and `Transformer`.


# %%
class CountFlops(fx.Interpreter):
    """Runs the graph, and counts multiply-adds of the matrix products it meets."""

    flops = 0

    def call_module(self, target, args, kwargs):
        result = super().call_module(target, args, kwargs)
        module = self.fetch_attr(target)
        if isinstance(module, nn.Linear):
            self.flops += result.numel() * module.in_features
        return result


mlp = models.ZOO["mlp"]
counter = CountFlops(trace(mlp.build(), *mlp.inputs()))
counter.run(*mlp.inputs())
print(f"{counter.flops:,} multiply-adds")
linears = [m for m in mlp.build().modules() if isinstance(m, nn.Linear)]
batch = len(mlp.inputs()[0])
assert counter.flops == sum(batch * m.in_features * m.out_features for m in linears)


# %% [markdown]
# This is a complete mutator. It never edits the old graph: it runs that graph on *proxies*, and the operations on the
# proxies become the new graph.


# %%
class Quieter(fx.Transformer):
    """`sin(x)` becomes `0.5 * sin(x)`: not the same function, on purpose."""

    def call_function(self, target, args, kwargs):
        result = super().call_function(target, args, kwargs)
        return 0.5 * result if target is torch.sin else result


wave = trace(Ladder(1), torch.ones(3))
quieter = Quieter(wave).transform()
diff(wave, quieter)

# %% [markdown]
# Editing in place is shorter for a local change, rebuilding is safer for a big one: the old graph stays intact, so you
# may forget a node but never leave one dangling.

# %% [markdown]
# ## Match, then rewrite
#
# Patterns usually span several nodes. `x * sigmoid(x)` is the SiLU activation, and one kernel computes it. The pass
# must find a multiplication whose operands are some `x` and the sigmoid *of that same x*, in either order.


# %%
def match_silu(node: fx.Node) -> fx.Node | None:
    """The x of an `x * sigmoid(x)` or `sigmoid(x) * x` that ends in this node."""
    if node.target is not operator.mul:
        return None
    for x, gate in (node.args, node.args[::-1]):
        if (
            isinstance(gate, fx.Node)
            and gate.target is torch.sigmoid
            and gate.args == (x,)
        ):
            return x
    return None


class Gated(nn.Module):
    def forward(self, x, y):
        gate = torch.sigmoid(x)
        return gate * x + y * torch.sigmoid(y) + y * gate


gated = trace(Gated(), torch.randn(2, 3), torch.randn(2, 3))
print([node.name for node in gated.graph.nodes if match_silu(node)])

# %% [markdown]
# Three multiplications by a sigmoid, two matches: in the other one the sigmoid belongs to another tensor. The rewrite
# then goes match by match. Step through it:


# %%
def fuse_silu(gm: fx.GraphModule, watch=None) -> fx.GraphModule:
    """`x * sigmoid(x)` = `silu(x)`. The sigmoid goes too, if nothing else uses it."""
    for node in list(gm.graph.nodes):
        x = match_silu(node)
        if x is None:
            continue
        if watch is not None:
            watch(gm, node)
        with gm.graph.inserting_before(node):
            silu = gm.graph.call_function(F.silu, (x,))
        node.replace_all_uses_with(silu)
        gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


# %%
film = []


def snapshot(gm, node):
    film.append(
        (
            view(gm),
            (node.name,),
            f"{node.name} multiplies x by the sigmoid of the same x",
        )
    )


fused = fuse_silu(trace(Gated(), torch.randn(2, 3), torch.randn(2, 3)), snapshot)
steps([*film, (view(fused), (), "No match is left, and the unused sigmoid is gone")])

# %% [markdown]
# The sigmoid of `x` stayed: it has a second user, the product with `y`. Most rewrites have to check for other users,
# and the next section is about that.

# %%
[gate] = [node for node in fused.graph.nodes if node.target is torch.sigmoid]
print(gate.name, "is still used by", *gate.users)
assert len(gate.users) == 1

# %% [markdown]
# ## The multi-consumer problem
#
# Fusing `conv2d` and the `relu` behind it into one kernel is the classic pass. A first version matches "a relu whose
# operand is a convolution", puts the fused module in the place of the relu, and removes the convolution.


# %%
class ConvThenRelu(nn.Module):
    """What a fused kernel computes, as one module."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        return torch.relu(self.conv(x))


class NoChildren(fx.Tracer):
    """Keeps ConvThenRelu a single node."""

    def is_leaf_module(self, module, name):
        return isinstance(module, ConvThenRelu) or super().is_leaf_module(module, name)


def fuse_naively(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(conv(x))` = `conv_then_relu(x)`.

    Forgets to ask who else uses the convolution.
    """
    for node in list(gm.graph.nodes):
        conv = node.args[0] if node.target is torch.relu else None
        if isinstance(conv, fx.Node) and conv.op == "call_module":
            gm.add_submodule(
                f"fused_{conv.name}", ConvThenRelu(gm.get_submodule(conv.target))
            )
            with gm.graph.inserting_before(node):
                fused = gm.graph.call_module(f"fused_{conv.name}", conv.args)
            node.replace_all_uses_with(fused)
            gm.graph.erase_node(node)
            gm.graph.erase_node(conv)
    gm.recompile()
    return gm


class Straight(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


class Forked(Straight):
    def forward(self, x):
        y = self.conv(x)
        return torch.relu(y) + y


image = torch.randn(1, 3, 8, 8)
straight = trace(Straight(), image)
diff(straight, fuse_naively(deepcopy(straight)))

# %% [markdown]
# It works on the straight line. Now the convolution's result is also used by an addition, as in every residual network:

# %%
forked = trace(Forked(), image)
try:
    fuse_naively(deepcopy(forked))
except RuntimeError as error:
    print(error)
draw(forked, title="The convolution has two users", mark=("conv",))

# %% [markdown]
# torch.fx refuses to erase a node that is in use. Not every IR is so careful. There are two ways out, and neither is
# free. Fuse anyway and keep the convolution for its other user: then it is computed twice. Or leave this match alone.
# Which is better depends on costs (day 4); leaving it alone is never wrong, so that is what careful passes do. torch's
# own `replace_pattern` takes this care by itself:


# %%
def pattern(x, weight):
    return torch.relu(F.conv2d(x, weight))


def replacement(x, weight):
    return F.conv2d(x, weight).clamp_min(0)


def one_user(x, w):
    return torch.relu(F.conv2d(x, w))


def two_users(x, w):
    y = F.conv2d(x, w)
    return torch.relu(y) + y


for program in (one_user, two_users):
    matches = fx.replace_pattern(fx.symbolic_trace(program), pattern, replacement)
    print(f"{program.__name__}: {len(matches)} match(es)")

# %% [markdown]
# ## What a rewrite leaves stale
#
# `trace` recorded a shape for every node. Such facts are stored beside the graph, and a new node has none until a pass
# computes it. A pass that reads shapes after another has added nodes finds no shape, or, worse, an outdated one.

# %%
from torch.fx.passes.shape_prop import ShapeProp

for node in fused.graph.nodes:
    print(
        f"{node.name:10} {'shape known' if 'tensor_meta' in node.meta else 'no shape'}"
    )

# %%
ShapeProp(fused).propagate(torch.randn(2, 3), torch.randn(2, 3))
assert all("tensor_meta" in node.meta for node in fused.graph.nodes)
draw(fused)

# %% [markdown]
# This is why pass managers make each pass declare which facts it needs and which it invalidates.
#
# A rewrite also hides where a node came from. If a fused kernel is slow, or wrong, which lines of the model does it
# stand for? After the pass nothing knows it any more, so a careful pass writes down the **provenance** of each new
# node. torch keeps it in `meta["from_node"]`, a list with one source for each old node; a source in turn holds the
# sources of that old node.

# %%
from torch.fx.traceback import NodeSource, NodeSourceAction

traced = trace(Gated(), torch.randn(2, 3), torch.randn(2, 3))
for node in list(traced.graph.nodes):
    if match_silu(node) is not None:
        [gate] = [n for n in node.args if n.target is torch.sigmoid]
        with traced.graph.inserting_before(node):
            silu = traced.graph.call_function(F.silu, gate.args)
        silu.meta["from_node"] = [
            NodeSource(old, "fuse_silu", NodeSourceAction.REPLACE)
            for old in (gate, node)
        ]
        node.replace_all_uses_with(silu)
        traced.graph.erase_node(node)
        sources = [source.name for source in silu.meta["from_node"]]
        print(silu.name, "stands for", *sources)

# %% [markdown]
# In exercise 2 the names of the old nodes are enough.

# %% [markdown]
# ## Is it still the same function?
#
# Run both programs on the same random numbers and compare. Two figures say how far apart they are: the mean squared
# error and the largest absolute difference. Zero is too much to ask: floating-point addition is not associative, so a
# rewrite that regroups sums changes the last bits. The tolerance has to depend on the number format.


# %%
def gap(before, after, *inputs):
    """(mean squared error, largest absolute difference), in double precision."""
    with torch.no_grad():
        difference = before(*inputs).double() - after(*inputs).double()
    return difference.square().mean().item(), difference.abs().max().item()


torch.manual_seed(0)
x, a, b = torch.randn(32, 64), torch.randn(64, 64) / 8, torch.randn(64, 64) / 8
print(f"{'dtype':16}{'step at 1':>12}{'MSE':>12}{'max |diff|':>12}")
for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    matrices = [t.to(dtype) for t in (x, a, b)]
    squared, largest = gap(
        lambda x, a, b: (x @ a) @ b, lambda x, a, b: x @ (a @ b), *matrices
    )
    print(f"{dtype!s:16}{torch.finfo(dtype).eps:12.1e}{squared:12.1e}{largest:12.1e}")
    assert 0 < largest < 100 * torch.finfo(dtype).eps

# %% [markdown]
# The same product, grouped in two ways: `(xa)b` and `x(ab)`. A tolerance far below the last column fails this correct
# rewrite, one far above it lets wrong ones through. A tolerance that does not look at the dtype does one of the
# two.
#
# ## Why random inputs are not enough
#
# Two rewrites that appear in many tutorials. First: the tanh formula for GELU, replaced by `F.gelu(x)`.


# %%
def gelu_by_tanh(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


x = torch.randn(10_000)
for name, candidate in (
    ("F.gelu(x)", F.gelu),
    ("F.gelu(x, approximate='tanh')", lambda x: F.gelu(x, approximate="tanh")),
):
    print(f"{name:32} largest difference {gap(gelu_by_tanh, candidate, x)[1]:.1e}")
assert gap(gelu_by_tanh, F.gelu, x)[1] > 1e-4

# %% [markdown]
# The plain form is another function (it uses erf), and it passes any test whose tolerance is a comfortable `1e-3`.
# Second: `x * 0` is `0`. Random numbers find nothing wrong with it, ever.


# %%
class TimesZero(nn.Module):
    def forward(self, x):
        return x * 0


class Zero(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


print("gap on ten thousand random numbers:", gap(TimesZero(), Zero(), x))
verdict = equivalent(trace(TimesZero(), x), trace(Zero(), x))
assert not verdict
verdict

# %% [markdown]
# Infinity times zero is not a number, and a NaN must stay one. `equivalent` also feeds zeros of both signs, infinities,
# NaNs, denormals (numbers too small for all their digits), huge numbers, other sizes and dtypes, and tensors that are
# not contiguous; it compares the effects of a program on its inputs and on the random state; and it runs in training
# mode if you ask for it. Two results agree if they differ by no more than rounding allows; **max ulp** is their
# distance in *units in the last place*: how many floats lie between them, whatever their size. Results that `==` calls
# equal agree as well: −0 equals 0, so `x + 0.0` passes for `x` here. You write a small one in exercise 5; exercise 6
# uses it to find wrong passes.

# %%
print(equivalent(trace(lambda x: x + 0.0, x), trace(lambda x: x * 1.0, x)))

# %% [markdown]
# ## Passes in a row
#
# Real compilers run dozens of passes. A **pass manager** decides the order, keeps shared facts up to date, checks the
# graph between passes (so that it names the pass that broke the graph, not a later one that failed on it), and times
# them. torch.fx ships one:

# %%
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.infra.pass_manager import (
    PassManager,
    this_before_that_pass_constraint,
)


class Normalize(PassBase):
    def call(self, gm):
        return PassResult(method_relu_to_function(gm), True)


class FuseSilu(PassBase):
    def call(self, gm):
        return PassResult(fuse_silu(gm), True)


manager = PassManager(passes=[Normalize(), FuseSilu()], run_checks_after_each_pass=True)
result = manager(trace(Gated(), torch.randn(2, 3), torch.randn(2, 3)))
print([str(node) for node in result.graph_module.graph.nodes])

# %% [markdown]
# It also takes constraints, such as "this pass runs before that one". Ask for an order that contradicts the list:

# %%
first, second = Normalize(), FuseSilu()
contradiction = PassManager(passes=[first, second])
contradiction.add_constraint(this_before_that_pass_constraint(FuseSilu, Normalize))
try:
    contradiction(trace(Gated(), torch.randn(2, 3), torch.randn(2, 3)))
    print("It ran as if nothing had been asked.")
except RuntimeError as error:
    print(error)

# %% [markdown]
# The constraint compares functions, but our passes are instances of a class, and torch does not warn. A check that
# silently does not apply is worse than no check. The manager that you write in exercise 4 checks the order before
# anything runs, and reports a violation.
#
# A manager can also show which passes take the time:

# %%
net = models.ZOO["resnet18"]
graph = trace(net.build(), *net.inputs())
row = "{:24}{:>8}{:>10}"
print(row.format("pass", "nodes", "time"))
for run in (method_relu_to_function, fuse_silu, lambda gm: (gm.graph.lint(), gm)[1]):
    start = time.perf_counter()
    graph = run(graph)
    name = "lint" if run.__name__ == "<lambda>" else run.__name__
    print(
        row.format(
            name,
            len(graph.graph.nodes),
            f"{(time.perf_counter() - start) * 1e3:.1f} ms",
        )
    )

# %% [markdown]
# ## The same pass elsewhere · stretch
#
# The ideas carry over from one compiler to the next; the names do not. Here is the pass from the section on the
# multi-consumer problem, three times: `relu(conv2d(x))` becomes one operation `conv2d_relu` where the convolution has
# no other user. The model has one such place and one that only looks like it. Its convolutions have no bias: where
# there is one, Relay and Relax write an addition between the two.


# %%
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return torch.relu(y) + y


both = trace(Both().eval(), image)


# %% [markdown]
# **torch.fx**: the users of a node are known to the graph, so the question is one line.


# %%
def fuse_conv_relu(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(conv(x))` = `conv_then_relu(x)`, if the convolution has no other user."""
    for node in list(gm.graph.nodes):
        conv = node.args[0] if node.target is torch.relu else None
        if (
            not isinstance(conv, fx.Node)
            or conv.op != "call_module"
            or len(conv.users) > 1
        ):
            continue
        gm.add_submodule(
            f"conv2d_relu_{conv.name}", ConvThenRelu(gm.get_submodule(conv.target))
        )
        with gm.graph.inserting_before(node):
            fused = gm.graph.call_module(f"conv2d_relu_{conv.name}", conv.args)
        node.replace_all_uses_with(fused)
        gm.graph.erase_node(node)
        gm.graph.erase_node(conv)
    gm.recompile()
    return gm


after = fuse_conv_relu(deepcopy(both))
assert equivalent(both, after)
diff(both, after, title="conv2d_relu in torch.fx")

# %% [markdown]
# **Relay** has a mutator, and expressions instead of node lists. An expression knows its operands but not its users, so
# these are counted first. Expressions are immutable: the result of `visit_call` takes the place of the call in a new
# function. The fused operation is a separate function, with a name (`Composite`) and a request to compile it into one
# kernel (`Primitive`).

# %%
# %%beside relay relax
from collections import Counter

import torch
from torch import nn

from passlab import diff, equivalent
from passlab.tvm.importers import relax_module, relay_module


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.second(torch.relu(self.first(x)))
        return torch.relu(y) + y


model, image = Both().eval(), torch.randn(1, 3, 8, 8)

# %%
# %%beside relay
from passlab.relay import relay, tvm


def calls(expr, name):
    return (
        isinstance(expr, relay.Call)
        and isinstance(expr.op, tvm.ir.Op)
        and expr.op.name == name
    )


class FuseConvRelu(relay.ExprMutator):
    """`relu(conv2d(x, w))` = `conv2d_relu(x, w)`, if the conv has no other user."""

    def __init__(self, function):
        super().__init__()
        self.readers = Counter()
        relay.analysis.post_order_visit(function, self.count)

    def count(self, expr):
        self.readers.update(getattr(expr, "args", getattr(expr, "fields", ())))

    def visit_call(self, call):
        conv = call.args[0] if calls(call, "nn.relu") else None
        if not calls(conv, "nn.conv2d") or self.readers[conv] > 1:
            return super().visit_call(call)
        x, w = relay.var("x"), relay.var("w")
        body = relay.nn.relu(relay.Call(conv.op, [x, w], conv.attrs))
        one_kernel = {
            "Composite": "conv2d_relu",
            "Primitive": tvm.tir.IntImm("int32", 1),
        }
        return relay.Function([x, w], body).with_attr(one_kernel)(
            *map(self.visit, conv.args)
        )


# %%
# %%beside relay
before = relay_module(model, image)
after = tvm.IRModule.from_expr(FuseConvRelu(before["main"]).visit(before["main"]))
verdict = equivalent(model, after)
assert verdict and equivalent(before, after)
print(verdict)
diff(before, after, title="conv2d_relu in Relay")

# %% [markdown]
# `max ulp` is large although the absolute difference is tiny: where a sum nearly cancels, its result is close to 0, and
# there many floats lie within one rounding error. New expressions have no types. `InferType` infers them; the picture
# did so on a copy.
#
# **Relax** has a mutator, too. Values have names here, so the operand of the call is a variable, and the mutator looks
# up its binding. It adds the new function to the module under a name, and leaves the convolution, which is now unused,
# to a clean-up pass.

# %%
# %%beside relax
from passlab.relax import relax, tvm

RELU, CONV = tvm.ir.Op.get("relax.nn.relu"), tvm.ir.Op.get("relax.nn.conv2d")


@relax.expr_functor.mutator
class FuseConvRelu(relax.PyExprMutator):
    """`relu(conv2d(x, w))` = `conv2d_relu(x, w)`, if the conv has no other user."""

    def visit_call_(self, call):
        conv = self.lookup_binding(call.args[0]) if call.op == RELU else None
        if (
            not isinstance(conv, relax.Call)
            or conv.op != CONV
            or self.readers[call.args[0].name] > 1
        ):
            return self.visit_expr_post_order(call)
        x, w = relax.Var("x", conv.args[0].ty), relax.Var("w", conv.args[1].ty)
        build = relax.BlockBuilder()
        one_kernel = {"Composite": "conv2d_relu", "Primitive": True}
        with build.function("conv2d_relu", [x, w], one_kernel, private=True):
            with build.dataflow():
                y = build.emit(relax.Call(CONV, [x, w], conv.attrs))
                z = build.emit_output(relax.op.nn.relu(y))
            build.emit_func_output(z)
        fused = self.builder_.add_func(build.get()["conv2d_relu"], "conv2d_relu")
        return relax.Call(fused, conv.args)


# %%
# %%beside relax
def fuse_conv_relu(module):
    main, readers = module["main"], Counter()

    def count(expr):
        if isinstance(expr, relax.Call):
            readers.update(arg.name for arg in expr.args if isinstance(arg, relax.Var))

    relax.analysis.post_order_visit(main, count)
    mutator = FuseConvRelu(module)
    mutator.readers = readers
    mutator.builder_.update_func(
        module.get_global_var("main"), mutator.visit_expr(main)
    )
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


before = relax_module(model, image)
after = fuse_conv_relu(before)
verdict = equivalent(model, after)
assert verdict and equivalent(before, after)
print(verdict)
diff(before, after, title="conv2d_relu in Relax")

# %% [markdown]
# Exercise 8 is a mutator of this kind for `x * sigmoid(x)`: for each factor of a product, look up its binding, and
# check whether that is the sigmoid of the other factor. Day 7 has more of Relay's mutators.
#
# The underscore in `visit_call_` is a trap. A method `visit_call`, as in Relay, is never called, and no error tells
# you:


# %%
# %%beside relax
calls_seen = []


@relax.expr_functor.mutator
class Deaf(relax.PyExprMutator):
    def visit_call(self, call):
        calls_seen.append(call)
        return call


Deaf(before).visit_expr(before["main"])
print("calls seen:", len(calls_seen))
assert not calls_seen

# %% [markdown]
# These are the names in each compiler. The cell looks each of them up in its own process:

# %%
RELAX_CALLS = "relax.PyExprMutator.visit_call_"
names = {
    "visitor": ("fx.Interpreter", "relay.ExprVisitor", "relax.PyExprVisitor"),
    "mutator": ("fx.Transformer", "relay.ExprMutator", "relax.PyExprMutator"),
    "its method for calls": (
        "fx.Transformer.call_function",
        "relay.ExprMutator.visit_call",
        RELAX_CALLS,
    ),
    "who reads a value": (
        "fx.Node.users",
        "relay.analysis.post_order_visit",
        "relax.analysis.udchain",
    ),
    "pattern and replacement": (
        "fx.replace_pattern",
        "relay.dataflow_pattern.rewrite",
        "relax.dpl.rewrite_call",
    ),
    "pass": (
        "PassBase",
        "relay.transform.function_pass",
        "relax.transform.function_pass",
    ),
    "pass manager": (
        "PassManager",
        "tvm.transform.Sequential",
        "tvm.transform.Sequential",
    ),
    "facts after a rewrite": (
        "ShapeProp",
        "relay.transform.InferType",
        "relax.BlockBuilder.normalize",
    ),
    "is it well-formed?": (
        "fx.Graph.lint",
        "relay.analysis.well_formed",
        "relax.analysis.well_formed",
    ),
}
for idea, (in_fx, in_relay, in_relax) in names.items():
    assert eval(in_fx) is not None, idea
    assert beside.value("relay", f"{in_relay} is not None") in (True, None), idea
    assert beside.value("relax", f"{in_relax} is not None") in (True, None), idea
Table(
    ("idea", "torch.fx", "Relay", "Relax"),
    tuple((idea, *row) for idea, row in names.items()),
)

# %% [markdown]
# ## Key takeaways
#
# - A pass maps a graph to a graph with the same meaning: match, insert, redirect the users, clean up.
# - Post-order and a memory of what is done turn an exponential walk into a linear one, because models share results.
# - Before you remove a node, check for other users.
# - A rewrite makes old facts (shapes, costs) stale.
# - Compare with a tolerance that comes from the dtype, and test the inputs that are easily forgotten.
#
# ## Further reading
#
# - "torch.fx: Practical Program Capture and Transformation for Deep Learning in Python", James K. Reed, Zachary DeVito,
#   Horace He, Ansley Ussery, Jason Ansel, MLSys 2022.
# - "LLVM: A Compilation Framework for Lifelong Program Analysis & Transformation", Chris Lattner, Vikram Adve,
#   CGO 2004.
# - "Alive2: Bounded Translation Validation for LLVM", Nuno P. Lopes, Juneyoung Lee, Chung-Kil Hur, Zhengyang Liu,
#   John Regehr, PLDI 2021.
# - "Provably Correct Peephole Optimizations with Alive", Nuno P. Lopes, David Menendez, Santosh Nagarakatte,
#   John Regehr, PLDI 2015.
#
# ## Tomorrow
#
# With a way to walk, to match and to compare, the classic optimizations are short: folding constants, removing dead
# code, merging equal subexpressions, simplifying algebra. Each is easy to write almost right. Day 3 is about the word
# *almost*, and about the order in which they help each other.
