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
# # Day 17 · Breaking compilers
#
# For sixteen days you wrote passes that keep what a program computes. Real compilers do not always keep it. Today you
# look for their faults, as people do who test compilers for a living: with programs that nobody wrote.
#
# - **generators**: random programs that run, and that do what passes get wrong
# - **oracles**: how to know that a result is wrong, if nobody knows the right one
# - **shrinking**: from a program with thirty operations to the two that matter
# - **faults** in the compilers that are installed here, each shown by a program of a few lines
#
# In the exercises, [work/day17/breaking.ipynb](../work/day17/breaking.ipynb), you write the oracle, the generator and
# the shrinker. The lesson takes about 60 minutes, and 10 more for what is marked stretch.

# %%
import copy
import operator
from collections import Counter
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import nn

from passlab import draw, guess, random_graph, trace
from passlab.hunt import TARGETS, hunt
from passlab.hunt.faults import arbiter, differ
from passlab.hunt.graphs import drawn_graph
from passlab.hunt.oracle import why_wrong
from passlab.hunt.search import failure, quiet

_ = torch.manual_seed(0)

# %% [markdown]
# ## A random program, run twice
#
# This pass merges common subexpressions. It was written in a hurry: two calls are the same if they call the same
# function with the same arguments.


# %%
def hasty(gm):
    first = {}
    for node in list(gm.graph.nodes):
        key = node.op, node.target, str(node.args)
        if node.op.startswith("call") and first.setdefault(key, node) is not node:
            node.replace_all_uses_with(first[key])
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


# %% [markdown]
# To test it, take a random program, run it before and after the pass on the same inputs, and compare:


# %%
def run(program, inputs):
    torch.manual_seed(0)
    outputs = program(*(x.clone() for x in inputs))
    return [y for y in torch.utils._pytree.tree_leaves(outputs)]


def test(apply, gm):
    inputs = gm.meta["inputs"]
    before = run(gm, inputs)
    return differ(before, run(apply(copy.deepcopy(gm)), inputs))


features = {"random": False, "mutation": False}
for seed in range(100):
    faulty = random_graph(seed, 30, **features)
    if difference := test(hasty, faulty):
        break
print(f"graph {seed}, {len(faulty.graph.nodes)} nodes:", *difference)

# %% [markdown]
# That is all of it: a **generator** of programs, an **oracle** that knows wrong results, and a loop. What is tested is
# the **target**. A **fault** is what is wrong in it; a program on which that shows is a **failure**, and *exposes* the
# fault. One fault may have a hundred failures.
#
# ## What fuzzing found
#
# Testing with random programs is called *fuzzing*. It is how most faults of compilers were found that no user had
# reported:
#
# | year | title | what is random |
# |---|---|---|
# | 2011 | Finding and Understanding Bugs in C Compilers (Csmith) | C programs without undefined behaviour; compilers compared with each other |
# | 2014 | Compiler Validation via Equivalence Modulo Inputs | what a run does not reach is changed: the result may not change |
# | 2021 | A Comprehensive Study of Deep Learning Compiler Bugs | nothing: faults reported for TVM, Glow and nGraph, sorted by cause |
# | 2022 | Coverage-Guided Tensor Compiler Fuzzing with Joint IR-Pass Mutation (Tzer) | TVM's low-level IR, and the order of passes |
# | 2023 | NNSmith: Generating Diverse and Valid Test Cases for Deep Learning Compilers | graphs; a solver finds shapes that fit, a search finds inputs without NaN |
# | 2023 | NeuRI: Diversifying DNN Generation via Inductive Rule Inference | graphs, of operators whose shape rules are learned from runs |
# | 2024 | WhiteFox: White-Box Compiler Fuzzing Empowered by Large Language Models | programs written by a model that has read the pass |
#
# The study of 2021 says where to look: most faults are in the passes and the importers, and wrong shapes and dtypes are
# a frequent cause. You will meet each of these below.
#
# ## Programs that run
#
# A program that does not run tests nothing. If operations, operands and shapes are drawn blindly, how many run?

# %%
bet = guess(
    "Of 100 programs of ten operations on tensors of drawn shapes, how many run?", ...
)

# %% tags=["hide-output"]
BLIND = (torch.add, torch.mul, torch.matmul, torch.relu, torch.t, torch.cat)
BLIND += (lambda x: x.sum(0), lambda x: x.reshape(2, -1), lambda x, y: x[y.shape[0]])


