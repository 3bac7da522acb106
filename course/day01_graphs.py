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
# # Day 1 · A model is a graph
#
# When you call a PyTorch model, Python runs it line by line and keeps no record of it. A compiler needs a record, so
# first it writes the computation down: the operations, and where each result is used. That is a **graph**, and the
# form in which it is written down is an **intermediate representation**, IR.
#
# Today you look at one small model in nine IRs, drawn by the same function, and compare what each of them states and
# what it leaves open. The lesson takes about 75 minutes, and 5 more for what is marked stretch. The exercises are in
# [work/day01/graphs.ipynb](../work/day01/graphs.ipynb); one more, about Relay, is in
# [work/day01/relay.ipynb](../work/day01/relay.ipynb).

# %%
import logging
import warnings

import jax
import jax.numpy as jnp
import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from passlab import draw, guess, models, trace, view
from passlab.graph import table
from passlab.mlir.imports import from_stablehlo, from_torch
from passlab.mlir.modules import MISSING, native
from passlab.notebook import beside

# torch.onnx would report that torchvision is missing;
# torch.export warns about its own code.
logging.getLogger("torch.onnx").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")
warnings.filterwarnings("ignore", ".*torch.jit.*deprecated", DeprecationWarning)
torch.manual_seed(0)

# %% [markdown]
# ## Operations and the tensors between them
#
# Start with a very small model: a linear layer and a ReLU.


# %%
class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


tiny, x = Tiny().eval().requires_grad_(False), torch.randn(2, 4)
gm = trace(tiny, x)
draw(gm)

# %% [markdown]
# A box is an operation, an arrow is a tensor: what an operation *produces* and another *consumes*. No arrow leads back,
# because a result cannot be used before it exists. Such a graph is called a DAG, directed and acyclic. As long as its
# operations only compute, any order that respects the arrows is a correct order to run it in. (An operation that writes
# into a tensor adds constraints; you meet one below.)
#
# How did PyTorch get this graph? `torch.fx` called `forward` once, with a stand-in for the tensor that records what is
# done to it. This is the record:

# %%
print(gm.graph)
print(gm.code)

# %% [markdown]
# Both print the same graph, the second as Python again. A node of torch.fx has an **opcode**, which says what kind of
# entry it is, a **target**, which says what it calls, and operands. `print_tabular` shows them in columns:

# %%
gm.graph.print_tabular()

# %% [markdown]
# The weights of the linear layer are *not* in the graph: fx does not look into the layers of `torch.nn`, so `linear` is
# one call of a module that owns its weights.
#
# ## Five kinds of node
#
# Nodes do different jobs, and passes treat them differently. Five kinds are enough for every IR of this course:
#
# | kind | what it does | a pass that cares |
# |---|---|---|
# | compute | arithmetic: matrix products, activations, sums | fusion: this is where the time goes |
# | data | brings values in and out: inputs, weights, constants, the output | constant folding |
# | shape | rearranges or views without arithmetic: reshape, transpose, slice | often free, sometimes a copy |
# | control | decides what runs: branches, loops | limits what can be moved |
# | memory | changes or copies stored values: in-place updates, clones | the reason many passes are hard |
#
# Guess which kinds the next model has, then look.


# %%
class Lookup(nn.Module):
    def forward(self, x, table):
        rows = x.reshape(-1, 4)
        table.add_(rows.sum())
        return torch.softmax(rows @ table.transpose(0, 1), dim=-1)


mixed = trace(Lookup(), torch.randn(2, 2, 4), torch.randn(3, 4))
draw(mixed)

# %%
print(view(mixed).counts())
assert view(mixed).counts()["control"] == 0

# %% [markdown]
# There is no control node, and torch.fx could not have recorded one: tracing runs the Python code once, so it unrolls
# loops and takes branches, and the graph has only the operations that ran. What if a branch depends on the *values* in
# a tensor? Before the answer, guess: put your guess in place of the dots. It is kept in `work/guesses.json`, compared
# with what the next cell computes, and never graded. You can go on without one.