def runs(length):
    values = [torch.randn(*torch.randint(1, 5, (2,)).tolist()) for _ in range(2)]
    try:
        for _ in range(length):
            op = BLIND[torch.randint(len(BLIND), ())]
            x, y = (values[i] for i in torch.randint(len(values), (2,)))
            one = op in (torch.relu, torch.t) or op in BLIND[6:8]
            values.append(op(x) if one else op([x, y]) if op is torch.cat else op(x, y))
    except (RuntimeError, IndexError):
        return False
    return True


torch.manual_seed(0)
share = {n: sum(runs(n) for _ in range(100)) for n in (1, 2, 5, 10, 20)}
for n, number in share.items():
    print(f"{n:3} operations: {number:3} of 100 run")
assert share[20] < 10
bet.compare(share[10])

# %% [markdown]
# So a generator makes programs that are **well typed by construction**: it knows shape and dtype of each value, and adds
# only operations that fit. `random_graph` runs each operation while the graph grows, on small tensors. NNSmith leaves
# shapes open, writes what operations demand of them as equations, and asks a solver.

# %%
assert all(run(gm, gm.meta["inputs"]) for gm in map(random_graph, range(100)))
print("100 of 100 run")

# %% [markdown]
# Numbers can spoil a test, too. After ten exponentials all is infinite, and after that all programs are equal. So
# `random_graph` scales numbers that grow too large; NNSmith searches for inputs without NaN.
#
# ## Programs that break passes
#
# A program that runs may still be harmless. Here are six passes, each with one fault that was seen in answers to this
# course's exercises:


# %%
def rewritten(gm, rule):
    """Replace each node for which the rule names another."""
    for node in list(gm.graph.nodes):
        other = rule(node) if node.op.startswith("call") else None
        if other is not None:
            node.replace_all_uses_with(other)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


def times_one(node):  # x · 1.0 is x: also for integers
    if node.target in (operator.mul, torch.mul) and node.args[1:] == (1,):
        return node.args[0]


def minus_itself(node):  # x − x is 0 · … : also for x = ∞
    if node.target in (operator.sub, torch.sub) and len(set(node.args)) == 1:
        with node.graph.inserting_before(node):
            return node.graph.call_function(torch.zeros_like, node.args[:1])


def no_dropout(node):  # dropout does nothing, unless it draws
    if node.target is F.dropout:
        return node.args[0]


def without_eps(gm):  # a batch norm divides by √var
    for module in gm.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 0.0
    return gm


def unread_is_dead(gm):  # a write is read by nobody
    for node in reversed(list(gm.graph.nodes)):
        if node.op.startswith("call") and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


FAULTY = {
    "keywords": hasty,
    "x · 1": lambda gm: rewritten(gm, times_one),
    "x − x": lambda gm: rewritten(gm, minus_itself),
    "dropout": lambda gm: rewritten(gm, no_dropout),
    "eps": without_eps,
    "dead write": unread_is_dead,
}

# %% [markdown]
# `why_wrong(apply, gm)` is the oracle of day 2: it says how a pass fails on a graph, or "". It also tries NaN, ∞ and
# other inputs. The number of the first graph that exposes each fault, of three generators:

# %%
GENERATORS = {
    "element-wise": lambda i: random_graph(i, 20, only=["pointwise"]),
    "random_graph": lambda i: random_graph(i, 20, mutation=i % 2 == 1),
    "patterns": drawn_graph,
}
LIMIT = 60


def first_failure(apply, graphs):
    numbers = (i for i, gm in enumerate(graphs) if why_wrong(apply, gm))
    return next(numbers, None)


exposed = {}
print(" " * 14, *(f"{name:<12}" for name in FAULTY))
for name, generator in GENERATORS.items():
    graphs = [generator(i) for i in range(LIMIT)]
    row = [first_failure(apply, graphs) for apply in FAULTY.values()]
    exposed[name] = sum(i is not None for i in row)
    print(f"{name:<14}", *(f"{'-' if i is None else i:<12}" for i in row))
assert exposed["element-wise"] < exposed["patterns"]

# %% [markdown]
# Element-wise operations alone expose little: a generator finds no fault in what it never writes. `random_graph` writes
# everything, and it writes what passes *look for*: the same expression twice, x · 1, a read before and after a write.
# `drawn_graph` goes further. A pass is seldom wrong where it does nothing, nor on the program that its author had in
# mind. So it takes the patterns of passes, convolution and batch norm, attention, GELU, twins, and **changes one
# thing**: another reader, a write in between, a keyword, a dtype, a module called `relu` that is none.
#
# Two more ideas are in it. Some features are switched off for each program at random (*swarm testing*): if all programs
# have everything, they are all alike. And now and then something is extreme: an empty tensor, a chain longer than
# Python's stack.
#
# ## Oracles
#
# What tells that a result is wrong?
#
# | oracle | it compares | it misses |
# |---|---|---|
# | crash | nothing: no valid program may raise an error | wrong results |
# | differential | the result with that of another compiler, without the pass, in another order, dtype or on another device | what both do wrong |
# | metamorphic | two results of the *same* compiler, whose relation is known | what the relation does not see |
#
# Eager PyTorch is the other compiler for passes over FX. `failure` asks the first two oracles about a target, and
# returns what kind of failure there is. This is torch's own CSE, on three small programs:


# %%
class Program(nn.Module):
    """A function of one input, as a module."""

    def __init__(self, function):
        super().__init__()
        self.function, self.tanh = function, nn.Hardtanh()
        self.weight = nn.Parameter(torch.ones(3), requires_grad=False)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.function(self, x)


def program(function, x):
    return trace(Program(function).eval(), x)


x, n = torch.tensor([[1.0, -2.5, 3.0], [0.0, 4.0, -1.0]]), torch.tensor([-3, 2, 5])
SMALL = {
    "x[:, 1:]": program(lambda m, x: x[:, 1:], x),
    "x + 1, x + 1.0": program(lambda m, x: (x + 1, x + 1.0), n),
    "1/(x·0.0), 1/(x·−0.0)": program(
        lambda m, x: (1 / (x * 0.0), 1 / (x * -0.0)), x.abs() + 1
    ),
}
for name, gm in SMALL.items():
    print(f"{name:<24}", *failure(TARGETS["cse"], gm))
    assert failure(TARGETS["cse"], gm)

# %% [markdown]
# A crash, a wrong dtype, wrong values. To Python, 1 == 1.0 and 0.0 == −0.0, and `CSEPass` looks its keys up in a
# dictionary.
#
# ## How different is different?
#
# This is the hard part. A right pass may change the order of a sum, and with it the last bits. If an oracle compares
# bits, right passes are accused: a **false alarm**. If it allows much, faults pass: a **miss**. Sums of 1,000 numbers,
# in 100 other orders (right), and with one number changed by a thousandth (wrong):

# %%
numbers = torch.randn(1000)
total = numbers.sum()
right = [numbers[torch.randperm(1000)].cumsum(0)[-1] for _ in range(100)]
wrong = []
for i in range(100):
    changed = numbers.clone()
    changed[i] *= 1.001
    wrong.append(changed.sum())
print("tolerance   false alarms   misses")
for tolerance in (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2):
    alarms = sum(bool((y - total).abs() > tolerance * total.abs()) for y in right)
    misses = sum(bool((y - total).abs() <= tolerance * total.abs()) for y in wrong)
    print(f"{tolerance:<12}{alarms:>8}     {misses:>8}")

# %% [markdown]
# No tolerance has neither. A harness that cries wolf is soon ignored, so false alarms come first. What helps:
#
# - **Measure the rounding.** Day 2's tolerance grows with the depth of the graph and with what is summed.
# - **Ask an arbiter.** Compute in float64. If the original is near that, and the other is not, it is no rounding.
# - **Know when not to tell.** At a jump, such as `floor`, `argmax` or `x > 0`, the smallest error becomes 1.


# %%
def floors(m, x):
    return torch.floor(x * (1 / 3) * 3)


def divided(gm):
    """Replace x · (1 / 3) by x / 3, which is nearer to what was meant."""
    for node in gm.graph.find_nodes(op="call_function", target=operator.mul):
        if node.args[1] == 1 / 3:
            node.target, node.args = operator.truediv, (node.args[0], 3)
    gm.recompile()
    return gm


gm = program(floors, torch.arange(1.0, 200.0).reshape(1, -1))
inputs = gm.meta["inputs"]
after = run(divided(copy.deepcopy(gm)), inputs)
jumps = (after[0] != run(gm, inputs)[0]).sum()
print(f"{jumps} of 199 numbers differ by 1;", "the arbiter says:", arbiter(gm, after) or "nothing")