# %%
class Branch(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1


# %%
bet = guess(
    "What does torch.fx make of this `if`?",
    ...,
    among=("one of its branches", "both branches", "an error"),
)

# %% tags=["hide-output"]
try:
    fx.symbolic_trace(Branch())
except Exception as error:
    print(type(error).__name__, "-", error)
    bet.compare("an error")

# %% [markdown]
# Without values the branch cannot be taken. Other IRs can hold one. TorchScript reads the source code instead of running
# it, and keeps both arms as blocks inside the node:


# %%
def branch(x):
    if bool(x.sum() > 0):  # noqa: SIM108
        y = x * 2
    else:
        y = x - 1
    return y


scripted = torch.jit.script(branch)
assert view(scripted).counts()["control"] > 0
draw(scripted)

# %% [markdown]
# ## Every value gets one name
#
# In Python a name can be assigned several times. In a graph that would be ambiguous: which `x` does an arrow mean? So
# each value gets a name of its own. That form is called **SSA**, static single assignment.


# %%
def reuse(x):
    x = x * 2
    x = x + 1
    return x * x


renamed = fx.symbolic_trace(reuse)
print(renamed.code)

# %% [markdown]
# Three different `x` became `x`, `mul`, `add`. The gain: from each use you can go to the one definition of the value,
# and from each value to all its uses. Passes follow these **def-use chains**.

# %%
for node in renamed.graph.nodes:
    inputs = ", ".join(value.name for value in node.all_input_nodes)
    uses = ", ".join(user.name for user in node.users) or "no node"
    print(f"{node.name:8} computed from ({inputs}), used by {uses}")

# %% [markdown]
# SSA promises that values do not change, and mutation breaks that promise. Watch the caller's tensor:


# %%
def update(x):
    x += 1
    return x * 2


# %%
bet = guess(
    "What does a tensor of zeros hold after a call of the graph of `update`?",
    ...,
)

# %% tags=["hide-output"]
traced = fx.symbolic_trace(update)
by_python, by_graph = torch.zeros(2), torch.zeros(2)
update(by_python)
traced(by_graph)
print("after the Python function:", by_python, "  after its graph:", by_graph)
assert not torch.equal(by_python, by_graph)
bet.compare(int(by_graph[0]))

# %%
draw(traced, title="x += 1, as torch.fx records it")

# %% [markdown]
# The graph has an ordinary addition: the result is right, but the side effect is lost. The tracer is at fault, not your
# code, and not the IR, which has a node for `x.add_(1)`. The tracer's stand-in for the tensor does not implement `+=`,
# so Python computes `x = x + 1`. A method call is recorded, but it needs an order that no arrow shows:


# %%
def read_and_write(x):
    before = x * 2
    x.add_(1)
    return before + x


writing = fx.symbolic_trace(read_and_write)
_, mul, add_, *_ = writing.graph.nodes
first = writing(torch.ones(1))
# Put the write before the read: no arrow leads backwards, and lint does not object.
mul.prepend(add_)
writing.graph.lint()
writing.recompile()
print("as written:", first.item(), "  the write first:", writing(torch.ones(1)).item())
assert first.item() != writing(torch.ones(1)).item()

# %% [markdown]
# Where values never change, arrows determine which orders are correct. An IR that allows writes has to keep their order
# by other means.
#
# ## Shapes and dtypes
#
# `trace` put shapes into the pictures above. torch.fx itself does not know them:

# %%
bare = fx.symbolic_trace(tiny)
print([node.meta.get("tensor_meta") for node in bare.graph.nodes])
ShapeProp(bare).propagate(x)
print([tuple(node.meta["tensor_meta"].shape) for node in bare.graph.nodes])

# %% [markdown]
# `ShapeProp` found them by running the model on real data. There is a cheaper way: tensors on the **meta** device have
# a shape and a dtype but no data, and nearly every PyTorch operation can compute the shape of its result from the
# shapes of its inputs. (`nonzero` cannot: how many rows it has depends on the values.) A trillion numbers cost nothing:

# %%
huge = torch.empty(1_000_000, 1_000_000, device="meta")
product = huge @ huge.T
print(
    product.shape,
    f"{product.numel() * product.element_size() / 1e12:.0f} TB, none of it stored",
)

# %% [markdown]
# What are shapes good for? Shape and dtype give each tensor a size in bytes, and with sizes a compiler can plan memory,
# choose tile sizes, pick a layout and predict cost before anything runs. These are the largest tensors of a small
# convolutional network in `models.ZOO`, the *zoo* of models in this course:

# %%
net = models.ZOO["convnet"]
graph = view(trace(net.build(), *net.inputs()))
for node in sorted(graph.nodes, key=lambda n: -(n.bytes or 0))[:5]:
    print(f"{node.id:14} {node.op:14} {node.shape!s:20} {node.bytes:>9,} bytes")
print(f"all activations together: {graph.bytes:,} bytes")

# %% [markdown]
# ## One model, nine IRs
#
# Now the same model, `relu(linear(x))`, in eight more forms, from which different compilers start. Watch three things:
# is the linear layer one node or several, where are its weights, and does the IR know the shapes?
#
# You have seen **torch.fx**. **TorchScript** is PyTorch's older IR, deprecated but still found in many deployed
# systems. It has types, has blocks for control flow, and reads weights from the module one attribute at a time:

# %%
script = torch.jit.trace(tiny, x)
draw(script)

# %% [markdown]
# **torch.export** lowers to ATen, the operators that PyTorch's kernels implement. (A **kernel** is a program that computes
# one operation on one kind of hardware.) The weights have become inputs of the graph, and every value has its shape.

# %%
exported = torch.export.export(tiny, (x,))
draw(exported)

# %% [markdown]
# The layer was a module call in fx; here it is `aten.linear`, and its operands are visible. One step lower, the
# decompositions rewrite that into smaller operators:

# %%
draw(exported.run_decompositions())

# %% [markdown]
# **ONNX** is made for exchange between frameworks. Its operators are fewer and larger; here the layer is a `Gemm`,
# which computes α·A·B + β·C.

# %%
onnx_program = torch.onnx.export(tiny, (x,), dynamo=True, verbose=False)
draw(onnx_program)

# %% [markdown]
# **StableHLO** is the input of XLA, the compiler of JAX. PyTorch does not export it, so the model is written once more,
# in JAX, with the same weights. Look for the broadcast: in this IR it is always explicit.

# %%
weight, bias = tiny.linear.weight.numpy(), tiny.linear.bias.numpy()


def tiny_in_jax(x, weight, bias):
    return jnp.maximum(x @ weight.T + bias, 0)


lowered = jax.jit(tiny_in_jax).lower(x.numpy(), weight, bias)
print(lowered.as_text())
draw(lowered)

# %% [markdown]
# Is it still the same model? Compare the results:

# %%
difference = abs(tiny(x).numpy() - tiny_in_jax(x.numpy(), weight, bias)).max()
print("largest difference between PyTorch and JAX:", difference)
assert difference < 1e-6

# %% [markdown]
# **HLO** is the IR inside XLA. At first it resembles StableHLO. After XLA's own passes it is a different graph: the
# element-wise tail has become one *fusion*, a single kernel. (The other one is the product, which a library computes.)
# You will write such passes.

# %%
draw(lowered.compile().as_text(), title="HLO after XLA's passes")

# %% [markdown]
# **MLIR** is a family of IRs with one grammar: operations, values, types, and *regions*, which contain operations inside
# an operation. StableHLO is one of its dialects. Another is `linalg`, in which every operation is a loop nest over
# elements: the maps say which element each loop index reads, and the region what is computed from it. torch-mlir, which
# comes with IREE (day 9), imports the model.

# %%
linalg = from_torch(tiny, x).module if native() else None
draw(linalg, title="MLIR: linalg on tensors") if linalg else print(MISSING)

# %% [markdown]
# **Relay and Relax** are the IRs of Apache TVM: first Relay, then Relax (days 7 and 8). They come with different
# versions of TVM, and a process can load only one of them. So each has a process of its own beside this notebook: a
# cell that starts with `%%beside relay` runs there, keeps its variables there, and shows its output here.

# %%
# %%beside relay relax
import torch

from passlab import draw, equivalent
from passlab.tvm.importers import relax_module, relay_module


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


model, example = Tiny().eval(), torch.randn(2, 4)

# %%
# %%beside relay
module, weights = relay_module(model, example, bind=False)
print(module)
draw(module)

# %% [markdown]
# A Relay function is one expression. The printer invents the names `%0`, `%1`: inside the compiler, the `relu` simply
# refers to its operand. Types are part of the language, here in the comments; the compiler infers them for every
# expression. The layer has become `nn.dense` and `nn.bias_add`, with visible weights.
#
# In Relax every value is bound to a name, as in SSA. No type has to be inferred later: each binding has one from the
# start.

# %%
# %%beside relax
module, weights = relax_module(model, example, bind=False)
print(module)
draw(module)

# %% [markdown]
# The same layer is `permute_dims`, `matmul` and `add` here, because it was imported through `torch.export` and its
# decompositions: a graph's form depends on how it was imported. Is it still the same model? Build it and run it, with
# the weights as constants:

# %%
# %%beside relax
bound = relax_module(model, example)
verdict = equivalent(model, bound)
assert verdict
verdict

# %% [markdown]
# Like MLIR, Relax can also express its own lowered forms: operators become functions over loops, these are fused, and
# memory is allocated for them. The result is still a Relax module, which the same function draws:

# %%
# %%beside relax
from passlab.relax import relax, tvm

target = tvm.target.Target("llvm")
with target:
    lowered = relax.get_default_pipeline(target)(bound)
draw(lowered, title="Relax after its pipeline")

# %% [markdown]
# ## A branch in each of them
#
# Other IRs accept the branch that torch.fx refused, if both arms are functions.


# %%
class Conditional(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def conditional_in_jax(x):
    return jax.lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x)


branches = {
    "TorchScript": scripted,
    "torch.export": torch.export.export(Conditional().eval(), (x,)),
    "ONNX": torch.onnx.export(Conditional().eval(), (x,), dynamo=True, verbose=False),
    "StableHLO": jax.jit(conditional_in_jax).lower(x.numpy()),
    "HLO": jax.jit(conditional_in_jax).lower(x.numpy()).as_text(dialect="hlo"),
}
draw(branches["ONNX"], title="A branch in ONNX")

# %% [markdown]
# In Relay and Relax a branch is part of the language. Relay's importer even reads it out of TorchScript; for Relax it
# is written in TVMScript, a Python syntax that is parsed but never run.

# %%
# %%beside relay
from passlab.relay import relay, tvm


def branch(x):
    if bool(x.sum() > 0):  # noqa: SIM108
        y = x * 2
    else:
        y = x - 1
    return y


branching, _ = relay.frontend.from_pytorch(torch.jit.script(branch), [("x", (2, 4))])
print(branching["main"])

# %%
# %%beside relax
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class Branching:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        if R.greater(R.sum(x), R.const(0.0)):
            y = R.multiply(x, R.const(2.0))
        else:
            y = R.subtract(x, R.const(1.0))
        return y


draw(Branching, title="A branch in Relax")

# %% [markdown]
# ## What each IR makes explicit
#
# Every column of the table is computed from the graphs above. *Typed*: do the values have a dtype and a shape? *SSA*:
# does each value have one definition, before all its uses, and is none mutated? *Control flow*: what did the branch
# become?

# %%
panels = {
    "torch.fx": fx.symbolic_trace(tiny),
    "TorchScript": script,
    "torch.export": exported,
    "ONNX": onnx_program,
    "StableHLO": lowered,
    "HLO": lowered.compile().as_text(),
    "MLIR, linalg": linalg,
    "Relay": beside.view("relay", "module"),
    "Relax": beside.view("relax", "module"),
    "Relax, lowered": beside.view("relax", "lowered"),
}
branches["MLIR, linalg"] = from_stablehlo(branches["StableHLO"]) if linalg else None
branches |= {
    "Relay": beside.view("relay", "branching"),
    "Relax": beside.view("relax", "Branching"),
}
forms = {
    name: [ir for ir in (panel, branches.get(name)) if ir is not None]
    for name, panel in panels.items()
}
comparison = table(
    {name: [view(ir) for ir in irs] for name, irs in forms.items() if irs}
)
comparison

# %%
rows = {
    row[0]: dict(zip(comparison.columns, row, strict=True)) for row in comparison.rows
}
if linalg:
    assert rows["MLIR, linalg"]["SSA?"] == "yes"
    assert "scf.if" in rows["MLIR, linalg"]["control flow?"]
for name in {"Relay", "Relax"} & set(rows):
    assert rows[name]["typed?"] == rows[name]["SSA?"] == "yes"
    assert "If" in rows[name]["control flow?"]
if "Relax" in rows:
    assert rows["Relax, lowered"]["SSA?"].startswith("no")
    assert "kernels" in rows["Relax, lowered"]["level"]

# %% [markdown]
# From torch.fx down to StableHLO, more is explicit and there are more nodes; in the row of HLO a compiler has fused
# them again. The last two rows show one IR before and after its compiler: Relax begins with tensor operators and ends with
# kernels that write into memory which other nodes have allocated, so it is no longer SSA. No form is best for
# everything: small operators make fusion easy, large ones make it easy to recognize attention.

# %% [markdown]
# ## The same node in two graphs · stretch
#
# Which node of one IR corresponds to which node of another? Names do not tell, since every exporter chooses its own,
# and order does not either. But the two results correspond, and from there you can walk both graphs backwards together:
# when two values correspond, so do the nodes that compute them, and then their operands, one by one.

# %%
traced, model = trace(tiny, x), onnx_program.model_proto
maker = {name: node for node in model.graph.node for name in node.output}
*_, output = traced.graph.nodes
# FX node → the ONNX value that it corresponds to
value = {output.args[0]: model.graph.output[0].name}
for node in reversed(traced.graph.nodes):
    if node in value and value[node] in maker:
        twin = maker[value[node]]
        kind = node.target if node.op == "call_module" else node.op
        print(f"{node.name} ({kind}) is {twin.name} ({twin.op_type})")
        value.update(zip(node.all_input_nodes, twin.input, strict=False))
assert len(value) == 3

# %% [markdown]
# Here each node has one counterpart. Where one became several, or two became one, the walk has to step over the whole
# group before it continues: exercise 4.
#
# ## Forks and joins
#
# Real networks are not chains. A residual block sends its input along two paths and adds the results:

# %%
block = models.ZOO["residual"]
residual = trace(block.build(), *block.inputs())
draw(residual)

# %% [markdown]
# The arrow that skips most of the block is the **residual edge**. It has two consequences that return on many days: the
# tensor at the fork has to stay in memory until the join, and every change to the producer at the fork affects both
# users.
#
# The picture also shows how much could run in parallel: nodes that no path connects. In the residual block there are
# hardly any. In an attention block, queries, keys and values are independent for a while:

# %%
attention = models.ZOO["attention"]
draw(trace(attention.build(), *attention.inputs()))

# %% [markdown]
# Most networks are deep and narrow like these two; exercise 3 measures it. So running nodes in parallel gains little.
# Fewer and better nodes gain much, and that is the work of passes.
#
# ## Key takeaways
#
# - An IR writes a computation down as a DAG: operations, and the tensors between them.
# - There are five kinds of node: compute, data, shape, control, memory. For most passes the last two are obstacles.
# - SSA gives every value one name; it cannot express mutation.
# - Shapes and dtypes have to be propagated; with them, bytes and costs can be known before anything runs.
# - IRs differ in what they make explicit: weights, broadcasts, shapes, control flow, memory.
#
# ## Further reading
#
# - "Efficiently Computing Static Single Assignment Form and the Control Dependence Graph", Ron Cytron, Jeanne Ferrante,
#   Barry K. Rosen, Mark N. Wegman, F. Kenneth Zadeck, TOPLAS 1991.
# - "torch.fx: Practical Program Capture and Transformation for Deep Learning in Python", James K. Reed, Zachary DeVito,
#   Horace He, Ansley Ussery, Jason Ansel, MLSys 2022.
# - "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning", Tianqi Chen et al., OSDI 2018.
# - "Relay: A New IR for Machine Learning Frameworks", Jared Roesch, Steven Lyubomirsky, Logan Weber, Josh Pollock,
#   Marisa Kirisame, Tianqi Chen, Zachary Tatlock, MAPL 2018.
# - "Relax: Composable Abstractions for End-to-End Dynamic Machine Learning", Ruihang Lai, Junru Shao, Siyuan Feng,
#   Steven S. Lyubomirsky, Bohan Hou, Wuwei Lin, Zihao Ye, Hongyi Jin, Yuchen Jin, Jiawei Liu, Lesheng Jin, Yaxing Cai,
#   Ziheng Jiang, Yong Wu, Sunghyun Park, Prakalp Srivastava, Jared Roesch, Todd C. Mowry, Tianqi Chen, ASPLOS 2025.
# - "MLIR: Scaling Compiler Infrastructure for Domain Specific Computation", Chris Lattner et al., CGO 2021.
#
# ## Tomorrow
#
# You can read graphs now. Tomorrow you change one: what a pass is, in which order it visits nodes, what it must check
# before it rewrites, and how to know that the result is still the same function.