# %% [markdown]
# Three more rules. NaN is equal to NaN, and a change from a number to NaN is a difference. Programs that draw random
# numbers are compared with the same seed; if a pass may change the order of draws, one cannot tell. And what a program
# *writes* belongs to its result: its inputs and buffers have to be compared, too.

# %% [markdown]
# ## A law as an oracle · stretch
#
# What if there is no second compiler? Then take a law: a change of the program whose effect on the result is known. Both
# sides go to *the same* compiler. This law says x − α · y in two ways, and Relax's importer `from_fx` breaks it. No run
# of eager PyTorch is needed:

# %%
y = torch.tensor([[2.0, 0.5, -1.0], [3.0, 1.0, 7.0]])
pair = [
    program(lambda m, x: torch.sub(x, x * 3, alpha=2), x),
    program(lambda m, x: torch.sub(x, (x * 3) * 2), x),
]
if find_spec("tvm"):
    with quiet():
        one, other = (
            run(TARGETS["relax-fx"].apply(gm, gm.meta["inputs"]), gm.meta["inputs"])
            for gm in pair
        )
    print(one[0], other[0], sep="\n")
    assert differ(one, other)

# %% [markdown]
# Good laws are those that a compiler does not use itself: reordering inputs and outputs back, splitting a batch in two,
# adding code that does not run, x ↦ −(−x). But both sides can be wrong alike.
#
# ## Shrinking
#
# A failure of thirty nodes is a riddle; one of two is a report. **Delta debugging** makes it smaller while it fails. For
# text it drops lines; a graph has edits that keep it well typed:


# %%
def smaller(gm):
    """Yield graphs that are a little smaller, the boldest first."""
    for node in gm.graph.nodes:  # return an inner node, and nothing else
        if node.op.startswith("call") and "tensor_meta" in node.meta:
            yield edited(gm, node, lambda graph, n: graph.output_node().update_arg(0, n))
    for node in reversed(gm.graph.nodes):  # put an operand of the same shape in its place
        for operand in node.all_input_nodes:
            form, old = (n.meta.get("tensor_meta") for n in (operand, node))
            if form and old and (form.shape, form.dtype) == (old.shape, old.dtype):
                at = operand.name
                yield edited(gm, node, lambda graph, n, at=at: replace(graph, n, at))


def replace(graph, node, name):
    node.replace_all_uses_with(next(n for n in graph.nodes if n.name == name))


def edited(gm, node, edit):
    new = copy.deepcopy(gm)
    edit(new.graph, next(n for n in new.graph.nodes if n.name == node.name))
    new.graph.eliminate_dead_code()  # these programs write nothing
    new.recompile()
    return new


def size(gm):
    return sum(node.op.startswith("call") for node in gm.graph.nodes)


def shrunk(gm, fails):
    for candidate in smaller(gm):
        if size(candidate) < size(gm) and fails(candidate):
            return shrunk(candidate, fails)
    return gm


# %% [markdown]
# `fails` is the test. It should ask for *the same* failure. If it takes any, the search may slip from one fault to
# another on the way: that is **slippage**. The graph from the beginning, and a program with two faults of torch's CSE:

# %%
found = shrunk(faulty, lambda gm: test(hasty, gm) is not None)
print(f"{size(faulty)} operations, {size(found)} after shrinking")
print(found.code.strip())
assert size(found) < size(faulty) / 3


def two_faults(m, x):
    rows = x[1:].sum(0)
    return rows + x.tanh() + m.tanh(x)


mixed = program(two_faults, x)
torch_cse = TARGETS["cse"]
for what, fails in {
    "any failure": lambda gm: failure(torch_cse, gm) is not None,
    "the same one": lambda gm: (failure(torch_cse, gm) or [""])[0] == "TypeError",
}.items():
    print(what, "→", failure(torch_cse, shrunk(mixed, fails)))

# %% [markdown]
# In pictures, before and after:

# %%
draw(faulty)

# %%
draw(found)

# %% [markdown]
# `passlab.shrink` has two more edits, puts inputs in the place of nodes, and tries large pieces first: halves, quarters,
# single nodes. So it needs far fewer tests if much can go.
#
# ## Two faults or one? · stretch
#
# A night of fuzzing leaves a thousand failures of five faults. Nobody reads a thousand. Failures are sorted by a
# **signature**: the kind of failure, the operations of the shrunk graph, and the message without numbers and names.


# %%
failures = Counter()
with quiet():
    faults = hunt("cse", graphs=160)
for fault in faults:
    failures[fault.signature[1], fault.signature[2]] += len(fault.seeds)
for (kind, operations), count in failures.items():
    print(f"{count:3} failures: {kind} with {', '.join(operations)}")
assert faults

# %% [markdown]
# A signature errs on both sides. Two operations with the same fault have two signatures: try whether the operation can
# be exchanged. One operation with two faults has one. The safe test comes last: mend one fault, and run all failures
# again. Those that are gone were that fault.
#
# ## Real compilers
#
# A fault is what breaks a **promise**. `eliminate_dead_code` removes writes, and that is no fault: its docstring says
# that it is for graphs that consist "entirely of functional operations". So each target states its promise, and gets
# only programs that keep to its conditions.

# %%
for name in ("cse", "dce", "const-fold"):
    print(f"{name:<12}{TARGETS[name].promise}")

# %% [markdown]
# Now the compilers that are installed here. Each of these programs has one or two operations:


# %%
def told(name, cases):
    for text, function, example in cases:
        gm = program(function, example)
        with quiet():
            result = failure(TARGETS[name], gm)
        print(f"{name:<11}{text:<34}{' · '.join(result) if result else 'right'}"[:120])


CSE = [
    ("x[:, 1:]", lambda m, x: x[:, 1:], x),
    ("x + 1, x + 1.0", lambda m, x: (x + 1, x + 1.0), n),
    ("x.tanh(), self.tanh(x)", lambda m, x: (x.tanh(), m.tanh(x)), x),
]
FOLD = [
    ("x + dropout(weight)", lambda m, x: x + F.dropout(m.weight, 0.5, True), x),
    ("x + weight.mul_(2).sum()", lambda m, x: x + m.weight.mul_(2).sum(), x),
]
told("cse", CSE)
told("const-fold", FOLD)

# %% [markdown]
# - `CSEPass` cannot hash a slice (before Python 3.12), takes 1 for 1.0, and a *module* called `tanh` for the method of
#   this name: the kind of a node is not in its key.
# - `const_fold` computes at compile time what depends on constants alone, a draw too: the program then returns the same
#   "random" numbers at every call. And a write to a constant is done once more. Its docstring states no condition.
#
# Importers translate hundreds of operators with a dozen options each, and forget some. Relax has two of them:

# %%
IMPORTED = [
    ("torch.sub(x, 3 · x, alpha=2)", lambda m, x: torch.sub(x, x * 3, alpha=2), x),
    ("torch.add(x, 3 · x, alpha=2)", lambda m, x: torch.add(x, x * 3, alpha=2), x),
    ("integers: x + 0.5", lambda m, x: x + 0.5, n),
    ("integers: x // 2", lambda m, x: x // 2, n),
    ("batch norm in eval mode", lambda m, x: m.norm(x), torch.randn(1, 3, 4, 4)),
]
if find_spec("tvm"):
    for name in ("relax-fx", "relax"):
        told(name, IMPORTED)
else:
    print("TVM is not installed.")

# %% [markdown]
# `alpha` is dropped, 0.5 becomes an integer of the type of x, the constant 2 gets 32 bits where x has 64, and the batch
# norm uses the statistics of the batch. Now ONNX export, run by ONNX's own reference, Inductor, torch's compiler, and
# IREE, on programs on which others stumbled:

# %%
if find_spec("onnx") and find_spec("onnxscript"):
    told("onnx", IMPORTED)
try:
    told("inductor", [(*IMPORTED[0][:2], x), (*IMPORTED[3][:2], n)])
except Exception as error:  # it needs a C++ compiler
    print("Inductor does not run here:", type(error).__name__)
if find_spec("iree"):
    told("iree", IMPORTED[:4])

# %% [markdown]
# What is "right" on five programs is not free of faults. Search on: the book's page of faults,
# [docs/faults.md](../docs/faults.md), lists what was found in these versions.
#
# ## A report
#
# A maintainer has ten minutes. They need a program that they can paste and that fails; what comes out, and what should;
# the promise that is broken; versions; and a reason to believe that it is no rounding: a **second oracle**, which knows
# nothing of the first. For values it is the graph in float64, for a crash it is `torch.export`, which takes the graph.

# %%
print(faults[0].report())

# %% [markdown]
# Before you send it: search for the message among the issues that are known; try the newest version; one fault for each
# report, smallest program first. And do not send five hundred.
#
# `python -m passlab.hunt relax --minutes 5` searches, shrinks, groups, and prints such reports.
